"""The wire formats of three model protocols, and checks for requests that their providers would refuse."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from chargehand.models.base import ToolCall

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Say:
    """A scripted reply."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    #: end, tools, length or refusal; empty: derived from the other fields
    stop: str = ""
    refusal: str = ""
    #: reasoning, sent signed or encrypted
    thinking: str = ""
    tokens_in: int = 11
    tokens_out: int = 7
    cache_read: int = 0
    cache_written: int = 0
    #: characters per streamed piece
    piece: int = 4
    #: further fields of a chat message
    fields: Json = field(default_factory=dict)

    @property
    def why(self) -> str:
        if self.stop:
            return self.stop
        return "refusal" if self.refusal else "tools" if self.calls else "end"


class Refused(Exception):
    """Raised for a request that providers answer with 400."""


class WireProtocol(Protocol):
    """One protocol: checks requests, and encodes replies and errors."""

    name: str

    def check(self, body: Json) -> None: ...
    def whole(self, say: Say, body: Json) -> Json: ...
    def events(self, say: Say, body: Json) -> Iterator[bytes]: ...
    def error(self, kind: str, words: str) -> Json: ...


def event(data: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    content = data if isinstance(data, str) else compact(data)
    return f"{head}data: {content}\n\n".encode()


def compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def demand(holds: object, words: str) -> None:
    if not holds:
        raise Refused(words)


# Chat completions


class Chat:
    name = "chat"
    _finish = {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "stop"}

    def check(self, body: Json) -> None:
        demand(body.get("messages"), "messages: too short")
        open_calls: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                demand(message["tool_call_id"] in open_calls, "tool message without its call")
                open_calls.discard(message["tool_call_id"])
                continue
            demand(not open_calls, "tool_calls must be followed by tool messages")
            calls = message.get("tool_calls", [])
            open_calls = {call["id"] for call in calls}
            for call in calls:
                demand(isinstance(call["function"]["arguments"], str), "arguments: not a string")
            demand(calls or message.get("content") is not None, "content: null")
        demand(not open_calls, "tool_calls must be followed by tool messages")
        for tool in body.get("tools", []):
            demand(tool["type"] == "function" and tool["function"]["name"], "tools: malformed")

    def whole(self, say: Say, body: Json) -> Json:
        message: Json = {"role": "assistant", "content": say.text or None, "refusal": None}
        message |= say.fields
        if say.refusal:
            message["refusal"] = say.refusal
        if say.calls:
            message["tool_calls"] = [self._call(call) for call in say.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish[say.why]}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": f"{body['model']}-served",
            "choices": [choice],
            "usage": self._usage(say),
        }

    def events(self, say: Say, body: Json) -> Iterator[bytes]:
        yield b": keep-alive\n\n"
        yield self._chunk(body, {"role": "assistant", "content": ""})
        if say.fields:
            yield self._chunk(body, say.fields)
        for piece in pieces(say.text, say.piece):
            yield self._chunk(body, {"content": piece})
        for piece in pieces(say.refusal, say.piece):
            yield self._chunk(body, {"refusal": piece})
        for index, call in enumerate(say.calls):
            opened = {**self._call(call), "function": {"name": call.name, "arguments": ""}}
            yield self._chunk(body, {"tool_calls": [{"index": index, **opened}]})
            for piece in pieces(call.arguments, say.piece):
                part = {"index": index, "function": {"arguments": piece}}
                yield self._chunk(body, {"tool_calls": [part]})
        yield self._chunk(body, {}, self._finish[say.why])
        if body.get("stream_options", {}).get("include_usage"):
            yield event({**self._head(body), "choices": [], "usage": self._usage(say)})
        yield event("[DONE]")

    def error(self, kind: str, words: str) -> Json:
        return {"error": {"message": words, "type": kind, "param": None, "code": None}}

    def _head(self, body: Json) -> Json:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"{body['model']}-served",
        }

    def _chunk(self, body: Json, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return event({**self._head(body), "choices": [choice]})

    def _call(self, call: ToolCall) -> Json:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": call.id, "type": "function", "function": function}

    def _usage(self, say: Say) -> Json:
        return {
            "prompt_tokens": say.tokens_in,
            "completion_tokens": say.tokens_out,
            "total_tokens": say.tokens_in + say.tokens_out,
            "prompt_tokens_details": {
                "cached_tokens": say.cache_read,
                "cache_write_tokens": say.cache_written,
            },
        }


# Responses


class Responses:
    name = "responses"

    def check(self, body: Json) -> None:
        demand(body.get("input"), "input: too short")
        calls: set[str] = set()
        outputs: set[str] = set()
        items = body["input"] if isinstance(body["input"], list) else []
        for place, item in enumerate(items):
            # As in llama.cpp's server: earlier output of the model is sent back as an item of its kind.
            is_said = item.get("role") == "assistant"
            match item.get("type", None if is_said else "message"):
                case "function_call":
                    demand("id" not in item, "Item not found: nothing is stored")
                    calls.add(item["call_id"])
                case "function_call_output":
                    demand(item["call_id"] in calls, "no tool call found for function call output")
                    outputs.add(item["call_id"])
                case "reasoning":
                    demand(item.get("encrypted_content"), "Item not found: nothing is stored")
                    demand(place + 1 < len(items), "reasoning without its following item")
                case "message":
                    demand(item["role"] in ("user", "assistant", "system"), "role: unknown")
                    kind, content = "output_text" if is_said else "input_", item["content"]
                    is_typed = isinstance(content, list) and all(
                        part["type"].startswith(kind) for part in content
                    )
                    demand(is_typed or (isinstance(content, str) and not is_said), f"not {kind}")
                case other:
                    raise Refused(f"input type {other} is unknown")
        demand(calls == outputs, "no tool output found for function call")
        demand("stop" not in body and "seed" not in body, "unknown parameter")
        demand(body.get("max_output_tokens", 16) >= 16, "max_output_tokens: below the minimum")
        for tool in body.get("tools", []):
            demand(tool["type"] == "function" and tool["name"], "tools: malformed")

    def whole(self, say: Say, body: Json) -> Json:
        return self._response(say, body, self._items(say), is_over=True)

    def events(self, say: Say, body: Json) -> Iterator[bytes]:
        for number, content in enumerate(self._stream(say, body)):
            yield event({"sequence_number": number, **content}, content["type"])

    def error(self, kind: str, words: str) -> Json:
        return Chat().error(kind, words)

    def _stream(self, say: Say, body: Json) -> Iterator[Json]:
        begun = self._response(say, body, [], is_over=False)
        yield {"type": "response.created", "response": begun}
        items = self._items(say)
        for index, item in enumerate(items):
            yield from self._item_events(say, index, item)
        whole = self._response(say, body, items, is_over=True)
        yield {"type": f"response.{whole['status']}", "response": whole}

    def _item_events(self, say: Say, index: int, item: Json) -> Iterator[Json]:
        about = {"output_index": index, "item_id": item["id"]}
        begun = item | dict.fromkeys(item.keys() & {"arguments", "encrypted_content"}, "")
        if "content" in item:
            begun["content"] = []
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            about["content_index"] = 0
            for piece in pieces(say.text, say.piece):
                yield {
                    "type": "response.output_text.delta",
                    **about,
                    "delta": piece,
                    "logprobs": [],
                }
            for piece in pieces(say.refusal, say.piece):
                yield {"type": "response.refusal.delta", **about, "delta": piece}
        elif item["type"] == "function_call":
            for piece in pieces(item["arguments"], say.piece):
                yield {"type": "response.function_call_arguments.delta", **about, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _items(self, say: Say) -> list[Json]:
        items: list[Json] = []
        if say.thinking:
            items.append(
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "encrypted_content": f"sealed({say.thinking})",
                }
            )
        content: list[Json] = []
        if say.text:
            content.append({"type": "output_text", "text": say.text, "annotations": []})
        if say.refusal:
            content.append({"type": "refusal", "refusal": say.refusal})
        if content:
            message = {"type": "message", "id": "msg_1", "role": "assistant", **say.fields}
            items.append({**message, "status": "completed", "content": content})
        items += [
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
            for call in say.calls
        ]
        return items

    def _response(self, say: Say, body: Json, items: list[Json], *, is_over: bool) -> Json:
        is_cut = say.why == "length"
        status = ("incomplete" if is_cut else "completed") if is_over else "in_progress"
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": f"{body['model']}-served",
            "output": items,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_over and is_cut else None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": self._usage(say) if is_over else None,
        }

    def _usage(self, say: Say) -> Json:
        return {
            "input_tokens": say.tokens_in,
            "output_tokens": say.tokens_out,
            "total_tokens": say.tokens_in + say.tokens_out,
            "input_tokens_details": {
                "cached_tokens": say.cache_read,
                "cache_write_tokens": say.cache_written,
            },
            "output_tokens_details": {"reasoning_tokens": 0},
        }


