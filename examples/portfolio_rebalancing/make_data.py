"""Makes the sample data: an invented portfolio with tax lots, prices of three exchanges, targets and limits.

The same seed always gives the same files. The planted problem: NVC and NVCP are shares of one issuer. Each target is within
the limit for an issuer, and both together are not.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
#: the day of the newest prices
TODAY = date(2026, 1, 16)
DAYS = 15


class Security(NamedTuple):
    ticker: str
    name: str
    issuer: str
    sector: str
    exchange: str
    target: int
    #: of the newest price, in EUR
    close: float
    #: change a day, in percent
    drift: float
    #: tax lots: days since they were bought, shares, EUR paid for each
    lots: tuple[tuple[int, int, float], ...]


SECURITIES = [
    Security("NVC", "Northvale ordinary", "Northvale Chemicals", "materials", "london", 7, 42.60, 0.3, ((1400, 700, 31.20), (220, 300, 40.10))),
    Security("NVCP", "Northvale preference", "Northvale Chemicals", "materials", "frankfurt", 6, 58.25, 0.1, ((900, 500, 55.00),)),
    Security("KELP", "Kelpmark Minerals", "Kelpmark", "materials", "london", 4, 18.40, -0.2, ((600, 2900, 15.75),)),
    Security("ALDR", "Alder Systems", "Alder", "technology", "frankfurt", 9, 121.50, 0.9, ((1500, 800, 62.00), (800, 300, 95.40), (120, 150, 104.00))),
    Security("BRYN", "Bryn Devices", "Bryn", "technology", "zurich", 8, 76.80, 0.4, ((1100, 900, 70.25),)),
    Security("CAIR", "Cairn Health", "Cairn", "health", "london", 9, 33.15, -0.3, ((700, 1700, 36.90), (300, 400, 34.50))),
    Security("DELF", "Delft Pharma", "Delft", "health", "zurich", 7, 88.90, 0.0, ((1000, 650, 80.00),)),
    Security("EASK", "Eask Water", "Eask", "utilities", "london", 8, 24.75, 0.1, ((1300, 3300, 20.40),)),
    Security("FENN", "Fennel Rail", "Fennel", "industrials", "frankfurt", 9, 51.20, -0.1, ((850, 1300, 47.10),)),
    Security("GORS", "Gorse bond 2031", "Gorse Bank", "bonds", "frankfurt", 10, 98.70, 0.0, ((500, 950, 97.20),)),
    Security("HOLM", "Holm bond 2033", "Holm Region", "bonds", "zurich", 9, 101.35, 0.0, ((500, 1000, 99.80),)),
    Security("IRIS", "Iris Energy", "Iris", "energy", "london", 9, 64.10, 0.6, ((1250, 1300, 44.00), (90, 250, 60.80))),
]  # fmt: skip
CASH = 61_250

LIMITS = [
    ("L1", "issuer", 10, "%", "All holdings of one issuer together are at most so much of the portfolio."),
    ("L2", "sector", 25, "%", "All holdings of one sector together are at most so much of the portfolio."),
    ("L3", "cash", 3, "%", "At least so much of the portfolio stays in cash."),
    ("L4", "smallest_trade", 2500, "EUR", "No trade is smaller."),
    ("L5", "long_held", 365, "days", "Lots that were held for longer are sold first, those with the highest cost before the others."),
]  # fmt: skip


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(columns)
        write.writerows(rows)


def _closes(security: Security, draw: random.Random) -> list[tuple[date, float]]:
    """The prices of the last days, oldest first, up to the newest one, which is given."""
    closes, price, day = [(TODAY, security.close)], security.close, TODAY
    while len(closes) < DAYS:
        day -= timedelta(days=3 if day.weekday() == 0 else 1)
        price /= 1 + (security.drift + draw.uniform(-0.8, 0.8)) / 100
        closes.append((day, round(price, 2)))
    return closes[::-1]


def main(target: Path = DATA) -> None:
    draw = random.Random(9)  # noqa: S311  # sample data
    (target / "prices").mkdir(parents=True, exist_ok=True)
    prices: dict[str, list[tuple[str, str, str]]] = {}
    for each in SECURITIES:
        rows = prices.setdefault(each.exchange, [])
        rows += [
            (day.isoformat(), each.ticker, f"{close:.2f}") for day, close in _closes(each, draw)
        ]
    for exchange, rows in prices.items():
        _table(target / "prices" / f"{exchange}.csv", ["date", "ticker", "close_eur"], sorted(rows))
    _table(
        target / "securities.csv",
        ["ticker", "name", "issuer", "sector", "exchange"],
        [(s.ticker, s.name, s.issuer, s.sector, s.exchange) for s in SECURITIES],
    )
    _table(
        target / "targets.csv",
        ["ticker", "target_percent"],
        [*((s.ticker, s.target) for s in SECURITIES), ("CASH", 5)],
    )
    lots = [
        (
            f"{s.ticker}-{n}",
            s.ticker,
            (TODAY - timedelta(days=age)).isoformat(),
            shares,
            f"{cost:.2f}",
        )
        for s in SECURITIES
        for n, (age, shares, cost) in enumerate(s.lots, 1)
    ]
    _table(target / "lots.csv", ["lot", "ticker", "bought_on", "shares", "cost"], lots)
    _table(target / "cash.csv", ["account", "amount"], [("main", CASH)])
    _table(target / "limits.csv", ["rule", "limit", "value", "unit", "text"], LIMITS)


if __name__ == "__main__":
    main()
