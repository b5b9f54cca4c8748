"""Makes the sample data: a watchlist, product pages, a price survey, features, reviews, lost deals and a news archive.

The same seed always gives the same files. Two problems are planted. The product page of Oxbow Help gives another price
of the Team plan than the price survey and the news do. The one article about Sable Inbox in the archive is damaged.
"""

import csv
import hashlib
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
PLANS = ("Starter", "Team", "Enterprise")
#: of the price survey: February 2025 to January 2026
MONTHS = [date(2025 + (month > 12), (month - 1) % 12 + 1, 1) for month in range(2, 14)]
OURS = "Harbour Desk"
FEATURES = (
    "shared inbox", "live chat", "phone channel", "knowledge base", "service level timers", "automation rules",
    "single sign-on", "audit log", "reply suggestions", "sentiment alerts", "custom reports", "mobile app",
)  # fmt: skip


class Change(NamedTuple):
    """A new price of the Team plan from a month on."""

    month: date
    price: int


class Company(NamedTuple):
    name: str
    file: str
    claim: str
    #: EUR per seat and month, by plan
    prices: tuple[int, int, int]
    #: Team plan in February 2025, then what it changed to
    first: int
    changes: tuple[Change, ...]
    trial_days: int
    term_months: int
    uptime: str
    customers: int
    #: by feature: S, T, E (cheapest plan that has it) or - (none)
    features: str
    #: how reviews of it fall out, on average
    stars: float
    #: share of the deals that we lose
    wins: int
    #: Team price on its product page, where that is another one
    page_price: int = 0


COMPANIES = (
    Company(OURS, "harbour_desk", "Customer service for shops that grow", (15, 32, 59), 32, (), 30, 1, "99.9", 2_350, "STTSTTE-E-EE", 4.2, 0),
    Company("Ferrow Desk", "ferrow_desk", "The help desk that sets itself up", (12, 29, 55), 27, (Change(date(2025, 7, 1), 29),), 14, 1, "99.9", 5_200, "SSTSTTTETET-", 4.0, 5),
    Company("Tamarin Support", "tamarin_support", "One thread for every customer", (19, 39, 79), 35, (Change(date(2025, 9, 1), 39),), 14, 12, "99.95", 8_700, "SSSSTTTTTTTS", 4.4, 4),
    Company("Oxbow Help", "oxbow_help", "Answers before they ask", (14, 34, 62), 29, (Change(date(2026, 1, 1), 34),), 21, 12, "99.9", 4_100, "SSETTTTESTTT", 3.8, 4, 29),
    Company("Lintel CX", "lintel_cx", "Service for the enterprise", (25, 49, 99), 49, (), 0, 24, "99.99", 1_150, "SSSTSSSSTTSS", 4.1, 1),
    Company("Sable Inbox", "sable_inbox", "The inbox, without the fuss", (9, 24, 45), 26, (Change(date(2025, 11, 1), 24),), 60, 1, "99.5", 6_900, "STETTT-----S", 3.6, 3),
)  # fmt: skip

#: articles of the archive: date, company, title, text
ARTICLES = (
    (date(2025, 6, 17), "Ferrow Desk", "Ferrow Desk to charge more for its Team plan", [
        "Ferrow Desk raises the price of its Team plan from 27 to 29 EUR per seat and month on 1 July 2025.",
        "Customers with yearly contracts keep their price until renewal."]),
    (date(2025, 10, 9), "Ferrow Desk", "Ferrow Desk opens a data centre in Frankfurt", [
        "Customers of Ferrow Desk can keep their data in Frankfurt from November 2025, at no extra charge."]),
    (date(2025, 8, 26), "Tamarin Support", "Tamarin Support puts reply suggestions into the Team plan", [
        "Tamarin Support moves reply suggestions from Enterprise into Team, and raises Team to 39 EUR from September 2025.",
        "The company says that 41 % of its customers use them every day."]),
    (date(2025, 12, 3), "Tamarin Support", "Tamarin Support was down for five hours", [
        "An outage of 5 hours on 1 December 2025 hit all European customers of Tamarin Support.",
        "The company credits one month of fees."]),
    (date(2025, 12, 11), "Oxbow Help", "Oxbow Help announces new prices for 2026", [
        "New customers of Oxbow Help pay 34 EUR per seat and month for the Team plan from 1 January 2026.",
        "The plan cost 29 EUR before. Starter and Enterprise stay as they are."]),
    (date(2025, 9, 22), "Oxbow Help", "Oxbow Help buys a maker of voice bots", [
        "Oxbow Help pays 12 million EUR for Calder Voice. Phone support stays in the Enterprise plan for now."]),
    (date(2025, 11, 18), "Lintel CX", "Lintel CX wins a public tender", [
        "Lintel CX will serve 3,400 seats of the tax offices in the north. The contract runs for 4 years."]),
    (date(2026, 1, 15), "Sable Inbox", "Sable Inbox raises money and plans a move upmarket", [
        "Sable Inbox has raised 28 million EUR. It plans single sign-on and an audit log for the second half of 2026.",
        "The price of the Team plan is to stay at 24 EUR."]),
)  # fmt: skip
#: the article whose file is cut off
DAMAGED = "Sable Inbox"

