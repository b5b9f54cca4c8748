"""Researches competitors, checks prices against each other, and writes a comparison report.

    python competitive_intelligence.py                               # offline: the replies of the models are in replies.toml
    python competitive_intelligence.py --model openai:gpt-5-mini     # with a model

The replies of replies.toml were written by hand. The tools and the MCP server really run.
"""

import argparse
import csv
import functools
import json
import sys
from pathlib import Path

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
from chargehand.tools.mcp import McpServer, mcp_server
from chargehand.tools.sql_tables import data

HERE = Path(__file__).parent
DATA = HERE / "data"
REQUEST = (
    "Compare Harbour Desk with the competitors on our watchlist as of 2026-01-31: prices of the Team plan for 25 seats, "
    "features, reviews, news and the deals that we lost to them. What should we do?"
)
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = "Sample: the replies of the models were written by hand. The tools ran, and the figures were checked."
#: of the usual deal
SEATS = 25


class Competitor(BaseModel):
    name: str
    #: of the Team plan, per seat and month
    price: Figure
    #: of the usual deal in a year
    yearly_cost: Figure
    #: how many of the features that we track are in Team or Starter
    features: Figure
    stars: Figure
    minimum_term: Figure
    trial: Figure
    deals_lost: Figure
    yearly_lost: Figure
    #: in words, without numbers
    strength: str
    weakness: str


class Contradiction(BaseModel):
    """Sources that cannot both be right."""

    competitor: str
    finding: str
    #: what each source says
    figures: list[Figure]
    #: which one this report goes by, and why
    assumed: str


class Gap(BaseModel):
    """What could not be found out."""

    competitor: str
    missing: str
    why: str
    #: how to close it
    todo: str


class News(BaseModel):
    competitor: str
    #: what it means for us
    meaning: str
    figure: Figure


class FeatureGap(BaseModel):
    """A feature that competitors have in their Team plan, and we do not."""

    feature: str
    competitors: Figure
    deals_lost: Figure
    yearly_lost: Figure


class PriceLine(BaseModel):
    """Prices of the Team plan, one for each month of `months`."""

    company: str
    prices: list[Figure]


class Recommendation(BaseModel):
    action: str
    because: str
    figures: list[Figure]


class Comparison(BaseModel):
    #: in words, without numbers
    summary: str
    deals_lost: Figure
    yearly_lost: Figure
    recommendations: list[Recommendation]
    contradictions: list[Contradiction]
    gaps: list[Gap]
    our_cost: Figure
    competitors: list[Competitor]
    feature_gaps: list[FeatureGap]
    news: list[News]
    months: list[str]
    price_lines: list[PriceLine]


#: what a run returns
OUTPUT = Comparison

PAGE_READER = """Read the whole page of the company, such as lintel_cx.md for Lintel CX. Answer with JSON alone:
{"company": …, "prices": {"Starter": …, "Team": …, "Enterprise": …}, "included_in_team": […], "trial": …,
"minimum_term": …, "uptime": …, "lines": {"Team": …, "trial": …, "minimum_term": …}}
lines are the numbers of the lines in the file, counted from 1."""
NEWS_READER = """List the articles about the company and read every one. Give each fact with its source, as file:line.
If an article cannot be read, call cannot with what the archive says. Never guess what it might have said."""
ANALYST = """Answer with SQL alone, never from memory. Give every value with the SELECT that gives exactly this value.
A company is a text such as 'Ferrow Desk', and the plans are Starter, Team and Enterprise."""
STRATEGIST = """Read our positioning first. Recommend three actions at most, each with the figures that speak for it.
Name what is contradictory or missing; do not argue with it. Do not recommend what our positioning rules out."""
RESEARCH = (
    "Researches competitors: reads their product pages and the news archive, and checks prices"
)


@functools.cache
def archive(folder: Path) -> McpServer:
    """The news archive: an MCP server in a process of its own."""
    return mcp_server(
        command=[sys.executable, str(HERE / "news_archive.py"), str(folder / "archive")],
        name="archive",
        trust_hints=True,  # it is our own server, and it only reads
    )


