"""Tables that can be queried: their columns and values, as tools describe them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

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

    @property
    def has_lines(self) -> bool:
        """Whether row n stands in line n + 1 of its file: no cell before it has a line break."""
        is_plain = self.file.lower().endswith(TABLES) and self.columns[0].name != "column0"
        texts = [column for column in self.columns if column.kind != "number"]
        is_known = all(len(column.values) == column.different for column in texts)
        return is_plain and is_known and not any("\n" in v for c in texts for v in c.values)

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
    for n, column in enumerate(columns):  # what is never added up, as `order` in a table `orders`
        is_own = column.name != name and roots(column.name) == roots(name)
        is_key = is_own or (n == 0 and 2 < rows == column.different)
        is_id = column.is_id or (is_key and "INT" in kinds[column.name].upper())
        columns[n] = replace(column, is_id=is_id)
    return Sheet(name, str(told.get("file") or name), rows, tuple(columns))


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
