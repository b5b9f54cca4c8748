"""OpenAI's chat completions: the protocol that most servers of models speak.

OpenAI, Azure, Ollama, vLLM, the llama.cpp server, OpenRouter and many more differ in details only;
where they do, `provider` decides.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from chargehand.facts.outcome import Usage
from chargehand.models import base
from chargehand.models.http_adapter import (
    Gathering,
    HttpModel,
    Json,
    schema_in_words,
    tools_of,
    usage_of,
)
from chargehand.models.provider_schema import OPENAI, held_to

#: they refuse a strict schema that is not of their dialect; the others hold to any
STRICT_PROVIDERS = {"openai", "azure", "openrouter"}
#: reasoning models there refuse `max_tokens`, and other servers know nothing else
NEW_LIMIT_PROVIDERS = {"openai", "azure"}

STOPS = {
    "stop": base.StopReason.END,
    "end_turn": base.StopReason.END,
    "eos": base.StopReason.END,
    "tool_calls": base.StopReason.TOOLS,
    "function_call": base.StopReason.TOOLS,
    "length": base.StopReason.LENGTH,
    "max_tokens": base.StopReason.LENGTH,
    "content_filter": base.StopReason.REFUSAL,
}
END_MARK = b"[DONE]"


# The protocol's shapes, as far as we read them


class _Details(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class TokenCounts(Struct):
    """Usage as OpenAI's two protocols report it: chat completions say prompt and completion."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


def counted(counts: TokenCounts | None) -> Usage:
    """The usage that was reported; one call of unknown size if nothing was."""
    counts = counts or TokenCounts()
    details = counts.prompt_tokens_details or counts.input_tokens_details or _Details()
    return usage_of(
        counts.prompt_tokens or counts.input_tokens,
        counts.completion_tokens or counts.output_tokens,
        details.cached_tokens,
        details.cache_write_tokens,
    )


class _Function(Struct):
    name: str | None = None
    arguments: Any = None


class _Call(Struct):
    function: _Function | None = None
    id: str | None = None
    index: int | None = None


class _Piece(Struct):
    text: str = ""
    type: str = "text"


class _Message(Struct):
    content: str | list[_Piece] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[Json] | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(Struct):
    choices: list[_Choice] | None = None
    usage: TokenCounts | None = None
    model: str | None = None
    error: Any = None


class _DeltaChoice(Struct):
    delta: _Message | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_DeltaChoice] | None = None
    usage: TokenCounts | None = None
    model: str | None = None
    error: Any = None


_completion = msgspec.json.Decoder(_Completion)
_chunk = msgspec.json.Decoder(_Chunk)