def research_team(folder: Path) -> ch.Supervisor:
    """A supervisor with workers of its own, which plans its part by itself."""

    def table(name: str) -> list[dict[str, str]]:
        with (folder / "market" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @ch.worker("watchlist", "Lists the competitors on our watchlist")
    async def watchlist(brief: ch.Brief) -> list[str]:
        return [row["company"] for row in table("watchlist")]

    @ch.worker(
        "price_checker",
        f"Compares the prices of product pages with the price survey, and computes the cost of {SEATS} seats a year",
    )
    async def price_checker(brief: ch.Brief) -> list[dict[str, object]]:
        """Both prices of each Team plan, whether they agree, and what each would cost."""
        surveyed = {row["company"]: int(row["price_eur"]) for row in table("prices")
                    if row["plan"] == "Team"}  # the last month of each stands last  # fmt: skip
        checked: list[dict[str, object]] = []
        pages = next(iter(brief.inputs.values()), None)
        if not isinstance(pages, list):
            raise ch.WorkerError(f"this needs a list of product pages: {str(pages)[:80]!r}")
        for entry in pages:
            if entry is None:
                continue  # that page could not be read, which is a gap of its own
            try:
                page = json.loads(entry) if isinstance(entry, str) else entry
                company, price = str(page["company"]), int(page["prices"]["Team"])
            except (ValueError, KeyError, TypeError) as error:
                raise ch.WorkerError(
                    f"this is not a reading of a product page: {entry!r}: {error!r}"
                ) from None
            survey = surveyed.get(company)
            checked.append(
                {
                    "company": company,
                    "page_price": price,
                    "survey_price": survey,
                    "agree": price == survey,
                    "cost_by_page": price * SEATS * 12,
                    "cost_by_survey": None if survey is None else survey * SEATS * 12,
                }
            )
        return checked

    return ch.Supervisor(
        [
            watchlist,
            ch.Worker(
                "page_reader",
                "Reads the product page of one competitor: prices, features, terms",
                instructions=PAGE_READER,
                tools=files(folder / "pages"),
            ),
            ch.Worker(
                "news_reader",
                "Finds out what the news archive says of one competitor",
                instructions=NEWS_READER,
                tools=archive(folder).tools_sync(),
                # The name of the competitor comes from a file, and goes to no other place than our archive.
                preapproved=["find_articles", "read_article"],
            ),
            price_checker,
        ],
        name="research_team",
        description=RESEARCH,
        # A source that fails for one competitor is a gap of the report and no reason to stop it.
        on_failure=["without"],
    )


def boss(model: str, folder: Path = DATA, journal: str | None = None) -> ch.Supervisor:
    """The supervisor of the comparison, over a folder with pages, tables and a news archive."""

    @ch.tool(effect="pure")
    def read_positioning() -> str:
        """Read how we sell: to whom, with which arguments, and what we do not do."""
        return (folder / "positioning.md").read_text(encoding="utf-8")

    return ch.Supervisor(
        [
            research_team(folder),
            ch.Worker(
                "market_analyst",
                "Answers questions about the tables of surveyed prices, features, reviews and lost deals",
                instructions=ANALYST,
                tools=data(folder / "market"),
            ),
            ch.Worker(
                "strategist",
                "Knows our positioning and recommends what to do",
                instructions=STRATEGIST,
                tools=[read_positioning],
            ),
        ],
        model=model,
        journal=journal,
        limits=ch.Limits(calls=120, deadline=900),
        on_failure=["again", "without"],
    )


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The report of a finished comparison."""
    title = "How Harbour Desk compares"
    report = result.output
    if not isinstance(report, Comparison):
        return Document(title, task_results(result), result=result, label=label)
    rivals = report.competitors
    return Document(
        title,
        [
            report.summary,
            Paragraph(
                ["Lost in a year: ", report.deals_lost, ", worth ", report.yearly_lost, " a year."]
            ),
            *(
                Callout(
                    f"{each.competitor}: the sources contradict each other.",
                    [f"{each.finding} They say: ", *_joined(each.figures), f". {each.assumed}"],
                )
                for each in report.contradictions
            ),
            *(
                Callout(f"{each.competitor}: {each.missing}", [f"{each.why} {each.todo}"])
                for each in report.gaps
            ),
            Section("What to do"),
            Bullets(
                [
                    [f"{each.action} {each.because} Lost: ", *_joined(each.figures), "."]
                    for each in report.recommendations
                ],
                numbered=True,
            ),
            Section(f"Cost of {SEATS} seats on the Team plan"),
            BarChart(
                f"{SEATS} seats on the Team plan, in EUR a year",
                [("Harbour Desk", report.our_cost)]
                + [(each.name, each.yearly_cost) for each in rivals],
            ),
            LineChart(
                "Price of the Team plan, in EUR per seat and month",
                report.months,
                {each.company: each.prices for each in report.price_lines},
            ),
            Section("Competitors"),
            Table(
                ["competitor", "price", "minimum term", "free trial", "features", "stars"],
                [
                    [each.name, each.price, each.minimum_term, each.trial, each.features, each.stars]
                    for each in rivals
                ],
                caption="Team plan: EUR per seat and month, and how many of the features that we track; average stars of reviews",
            ),
            Table(
                ["competitor", "strength", "weakness"],
                [[each.name, each.strength, each.weakness] for each in rivals],
            ),
            Section("Deals that we lost, February 2025 to January 2026"),
            Table(
                ["won by", "deals", "worth a year"],
                [[each.name, each.deals_lost, each.yearly_lost] for each in rivals],
            ),
            Table(
                ["feature that we lack in Team", "competitors with it", "deals lost for it", "worth a year"],
                [
                    [each.feature, each.competitors, each.deals_lost, each.yearly_lost]
                    for each in report.feature_gaps
                ],
            ),
            Section("News"),
            Table(
                ["competitor", "what is reported", "what it means for us"],
                [[each.competitor, each.figure, each.meaning] for each in report.news],
            ),
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
        help="a folder with pages/, market/, archive/ and positioning.md",
    )
    arguments.add_argument("--journal", default=None, help="keep the run in this file")
    arguments.add_argument(
        "--key", default=None, help="go on with the run of this key, if there is one"
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("competitive_intelligence"), help="where the report goes"
    )
    chosen = arguments.parse_args()
    supervisor = show_progress(boss(chosen.model, chosen.data, chosen.journal))
    result = supervisor.run_sync(chosen.request, output=OUTPUT, key=chosen.key)
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, *made.write(chosen.out))
    # A report with a gap that it names is a finished report.
    return 0 if isinstance(result.output, Comparison) else 3


if __name__ == "__main__":
    sys.exit(main())
