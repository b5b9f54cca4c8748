"""Tables of CSV files in SQLite, for installations without DuckDB: the same types, the same answers.

Part of the program `tables.py`, which imports it by its path.
"""

import csv
import itertools
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw

NO_VALUE = ("", "n/a", "na", "nan", "null", "none", "-", "–", "?", "unknown", "tbd", "missing")
MOST_CELL = 2_000
_WHOLE = re.compile(r"[$€£]?\s?-?(\d{1,18}|\d{1,3}(,\d{3}){1,5})")
_NUMBER = re.compile(_WHOLE.pattern + r"(\.\d+)?([eE][-+]?\d{1,3})?|-?\.\d+")
_BOOLS = dict.fromkeys(("true", "t", "yes", "y"), "true") | dict.fromkeys(
    ("false", "f", "no", "n"), "false"
)
_DAYS = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d")
_TIMES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")
_REFUSED = "only one SELECT statement can be run; nothing can be changed, loaded or attached"
_ALLOWED = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
ONLY_CSV = "only CSV can be read here; install chargehand[data]"


def load(database: str, tables: list[dict[str, str]], drop: list[str]) -> dict[str, Any]:
    """Take files in as tables; says of each what it holds, or why it could not be read."""
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
                told["loaded"][table["name"]] = _take_in(connection, table["name"], table["file"])
            except (csv.Error, UnicodeDecodeError, apsw.Error, ValueError) as error:
                told["failed"][table["name"]] = str(error).partition("\n")[0]
    connection.close()
    return told


def query(database: str, sql: str, most: int) -> dict[str, Any]:
    """The first rows that a query gives."""
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    statements = itertools.count(1)
    connection.authorizer = lambda action, *_: (
        apsw.SQLITE_OK if action in _ALLOWED else apsw.SQLITE_DENY
    )
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
    return {"columns": columns, "rows": shown, "has_more": len(rows) > most}


def _columns(connection: Any, sql: str) -> list[str]:
    """The names of a result without rows."""
    names: list[str] = []

    def look(cursor: Any, *_: Any) -> bool:
        names.extend(each[0] for each in cursor.get_description())
        return True

    connection.exec_trace = look
    list(connection.execute(sql))
    return names


def _take_in(connection: Any, name: str, file: str) -> dict[str, Any]:
    with open(file, encoding="utf-8-sig", newline="") as lines:  # noqa: PTH123 - pathlib is slow to import
        first = lines.readline()
        lines.seek(0)
        mark = max(",;\t|", key=first.count)
        rows = [row for row in csv.reader(lines, delimiter=mark) if row]
    if not rows:
        raise ValueError("it is empty")
    names = _names(rows[0])
    cells = [(*row[: len(names)], *[""] * (len(names) - len(row))) for row in rows[1:]]
    typed = [_typed([row[n] for row in cells]) for n in range(len(names))]
    kinds = {name: kind for name, (kind, _) in zip(names, typed, strict=True)}
    declared = ", ".join(
        f"{_quoted(each)} {_AFFINITIES.get(kind, 'TEXT')}" for each, kind in kinds.items()
    )
    connection.execute(f"create table {_quoted(name)} ({declared})")
    # Rows are numbered from 0 on, as DuckDB does it.
    holes = ", ".join("?" * (len(names) + 1))
    into = f"insert into {_quoted(name)} (rowid, {', '.join(map(_quoted, names))}) values ({holes})"  # noqa: S608 - names are quoted
    whole = list(zip(*(values for _, values in typed), strict=True)) if cells else []
    connection.executemany(into, ((n, *row) for n, row in enumerate(whole)))
    first_rows = [[_plain(cell) for cell in row] for row in whole[:3]]
    return {"rows": len(whole), "columns": kinds, "first_rows": first_rows}


_AFFINITIES = {"BIGINT": "INTEGER", "DOUBLE": "REAL"}


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
    """What all cells of a column are, and their values; cells that say there is none are empty."""
    said = [cell.strip() for cell in cells]
    real = [cell for cell in said if cell.lower() not in NO_VALUE]
    if real and all(map(_WHOLE.fullmatch, real)):
        return "BIGINT", [None if c.lower() in NO_VALUE else int(_digits(c)) for c in said]
    if real and all(map(_NUMBER.fullmatch, real)):
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, none of it rounded."""
    if isinstance(value, int) and abs(value) >= 2**53:
        return str(value)
    if isinstance(value, bytes):
        return value.hex()[:MOST_CELL]
    if isinstance(value, str) and len(value) > MOST_CELL:
        return f"{value[:MOST_CELL]}… ({len(value)} characters)"
    return value
