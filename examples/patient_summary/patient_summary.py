"""Summarises the records of a patient for a clinician, who must confirm that the summary states no diagnosis.

    python patient_summary.py                               # offline: the replies of the models are in replies.toml
    python patient_summary.py --model openai:gpt-5-mini     # with a model

The patient does not exist. The replies of replies.toml were written by hand. The tools really run.
"""

import argparse
import csv
import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import chargehand as ch
from chargehand.documents import (
    Callout,
    Cell,
    Document,
    Figure,
    LineChart,
    Paragraph,
    Section,
    Table,
    cited,
    task_results,
)
from chargehand.presentation.ask_at_terminal import (
    answer_questions,
    ask_at_terminal,
    waiting_lines,
)
from chargehand.presentation.script_progress import show_progress
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data

HERE = Path(__file__).parent
DATA = HERE / "data"
REQUEST = (
    "Summarise the records of this patient for the appointment in January 2026: visits, letters, trends of the "
    "laboratory values, current medicines and whether they interact, and what is missing. State no diagnosis."
)
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = (
    "Sample: the patient is invented, and the replies of the models were written by hand. The tools ran, and the figures "
    "were checked. Not for clinical use."
)
#: what a clinician answers
CONFIRM, REJECT = "it states no diagnosis", "it states a diagnosis"


class Interaction(BaseModel):
    """Two current medicines that are in the table of interactions."""

    first: Figure
    first_prescriber: Figure
    second: Figure
    second_prescriber: Figure
    severity: Figure
    effect: Figure
    action: Figure


class LabTrend(BaseModel):
    test: str
    first: Figure
    latest: Figure
    latest_on: Figure
    low: Figure
    high: Figure


class LabPoint(BaseModel):
    #: YYYY-MM-DD
    day: str
    #: None: it was ordered, and there is no result
    value: Figure | None


class LabSeries(BaseModel):
    """All values of one test, oldest first."""

    test: str
    high: Figure
    points: list[LabPoint]


class MissingResult(BaseModel):
    test: str
    ordered_on: Figure
    ordered_by: Figure


class Medicine(BaseModel):
    name: Figure
    dose: Figure
    since: Figure
    prescriber: Figure


class VisitEntry(BaseModel):
    day: Figure
    doctor: Figure
    reason: Figure
    blood_pressure: Figure


class PatientSummary(BaseModel):
    interactions: list[Interaction]
    missing_results: list[MissingResult]
    trends: list[LabTrend]
    #: of the tests whose latest value is outside of its limits or missing
    series: list[LabSeries]
    medicines: list[Medicine]
    visits: list[VisitEntry]


#: what a run returns
OUTPUT = PatientSummary
#: what --yes answers
YES = CONFIRM

READER = """Read the whole document. Answer with JSON alone:
{"file": …, "date": "YYYY-MM-DD", "doctor": …, "facts": [{"line": …, "says": …}, …]}
Quote what the document says: reason, blood pressure, weight, orders, medicines that were started or stopped. The line is
the number in the file. Conclude nothing."""
ANALYST = """Describe how each laboratory value changed, with the values and their dates, and which are outside of their limits.
Look the values up; compute nothing in your head. Conclude nothing about causes."""
PHARMACIST = """For each pair of medicines that was found, look the pair up, and say in one or two sentences who prescribed
which, whether their letters show that they knew of the other medicine, and what the table advises. Give no advice of your own."""
WRITER = """Write the summary that a clinician reads before the appointment, in at most 150 words: first what needs attention,
then the course, then what is missing. Put the source behind every figure and date, as file:line in brackets: 5.4 mmol/L
[labs.csv:34]. State what the records say. Do not name a disease or a cause that they do not name: this is no diagnosis."""


