"""Models that run inside this process, from a file of weights: `local:smollm2`, `local:/a/b.gguf`."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from chargehand.errors import ModelError, ModelGarbled, ModelRefused
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.models import base
from chargehand.models.llama_runtime import runtime_of
from chargehand.models.model_files import path_of
from chargehand.models.tool_call_emulation import (
    call_text,
    closed,
    form_for,
    instructions,
    read_form,
    told,
)
from chargehand.usable_path import checked_path

Json = dict[str, Any]

CONTEXT = 4096
#: of an answer, unless the settings say otherwise: a small model that rambles would fill its context
MOST_TOKENS = CONTEXT // 4
_USUAL = base.ModelSettings().max_tokens


class LocalModel:
    """A model from a file in GGUF, through llama.cpp. Nothing leaves the machine.

    Calls are taken one at a time and off the event loop. Answers are held to their schema by the
    runtime. Tools are called through a schema too, for small models do not manage otherwise; what
    it has called already it is not let call again, but asked for its answer.
    """

    abilities = base.Abilities(images=False, is_real=False, places=True)

    def __init__(
        self,
        path: str | Path,
        *,
        name: str = "",
        context: int = CONTEXT,
        threads: int | None = None,
    ) -> None:
        self._path = checked_path(path, "local", home=True)
        self._runtime = runtime_of(self._path, context, threads)
        self.name = f"local:{name or self._path.name}"
        self.account = base.account_of("local", str(self._path.resolve()))
        self.context = context

    def __repr__(self) -> str:
        return f"<LocalModel {self.name}>"

    async def ask(self, request: base.ModelRequest) -> base.ModelReply:
        async for piece in self.stream(request):
            if isinstance(piece, base.ModelReply):
                return piece
        raise ModelGarbled(f"{self.name} broke off before its end; try again")

    async def stream(self, request: base.ModelRequest) -> AsyncIterator[str | base.ModelReply]:
        if request.tools and request.choice != "none":
            reply = await self._fill_in(request)
            if reply.text:
                yield reply.text
            yield reply
            return
        said = _Said(self._path.name)
        async for piece in self._pieces(request, _body(request, request.schema), said):
            yield piece
        if (
            request.schema is not None
            and said.stop is base.StopReason.END
            and not _is_json(said.text)
        ):
            raise ModelRefused(f"{self.name} cannot be held to this schema; make it simpler")
        yield said.reply((base.Text(said.text),) if said.text else ())

    async def _fill_in(self, request: base.ModelRequest) -> base.ModelReply:
        """The reply to a request with tools: the form, filled in."""
        said = await self._whole(request, _body(request, form_for(request)))
        form = read_form(said.text, f"local-{len(request.turns)}")
        if form is None:
            if said.stop is base.StopReason.LENGTH:
                return said.reply((base.Text(said.text),))
            raise ModelGarbled(f"{self.name} did not keep to its form: {said.text[:200]!r}")
        if form.call is None:
            return said.reply((base.Text(form.answer),))
        if request.choice == "auto" and _is_known(form.call, request.turns):
            return await self._without_tools(request, said.usage)
        return said.reply((form.call,), base.StopReason.TOOLS)

    async def _without_tools(self, request: base.ModelRequest, spent: Usage) -> base.ModelReply:
        """The answer, after a call that was made before: the form has no other line this time."""
        bare = replace(request, choice="none")
        said = await self._whole(bare, _body(bare, form_for(bare)))
        said.usage += spent
        form = read_form(said.text, "")
        return said.reply((base.Text(form.answer if form else said.text),))

    async def _whole(self, request: base.ModelRequest, body: Json) -> "_Said":
        said = _Said(self._path.name)
        async for _ in self._pieces(request, body, said):
            pass
        return said

    async def _pieces(
        self, request: base.ModelRequest, body: Json, said: "_Said"
    ) -> AsyncIterator[str]:
        try:
            async for chunk in self._runtime.chunks({**body, **request.settings.extra}):
                if piece := said.take(chunk, self):
                    yield piece
        except (ValueError, TypeError) as error:
            # So the runtime says that it cannot work with a schema or a setting.
            raise ModelRefused(f"{self.name} cannot be asked this: {str(error)[:300]}") from None
        if said.stop is None:
            raise ModelGarbled(f"{self.name} broke off before its end; try again")


class _Said:
    """A reply in the making."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.text = ""
        self.usage = NO_USAGE
        self.stop: base.StopReason | None = None

    def take(self, chunk: Json, model: LocalModel) -> str:
        if error := chunk.get("error"):
            raise _failure(error, model)
        if counts := chunk.get("usage"):
            cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage = Usage(
                calls=1,
                tokens_in=counts.get("prompt_tokens", 0),
                tokens_out=counts.get("completion_tokens", 0),
                cache_read=cached,
            )
        piece = ""
        for choice in chunk.get("choices") or ():
            piece += choice.get("delta", {}).get("content") or ""
            if reason := choice.get("finish_reason"):
                self.stop = base.StopReason.LENGTH if reason == "length" else base.StopReason.END
        self.text += piece
        return piece

    def reply(
        self, parts: Sequence[base.Part], stop: base.StopReason | None = None
    ) -> base.ModelReply:
        return base.ModelReply(
            parts=tuple(parts),
            stop=stop or self.stop or base.StopReason.END,
            usage=self.usage,
            model=self.model,
        )


