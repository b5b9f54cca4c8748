"""Plans the launch of a product: market, price, copy for each channel, calendar.

    python product_launch.py                               # offline: the replies of the models are in replies.toml
    python product_launch.py --model openai:gpt-5-mini     # with a model

The replies of replies.toml were written by hand. The tools really run.
"""

import argparse
import csv
import json
import math
import re
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import chargehand as ch
from chargehand.documents import (
    BarChart,
    Bullets,
    Callout,
    Cell,
    Document,
    Figure,
    LineChart,
    Paragraph,
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
    "Plan the launch of the Tidewell carafe as of 2026-02-16: the market, the price with its margin and break-even, copy for "
    "each channel, and a calendar. Can we keep the price and the day of the brief?"
)
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = "Sample: the replies of the models were written by hand. The tools ran, and the figures were checked."
#: VAT and payment fee, as the brief says
VAT, FEE = 0.20, 0.025


class Contradiction(BaseModel):
    """Sources that cannot both be right."""

    topic: str
    finding: str
    #: what each source says
    figures: list[Figure]
    #: which one the plan goes by, and why
    assumed: str


class PricePoint(BaseModel):
    """A price, and what comes of it with each purchase price."""

    name: str
    price: Figure
    #: per unit, after all costs per unit
    margin_by_sheet: Figure
    margin_by_letter: Figure
    #: of the net price
    margin_percent_by_letter: Figure
    #: units that earn the fixed costs; none if each unit loses money
    break_even: Figure | None
    #: of the people in the survey
    would_pay: Figure
    verdict: str


class MarketFact(BaseModel):
    finding: str
    figure: Figure


class Demand(BaseModel):
    month: str
    searches: Figure


class Copy(BaseModel):
    """What is written for one channel."""

    channel: str
    audience: str
    text: str
    #: the most that the channel takes
    most_characters: Figure
    #: the facts that the text claims, as they stand in product_facts.md
    facts: list[Figure]


class Milestone(BaseModel):
    milestone: str
    owner: str
    #: computed
    day: str
    working_days_before: Figure


class LaunchPlan(BaseModel):
    #: in words, without numbers
    summary: str
    contradictions: list[Contradiction]
    price_in_brief: Figure
    launch_day: Figure
    #: by which the goods are in the warehouse
    goods_day: Figure
    least_margin: Figure
    fixed_costs: Figure
    first_order: Figure
    recommended: str
    price_points: list[PricePoint]
    market: list[MarketFact]
    demand: list[Demand]
    copies: list[Copy]
    calendar: list[Milestone]
    open_points: list[str]


#: what a run returns
OUTPUT = LaunchPlan

