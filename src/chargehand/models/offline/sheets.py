"""Tables that can be queried, as a tool describes them, and what a question says about them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from chargehand.models.offline.words import stem, term, word_set, words

MOST_VALUES = 500
#: of a column that are looked at

_NUMERIC = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMERIC")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_RANGE = re.compile(
    rf"\b(?:from|between)\s+({'|'.join(MONTHS)})\b.{{0,20}}?\b(?:to|and|until|through)\s+({'|'.join(MONTHS)})\b",
    re.IGNORECASE,
)
_MAY = re.compile(r"\b(?:in|of|from|until|to|and|since|for|this|last) may\b", re.IGNORECASE)
#: the month, not the verb
_YEAR = re.compile(r"\b(?:19|20)\d{2}\b")
_RESERVED = word_set("""all and any as asc by case check column desc distinct else end from group having in
    into limit not null on or order references select table then to union unique using when where with""")
_SPANS = word_set("week weeks quarter quarters yesterday today tomorrow")
_KIN = (
    word_set("sold sell selling sale unit quantity piece"),
    word_set("earn revenue turnover income bring brought"),
    word_set("price cost cheapest cheap cheaper expensive dearest dearer pay"),
)
#: words for one kind of figure


class Column(Struct, frozen=True):
    """A column of a table, and what it says in SQL."""

    name: str
    kind: str
    #: of DuckDB

    @property
    def is_number(self) -> bool:
        return any(each in self.kind.upper() for each in _NUMERIC)

    @property
    def is_date(self) -> bool:
        return self.kind.upper().startswith(("DATE", "TIMESTAMP"))

    @property
    def sql(self) -> str:
        """Dates are told by their month: that is what people ask by."""
        name = quoted(self.name)
        return f"strftime({name}, '%Y-%m')" if self.is_date else name

    @property
    def sql_as(self) -> str:
        return f"{self.sql} as {quoted(self.name)}" if self.is_date else self.sql


class Filter(Struct, frozen=True):
    """Rows in which a column has one of these values."""

    column: Column
    values: tuple[str, ...]

    @property
    def sql(self) -> str:
        told = ", ".join("'" + value.replace("'", "''") + "'" for value in self.values)
        return (
            f"{self.column.sql} in ({told})"
            if len(self.values) > 1
            else f"{self.column.sql} = {told}"
        )

    @property
    def is_of_time(self) -> bool:
        return _are_months(self.values)

    def __str__(self) -> str:
        return (
            f"{self.values[0]} to {self.values[-1]}"
            if len(self.values) > 2
            else " and ".join(self.values)
        )


class Sheet(Struct, frozen=True, kw_only=True):
    """A table: where it comes from, its columns, and the values of those that hold words."""

    name: str
    file: str
    rows: int
    columns: tuple[Column, ...]
    values: dict[str, tuple[str, ...]] = {}

    @property
    def labels(self) -> list[Column]:
        """The columns that say what a row is about."""
        return [column for column in self.columns if not column.is_number]

    @property
    def numbers(self) -> list[Column]:
        return [column for column in self.columns if column.is_number]

    @property
    def has_line_per_row(self) -> bool:
        """Whether row n stands in line n + 1 of its file: no heading is missing, no cell has lines."""
        if not self.file.lower().endswith((".csv", ".tsv")) or self.columns[0].name == "column0":
            return False
        known = [self.values.get(column.name, ()) for column in self.labels]
        is_known = all(0 < len(values) < MOST_VALUES for values in known)
        return is_known and not any("\n" in value for values in known for value in values)

    @property
    def values_sql(self) -> str:
        """A query for the values of all columns that hold words."""
        lists = [
            f"list_sort(list(distinct {column.sql}))[:{MOST_VALUES}] as {quoted(column.name)}"
            for column in self.labels
        ]
        return f"select {', '.join(lists)} from {quoted(self.name)}"  # noqa: S608 - names are quoted, and the tool only reads

    def is_unique(self, column: Column) -> bool:
        """Whether no two rows have the same value there."""
        return len(self.values.get(column.name, ())) == self.rows

    def filters(self, question: str) -> list[Filter]:
        """What the question says of which rows it is about."""
        found = []
        for column in self.labels:
            values = self.values.get(column.name, ())
            named = (
                _months_in(question, values) if _are_months(values) else _named(question, values)
            )
            if named and len(named) < len(values):
                found.append(Filter(column, tuple(named)))
        return found

    def knows_time(self, question: str) -> bool:
        """Whether the months and years that the question names are in here, if it names any."""
        if set(words(question)) & _SPANS:
            return False
        if not (_month_numbers(question) or _YEAR.search(question)):
            return True
        months = next((v for v in self.values.values() if _are_months(v)), ())
        return bool(_months_in(question, months))


def sheets_in(tables: Mapping[str, Any]) -> Iterator[Sheet]:
    """The tables that a description tells of; none of what could not be read."""
    for name, told in tables.items():
        if columns := told.get("columns"):
            rows = told.get("rows")
            yield Sheet(
                name=str(name),
                file=str(told.get("file") or name),
                rows=rows if isinstance(rows, int) else 0,
                columns=tuple(Column(str(key), str(kind)) for key, kind in columns.items()),
            )


def fit(column: Column, question: str) -> float:
    """How well the question's words name this column; 0: not at all."""
    asked = words(question)
    own = words(column.name)
    if any(stem(word) in {stem(each) for each in own} for word in asked):
        return 1.0
    kin = [group for group in _KIN if any(stem(each) in _stems(group) for each in own)]
    if any(stem(word) in _stems(group) for group in kin for word in asked):
        return 0.8
    return 0.6 if {term(each) for each in own} & {term(word) for word in asked} else 0.0


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    is_plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) is not None
    return name if is_plain and name not in _RESERVED else '"' + name.replace('"', '""') + '"'


def _stems(group: frozenset[str]) -> set[str]:
    return {stem(word) for word in group}


def _named(question: str, values: Sequence[str]) -> list[str]:
    """The values whose words stand in the question, whatever their endings."""
    asked = [stem(word) for word in words(question)]
    found = []
    for value in values:
        own = [stem(word) for word in words(value)]
        places = range(len(asked) - len(own) + 1)
        if own and any(asked[n : n + len(own)] == own for n in places):
            found.append(value)
    return found


def _are_months(values: Sequence[str]) -> bool:
    return bool(values) and all(_MONTH.fullmatch(value) for value in values)


def _months_in(question: str, values: Sequence[str]) -> list[str]:
    """The months among the values that the question names, by name, number or year."""
    numbers, years = _month_numbers(question), set(_YEAR.findall(question))
    if not numbers and not years:
        return []
    return [
        value
        for value in values
        if (not numbers or int(value[5:7]) in numbers) and (not years or value[:4] in years)
    ]


def _month_numbers(question: str) -> set[int]:
    if span := _RANGE.search(question):
        first, last = (MONTHS.index(span[n].lower()) + 1 for n in (1, 2))
        return set(range(first, last + 1))
    named = {word for word in words(question) if word in MONTHS and word != "may"}
    named |= {"may"} if _MAY.search(question) else set()
    written = {int(found[2]) for found in _MONTH.finditer(question)}
    return {MONTHS.index(word) + 1 for word in named} | written
