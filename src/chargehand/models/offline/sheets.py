"""Tables that can be queried: their columns and values, as tools describe them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from chargehand.models.offline.words import root, word_set, words

#: of all columns of a table that are looked at
MOST_VALUES = 900

_NUMERIC = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMERIC")
_DAY = re.compile(r"\d{4}-\d\d(-\d\d.*)?")
_IDS = word_set(
    "id ids no nr num number code zip postcode phone sku isbn ref key barcode index serial"
)
#: what is never added up: the sum of two prices is the price of nothing
_RATES = word_set("""price rate age year rating score percent percentage pct temperature temp celsius level
    grade ratio share discount height width depth latitude longitude size capacity average mean per hourly""")
_YES_OR_NO = word_set("yes no true false y n 1 0")


class Column(Struct, frozen=True, kw_only=True):
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
        own = {root(word) for word in words(self.name)}
        return frozenset(own | {root("number")} if own & {"no", "nr", "num"} else own)

    @property
    def is_flag(self) -> bool:
        return bool(self.values) and {value.lower() for value in self.values} <= _YES_OR_NO

    @property
    def is_measure(self) -> bool:
        return self.kind == "number" and not self.is_id

    @property
    def adds_up(self) -> bool:
        return self.is_measure and not set(words(self.name)) & _RATES


class Sheet(Struct, frozen=True, kw_only=True):
    """A table with all that is known of its columns."""

    table: str
    file: str
    rows: int
    columns: tuple[Column, ...]
    #: row n stands in line n + 1 of its file
    has_lines: bool

    @property
    def stems(self) -> frozenset[str]:
        """The words that mean its rows."""
        return frozenset(root(word) for word in words(self.table))

    def unique(self, column: Column) -> bool:
        return column.different == self.rows

    @property
    def label(self) -> Column | None:
        """What a row is called by: its name, else its id; no two rows share it."""
        own = [c for c in self.columns if self.unique(c) and (c.is_id or c.kind == "text")]
        return next(iter([c for c in own if not c.is_id] or own), None)


def profile_sql(table: str, columns: Mapping[str, str]) -> str:
    """A query that tells of each column how many values it has, which they are or between which."""
    source, texts = quoted(table), [n for n in columns if not _is_number(columns[n])]
    most = MOST_VALUES // max(1, len(texts)) - len(columns)
    parts = []
    for name in columns:
        told = quoted(name)
        ends = f"cast(min({told}) as varchar), cast(max({told}) as varchar)"
        parts.append(
            f"select {literal(name)} as what, 'all' as told, "  # noqa: S608 - names are quoted, and the tool only reads
            f"cast(count(distinct {told}) as varchar) as a, {ends} from {source}"
        )
    parts += (
        f"select * from (select distinct {literal(name)}, 'value', cast({quoted(name)} as varchar), "  # noqa: S608 - as above
        f"'', '' from {source} where {quoted(name)} is not null limit {max(most, 1)})"
        for name in texts
    )
    return " union all ".join(parts)


def sheet_of(name: str, told: Mapping[str, Any], profile: Sequence[Sequence[Any]]) -> Sheet:
    """A table from its description and its profile."""
    rows = int(told.get("rows") or 0)
    file = str(told.get("file") or name)
    kinds = told["columns"].items()
    columns = tuple(_column(each, str(kind), rows, profile) for each, kind in kinds)
    texts = [column for column in columns if column.kind != "number"]
    is_known = all(len(column.values) == column.different for column in texts)
    is_flat = not any("\n" in value for column in texts for value in column.values)
    is_plain = file.lower().endswith((".csv", ".tsv")) and columns[0].name != "column0"
    has_lines = is_plain and is_known and is_flat
    return Sheet(table=name, file=file, rows=rows, columns=columns, has_lines=has_lines)


def _column(name: str, kind: str, rows: int, profile: Sequence[Sequence[Any]]) -> Column:
    about = next((row for row in profile if row[:2] == [name, "all"]), ("", "", 0, "", ""))
    values = tuple(str(row[2]) for row in profile if row[:2] == [name, "value"])
    different, low, high = int(about[2] or 0), str(about[3] or ""), str(about[4] or "")
    is_named = bool(words(name)) and words(name)[-1] in _IDS
    is_counter = "INT" in kind.upper() and 2 < rows == different == int(high) - int(low) + 1
    return Column(
        name=name,
        kind=_kind(kind, values),
        different=different,
        low=low,
        high=high,
        values=values,
        is_id=is_named or is_counter,
    )


def _kind(kind: str, values: Sequence[str]) -> str:
    if _is_number(kind):
        return "number"
    return "date" if values and all(_DAY.fullmatch(value) for value in values) else "text"


def _is_number(kind: str) -> bool:
    return any(each in kind.upper() for each in _NUMERIC)


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
