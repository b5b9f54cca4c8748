"""Reviews supplier contracts against a policy, and writes a report.

    python contract_review.py                               # offline: the replies of the models are in replies.toml
    python contract_review.py --model openai:gpt-5-mini     # with a model

The replies of replies.toml were written by hand. The tools really run.
"""

import argparse
import hashlib
import json
import sys
from datetime import date, timedelta
from pathlib import Path

from pydantic import BaseModel

import chargehand as ch
from chargehand.documents import (
    BarChart,
    Callout,
    Cell,
    Document,
    Figure,
    Section,
    Table,
    task_results,
)
from chargehand.presentation.script_progress import show_progress
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data

HERE = Path(__file__).parent
DATA = HERE / "data"
REQUEST = (
    "Review our supplier contracts against our contract policy as of 2026-01-15. Which clauses breach it, what did we "
    "pay these suppliers in 2025, and by when must we give notice?"
)
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = "Sample: the replies of the models were written by hand. The tools ran, and the figures were checked."


class Breach(BaseModel):
    """A clause that breaches a rule of the policy."""

    supplier: str
    #: of the policy, such as P1
    rule: str
    finding: str
    #: the term of the contract that breaches the rule
    term: Figure
    #: what to ask the supplier for
    ask: str


class Contradiction(BaseModel):
    supplier: str
    finding: str
    terms: list[Figure]


class Notice(BaseModel):
    supplier: str
    ends_on: Figure
    notice_days: Figure
    last_day: str
    renewal_months: Figure | None


class Payment(BaseModel):
    supplier: str
    paid: Figure


class ContractReview(BaseModel):
    summary: str
    breaches: list[Breach]
    contradictions: list[Contradiction]
    notices: list[Notice]
    payments: list[Payment]


#: what a run returns
OUTPUT = ContractReview

READER = """Read the whole contract, its annexes too. Answer with JSON alone:
{"supplier": …, "file": …, "ends_on": "YYYY-MM-DD", "notice_days": …, "renewal_months": … or 0,
 "terms": [{"clause": "3.2", "line": …, "says": …}, …], "contradictions": [{"lines": [.., ..], "says": …}]}
List every term on renewal, notice, fees, liability, personal data and law. The line is the number in the file."""
CHECKER = """Check each term against each rule of the policy. Name the rule, the supplier, the file and the line of every
breach. Report two terms that contradict each other, with both lines, and assume the worse one (rule P7)."""
ANALYST = "Give every amount with the SQL that gives exactly this value."
NEGOTIATOR = "Write one sentence for each breach: what to ask the supplier for, so that the contract fits the rule."


@ch.worker("calendar", "Computes the last day for notice from the terms of contracts", version="1")
async def calendar(brief: ch.Brief) -> list[dict[str, str]]:
    """The last day for each contract, in order of the days."""
    found = []
    readings = next(iter(brief.inputs.values()), None)
    if not isinstance(readings, list):
        raise ch.WorkerError(
            f"this needs a list with the terms of each contract: {str(readings)[:80]!r}"
        )
    for entry in readings:
        if entry is None:
            continue  # that contract could not be read, which is a gap of its own
        try:
            terms = json.loads(entry) if isinstance(entry, str) else entry
            last = date.fromisoformat(terms["ends_on"]) - timedelta(days=int(terms["notice_days"]))
            found.append({"supplier": str(terms["supplier"]), "last_day": last.isoformat()})
        except (ValueError, KeyError, TypeError) as error:
            raise ch.WorkerError(
                f"these are no terms of a contract: {entry!r}: {error!r}"
            ) from None
    return sorted(found, key=lambda each: each["last_day"])


def boss(model: str, folder: Path = DATA, journal: str | None = None) -> ch.Supervisor:
    """The supervisor of the review, over a folder with contracts, a policy and invoices."""

    @ch.tool(effect="pure")
    def read_policy() -> str:
        """Read the contract policy, with line numbers."""
        lines = (folder / "policy.md").read_text(encoding="utf-8").splitlines()
        return "\n".join(f"{number}: {line}" for number, line in enumerate(lines, 1))

    @ch.worker("contract_files", "Lists the contracts, as a list of files with their digests")
    def contract_files(brief: ch.Brief) -> list[dict[str, str]]:
        """With `reuse=`, a contract whose digest has not changed is not read again."""
        return [
            {
                "file": path.relative_to(folder).as_posix(),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted((folder / "contracts").iterdir())
        ]

    return ch.Supervisor(
        [
            contract_files,
            ch.Worker(
                "reader",
                "Reads one contract and extracts its terms with their lines",
                instructions=READER,
                tools=files(folder),
            ),
            ch.Worker(
                "policy_checker",
                "Knows the contract policy and checks terms against it",
                instructions=CHECKER,
                tools=[read_policy],
            ),
            ch.Worker(
                "analyst",
                "Answers questions about invoices and suppliers",
                instructions=ANALYST,
                tools=data(folder),
            ),
            ch.Worker("negotiator", "Writes what to ask a supplier for", instructions=NEGOTIATOR),
            calendar,
        ],
        model=model,
        journal=journal,
        limits=ch.Limits(calls=60, deadline=900),
        # A contract that cannot be read is a gap of the review and no reason to stop it.
        on_failure=["again", "without"],
    )


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The report of a finished review."""
    review = result.output
    if not isinstance(review, ContractReview):
        return Document("Contract review", task_results(result), result=result, label=label)
    return Document(
        "Contract review",
        [
            review.summary,
            *(
                Callout(
                    f"{each.supplier}: two terms contradict each other.",
                    [f"{each.finding} Terms: ", *_joined(each.terms), "."],
                )
                for each in review.contradictions
            ),
            Section("Breaches of the policy"),
            Table(
                ["supplier", "rule", "finding", "term", "ask for"],
                [
                    [each.supplier, each.rule, each.finding, each.term, each.ask]
                    for each in review.breaches
                ],
            ),
            Section("Notice"),
            Table(
                [
                    "supplier",
                    "term ends",
                    "days of notice",
                    "renews for",
                    "last day for notice (computed)",
                ],
                [
                    [
                        each.supplier,
                        each.ends_on,
                        each.notice_days,
                        each.renewal_months or "does not renew",
                        each.last_day,
                    ]
                    for each in review.notices
                ],
            ),
            Section("Paid in 2025"),
            BarChart(
                "Invoices of 2025 by supplier",
                [(each.supplier, each.paid) for each in review.payments],
            ),
        ],
        result=result,
        data=folder,
        label=label,
    )


def _joined(figures: list[Figure]) -> list[Cell]:
    parts: list[Cell] = [part for each in figures for part in (each, "; ")]
    return parts[:-1]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("request", nargs="?", default=REQUEST)
    arguments.add_argument("--model", default=WRITTEN, help="such as openai:gpt-5-mini")
    arguments.add_argument(
        "--data",
        type=Path,
        default=DATA,
        help="a folder with contracts/, policy.md and invoices.csv",
    )
    arguments.add_argument("--journal", default=None, help="keep the run in this file")
    arguments.add_argument(
        "--key", default=None, help="go on with the run of this key, if there is one"
    )
    arguments.add_argument(
        "--reuse",
        default=None,
        metavar="RUN",
        help="read only contracts that changed since this run",
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("contract_review"), help="where the report goes"
    )
    chosen = arguments.parse_args()
    supervisor = show_progress(boss(chosen.model, chosen.data, chosen.journal))
    result = supervisor.run_sync(chosen.request, output=OUTPUT, reuse=chosen.reuse, key=chosen.key)
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, *made.write(chosen.out))
    return 0 if result.status is ch.RunStatus.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