POSITIONING = """# Harbour Desk: positioning

We sell to shops with 10 to 60 seats. The usual deal is a team of 25 seats on the Team plan, paid by the month.

- Against cheaper products: no minimum term, 30 days of trial, a phone channel in Team.
- Against larger ones: set up in a day, and a person who answers the phone.
- We do not sell below list price. We do not promise dates of features.
"""


def page(company: Company) -> str:
    starter, team, enterprise = company.prices
    included = [name for name, plan in zip(FEATURES, company.features, strict=True) if plan in "ST"]
    trial = f"{company.trial_days} days" if company.trial_days else "none"
    term = "1 month" if company.term_months == 1 else f"{company.term_months} months"
    return "\n".join(
        [
            f"# {company.name}: {company.claim}",
            "",
            "Saved on 2026-01-28.",
            "",
            "## Plans",
            "",
            f"- Starter: {starter} EUR per seat and month",
            f"- Team: {company.page_price or team} EUR per seat and month",
            f"- Enterprise: {enterprise} EUR per seat and month",
            "",
            "## Included in Team",
            "",
            *(f"- {name}" for name in included),
            "",
            "## Good to know",
            "",
            f"- Free trial: {trial}",
            f"- Minimum term: {term}",
            f"- Uptime that is promised: {company.uptime} %",
            f"- Customers: {company.customers:,}",
            "",
        ]
    )


def team_price(company: Company, month: date) -> int:
    return next(
        (each.price for each in reversed(company.changes) if each.month <= month), company.first
    )


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _archive(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for number, (day, company, title, text) in enumerate(ARTICLES, 1):
        file = f"{number:04}.md"
        whole = "\n".join([f"# {title}", "", f"{day.isoformat()}, {company}", "", *text, ""])
        digest = hashlib.sha256(whole.encode()).hexdigest()
        stored = whole[:70] if company == DAMAGED else whole
        (folder / file).write_text(stored, encoding="utf-8")
        listed.append([number, day.isoformat(), company, title, file, digest])
    _write(
        folder / "catalogue.csv",
        ["article", "date", "company", "title", "file", "sha256"],
        listed,
    )


def main(target: Path = DATA) -> None:
    draw = random.Random(2026)  # noqa: S311  # sample data
    market, pages = target / "market", target / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    for each in COMPANIES:
        (pages / f"{each.file}.md").write_text(page(each), encoding="utf-8")
    (target / "positioning.md").write_text(POSITIONING, encoding="utf-8")
    rivals = [each for each in COMPANIES if each.name != OURS]
    _write(
        market / "watchlist.csv",
        ["company", "customers"],
        ([each.name, each.customers] for each in rivals),
    )
    prices = [
        [month.isoformat(), each.name, plan, team_price(each, month) if plan == "Team" else price]
        for month in MONTHS
        for each in COMPANIES
        for plan, price in zip(PLANS, each.prices, strict=True)
    ]
    _write(market / "prices.csv", ["month", "company", "plan", "price_eur"], prices)
    in_words = {"S": "Starter", "T": "Team", "E": "Enterprise", "-": "none"}
    features = [
        [each.name, name, in_words[plan]]
        for each in COMPANIES
        for name, plan in zip(FEATURES, each.features, strict=True)
    ]
    _write(market / "features.csv", ["company", "feature", "plan"], features)
    _write(market / "reviews.csv", ["date", "company", "stars", "topic"], _reviews(draw))
    _write(
        market / "lost_deals.csv",
        ["date", "won_by", "seats", "yearly_eur", "reason"],
        _lost_deals(draw, rivals),
    )
    _archive(target / "archive")


def _reviews(draw: random.Random) -> list[list[object]]:
    topics = ["price", "setup", "support", "features", "reliability"]
    return [
        [
            (date(2025, 2, 1) + timedelta(days=draw.randrange(360))).isoformat(),
            each.name,
            min(5, max(1, round(draw.gauss(each.stars, 0.9)))),
            draw.choice(topics),
        ]
        for each in COMPANIES
        for _ in range(draw.randint(28, 45))
    ]


def _lost_deals(draw: random.Random, rivals: Sequence[Company]) -> list[list[object]]:
    lost: list[list[object]] = []
    for _ in range(64):
        winner = draw.choices(rivals, [each.wins for each in rivals])[0]
        seats = draw.randrange(10, 61, 5)
        missing = [
            name
            for name, theirs, ours in zip(
                FEATURES, winner.features, COMPANIES[0].features, strict=True
            )
            if theirs in "ST" and ours not in "ST"
        ]
        reason = (
            "price"
            if not missing or (winner.prices[1] < 32 and draw.random() < 0.6)
            else draw.choice(missing)
        )
        day = date(2025, 2, 1) + timedelta(days=draw.randrange(360))
        lost.append([day.isoformat(), winner.name, seats, seats * 32 * 12, reason])
    return sorted(lost, key=lambda row: str(row[0]))


if __name__ == "__main__":
    main()