def open_model(name: str) -> LocalModel:
    """The model `local:name`: one that was fetched by its name, or a path to weights in GGUF."""
    path = path_of(name)
    return LocalModel(path, name=name if path.name != name else "")


def _failure(error: Json, model: LocalModel) -> ModelError:
    words = str(error.get("message", error))[:300]
    if error.get("type") == "exceed_context_size_error":
        return ModelRefused(
            f"{model.name} has a context of {model.context} tokens, and this is "
            f"{error.get('n_prompt_tokens', 'more')}; make the request shorter, or open the model "
            "with a larger context"
        )
    return ModelRefused(f"{model.name} cannot be asked this: {words}")


# From a request to the runtime's own form


def _body(request: base.ModelRequest, schema: Json | None) -> Json:
    settings = request.settings
    body: Json = {
        "messages": _messages(request),
        "max_tokens": MOST_TOKENS if settings.max_tokens == _USUAL else settings.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # told between batches: where a long prompt can be given up
    }
    body |= settings.given("temperature", "top_p", "seed", "stop")
    if schema is not None:
        body["json_schema"] = closed(schema)
    return body


def _messages(request: base.ModelRequest) -> list[Json]:
    messages: list[Json] = []
    for turn in request.turns:
        _add(messages, turn.role.chat_name, _words(turn))
    if request.tools and request.choice != "none":
        if not messages or messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["content"] = f"{messages[0]['content']}\n{instructions(request)}".strip()
    return messages


def _add(messages: list[Json], role: str, content: str) -> None:
    """Many templates want the two to speak in turn, so one who goes on speaks on."""
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] += f"\n{content}"
    else:
        messages.append({"role": role, "content": content})


def _words(turn: base.Turn) -> str:
    outputs = [part for part in turn.parts if isinstance(part, base.ToolOutput)]
    words = [_words_of(part) for part in turn.parts if not isinstance(part, base.ToolOutput)]
    return "\n".join([*filter(None, words), *([told(outputs)] if outputs else [])])


def _words_of(part: base.Part) -> str:
    match part:
        case base.Text(text=text):
            return text
        case base.ToolCall():
            return call_text(part)
        case base.File() if (quoted := part.quoted) is not None:
            return quoted
        case base.File(name=name):
            raise ModelRefused(f"local models read text only, not {name}; give its text")
        case base.Image():
            raise ModelRefused("local models see no images; leave them out, or use another model")
    return ""  # what is opaque is another provider's


def _is_known(call: base.ToolCall, turns: Sequence[base.Turn]) -> bool:
    """Whether this call was made before, and a tool has answered it."""
    failed = {p.id for t in turns for p in t.parts if isinstance(p, base.ToolOutput) and p.is_error}
    before = [
        p for t in turns for p in t.parts if isinstance(p, base.ToolCall) and p.id not in failed
    ]
    return any(
        made.name == call.name and _compact(made.arguments) == _compact(call.arguments)
        for made in before
    )


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _compact(arguments: str) -> str:
    return "".join(arguments.split())
