"""Spans of time as people name them: a day, a month, a year, before, after or between them."""

import re
from typing import NamedTuple

_YEAR = "january february march april may june july august september october november december"
MONTHS = _YEAR.split()
_POINT = (
    r"(?:\d{4}-\d\d-\d\d|\d{4}-\d\d(?!\d)"
    rf"|(?:{'|'.join(MONTHS)})\b(?: of)?(?: \d{{4}})?"
    r"|(?:19|20)\d\d(?![\d,.]\d)\b)"
)
PERIOD = re.compile(
    rf"(?i)\b(?:(?:between|from)\s+(?P<first>{_POINT})\s+(?:and|to|until|through)\s+(?P<last>{_POINT})"
    rf"|(?P<how>before|after|since|until|in|during|of|on|for|from|to)\s+(?P<one>{_POINT}))"
)
#: is behind whatever may follow: all of June stands between 2025-06 and 2025-06~
_BEHIND = "~"


class Period(NamedTuple):
    """From one date on until before another, as beginnings of ISO dates; empty: without a bound."""

    start: str
    end: str
    told: str

    def sql(self, column: str) -> str:
        told = [f"{column} >= '{self.start}'"] if self.start else []
        return " and ".join([*told, f"{column} < '{self.end}'"] if self.end else told)


def period_in(match: re.Match[str], low: str, high: str) -> Period | None:
    """The period that a match tells of dates from `low` to `high`; None if it has none, is finer, or lacks a year."""
    year = low[:4] if low[:4] == high[:4] else ""
    last = _point(match["last"] or match["one"], year)
    first = _point(match["first"] or match["one"], last[:4])
    how = (match["how"] or "in").lower()
    start = "" if how in ("before", "until", "to") else first + _BEHIND * (how == "after")
    end = "" if how in ("after", "since") else last + _BEHIND * (how != "before")
    is_within = (not end or low < end) and high >= start
    if not first or not last or not is_within or max(len(first), len(last)) > len(low):
        return None
    return Period(start, end, f"from {first} to {last}" if match["first"] else f"{how} {first}")


def _point(text: str, year: str) -> str:
    """The beginning of the ISO dates that are named; empty if their year is not known."""
    found = re.search(r"\d{4}", text)
    month = next((n for n, name in enumerate(MONTHS, 1) if name in text.lower()), 0)
    year = found[0] if found else year
    return f"{year}-{month:02}" if month and year else text if found else ""
