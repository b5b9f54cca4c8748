"""What it costs to tell a planner what a crew can reach: a folder of 10,000 files, 500 of them tables."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, folder_on_disk, options_for, report

import chargehand as ch
from chargehand.roles.crew_data_catalog import MOST_BYTES, in_words, material_of
from chargehand.roles.roster import Roster
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data

REQUEST = "How many units did Tiller deliver in 2024, and which price applies?"
TABLE = "date,supplier,units,delay_days\n2024-01-05,Tiller,40,2\n"
#: characters of a token, at the least
CHARACTERS = 3


def fill(folder: Path, count: int) -> Path:
    """So many files in folders of a hundred, one in twenty of them a table."""
    for number in range(count):
        place = folder / f"folder_{number // 100}"
        place.mkdir(parents=True, exist_ok=True)
        is_table = number % 20 == 0
        name = f"orders_{number}.csv" if is_table else f"report_{number}.md"
        (place / name).write_text(TABLE if is_table else "Nothing of note.")
    return folder


async def measure(count: int, repeats: int) -> list[Figure]:
    with folder_on_disk() as place:
        folder = fill(place / "files", count)
        crew = [
            ch.Worker("researcher", "Reads files", tools=files(folder)),
            ch.Worker("analyst", "Queries tables", tools=data(folder)),
        ]
        roster = Roster(crew)
        seconds = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            words = in_words(await material_of(roster), REQUEST, MOST_BYTES)
            seconds.append(time.perf_counter() - began)
    tokens = len(words.encode()) / CHARACTERS
    return [
        Figure(name=f"{count:,} files: tokens at the most", value=tokens, bar=2_000),
        Figure(name=f"{count:,} files: cold, in a thread", value=seconds[0] * 1e3, unit="ms"),
        Figure(
            name=f"{count:,} files: warm",
            value=sorted(seconds[1:])[repeats // 2] * 1e3,
            unit="ms",
            bar=50,
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--files", type=int, default=10_000, metavar="N")
        parser.add_argument("--repeats", type=int, default=5)

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(measure(options.files, options.repeats)), options)


if __name__ == "__main__":
    sys.exit(main())
