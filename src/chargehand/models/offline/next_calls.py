"""Which tools to call now, when to stop calling, and what those told that take no query."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand.models.base import ModelRequest, Role, ToolCall, ToolOutput, ToolSpec
from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.conversation import (
    Conversation,
    Found,
    decoded,
    excerpts_of,
    tables_in,
)
from chargehand.models.offline.sentence_answers import answer, content
from chargehand.models.offline.steps_and_workers import PAPERS
from chargehand.models.offline.table_question import TableQuestion
from chargehand.models.offline.tables import TABLES, Query, profile_sql, sheet_of
from chargehand.models.offline.tool_choice import SUM, Proposal, Router, described, proposal_for
from chargehand.models.offline.words import COUNTING, LIGHT, root, roots, word_set, words

#: of tool calls for one question, however little came of them
ROUNDS = 3
#: lines of what tools returned
MOST = 40
#: tables that are looked into for one question
MOST_SHEETS = 8

_ENDINGS = word_set("csv tsv md txt pdf html json")
#: of files that are thought to hold text or tables
_READABLE = _ENDINGS | word_set("doc docx odt rtf ppt pptx odp xls xlsx ods")
#: how a question for a list begins, and where that is said to be
_LEAD = re.compile(
    r"(?i)^\W*(?:(?:please|can you|(?:tell|give|show) (?:me|us)) )*"
    r"(?:list|show|name|count|which|what|how (?:many|large|big)|the|all)\b|\bin the folder\b"
)
_PLAIN = word_set("""a an the of and are is be there do we you i have all any every each list name names number can here
    our my your these their its""")


def next_calls(request: ModelRequest, read: Conversation) -> tuple[list[ToolCall], str]:
    """The calls to make now, none that was made before, and none without end; else what was missing for them."""
    tools = tuple(t for t in request.tools if t.name == request.choice) or request.tools
    if sum(turn.role is Role.TOOL for turn in request.turns) >= ROUNDS:
        return [], ""
    if (tables := table_calls(tools, read)) is not None:
        return _new(tables, read), ""
    if read.outputs:
        return _new([] if read.excerpts else _searches(tools, read), read), ""
    searches, proposals = _searches(tools, read), list[Proposal]()
    lists = [t for t in tools if t.name.startswith("list_") and not t.parameters.get("required")]
    # A list answers no question but one for just that, so what can be searched is searched.
    router = Router([tool for tool in tools if not (searches and tool in lists)])
    for text in [part.text for part in clauses(read.sought)]:
        found = [(tool, _list_arguments(tool, text)) for tool in lists]
        asked = [Proposal(tool.name, given) for tool, given in found if given is not None]
        best = None if asked else router.best(text)
        proposals += [proposal_for(best, text, read.given)] if best else asked[:1]
    lacking = [each for each in proposals if each.missing]
    if lacking or not proposals:
        is_known = not read.subject and bool(answer(read.question, read.excerpts).lines)
        proposals = [] if is_known else searches
    lack = (f"{each.tool} needs {' and '.join(each.missing)}" for each in lacking)
    return _new(proposals, read), "; ".join(lack)


def _searches(tools: Sequence[ToolSpec], read: Conversation) -> list[Proposal]:
    """Whatever takes the question itself and was not called yet, the best first."""
    called = {call.name for call, _ in read.outputs}
    for tool in Router(tools).ranked(read.sought):
        found = proposal_for(tool, read.sought, {})
        if tool.name in called or found.missing or "query" not in found.arguments:
            continue
        # Rules cannot search a second time with better words, so they look at more at once.
        more = {"most": 40} if "most" in tool.parameters["properties"] else {}
        return [found._replace(arguments={**found.arguments, **more})]
    return []


def _new(proposals: Sequence[Proposal], read: Conversation) -> list[ToolCall]:
    made = [(call.name, decoded(call.arguments)) for call, _ in read.outputs]
    calls: list[ToolCall] = []
    for tool, arguments, _ in proposals:
        if (tool, arguments) not in made:
            made.append((tool, arguments))
            text = msgspec.json.encode(arguments).decode()
            calls.append(ToolCall(f"offline-{len(made)}", tool, text))
    return calls


def told_by_tools(tools: Sequence[ToolSpec], read: Conversation) -> Found | None:
    """What tools returned that were asked for just that, and not for passages; None if there is no such thing."""
    found = [each for call, output in read.outputs for each in excerpts_of(call, output)]
    names = [call.name for call, _ in read.outputs]
    arguments = [decoded(call.arguments) or {} for call, _ in read.outputs]
    if not found or any({"query", "path", "q", "url"} & each.keys() for each in arguments):
        return None
    called = [tool for tool in tools if tool.name in names]
    if not names[1:] and any(_list_arguments(tool, read.question) is not None for tool in called):
        return _told_by_list(read.question, *read.outputs[0])
    told = roots(" ".join(map(described, called)))
    # A call that took nothing out of the question answers it only if its tool speaks of every content word.
    wanted = {} if any(arguments) else content(read.question)
    left = ", ".join(f"“{wanted[each]}”" for each in wanted if each not in told)
    if left and not (sure := answer(read.question, found, read.subject)).gap:
        return sure
    gap = f"the tools that it called are not for {left}" if left else ""
    return Found(tuple(dict.fromkeys(map(str, found)))[:MOST], gap)


def _list_arguments(tool: ToolSpec, text: str) -> dict[str, str] | None:
    """What to call this tool with for the list that the text asks for; None if it asks for anything else."""
    if not tool.name.startswith("list_") or not _LEAD.match(text):
        return None
    told = {root(word) for word in words(f"{tool.name} {tool.description}") if word not in LIGHT}
    told |= {root(word) for word in PAPERS if root("file") in told}
    said = {*words(_LEAD.sub(" ", text))} - _PLAIN
    endings = said & _ENDINGS if "pattern" in (tool.parameters.get("properties") or {}) else set()
    # Any other word, as in "Which reports are late?", asks for what is inside.
    if not said or len(endings) > 1 or not told.issuperset(map(root, said - endings)):
        return None
    return {"pattern": f"*.{endings.pop()}"} if endings else {}


def _told_by_list(question: str, call: ToolCall, output: ToolOutput) -> Found:
    """The list, or how long it is. Reports are the files that are called so, else all that are no tables."""
    value, lines = decoded(output.text), excerpts_of(call, output)
    kinds = roots(question) & {root(word) for word in PAPERS - {"file"}}
    named = [line for line in lines if kinds & roots(line.where)]
    kept = named or [line for line in lines if not (kinds and line.where.endswith(TABLES))]
    lists = [each for each in value.values() if each] if isinstance(value, dict) else [value]
    is_whole = len(lists) == 1 and isinstance(lists[0], list) and len(lists[0]) == len(lines)
    if is_whole and kept and COUNTING.search(question):
        what = call.name.removeprefix("list_").replace("_", " ")
        return Found((f"Number of {what}: {len(kept)} [{call.name}]",))
    is_cut = len(kept) > MOST or (isinstance(value, dict) and "more" in value)
    lack = "there is more than what is shown" if is_cut else "" if kept else "there are none"
    return Found(tuple(map(str, kept[:MOST])), lack)


def unread(read: Conversation) -> tuple[str, ...]:
    """Which files the tools could not read, and why; of the tables only if the question names none that was read."""
    tables = _described(read) or {}
    whole = (name for name, told in tables.items() if "error" not in told)
    is_named = any(set(words(name)) <= set(words(read.question)) for name in whole)
    failed = [] if is_named else [told for told in tables.values() if "error" in told]
    gaps = [f"not read: {told['file']}: {told['error']}" for told in failed]
    for value in (decoded(output.text) for _, output in read.outputs):
        skipped = (value.get("not_searched") if isinstance(value, dict) else None) or {}
        known = [path for path in skipped if path.lower().rpartition(".")[2] in _READABLE]
        gaps += [f"not read: {path}: {skipped[path]}" for path in known]
    return (*gaps[:5], *([f"not read: {len(gaps) - 5} more files"] if len(gaps) > 5 else []))


# Questions to tools that hold tables: which there are, what is in them, then the question in all its readings


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
    known = [t for _, output in read.outputs if (t := tables_in(decoded(output.text))) is not None]
    return {name: table for each in known for name, table in each.items()} if known else None
