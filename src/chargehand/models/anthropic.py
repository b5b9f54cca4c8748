"""Anthropic's messages.

Structured answers use the provider's own output format, not a forced tool: a tool cannot be forced
while the model thinks, and it would take the place of the tools the model is to choose from.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from chargehand.facts.outcome import Usage
from chargehand.models import base
from chargehand.models.connection_settings import Access
from chargehand.models.http_adapter import (
    Gathering,
    HttpModel,
    Json,
    schema_in_words,
    tools_of,
    usage_of,
)
from chargehand.models.provider_schema import ANTHROPIC, held_to

STOPS = {
    "end_turn": base.StopReason.END,
    "stop_sequence": base.StopReason.END,
    "tool_use": base.StopReason.TOOLS,
    "max_tokens": base.StopReason.LENGTH,
    "model_context_window_exceeded": base.StopReason.LENGTH,
    "refusal": base.StopReason.REFUSAL,
}
CACHED = {"type": "ephemeral"}

#: models that think within a budget of tokens; later ones choose it themselves, by effort
_BY_BUDGET = re.compile(r"claude-(?:3|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-\d{8}|$|@|-v\d))")
#: of the maximum output that a model may think away
_SHARES = {"low": 0.25, "medium": 0.5, "high": 0.75}
_LEAST_BUDGET = 1024
_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")


# The protocol's shapes, as far as we read them


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Block(Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw()


class _StopDetails(Struct):
    explanation: str | None = None


class _Message(Struct):
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None
    usage: _Usage | None = None
    model: str | None = None
    type: str | None = None
    error: Any = None


class _Delta(Struct):
    type: str | None = None
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: Json | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)
_event = msgspec.json.Decoder(_Event)


class AnthropicModel(HttpModel):
    """A model that is asked through messages.

    With `cache`, what stays the same between the calls of one conversation is marked, so that the
    provider keeps it: writing its cache costs a quarter more, reading it a tenth.
    """

    path = "/v1/messages"
    protocol = "anthropic"

    def __init__(
        self,
        model: str,
        access: Access,
        *,
        abilities: base.Abilities | None = None,
        cache: bool = True,
    ) -> None:
        super().__init__(model, access, abilities=abilities)
        self._cache = cache

    def body_of(self, request: base.ModelRequest) -> Json:
        settings = request.settings
        body: Json = {
            "model": self.model,
            "max_tokens": settings.max_tokens,
            "messages": self._messages(request),
        }
        if system := self._system(request):
            body["system"] = system
        body |= tools_of(request, _tool, _choice) | self._settings(request)
        if self._cache and _will_go_on(request):
            _mark_cached(body)
        return body

    def reply_in(self, body: bytes, headers: Mapping[str, str]) -> base.ModelReply:
        message = _message.decode(body)
        if message.error:
            raise self.failure_in(message.error, headers)
        if message.content is None:
            raise self.garbled("holds no content")
        return self.reply_of(message, [self._part(block) for block in message.content])

    def gathering(self) -> Gathering:
        return _MessageGathering(self)

    def reply_of(self, message: _Message, parts: list[base.Part]) -> base.ModelReply:
        parts = [part for part in parts if not isinstance(part, base.Text) or part.text]
        calls = [part for part in parts if isinstance(part, base.ToolCall)]
        stop = self.stop_in(STOPS, message.stop_reason, calls)
        if stop is base.StopReason.REFUSAL and not parts and message.stop_details:
            parts = [base.Text(message.stop_details.explanation or "")]
        return base.ModelReply(
            parts=tuple(parts),
            stop=stop,
            usage=_usage(message.usage),
            model=message.model or self.model,
        )

    def _part(self, raw: Raw) -> base.Part:
        block = _block.decode(raw)
        match block.type:
            case "text":
                return base.Text(block.text)
            case "tool_use":
                return self.call(block.id, block.name, bytes(block.input).decode() or "{}")
        return self.opaque(raw)

    def call(self, name: str, tool: str, written: str) -> base.ToolCall:
        if not (name and tool):
            raise self.garbled("calls a tool without a name or an id")
        return base.ToolCall(name, tool, written)

    # From turns to messages

    def _messages(self, request: base.ModelRequest) -> list[Json]:
        messages: list[Json] = []
        for turn in request.turns:
            if turn.role is base.Role.SYSTEM:
                continue
            role = "assistant" if turn.role is base.Role.MODEL else "user"
            content = [*self._contents(turn)]
            if messages and messages[-1]["role"] == role:
                # All outputs of one turn's tools have to stand in one message.
                messages[-1]["content"] += content
            elif content:
                messages.append({"role": role, "content": content})
        return messages

    def _contents(self, turn: base.Turn) -> Iterator[Json | Raw]:
        for part in base.parts_for(self.origin, turn.parts):
            match part:
                case base.Opaque(block=block):
                    yield block
                case base.Text(text=text):
                    if text.strip():  # the provider refuses an empty one
                        yield {"type": "text", "text": text}
                case base.ToolCall():
                    yield _tool_use(part)
                case base.ToolOutput():
                    yield _tool_result(part)
                case base.Image():
                    yield {"type": "image", "source": _image_source(part)}
                case base.File():
                    source = self._file_source(part)
                    yield {"type": "document", "title": part.name, "source": source}

    def _file_source(self, file: base.File) -> Json:
        if (text := file.words) is not None:
            return {"type": "text", "media_type": "text/plain", "data": text}
        if file.media_type == "application/pdf":
            return {"type": "base64", "media_type": file.media_type, "data": file.data}
        raise self.refused(f"it can read no {file.media_type} ({file.name}); give a PDF or text")

    def _system(self, request: base.ModelRequest) -> list[Json]:
        texts = [turn.text for turn in request.turns if turn.role is base.Role.SYSTEM]
        if request.schema is not None and not self._is_held(request.schema):
            texts.append(schema_in_words(request.schema))
        return [{"type": "text", "text": text} for text in texts if text.strip()]

    def _is_held(self, schema: Json) -> bool:
        return self.abilities.schema and held_to(schema, ANTHROPIC) is not None

    def _settings(self, request: base.ModelRequest) -> Json:
        settings = request.settings
        sent = settings.given("temperature", "top_p")
        if settings.stop:
            sent["stop_sequences"] = settings.stop
        if settings.seed is not None:
            self.warn_once("seed")
        output: Json = {}
        if settings.reasoning:
            output |= self._thinking(request, sent)
        if request.schema is not None and self._is_held(request.schema):
            held = held_to(request.schema, ANTHROPIC)
            output["format"] = {"type": "json_schema", "schema": held}
        if output:
            sent["output_config"] = output
        return sent

    def _thinking(self, request: base.ModelRequest, sent: Json) -> Json:
        effort, most = request.settings.reasoning, request.settings.max_tokens
        if request.choice not in ("auto", "none"):
            # The provider refuses to force a tool on a model that thinks. The tool was asked for
            # by rule, thinking by preference, so it is thinking that gives way.
            self.warn_once("reasoning where a tool is forced")
            return {}
        if not _BY_BUDGET.search(self.model):
            sent["thinking"] = {"type": "adaptive"}
            return {"effort": effort}
        budget = max(int(most * _SHARES.get(effort, 0.5)), _LEAST_BUDGET)
        if budget < most:
            sent["thinking"] = {"type": "enabled", "budget_tokens": budget}
        else:
            self.warn_once(f"reasoning within max_tokens={most}")
        return {}


def _will_go_on(request: base.ModelRequest) -> bool:
    """Whether more calls with the same beginning are likely: there are tools, or there was one."""
    return bool(request.tools) or any(turn.role is base.Role.MODEL for turn in request.turns)


def _mark_cached(body: Json) -> None:
    """Mark the end of what is fixed (tools, then system), and the end of what has been said."""
    fixed = body.get("system") or body.get("tools")
    if fixed:
        fixed[-1] = {**fixed[-1], "cache_control": CACHED}
    if body["messages"]:
        last = body["messages"][-1]["content"]
        if last and isinstance(last[-1], dict):
            last[-1] = {**last[-1], "cache_control": CACHED}


def _tool(tool: base.ToolSpec) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _choice(choice: str) -> Json:
    if choice == "required":
        return {"type": "any"}
    return {"type": "none"} if choice == "none" else {"type": "tool", "name": choice}


def _tool_use(call: base.ToolCall) -> Json:
    try:
        written = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        written = None
    # The protocol takes an object only; what a model wrote instead is shown to it as it was.
    is_object = isinstance(written, dict)
    arguments = (
        Raw((call.arguments or "{}").encode()) if is_object else {"malformed": call.arguments}
    )
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments}


def _tool_result(output: base.ToolOutput) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": _id(output.id)}
    if output.is_error:
        return {**result, "content": output.text or "failed", "is_error": True}
    return {**result, "content": output.text}


def _id(name: str) -> str:
    """An id that another provider gave, in the letters that this one allows."""
    return _BAD_ID.sub("_", name) or "_"


def _image_source(image: base.Image) -> Json:
    if image.url:
        return {"type": "url", "url": image.url}
    return {"type": "base64", "media_type": image.media_type, "data": image.data}


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage(calls=1)
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    # The provider counts apart what it had cached; we count all that was sent.
    sent = (usage.input_tokens or 0) + read + written
    return usage_of(sent, usage.output_tokens, read, written)


class _MessageGathering:
    """Puts a message together from the pieces of its blocks."""

    def __init__(self, model: AnthropicModel) -> None:
        self.is_over = False
        self._model = model
        self._message = _Message()
        self._usage = _Usage()
        self._open: dict[int, _OpenBlock] = {}
        self._closed: dict[int, base.Part] = {}

    def take(self, data: bytes, headers: Mapping[str, str]) -> str:
        event = _event.decode(data)
        match event.type:
            case "content_block_delta":
                return self._add(event)
            case "content_block_start" if event.content_block is not None:
                self._open[event.index] = block = _OpenBlock(event.content_block)
                return block.text
            case "content_block_stop" if event.index in self._open:
                self._closed[event.index] = self._open.pop(event.index).closed(self._model)
            case "message_start" if event.message is not None:
                self._message.model = event.message.model
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None:
                    self._message.stop_reason = event.delta.stop_reason
                    self._message.stop_details = event.delta.stop_details
            case "message_stop":
                self.is_over = True
            case "error":
                raise self._model.failure_in(event.error, headers)
        return ""

    def reply(self) -> base.ModelReply:
        if self._open:
            raise self._model.garbled("ended inside a block")
        self._message.usage = self._usage
        parts = [self._closed[index] for index in sorted(self._closed)]
        return self._model.reply_of(self._message, parts)

    def _add(self, event: _Event) -> str:
        block = self._open.get(event.index)
        if block is None or event.delta is None:
            raise self._model.garbled("goes on with a block that was never begun")
        block.add(event.delta)
        return event.delta.text

    def _count(self, usage: _Usage | None) -> None:
        """The numbers are totals, and the last of each kind holds."""
        for name in _Usage.__struct_fields__ if usage else ():
            if (number := getattr(usage, name)) is not None:
                setattr(self._usage, name, number)


class _OpenBlock:
    """A block that pieces are still being added to."""

    def __init__(self, begun: Json) -> None:
        self._begun = begun
        self._pieces: dict[str, list[str]] = {}

    @property
    def text(self) -> str:
        text = self._begun.get("text") if self._begun.get("type") == "text" else ""
        return text if isinstance(text, str) else ""

    def add(self, delta: _Delta) -> None:
        for name in ("text", "thinking", "signature", "partial_json"):
            if piece := getattr(delta, name):
                self._pieces.setdefault(name, []).append(piece)

    def closed(self, model: AnthropicModel) -> base.Part:
        block = self._begun
        for name in ("text", "thinking", "signature"):
            if name in self._pieces:
                block[name] = f"{block.get(name) or ''}{self._joined(name)}"
        written = self._joined("partial_json")
        match block.get("type"):
            case "text":
                return base.Text(str(block.get("text") or ""))
            case "tool_use":
                # As the model wrote it: cut off at its maximum, or wrong, it may not be JSON.
                written = written or msgspec.json.encode(block.get("input") or {}).decode()
                return model.call(str(block.get("id", "")), str(block.get("name", "")), written)
        if written:
            block["input"] = msgspec.json.decode(written, type=Raw)
        return model.opaque(msgspec.json.encode(block))

    def _joined(self, name: str) -> str:
        return "".join(self._pieces.get(name, ()))
