"""Which tools to call now, with what, and when to stop calling."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand.models.base import ModelRequest, Role, ToolCall, ToolSpec
from chargehand.models.offline.passages import answer
from chargehand.models.offline.reading import Reading, canonical, decoded, excerpts_of
from chargehand.models.offline.routing import Proposal, Router
from chargehand.models.offline.slots import slots_of, type_of
from chargehand.models.offline.table_tools import table_calls
from chargehand.models.offline.words import terms

ROUNDS = 3
#: of tool calls for one question, however little came of them
MOST_CALLS = 12
MOST_TOLD = 40
#: lines of what tools returned

_LISTS = re.compile(r"\b(?:list|which|what|all|every|each)\b", re.IGNORECASE)
_ALL = re.compile(r"\b(?:each|every|all|summari[sz]e|overview)\b", re.IGNORECASE)


def calls_for(request: ModelRequest, reading: Reading) -> list[ToolCall]:
    """The calls to make now: none that was made before, and none without end."""
    is_forced = request.choice != "auto"
    named = tuple(tool for tool in request.tools if tool.name == request.choice)
    tools = named or request.tools
    rounds = sum(
        any(isinstance(part, ToolCall) for part in turn.parts)
        for turn in request.turns
        if turn.role is Role.MODEL
    )
    if is_forced:
        return _forced_calls(tools, reading)
    if rounds >= ROUNDS:
        return []
    if (tables := table_calls(tools, reading)) is not None:
        return _new(tables, reading)
    router = Router(tools)
    proposals = [_with_given(each, tools, reading) for each in router.proposals(reading.sought)]
    if not reading.outputs:
        wanted = _asked_for(_complete(proposals), reading) or _searches(tools, reading)
    elif reading.excerpts:
        wanted = _follow_ups(proposals, reading)
    else:
        wanted = _second_choice(router, reading)
    return _new(wanted, reading)


def _forced_calls(tools: Sequence[ToolSpec], reading: Reading) -> list[ToolCall]:
    router = Router(tools)
    proposals = [_with_given(p, tools, reading) for p in router.proposals(reading.question)]
    if calls := _new(_complete(proposals), reading):
        return calls
    guess = _with_given(router.forced(reading.question), tools, reading)
    parameters = next(tool.parameters for tool in tools if tool.name == guess.tool)
    blanks = {
        slot.name: _blank(slot.schema, reading.question)
        for slot in slots_of(parameters)
        if slot.name in guess.missing
    }
    whole = guess._replace(arguments={**guess.arguments, **blanks}, missing=())
    return [_call(whole, len(reading.tried))]


def _with_given(proposal: Proposal, tools: Sequence[ToolSpec], reading: Reading) -> Proposal:
    """The proposal with the arguments that the task names outright."""
    parameters = next(tool.parameters for tool in tools if tool.name == proposal.tool)
    names = (parameters.get("properties") or {}).keys()
    given = {name: value for name, value in reading.given.items() if name in names}
    missing = tuple(name for name in proposal.missing if name not in given)
    return proposal._replace(arguments={**proposal.arguments, **given}, missing=missing)


def _complete(proposals: Sequence[Proposal]) -> list[Proposal]:
    return [proposal for proposal in proposals if not proposal.missing]


def _asked_for(proposals: Sequence[Proposal], reading: Reading) -> list[Proposal]:
    """Without lists of what there is, unless a list is asked for: it answers no other question."""
    if _LISTS.search(reading.question):
        return list(proposals)
    return [proposal for proposal in proposals if not proposal.tool.startswith("list_")]


def _searches(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal]:
    """Where no tool is asked for and no data speaks of it: whatever can look for words."""
    if not reading.subject and answer(reading.question, reading.excerpts).lines:
        return []
    for tool in Router(tools).ranked(reading.sought):
        required = [slot for slot in slots_of(tool.parameters) if slot.is_required]
        if len(required) == 1 and required[0].is_prose:
            # Rules cannot search a second time with better words, so they look at more at once.
            more = {"most": 40} if any(s.name == "most" for s in slots_of(tool.parameters)) else {}
            found = _complete([Router([tool]).forced(reading.sought)])
            return [each._replace(arguments={**each.arguments, **more}) for each in found]
    return []


def _second_choice(router: Router, reading: Reading) -> list[Proposal]:
    """After calls that gave nothing: the next tool that can be called and was not."""
    called = {name for name, _ in reading.tried}
    left = [tool for tool in router.ranked(reading.question) if tool.name not in called]
    for tool in left:
        proposals = _complete(Router([tool]).proposals(reading.question))
        if proposals:
            return proposals
    return _searches(left, reading) if left else []


def _follow_ups(proposals: Sequence[Proposal], reading: Reading) -> list[Proposal]:
    """Calls that lacked an argument which a tool has told since, under the same name."""
    found = []
    for proposal in proposals:
        if len(proposal.missing) == 1 or proposal.tool not in {name for name, _ in reading.tried}:
            for name in proposal.missing[:1] or _open_names(proposal):
                found += [
                    proposal._replace(arguments={**proposal.arguments, name: value}, missing=())
                    for value in _told_as(name, reading)
                ]
    return found


def _open_names(proposal: Proposal) -> tuple[str, ...]:
    """The argument that was guessed from the words, if a tool may have told it better."""
    return tuple(name for name in proposal.arguments if name in ("path", "file", "url", "id"))[:1]


def _told_as(name: str, reading: Reading) -> list[Any]:
    values: list[Any] = []
    for _, output in reading.outputs:
        try:
            values += _under(name, msgspec.json.decode(output.text))
        except (msgspec.DecodeError, RecursionError):
            continue
    asked = set(terms(reading.question))
    fitting = [value for value in values if asked & set(terms(str(value)))]
    if fitting:
        return fitting[:MOST_CALLS]
    return values[:MOST_CALLS] if _ALL.search(reading.question) else []


def _under(name: str, value: Any) -> list[Any]:
    match value:
        case dict():
            own = [each for key, each in value.items() if key == name]
            plain = [each for each in own if isinstance(each, (str, int))]
            return plain + [one for each in value.values() for one in _under(name, each)]
        case list():
            return [one for each in value for one in _under(name, each)]
    return []


def _new(proposals: Sequence[Proposal], reading: Reading) -> list[ToolCall]:
    seen = set(reading.tried)
    calls: list[ToolCall] = []
    for proposal in proposals[:MOST_CALLS]:
        call = _call(proposal, len(reading.tried) + len(calls))
        if (call.name, canonical(call.arguments)) not in seen:
            seen.add((call.name, canonical(call.arguments)))
            calls.append(call)
    return calls


def _call(proposal: Proposal, number: int) -> ToolCall:
    arguments = msgspec.json.encode(proposal.arguments).decode()
    return ToolCall(f"offline-{number + 1}", proposal.tool, arguments)


def _blank(schema: dict[str, Any], question: str) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    usual: dict[str, Any] = {"array": [], "object": {}, "boolean": False, "integer": 0, "number": 0}
    return usual.get(type_of(schema), question)


def told_by_tools(reading: Reading) -> list[str]:
    """What tools returned that were asked for just that, with arguments of their own, and not for passages."""
    kept: list[str] = []
    for call, output in reading.outputs:
        if _is_search(call):
            return []
        kept += (f"{each.text} [{each.where}]" for each in excerpts_of(call, output)[:MOST_TOLD])
    return list(dict.fromkeys(kept))[:MOST_TOLD]


def _is_search(call: ToolCall) -> bool:
    """Whether a call looks for words, or reads what may speak of anything."""
    return bool({"query", "path", "q", "url"} & (decoded(call.arguments) or {}).keys())
