"""Advises on rebalancing a portfolio within its limits, and writes the orders that a person approves.

    python portfolio_rebalancing.py                               # offline: the replies of the models are in replies.toml
    python portfolio_rebalancing.py --model openai:gpt-5-mini     # with a model

The portfolio is invented. The replies of replies.toml were written by hand. The tools really run.
"""

import argparse
import csv
import hashlib
import shlex
import sys
from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

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
from chargehand.presentation.ask_at_terminal import (
    answer_questions,
    ask_at_terminal,
    waiting_lines,
)
from chargehand.presentation.script_progress import show_progress
from chargehand.tools.sql_tables import data

HERE = Path(__file__).parent
DATA = HERE / "data"
REQUEST = (
    "Rebalance the portfolio to its targets within the limits of the mandate, at the prices of 2026-01-16. Explain each "
    "trade, say which limit a straightforward rebalancing would break, and place the orders."
)
WRITTEN = f"written:{HERE / 'replies.toml'}"
LABEL = (
    "Sample: the portfolio is invented, and the replies of the models were written by hand. The tools ran, and the "
    "figures were checked. This is no investment advice."
)
CASH = "CASH"


class AvoidedBreach(BaseModel):
    """A limit that the straightforward rebalancing would break."""

    rule: str
    finding: str
    limit: Figure
    #: the target of each security that counts against this limit
    targets: list[Figure]


class IssuerTarget(BaseModel):
    issuer: str
    #: all targets of this issuer together
    target: Figure


class TradeReason(BaseModel):
    ticker: str
    held: Figure
    price: Figure
    target: Figure
    reason: str


class MarketMove(BaseModel):
    ticker: str
    first_close: Figure
    latest_close: Figure
    note: str


class RebalancingAdvice(BaseModel):
    summary: str
    avoided: list[AvoidedBreach]
    issuers: list[IssuerTarget]
    trades: list[TradeReason]
    market: list[MarketMove]


#: what a run returns
OUTPUT = RebalancingAdvice
#: what --yes answers
YES = "approve"

MARKET = """Query the prices of this exchange. Say for each security how its price moved from the first day to the last, and
whether a price is missing or odd. Give every price with file and date. Forecast nothing."""
COMPLIANCE = """Read the limits and the issuers. Say which limits the straightforward rebalancing would break and why, in words
that a client understands, and whether the proposal keeps every limit. Two securities can have one issuer."""
ADVISER = """Write one sentence for each trade of the proposal: why it is made, by weight, target and limit. Name realised gains.
Change no number, and add no trade."""
TRADER = """Place exactly the trades of the proposal with one call of write_orders: shares to buy are positive, shares to sell
negative. Do not change them. If the call is not approved, say so and place nothing."""


class Order(BaseModel):
    ticker: str
    #: negative: sell
    shares: int


