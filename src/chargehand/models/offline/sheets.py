"""Tables that can be queried: their columns and values, as tools describe them, and how they join."""

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.words import root, word_set, words

MOST_VALUES = 900
#: of all columns of a table that are looked at

_NUMERIC = ("INT", "DECIMAL", "DOUBLE", "FLOAT", "REAL", "NUMERIC")
_DAY = re.compile(r"\d{4}-\d\d(-\d\d.*)?")
_IDS = word_set(
    "id ids no nr num number code zip postcode phone sku isbn ref key barcode index serial"
)
_RATES = word_set("""price rate age year rating score percent percentage pct temperature temp celsius level
    grade ratio share discount height width depth latitude longitude size capacity average mean per hourly""")
#: what is never added up: the sum of two prices is the price of nothing
_YES, _NO = word_set("yes true y 1"), word_set("no false n 0")


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table, and what is known of its values."""

    name: str
    table: str
    kind: str
    #: number, date, flag or text
    filled: int = 0
    different: int = 0
    low: str = ""
    high: str = ""
    values: tuple[str, ...] = ()
    is_id: bool = False
    is_reference: bool = False
    #: it stands for a row of another table
    is_looked_up: bool = False
    #: it comes from the table that another refers to: its rows may be met several times

    @property
    def sql(self) -> str:
        return f"{quoted(self.table)}.{quoted(self.name)}"

    @property
    def text_sql(self) -> str:
        return f"cast({self.sql} as varchar)"

    @property
    def stems(self) -> frozenset[str]:
        own = {root(word) for word in words(self.name)}
        return frozenset(own | {root("number")} if own & {"no", "nr", "num"} else own)

    @property
    def is_measure(self) -> bool:
        return self.kind == "number" and not self.is_id

    @property
    def adds_up(self) -> bool:
        is_rate = bool(set(words(self.name)) & _RATES)
        return self.is_measure and not is_rate and not self.is_looked_up

    @property
    def is_price(self) -> bool:
        own = set(words(self.name))
        return self.is_measure and "price" in own and not own & {"unit", "per"}

    def flag_sql(self, wanted: bool) -> str:
        known = _YES if wanted else _NO
        told = ", ".join(f"'{word}'" for word in sorted(known))
        return f"lower({self.text_sql}) in ({told})"


class Sheet(Struct, frozen=True, kw_only=True):
    """Rows to ask about: a table, or one with what the table that it refers to says of each row."""

    tables: tuple[str, ...]
    files: tuple[str, ...]
    source: str
    #: what stands behind `from`
    rows: int
    columns: tuple[Column, ...]
    has_lines: bool = False
    #: row n stands in line n + 1 of its file
    other: "Sheet | None" = None
    #: the table that it refers to

    @property
    def stems(self) -> frozenset[str]:
        """The words that mean its rows."""
        return frozenset(root(word) for word in words(self.tables[0]))

    def unique(self, column: Column) -> bool:
        return column.different == self.rows and not column.is_looked_up

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
            f"select {_literal(name)} as what, 'all' as told, cast(count({told}) as varchar) as a, "  # noqa: S608 - names are quoted, and the tool only reads
            f"cast(count(distinct {told}) as varchar) as b, {ends} from {source}"
        )
    parts += (
        f"select * from (select distinct {_literal(name)}, 'value', cast({quoted(name)} as varchar), "  # noqa: S608 - as above
        f"'', '', '' from {source} where {quoted(name)} is not null limit {max(most, 1)})"
        for name in texts
    )
    return " union all ".join(parts)


def sheet_of(name: str, told: Mapping[str, Any], profile: Sequence[Sequence[Any]]) -> Sheet:
    """A table from its description and its profile."""
    rows = int(told.get("rows") or 0)
    file = str(told.get("file") or name)
    columns = [
        _column(name, each, str(kind), rows, profile) for each, kind in told["columns"].items()
    ]
    is_plain = file.lower().endswith((".csv", ".tsv")) and bool(columns)
    texts = [column for column in columns if column.kind in ("text", "flag")]
    is_known = all(len(column.values) == column.different for column in texts)
    is_flat = not any("\n" in value for column in texts for value in column.values)
    return Sheet(
        tables=(name,),
        files=(file,),
        source=quoted(name),
        rows=rows,
        columns=tuple(columns),
        has_lines=is_plain and is_known and is_flat and columns[0].name != "column0",
    )


def _column(
    table: str, name: str, kind: str, rows: int, profile: Sequence[Sequence[Any]]
) -> Column:
    about = next((row for row in profile if row[:2] == [name, "all"]), None) or [
        name,
        "all",
        0,
        0,
        "",
        "",
    ]
    values = tuple(str(row[2]) for row in profile if row[:2] == [name, "value"])
    filled, different = int(about[2] or 0), int(about[3] or 0)
    low, high = str(about[4] or ""), str(about[5] or "")
    column = Column(
        name=name,
        table=table,
        kind=_kind(kind, values),
        filled=filled,
        different=different,
        low=low,
        high=high,
        values=values,
    )
    is_named = bool(words(name)) and words(name)[-1] in _IDS
    is_counter = "INT" in kind.upper() and 2 < rows == different and _span(low, high) == rows - 1
    return replace(column, is_id=is_named or is_counter)


def _kind(kind: str, values: Sequence[str]) -> str:
    if _is_number(kind):
        return "number"
    if values and all(_DAY.fullmatch(value) for value in values):
        return "date"
    said = {value.lower() for value in values}
    return "flag" if said and said <= _YES | _NO and len(said) <= 2 else "text"


def _is_number(kind: str) -> bool:
    return any(each in kind.upper() for each in _NUMERIC)


def _span(low: str, high: str) -> float:
    try:
        return float(high) - float(low)
    except ValueError:
        return -1


def linked(sheets: Sequence[Sheet]) -> tuple[list[Sheet], list[Sheet]]:
    """The tables, and each together with another that a column of it refers to by its key."""
    alone, together = list(sheets), []
    for many, one in permutations(range(len(sheets)), 2):
        for column in sheets[many].columns:
            key = next((c for c in sheets[one].columns if _refers(column, c, sheets[one])), None)
            if key is None or sheets[many].unique(column):
                continue
            marked = replace(column, is_reference=column.is_id)
            own = tuple(marked if c.name == column.name else c for c in alone[many].columns)
            alone[many] = replace(alone[many], columns=own)
            together.append(
                _joined(sheets[many], own, sheets[one], f"{column.sql} = {key.sql}", key.name)
            )
    return alone, together


def _joined(many: Sheet, own: tuple[Column, ...], one: Sheet, on: str, key: str) -> Sheet:
    rest = tuple(replace(c, is_looked_up=True) for c in one.columns)
    return Sheet(
        tables=(*many.tables, *one.tables),
        files=(*many.files, *one.files),
        source=f"{many.source} left join {one.source} on {on}",
        rows=many.rows,
        columns=(*own, *(c for c in rest if c.name != key)),
        other=one,
    )


def _refers(column: Column, key: Column, one: Sheet) -> bool:
    if not one.unique(key) or column.kind != key.kind or column.kind not in ("number", "text"):
        return False
    is_same = column.name.lower() == key.name.lower()
    is_id = key.is_id and column.is_id and one.stems <= column.stems
    held = set(key.values)
    return (is_same or is_id) and (column.kind == "number" or set(column.values) <= held)


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
