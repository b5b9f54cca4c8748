"""Which tools to call now, and when to stop calling."""

import re
from collections.abc import Sequence

import msgspec

from chargehand.models.base import ModelRequest, Role, ToolCall, ToolSpec
from chargehand.models.offline.arguments import Proposal, proposal_for
from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.conversation import Conversation, decoded, excerpts_of
from chargehand.models.offline.sentence_answers import answer
from chargehand.models.offline.table_calls import table_calls
from chargehand.models.offline.tool_choice import Router

#: of tool calls for one question, however little came of them
ROUNDS = 3
#: lines of what tools returned
MOST_TOLD = 40

_LISTS = re.compile(r"\b(?:list|which|what|all|every|each)\b", re.IGNORECASE)


def next_calls(request: ModelRequest, read: Conversation) -> tuple[list[ToolCall], str]:
    """The calls to make now, none that was made before, and none without end; else what was missing for them."""
    tools = tuple(t for t in request.tools if t.name == request.choice) or request.tools
    if sum(turn.role is Role.TOOL for turn in request.turns) >= ROUNDS:
        return [], ""
    if (tables := table_calls(tools, read)) is not None:
        return _new(tables, read), ""
    if read.outputs:
        return _new([] if read.excerpts else _searches(tools, read), read), ""
    router, parts = Router(tools), [part.text for part in clauses(read.sought)]
    # A list is called for only if one is asked for: it answers nothing else.
    skip = () if _LISTS.search(read.question) else ("list_",)
    fits = [(tool, text) for text in parts if (tool := router.best(text))]
    proposals = [proposal_for(*fit, read.given) for fit in fits if not fit[0].name.startswith(skip)]
    lacking = [each for each in proposals if each.missing]
    if lacking or not proposals:
        is_known = not read.subject and bool(answer(read.question, read.excerpts).lines)
        proposals = [] if is_known else _searches(tools, read)
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


def told_by_tools(read: Conversation) -> tuple[str, ...]:
    """What tools returned that were asked for just that, with arguments of their own, and not for passages."""
    kept: list[str] = []
    for call, output in read.outputs:
        if {"query", "path", "q", "url"} & (decoded(call.arguments) or {}).keys():
            return ()
        kept += map(str, excerpts_of(call, output))
    return tuple(dict.fromkeys(kept))[:MOST_TOLD]