def boss(model: str, folder: Path = DATA, journal: str | None = None) -> ch.Supervisor:
    """The supervisor of the summary, over the folder of one patient."""

    @ch.tool(effect="pure")
    def look_up_interaction(medicine: str, other: str) -> list[dict[str, str]]:
        """Look up two medicines in the table of interactions."""
        return [
            row
            for row in _rows(folder, "interactions.csv")
            if {row["medicine_a"], row["medicine_b"]} == {medicine.lower(), other.lower()}
        ]

    @ch.worker(
        "medication_check",
        "Finds the current medicines, and which pairs of them interact by the table",
    )
    def medication_check(brief: ch.Brief) -> dict[str, Any]:
        """Compares every pair of current medicines with the table: a model might overlook one."""
        return check_medicines(folder)

    @ch.worker(
        "lab_trends",
        "Computes the trends of all laboratory values, and finds orders without a result",
    )
    def lab_trends(brief: ch.Brief) -> dict[str, Any]:
        return compute_trends(folder)

    return ch.Supervisor(
        [
            ch.Worker(
                "records_reader",
                "Reads one visit note or letter and extracts what it says with the lines",
                instructions=READER,
                tools=files(folder),
            ),
            ch.Worker(
                "lab_analyst",
                "Describes the course of laboratory values",
                instructions=ANALYST,
                tools=data(folder),
            ),
            ch.Worker(
                "pharmacist",
                "Explains interactions between medicines that were found",
                instructions=PHARMACIST,
                tools=[look_up_interaction],
            ),
            ch.Worker("writer", "Drafts the summary for the clinician", instructions=WRITER),
            medication_check,
            lab_trends,
            clinician,
        ],
        model=model,
        journal=journal,
        # Active time: the clinician may answer tomorrow.
        limits=ch.Limits(calls=80, active=900),
        # A record that cannot be read is a gap that the summary names. A refusal of the clinician is final.
        on_failure=["again", "without"],
    )


@ch.worker("clinician", "Lets a clinician confirm that the drafted summary states no diagnosis")
async def clinician(brief: ch.Brief) -> dict[str, str]:
    """The draft, once a person has confirmed exactly this text."""
    draft = "\n\n".join(str(each) for each in brief.inputs.values()).strip()
    asked = (
        f"Does this summary state no diagnosis? It is not finished without your answer.\n\n{draft}"
    )
    if await brief.ask(asked, choices=[CONFIRM, REJECT]) != CONFIRM:
        raise ch.WorkerError("the clinician did not confirm the summary", kind="denied")
    return {"confirmed": draft}


def check_medicines(folder: Path) -> dict[str, Any]:
    """The current medicines and the pairs that interact, each value with its line."""
    current = [row for row in _rows(folder, "medications.csv") if not row["until"]]
    by_name = {row["medicine"]: row for row in current}
    table = {
        frozenset((row["medicine_a"], row["medicine_b"])): row
        for row in _rows(folder, "interactions.csv")
    }
    pairs = []
    for first, second in itertools.combinations(sorted(by_name), 2):
        if (known := table.get(frozenset((first, second)))) is None:
            continue
        pairs.append(
            {
                "medicines": [first, second],
                "prescribers": [by_name[first]["prescriber"], by_name[second]["prescriber"]],
                "listed_in": [by_name[first]["source"], by_name[second]["source"]],
                **{key: known[key] for key in ("severity", "effect", "action", "source")},
            }
        )
    pairs.sort(key=lambda each: each["severity"] != "severe")
    return {"current": current, "interactions": pairs}


