"""A separate process that loads tables or runs queries: one JSON request in, one JSON response out.

It is a process of its own because DuckDB's memory limit does not cover all values that a query can
create, and because a slow query, or a file that crashes a parser, must not harm the supervisor. It is
started by its path and imports nothing of chargehand, so it starts fast. If DuckDB is not installed,
SQLite holds the CSV files, with the same types and answers.
"""

import codecs
import contextlib
import csv
import io
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple, TextIO

#: megabytes that DuckDB may use; the address space of the process may be several times larger
MEMORY = 512
ADDRESSES = 4 * 1024**3
LARGEST_FILE = 4 * 1024**3
#: characters, or list elements, of one value
MOST_CELL = 2_000
SAFE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a table name must never resolve to a variable of this program
    "memory_limit": f"{MEMORY}MB",
    "threads": "2",
}
NO_VALUE = ("", "n/a", "na", "nan", "null", "none", "-", "–", "?", "unknown", "tbd", "missing")
#: without numbers that begin with a needless 0: they are codes, and the 0 is part of them
WHOLE = r"[$€£]?\s?-?(0|[1-9]\d{0,17}|[1-9]\d{0,2}(,\d{3}){1,5})"
NUMBER = WHOLE + r"(\.\d+)?"
DAY = r"\d{4}-\d\d-\d\d"
_READERS = {"csv": "read_csv", "json": "read_json_auto", "parquet": "read_parquet"}
_REFUSED = "only one SELECT statement can be run; nothing can be changed, loaded or attached"
_YEAR = r"(19|20)\d\d"
_ANY_NUMBER = NUMBER + r"([eE][-+]?\d{1,3})?|-?\.\d+"
_BOOLS = dict.fromkeys(("true", "t", "yes", "y"), "true") | dict.fromkeys(
    ("false", "f", "no", "n"), "false"
)
_DAYS = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d")
#: dates whose order is not told by a year of four digits at their beginning, and what the three numbers may be:
#: the places of year, month and day
_SHORT_DATE = re.compile(r"\s*(\d{1,2})[-/.](\d{1,2})[-/.](\d{2}|\d{4})\b")
_DATE_ORDERS = {
    "day/month/year": (3, 2, 1),
    "month/day/year": (3, 1, 2),
    "year/month/day": (1, 2, 3),
}
_DATES_COMPARED = 100
_TIMES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")
_AFFINITIES = {"BIGINT": "INTEGER", "DOUBLE": "REAL"}
ONLY_CSV = "only CSV can be read here; install chargehand[data]"
UTF_8, OLD = "utf-8-sig", "cp1252"
#: how files begin that name their encoding
MARKS = (
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, because its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: characters at the beginning of a CSV file from which its layout is told
_BEGINNING = 262_144
#: separates the cells of a file that has one column only
_NO_MARK = "\x1f"
#: the first line of a file that names its delimiter for spreadsheets
_NAMED_MARK = re.compile(r'"?sep=(.)"?[^\S\r\n]*(?:\r\n|\r|\n|$)', re.IGNORECASE)


class Layout(NamedTuple):
    """How a CSV file is to be read: the delimiter, the lines before the first row of data, the names of the columns."""

    mark: str
    skip: int
    names: list[str]
    #: the row of names as it is written, which joined files repeat; empty if they have none, or one only
    header: Sequence[str] = ()

    def is_kept(self, row: Sequence[str]) -> bool:
        """Whether a row below the names holds data."""
        return any(map(str.strip, row)) and row != self.header


def load(database: str, tables: list[dict[str, str]], drop: list[str]) -> dict[str, Any]:
    """Load files as tables; returns a description of each, or why it could not be read."""
    import duckdb

    told: dict[str, Any] = {"loaded": {}, "failed": {}}
    with duckdb.connect(database, config=SAFE) as connection:
        for name in (*drop, *(table["name"] for table in tables)):
            connection.execute(f"drop table if exists {_quoted(name)}")
        for table in tables:
            try:
                skipped, notes = _take_in(connection, **table)
            except (csv.Error, ValueError, duckdb.Error) as error:
                told["failed"][table["name"]] = _why(error, table["file"])
            else:
                about = _described(connection, table["name"])
                lines = _lines(table["file"], skipped, about["rows"])
                told["loaded"][table["name"]] = about | lines | notes
    return told


def _why(error: Exception, file: str) -> str:
    """Why a file cannot be loaded, without the path of its copy."""
    if isinstance(error, csv.Error) and "unexpected end of data" in str(error):
        return "a cell in quotation marks does not end"
    return str(error).partition("\n")[0].replace(file, "…")


def query(database: str, sql: str, most: int) -> dict[str, Any]:
    """The first rows of a query."""
    answer: dict[str, Any] = query_all(database, [sql], most)["answers"][0]
    return answer


def query_all(database: str, queries: Sequence[str], most: int) -> dict[str, Any]:
    """The first rows of each query."""
    import duckdb

    config = {**SAFE, "enable_external_access": "false", "temp_directory": ""}
    with duckdb.connect(database, read_only=True, config=config) as connection:
        connection.execute("set lock_configuration = true")
        return {"answers": [_answer(connection, sql, most, database) for sql in queries]}


def _answer(connection: Any, sql: str, most: int, database: str) -> dict[str, Any]:
    import duckdb

    try:
        statements = connection.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            return {"error": _REFUSED}
        tables = _tables_of(connection, sql)
        relation = _readable(connection.sql(statements[0]))
        rows = relation.limit(most + 1).fetchall()
    except duckdb.Error as error:
        return {"error": str(error).replace(database, "…")[:1_500]}
    shown = [[_plain(cell) for cell in row] for row in rows[:most]]
    return _answered(relation.columns, shown, tables, has_more=len(rows) > most)


def _tables_of(connection: Any, sql: str) -> list[str]:
    """The tables that a query reads, according to DuckDB's parser."""
    # DuckDB's get_table_names fails for queries with JOIN … USING.
    ((tree,),) = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchall()
    found, named = set(), set()
    nodes: list[Any] = [json.loads(tree)]
    while nodes:
        match nodes.pop():
            case list() as several:
                nodes += several
            case dict() as node:
                nodes += node.values()
                if node.get("type") == "BASE_TABLE":
                    found.add(node["table_name"])
                named |= {each["key"] for each in (node.get("cte_map") or {}).get("map", ())}
    return sorted(found - named)  # names defined by `with` are not tables


def _answered(
    columns: list[str], rows: list[list[Any]], tables: list[str], *, has_more: bool
) -> dict[str, Any]:
    """The rows, the names of their columns, and the tables that the query read."""
    return {"columns": columns, "rows": rows, "tables": tables, "has_more": has_more}


def _take_in(connection: Any, name: str, file: str, form: str) -> tuple[int | None, dict[str, Any]]:
    """Load a file; returns how many lines come before its first row (None if rows are no lines), and what is to be said of it."""
    create = f"create table {_quoted(name)} as from {_READERS[form]}"
    if form == "csv":
        layout, repeated = _take_in_by_layout(connection, create, file)
        _mend_types(connection, name)
        described = connection.execute(f"describe {_quoted(name)}").fetchall()
        kinds = {column: kind for column, kind, *_ in described}
        return layout.skip, _left_out(repeated) | _dates(connection, name, file, layout, kinds)
    if form == "json":
        _refuse_cut_off(file)
    connection.execute(f"{create}(?)", [file])
    if form == "json":
        _mend_whole_numbers(connection, name, file)
        _mend_mixed(connection, name)
    return None, {}


def _take_in_by_layout(connection: Any, create: str, file: str) -> tuple[Layout, int]:
    """Load a CSV file as it was laid out here; returns how many rows repeat the names, too. If left to guess, DuckDB skips rows that do not fit its guess."""
    import duckdb

    with _opened_csv(file) as lines:
        layout = _usable(lines.read(_BEGINNING), is_whole=not lines.read(1))
    fixed = "delim = ?, skip = ?, names = ?, header = false, quote = '\"', escape = '\"', comment = '', null_padding = true, parallel = false"
    if _is_plain(file, layout):
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"{create}(?, {fixed})", [file, *layout[:3]])
            return layout, 0
    # DuckDB cannot read the file as it is, or some rows are longer than the first, or it guessed the types wrong.
    even, wide = f"{file}.even", _evened(file, layout, f"{file}.even")
    fixed += ", new_line = '\\r\\n'"  # cells may have line breaks of another kind, by which DuckDB would guess wrong
    try:
        connection.execute(f"{create}(?, {fixed})", [even, *wide[:3]])
    except duckdb.Error:
        connection.execute(f"{create}(?, {fixed}, all_varchar = true)", [even, *wide[:3]])
    return layout, _repeats(file, layout)


