"""Asking tools that hold tables: which there are, what is in them, then the question in all its readings."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from chargehand.models.base import ToolSpec
from chargehand.models.offline.arguments import SUM, Proposal
from chargehand.models.offline.reading import Reading, decoded, tables_in
from chargehand.models.offline.sheets import Sheet, profile_sql, sheet_of
from chargehand.models.offline.table_query import Understanding, understood
from chargehand.models.offline.words import term, terms

#: that are looked into for one question
MOST_SHEETS = 8


class Told(Struct, frozen=True):
    """What the tables say: lines, why they are in doubt if they are, or why there are none."""

    lines: tuple[str, ...] = ()
    doubt: str = ""
    missing: str = ""


def table_calls(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal] | None:
    """The next calls towards an answer out of tables; None if this is nothing for tables.

    Which tables there are is asked before anything else: nobody can query what he has not seen.
    """
    querying = next((tool for tool in tools if _required(tool) == ["sql"]), None)
    describing = next((tool for tool in tools if _tells_tables(tool)), None)
    if querying is None or describing is None or SUM.search(reading.question):
        return None
    described = _described(reading)
    if described is None:
        return [Proposal(describing.name, {})]
    unseen = [sql for sql in _profiles(described).values() if _result(reading, sql) is None]
    asked = unseen or [each.sql for each in _understanding(reading).readings]
    most = {"most": 1000} if "most" in querying.parameters["properties"] else {}
    return [Proposal(querying.name, {"sql": sql, **most}) for sql in asked]


def told_by_tables(reading: Reading) -> Told | None:
    """What the tables answer; None if there are none."""
    described = _described(reading)
    if described is None:
        return None
    if not described:
        return Told(missing="there are no tables")
    understanding = _understanding(reading)
    lines: dict[object, list[str]] = {}
    doubt = ""
    for each in understanding.readings:
        rows = _result(reading, each.sql)
        if rows and (told := each.told(rows)):
            lines.setdefault(each.key(rows), told)
            doubt = "several rows fit, and differ" if each.is_several(rows) else doubt
    if lines:
        said = tuple(line for told in lines.values() for line in told)
        return Told(said, "it can be read in more than one way" if len(lines) > 1 else doubt)
    files = ", ".join(str(told.get("file") or name) for name, told in described.items())
    if understanding.readings:
        return Told(missing=f"no row of {files} is like that")
    left = ", ".join(f"“{word}”" for word in understanding.left[:6])
    return Told(missing=f"no column, value or computation in {files} stands for {left or 'this'}")


def _understanding(reading: Reading) -> Understanding:
    profiles = _profiles(_described(reading) or {})
    sheets = [_sheet(name, reading, sql) for name, sql in profiles.items()]
    return understood(reading.sought, [sheet for sheet in sheets if sheet is not None])


def _sheet(name: str, reading: Reading, sql: str) -> Sheet | None:
    profile = _result(reading, sql)
    return sheet_of(name, (_described(reading) or {})[name], profile) if profile else None


def _profiles(described: dict[str, Any]) -> dict[str, str]:
    readable = {name: told["columns"] for name, told in described.items() if told.get("columns")}
    return {
        name: profile_sql(name, columns) for name, columns in list(readable.items())[:MOST_SHEETS]
    }


def _result(reading: Reading, sql: str) -> list[list[Any]] | None:
    """The rows that this query gave; None if it was not made, or failed."""
    for call, output in reading.outputs:
        arguments, value = decoded(call.arguments), decoded(output.text)
        is_it = isinstance(arguments, dict) and arguments.get("sql") == sql
        if is_it and not output.is_error and isinstance(value, dict):
            return [row for row in value.get("rows") or () if isinstance(row, list)]
    return None


def _described(reading: Reading) -> dict[str, Any] | None:
    """The tables that tools have told of; None if none was asked."""
    told = [tables_in(decoded(output.text)) for _, output in reading.outputs]
    known = [each for each in told if each is not None]
    return {name: table for each in known for name, table in each.items()} if known else None


def _required(tool: ToolSpec) -> list[str]:
    return list(tool.parameters.get("required") or ())


def _tells_tables(tool: ToolSpec) -> bool:
    return not _required(tool) and term("table") in terms(f"{tool.name} {tool.description}")
