"""Tables that can be queried: their columns and values, the SQL for a question, and what its result says in words."""

import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.words import root, roots, word_set, words

TABLES = (".csv", ".tsv")
#: of all columns of a table that are looked at
MOST_VALUES = 900

_NUMERIC = re.compile("INT|DECIMAL|DOUBLE|FLOAT|REAL|NUMERIC", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d(-\d\d.*)?")
_IDS = word_set("id no nr num number code zip postcode phone sku isbn ref key barcode index serial")
#: what is never added up: the sum of two prices is the price of nothing
_RATES = word_set("""price rate age year rating score percent percentage pct temperature temp celsius level
    grade ratio share discount height width depth latitude longitude size capacity average mean per hourly""")
_YES_OR_NO = word_set("yes no true false y n 1 0")
#: that are told one by one
MOST_ROWS = 20
_HOWS = {"sum": "total", "avg": "average", "count": "number of", "distinct": "number of different"}
_ORDERS = {"desc": "highest", "asc": "lowest"}
Rows = Sequence[Sequence[Any]]


class Column(Struct, frozen=True):
    """A column of a table, and what is known of its values."""

    name: str
    #: number, date or text
    kind: str
    different: int
    low: str
    high: str
    values: tuple[str, ...]
    is_id: bool

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def text_sql(self) -> str:
        return f"cast({self.sql} as varchar)"

    @property
    def stems(self) -> frozenset[str]:
        own = roots(self.name)
        return own | {root("number")} if own & {"no", "nr", "num"} else own

    @property
    def is_flag(self) -> bool:
        return bool(self.values) and {value.lower() for value in self.values} <= _YES_OR_NO

    @property
    def is_measure(self) -> bool:
        return self.kind == "number" and not self.is_id

    @property
    def adds_up(self) -> bool:
        return self.is_measure and not set(words(self.name)) & _RATES


class Sheet(Struct, frozen=True):
    """A table with all that is known of its columns."""

    table: str
    file: str
    rows: int
    columns: tuple[Column, ...]
    #: the line of the first row in its file, if each row is a line; 0: unknown
    first_line: int = 0
    left_out: str = ""  # the rows of the file that are not in the table, in words

    def unique(self, column: Column) -> bool:
        return column.different == self.rows

    @property
    def label(self) -> Column | None:
        """What a row is called by: its name, else its id; no two rows share it."""
        own = [c for c in self.columns if self.unique(c) and (c.is_id or c.kind == "text")]
        return min(own, key=lambda column: column.is_id, default=None)


def profile_sql(table: str, columns: Mapping[str, str]) -> str:
    """A query that tells of each column how many values it has, between which, and of texts which."""
    source, texts = quoted(table), [n for n in columns if not _NUMERIC.search(columns[n])]
    most = max(1, MOST_VALUES // max(1, len(texts)) - len(columns))
    parts = [
        f"select {literal(name)}, 'all', cast(count(distinct {told}) as varchar), "  # noqa: S608 - names are quoted, and the tool only reads
        f"cast(min({told}) as varchar), cast(max({told}) as varchar) from {source}"
        for name, told in zip(columns, map(quoted, columns), strict=True)
    ]
    parts += (
        f"select * from (select distinct {literal(name)}, 'value', cast({quoted(name)} as varchar), "  # noqa: S608 - as above
        f"'', '' from {source} where {quoted(name)} is not null limit {most})"
        for name in texts
    )
    return " union all ".join(parts)


def sheet_of(name: str, told: Mapping[str, Any], profile: Sequence[Sequence[Any]]) -> Sheet:
    """A table from its description and its profile."""
    rows = int(told.get("rows") or 0)
    kinds = {each: str(kind) for each, kind in told["columns"].items()}
    columns = [_column(each, kind, rows, profile) for each, kind in kinds.items()]
    for first in columns[:1]:  # is no measure if it numbers the rows, as `order` in `orders`
        is_own = first.name != name and roots(first.name) == roots(name)
        is_key = (is_own or 2 < rows == first.different) and "INT" in kinds[first.name].upper()
        columns[0] = replace(first, is_id=first.is_id or is_key)
    line, left_out = int(told.get("first_line") or 0), str(told.get("left_out") or "")
    return Sheet(name, str(told.get("file") or name), rows, tuple(columns), line, left_out)


def _column(name: str, kind: str, rows: int, profile: Sequence[Sequence[Any]]) -> Column:
    about = next((row for row in profile if row[:2] == [name, "all"]), ("", "", 0, "", ""))
    values = tuple(str(row[2]) for row in profile if row[:2] == [name, "value"])
    different, low, high = int(about[2] or 0), str(about[3] or ""), str(about[4] or "")
    is_counter = "INT" in kind.upper() and 2 < rows == different == int(high) - int(low) + 1
    is_date = bool(values) and all(map(_DAY.fullmatch, values))
    is_id = is_counter or bool({*words(name)[-1:]} & _IDS)
    sort = "number" if _NUMERIC.search(kind) else "date" if is_date else "text"
    return Column(name, sort, different, low, high, values, is_id)


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Condition(NamedTuple):
    """What rows must be like, in SQL and in words."""

    sql: str
    told: str


class Query(Struct, frozen=True):
    """What is computed over which rows of which table."""

    sheet: Sheet
    #: count, distinct, sum, avg, value
    how: str
    measure: Column | None = None
    #: what a value belongs to; all else is computed for each of its values
    label: Column | None = None
    where: tuple[Condition, ...] = ()
    #: desc or asc, if only the first are wanted
    order: str = ""
    most: int = 1

    @property
    def sql(self) -> str:
        """A query for a label, a figure, how many rows have no value for one of them, and the line of its row."""
        label = self.label.text_sql if self.label else "''"
        named = self.measure or self.label
        where = [each.sql for each in self.where]
        where += [f"{named.sql} is not null"] if named and self.how == "value" else []
        is_list = self.how == "value" and not self.order and not self._has_line
        parts = [
            f"select {'distinct ' if is_list else ''}{label} as label, {self._figure}, ",
            f"{f'rowid + {self.sheet.first_line}' if self._has_line else 0} as line from {quoted(self.sheet.table)}",
            f" where {' and '.join(where)}" if where else "",
            " group by 1" if self.label and self.how != "value" else "",
            f" order by {f'2 {self.order}, 1' if self.order else '1'}",
        ]
        return "".join(parts)

    @property
    def _has_line(self) -> bool:
        return self.how == "value" and self.sheet.first_line > 0

    @property
    def _figure(self) -> str:
        figure, needed = repr(""), [self.label.sql] if self.label else []
        if self.measure:
            figure = self.measure.sql if self.measure.is_measure else self.measure.text_sql
        needed += [figure] if self.how in ("sum", "avg") else []
        gaps = " or ".join(f"{each} is null" for each in needed) or "false"
        if self.how == "value":
            return f"{figure} as figure, {gaps} as gaps"
        calls = {"count": "count(*)", "distinct": f"count(distinct {figure})"}
        figure = calls.get(self.how, f"{self.how}({figure})")
        return f"{figure} as figure, count(case when {gaps} then 1 end) as gaps"

    def told(self, rows: Rows) -> list[str]:
        """The answer, each line with its source; nothing if the rows hold none, or too many."""
        lack = self._lack(rows)
        rows = [row for row in rows if row[0] is not None and row[1] is not None]
        if self.order and len(rows) > self.most:
            last = rows[self.most - 1][1]
            rows = [row for n, row in enumerate(rows) if n < self.most or row[1] == last]
        if not rows or len(rows) > MOST_ROWS:
            return []
        if self.order and self.label:
            return [self._line(f"{row[0]} ({shown(row[1])}){lack}", [row]) for row in rows]
        listed = dict.fromkeys(f"{row[0]} {shown(row[1])}".strip() for row in rows)
        return [self._line(f"{', '.join(listed)}{lack}", rows)]

    def _lack(self, rows: Rows) -> str:
        """Which rows are left out, and why."""
        sides = [(self.label, [row for row in rows if row[0] is None])]
        sides += [(self.measure, [row for row in rows if row[0] is not None])]
        counts = [(of.name, sum(int(row[2] or 0) for row in lost)) for of, lost in sides if of]
        lacks = [f"for want of {n}: {gaps} row{'s' * (gaps > 1)}" for n, gaps in counts if gaps]
        lacks += [self.sheet.left_out] if self.sheet.left_out else []
        return f" (left out, {', '.join(lacks)})" if lacks else ""

    def _line(self, said: str, rows: Rows) -> str:
        line = f":{rows[0][3]}" if self._has_line and len(rows) == 1 else ""
        return f"{self._title}: {said} [{self.sheet.file}{line}]"

    @property
    def _title(self) -> str:
        named = self.measure or self.label
        is_date = self.measure is not None and self.measure.kind == "date"
        orders = {"desc": "latest", "asc": "earliest"} if is_date else _ORDERS
        is_grouped = self.label and self.how != "value" and not self.order
        by = f"by {self.label.name}" if self.label and is_grouped else ""
        where = f"where {' and '.join(each.told for each in self.where)}" if self.where else ""
        what = "rows" if named is None or self.how == "count" else named.name
        told = [orders.get(self.order, ""), _HOWS.get(self.how, ""), what, by, where]
        title = " ".join(filter(None, told))
        return title[0].upper() + title[1:]

    def key(self, rows: Rows) -> object:
        """What the answer comes to, so that two readings of a question can be compared."""
        if self.order:
            return tuple([row[0] for row in rows if row[0] is not None][: self.most])
        return frozenset(shown(row[1] if row[1] not in ("", None) else row[0]) for row in rows)

    def is_several(self, rows: Rows) -> bool:
        """Whether rows that the question does not tell apart say different things."""
        is_bare = self.how == "value" and self.label is None and not self.order
        return is_bare and len({row[1] for row in rows}) > 1


def shown(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer():
        return f"{value:,.0f}"
    exact = Decimal(repr(float(value)))
    return f"{exact.quantize(Decimal('0.0001' if abs(value) < 1 else '0.01'), ROUND_HALF_UP):,}"