def _is_plain(file: str, layout: Layout) -> bool:
    """Whether DuckDB takes the same rows of this file for data as `_rows_of`."""
    if encoding_of(file) != UTF_8:
        return False
    with _opened_csv(file) as lines:
        head = list(itertools.islice(lines, layout.skip))
        # DuckDB skips rows, not lines: a name or a title with a line break would cost it a row of data.
        if sum(1 for _ in csv.reader(head, delimiter=layout.mark)) != layout.skip:
            return False
        names = head[-1].rstrip("\r\n") if layout.header else None
        is_one = len(layout.names) == 1
        blank = f'{layout.mark}" \t'
        for line in lines:
            bare = line.rstrip("\r\n")
            # Of lines without any character, DuckDB makes rows only in a table of one column.
            if bare == names or ((bare or is_one) and not bare.strip(blank)):
                return False
    return True


def _repeats(file: str, layout: Layout) -> int:
    """How many rows of data only repeat the names of the columns."""
    return sum(row == layout.header for row in _rows_of(file, layout, is_all=True))


def _left_out(repeated: int) -> dict[str, Any]:
    some = "1 row that repeats" if repeated == 1 else f"{repeated} rows that repeat"
    return {"left_out": f"{some} the names of the columns"} if repeated else {}


def _lines(file: str, skipped: int | None, rows: int) -> dict[str, int]:
    """Where the first row stands, if every row is one line, without empty ones between: row n is n lines further on."""
    if skipped is None:
        return {}
    with _opened_csv(file) as lines:
        rest = itertools.islice(lines, skipped, None)
        is_dense = all(line.strip("\r\n") for line in itertools.islice(rest, rows))
        is_dense = is_dense and not any(line.strip("\r\n") for line in rest)
    return {"first_line": skipped + 1} if is_dense and rows else {}


