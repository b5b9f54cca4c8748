"""Makes the sample data: learning objectives, a survey of what a class knows, a calendar, and guidelines.

The same seed always gives the same files. The planted problem: objective F4 needs F3, and F3 is in no file.
"""

import csv
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
OBJECTIVES = [
    # code, topic, objective, minutes, needs
    ("N1", "numbers", "Read and write numbers up to one million", 60, ""),
    ("N2", "numbers", "Round numbers to tens, hundreds and thousands", 60, "N1"),
    ("N3", "numbers", "Find factors and multiples of a number", 90, "N1"),
    ("F1", "fractions", "Say what a fraction of a whole is", 60, "N1"),
    ("F2", "fractions", "Find equal fractions", 90, "F1 N3"),
    ("F4", "fractions", "Add fractions with different denominators", 120, "F2 F3"),
    ("D1", "decimals", "Write tenths and hundredths as decimals", 90, "F1"),
    ("D2", "decimals", "Compare and order decimals", 60, "D1"),
    ("D3", "decimals", "Add and subtract decimals", 90, "D2"),
    ("M1", "measures", "Measure lengths in metres and centimetres", 60, "D1"),
    ("M2", "measures", "Compute the perimeter of a rectangle", 60, "M1"),
    ("M3", "measures", "Compute the area of a rectangle", 90, "M2 N3"),
    ("S1", "statistics", "Read a bar chart", 60, "N2"),
    ("S2", "statistics", "Draw a bar chart from a table", 90, "S1"),
]
#: what the class knows on average, of 10
KNOWN = {"numbers": 7.4, "fractions": 3.9, "decimals": 4.6, "measures": 5.8, "statistics": 6.5}
GUIDELINES = """# Guidelines for lesson sheets

A lesson sheet fits on one page.

1. It begins with what the class should be able to do at the end, in words that a ten-year-old understands.
2. It has one worked example.
3. It has three exercises, from easy to hard.
4. A topic in which the class scored below 5 of 10 gets a warm-up exercise first.
5. It ends with one question by which the teacher sees whether the aim was reached.

# Planning

A week has two lessons of 60 minutes. No new topic begins in a week before a holiday.
An objective is taught only after all objectives that it needs. If one of these is missing, say so, and leave the objective out.
"""


def _write(path: Path, head: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main(target: Path = DATA) -> None:
    draw = random.Random(5)  # noqa: S311  # sample data
    target.mkdir(parents=True, exist_ok=True)
    _write(
        target / "objectives.csv",
        ["code", "topic", "objective", "minutes", "needs"],
        [list(each) for each in OBJECTIVES],
    )
    survey = [
        [f"pupil {number:02}", topic, min(10, max(0, round(draw.gauss(mean, 1.6))))]
        for number in range(1, 25)
        for topic, mean in KNOWN.items()
    ]
    _write(target / "survey.csv", ["pupil", "topic", "score"], survey)
    first = date(2026, 9, 7)
    weeks = [
        [
            n + 1,
            (first + timedelta(weeks=n)).isoformat(),
            0 if n == 6 else 120,
            "autumn holiday" if n == 6 else "",
        ]
        for n in range(12)
    ]
    _write(target / "calendar.csv", ["week", "monday", "minutes", "note"], weeks)
    (target / "guidelines.md").write_text(GUIDELINES, encoding="utf-8")


if __name__ == "__main__":
    main()
