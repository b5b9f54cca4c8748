"""The model itself: reads what it is asked, and calls tools, quotes, fills in or plans by rule."""

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
    StopReason,
    Text,
    ToolCall,
)
from chargehand.models.offline.composition import DISPUTE, PASSAGES, composed, results_in
from chargehand.models.offline.conversation import Conversation, Found, asked_in, read
from chargehand.models.offline.next_calls import next_calls, told_by_tables, told_by_tools, unread
from chargehand.models.offline.plans_and_choices import chosen, is_plan, management_calls, planned
from chargehand.models.offline.sentence_answers import answer


class OfflineModel:
    """Answers by rules of words: no network, no weights, the same reply to the same request.

    It calls the tools whose descriptions fit the request, answers in sentences of the data with
    their places, makes plans, and refuses whatever takes a language model.
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
        known = read(request)
        if known.schema is not None:
            return _shaped(request, known.schema)
        if known.has_item:
            return _unable("to do a task for each item takes one: --model, or a function as worker")
        can_call = request.tools and request.choice != "none"
        made, lack = next_calls(request, known) if can_call else ([], "")
        if made:
            return _reply(made, StopReason.TOOLS)
        if lack and not known.excerpts:
            return _unable(f"the request leaves in doubt what a tool is to be called with ({lack})")
        return _worded(_answer_to(request, known), request, unread(known))

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        if reply.text:
            yield reply.text
        yield reply


def open_model(name: str = "") -> OfflineModel:
    """The model that `offline` names; there is only one."""
    if name:
        raise UsageError(f"offline has no model {name!r}; write offline alone")
    return OfflineModel()


def _check(request: ModelRequest) -> None:
    for part in (part for turn in request.turns for part in turn.parts):
        if isinstance(part, Image):
            raise ModelRefused("offline cannot see images; leave them out, or use another model")
        if isinstance(part, File) and not part.is_text:
            raise ModelRefused(f"offline can read text only, not {part.name}; give its text")


def _shaped(request: ModelRequest, schema: dict[str, Any]) -> ModelReply:
    """A plan or a choice of who goes on; what a schema asks for beyond that, rules cannot give."""
    prompts = "\n".join(turn.text for turn in request.turns)
    choose = planned if is_plan(schema) else chosen
    if (value := choose(schema, asked_in(request), prompts)) is None:
        return _unable("to fill in a schema, to judge, to choose or to reword takes one")
    return _reply((Text(msgspec.json.encode(value).decode()),), StopReason.END)


def _answer_to(request: ModelRequest, known: Conversation) -> Found:
    """What the results, the tables, the tools or the documents say, whichever there are."""
    if results := results_in(asked_in(request)):
        return Found(composed(results))
    if told := told_by_tables(known) or told_by_tools(request.tools, known):
        return told
    if known.excerpts:
        return answer(known.question, known.excerpts, known.subject)
    if failed := [output.text for _, output in known.outputs if output.is_error]:
        return Found(gap=f"the tools that it called failed ({failed[-1][:200]})")
    if known.outputs:
        return Found(gap="the tools that it called returned nothing")
    return Found(gap="it knows nothing by itself: give it data, or tools that find them")


def _worded(found: Found, request: ModelRequest, unread: Sequence[str]) -> ModelReply:
    """The lines, or as many of the first as the request leaves room for."""
    if not found.lines:
        return _unable("; ".join((found.gap, *unread)))
    lines = [*([DISPUTE if found.is_dispute else PASSAGES] if found.gap else []), *found.lines]
    room = 4 * request.settings.max_tokens  # at four letters to a token
    while len(lines) > 1 and len("\n".join(lines)) > room:
        lines.pop()
    stop = StopReason.LENGTH if len(lines[0]) > room else StopReason.END
    return _reply((Text("\n".join(lines)),), stop, *filter(None, [found.gap]), *unread)


def _unable(why: str) -> ModelReply:
    """A refusal, so that a gap is never taken for an answer."""
    text = f"The offline model goes by rules and is no language model; {why}"
    return _reply((Text(text),), StopReason.REFUSAL)


def _reply(parts: Sequence[Text | ToolCall], stop: StopReason, *gaps: str) -> ModelReply:
    name = "offline (rules, no LLM)"
    return ModelReply(parts=tuple(parts), stop=stop, usage=Usage(calls=1), model=name, gaps=gaps)