def _dates(
    connection: Any, name: str, file: str, layout: Layout, kinds: dict[str, str]
) -> dict[str, Any]:
    """How the dates of a CSV file were read, by column, if they could have been read otherwise."""
    told: dict[str, str] = {}
    first = list(itertools.islice(_rows_of(file, layout), _DATES_COMPARED))
    for number, (column, kind) in enumerate(kinds.items()):
        cells = [_SHORT_DATE.match(row[number]) if number < len(row) else None for row in first]
        if kind not in ("DATE", "TIMESTAMP") or not any(cells):
            continue
        text = f"cast({_quoted(column)} as varchar)"
        select = f"select {text}, (select max(substr({text}, 9, 2)) from {_quoted(name)}) from {_quoted(name)} limit {len(first)}"  # noqa: S608 - names are quoted
        values = connection.execute(select).fetchall()
        read = zip(cells, values, strict=False)
        pairs = [(cell, value) for cell, (value, _) in read if cell and value]
        is_clear = not pairs or (
            all(len(cell[3]) == 4 for cell, _ in pairs) and values[0][1] > "12"
        )
        if not is_clear and (order := _order_of(pairs)):
            told[column] = f"read as {order}; the file does not say whether that is meant"
    return {"dates": told} if told else {}


def _order_of(pairs: "Sequence[tuple[re.Match[str], str]]") -> str:
    """In which order the numbers of dates were read, by what became of them."""
    for order, (year, month, day) in _DATE_ORDERS.items():
        read = (f"{c[year]:0>2}-{c[month]:0>2}-{c[day]:0>2}" for c, _ in pairs)
        if all(value[:10].endswith(cell) for cell, (_, value) in zip(read, pairs, strict=True)):
            return order
    return ""


