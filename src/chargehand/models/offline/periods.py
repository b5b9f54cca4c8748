"""Spans of time as people name them: a day, a month, a quarter, a year, before, after or between them."""

import re
from datetime import date, timedelta

from msgspec import Struct

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH = rf"(?:{'|'.join(MONTHS)}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_QUARTERS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 4}
_POINT = (
    r"(?:\d{4}-\d\d-\d\d|\d{4}-\d\d(?!\d)"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH},? \d{{4}}"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|{_MONTH}(?: of)?(?: \d{{4}})?"
    r"|(?:the )?(?:q[1-4]|(?:first|second|third|fourth|last) quarter)(?: of)?(?: \d{4})?"
    r"|(?:the year )?(?:19|20)\d\d(?![\d,.]\d)\b)"
)
PERIOD = re.compile(
    rf"\b(?:(?:between|from)\s+(?P<first>{_POINT})\s+(?:and|to|until|till|through)\s+(?P<last>{_POINT})"
    rf"|(?P<how>before|after|since|until|till|through|in|during|of|on|for|from|to|by)\s+(?P<one>{_POINT})"
    rf"|(?P<bare>{_POINT.replace('(?:the year )?', '')}))",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(\d{4})\b")


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

    @property
    def is_year(self) -> bool:
        return all(not each or each.endswith("-01-01") for each in (self.start, self.end))

    def year_sql(self, column: str) -> tuple[str, str]:
        """The same for a column of years."""
        told = []
        if self.start:
            told.append(f"{column} >= {self.start[:4]}")
        if self.end:
            told.append(f"{column} < {self.end[:4]}")
        return " and ".join(told), str(self)

    def within(self, low: str, high: str) -> "Period | None":
        """The period with its year, if the dates between these leave no doubt; None if it misses them."""
        start, end = self.start, self.end
        if "????" in start + end:
            if low[:4] != high[:4]:
                return None
            year = int(low[:4])
            start = start.replace("????", low[:4])
            end = end.replace("????+", str(year + 1)).replace("????", low[:4])
        if (end and low >= end) or (start and high < start[: len(high)]):
            return None
        return Period(start, end)

    def sql(self, column: str) -> str:
        told = []
        if self.start:
            # A column of months holds 2025-06 for all of June.
            told.append(f"{column} >= '{_shortest(self.start)}'")
        if self.end:
            told.append(f"{column} < '{_shortest(self.end)}'")
        return " and ".join(told)


def _shortest(day: str) -> str:
    return day.removesuffix("-01") if day.endswith("-01") else day


def period_in(match: re.Match[str]) -> Period | None:
    """The period that a match of `PERIOD` tells; None if it is no real date, or the verb `may`."""
    if match["first"]:
        first, last = _point(match["first"]), _point(match["last"])
        if first is None or last is None:
            return None
        if "????" in first[0] and "????" not in last[0]:
            first = (last[0][:4] + first[0][4:], first[1])
        return Period(first[0], last[1])
    text = match["one"] or match["bare"]
    point = _point(text)
    if point is None or (not match["one"] and _is_verb(text)):
        return None
    match (match["how"] or "").lower():
        case "before":
            return Period("", point[0])
        case "after":
            return Period(point[1], "")
        case "since":
            return Period(point[0], "")
        case "until" | "till" | "through" | "by" | "to":
            return Period("", point[1])
    return Period(*point)


def _is_verb(text: str) -> bool:
    return (
        text.lower() in ("may", "march", "mar", "sep", "dec", "jan", "last")
        and not text[0].isupper()
    )


def _point(text: str) -> tuple[str, str] | None:
    """The first day of what is named, and the first day after it."""
    low = text.lower().replace(",", "").replace(".", "")
    year = found[1] if (found := _YEAR.search(low)) else "????"
    if re.fullmatch(r"\d{4}-\d\d-\d\d", low):
        return _days(low)
    if re.fullmatch(r"\d{4}-\d\d", low):
        return _months(low[:4], int(low[5:]), 1)
    if "quarter" in low or re.search(r"\bq[1-4]", low):
        named = next((n for word, n in _QUARTERS.items() if word in low), 0)
        number = named or int(re.search(r"q([1-4])", low)[1])  # type: ignore[index]  # it was just found
        return _months(year, 3 * number - 2, 3)
    month = next((n for n, name in enumerate(MONTHS, 1) if re.search(rf"\b{name[:3]}", low)), 0)
    if not month:
        return f"{year}-01-01", f"{int(year) + 1}-01-01"
    day = re.search(r"\b(\d{1,2})(?:st|nd|rd|th)?\b", low)
    if day and year != "????":
        return _days(f"{year}-{month:02}-{int(day[1]):02}")
    return _months(year, month, 1)


def _days(day: str) -> tuple[str, str] | None:
    try:
        return day, (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def _months(year: str, month: int, many: int) -> tuple[str, str] | None:
    if not 1 <= month <= 12:
        return None
    after = month + many
    if after <= 12:
        return f"{year}-{month:02}-01", f"{year}-{after:02}-01"
    next_year = "????+" if year == "????" else str(int(year) + 1)
    return f"{year}-{month:02}-01", f"{next_year}-{after - 12:02}-01"
