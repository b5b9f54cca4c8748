"""A query over one table: the SQL for it, and what its result says in words."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from msgspec import Struct

from chargehand.models.offline.table_profiles import Column, Sheet, quoted

#: that are told one by one
MOST_ROWS = 20
_HOWS = {"sum": "total", "avg": "average", "count": "number of", "distinct": "number of different"}
_ORDERS = {"desc": "highest", "asc": "lowest"}
Rows = Sequence[Sequence[Any]]


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
        """A query for a label, a figure, how many rows have no value for it, and the line of its row."""
        label = self.label.text_sql if self.label else "''"
        named = (self.how == "value" and self.measure) or self.label
        where = [each.sql for each in self.where]
        where += [f"{named.sql} is not null"] if named else []
        is_list = self.how == "value" and not self.order and not self._has_line
        parts = [
            f"select {'distinct ' if is_list else ''}{label} as label, {self._figure}, ",
            f"{'rowid + 2' if self._has_line else 0} as line from {quoted(self.sheet.table)}",
            f" where {' and '.join(where)}" if where else "",
            " group by 1" if self.label and self.how != "value" else "",
            f" order by {f'2 {self.order}, 1' if self.order else '1'}",
        ]
        return "".join(parts)

    @property
    def _has_line(self) -> bool:
        return self.how == "value" and self.sheet.has_lines

    @property
    def _figure(self) -> str:
        if self.measure is None:
            return f"{'count(*)' if self.how == 'count' else repr('')} as figure, 0 as gaps"
        column = self.measure.sql if self.measure.is_measure else self.measure.text_sql
        if self.how in ("sum", "avg"):
            return f"{self.how}({column}) as figure, count(*) - count({column}) as gaps"
        return f"{f'count(distinct {column})' if self.how == 'distinct' else column} as figure, 0 as gaps"

    def told(self, rows: Rows) -> list[str]:
        """The answer, each line with its source; nothing if the rows hold none, or too many."""
        rows = [row for row in rows if row[1] is not None]
        if self.order and len(rows) > self.most:
            last = rows[self.most - 1][1]
            rows = [row for n, row in enumerate(rows) if n < self.most or row[1] == last]
        if not rows or len(rows) > MOST_ROWS:
            return []
        if self.order and self.label:
            return [self._line(f"{row[0]} ({shown(row[1])})", [row]) for row in rows]
        listed = dict.fromkeys(f"{row[0]} {shown(row[1])}".strip() for row in rows)
        return [self._line(", ".join(listed), rows)]

    def _line(self, said: str, rows: Rows) -> str:
        gaps = sum(int(row[2] or 0) for row in rows)
        name = self.measure.name if self.measure else ""
        lack = f" (left out, for want of {name}: {gaps} row{'s' * (gaps > 1)})" if gaps else ""
        line = f":{rows[0][3]}" if self._has_line and len(rows) == 1 else ""
        return f"{self._title}: {said}{lack} [{self.sheet.file}{line}]"

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
            return tuple(row[0] for row in rows[: self.most])
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