def _evened(file: str, layout: Layout, into: str) -> Layout:
    """Write a CSV file whose rows all have as many cells as the longest one."""
    width = max((len(row) for row in _rows_of(file, layout)), default=0)
    names = _names([*layout.names, *[""] * (width - len(layout.names))])
    with open(into, "w", encoding="utf-8", newline="") as out:  # noqa: PTH123 - pathlib is slow to import
        writer = csv.writer(out, quoting=csv.QUOTE_MINIMAL)
        for row in _rows_of(file, layout):
            writer.writerow([*row, *[""] * (len(names) - len(row))])
    return Layout(",", 0, names)


def _refuse_cut_off(file: str) -> None:
    """Refuse a JSON list without its end; DuckDB reads such a list as if it was whole."""
    with open(file, "rb") as whole:  # noqa: PTH123 - pathlib is slow to import
        first = whole.read(4_096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        whole.seek(max(whole.seek(0, 2) - 4_096, 0))
        last = whole.read().rstrip()[-1:]
    if first == b"[" and last != b"]":
        raise ValueError("it is cut off: it begins with [ and does not end with ]")


def _mend_whole_numbers(connection: Any, name: str, file: str) -> None:
    """Read columns of whole numbers again, without rounding, if DuckDB took them for fractions, as they are too large for 64 bits."""
    for column, kind, *_ in connection.execute(f"describe {_quoted(name)}").fetchall():
        own, key = _quoted(column), column.replace("'", "''")
        large = f"select count(*) from {_quoted(name)} where abs({own}) >= 2::double ** 63"  # noqa: S608 - names are quoted
        if kind != "DOUBLE" or connection.execute(large).fetchall() == [(0,)]:
            continue
        texts = f"read_json(?, columns = {{'{key}': 'VARCHAR'}})"
        sql = f"select count(*) filter (not regexp_full_match({own}, '-?\\d+')), count({own}) - count(try_cast({own} as HUGEINT)) from {texts}"  # noqa: S608 - names are quoted
        ((fractions, larger),) = connection.execute(sql, [file]).fetchall()
        wanted = "VARCHAR" if larger else "HUGEINT"
        if not fractions:
            connection.execute(
                f"create or replace table {_quoted(name)} as select whole.* replace (texts.{own}::{wanted} as {own}) "  # noqa: S608 - names are quoted
                f"from {_quoted(name)} as whole positional join {texts} as texts",
                [file],
            )


def _mend_mixed(connection: Any, name: str) -> None:
    """Take quotation marks off the texts of columns that DuckDB keeps as JSON, unless such a column holds lists or objects."""
    for column, kind, *_ in connection.execute(f"describe {_quoted(name)}").fetchall():
        own = _quoted(column)
        if kind != "JSON":
            continue
        sql = f"select count(*) from {_quoted(name)} where json_type({own}) in ('ARRAY', 'OBJECT')"  # noqa: S608 - names are quoted
        if connection.execute(sql).fetchall() == [(0,)]:
            connection.execute(
                f"alter table {_quoted(name)} alter {own} type VARCHAR using {own} ->> '$'"
            )


def _mend_types(connection: Any, name: str) -> None:
    """Convert text columns that consist of numbers or dates and marks for missing values, such as `n/a`."""
    for column, kind, *_ in connection.execute(f"describe {_quoted(name)}").fetchall():
        if kind != "VARCHAR":
            continue
        cell = f"trim({_quoted(column)})"
        plain = f"replace(ltrim({cell}, '$€£ '), ',', '')"
        gaps = ", ".join(f"'{word}'" for word in NO_VALUE)
        for pattern, wanted, value in (
            (WHOLE, "BIGINT", plain),
            (NUMBER, "DOUBLE", plain),
            (DAY, "DATE", cell),
        ):
            sql = (
                f"select count(*), count(*) filter (not regexp_full_match({cell}, '{pattern}') or try_cast({value} as {wanted}) is null) "  # noqa: S608 - names are quoted
                f"from {_quoted(name)} where {_quoted(column)} is not null and lower({cell}) not in ({gaps})"
            )
            ((said, others),) = connection.execute(sql).fetchall()
            if said and not others:
                connection.execute(
                    f"alter table {_quoted(name)} alter {_quoted(column)} type {wanted} using try_cast({value} as {wanted})"
                )
                break


def _described(connection: Any, name: str) -> dict[str, Any]:
    relation = _readable(connection.table(_quoted(name)))
    types = connection.execute(f"describe {_quoted(name)}").fetchall()
    ((count,),) = relation.aggregate("count(*)").fetchall()
    first = [[_plain(cell) for cell in row] for row in relation.limit(3).fetchall()]
    return {"rows": count, "columns": {row[0]: row[1] for row in types}, "first_rows": first}


def _readable(relation: Any) -> Any:
    """The relation with time-zone timestamps as text, because DuckDB needs another package to return them."""
    kinds = [str(kind) for kind in relation.types]
    if not any("WITH TIME ZONE" in kind for kind in kinds):
        return relation
    columns = [
        f"{_quoted(name)}::varchar as {_quoted(name)}"
        if "WITH TIME ZONE" in kind
        else _quoted(name)
        for name, kind in zip(relation.columns, kinds, strict=True)
    ]
    return relation.project(", ".join(columns))


# Without DuckDB


def load_sqlite(database: str, tables: list[dict[str, str]], drop: list[str]) -> dict[str, Any]:
    """Like `load`, for CSV files only."""
    import apsw

    told: dict[str, Any] = {"loaded": {}, "failed": {}}
    connection = apsw.Connection(database)
    with connection:
        for name in (*drop, *(table["name"] for table in tables)):
            connection.execute(f"drop table if exists {_quoted(name)}")
        for table in tables:
            if table["form"] != "csv":
                told["failed"][table["name"]] = ONLY_CSV
                continue
            try:
                told["loaded"][table["name"]] = _take_in_csv(
                    connection, table["name"], table["file"]
                )
            except (csv.Error, ValueError, apsw.Error) as error:
                told["failed"][table["name"]] = _why(error, table["file"])
    connection.close()
    return told


def query_sqlite(database: str, sql: str, most: int) -> dict[str, Any]:
    """Like `query`."""
    import apsw

    allowed = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    statements = itertools.count(1)
    tables: set[str] = set()

    def authorize(action: int, table: str | None, *_: Any) -> int:
        if action == apsw.SQLITE_READ and table:
            tables.add(table)
        return apsw.SQLITE_OK if action in allowed else apsw.SQLITE_DENY

    connection.authorizer = authorize
    connection.exec_trace = lambda *_: next(statements) == 1
    try:
        cursor = connection.execute(sql)
        columns = [each[0] for each in cursor.get_description()]
        rows = list(itertools.islice(cursor, most + 1))
    except apsw.ExecutionCompleteError:
        columns, rows = _columns(connection, sql), []
    except (apsw.AuthError, apsw.ExecTraceAbort):
        return {"error": _REFUSED}
    except apsw.Error as error:
        return {"error": str(error).replace(database, "…")[:1_500]}
    if not columns:
        return {"error": _REFUSED}
    shown = [[_plain(cell) for cell in row] for row in rows[:most]]
    return _answered(columns, shown, sorted(tables), has_more=len(rows) > most)


def query_all_sqlite(database: str, queries: Sequence[str], most: int) -> dict[str, Any]:
    """Like `query_all`."""
    return {"answers": [query_sqlite(database, sql, most) for sql in queries]}


def _columns(connection: Any, sql: str) -> list[str]:
    """The column names of a result without rows."""
    names: list[str] = []

    def look(cursor: Any, *_: Any) -> bool:
        names.extend(each[0] for each in cursor.get_description())
        return True

    connection.exec_trace = look
    list(connection.execute(sql))
    return names


def _take_in_csv(connection: Any, name: str, file: str) -> dict[str, Any]:
    with _opened_csv(file) as lines:
        layout = _usable(lines.read(_BEGINNING), is_whole=not lines.read(1))
    rows = list(_rows_of(file, layout))
    width = max(map(len, rows), default=0)
    names = _names([*layout.names, *[""] * (width - len(layout.names))])
    cells = [(*row, *[""] * (len(names) - len(row))) for row in rows]
    typed = [_typed([row[n] for row in cells]) for n in range(len(names))]
    kinds = {name: kind for name, (kind, _) in zip(names, typed, strict=True)}
    declared = ", ".join(
        f"{_quoted(each)} {_AFFINITIES.get(kind, 'TEXT')}" for each, kind in kinds.items()
    )
    connection.execute(f"create table {_quoted(name)} ({declared})")
    # Rows are numbered from 0, as in DuckDB.
    holes = ", ".join("?" * (len(names) + 1))
    into = f"insert into {_quoted(name)} (rowid, {', '.join(map(_quoted, names))}) values ({holes})"  # noqa: S608 - names are quoted
    whole = list(zip(*(values for _, values in typed), strict=True)) if cells else []
    connection.executemany(into, ((n, *row) for n, row in enumerate(whole)))
    first_rows = [[_plain(cell) for cell in row] for row in whole[:3]]
    told = {"rows": len(whole), "columns": kinds, "first_rows": first_rows}
    told |= _lines(file, layout.skip, len(whole)) | _left_out(_repeats(file, layout))
    return told | _dates(connection, name, file, layout, kinds)


# The layout of CSV files, with and without DuckDB


def peek(data: bytes, *, is_whole: bool) -> "tuple[tuple[tuple[str, str], ...], list[list[str]]]":
    """The columns of a CSV file with their types, guessed from its beginning, and the rows in that beginning."""
    begin = _decoded(data)
    layout = layout_of(begin, is_whole=is_whole)
    lines = _lines_in(begin)
    read = _read(lines if is_whole else lines[:-1], layout.mark, layout.skip)
    body = list(filter(layout.is_kept, read))
    columns = [
        (name, _typed([row[n] if n < len(row) else "" for row in body[:100]])[0])
        for n, name in enumerate(layout.names)
    ]
    return tuple(columns), body


def _usable(begin: str, *, is_whole: bool) -> Layout:
    if "\0" in begin:
        raise ValueError("it holds binary data")
    layout = layout_of(begin, is_whole=is_whole)
    if not layout.names:
        raise ValueError("it is empty")
    return layout


def layout_of(begin: str, *, is_whole: bool) -> Layout:
    """The layout of a CSV file, told from its beginning. Only titles and comments above the columns count as no data."""
    lines = _lines_in(begin)
    if not is_whole and len(lines) > 1:
        lines = lines[:-1]  # it may be incomplete
    named = _NAMED_MARK.match(begin)
    read = {mark: _read(lines[:200], mark) for mark in (named[1] if named else ",;\t|")}
    # The delimiter that cuts the most rows into the same number of cells.
    mark, (width, fits) = max(
        ((mark, _usual_width(rows)) for mark, rows in read.items()), key=lambda each: each[1][1]
    )
    if width < 2 or not fits:
        mark, width = _NO_MARK, 1
    skip = len(_lines_in(named[0])) if named else 0
    rows = _numbered(lines, mark, skip)
    filled = _usual_width([cells for _, row in rows[:200] if (cells := _up_to_last(row))])[0]
    for n, (end, row) in enumerate(rows):
        below = [row for _, row in rows[n + 1 : n + 200] if row]
        if not any(map(str.strip, row)) or _is_title(row, below, width, filled):
            skip = end
            continue
        if _is_data(row, below):
            return Layout(mark, skip, _names([""] * len(row)))
        return Layout(mark, end, _names(row), row if len(row) > 1 else ())
    return Layout(mark, skip, [])


def _numbered(lines: Sequence[str], mark: str, skip: int) -> list[tuple[int, list[str]]]:
    """The rows after so many lines, as far as they can be read, each after the number of its last line."""
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader(lines[skip:], delimiter=mark)
    with contextlib.suppress(csv.Error):
        rows.extend((skip + reader.line_num, row) for row in reader)
    return rows


def _up_to_last(row: Sequence[str]) -> Sequence[str]:
    """The row without the empty cells at its end, with which spreadsheets fill rows up."""
    filled = [number for number, cell in enumerate(row) if cell.strip()]
    return row[: filled[-1] + 1] if filled else []


def _is_title(row: Sequence[str], below: Sequence[Sequence[str]], width: int, filled: int) -> bool:
    """Whether a row above the data is a title or a comment: by its form, or because the names follow it."""
    own = len(_up_to_last(row))
    is_comment = row[0].startswith("#") and (len(row) != width or own < filled)
    if len(row) < 2 <= width or is_comment:
        return True
    first = next((n for n, each in enumerate(below) if not _may_be_title(each, filled)), None)
    if first is None or not _may_be_title(row, filled):
        return False
    following, others = below[first], below[first + 1 :]
    # One cell of two may be the only name there is; one of more is none.
    is_lone = own == 1 and filled > 2 and not _is_data(following, others)
    return is_lone or _are_names(following, others)


def _may_be_title(row: Sequence[str], usual: int) -> bool:
    """Whether a row begins as comments do, or is filled from the left and not to the end."""
    filled = _up_to_last(row)
    return row[0].startswith("#") or (len(filled) < usual and all(map(str.strip, filled)))


def _are_names(row: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether words only stand in this row, at least one of them above numbers or days."""
    cells = [cell.strip() for cell in _up_to_last(row)]
    if not all(_is_word(cell) for cell in cells):
        return False
    columns = ([each[n] for each in others[:100] if n < len(each)] for n in range(len(cells)))
    return any(_typed(cells)[0] not in ("VARCHAR", "BOOLEAN") for cells in columns)


def _is_word(cell: str) -> bool:
    """Whether a cell may be a name: no number or day but a year, no mark for a missing value."""
    is_year = re.fullmatch(_YEAR, cell) is not None
    return is_year or (cell.lower() not in NO_VALUE and _typed([cell])[0] in ("VARCHAR", "BOOLEAN"))


def _lines_in(text: str) -> list[str]:
    """The lines as a file has them. `str.splitlines` also splits at other characters, and rows would be miscounted."""
    return list(io.StringIO(text, newline=""))


def _usual_width(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """How many cells most rows have, and how many rows those are; 0 rows if they have one cell."""
    counts = Counter(map(len, rows))
    width = max(counts, key=lambda cells: (counts[cells], -cells), default=0)
    return width, counts[width] if width > 1 else 0


def _is_data(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is data, not names: a number or a day stands above others. Years may be names."""
    for number, cell in enumerate(first):
        if re.fullmatch(_YEAR, cell.strip()):
            continue
        below = [row[number] for row in others[:100] if number < len(row)]
        kind = _typed([cell])[0]
        if kind not in ("VARCHAR", "BOOLEAN") and below and _typed(below)[0] == kind:
            return True
    return False


def _opened_csv(file: str) -> TextIO:
    # Only Windows-1252 is guessed, and only there are bytes without a character.
    return open(file, encoding=encoding_of(file), errors="replace", newline="")  # noqa: PTH123 - pathlib is slow to import


def encoding_of(file: str) -> str:
    """The encoding that a text file names by its first bytes; else UTF-8 if all of it is, else Windows-1252."""
    with open(file, "rb") as data:  # noqa: PTH123 - pathlib is slow to import
        begin = data.read(_BEGINNING)
        decoder = codecs.getincrementaldecoder("utf-8")()
        if (encoding := encoding_by_mark(begin)) is not None:
            return encoding
        try:
            while begin:
                decoder.decode(begin)
                begin = data.read(_BEGINNING)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return OLD
    return UTF_8


def _decoded(begin: bytes) -> str:
    """The text of the beginning of a file, which may end within a character."""
    if (encoding := encoding_by_mark(begin)) is not None:
        return begin.decode(encoding, errors="replace")
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(begin)
    except UnicodeDecodeError:
        return begin.decode(OLD, errors="replace")


def encoding_by_mark(begin: bytes) -> str | None:
    return next((encoding for mark, encoding in MARKS if begin.startswith(mark)), None)


def _rows_of(file: str, layout: Layout, *, is_all: bool = False) -> Iterator[list[str]]:
    """The rows of data of a CSV file, one by one, or all below the names; raises if a quoted cell does not end."""
    with _opened_csv(file) as lines:
        reader = csv.reader(lines, delimiter=layout.mark, strict=True)
        for row in reader:
            if reader.line_num > layout.skip and (is_all or layout.is_kept(row)):
                yield row


def _read(lines: Sequence[str], mark: str, skip: int = 0) -> list[list[str]]:
    """The rows after so many lines, as far as they can be read."""
    rows: list[list[str]] = []
    with contextlib.suppress(csv.Error):
        rows.extend(row for row in csv.reader(lines[skip:], delimiter=mark) if row)
    return rows


def _names(row: Sequence[str]) -> list[str]:
    names: list[str] = []
    for number, cell in enumerate(row):
        name = cell.strip() or f"column{number}"
        taken = {each.lower() for each in names}
        while name.lower() in taken:
            name += "_1"
        names.append(name)
    return names


def _typed(cells: Sequence[str]) -> tuple[str, list[Any]]:
    """The type of a column and its values; cells that mark a missing value become None."""
    said = [cell.strip() for cell in cells]
    real = [cell for cell in said if cell.lower() not in NO_VALUE]
    if real and all(map(re.compile(WHOLE).fullmatch, real)):
        return "BIGINT", [None if c.lower() in NO_VALUE else int(_digits(c)) for c in said]
    if real and all(map(re.compile(_ANY_NUMBER).fullmatch, real)):
        return "DOUBLE", [None if c.lower() in NO_VALUE else float(_digits(c)) for c in said]
    filled = [cell for cell in said if cell]
    if filled and all(cell.lower() in _BOOLS for cell in filled):
        return "BOOLEAN", [_BOOLS.get(cell.lower()) for cell in said]
    for kind, formats in (("DATE", _DAYS), ("TIMESTAMP", _TIMES)):
        for form in formats if real else ():
            if (values := _moments(said, form)) is not None:
                return kind, values
    return "VARCHAR", [cell or None for cell in cells]


def _digits(cell: str) -> str:
    return cell.lstrip("$€£ ").replace(",", "")


def _moments(cells: Sequence[str], form: str) -> list[str | None] | None:
    values: list[str | None] = []
    for cell in cells:
        try:
            moment = None if cell.lower() in NO_VALUE else datetime.strptime(cell, form)  # noqa: DTZ007 - as written
        except ValueError:
            return None
        day = None if moment is None else str(moment)
        values.append(day.removesuffix(" 00:00:00") if day and "%H" not in form else day)
    return values


# Values


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    """A value in a form that JSON can hold, without rounding numbers."""
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < 2**53 else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return float(value) if Decimal(repr(float(value))) == value else str(value)
        case list() | tuple():
            return [_plain(item) for item in value[:MOST_CELL]]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case bytes():
            return value.hex()[:MOST_CELL]
        case date() | time():
            return value.isoformat()
    text = str(value)
    return text if len(text) <= MOST_CELL else f"{text[:MOST_CELL]}… ({len(text)} characters)"


def _limit(seconds: int) -> None:
    with contextlib.suppress(ImportError):  # a system without such limits
        import resource

        for what, most in (
            (resource.RLIMIT_AS, ADDRESSES),
            (resource.RLIMIT_CPU, 2 * seconds),
            (resource.RLIMIT_FSIZE, LARGEST_FILE),
            (resource.RLIMIT_CORE, 0),
        ):
            with contextlib.suppress(ValueError, OSError):  # already lower
                resource.setrlimit(what, (most, most))


def main() -> None:
    order = json.load(sys.stdin)
    _limit(order.pop("seconds"))
    orders: dict[tuple[str, str], Callable[..., dict[str, Any]]] = {
        ("load", "duckdb"): load,
        ("query", "duckdb"): query,
        ("load", "sqlite"): load_sqlite,
        ("query", "sqlite"): query_sqlite,
        ("query_all", "duckdb"): query_all,
        ("query_all", "sqlite"): query_all_sqlite,
    }
    work = orders[order.pop("do"), order.pop("engine")]
    try:
        answer = work(**order)
    except MemoryError:
        answer = {"error": "it needs too much memory; ask for less at a time"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
