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
)
from chargehand.models.offline.composing import (
    DISPUTE,
    PASSAGES,
    claims_in,
    composed,
    confidence_in,
    contradictions_in,
    is_composition,
    is_shape,
)
from chargehand.models.offline.forms import CannotFill, Form
from chargehand.models.offline.passages import FEWEST, MOST, answer
from chargehand.models.offline.planning import (
    chosen,
    is_plan,
    is_rewriting,
    management_calls,
    planned,
)
from chargehand.models.offline.reading import Reading, read
from chargehand.models.offline.table_tools import told_by_tables
from chargehand.models.offline.tool_calls import Next, next_calls, told_by_tools
from chargehand.models.openai_content import is_text

#: to a token, by which the maximum length is measured
LETTERS = 4

_PIECE = re.compile(r"\S+\s*")


class OfflineModel:
    """Answers by rules of words: no network, no weights, the same reply to the same request.

    It calls the tools whose descriptions fit the request, answers in sentences of the data with
    their places, fills in a schema or a plan as far as that goes, and says so where it does not.
    """

    name = "offline"
    account = "offline"
    abilities = Abilities(images=False, is_real=False, is_metered=False, declines=True)

    def __repr__(self) -> str:
        return "<OfflineModel: rules, no language model>"

    async def ask(self, request: ModelRequest) -> ModelReply:
        _check(request)
        if calls := management_calls(request):
            return _reply(calls, StopReason.TOOLS)
        reading = read(request)
        can_call = request.tools and request.choice != "none"
        ahead = next_calls(request, reading) if can_call else Next()
        if ahead.calls:
            return _reply(ahead.calls, StopReason.TOOLS)
        if ahead.lack and not reading.excerpts:
            return _unable(
                f"the request leaves in doubt what a tool is to be called with ({ahead.lack})"
            )
        return _worded(request, reading) if reading.schema is None else _shaped(request, reading)

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
        value = _value_for(request, reading, schema)
    except CannotFill as fault:
        return _unable(f"it cannot fill in the answer that is asked for ({fault})")
    text = msgspec.json.encode(value).decode()
    is_cut = len(text) > LETTERS * request.settings.max_tokens
    return _reply((Text(text),), StopReason.LENGTH if is_cut else StopReason.END)


def _value_for(request: ModelRequest, reading: Reading, schema: dict[str, Any]) -> Any:
    asked = _last_asked(request)
    prompts = "\n".join(turn.text for turn in request.turns)
    if is_plan(schema):
        return planned(schema, asked, prompts)
    if choice := chosen(schema, asked, prompts):
        return choice
    if is_rewriting(schema, asked):
        raise CannotFill("description", "it cannot say things better than they were said")
    if is_shape(schema) and is_composition(asked):
        form = Form(reading, schema)
        told = {
            "claims": claims_in(asked),
            "contradictions": contradictions_in(asked),
            "confidence": confidence_in(asked),
        }
        return {"answer": form.field("answer"), **told}
    return Form(reading, schema).filled()


def _last_asked(request: ModelRequest) -> str:
    return next((t.text for t in reversed(request.turns) if t.role is Role.USER), "")


def _worded(request: ModelRequest, reading: Reading) -> ModelReply:
    asked = _last_asked(request)
    if is_composition(asked):
        return _told(composed(asked).split("\n"), request)
    if told := told_by_tables(reading):
        return _told(told.lines, request, told.doubt) if told.lines else _unable(told.missing)
    if lines := told_by_tools(reading):
        return _told(lines, request)
    if not reading.excerpts:
        failed = [output.text for _, output in reading.outputs if output.is_error]
        if failed:
            return _unable(f"the tools that it called failed ({failed[-1][:200]})")
        if reading.outputs:
            return _unable("the tools that it called returned nothing")
        return _unable("it knows nothing by itself: give it data, or tools that find them")
    most = min(FEWEST * (1 + reading.objections), MOST)
    found = answer(reading.question, reading.found or reading.excerpts, reading.subject, most)
    lead = DISPUTE if found.is_dispute else PASSAGES
    return _told(found.lines, request, found.gap, lead) if found.lines else _unable(found.gap)


def _told(
    said: Sequence[str], request: ModelRequest, gap: str = "", lead: str = PASSAGES
) -> ModelReply:
    """The lines, or as many of the first as the request leaves room for; `gap`: why they do not answer it."""
    room = LETTERS * request.settings.max_tokens
    lines = [lead, *said] if gap else list(said)
    while len(lines) > 1 and len("\n".join(lines)) > room:
        lines.pop()
    stop = StopReason.LENGTH if len(lines[0]) > room else StopReason.END
    return _reply((Text("\n".join(lines)),), stop, gap)


def _unable(why: str) -> ModelReply:
    """A refusal, so that a gap is never taken for an answer."""
    text = f"The offline model goes by rules and is no language model; {why}"
    return _reply((Text(text),), StopReason.REFUSAL)


def _reply(parts: Sequence[Text | ToolCall], stop: StopReason, gap: str = "") -> ModelReply:
    return ModelReply(
        parts=tuple(parts),
        stop=stop,
        usage=Usage(calls=1),
        model="offline (rules, no LLM)",
        gaps=(gap,) if gap else (),
    )
