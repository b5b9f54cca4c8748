"""Models that users write themselves: what is missing is said when they are handed over, and a wrong reply at once."""

import asyncio
import math
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

import chargehand as ch
from chargehand.facts.outcome import Usage
from chargehand.models.base import (
    Abilities,
    CallAllowance,
    Image,
    ModelReply,
    ModelRequest,
    Opaque,
    StopReason,
    Text,
    ToolCall,
    ToolOutput,
)
from chargehand.patterns.pool import AgentConfig
from chargehand.testing import FakeClock, run_virtual

WHOLE = ModelReply(parts=(Text("hello"),), stop=StopReason.END)


class Own:
    """As short as a model can be."""

    name = "mine:one"
    account = "mine"
    abilities = Abilities(is_real=False)

    def __init__(self, reply: Any = WHOLE) -> None:
        self.reply = reply
        self.asked = 0

    async def ask(self, request: ModelRequest) -> Any:
        self.asked += 1
        return self.reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        yield "hel"
        yield "lo"
        yield await self.ask(request)


class NotAsync(Own):
    def ask(self, request: ModelRequest) -> Any:
        self.asked += 1
        return self.reply


class NoEnd(Own):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked += 1
        yield "hello"


class Bytes(Own):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.asked += 1
        yield b"hello"


class NotGenerator(Own):
    async def stream(self, request: ModelRequest) -> Any:  # type: ignore[override]  # that is the fault
        return await self.ask(request)


def plan() -> ch.Plan:
    return ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Say hello", worker="w")])


async def outcome(model: Any, *, streams: bool) -> ch.RunResult:
    boss = ch.Supervisor([ch.Worker("w", "Says hello", model=model)])
    async with boss:
        if streams:
            async for _ in boss.stream(plan(), tokens=True):
                pass
            (run,) = await boss.journal.heads()
            return await boss.look(run.stream)
        return await boss.run(plan())


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "stream"])
async def test_a_model_of_five_members_answers(streams: bool) -> None:
    assert (await outcome(Own(), streams=streams)).output == "hello"


async def test_parts_in_a_list_and_a_reason_in_text_are_taken_as_meant() -> None:
    reply = ModelReply(parts=[Text("hello")], stop="end")  # type: ignore[arg-type]  # as many write it
    assert (await outcome(Own(reply), streams=False)).output == "hello"


@pytest.mark.parametrize("missing", ["name", "account", "abilities", "stream"])
def test_what_a_model_lacks_is_said_where_it_is_handed_over(missing: str) -> None:
    members = {name: getattr(Own(), name) for name in ("name", "account", "abilities", "stream")}
    del members[missing]
    model: Any = SimpleNamespace(ask=Own().ask, **members)
    words = f"SimpleNamespace is no Model: it has no {missing}"
    for hand_over in (
        lambda: ch.Worker("w", "Says hello", model=model),
        lambda: ch.Supervisor([], model=["offline", model]),
        lambda: ch.open_model(model),
        lambda: AgentConfig(model=model),
    ):
        with pytest.raises(ch.UsageError, match=words):
            hand_over()


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("name", 5, "must be a text that is not empty"),
        ("name", "", "must be a text that is not empty"),
        ("account", None, "must be a text"),
        ("abilities", None, r"must be Abilities\(…\)"),
        ("ask", None, "must be an async method"),
        ("stream", "text", "must be an async generator method"),
    ],
)
def test_a_member_of_another_kind_is_said_where_the_model_is_handed_over(
    member: str, value: object, why: str
) -> None:
    model = Own()
    setattr(model, member, value)
    with pytest.raises(ch.UsageError, match=rf"worker 'w': Own\.{member} {why}"):
        ch.Worker("w", "Asks", model=model)


def test_the_class_of_a_model_is_no_model() -> None:
    with pytest.raises(ch.UsageError, match=r"Own is a class; give an object of it, as Own\(…\)"):
        ch.Supervisor([], model=Own)  # type: ignore[arg-type]  # that is the fault


@pytest.mark.parametrize(
    ("model", "streams", "words"),
    [
        (Own("hello"), False, "ask of model mine:one returned an object of type str instead of"),
        (Own(ModelReply(parts=(), stop="no")), False, "stop='no', which is no StopReason (end,"),  # type: ignore[arg-type]
        (Own(ModelReply(parts=("hi",), stop=StopReason.END)), False, "type str among its parts"),  # type: ignore[arg-type]
        (Own(ModelReply(parts="hi", stop=StopReason.END)), False, "not a tuple"),  # type: ignore[arg-type]
        (Own(ModelReply(parts=(), stop=StopReason.END, usage=3)), False, "not a Usage"),  # type: ignore[arg-type]
        (NotAsync(), False, "ask of model mine:one is not async"),
        (Own(None), True, "stream of model mine:one returned an object of type NoneType"),
        (NoEnd(), True, "stream of model mine:one ended without a ModelReply"),
        (Bytes(), True, "stream of model mine:one returned an object of type bytes"),
        (NotGenerator(), True, "stream of model mine:one is no async generator"),
    ],
)
async def test_what_is_no_reply_fails_the_task_at_once_and_names_model_and_method(
    model: Own, streams: bool, words: str
) -> None:
    cause = (await outcome(model, streams=streams)).tasks["a"].error
    assert cause is not None
    assert words in cause.message
    assert (cause.error, cause.is_final) == ("InvalidModelReply", True)
    assert model.asked <= 1