COST_READER = """Read the brief, then every letter and every cost table. Answer with JSON alone:
{"purchase": [{"eur": …, "source": "file:line", "date": …}, …], "contradictions": ["…"], "delivery": …}
List the purchase price of a unit from every source that gives one. If they differ, say which is newer; do not choose."""
ANALYST = "Answer with SQL alone. Give every value with the SELECT that gives exactly this value."
COPYWRITER = """Write the text for this one channel, in its tone, shorter than its limit. Read the facts first and claim nothing
else. Answer with JSON alone: {"channel": …, "text": …, "fact_lines": [lines of product_facts.md that the text claims]}"""
CLAIMS_CHECKER = """Read the rules. Go through each text and name every claim that breaks a rule or is no fact of its list. Say
of each text whether it may go out. Change nothing yourself."""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def numbered(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(f"{path.name}:{number}: {line}" for number, line in enumerate(lines, 1))


def marketing_team(folder: Path) -> ch.Supervisor:
    """A supervisor with workers of its own, which plans its part by itself."""

    @ch.worker("channels", "Lists the channels with audience, tone and limit of characters")
    async def channels(brief: ch.Brief) -> list[dict[str, str]]:
        return rows_of(folder / "channels.csv")

    @ch.worker("length_checker", "Counts the characters of texts and compares them with the limits")
    async def length_checker(brief: ch.Brief) -> list[dict[str, object]]:
        most = {row["channel"]: int(row["most_characters"]) for row in rows_of(folder / "channels.csv")}  # fmt: skip
        counted: list[dict[str, object]] = []
        texts = only_input(brief, "the texts")
        if not isinstance(texts, list):
            raise ch.WorkerError(f"this needs a list of texts: {str(texts)[:80]!r}")
        for entry in texts:
            if entry is None:
                continue  # that text was not written, which is a gap of its own
            copy = read_json(entry, "channel", "text")
            limit, length = most.get(copy["channel"], 0), len(copy["text"])
            counted.append({"channel": copy["channel"], "characters": length, "most": limit, "fits": length <= limit})  # fmt: skip
        return counted

    @ch.tool(effect="pure")
    def read_facts() -> str:
        """Read the facts about the product that may be claimed, each with file and line."""
        return numbered(folder / "product_facts.md")

    @ch.tool(effect="pure")
    def read_rules() -> str:
        """Read what copy may not claim, each rule with file and line."""
        return numbered(folder / "claim_rules.md")

    return ch.Supervisor(
        [
            channels,
            ch.Worker(
                "copywriter",
                "Writes the launch text for one channel",
                instructions=COPYWRITER,
                tools=[read_facts],
            ),
            length_checker,
            ch.Worker(
                "claims_checker",
                "Checks texts against the rules for claims",
                instructions=CLAIMS_CHECKER,
                tools=[read_rules],
            ),
        ],
        name="marketing_team",
        description="Writes and checks the launch copy, one text for each channel",
        on_failure=["again", "without"],
    )


def only_input(brief: ch.Brief, what: str) -> Any:
    """The output of the task before; a clear error if the plan has put none before."""
    if not brief.inputs:
        raise ch.WorkerError(f"this needs {what}: put a task before it that finds them")
    return next(iter(brief.inputs.values()))


def read_json(entry: Any, *keys: str) -> dict[str, Any]:
    """What a model wrote as JSON; a clear error if it is something else."""
    try:
        told = json.loads(entry) if isinstance(entry, str) else entry
        return {key: told[key] for key in keys}
    except (ValueError, KeyError, TypeError) as error:
        raise ch.WorkerError(
            f"this needs JSON with {', '.join(keys)}: {entry!r}: {error!r}"
        ) from None


def boss(model: str, folder: Path = DATA, journal: str | None = None) -> ch.Supervisor:
    """The supervisor of the launch, over a folder with a brief, costs, letters and market tables."""

    @ch.tool(effect="pure")
    def read_brief() -> str:
        """Read the launch brief, each line with file and number."""
        return numbered(folder / "brief.md")

    @ch.worker(
        "pricing",
        "Computes margin and break-even of each price point, for each purchase price that was found",
    )
    async def pricing(brief: ch.Brief) -> list[dict[str, object]]:
        costs = read_json(only_input(brief, "the purchase prices"), "purchase")
        found = [read_json(each, "eur", "source") for each in costs["purchase"]]
        sheet = rows_of(folder / "costs" / "cost_sheet.csv")
        other = sum(float(row["eur_per_unit"]) for row in sheet if row["item"] != "purchase")
        fixed = sum(float(row["eur"]) for row in rows_of(folder / "costs" / "fixed_costs.csv"))
        return [
            {"name": point["name"], "purchase": purchase["eur"], "source": purchase["source"]}
            | margin(float(point["price_eur"]), float(purchase["eur"]), other, fixed)
            for point in rows_of(folder / "costs" / "price_points.csv")
            for purchase in found
        ]

    @ch.worker(
        "calendar", "Computes the days of the milestones from the launch day, in working days"
    )
    async def calendar(brief: ch.Brief) -> list[dict[str, str]]:
        told = re.search(
            r"Launch day: (\d{4}-\d\d-\d\d)", (folder / "brief.md").read_text(encoding="utf-8")
        )
        if told is None:
            raise ch.WorkerError("brief.md has no line such as 'Launch day: 2026-04-14'")
        launch = date.fromisoformat(told[1])
        return [
            {
                "milestone": row["milestone"],
                "owner": row["owner"],
                "day": working_days_before(launch, int(row["working_days_before"])).isoformat(),
            }
            for row in rows_of(folder / "milestones.csv")
        ]

    return ch.Supervisor(
        [
            ch.Worker(
                "cost_reader",
                "Reads the brief, letters of suppliers and cost tables, and compares what they say of costs and deliveries",
                instructions=COST_READER,
                tools=[*files([folder / "letters", folder / "costs"]), read_brief],
            ),
            pricing,
            ch.Worker(
                "market_analyst",
                "Answers questions about the tables of similar products, the survey and searches",
                instructions=ANALYST,
                tools=data(folder / "market"),
            ),
            marketing_team(folder),
            calendar,
        ],
        model=model,
        journal=journal,
        limits=ch.Limits(calls=80, deadline=900),
        # A plan without copy is still a plan; one without costs says that it has none.
        on_failure=["again", "without"],
    )


def margin(price: float, purchase: float, other: float, fixed: float) -> dict[str, object]:
    """What a unit earns at a price, and how many must be sold to earn the fixed costs."""
    net = price / (1 + VAT)
    left = net - purchase - other - FEE * price
    return {
        "price": price,
        "margin_eur": round(left, 2),
        "margin_percent": round(100 * left / net, 1),
        "break_even_units": math.ceil(fixed / left) if left > 0 else None,
    }


def working_days_before(day: date, count: int) -> date:
    while count:
        day -= timedelta(days=1)
        count -= day.weekday() < 5
    return day


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The launch plan as a document."""
    title = "Launch plan: Tidewell carafe"
    plan = result.output
    if not isinstance(plan, LaunchPlan):
        return Document(title, task_results(result), result=result, label=label)
    return Document(
        title,
        [
            plan.summary,
            *(
                Callout(
                    f"{each.topic}: the sources contradict each other.",
                    [f"{each.finding} Figures: ", *_joined(each.figures), f". {each.assumed}"],
                )
                for each in plan.contradictions
            ),
            Paragraph(["Launch: ", plan.launch_day, ". Goods in the warehouse: ", plan.goods_day,
                       ". Price in the brief: ", plan.price_in_brief, ". First order: ", plan.first_order,
                       ". Fixed costs: ", plan.fixed_costs, ". Least margin: ", plan.least_margin, "."]),
            Section("Price"),
            plan.recommended,
            Table(
                ["price point", "price", "margin by cost sheet", "margin by letter", "of net", "break-even", "would pay", "verdict"],
                [
                    [each.name, each.price, each.margin_by_sheet, each.margin_by_letter, each.margin_percent_by_letter,
                     each.break_even or "never", each.would_pay, each.verdict]
                    for each in plan.price_points
                ],
                caption="Margin per unit after VAT, payment fee and all costs per unit; “of net” and break-even by the letter",
            ),
            BarChart(
                "Margin per unit with the purchase price of the letter",
                [(f"{each.name}: {each.price}", each.margin_by_letter) for each in plan.price_points],
            ),
            Section("Market"),
            Table(["finding", "figure"], [[each.finding, each.figure] for each in plan.market]),
            LineChart(
                "Searches for cold brew in 2025",
                [each.month for each in plan.demand],
                {"all search terms": [each.searches for each in plan.demand]},
            ),
            Section("Copy"),
            Table(
                ["channel", "audience", "text", "characters", "most"],
                [
                    [each.channel, each.audience, each.text, len(each.text), each.most_characters]
                    for each in plan.copies
                ],
            ),
            Table(
                ["claim", "made in"],
                [
                    [fact, ", ".join(each.channel for each in plan.copies if fact in each.facts)]
                    for fact in dict.fromkeys(fact for each in plan.copies for fact in each.facts)
                ],
                caption="What the texts claim, as it stands in the list of facts",
            ),
            Section("Calendar"),
            Table(
                ["day (computed)", "milestone", "owner", "working days before"],
                [[each.day, each.milestone, each.owner, each.working_days_before] for each in plan.calendar],
            ),
            Section("Open points"),
            Bullets(plan.open_points),
        ],
        result=result,
        data=folder,
        label=label,
    )  # fmt: skip


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
        help="a folder with brief.md, costs/, letters/ and market/",
    )
    arguments.add_argument("--journal", default=None, help="keep the run in this file")
    arguments.add_argument(
        "--key", default=None, help="go on with the run of this key, if there is one"
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("product_launch"), help="where the plan goes"
    )
    chosen = arguments.parse_args()
    supervisor = show_progress(boss(chosen.model, chosen.data, chosen.journal))
    result = supervisor.run_sync(chosen.request, output=OUTPUT, key=chosen.key)
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, *made.write(chosen.out))
    return 0 if result.status is ch.RunStatus.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