# Messages


class Messages:
    name = "messages"
    _stop = {"end": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"}

    def check(self, body: Json) -> None:
        demand(body.get("max_tokens"), "max_tokens: field required")
        demand(body.get("messages"), "messages: at least one message is required")
        wanted: set[str] = set()
        marked = 0
        for message in body["messages"]:
            demand(message["role"] in ("user", "assistant"), "role: unknown")
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            given = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
            demand(wanted == given, "tool_use ids need tool_result blocks immediately after")
            wanted = {b["id"] for b in blocks if b["type"] == "tool_use"}
            for block in blocks:
                self._check_block(block)
                marked += "cache_control" in block
        for block in [*(body.get("system") or ()), *body.get("tools", ())]:
            marked += isinstance(block, dict) and "cache_control" in block
        demand(marked <= 4, "cache_control: at most 4 blocks")
        form = body.get("output_config", {}).get("format")
        if form:
            schema = form["schema"]
            demand(
                schema.get("type") != "object" or schema.get("additionalProperties") is False,
                "output_config.format.schema: additionalProperties must be false",
            )
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        demand(not (forced and "thinking" in body), "Thinking may not be enabled when forced")

    def _check_block(self, block: Json) -> None:
        if block["type"] == "text":
            demand(block["text"].strip(), "text content blocks must be non-empty")
        if block["type"] == "tool_use":
            demand(isinstance(block["input"], dict), "input: should be an object")
        if block["type"] == "thinking":
            sealed = f"sealed({block['thinking']})"
            demand(block["signature"] == sealed, "Invalid signature in thinking block")

    def whole(self, say: Say, body: Json) -> Json:
        return {
            **self._head(body),
            "content": self._blocks(say),
            "stop_reason": self._stop[say.why],
            "usage": self._usage(say),
        }

    def events(self, say: Say, body: Json) -> Iterator[bytes]:
        for content in self._stream(say, body):
            yield event(content, content["type"])

    def error(self, kind: str, words: str) -> Json:
        return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_b"}

    def _stream(self, say: Say, body: Json) -> Iterator[Json]:
        started = {**self._head(body), "content": [], "stop_reason": None}
        usage = {**self._usage(say), "output_tokens": 1}
        yield {"type": "message_start", "message": {**started, "usage": usage}}
        yield {"type": "ping"}
        for index, block in enumerate(self._blocks(say)):
            yield {"type": "content_block_start", "index": index, "content_block": _empty(block)}
            for delta in _deltas(block, say.piece):
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        stopped = {"stop_reason": self._stop[say.why], "stop_sequence": None}
        spent = {"output_tokens": say.tokens_out}
        yield {"type": "message_delta", "delta": stopped, "usage": spent}
        yield {"type": "message_stop"}

    def _head(self, body: Json) -> Json:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": f"{body['model']}-served",
            "stop_sequence": None,
        }

    def _blocks(self, say: Say) -> list[Json]:
        blocks: list[Json] = []
        if say.thinking:
            signature = f"sealed({say.thinking})"
            blocks.append({"type": "thinking", "thinking": say.thinking, "signature": signature})
        if text := say.text + say.refusal:
            blocks.append({"type": "text", "text": text})
        for call in say.calls:
            content = json.loads(call.arguments)
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": content})
        return blocks

    def _usage(self, say: Say) -> Json:
        return {
            "input_tokens": say.tokens_in - say.cache_read - say.cache_written,
            "output_tokens": say.tokens_out,
            "cache_read_input_tokens": say.cache_read,
            "cache_creation_input_tokens": say.cache_written,
        }


def _empty(block: Json) -> Json:
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
    return {**block, "input": {}}


def _deltas(block: Json, size: int) -> Iterator[Json]:
    match block["type"]:
        case "text":
            for piece in pieces(block["text"], size):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in pieces(block["thinking"], size):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            for piece in pieces(compact(block["input"]), size):
                yield {"type": "input_json_delta", "partial_json": piece}


DIALECTS: dict[str, WireProtocol] = {
    "chat": Chat(),
    "responses": Responses(),
    "anthropic": Messages(),
}
