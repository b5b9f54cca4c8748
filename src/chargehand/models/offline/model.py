"""The model itself: reads what it is asked, and calls tools, quotes, fills in or plans by rule."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from chargehand.errors import ModelRefused, UsageError
from chargehand.facts.outcome import Usage
from chargehand.models.base import (
    Abilities,
    File,
    Image,
    ModelReply,
    ModelRequest,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolSpec,
)
from chargehand.models.inputs import is_text
from chargehand.models.offline.extract import answer, told_by_tools
from chargehand.models.offline.forms import CannotFill, Form
from chargehand.models.offline.planning import is_plan, planned
from chargehand.models.offline.reading import Reading, canonical, read
from chargehand.models.offline.routing import Proposal, Router
from chargehand.models.offline.slots import slots_of, type_of
from chargehand.models.offline.words import terms

ROUNDS = 3
#: of tool calls for one question, however little came of them
MOST_CALLS = 12
LETTERS = 4
#: to a token, by which the maximum length is measured

_PIECE = re.compile(r"\S+\s*")
_ALL = re.compile(r"\b(?:each|every|all|summari[sz]e|overview)\b", re.IGNORECASE)


class OfflineModel:
    """Answers by rules of words: no network, no weights, the same reply to the same request.

    It calls the tools whose descriptions fit the request, answers in sentences of the data with
    their places, fills in a schema or a plan as far as that goes, and says so where it does not.
    """

    name = "offline"
    account = "offline"
    abilities = Abilities(images=False, is_real=False)

    def __repr__(self) -> str:
        return "<OfflineModel: rules, no language model>"

    async def ask(self, request: ModelRequest) -> ModelReply:
        _check(request)
        reading = read(request)
        if request.tools and request.choice != "none" and (calls := _calls(request, reading)):
            return _reply(calls, StopReason.TOOLS)
        return (
            _shaped(request, reading) if reading.schema is not None else _worded(request, reading)
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        for piece in _PIECE.findall(reply.text):
            yield piece
        yield reply


def open_model(name: str = "") -> OfflineModel:
    """The model that `offline` names; there is only one."""
    if name:
        raise UsageError(f"offline has no model {name!r}; write offline alone")
    return OfflineModel()


def _check(request: ModelRequest) -> None:
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, Image):
                raise ModelRefused(
                    "offline cannot see images; leave them out, or use another model"
                )
            if isinstance(part, File) and not is_text(part):
                raise ModelRefused(f"offline can read text only, not {part.name}; give its text")


# Answers


def _shaped(request: ModelRequest, reading: Reading) -> ModelReply:
    schema = reading.schema or {}
    try:
        if is_plan(schema):
            texts = [turn.text for turn in request.turns]
            asked = next((t.text for t in reversed(request.turns) if t.role is Role.USER), "")
            value: Any = planned(schema, asked, "\n".join(texts))
        else:
            value = Form(reading, schema).filled()
    except CannotFill as fault:
        return _unable(f"it cannot fill in the answer that is asked for ({fault})")
    text = msgspec.json.encode(value).decode()
    is_cut = len(text) > LETTERS * request.settings.max_tokens
    return _reply((Text(text),), StopReason.LENGTH if is_cut else StopReason.END)


def _worded(request: ModelRequest, reading: Reading) -> ModelReply:
    if not reading.has_data:
        failed = [output.text for _, output in reading.outputs if output.is_error]
        if failed:
            return _unable(f"the tools that it called failed ({failed[-1][:200]})")
        if reading.outputs:
            return _unable("the tools that it called returned nothing")
        return _unable("it knows nothing by itself: give it data, or tools that find them")
    lines = answer(reading) or told_by_tools(reading)
    if not lines:
        places = len({excerpt.where for excerpt in reading.excerpts})
        return _reply(
            (Text(f"None of the {places} places in the data speaks of this: {reading.question}"),),
            StopReason.END,
        )
    room = LETTERS * request.settings.max_tokens
    while len(lines) > 1 and len("\n".join(lines)) > room:
        lines.pop()
    stop = StopReason.LENGTH if len(lines[0]) > room else StopReason.END
    return _reply((Text("\n".join(lines)),), stop)


def _unable(why: str) -> ModelReply:
    """A refusal, so that a gap is never taken for an answer."""
    text = f"The offline model goes by rules and is no language model; {why}."
    return _reply((Text(text),), StopReason.REFUSAL)


def _reply(parts: Sequence[Text | ToolCall], stop: StopReason) -> ModelReply:
    return ModelReply(
        parts=tuple(parts), stop=stop, usage=Usage(calls=1), model="offline (rules, no LLM)"
    )


# Tools


def _calls(request: ModelRequest, reading: Reading) -> list[ToolCall]:
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
    router = Router(tools)
    proposals = [_with_given(each, tools, reading) for each in router.proposals(reading.question)]
    if not reading.outputs:
        wanted = _complete(proposals) or _searches(tools, reading)
    elif reading.has_data:
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


def _searches(tools: Sequence[ToolSpec], reading: Reading) -> list[Proposal]:
    """Where no tool is asked for and there is no data: whatever can look for words."""
    if reading.has_data:
        return []
    for tool in Router(tools).ranked(reading.question):
        required = [slot for slot in slots_of(tool.parameters) if slot.is_required]
        if len(required) == 1 and required[0].is_prose:
            return _complete([Router([tool]).forced(reading.question)])
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