class Texts(str):
    __slots__ = ()


def reply_with(*parts: Any, **fields: Any) -> ModelReply:
    return ModelReply(parts=parts or (Text("hello"),), stop=StopReason.END, **fields)


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "stream"])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (reply_with(Text(None)), "Text.text is an object of type NoneType, not a text"),  # type: ignore[arg-type]
        (reply_with(Text(Texts("hello"))), "Text.text is an object of type Texts"),
        (reply_with(ToolCall("1", "look", {})), "ToolCall.arguments is an object of type dict"),  # type: ignore[arg-type]
        (reply_with(ToolCall(1, "look", "{}")), "ToolCall.id is an object of type int"),  # type: ignore[arg-type]
        (reply_with(ToolCall("1", None, "{}")), "ToolCall.name is an object of type NoneType"),  # type: ignore[arg-type]
        (reply_with(Image(data=b"png")), "Image.data is an object of type bytes"),  # type: ignore[arg-type]
        (reply_with(ToolOutput("1", "look", "", is_error=None)), "ToolOutput.is_error is an"),  # type: ignore[arg-type]
        (reply_with(Opaque("mine", b"{}")), "Opaque.block is an object of type bytes"),  # type: ignore[arg-type]
        (reply_with(model=None), "model is an object of type NoneType, not a text"),
        (reply_with(gaps=[None]), "whose gaps are [None], not a tuple of texts"),
        (reply_with(usage=Usage(money=math.nan)), "usage.money is nan, not a number"),
        (reply_with(usage=Usage(tokens_in=9.5)), "usage.tokens_in is 9.5, not a whole number"),  # type: ignore[arg-type]
        (reply_with(usage=Usage(tokens_out=None)), "usage.tokens_out is None, not a whole number"),  # type: ignore[arg-type]
        (reply_with(usage=Usage(cache_read="9")), "usage.cache_read is '9', not a whole number"),  # type: ignore[arg-type]
        (reply_with(allowance=9), "allowance is an object of type int, not a CallAllowance"),
        (reply_with(allowance=CallAllowance(math.nan)), "allowance.requests is nan, not a number"),
    ],
)
async def test_a_field_of_a_wrong_type_is_named_and_the_call_counts(
    reply: ModelReply, words: str, streams: bool
) -> None:
    model = Own(reply)
    result = await outcome(model, streams=streams)
    cause = result.tasks["a"].error
    assert cause is not None
    assert "of model mine:one returned a ModelReply whose" in cause.message
    assert words in cause.message
    assert (cause.error, cause.is_final) == ("InvalidModelReply", True)
    assert (model.asked, result.usage.calls) == (1, 1)


async def test_sound_replies_of_all_kinds_are_taken() -> None:
    reply = reply_with(
        Text("hel"),
        Opaque("mine", Raw(b"{}")),
        Text("lo"),
        usage=Usage(calls=1, tokens_in=9, tokens_out=9, money=1),
        allowance=CallAllowance(60, 1.5),
        gaps=("the end",),
        model="m\ud800",
    )
    result = await outcome(Own(reply), streams=False)
    assert result.output == "hello"


class Raises(Own):
    async def ask(self, request: ModelRequest) -> Any:
        self.asked += 1
        raise self.reply


@pytest.mark.parametrize("cap", [{"calls": 3}, {"tokens": 15_000}], ids=str)
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        ConnectionError("no"),
        ch.WorkerError("no", kind="resource"),
        ch.UsageError("no"),
        SystemExit("no"),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
    ],
    ids=repr,
)
def test_g6_whatever_a_model_raises_its_call_counts(
    error: BaseException, cap: dict[str, int]
) -> None:
    """Nobody knows what it has cost, so that all that was reserved for it counts as spent."""
    model = Raises(error)
    tasks = [ch.Task(id=f"t{n}", description="Say hello", worker="w") for n in range(10)]

    async def main() -> ch.RunResult:
        limits = ch.Limits(**cap)
        worker = ch.Worker("w", "Says hello", model=model)
        async with ch.Supervisor([worker], limits=limits, clock=FakeClock()) as boss:
            return await boss.run(ch.Plan(goal="g", tasks=tasks), on_question="fail")

    result = run_virtual(main())
    assert (model.asked, result.usage.calls) == (3, 3)
    assert result.reason == "over budget"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")], ids=repr)
async def test_a_call_that_raises_counts_where_nothing_is_capped(error: BaseException) -> None:
    model = Raises(error)
    assert (await outcome(model, streams=False)).usage == Usage(calls=model.asked)