def boss(
    model: str, folder: Path = DATA, journal: str | None = None, orders: Path = Path("orders.csv")
) -> ch.Supervisor:
    """The supervisor of the advice, over the folder of one portfolio. Approved orders go to the file `orders`."""

    @ch.tool(effect="pure")
    def read_limits() -> str:
        """Read the limits of the mandate, and which issuer each security has."""
        return "".join(
            (folder / name).read_text("utf-8") for name in ("limits.csv", "securities.csv")
        )

    @ch.tool(effect="idempotent", approve=True)
    def write_orders(trades: list[Order]) -> str:
        """Write the orders to a file for the bank. Orders that would break a limit are refused.

        Args:
            trades: all orders together; shares to sell are negative
        """
        portfolio = read_portfolio(folder)
        wanted = {each.ticker: each.shares for each in trades}
        if broken := broken_limits(portfolio, wanted):
            raise ch.errors.ToolError(f"nothing is written: {'; '.join(broken)}")
        rows = [
            [
                ticker,
                "buy" if count > 0 else "sell",
                abs(count),
                f"{float(portfolio.prices[ticker]):.2f}",
            ]
            for ticker, count in wanted.items()
        ]
        with orders.open("w", encoding="utf-8", newline="") as file:
            write = csv.writer(file, lineterminator="\n")
            write.writerows([["ticker", "side", "shares", "limit_price_eur"], *rows])
        return f"{len(rows)} orders written to {orders.name}"

    @ch.worker("price_files", "Lists the files with prices, as a list of files with their digests")
    def price_files(brief: ch.Brief) -> list[dict[str, str]]:
        """With `reuse=`, a file whose digest has not changed is not read again."""
        return [
            {
                "file": path.relative_to(folder).as_posix(),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted((folder / "prices").glob("*.csv"))
        ]

    @ch.worker(
        "allocation",
        "Computes the rebalancing: weights, trades in whole shares, realised gains, broken limits",
    )
    def allocation(brief: ch.Brief) -> dict[str, Any]:
        return propose(read_portfolio(folder))

    return ch.Supervisor(
        [
            ch.Worker(
                "market_reader",
                "Describes how the prices of one exchange moved",
                instructions=MARKET,
                tools=data(folder, trusted=True),
            ),
            ch.Worker(
                "compliance",
                "Knows the limits of the mandate and checks trades against them",
                instructions=COMPLIANCE,
                tools=[read_limits],
            ),
            ch.Worker("adviser", "Explains the trades to the client", instructions=ADVISER),
            ch.Worker(
                "trader",
                "Places the orders of a proposal, with a person's approval",
                instructions=TRADER,
                tools=[write_orders],
            ),
            price_files,
            allocation,
        ],
        model=model,
        journal=journal,
        # Active time: the approval may come tomorrow.
        limits=ch.Limits(calls=60, active=900),
        # Prices that cannot be described are a gap. A trade is never repeated after a failure.
        on_failure=["again", "without"],
    )


class Lot(NamedTuple):
    bought_on: date
    shares: int
    cost: Fraction


class Portfolio(NamedTuple):
    """The data of a folder, in fractions of EUR."""

    lots: dict[str, list[Lot]]
    prices: dict[str, Fraction]
    targets: dict[str, Fraction]
    securities: dict[str, dict[str, str]]
    #: by name, such as issuer: 10
    limits: dict[str, Fraction]
    cash: Fraction
    day: date

    @property
    def shares(self) -> dict[str, int]:
        return {ticker: sum(lot.shares for lot in lots) for ticker, lots in self.lots.items()}

    @property
    def total(self) -> Fraction:
        held = self.shares
        return self.cash + sum(count * self.prices[ticker] for ticker, count in held.items())


def read_portfolio(folder: Path) -> Portfolio:
    """The portfolio that the files of a folder describe."""
    lots: dict[str, list[Lot]] = {}
    for row in _rows(folder / "lots.csv"):
        lot = Lot(date.fromisoformat(row["bought_on"]), int(row["shares"]), Fraction(row["cost"]))
        lots.setdefault(row["ticker"], []).append(lot)
    prices, day = {}, ""
    for file in sorted((folder / "prices").glob("*.csv")):
        for row in _rows(file):  # oldest first, so that the newest price stays
            prices[row["ticker"]] = Fraction(row["close_eur"])
            day = max(day, row["date"])
    return Portfolio(
        lots,
        prices,
        {r["ticker"]: Fraction(r["target_percent"]) / 100 for r in _rows(folder / "targets.csv")},
        {row["ticker"]: row for row in _rows(folder / "securities.csv")},
        {row["limit"]: Fraction(row["value"]) for row in _rows(folder / "limits.csv")},
        sum((Fraction(row["amount"]) for row in _rows(folder / "cash.csv")), Fraction()),
        date.fromisoformat(day),
    )


def propose(portfolio: Portfolio) -> dict[str, Any]:
    """The straightforward rebalancing with the limits that it breaks, and the one that keeps them."""
    targets = {ticker: share for ticker, share in portfolio.targets.items() if ticker != CASH}
    limit = portfolio.limits["issuer"] / 100
    straight = _trades(portfolio, targets)
    capped = dict(targets)
    for tickers in _groups(portfolio, "issuer").values():
        wanted = sum(targets[each] for each in tickers)
        if wanted > limit:
            capped |= {each: targets[each] * limit / wanted for each in tickers}
    trades = _trades(portfolio, capped)
    before, after = _weights(portfolio, {}), _weights(portfolio, trades)
    return {
        "day": portfolio.day.isoformat(),
        "total_eur": _money(portfolio.total),
        "straightforward": {"trades": straight, "breaks": broken_limits(portfolio, straight)},
        "proposal": {"trades": trades, "breaks": broken_limits(portfolio, trades)},
        "details": [_detail(portfolio, each, count) for each, count in trades.items()],
        "weights_percent": {
            each: {"before": _percent(before[each]), "after": _percent(after[each])}
            for each in before
        },
    }


def broken_limits(portfolio: Portfolio, trades: Mapping[str, int]) -> list[str]:
    """The limits that the portfolio would break after these trades; sales are negative."""
    held = portfolio.shares
    unknown = [ticker for ticker in trades if ticker not in portfolio.prices]
    if unknown:
        return [f"there is no price of {', '.join(unknown)}"]
    broken = [
        f"{-count} {ticker} cannot be sold, {held.get(ticker, 0)} are held"
        for ticker, count in trades.items()
        if held.get(ticker, 0) + count < 0
    ]
    weights = _weights(portfolio, trades)
    for rule, kind in (("L1", "issuer"), ("L2", "sector")):
        limit = portfolio.limits[kind] / 100
        for name, tickers in _groups(portfolio, kind).items():
            weight = sum((weights[each] for each in tickers), Fraction())
            if weight > limit:
                parts = " + ".join(tickers)
                broken.append(
                    f"{rule}: {kind} {name} ({parts}) would be {_percent(weight)} %, over {_percent(limit)} %"
                )
    buffer = portfolio.limits["cash"] / 100
    if weights[CASH] < buffer:
        broken.append(f"L3: cash would be {_percent(weights[CASH])} %, under {_percent(buffer)} %")
    return broken


def _trades(portfolio: Portfolio, targets: Mapping[str, Fraction]) -> dict[str, int]:
    """Shares to buy (or, negative, to sell) for each ticker; trades that are too small are left out."""
    held, total = portfolio.shares, portfolio.total
    trades: dict[str, int] = {}
    for ticker, share in targets.items():
        price = portfolio.prices[ticker]
        count = int(share * total / price) - held.get(ticker, 0)  # rounded down: whole shares
        if abs(count) * price >= portfolio.limits["smallest_trade"]:
            trades[ticker] = count
    return trades


def _weights(portfolio: Portfolio, trades: Mapping[str, int]) -> dict[str, Fraction]:
    held, total = portfolio.shares, portfolio.total
    tickers = dict.fromkeys([*held, *trades])
    spent = sum((count * portfolio.prices[each] for each, count in trades.items()), Fraction())
    weights = {
        each: (held.get(each, 0) + trades.get(each, 0)) * portfolio.prices[each] / total
        for each in tickers
    }
    return weights | {CASH: (portfolio.cash - spent) / total}


def _groups(portfolio: Portfolio, kind: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for ticker, row in portfolio.securities.items():
        groups.setdefault(row[kind], []).append(ticker)
    return groups


def _detail(portfolio: Portfolio, ticker: str, count: int) -> dict[str, Any]:
    """A trade with its value and, for a sale, the gain that it realises."""
    price = portfolio.prices[ticker]
    detail = {
        "ticker": ticker,
        "side": "buy" if count > 0 else "sell",
        "shares": abs(count),
        "price": f"{float(price):.2f}",
        "value_eur": _money(abs(count) * price),
    }
    if count < 0:
        detail["realised_gain_eur"] = _money(_gain(portfolio, ticker, -count))
    return detail


def _gain(portfolio: Portfolio, ticker: str, count: int) -> Fraction:
    """What is gained by selling: long-held lots first, and of those the ones with the highest cost."""

    def order(lot: Lot) -> tuple[bool, Fraction]:
        return (portfolio.day - lot.bought_on).days <= portfolio.limits["long_held"], -lot.cost

    gain = Fraction()
    for lot in sorted(portfolio.lots[ticker], key=order):
        sold = min(lot.shares, count)
        gain += sold * (portfolio.prices[ticker] - lot.cost)
        count -= sold
    return gain


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _money(amount: Fraction) -> float:
    return float(round(amount, 2))


def _percent(share: Fraction) -> float:
    return float(round(share * 100, 2))


def document(result: ch.RunResult, folder: Path, label: str = "") -> Document:
    """The advice of a finished run. Trades and weights are those that the allocation computed."""
    title, computed = "Rebalancing proposal", _output_of(result, "allocation")
    if not isinstance(computed, dict):
        blocks: list[Any] = [_orders(result), *task_results(result)]
        return Document(title, blocks, result=result, data=folder, label=label)
    made = result.output if isinstance(result.output, RebalancingAdvice) else None
    blocks = [
        *_alerts(made, computed),
        _orders(result),
        made.summary if made else "The words of the advice are missing. What was computed follows.",
        *_trades_table(made, computed),
        *(_market(made) if made else []),
        Section("Weights"),
        Table(
            ["security", "before, %", "after, %"],
            [[e, w["before"], w["after"]] for e, w in computed["weights_percent"].items()],
            "Computed from lots, prices and cash.",
        ),
    ]
    return Document(f"{title}, {computed['day']}", blocks, result=result, data=folder, label=label)


def _alerts(made: RebalancingAdvice | None, computed: dict[str, Any]) -> list[Any]:
    """The limits that a straightforward rebalancing would break: none is left out, whatever the model says."""
    named = {each.rule: each for each in made.avoided} if made else {}
    return [
        Callout(
            f"A straightforward rebalancing would break {rule}.",
            _breach(named[rule]) if rule in named else [words],
        )
        for words in computed["straightforward"]["breaks"]
        for rule in [words.partition(":")[0]]
    ]


def _market(made: RebalancingAdvice) -> list[Any]:
    return [
        Section("Targets by issuer"),
        BarChart("Target weight of each issuer", [(e.issuer, e.target) for e in made.issuers]),
        Section("Prices"),
        Table(
            ["security", "first close", "latest close", "note"],
            [[e.ticker, e.first_close, e.latest_close, e.note] for e in made.market],
        ),
    ]


def _orders(result: ch.RunResult) -> "Callout | str":
    """Whether a person approved the orders: what the journal says, not what a model says."""
    if _has_orders(result):
        return "The orders were approved by a person and written to orders.csv."
    return Callout(
        "No orders were placed.", ["Nobody approved them, or they could not be written."]
    )


def _has_orders(result: ch.RunResult) -> bool:
    return any(
        step.name == "tool write_orders" and step.ended_at is not None and not step.error
        for attempt in result.trace.attempts
        for step in attempt.steps
    )


def _output_of(result: ch.RunResult, worker: str) -> Any:
    return next((task.output for task in result.tasks.values() if task.worker == worker), None)


def _breach(each: AvoidedBreach) -> list[Cell]:
    parts: list[Cell] = [f"{each.finding} Targets: "]
    for target in each.targets:
        parts += [target, " + "]
    return [*parts[:-1], "; limit: ", each.limit, "."]


def _trades_table(made: RebalancingAdvice | None, computed: dict[str, Any]) -> list[Any]:
    reasons = {each.ticker: each for each in made.trades} if made else {}
    rows: list[list[Cell]] = []
    for trade in computed["details"]:
        why = reasons.get(trade["ticker"])
        rows.append(
            [
                trade["ticker"],
                f"{trade['side']}\N{NO-BREAK SPACE}{trade['shares']:,}",
                why.held if why else "",
                why.target if why else "",
                why.price if why else trade["price"],
                trade["value_eur"],
                trade.get("realised_gain_eur", ""),
                why.reason if why else "not explained",
            ]
        )
    columns = ["security", "order", "held", "target", "price", "value, EUR", "gain, EUR", "why"]
    caption = "Orders, values and realised gains were computed. The other figures have a source."
    return [Section("Trades"), Table(columns, rows, caption)]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("request", nargs="?", default=REQUEST)
    arguments.add_argument("--model", default=WRITTEN, help="such as openai:gpt-5-mini")
    arguments.add_argument("--data", type=Path, default=DATA, help="a folder with the same files")
    arguments.add_argument("--journal", help="where runs are kept; default: beside the proposal")
    arguments.add_argument("--key", help="go on with the run of this key, if there is one")
    arguments.add_argument("--resume", metavar="RUN", help="go on with this run")
    arguments.add_argument(
        "--reuse", metavar="RUN", help="read only price files that changed since this run"
    )
    arguments.add_argument(
        "--yes", action="store_true", help="approve the orders unread, for trials without a person"
    )
    arguments.add_argument(
        "--out", type=Path, default=Path("portfolio_rebalancing"), help="where the proposal goes"
    )
    chosen = arguments.parse_args()
    journal = chosen.journal or str(chosen.out.with_suffix(".db"))
    orders = chosen.out.parent / "orders.csv"
    supervisor = show_progress(boss(chosen.model, chosen.data, journal, orders))
    if chosen.resume:
        result = supervisor.resume_sync(chosen.resume, on_question="return", output=OUTPUT)
    else:
        result = supervisor.run_sync(
            chosen.request, output=OUTPUT, key=chosen.key, reuse=chosen.reuse, on_question="return"
        )
    ask = (lambda _: YES) if chosen.yes else ask_at_terminal
    result = answer_questions(supervisor, result, ask, output=OUTPUT)
    if result.questions:
        print(*waiting_lines(result, journal), sep="\n", file=sys.stderr)
        again = shlex.join(["python", *sys.argv, "--resume", result.id])
        print(f"then:       {again}", file=sys.stderr)
        return 4
    made = document(result, chosen.data, LABEL if chosen.model == WRITTEN else "")
    print(result.status.value, f"run {result.id}", *made.write(chosen.out))
    return 0 if result.status is ch.RunStatus.SUCCEEDED else 3


if __name__ == "__main__":
    sys.exit(main())
