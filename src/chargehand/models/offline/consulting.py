"""Asking tools that hold tables: first which there are, then what is in them, then the question."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from chargehand.models.base import ToolSpec
from chargehand.models.offline.queries import Query, query_for
from chargehand.models.offline.reading import Reading, decoded, tables_in
from chargehand.models.offline.routing import Proposal
from chargehand.models.offline.sheets import Sheet, fit, sheets_in
from chargehand.models.offline.slots import slots_of
from chargehand.models.offline.values import Kind, values_in
from chargehand.models.offline.words import term, terms

MOST_SHEETS = 8
#: that are looked into for one question


def table_calls(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal] | None:
    """The next calls towards an answer out of tables; None if this is nothing for tables.

    Which tables there are is asked before anything else: nobody can query what he has not seen.
    """
    querying = next((tool for tool in tools if _required(tool) == ["sql"]), None)
    describing = next((tool for tool in tools if _tells_tables(tool)), None)
    if querying is None or describing is None or _is_arithmetic(reading.question):
        return None
    if not _described(reading):
        return [Proposal(describing.name, {}, (), 1.0)]
    sheets = _sheets(reading)
    unseen = [sheet for sheet in sheets if sheet.labels and not sheet.values]
    query = None if unseen else query_for(reading.sought, sheets)
    asked = [sheet.values_sql for sheet in unseen] or ([query.sql] if query else [])
    return [Proposal(querying.name, {"sql": sql}, (), 1.0) for sql in asked]


def told_by_tables(reading: Reading) -> list[str]:
    """What the tables answer; empty if they were not asked or hold nothing of it."""
    query = _query(reading)
    if query is None:
        return []
    rows = _result(reading, query.sql)
    return query.told(rows) if rows is not None else []


def known_columns(reading: Reading) -> str:
    """What the tables hold, in words; empty if none were seen."""
    told = (f"{s.file} with {', '.join(c.name for c in s.columns)}" for s in _sheets(reading))
    return "; ".join(told)


def _query(reading: Reading) -> Query | None:
    return query_for(reading.sought, _sheets(reading))


def _sheets(reading: Reading) -> list[Sheet]:
    """The tables that the question may be about, with the values that were found in them."""
    known = list(sheets_in(_described(reading)))
    nearest = sorted(known, key=lambda sheet: -_nearness(sheet, reading.sought))
    return [_with_values(sheet, reading) for sheet in nearest[:MOST_SHEETS]]


def _nearness(sheet: Sheet, question: str) -> float:
    named = bool(set(terms(sheet.name)) & set(terms(question)))
    return named + sum(fit(column, question) for column in sheet.columns)


def _with_values(sheet: Sheet, reading: Reading) -> Sheet:
    rows = _result(reading, sheet.values_sql) or [[]]
    values = {
        column.name: tuple(str(each) for each in found if each is not None)
        for column, found in zip(sheet.labels, rows[0], strict=False)
        if isinstance(found, list)
    }
    return replace(sheet, values=values)


def _result(reading: Reading, sql: str) -> list[list[Any]] | None:
    """The rows that this query gave; None if it was not made, or failed."""
    for call, output in reading.outputs:
        arguments, value = decoded(call.arguments), decoded(output.text)
        is_it = isinstance(arguments, dict) and arguments.get("sql") == sql
        if is_it and not output.is_error and isinstance(value, dict):
            return [row for row in value.get("rows") or () if isinstance(row, list)]
    return None


def _described(reading: Reading) -> dict[str, Any]:
    """The tables that tools have told of."""
    found: dict[str, Any] = {}
    for _, output in reading.outputs:
        found |= tables_in(decoded(output.text))
    return found


def _required(tool: ToolSpec) -> list[str]:
    return [slot.name for slot in slots_of(tool.parameters) if slot.is_required]


def _tells_tables(tool: ToolSpec) -> bool:
    return not _required(tool) and term("table") in terms(f"{tool.name} {tool.description}")


def _is_arithmetic(question: str) -> bool:
    return any(found.kind is Kind.SUM for found in values_in(question))
