"""Spans of time as people name them: a day, a month, a year, before, after or between them."""

import re
from datetime import date, timedelta

from msgspec import Struct

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_POINT = (
    r"(?:\d{4}-\d\d-\d\d|\d{4}-\d\d(?!\d)"
    rf"|(?:{'|'.join(MONTHS)})\b(?: of)?(?: \d{{4}})?"
    r"|(?:19|20)\d\d(?![\d,.]\d)\b)"
)
PERIOD = re.compile(
    rf"\b(?:(?:between|from)\s+(?P<first>{_POINT})\s+(?:and|to|until|through)\s+(?P<last>{_POINT})"
    rf"|(?P<how>before|after|since|until|in|during|of|on|for|from|to)\s+(?P<one>{_POINT}))",
    re.IGNORECASE,
)


class Period(Struct, frozen=True):
    """From one day on until before another, as ISO dates; `????` is a year that was not named."""

    start: str = ""
    end: str = ""

    def __str__(self) -> str:
        if not self.start:
            return f"before {self.end}"
        if not self.end:
            return f"from {self.start} on"
        return f"from {self.start} to before {self.end}"

    def within(self, low: str, high: str) -> "Period | None":
        """The period with its year, if the dates between these leave no doubt; None if it misses them."""
        start, end = self.start, self.end
        if "????" in start + end:
            if low[:4] != high[:4]:
                return None
            end = end.replace("????+", f"{int(low[:4]) + 1:04}").replace("????", low[:4])
            start = start.replace("????", low[:4])
        if (end and low >= end) or (start and high < start[: len(high)]):
            return None
        return Period(start, end)

    def sql(self, column: str) -> str:
        # A column of months holds 2025-06 for all of June.
        told = [f"{column} >= '{self.start.removesuffix('-01')}'"] if self.start else []
        told += [f"{column} < '{self.end.removesuffix('-01')}'"] if self.end else []
        return " and ".join(told)


def period_in(match: re.Match[str]) -> Period | None:
    """The period that a match of `PERIOD` tells; None if it is no real date."""
    first, last = _point(match["first"] or match["one"]), _point(match["last"] or match["one"])
    if first is None or last is None:
        return None
    if "????" in first[0]:
        first = (first[0].replace("????", last[0][:4]), first[1])
    match (match["how"] or "").lower():
        case "before":
            return Period("", first[0])
        case "after":
            return Period(first[1], "")
        case "since":
            return Period(first[0], "")
        case "until" | "to":
            return Period("", first[1])
    return Period(first[0], last[1])


def _point(text: str) -> tuple[str, str] | None:
    """The first day of what is named, and the first day after it."""
    year = found[0] if (found := re.search(r"\d{4}", text)) else "????"
    later = f"{int(year) + 1:04}" if found else "????+"
    named = next((n for n, name in enumerate(MONTHS, 1) if name in text.lower()), 0)
    month = named or (int(text[5:7]) if "-" in text else 0)
    try:
        if len(text) == 10 and text[4] == "-":
            return text, (date.fromisoformat(text) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None
    if not month:
        return f"{year}-01-01", f"{later}-01-01"
    if month > 12:
        return None
    return f"{year}-{month:02}-01", f"{year}-{month + 1:02}-01" if month < 12 else f"{later}-01-01"
