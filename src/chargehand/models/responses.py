"""OpenAI's Responses: the protocol in which its reasoning models think across tool calls.

Nothing is stored at the provider (`store: false`); what a model has thought comes back encrypted,
is kept as an opaque block and sent again with the next turn.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from chargehand.models import base
from chargehand.models.http_adapter import Gathering, HttpModel, Json, schema_in_words, tools_of
from chargehand.models.openai import TokenCounts, counted
from chargehand.models.provider_schema import OPENAI, held_to

#: the provider refuses a lower maximum
LEAST_TOKENS = 16


# The protocol's shapes, as far as we read them


class _Content(Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(Struct):
    type: str
    content: list[_Content] | None = None
    phase: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    encrypted_content: str | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    status: str | None = None
    output: list[Raw] | None = None
    usage: TokenCounts | None = None
    model: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str
    delta: Any = None
    item: Raw = Raw()
    response: _Response | None = None
    message: str | None = None
    code: str | None = None
    error: Any = None


_response = msgspec.json.Decoder(_Response)
_event = msgspec.json.Decoder(_Event)
_item = msgspec.json.Decoder(_Item)

_STOPS = {"max_output_tokens": base.StopReason.LENGTH, "content_filter": base.StopReason.REFUSAL}


class ResponsesModel(HttpModel):
    """A model that is asked through Responses."""

    path = "/responses"
    protocol = "responses"

    def body_of(self, request: base.ModelRequest) -> Json:
        items = [item for turn in request.turns for item in self._items(turn)]
        body: Json = {
            "model": self.model,
            "input": items,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        body |= self._settings(request) | tools_of(request, _tool, _choice)
        if request.schema is not None:
            if self.abilities.schema:
                body["text"] = {"format": _format(request.schema)}
            else:
                asked = [{"type": "input_text", "text": schema_in_words(request.schema)}]
                items.insert(0, {"type": "message", "role": "system", "content": asked})
        return body

    def reply_in(self, body: bytes, headers: Mapping[str, str]) -> base.ModelReply:
        response = _response.decode(body)
        return self.reply_of(response, response.output or [], headers)

    def gathering(self) -> Gathering:
        return _ResponseGathering(self)

    def examined(self, reply: base.ModelReply, request: base.ModelRequest) -> base.ModelReply:
        """Some servers call a reply completed that ended at its maximum."""
        most = max(request.settings.max_tokens, LEAST_TOKENS)
        if (
            reply.stop in (base.StopReason.END, base.StopReason.TOOLS)
            and reply.usage.tokens_out >= most
        ):
            return replace(reply, stop=base.StopReason.LENGTH)
        return reply

    def reply_of(
        self, response: _Response, items: list[Raw], headers: Mapping[str, str]
    ) -> base.ModelReply:
        if response.error:
            raise self.failure_in(response.error, headers)
        parts: list[base.Part] = []
        is_refused = False
        for raw in items:
            item = _item.decode(raw)
            is_refused |= any(piece.refusal for piece in item.content or ())
            parts += self._parts(item, raw)
        return base.ModelReply(
            parts=tuple(parts),
            stop=self._stop(response, parts, is_refused=is_refused),
            usage=counted(response.usage),
            model=response.model or self.model,
        )

    def _stop(
        self, response: _Response, parts: list[base.Part], *, is_refused: bool
    ) -> base.StopReason:
        if response.status == "incomplete":
            reason = response.incomplete_details and response.incomplete_details.reason
            if stop := _STOPS.get(reason or ""):
                return stop
            raise self.garbled(f"is incomplete for a reason that is not known: {reason!r}")
        if response.status != "completed":
            raise self.garbled(f"is {response.status!r}, not completed")
        if is_refused:
            return base.StopReason.REFUSAL
        is_calling = any(isinstance(part, base.ToolCall) for part in parts)
        return base.StopReason.TOOLS if is_calling else base.StopReason.END

    def _parts(self, item: _Item, raw: Raw) -> Iterator[base.Part]:
        match item.type:
            case "message":
                if item.phase:  # wanted back with the text that it is of
                    yield self.opaque(msgspec.json.encode({"phase": item.phase}))
                text = "".join(piece.text + piece.refusal for piece in item.content or ())
                if text:
                    yield base.Text(text)
            case "function_call":
                if not (item.call_id and item.name):
                    raise self.garbled("calls a tool without a name or an id")
                yield base.ToolCall(item.call_id, item.name, item.arguments)
            case "reasoning" if not item.encrypted_content:
                pass  # its id alone means nothing to a provider that has stored nothing
            case _:
                yield self.opaque(raw)

    # From turns to items

    def _items(self, turn: base.Turn) -> Iterator[Json | Raw]:
        if turn.role is base.Role.MODEL:
            yield from self._own_items(turn)
            return
        content = []
        for part in turn.parts:
            if isinstance(part, base.ToolOutput):
                yield {"type": "function_call_output", "call_id": part.id, "output": part.told}
            elif not isinstance(part, base.Opaque):
                content.append(self._content(part))
        if content:
            yield {"type": "message", "role": turn.role.chat_name, "content": content}

    def _own_items(self, turn: base.Turn) -> Iterator[Json | Raw]:
        phase: Json = {}
        for part in base.parts_for(self.origin, turn.parts):
            match part:
                case base.Opaque(block=block):
                    about = msgspec.json.decode(block)
                    if "type" in about:
                        yield block
                    else:
                        phase = about
                case base.ToolCall(id=call, name=name, arguments=arguments):
                    yield {
                        "type": "function_call",
                        "call_id": call,
                        "name": name,
                        "arguments": arguments,
                    }
                case base.Text(text=text):
                    said = [{"type": "output_text", "text": text}]
                    yield {"type": "message", "role": "assistant", "content": said, **phase}
                    phase = {}
                case _:
                    raise self.refused(f"a turn of a model cannot hold a {type(part).__name__}")

    def _content(self, part: base.Part) -> Json:
        match part:
            case base.Text(text=text):
                return {"type": "input_text", "text": text}
            case base.Image():
                return {"type": "input_image", "image_url": part.as_url}
            case base.File() if (quoted := part.quoted) is not None:
                return {"type": "input_text", "text": quoted}
            case base.File():
                return {"type": "input_file", "filename": part.name, "file_data": part.as_url}
        raise self.refused(f"only a turn of a model can hold a {type(part).__name__}")

    def _settings(self, request: base.ModelRequest) -> Json:
        settings = request.settings
        if settings.stop:
            raise self.refused("this protocol knows no stop texts; use protocol='chat' for them")
        if settings.seed is not None:
            self.warn_once("seed")
        sent: Json = {"max_output_tokens": max(settings.max_tokens, LEAST_TOKENS)}
        if settings.reasoning:
            sent["reasoning"] = {"effort": settings.reasoning}
        return sent | settings.given("temperature", "top_p")


def _tool(tool: base.ToolSpec) -> Json:
    # Said in so many words: left out, this protocol takes every tool for a strict one.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _choice(choice: str) -> "str | Json":
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _format(schema: Json) -> Json:
    held = held_to(schema, OPENAI)
    return {
        "type": "json_schema",
        "name": "answer",
        "schema": schema if held is None else held,
        "strict": held is not None,
    }


class _ResponseGathering:
    """Waits for the event that holds the whole response, and collects its items on the way."""

    def __init__(self, model: ResponsesModel) -> None:
        self.is_over = False
        self._model = model
        self._items: list[Raw] = []
        self._response = _Response()
        self._headers: Mapping[str, str] = {}

    def take(self, data: bytes, headers: Mapping[str, str]) -> str:
        event = _event.decode(data)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return event.delta if isinstance(event.delta, str) else ""
            case "response.output_item.done":
                self._items.append(event.item)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event, headers)
            case "error":
                about = event.error or {"code": event.code, "message": event.message}
                raise self._model.failure_in(about, headers)
        return ""

    def reply(self) -> base.ModelReply:
        # The items as they were done are the ones to go by, says the provider; a server that sends
        # none of those events has them in the response.
        items = self._items or self._response.output or []
        return self._model.reply_of(self._response, items, self._headers)

    def _end(self, event: _Event, headers: Mapping[str, str]) -> None:
        if event.response is None:
            raise self._model.garbled("ended without a response")
        self._response, self._headers, self.is_over = event.response, headers, True
