"""Questions about tables as SQL, and what comes back as a sentence."""

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.sheets import MONTHS, Column, Filter, Sheet, fit, quoted
from chargehand.models.offline.values import Kind, values_in
from chargehand.models.offline.words import stem, word_set, words

MOST_ROWS = 20
#: that are told one by one

_UP = word_set(
    "highest most largest maximum max top greatest best biggest longest expensive dearest"
)
_DOWN = word_set("lowest least smallest minimum min fewest worst shortest cheapest")
_MEAN = word_set("average mean")
_SUM = word_set("total sum altogether overall together")
_PER = re.compile(r"\b(?:per|by|for each|for every|each|every)\s+(\w+)", re.IGNORECASE)
_TOP = re.compile(
    r"\b(?:top|which|what|the)\s+(\w+)|\b(\w+)\s+(?:best|most|highest|lowest|cheapest)",
    re.IGNORECASE,
)
_HOW_MANY = re.compile(r"\bhow many\b|\bnumber of\b|\bcount\b", re.IGNORECASE)
_BOUND = re.compile(
    r"\b(more than|over|above|at least|less than|fewer than|under|below|at most|up to|cheaper than)\s+"
    r"[$€£]?\s?(\d[\d,]*(?:\.\d+)?)",
    re.IGNORECASE,
)
_SIGNS = {
    **dict.fromkeys(("more than", "over", "above"), ">"),
    **dict.fromkeys(("less than", "fewer than", "under", "below", "cheaper than"), "<"),
    "at least": ">=",
    "at most": "<=",
    "up to": "<=",
}
_ORDERS = {"desc": "highest", "asc": "lowest"}
_HOWS = {"sum": "total", "avg": "average", "count": "number of"}
_COUNTS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Query(Struct, frozen=True, kw_only=True):
    """One question about one table."""

    sheet: Sheet
    measure: Column | None
    #: None: rows are counted
    how: str = ""
    #: sum, avg or count; empty: the values as they stand in the rows
    label: Column | None = None
    #: what the result is told by: one line for each of its values
    filters: tuple[Filter, ...] = ()
    bound: tuple[str, str] | None = None
    #: a sign and a number that the measure is held against
    order: str = ""
    #: desc or asc, if only the first are wanted
    most: int = MOST_ROWS

    @property
    def has_lines(self) -> bool:
        """Whether each row of the result is one line of a file."""
        return not self.how and self.sheet.has_line_per_row

    @property
    def may_be_one_row(self) -> bool:
        """Whether a sum may turn out to be one figure of one line, which can then be cited."""
        is_picked = bool(self.filters) and self.label is None and self.how == "sum"
        return is_picked and self.sheet.has_line_per_row

    @property
    def sql(self) -> str:
        head = [self.label.sql_as] if self.label else []
        head.append(f"{self._value} as {quoted(self.name)}" if self.how else self._value)
        if self.has_lines:
            head.append("rowid + 2 as line")  # the first line holds the names of the columns
        if self.may_be_one_row:
            head += ["count(*) as rows", "min(rowid) + 2 as line"]
        text = f"select {', '.join(head)} from {quoted(self.sheet.name)}"  # noqa: S608 - names are quoted, and the tool only reads
        if conditions := self._conditions:
            text += f" where {' and '.join(conditions)}"
        if self.how and self.label:
            text += " group by 1"
        if self.order:
            text += f" order by {len(head) - self.has_lines} {self.order}, 1"
        elif self.label:
            text += " order by 1"
        return f"{text} limit {self.most}" if self.label else text

    @property
    def name(self) -> str:
        """What the figure is called."""
        return self.measure.name if self.measure else "rows"

    @property
    def _value(self) -> str:
        if self.measure is None:
            return "count(*)"
        return f"{self.how}({quoted(self.measure.name)})" if self.how else quoted(self.measure.name)

    @property
    def _conditions(self) -> list[str]:
        told = [each.sql for each in self.filters]
        if self.bound and self.measure:
            told.append(f"{quoted(self.measure.name)} {self.bound[0]} {self.bound[1]}")
        return told

    def told(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """What the rows say, one statement a line, each with its place; nothing if there are none."""
        if not rows or rows[0][0] is None:
            return []
        if self.label is None:
            is_one = self.may_be_one_row and rows[0][1:2] == [1]
            title = replace(self, how="")._title if is_one else self._title
            line = f":{rows[0][2]}" if is_one else ""
            return [f"{title}: {shown(rows[0][0])} [{self.sheet.file}{line}]"]
        if self.order:
            return [f"{self._title}: {row[0]} ({shown(row[1])}) {self._place(row)}" for row in rows]
        if self.has_lines:
            return [f"{row[0]}: {self.name} {shown(row[1])} {self._place(row)}" for row in rows]
        listed = ", ".join(f"{row[0]} {shown(row[1])}" for row in rows)
        return [f"{self._title} by {self.label.name}: {listed} [{self.sheet.file}]"]

    def _place(self, row: Sequence[Any]) -> str:
        line = row[2] if self.has_lines and len(row) > 2 else None
        return f"[{self.sheet.file}:{line}]" if line is not None else f"[{self.sheet.file}]"

    @property
    def _title(self) -> str:
        """What is told, as in `Highest total revenue in 2025-06`."""
        told = [_ORDERS.get(self.order, ""), _HOWS.get(self.how, ""), self.name]
        if self.bound:
            told.append(f"{self.bound[0]} {self.bound[1]}")
        told += [f"of {each}" for each in self.filters if not each.is_of_time]
        told += [f"in {each}" for each in self.filters if each.is_of_time]
        title = " ".join(word for word in told if word)
        return title[0].upper() + title[1:]


def query_for(question: str, sheets: Sequence[Sheet]) -> Query | None:
    """The query that answers the question; None if no table holds what it asks for."""
    found = [query for sheet in sheets if (query := _of_sheet(question, sheet))]
    return max(found, key=lambda query: _worth(query, question)) if found else None


def shown(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer():
        return f"{value:,.0f}"
    exact = Decimal(repr(float(value)))
    return f"{exact.quantize(Decimal('0.0001' if abs(value) < 1 else '0.01'), ROUND_HALF_UP):,}"


def _worth(query: Query, question: str) -> float:
    named = stem(query.sheet.name) in {stem(word) for word in words(question)}
    measure = fit(query.measure, question) if query.measure else 0.2
    return measure + len(query.filters) + 0.3 * named + 0.5 * (query.label is not None)


def _of_sheet(question: str, sheet: Sheet) -> Query | None:
    filters = tuple(sheet.filters(question))
    if not sheet.knows_time(question) or _names_others(question, sheet):
        return None
    measure = max(sheet.numbers, key=lambda column: fit(column, question), default=None)
    if measure is None or not fit(measure, question):
        return _counting(question, sheet, filters)
    query = Query(sheet=sheet, measure=measure, filters=filters, bound=_bound_in(question))
    asked = set(words(question))
    label = _label_in(question, sheet) or _first_label(sheet, filters)
    if asked & (_UP | _DOWN):
        label = label or next(iter(sheet.labels), None)
        order = "asc" if asked & _DOWN else "desc"
        how = "avg" if asked & _MEAN else "" if label and sheet.is_unique(label) else "sum"
        return replace(query, label=label, order=order, how=how, most=_most_in(question))
    if asked & (_MEAN | _SUM) or _adds_up(question, query, label):
        how = "avg" if asked & _MEAN else "sum"
        return replace(query, how=how, label=_group_in(question, sheet))
    return replace(query, label=label) if label else None


def _adds_up(question: str, query: Query, label: Column | None) -> bool:
    """Whether a figure of many rows is asked for, as in how many were sold in June."""
    if query.bound is not None:
        return False
    if _group_in(question, query.sheet) is not None:
        return True
    return label is None or not query.sheet.is_unique(label)


def _counting(question: str, sheet: Sheet, filters: tuple[Filter, ...]) -> Query | None:
    """How many rows there are of a kind, if each row is one of what is counted."""
    named = {stem(word) for word in words(question)}
    kind = next((c for c in sheet.labels if stem(c.name) in named), next(iter(sheet.labels), None))
    is_named = kind is not None and (stem(kind.name) in named or stem(sheet.name) in named)
    if kind is None or not is_named or not sheet.is_unique(kind) or not _HOW_MANY.search(question):
        return None
    return Query(sheet=sheet, measure=None, how="count", filters=filters)


def _group_in(question: str, sheet: Sheet) -> Column | None:
    for found in _PER.finditer(question):
        for column in sheet.labels:
            if stem(found[1].lower()) == stem(column.name.lower()):
                return column
    return None


def _label_in(question: str, sheet: Sheet) -> Column | None:
    """What the question wants told: per what, or which."""
    if group := _group_in(question, sheet):
        return group
    named = {stem(word) for word in words(question)}
    return next((column for column in sheet.labels if stem(column.name) in named), None)


def _first_label(sheet: Sheet, filters: Sequence[Filter]) -> Column | None:
    filtered = [each.column for each in filters]
    unique = [column for column in sheet.labels if sheet.is_unique(column)]
    return next(iter(unique or [c for c in sheet.labels if c not in filtered]), None)


def _bound_in(question: str) -> tuple[str, str] | None:
    found = _BOUND.search(question)
    return (_SIGNS[found[1].lower()], found[2].replace(",", "")) if found else None


def _most_in(question: str) -> int:
    for first, second in _TOP.findall(question):
        said = (first or second).lower()
        if said in _COUNTS[2:]:
            return _COUNTS.index(said)
        if said.isdecimal() and 0 < int(said) <= MOST_ROWS:
            return int(said)
    return 1


def _names_others(question: str, sheet: Sheet) -> bool:
    """Whether the question is about somebody or something by name that is not in the table."""
    known = {stem(word) for values in sheet.values.values() for v in values for word in words(v)}
    known |= {stem(word) for column in sheet.columns for word in words(column.name)}
    names = [found for found in values_in(question) if found.kind is Kind.NAME]
    return any(not _is_known(found.text, known) for found in names if found.start > 0)


def _is_known(name: str, known: set[str]) -> bool:
    return all(stem(word) in known or word in MONTHS or word.isdecimal() for word in words(name))