def compute_trends(folder: Path) -> dict[str, Any]:
    """First and latest value of each test, its change, and the orders that have no result."""
    results, orders = _rows(folder, "labs.csv"), _rows(folder, "lab_orders.csv")
    trends = []
    for test in dict.fromkeys(row["test"] for row in results):
        rows = sorted((r for r in results if r["test"] == test), key=lambda row: row["taken_on"])
        first, latest = rows[0], rows[-1]
        value = float(latest["value"])
        trends.append(
            {
                "test": test,
                "unit": latest["unit"],
                "first": [first["taken_on"], first["value"], first["source"]],
                "latest": [latest["taken_on"], latest["value"], latest["source"]],
                "limits": [latest["low"], latest["high"]],
                "change": f"{value - float(first['value']):+.4g}",
                "is_outside": not float(latest["low"]) <= value <= float(latest["high"]),
            }
        )
    filed = {(row["taken_on"], row["test"]) for row in results}
    missing = [row for row in orders if (row["ordered_on"], row["test"]) not in filed]
    return {"trends": trends, "ordered_without_result": missing}


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table, each with its source: file and line."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return [
            {**row, "source": f"{name}:{line}"} for line, row in enumerate(csv.DictReader(file), 2)
        ]


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The summary of a finished run. Its text is the one that the clinician confirmed, to the letter."""
    made, confirmed = result.output, _confirmed(result)
    title = "Patient summary: Sample Patient 0042"
    opening: list[Any] = [
        Section("Summary"),
        *(Paragraph(cited(each)) for each in confirmed.split("\n\n")),
        "A clinician confirmed that this text states no diagnosis.",
    ]
    if not confirmed:
        opening = [
            Callout(
                "Not confirmed by a clinician.",
                ["The summary text is left out. Do not use this document."],
            )
        ]
    if not isinstance(made, PatientSummary):
        return Document(
            title, [*opening, *task_results(result)], result=result, data=folder, label=label
        )
    blocks = [*_alerts(made), *opening, *_laboratory(made), *_medicines(made), *_visits(made)]
    return Document(title, blocks, result=result, data=folder, label=label)


def _confirmed(result: ch.RunResult) -> str:
    for task in result.tasks.values():
        if task.worker == "clinician" and isinstance(task.output, dict):
            return str(task.output["confirmed"])
    return ""


def _alerts(made: PatientSummary) -> list[Any]:
    severe = [
        Callout(
            f"Severe interaction: {each.first.value} and {each.second.value}.",
            [
                "Prescribed by ",
                each.first_prescriber,
                " and ",
                each.second_prescriber,
                ". The table says: ",
                each.effect,
                "; ",
                each.action,
            ],
        )
        for each in made.interactions
        if each.severity.value == "severe"
    ]
    missing = [
        Callout(
            f"Missing result: {each.test}.",
            ["Ordered on ", each.ordered_on, " by ", each.ordered_by],
        )
        for each in made.missing_results
    ]
    return [*severe, *missing]


def _laboratory(made: PatientSummary) -> list[Any]:
    rows: list[list[Cell]] = [
        [e.test, e.first, e.latest, e.latest_on, e.low, e.high, _place(e)] for e in made.trends
    ]
    columns = [
        "test",
        "first value",
        "latest value",
        "taken on",
        "lower limit",
        "upper limit",
        "limits",
    ]
    charts = [
        LineChart(
            f"{each.test} ({each.high.unit})",
            [point.day for point in each.points],
            {
                each.test: [p.value for p in each.points],
                "upper limit": [each.high] * len(each.points),
            },
        )
        for each in made.series
    ]
    return [Section("Laboratory values"), Table(columns, rows), *charts]


def _place(trend: LabTrend) -> str:
    """Where the latest value lies; empty within its limits."""
    value, low, high = (each.value for each in (trend.latest, trend.low, trend.high))
    if isinstance(value, str) or isinstance(low, str) or isinstance(high, str):
        return "not a number"
    return "above" if value > high else "below" if value < low else ""


def _medicines(made: PatientSummary) -> list[Any]:
    return [
        Section("Current medicines"),
        Table(
            ["medicine", "dose", "since", "prescribed by"],
            [[each.name, each.dose, each.since, each.prescriber] for each in made.medicines],
        ),
        Section("Interactions between current medicines"),
        Table(
            ["medicines", "", "severity", "effect", "the table advises"],
            [[e.first, e.second, e.severity, e.effect, e.action] for e in made.interactions],
        ),
    ]


def _visits(made: PatientSummary) -> list[Any]:
    rows = [[each.day, each.doctor, each.reason, each.blood_pressure] for each in made.visits]
    return [Section("Visits"), Table(["date", "doctor", "reason", "blood pressure"], rows)]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("request", nargs="?", default=REQUEST)
    arguments.add_argument("--model", default=WRITTEN, help="such as openai:gpt-5-mini")
    arguments.add_argument("--data", type=Path, default=DATA, help="a folder with the same files")
    arguments.add_argument("--journal", help="where runs are kept; default: beside the summary")
    arguments.add_argument("--key", help="go on with the run of this key, if there is one")
    arguments.add_argument("--resume", metavar="RUN", help="go on with this run")
    arguments.add_argument(
        "--yes", action="store_true", help="confirm the summary unread, for trials without a person"
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("patient_summary"), help="where the summary goes"
    )
    chosen = arguments.parse_args()
    journal = chosen.journal or str(chosen.out.with_suffix(".db"))
    supervisor = show_progress(boss(chosen.model, chosen.data, journal))
    if chosen.resume:
        result = supervisor.resume_sync(chosen.resume, on_question="return", output=OUTPUT)
    else:
        result = supervisor.run_sync(
            chosen.request, output=OUTPUT, key=chosen.key, on_question="return"
        )
    ask = (lambda _: YES) if chosen.yes else ask_at_terminal
    result = answer_questions(supervisor, result, ask, output=OUTPUT)
    if result.questions:
        print(*waiting_lines(result, journal), sep="\n", file=sys.stderr)
        again = shlex.join(["python", *sys.argv, "--resume", result.id])
        print(f"then:       {again}", file=sys.stderr)
        return 4
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, *made.write(chosen.out))
    return 0 if result.status is ch.RunStatus.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
