"""A program of its own that holds the tables: takes one order in JSON, gives one answer in JSON.

It is apart because DuckDB's limit on memory does not cover every value that a query can make, and
because a query that takes too long, or a file that crashes a parser, must not take the supervisor
along. It is started by its path and imports nothing of chargehand, so that it starts fast. Where DuckDB is not
installed, SQLite holds the CSV files instead (`sqlite_tables.py`), with the same types and answers.
"""

import contextlib
import importlib
import json
import math
import os
import sys
from datetime import date, time
from decimal import Decimal
from typing import Any

#: megabytes that DuckDB may use; the process as a whole gets some times that in addresses
MEMORY = 512
ADDRESSES = 4 * 1024**3
LARGEST_FILE = 4 * 1024**3
#: characters of one value
MOST_CELL = 2_000
SAFE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a table's name must never mean a variable of this program
    "memory_limit": f"{MEMORY}MB",
    "threads": "2",
}
NO_VALUE = ("", "n/a", "na", "nan", "null", "none", "-", "–", "?", "unknown", "tbd", "missing")
WHOLE = r"[$€£]?\s?-?(\d{1,18}|\d{1,3}(,\d{3}){1,5})"
NUMBER = WHOLE + r"(\.\d+)?"
DAY = r"\d{4}-\d\d-\d\d"
_READERS = {"csv": "read_csv", "json": "read_json_auto", "parquet": "read_parquet"}
_REFUSED = "only one SELECT statement can be run; nothing can be changed, loaded or attached"


def load(database: str, tables: list[dict[str, str]], drop: list[str]) -> dict[str, Any]:
    """Take files in as tables; says of each what it holds, or why it could not be read."""
    import duckdb

    told: dict[str, Any] = {"loaded": {}, "failed": {}}
    with duckdb.connect(database, config=SAFE) as connection:
        for name in (*drop, *(table["name"] for table in tables)):
            connection.execute(f"drop table if exists {_quoted(name)}")
        for table in tables:
            try:
                _take_in(connection, **table)
            except duckdb.Error as error:
                told["failed"][table["name"]] = str(error).partition("\n")[0]
            else:
                told["loaded"][table["name"]] = _described(connection, table["name"])
    return told


def query(database: str, sql: str, most: int) -> dict[str, Any]:
    """The first rows that a query gives."""
    import duckdb

    config = {**SAFE, "enable_external_access": "false", "temp_directory": ""}
    with duckdb.connect(database, read_only=True, config=config) as connection:
        connection.execute("set lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                return {"error": _REFUSED}
            relation = _readable(connection.sql(statements[0]))
            rows = relation.limit(most + 1).fetchall()
        except duckdb.Error as error:
            return {"error": str(error).replace(database, "…")[:1_500]}
        shown = [[_plain(cell) for cell in row] for row in rows[:most]]
        return {"columns": relation.columns, "rows": shown, "has_more": len(rows) > most}


def _take_in(connection: Any, name: str, file: str, form: str) -> None:
    import duckdb

    create = f"create table {_quoted(name)} as from {_READERS[form]}"
    try:
        connection.execute(f"{create}(?)", [file])
    except duckdb.Error:
        if form != "csv":
            raise
        connection.execute(
            f"{create}(?, all_varchar = true)", [file]
        )  # its types were guessed wrong
    if form == "csv":
        _mend_types(connection, name)


def _mend_types(connection: Any, name: str) -> None:
    """Columns of numbers or days in which some cells say that there is none, such as `n/a`."""
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
                f"select count(*), count(*) filter (not regexp_full_match({cell}, '{pattern}')) "  # noqa: S608 - names are quoted
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
    """The same, with instants as text: DuckDB wants another package to hand them out."""
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, none of it rounded."""
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
    is_load, engine = order.pop("do") == "load", sys.modules[__name__]
    if order.pop("engine") == "sqlite":
        sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120 - pathlib is slow to import
        engine = importlib.import_module("sqlite_tables")
    try:
        answer = engine.load(**order) if is_load else engine.query(**order)
    except MemoryError:
        answer = {"error": "it needs too much memory; ask for less at a time"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