class OpenAIModel(HttpModel):
    """A model that is asked through chat completions."""

    path = "/chat/completions"
    protocol = "chat"

    def body_of(self, request: base.ModelRequest) -> Json:
        messages: list[Json] = []
        for turn in request.turns:
            part, role = turn.parts[0] if len(turn.parts) == 1 else None, turn.role
            if type(part) is base.Text and role is not base.Role.TOOL:  # most often
                messages.append({"role": role.chat_name, "content": part.text})
            else:
                messages += self._messages(turn)
        body: Json = {"model": self.model, "messages": messages}
        body |= self._settings(request) | tools_of(request, _tool, _choice)
        if request.schema is not None:
            if self.abilities.schema:
                body["response_format"] = self._format(request.schema)
            else:
                asked = {"role": "system", "content": schema_in_words(request.schema)}
                messages.insert(0, asked)
        return body

    def streamed(self, body: Json) -> Json:
        return {**body, "stream": True, "stream_options": {"include_usage": True}}

    def reply_in(self, body: bytes, headers: Mapping[str, str]) -> base.ModelReply:
        completion = _completion.decode(body)
        if completion.error:
            raise self.failure_in(completion.error, headers)
        if not completion.choices:
            raise self.garbled("holds no choice")
        choice = completion.choices[0]
        return self.reply_of(choice.message, choice.finish_reason, completion)

    def gathering(self) -> Gathering:
        return _ChatGathering(self)

    def reply_of(
        self, message: _Message, finish: str | None, about: _Completion | _Chunk
    ) -> base.ModelReply:
        parts: list[base.Part] = [*self._kept(message)]
        text = message.refusal or _text_of(message)
        if text:
            parts.append(base.Text(text))
        calls = [*self._calls(message.tool_calls or ())]
        return base.ModelReply(
            parts=(*parts, *calls),
            # Some servers end with "stop" although they call tools; OpenAI does when one is forced.
            stop=self.stop_in(STOPS, finish, calls, is_refused=bool(message.refusal)),
            usage=counted(about.usage),
            model=about.model or self.model,
        )

    def _kept(self, message: _Message) -> Iterator[base.Opaque]:
        """What of its thinking the provider wants to see again."""
        if message.reasoning_details:
            yield self.opaque(msgspec.json.encode({"reasoning_details": message.reasoning_details}))
        elif message.tool_calls:
            # Wanted back between tool calls only; DeepSeek refuses it elsewhere.
            for field in ("reasoning_content", "reasoning"):
                if thought := getattr(message, field):
                    yield self.opaque(msgspec.json.encode({field: thought}))
                    break

    def _calls(self, calls: "list[_Call] | tuple[()]") -> Iterator[base.ToolCall]:
        seen: set[str] = set()
        for call in calls:
            if call.function is None or not call.function.name:
                raise self.garbled("calls a tool without a name")
            written = call.function.arguments
            if not isinstance(written, str):  # older servers send an object
                written = "" if written is None else msgspec.json.encode(written).decode()
            # Small servers leave ids out or repeat them, and then no output finds its call.
            name = call.id if call.id and call.id not in seen else f"call_{uuid4().hex[:20]}"
            seen.add(name)
            yield base.ToolCall(name, call.function.name, written)

    # From turns to messages

    def _messages(self, turn: base.Turn) -> Iterator[Json]:
        if turn.role is base.Role.MODEL:
            yield self._own_message(turn)
            return
        rest = []
        for part in turn.parts:
            if isinstance(part, base.ToolOutput):
                yield {"role": "tool", "tool_call_id": part.id, "content": part.told}
            elif not isinstance(part, base.Opaque):
                rest.append(self._content(part))
        if rest:
            yield {"role": turn.role.chat_name, "content": rest}

    def _own_message(self, turn: base.Turn) -> Json:
        message: Json = {"role": "assistant", "content": turn.text or None}
        calls = []
        for part in base.parts_for(self.origin, turn.parts):
            match part:
                case base.Opaque(block=block):
                    message |= msgspec.json.decode(block, type=dict[str, Raw])
                case base.ToolCall(id=name, name=tool, arguments=arguments):
                    function = {"name": tool, "arguments": arguments}
                    calls.append({"id": name, "type": "function", "function": function})
                case base.Text():
                    pass
                case _:
                    raise self.refused(f"a turn of a model cannot hold a {type(part).__name__}")
        if calls:
            message["tool_calls"] = calls
        elif message["content"] is None:
            message["content"] = ""
        return message

    def _content(self, part: base.Part) -> Json:
        match part:
            case base.Text(text=text):
                return {"type": "text", "text": text}
            case base.Image():
                return {"type": "image_url", "image_url": {"url": part.as_url}}
            case base.File() if (quoted := part.quoted) is not None:
                return {"type": "text", "text": quoted}
            case base.File():
                content = {"filename": part.name, "file_data": part.as_url}
                return {"type": "file", "file": content}
        raise self.refused(f"only a turn of a model can hold a {type(part).__name__}")

    def _settings(self, request: base.ModelRequest) -> Json:
        settings = request.settings
        is_new = self.access.provider in NEW_LIMIT_PROVIDERS
        sent: Json = {"max_completion_tokens" if is_new else "max_tokens": settings.max_tokens}
        if settings.reasoning:
            sent["reasoning_effort"] = settings.reasoning
        return sent | settings.given("temperature", "top_p", "seed", "stop")

    def _format(self, schema: Json) -> Json:
        form: Json = {"name": "answer", "schema": schema}
        if self.access.provider in STRICT_PROVIDERS:
            held = held_to(schema, OPENAI)
            form |= {"schema": schema if held is None else held, "strict": held is not None}
        return {"type": "json_schema", "json_schema": form}


