"""Any model of Pydantic AI as one of ours: `pydantic_ai:provider:model`, or an object of its own."""

import base64
import binascii
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

from msgspec import Raw
from pydantic import TypeAdapter
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from chargehand import errors
from chargehand.facts.http_statuses import BUSY, DENIED, GONE, TOO_SLOW
from chargehand.facts.outcome import Usage
from chargehand.models import base
from chargehand.models.call_ban import refuse_if_forbidden
from chargehand.models.provider_errors import lasting_kind, retry_after_in, without_keys

_RESPONSE: TypeAdapter[theirs.ModelResponse] = TypeAdapter(theirs.ModelResponse)
_UNREAL = ("test", "function")
_WORDS = 400


class PydanticAIModel:
    """A model of Pydantic AI, behind our port.

    What its provider wants back unchanged, such as signed thinking, travels as an opaque block.
    Its own retries are switched off where it can do so: retrying is decided above.
    """

    def __init__(self, model: TheirModel) -> None:
        self._model = model
        system = model.system
        self.name = f"pydantic_ai:{system}:{model.model_name}"
        self.account = base.account_of(f"pydantic_ai:{system}", str(model.base_url or ""))
        self.abilities = base.Abilities(
            tools=bool(model.profile.get("supports_tools", True)),
            schema=bool(model.profile.get("supports_json_schema_output", False)),
            is_real=system not in _UNREAL,
        )

    def __repr__(self) -> str:
        return f"<PydanticAIModel {self.name}>"

    async def ask(self, request: base.ModelRequest) -> base.ModelReply:
        self._check(request)
        try:
            with self._classing_errors():
                response = await self._model.request(*self._translated(request))
        except ContentFilterError as error:
            return _refusal(str(error))
        return self._reply(response)

    async def stream(self, request: base.ModelRequest) -> AsyncIterator[str | base.ModelReply]:
        self._check(request)
        try:
            with self._classing_errors():
                async with self._model.request_stream(*self._translated(request)) as streamed:
                    async for event in streamed:
                        if piece := _piece(event):
                            yield piece
                    response = streamed.get()
        except ContentFilterError as error:
            yield _refusal(str(error))
            return
        yield self._reply(response)

    def _check(self, request: base.ModelRequest) -> None:
        if self.abilities.is_real:
            refuse_if_forbidden(self.name)
        if request.tools and not self.abilities.tools:
            raise errors.ModelRefused(f"{self.name} can call no tools; leave them out")

    def _translated(
        self, request: base.ModelRequest
    ) -> tuple[list[theirs.ModelMessage], TheirSettings, ModelRequestParameters]:
        messages = [_message(turn, self.name) for turn in request.turns]
        if not messages:
            raise errors.ModelRefused(f"{self.name} was asked nothing; give it at least one turn")
        return messages, self._settings(request), _parameters(request, self.abilities)

    def _settings(self, request: base.ModelRequest) -> TheirSettings:
        settings = _settings(request.settings)
        if "max_retries" not in self._model.unsupported_settings:
            settings["max_retries"] = 0
        if request.tools and request.choice != "auto":
            fixed = request.choice in ("none", "required")
            chosen = cast(Literal["none", "required"], request.choice)
            settings["tool_choice"] = chosen if fixed else [request.choice]
        return settings

    def _reply(self, response: theirs.ModelResponse) -> base.ModelReply:
        parts: list[base.Part] = []
        for part in response.parts:
            match part:
                case theirs.TextPart(content=text):
                    if text:
                        parts.append(base.Text(text))
                case theirs.ToolCallPart():
                    arguments = part.args_as_json_str()
                    parts.append(base.ToolCall(part.tool_call_id, part.tool_name, arguments))
        if _has_more(response):
            parts.append(base.Opaque(self.name, Raw(_RESPONSE.dump_json(response))))
        return base.ModelReply(
            parts=tuple(parts),
            stop=_stop(response),
            usage=_usage(response),
            model=response.model_name or self._model.model_name,
        )

    @contextmanager
    def _classing_errors(self) -> Iterator[None]:
        try:
            yield
        except ContentFilterError:
            raise
        except (ModelAPIError, ModelRequestTimeout, UnexpectedModelBehavior) as error:
            raise _failure(self.name, error) from error
        except (UserError, NotImplementedError) as error:
            raise errors.ModelRefused(
                f"{self.name} cannot be asked this: {_line(error)}"
            ) from error


def open_model(name: str) -> PydanticAIModel:
    """The model that Pydantic AI knows by this name, such as `google:gemini-3-pro`."""
    try:
        return PydanticAIModel(infer_model(name))
    except (UserError, ImportError, ValueError) as error:
        raise errors.UsageError(f"pydantic_ai:{name} cannot be opened: {_line(error)}") from error


# From ours to theirs


def _message(turn: base.Turn, provider: str) -> theirs.ModelMessage:
    if turn.role is base.Role.MODEL:
        return _response(turn, provider)
    parts: list[theirs.ModelRequestPart] = []
    said: list[theirs.UserContent] = []
    for part in turn.parts:
        if isinstance(part, base.ToolOutput):
            parts.append(_output(part))
        elif isinstance(part, base.Text) and turn.role is base.Role.SYSTEM:
            parts.append(theirs.SystemPromptPart(part.text))
        else:
            said += _content(part)
    if said:
        plain = said[0] if len(said) == 1 and isinstance(said[0], str) else said
        parts.append(theirs.UserPromptPart(plain))
    return theirs.ModelRequest(parts=parts)


