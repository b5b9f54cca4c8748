"""Which tools to call now, and when to stop calling."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from chargehand.models.base import ModelRequest, Role, ToolCall, ToolSpec
from chargehand.models.offline.arguments import Proposal, proposal_for
from chargehand.models.offline.passages import answer
from chargehand.models.offline.reading import Reading, canonical, decoded, excerpts_of
from chargehand.models.offline.routing import Router
from chargehand.models.offline.table_tools import table_calls

#: of tool calls for one question, however little came of them
ROUNDS = 3
#: lines of what tools returned
MOST_TOLD = 40

_LISTS = re.compile(r"\b(?:list|which|what|all|every|each)\b", re.IGNORECASE)


class Next(Struct, frozen=True):
    """The calls to make now; without any, what was missing for them."""

    calls: tuple[ToolCall, ...] = ()
    lack: str = ""


def next_calls(request: ModelRequest, reading: Reading) -> Next:
    """The calls to make now: none that was made before, and none without end."""
    tools = tuple(t for t in request.tools if t.name == request.choice) or request.tools
    turns = [turn for turn in request.turns if turn.role is Role.MODEL]
    rounds = sum(any(isinstance(part, ToolCall) for part in turn.parts) for turn in turns)
    if rounds >= ROUNDS:
        return Next()
    if (tables := table_calls(tools, reading)) is not None:
        return Next(_new(tables, reading))
    if reading.outputs:
        return Next() if reading.excerpts else Next(_new(_searches(tools, reading), reading))
    proposals = _proposals(tools, reading)
    lacking = [each for each in proposals if each.missing]
    if proposals and not lacking:
        return Next(_new(proposals, reading))
    is_known = not reading.subject and bool(answer(reading.question, reading.excerpts).lines)
    if not is_known and (searches := _searches(tools, reading)):
        return Next(_new(searches, reading))
    told = (f"{each.tool} needs {' and '.join(each.missing)}" for each in lacking)
    return Next((), "; ".join(told))


def _proposals(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal]:
    """Calls of the tools that the question speaks of; lists only if it asks for one: they answer nothing else."""
    routes = Router(tools).routes(reading.sought)
    found = [proposal_for(route.tool, route.text, reading.given) for route in routes]
    has_list = _LISTS.search(reading.question) is not None
    return [each for each in found if has_list or not each.tool.startswith("list_")]


def _searches(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal]:
    """Whatever takes the question itself and was not called yet, the best first."""
    called = {name for name, _ in reading.tried}
    for tool in Router(tools).ranked(reading.sought):
        found = proposal_for(tool, reading.sought, {})
        if tool.name in called or found.missing or "query" not in found.arguments:
            continue
        # Rules cannot search a second time with better words, so they look at more at once.
        more = {"most": 40} if "most" in tool.parameters["properties"] else {}
        return [found._replace(arguments={**found.arguments, **more})]
    return []


def _new(proposals: Sequence[Proposal], reading: Reading) -> tuple[ToolCall, ...]:
    calls: dict[tuple[str, str], ToolCall] = {}
    for tool, arguments, _ in proposals:
        text = msgspec.json.encode(arguments).decode()
        key = (tool, canonical(text))
        if key not in reading.tried:
            number = len(reading.tried) + len(calls) + 1
            calls.setdefault(key, ToolCall(f"offline-{number}", tool, text))
    return tuple(calls.values())


def told_by_tools(reading: Reading) -> list[str]:
    """What tools returned that were asked for just that, with arguments of their own, and not for passages."""
    kept: list[str] = []
    for call, output in reading.outputs:
        if {"query", "path", "q", "url"} & (decoded(call.arguments) or {}).keys():
            return []
        kept += (f"{each.text} [{each.where}]" for each in excerpts_of(call, output)[:MOST_TOLD])
    return list(dict.fromkeys(kept))[:MOST_TOLD]
