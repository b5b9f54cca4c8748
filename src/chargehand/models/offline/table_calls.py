"""Asking tools that hold tables: which there are, what is in them, then the question in all its readings."""

from collections.abc import Sequence
from typing import Any

from chargehand.models.base import ToolSpec
from chargehand.models.offline.conversation import Conversation, Found, decoded, tables_in
from chargehand.models.offline.table_profiles import profile_sql, sheet_of
from chargehand.models.offline.table_question import TableQuestion
from chargehand.models.offline.table_sql import Query
from chargehand.models.offline.tool_choice import SUM, Proposal
from chargehand.models.offline.words import roots

#: that are looked into for one question
MOST_SHEETS = 8


def table_calls(tools: Sequence[ToolSpec], read: Conversation) -> list[Proposal] | None:
    """The next calls towards an answer out of tables, first which there are; None if this is nothing for tables."""
    needs = [(tool, list(tool.parameters.get("required") or ())) for tool in tools]
    querying = next((tool for tool, needed in needs if needed == ["sql"]), None)
    free = [(tool, roots(f"{tool.name} {tool.description}")) for tool, need in needs if not need]
    describing = next((tool for tool, told in free if roots("table") <= told), None)
    if querying is None or describing is None or SUM.search(read.question):
        return None
    described = _described(read)
    if described is None:
        return [Proposal(describing.name, {})]
    unseen = [sql for sql in _profiles(described).values() if _result(read, sql) is None]
    asked = unseen or [query.sql for query in _readings(read)[0]]
    most = {"most": 1000} if "most" in querying.parameters["properties"] else {}
    return [Proposal(querying.name, {"sql": sql, **most}) for sql in asked]


def told_by_tables(read: Conversation) -> Found | None:
    """What the tables answer; None if there are none."""
    described = _described(read)
    if not described:
        return None if described is None else Found(gap="there are no tables")
    readings, left = _readings(read)
    lines: dict[object, list[str]] = {}
    doubt = ""
    for query in readings:
        rows = _result(read, query.sql)
        if rows and (told := query.told(rows)):
            lines.setdefault(query.key(rows), told)
            doubt = "several rows fit, and differ" if query.is_several(rows) else doubt
    if lines:
        doubt = "it can be read in more than one way" if len(lines) > 1 else doubt
        return Found(tuple(line for told in lines.values() for line in told), doubt)
    files = ", ".join(str(told.get("file") or name) for name, told in described.items())
    if readings:
        return Found(gap=f"no row of {files} is like that")
    words = ", ".join(f"“{word}”" for word in left[:6])
    return Found(gap=f"no column, value or computation in {files} stands for {words or 'this'}")


def _readings(read: Conversation) -> tuple[list[Query], tuple[str, ...]]:
    """The readings of the question that account for all of its words; the words that none accounts for."""
    described = _described(read) or {}
    profiles = {name: _result(read, sql) for name, sql in _profiles(described).items()}
    sheets = [sheet_of(name, described[name], rows) for name, rows in profiles.items() if rows]
    questions = [TableQuestion(read.sought, sheet) for sheet in sheets]
    readings = [query for asked in questions for query in asked.queries()]
    left = min((asked.left for asked in questions), key=len, default=())
    return readings, left


def _profiles(described: dict[str, Any]) -> dict[str, str]:
    readable = [(name, told["columns"]) for name, told in described.items() if told.get("columns")]
    return {name: profile_sql(name, columns) for name, columns in readable[:MOST_SHEETS]}


def _result(read: Conversation, sql: str) -> list[list[Any]] | None:
    """The rows that this query gave; None if it was not made, or failed."""
    for call, output in read.outputs:
        arguments, value = decoded(call.arguments), decoded(output.text)
        is_it = isinstance(arguments, dict) and arguments.get("sql") == sql
        if is_it and not output.is_error and isinstance(value, dict):
            return [row for row in value.get("rows") or () if isinstance(row, list)]
    return None


def _described(read: Conversation) -> dict[str, Any] | None:
    """The tables that tools have told of; None if none was asked."""
    told = (tables_in(decoded(output.text)) for _, output in read.outputs)
    known = [each for each in told if each is not None]
    return {name: table for each in known for name, table in each.items()} if known else None