def _tool(tool: base.ToolSpec) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _choice(choice: str) -> "str | Json":
    if choice in ("none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _text_of(message: _Message) -> str:
    content = message.content
    if isinstance(content, list):
        return "".join(piece.text for piece in content if piece.type == "text")
    return content or ""


class _ChatGathering:
    """Puts a reply together from its chunks."""

    def __init__(self, model: OpenAIModel) -> None:
        self.is_over = False
        self._model = model
        self._texts: dict[str, list[str]] = {}
        self._details: list[Json] = []
        self._calls: list[_Call] = []
        self._finish: str | None = None
        self._about = _Chunk()

    def take(self, data: bytes, headers: Mapping[str, str]) -> str:
        if data == END_MARK:
            self.is_over = True
            return ""
        chunk = _chunk.decode(data)
        if chunk.error:
            raise self._model.failure_in(chunk.error, headers)
        self._about.model = chunk.model or self._about.model
        self._about.usage = chunk.usage or self._about.usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        return self._add(choice.delta) if choice.delta else ""

    def reply(self) -> base.ModelReply:
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        for call in self._calls:
            if call.function is not None and isinstance(call.function.arguments, list):
                call.function.arguments = "".join(call.function.arguments)
        message = _Message(
            content=texts.get("content"),
            refusal=texts.get("refusal"),
            tool_calls=self._calls,
            reasoning=texts.get("reasoning"),
            reasoning_content=texts.get("reasoning_content"),
            reasoning_details=self._details,
        )
        return self._model.reply_of(message, self._finish, self._about)

    def _add(self, delta: _Message) -> str:
        text = _text_of(delta)
        self._keep("content", text)
        self._keep("refusal", delta.refusal)
        self._keep("reasoning", delta.reasoning)
        self._keep("reasoning_content", delta.reasoning_content)
        for detail in delta.reasoning_details or ():
            self._add_detail(detail)
        for call in delta.tool_calls or ():
            self._add_call(call)
        return text or delta.refusal or ""

    def _keep(self, name: str, text: str | None) -> None:
        if text:
            self._texts.setdefault(name, []).append(text)

    def _add_detail(self, detail: Json) -> None:
        """A piece of thinking continues the one before it if both say they are the same."""
        last = self._details[-1] if self._details else {}
        same = ("type", "index", "id")
        is_text = isinstance(detail.get("text"), str) and isinstance(last.get("text"), str)
        if is_text and all(last.get(name) == detail.get(name) for name in same):
            text = last["text"] + detail["text"]
            last |= {name: value for name, value in detail.items() if value is not None}
            last["text"] = text
        else:
            self._details.append(dict(detail))

    def _add_call(self, piece: _Call) -> None:
        call = self._open_call(piece)
        call.id = call.id or piece.id
        if piece.function is None or call.function is None:
            return
        call.function.name = call.function.name or piece.function.name
        written = piece.function.arguments
        if written is not None and not isinstance(written, str):
            written = msgspec.json.encode(written).decode()
        if written:
            call.function.arguments.append(written)

    def _open_call(self, piece: _Call) -> _Call:
        """The call that this piece belongs to: the last of its index, unless it has another id.

        Some servers give no index at all, others give all calls the same.
        """
        for call in reversed(self._calls):
            if call.index == piece.index and (not piece.id or piece.id == call.id):
                return call
        opened = _Call(function=_Function(arguments=[]), id=piece.id, index=piece.index)
        self._calls.append(opened)
        return opened