def _response(turn: base.Turn, provider: str) -> theirs.ModelResponse:
    for part in turn.parts:
        if isinstance(part, base.Opaque) and part.provider == provider:
            return _RESPONSE.validate_json(bytes(part.block))  # the whole of it, as it came
    parts: list[theirs.ModelResponsePart] = []
    for part in turn.parts:
        match part:
            case base.Text(text=text):
                parts.append(theirs.TextPart(text))
            case base.ToolCall(id=id_, name=name, arguments=arguments):
                parts.append(theirs.ToolCallPart(name, arguments or "{}", id_))
    return theirs.ModelResponse(parts=parts)


def _output(output: base.ToolOutput) -> theirs.ToolReturnPart[Any]:
    return theirs.ToolReturnPart(
        output.name,
        output.told,
        output.id,
        outcome="failed" if output.is_error else "success",
    )


def _content(part: base.Part) -> list[theirs.UserContent]:
    match part:
        case base.Text(text=text):
            return [text]
        case base.Image(url=url) if url:
            return [theirs.ImageUrl(url)]
        case base.Image(data=data, media_type=kind):
            return [theirs.BinaryContent(_decoded(data, "an image"), media_type=kind)]
        case base.File() if (quoted := part.quoted) is not None:
            return [quoted]
        case base.File(name=name, data=data, media_type=kind):
            return [theirs.BinaryContent(_decoded(data, name), media_type=kind)]
    return []


def _decoded(data: str, name: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise errors.ModelRefused(
            f"the bytes of {name} are not in base64; encode them so"
        ) from None


def _parameters(request: base.ModelRequest, can: base.Abilities) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.parameters,
        )
        for tool in request.tools
    ]
    is_free = request.choice in ("auto", "none") or not tools
    if request.schema is None:
        return ModelRequestParameters(function_tools=tools, allow_text_output=is_free)
    # Where its provider enforces no schema, Pydantic AI tells it in the prompt.
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if can.schema else "prompted",
        output_object=OutputObjectDefinition(json_schema=request.schema, name="answer"),
        allow_text_output=is_free,
    )


def _settings(ours: base.ModelSettings) -> TheirSettings:
    settings = ours.given("max_tokens", "temperature", "top_p", "seed")
    if ours.stop:
        settings["stop_sequences"] = list(ours.stop)
    if ours.reasoning:
        settings["thinking"] = ours.reasoning  # the same words: low, medium, high
    return cast(TheirSettings, {**settings, **ours.extra})


# From theirs to ours


def _piece(event: theirs.ModelResponseStreamEvent) -> str:
    match event:
        case theirs.PartStartEvent(part=theirs.TextPart(content=text)):
            return text
        case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)):
            return text
    return ""


def _has_more(response: theirs.ModelResponse) -> bool:
    """Whether the response holds what only its provider understands."""
    return any(
        not isinstance(part, (theirs.TextPart, theirs.ToolCallPart))
        or part.provider_details
        or part.id
        for part in response.parts
    )


def _stop(response: theirs.ModelResponse) -> base.StopReason:
    match response.finish_reason:
        case "length":
            return base.StopReason.LENGTH
        case "content_filter":
            return base.StopReason.REFUSAL
        case "error":
            raise errors.ModelGarbled("the provider ended its reply with an error; try again")
    has_calls = any(isinstance(part, theirs.ToolCallPart) for part in response.parts)
    return base.StopReason.TOOLS if has_calls else base.StopReason.END


def _usage(response: theirs.ModelResponse) -> Usage:
    counts = response.usage
    return Usage(
        calls=1,
        tokens_in=counts.input_tokens,
        tokens_out=counts.output_tokens,
        cache_read=counts.cache_read_tokens,
        cache_written=counts.cache_write_tokens,
    )


def _refusal(words: str) -> base.ModelReply:
    return base.ModelReply(
        parts=(base.Text(words),), stop=base.StopReason.REFUSAL, usage=Usage(calls=1)
    )


def _failure(name: str, error: Exception) -> errors.ModelError:
    said = f"{name}: {_line(error)}"
    match error:
        case ModelHTTPError(status_code=status, headers=headers):
            wait = retry_after_in({k.lower(): v for k, v in (headers or {}).items()})
            kind = lasting_kind(status, said, wait) or _by_status(status)
            return kind(said, retry_after=wait, status=status)
        case ModelTimeoutError() | ModelRequestTimeout():
            return errors.ModelTooSlow(said)
        case ModelConnectionError() | ModelAPIError():
            return errors.ModelUnreachable(said)
    return errors.ModelGarbled(said)


def _by_status(status: int) -> type[errors.ModelError]:
    kinds: Sequence[tuple[bool, type[errors.ModelError]]] = (
        (status in BUSY, errors.ModelBusy),
        (status in DENIED, errors.ModelDenied),
        (status in TOO_SLOW, errors.ModelTooSlow),
        (status >= 500, errors.ModelUnreachable),
        (status in GONE, errors.ModelUnknown),
    )
    return next((kind for applies, kind in kinds if applies), errors.ModelRefused)


def _line(error: BaseException) -> str:
    words = without_keys(" ".join(str(error).split()))
    return words if len(words) <= _WORDS else f"{words[: _WORDS - 1]}…"
