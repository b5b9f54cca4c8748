"""Any model of Pydantic AI behind our port, with its own models for tests as the other side."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai", reason="needs pydantic-ai-slim: pip install chargehand[pydantic-ai]"
)

from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelConnectionError,
    ModelHTTPError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from chargehand.errors import (
    ModelBusy,
    ModelDenied,
    ModelError,
    ModelGarbled,
    ModelRefused,
    ModelTooSlow,
    ModelUnknown,
    ModelUnreachable,
    RealModelForbidden,
    UsageError,
)
from chargehand.models.base import (
    File,
    Image,
    ModelReply,
    ModelRequest,
    ModelSettings,
    Opaque,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolOutput,
    ToolSpec,
    Turn,
    system,
    user,
)
from chargehand.models.call_ban import forbid_real_models
from chargehand.models.open_model import open_model as open_any
from chargehand.models.pydantic_ai import PydanticAIModel

Heard = tuple[list[theirs.ModelMessage], AgentInfo]
ADD = ToolSpec(
    "add",
    "Adds two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)


def answering(
    *parts: theirs.ModelResponsePart, heard: list[Heard] | None = None, **more: Any
) -> PydanticAIModel:
    """A model that answers so, and notes what it was asked."""

    def answer(messages: list[theirs.ModelMessage], info: AgentInfo) -> theirs.ModelResponse:
        if heard is not None:
            heard.append((messages, info))
        return theirs.ModelResponse(parts=list(parts), **more)

    return PydanticAIModel(FunctionModel(answer))


def failing(error: Exception) -> PydanticAIModel:
    def answer(_: list[theirs.ModelMessage], __: AgentInfo) -> theirs.ModelResponse:
        raise error

    return PydanticAIModel(FunctionModel(answer))


def asking(text: str = "Hello", **more: Any) -> ModelRequest:
    return ModelRequest(turns=(user(text),), **more)


# There and back


async def test_it_chats() -> None:
    model = PydanticAIModel(TestModel(custom_output_text="Good day."))
    reply = await model.ask(asking())
    assert (reply.text, reply.stop, reply.model) == ("Good day.", StopReason.END, "test")
    assert reply.usage.calls == 1
    assert reply.usage.tokens_in > 0
    assert model.name == "pydantic_ai:test:test"
    assert not model.abilities.is_real


async def test_turns_arrive_in_their_own_roles() -> None:
    heard: list[Heard] = []
    turns = (
        system("Be brief."),
        user(
            "Add.",
            Image(url="https://example.org/a.png"),
            Image(data=base64.b64encode(b"x").decode()),
        ),
        Turn(Role.MODEL, (Text("I will."), ToolCall("1", "add", '{"a": 1}'))),
        Turn(Role.TOOL, (ToolOutput("1", "add", "2"), ToolOutput("2", "add", "no", is_error=True))),
    )
    await answering(theirs.TextPart("2"), heard=heard).ask(ModelRequest(turns=turns))
    ((messages, _),) = heard
    first, asked, answered, returned = messages
    assert isinstance(first.parts[0], theirs.SystemPromptPart)
    prompt = asked.parts[0]
    assert isinstance(prompt, theirs.UserPromptPart)
    assert [type(each).__name__ for each in prompt.content] == ["str", "ImageUrl", "BinaryContent"]
    assert [part.part_kind for part in answered.parts] == ["text", "tool-call"]
    results = [part for part in returned.parts if isinstance(part, theirs.ToolReturnPart)]
    assert [(part.content, part.outcome) for part in results] == [
        ("2", "success"),
        ("Error: no", "failed"),
    ]


async def test_tools_are_offered_and_called() -> None:
    heard: list[Heard] = []
    model = answering(theirs.ToolCallPart("add", {"a": 3}, "c1"), heard=heard)
    reply = await model.ask(asking(tools=(ADD,), choice="add"))
    assert reply.stop is StopReason.TOOLS
    (call,) = reply.calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("c1", "add", {"a": 3})
    info = heard[0][1]
    (tool,) = info.function_tools
    assert (tool.name, tool.parameters_json_schema) == ("add", ADD.parameters)
    assert info.model_settings is not None
    assert info.model_settings.get("tool_choice") == ["add"]


async def test_settings_are_passed_on() -> None:
    heard: list[Heard] = []
    settings = ModelSettings(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("x",),
        extra={"logit_bias": {"1": 2}},
    )
    await answering(theirs.TextPart("ok"), heard=heard).ask(asking(settings=settings))
    sent = heard[0][1].model_settings
    assert sent is not None
    assert {name: sent.get(name) for name in ("max_tokens", "temperature", "top_p", "seed")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
    }
    assert sent.get("stop_sequences") == ["x"]
    assert sent.get("logit_bias") == {"1": 2}


async def test_a_schema_reaches_the_model() -> None:
    heard: list[Heard] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = answering(theirs.TextPart('{"n": 1}'), heard=heard)
    assert (await model.ask(asking(schema=schema))).text == '{"n": 1}'
    output = heard[0][1].model_request_parameters.output_object
    assert output is not None
    assert output.json_schema == schema


async def test_what_only_the_provider_understands_comes_back_to_it_whole() -> None:
    thinking = theirs.ThinkingPart("hm", id="t", signature="sealed", provider_name="function")
    heard: list[Heard] = []
    model = answering(thinking, theirs.TextPart("So."), heard=heard)
    reply = await model.ask(asking())
    assert [type(part) for part in reply.parts] == [Text, Opaque]
    await model.ask(ModelRequest(turns=(user("Hello"), reply.turn, user("And now?"))))
    returned = heard[1][0][1]
    assert isinstance(returned, theirs.ModelResponse)
    assert returned.parts[0] == thinking


async def test_usage_is_counted() -> None:
    usage = RequestUsage(
        input_tokens=10, output_tokens=4, cache_read_tokens=3, cache_write_tokens=2
    )
    spent = (await answering(theirs.TextPart("ok"), usage=usage).ask(asking())).usage
    assert (spent.tokens_in, spent.tokens_out) == (10, 4)
    assert (spent.cache_read, spent.cache_written) == (3, 2)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", StopReason.END),
        ("length", StopReason.LENGTH),
        ("content_filter", StopReason.REFUSAL),
        (None, StopReason.END),
    ],
)
async def test_the_reason_why_it_ended_is_kept(reason: Any, stop: StopReason) -> None:
    reply = await answering(theirs.TextPart("ok"), finish_reason=reason).ask(asking())
    assert reply.stop is stop


# Streaming


async def test_a_stream_gives_pieces_and_the_whole() -> None:
    async def say(_: list[theirs.ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for piece in ("Good", " ", "day"):
            yield piece

    model = PydanticAIModel(FunctionModel(stream_function=say))
    pieces = [piece async for piece in model.stream(asking())]
    assert pieces[:-1] == ["Good", " ", "day"]
    assert isinstance(pieces[-1], ModelReply)
    assert pieces[-1].text == "Good day"


async def test_calls_can_be_streamed() -> None:
    async def call(
        _: list[theirs.ModelMessage], __: AgentInfo
    ) -> AsyncIterator[dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall(name="add", json_args='{"a"', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args=": 1}")}

    model = PydanticAIModel(FunctionModel(stream_function=call))
    *_, reply = [piece async for piece in model.stream(asking(tools=(ADD,)))]
    assert isinstance(reply, ModelReply)
    assert reply.stop is StopReason.TOOLS
    assert json.loads(reply.calls[0].arguments) == {"a": 1}


# Failing


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelHTTPError(429, "m", {"error": "slow down"}), ModelBusy),
        (ModelHTTPError(529, "m"), ModelBusy),
        (ModelHTTPError(401, "m", "wrong key sk-abcdefghijkl"), ModelDenied),
        (ModelHTTPError(504, "m"), ModelTooSlow),
        (ModelHTTPError(500, "m"), ModelUnreachable),
        (ModelHTTPError(400, "m", "too long"), ModelRefused),
        (ModelHTTPError(404, "m"), ModelUnknown),
        (ModelTimeoutError("m", "slow"), ModelTooSlow),
        (ModelConnectionError("m", "refused"), ModelUnreachable),
        (UnexpectedModelBehavior("nonsense"), ModelGarbled),
        (UserError("cannot"), ModelRefused),
    ],
)
async def test_its_errors_become_ours(error: Exception, kind: type[ModelError]) -> None:
    with pytest.raises(kind) as raised:
        await failing(error).ask(asking())
    assert type(raised.value) is kind
    assert "sk-abcdefghijkl" not in str(raised.value)


async def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    error = ModelHTTPError(429, "m", headers={"Retry-After": "7"})
    with pytest.raises(ModelBusy) as raised:
        await failing(error).ask(asking())
    assert raised.value.retry_after == timedelta(seconds=7)


async def test_what_a_filter_stops_is_a_refusal() -> None:
    reply = await failing(ContentFilterError("not this")).ask(asking())
    assert (reply.stop, reply.text) == (StopReason.REFUSAL, "not this")


async def test_bytes_that_are_none_are_refused() -> None:
    request = ModelRequest(turns=(user("?", File("a.pdf", "%%%")),))
    with pytest.raises(ModelRefused, match=r"a\.pdf"):
        await answering(theirs.TextPart("ok")).ask(request)


async def test_a_real_model_is_not_called_where_that_is_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = answering(theirs.TextPart("ok"))
    monkeypatch.setattr(FunctionModel, "system", property(lambda _: "some-provider"))
    real = PydanticAIModel(model._model)
    assert real.abilities.is_real
    with forbid_real_models(), pytest.raises(RealModelForbidden):
        await real.ask(asking())


@pytest.mark.parametrize("name", ["nobody:nothing", "nonsense"])
def test_a_name_that_it_does_not_know_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        open_any(f"pydantic_ai:{name}")


def test_its_test_model_opens_by_name() -> None:
    opened: Callable[[str], object] = open_any
    assert isinstance(opened("pydantic_ai:test"), PydanticAIModel)
