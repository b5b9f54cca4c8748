"""Builds a curriculum for a class: the order of the objectives, the weeks, and a lesson sheet for each week.

    python curriculum_builder.py                               # offline: the replies of the models are in replies.toml
    python curriculum_builder.py --model openai:gpt-5-mini     # with a model
    python curriculum_builder.py --journal runs.db --follow-up # then change it: a second request goes on from the first

The replies of replies.toml were written by hand. The tools really run.
"""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import chargehand as ch
from chargehand.documents import BarChart, Callout, Document, Figure, Section, Table, task_results
from chargehand.presentation.script_progress import show_progress
from chargehand.tools.calculator import maths
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data

HERE = Path(__file__).parent
DATA = HERE / "data"
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = "Sample: the replies of the models were written by hand. The tools ran, and the figures were checked."
REQUEST = (
    "Build a mathematics curriculum for our class from the objectives and the calendar, and write a lesson sheet for each week. "
    "Say in which topics the class is weak, and what keeps us from teaching an objective."
)
FOLLOW_UP = "In which weeks of this curriculum do we teach the two weakest topics, and what should a substitute teacher know?"


class Week(BaseModel):
    """What is taught in one week."""

    week: int
    monday: Figure
    objectives: list[str]
    sheet: str


class Topic(BaseModel):
    """How much the class knows of a topic, of 10."""

    topic: str
    score: Figure


class LeftOut(BaseModel):
    """An objective that cannot be taught."""

    objective: Figure
    needs: Figure
    why: str


class Curriculum(BaseModel):
    """The curriculum of a term."""

    summary: str
    topics: list[Topic]
    weeks: list[Week]
    left_out: list[LeftOut]


#: what a run returns
OUTPUT = Curriculum

ANALYST = "Give every figure with the SQL that gives exactly this value."
RESEARCHER = "Quote rules with file and line."
WRITER = """Write one lesson sheet for the week you are given, in Markdown, as the guidelines want it: aim, warm-up if a topic is weak,
one worked example, three exercises, one closing question. Plain words, at most 120 words. Calculate what you compute, and never guess."""
REVIEWER = """Check the sheets against the guidelines, and the plan against the objectives. Look up every objective that is left out and
what it needs. Name it with the reason and its line in objectives.csv."""


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, each with its line."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, "line": str(line)} for line, row in enumerate(csv.DictReader(file), 2)]


def boss(model: str, folder: Path = DATA, journal: str | None = None) -> ch.Supervisor:
    """The supervisor of the curriculum, over a folder with objectives, survey, calendar and guidelines."""

    @ch.worker("scheduler", "Puts the objectives into weeks, each after what it needs", version="1")
    def scheduler(brief: ch.Brief) -> list[dict[str, Any]]:
        objectives, taught, units = rows(folder / "objectives.csv"), set[str](), []
        topics = set[str]()
        calendar = rows(folder / "calendar.csv")
        for week, following in zip(calendar, [*calendar[1:], None], strict=True):
            left, codes = int(week["minutes"]), []
            is_before_holiday = following is not None and following["minutes"] == "0"
            for each in objectives:
                is_ready = each["code"] not in taught and taught.issuperset(each["needs"].split())
                is_new = each["topic"] not in topics
                if is_ready and int(each["minutes"]) <= left and not (is_new and is_before_holiday):
                    left -= int(each["minutes"])
                    codes.append(each["code"])
                    taught.add(each["code"])
                    topics.add(each["topic"])
            if codes:
                units.append(
                    {"week": int(week["week"]), "monday": week["monday"], "objectives": codes}
                )
        return units

    @ch.worker("prerequisites", "Finds objectives that need one which is in no file", version="1")
    def prerequisites(brief: ch.Brief) -> list[dict[str, str]]:
        objectives = rows(folder / "objectives.csv")
        known = {each["code"] for each in objectives}
        return [
            {"objective": each["code"], "missing": need, "line": each["line"]}
            for each in objectives
            for need in each["needs"].split()
            if need not in known
        ]

    @ch.tool(effect="pure")
    def look_up_objective(code: str) -> str:
        """Look up a learning objective by its code, such as N1: its line, its text and what it needs."""
        for each in rows(folder / "objectives.csv"):
            if each["code"] == code.strip():
                needs = each["needs"] or "nothing"
                return f"objectives.csv:{each['line']}: {code}, {each['objective']}; needs {needs}"
        return f"{code} is not in objectives.csv"

    return ch.Supervisor(
        [
            ch.Worker(
                "analyst",
                "Answers questions about the survey of the class",
                instructions=ANALYST,
                tools=data(folder),
            ),
            ch.Worker(
                "researcher",
                "Knows the guidelines for lesson sheets",
                instructions=RESEARCHER,
                tools=files(folder),
            ),
            ch.Worker(
                "writer",
                "Writes a lesson sheet for one week",
                instructions=WRITER,
                tools=maths(),
            ),
            ch.Worker(
                "reviewer",
                "Checks lesson sheets and plans",
                instructions=REVIEWER,
                tools=[look_up_objective],
            ),
            scheduler,
            prerequisites,
        ],
        model=model,
        journal=journal,
        limits=ch.Limits(calls=60, deadline=1200),
        # A week without a sheet is a gap; the other weeks are still of use.
        on_failure=["again", "without"],
    )


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The curriculum as a document for teachers."""
    made = result.output
    if not isinstance(made, Curriculum):
        return Document("Curriculum", task_results(result), result=result, label=label)
    sheets = [part for each in made.weeks for part in (Section(f"Week {each.week}"), each.sheet)]
    return Document(
        "Curriculum",
        [
            made.summary,
            *(
                Callout("Not taught:", [each.objective, " needs ", each.needs, f". {each.why}"])
                for each in made.left_out
            ),
            Section("What the class knows"),
            BarChart(
                "Average score of 10, by topic", [(each.topic, each.score) for each in made.topics]
            ),
            Section("The weeks"),
            Table(
                ["week", "monday", "objectives"],
                [[each.week, each.monday, "; ".join(each.objectives)] for each in made.weeks],
            ),
            *sheets,
        ],
        result=result,
        data=folder,
        label=label,
    )


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("request", nargs="?", default=REQUEST)
    arguments.add_argument("--model", default=WRITTEN, help="such as openai:gpt-5-mini")
    arguments.add_argument(
        "--data",
        type=Path,
        default=DATA,
        help="objectives.csv, survey.csv, calendar.csv, guidelines.md",
    )
    arguments.add_argument("--journal", default=None, help="keep the run in this file")
    arguments.add_argument(
        "--key", default=None, help="go on with the run of this key, if there is one"
    )
    arguments.add_argument(
        "--follow-up", action="store_true", help="then ask a second question about the curriculum"
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("curriculum"), help="where the document goes"
    )
    chosen = arguments.parse_args()
    supervisor = show_progress(boss(chosen.model, chosen.data, chosen.journal))
    result = supervisor.run_sync(chosen.request, output=OUTPUT, key=chosen.key)
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, *made.write(chosen.out))
    if chosen.follow_up:
        print(supervisor.run_sync(FOLLOW_UP, after=result.id).answer)
    return 0 if result.status is ch.RunStatus.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
