"""Models that users write themselves: what is missing is said when they are handed over, and a wrong reply at once."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

import chargehand as ch
from chargehand.models.base import Abilities, ModelReply, ModelRequest, StopReason, Text
from chargehand.patterns.pool import AgentConfig

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
