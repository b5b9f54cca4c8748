"""One suite for workers with a mind, over every kind of model that can be told what to say."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import chargehand as ch
from chargehand.models.base import Model, ModelReply, StopReason, Text, ToolCall
from chargehand.models.pydantic_ai import PydanticAIModel
from chargehand.testing.model_server import ModelServer, Say, Status, model_server
from tests.guide.conftest import make_plan, make_task

Line = str | tuple[ToolCall, ...] | StopReason


class Stage(Protocol):
    """A model and how to tell it its lines."""

    @property
    def model(self) -> Model: ...

    def say(self, *lines: Line) -> None: ...

    @property
    def asked(self) -> int: ...


class ScriptedStage:
    def __init__(self) -> None:
        self._lines: list[Line] = []
        self.model = ch.ScriptedModel(self._next for _ in range(100))

    def say(self, *lines: Line) -> None:
        self._lines += lines

    def _next(self, request: object) -> "str | ModelReply | tuple[ToolCall, ...]":
        line = self._lines.pop(0)
        if isinstance(line, StopReason):
            return ModelReply(parts=(Text("half"),), stop=line)
        return line

    @property
    def asked(self) -> int:
        return len(self.model.requests)


class ServerStage:
    def __init__(self, server: ModelServer, name: str, protocol: str) -> None:
        self.server = server
        self.model = ch.open_model(
            name,
            base_url=base_of(server, protocol),
            key="k" * 20,
            protocol=protocol,  # type: ignore[arg-type]  # one of the literals, from the table below
        )

    def say(self, *lines: Line) -> None:
        for line in lines:
            if isinstance(line, StopReason):
                refusal = "I will not." if line is StopReason.REFUSAL else ""
                text = "" if refusal else "half"
                self.server.say(Say(text=text, stop=line.value, refusal=refusal))
            elif isinstance(line, str):
                self.server.say(Say(text=line))
            else:
                self.server.say(Say(calls=line))

    @property
    def asked(self) -> int:
        return len(self.server.requests)


class PydanticStage:
    """Its models are asked through ours; what they say is told by a function."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self.asked = 0
        self.model = PydanticAIModel(FunctionModel(self._next))

    def say(self, *lines: Line) -> None:
        self._lines += lines

    def _next(self, messages: object, info: object) -> ModelResponse:
        self.asked += 1
        line = self._lines.pop(0)
        if isinstance(line, StopReason):
            why = "length" if line is StopReason.LENGTH else "content_filter"
            return ModelResponse(parts=[TextPart("half")], finish_reason=why)  # type: ignore[arg-type]
        if isinstance(line, str):
            return ModelResponse(parts=[TextPart(line)])
        calls = [ToolCallPart(call.name, call.arguments, call.id) for call in line]
        return ModelResponse(parts=calls)


def base_of(server: ModelServer, protocol: str) -> str:
    return server.url if protocol == "anthropic" else f"{server.url}/v1"


STAGES = {
    "scripted": ("", ""),
    "pydantic_ai": ("", ""),
    "openai": ("openai:gpt-4o", "chat"),
    "responses": ("openai:gpt-5", "responses"),
    "anthropic": ("anthropic:claude-sonnet-5", "anthropic"),
}


@pytest.fixture(params=STAGES)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    name, protocol = STAGES[request.param]
    if not name:
        yield ScriptedStage() if request.param == "scripted" else PydanticStage()
        return
    async with model_server() as server:
        yield ServerStage(server, name, protocol)


@ch.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


@ch.tool(effect="pure")
async def fail(why: str) -> None:
    """Always fails."""
    raise RuntimeError(why)


def call(name: str, id_: str = "c1", **arguments: object) -> tuple[ToolCall, ...]:
    return (ToolCall(id_, name, json.dumps(arguments)),)


async def ask(stage: Stage, *lines: Line, **more: object) -> ch.TaskResult:
    """What comes of one task by a worker with two tools that hears these lines."""
    stage.say(*lines)
    options: dict[str, object] = {"tools": [add, fail], **more.pop("worker", {})}  # type: ignore[dict-item]
    mind = ch.Worker("mind", "Thinks", model=stage.model, **options)  # type: ignore[arg-type]
    task = make_task("only", "mind", limits=ch.TaskLimits(attempts=1), **more)
    async with ch.Supervisor([mind]) as boss:
        return (await boss.run(make_plan(task))).tasks["only"]


async def test_a_plain_answer_is_the_result(stage: Stage) -> None:
    assert (await ask(stage, "  The answer is 4.\n")).output == "The answer is 4."


async def test_a_tool_is_called_and_its_output_goes_back(stage: Stage) -> None:
    result = await ask(stage, call("add", a=2, b=3), "It is 5.")
    assert result.output == "It is 5."
    assert stage.asked == 2


async def test_tools_called_side_by_side_all_answer(stage: Stage) -> None:
    both = (*call("add", "c1", a=1, b=1), *call("add", "c2", a=2, b=2))
    assert (await ask(stage, both, "2 and 4.")).output == "2 and 4."


async def test_a_tools_error_goes_back_to_the_model(stage: Stage) -> None:
    result = await ask(stage, call("fail", why="no ink"), "There was no ink.")
    assert result.output == "There was no ink."


@pytest.mark.parametrize(
    "wrong",
    [
        (ToolCall("c1", "add", '{"a": 1'),),
        (ToolCall("c1", "add", '{"a": "x", "b": 2}'),),
        (ToolCall("c1", "add", "[]"),),
        (ToolCall("c1", "subtract", '{"a": 1, "b": 2}'),),
    ],
)
async def test_d8_wrong_calls_are_refused_with_a_reason_and_not_executed(
    stage: Stage, wrong: tuple[ToolCall, ...]
) -> None:
    result = await ask(stage, wrong, "I give up.")
    assert result.output == "I give up."


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (StopReason.REFUSAL, "Refused"),
        (StopReason.LENGTH, "Truncated"),
        ("   ", "EmptyReply"),
    ],
)
async def test_d9_what_is_no_answer_has_a_name_of_its_own(
    stage: Stage, line: Line, error: str
) -> None:
    # Where it was cut off it is asked for fewer words, once.
    result = await ask(stage, *[line] * (2 if line is StopReason.LENGTH else 1))
    assert result.error is not None
    assert result.error.error == error


async def test_a_reply_that_was_cut_off_is_asked_for_in_fewer_words(stage: Stage) -> None:
    result = await ask(stage, StopReason.LENGTH, "Four.")
    assert result.output == "Four."


async def test_a_worker_says_by_a_call_of_its_own_that_it_cannot(stage: Stage) -> None:
    result = await ask(stage, call("cannot", reason="there is no file", missing="prices.csv"))
    assert result.error is not None
    assert (result.error.error, result.error.kind) == ("Cannot", "logic")
    assert "there is no file (missing: prices.csv)" in result.error.message
    assert stage.asked == 1


async def test_g13_the_same_call_three_times_is_no_progress(stage: Stage) -> None:
    same = call("add", a=1, b=1)
    result = await ask(stage, same, same, same, "never heard")
    assert result.error is not None
    assert result.error.error == "NoProgress"
    assert stage.asked == 3


async def test_turns_are_capped(stage: Stage) -> None:
    lines = [call("add", a=n, b=1) for n in range(5)]
    mind = ch.Worker("mind", "Thinks", model=stage.model, tools=[add])
    stage.say(*lines)
    task = make_task("only", "mind", limits=ch.TaskLimits(attempts=1, turns=3))
    async with ch.Supervisor([mind]) as boss:
        result = (await boss.run(make_plan(task))).tasks["only"]
    assert result.error is not None
    assert result.error.error == "TooManyTurns"
    assert stage.asked == 3


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


async def test_a_result_is_held_to_its_schema_and_repaired(stage: Stage) -> None:
    result = await ask(stage, "four", '{"n": "four"}', '{"n": 4}', output=SCHEMA)
    assert result.output == {"n": 4}
    assert stage.asked == 3


async def test_d7_a_result_that_never_fits_fails_after_bounded_repairs(stage: Stage) -> None:
    result = await ask(stage, *["four"] * 9, output=SCHEMA)
    assert result.error is not None
    assert result.error.error == "ResultRefused"
    assert stage.asked == 3


async def test_a_result_is_accepted_by_its_rule(stage: Stage) -> None:
    verdicts = ['{"met": false, "why": "no date"}', '{"met": true, "why": "has one"}']
    lines = ["It was long ago.", verdicts[0], "It was in 1969.", verdicts[1]]
    result = await ask(stage, *lines, accept="names a year", worker={"tools": []})
    assert result.output == "It was in 1969."


async def test_rules_are_enforced_whatever_the_model_wants(stage: Stage) -> None:
    rules = [ch.RequiredRule("add"), ch.MaxCountRule("add", 1)]
    calls = [call("add", "c1", a=1, b=1), call("add", "c2", a=2, b=2)]
    lines: list[Line] = ["done", *calls, "really done"]
    result = await ask(stage, *lines, worker={"rules": rules})
    assert result.output == "really done"


async def test_a_terminal_tool_ends_the_work_with_its_output(stage: Stage) -> None:
    result = await ask(stage, call("add", a=20, b=22), worker={"rules": [ch.TerminalRule("add")]})
    assert result.output == "42"
    assert stage.asked == 1


async def test_what_was_spent_is_counted(stage: Stage) -> None:
    stage.say(call("add", a=1, b=2), "3")
    mind = ch.Worker("mind", "Thinks", model=stage.model, tools=[add])
    async with ch.Supervisor([mind]) as boss:
        usage = (await boss.run(make_plan(make_task("only", "mind")))).usage
    assert usage.calls == 2
    assert usage.tokens_in > 0
    assert usage.tokens_out > 0


async def test_a_resumed_worker_asks_nothing_twice(stage: Stage, tmp_path: Path) -> None:
    """Stopped between two tool calls: neither the model nor a tool is asked again for what it gave."""
    calls: list[str] = []
    may_end = asyncio.Event()

    @ch.tool(effect="once")
    async def pay(what: str) -> str:
        """Pay for something."""
        calls.append(what)
        return "paid"

    @ch.tool(effect="pure")
    async def wait(what: str) -> str:
        """Wait for something."""
        calls.append(what)
        await may_end.wait()
        return "waited"

    def workers() -> list[ch.Worker]:
        return [ch.Worker("mind", "Thinks", model=stage.model, tools=[pay, wait])]

    stage.say(call("pay", what="rent"), call("wait", "c2", what="post"), "All done.")
    journal = tmp_path / "runs.db"
    async with ch.Supervisor(workers(), journal=journal) as boss:
        begun = asyncio.Event()

        @boss.on(ch.events.StepStarted)
        def note(run: str, event: ch.Event) -> None:
            if isinstance(event, ch.events.StepStarted) and event.name == "tool wait":
                begun.set()

        run = await boss.submit(make_plan(make_task("only", "mind")))
        await begun.wait()
        await boss.stop(grace=ch.Limits().grace * 0)
    may_end.set()
    async with ch.Supervisor(workers(), journal=journal) as boss:
        result = await boss.resume(run.id)
    assert result.answer.output == "All done."
    assert calls.count("rent") == 1
    assert stage.asked == 3


async def test_an_approval_holds_for_exactly_what_was_shown(stage: Stage) -> None:
    sent: list[str] = []

    @ch.tool(effect="once", approve=True)
    async def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return f"sent to {to}"

    stage.say(call("send", to="ada"), call("send", "c2", to="eve"), "Done.")
    mind = ch.Worker("mind", "Thinks", model=stage.model, tools=[send])
    async with ch.Supervisor([mind]) as boss:
        asked: asyncio.Queue[ch.Question] = asyncio.Queue()

        @boss.on(ch.events.AttemptFinished)
        def note(run: str, event: ch.Event) -> None:
            assert isinstance(event, ch.events.AttemptFinished)
            if isinstance(event.outcome, ch.NeedsInput):
                asked.put_nowait(event.outcome.question)

        run = await boss.submit(make_plan(make_task("only", "mind")))
        first = await asked.get()
        assert first.evidence.read()["arguments"] == '{"to":"ada"}'
        await boss.answer(first.id, "approve")
        second = await asked.get()
        assert second.id != first.id
        await boss.answer(second.id, "reject")
        result = await run.wait()
    assert sent == ["ada"]
    assert result.answer.output == "Done."


async def test_d12_a_key_that_is_refused_is_tried_once_for_all_tasks() -> None:
    async with model_server() as server:
        server.always = Status(status=401, kind="authentication_error")
        model = ch.open_model("openai:gpt-4o", base_url=base_of(server, "chat"), key="k" * 20)
        mind = ch.Worker("mind", "Thinks", model=model)
        async with ch.Supervisor([mind], parallel=1) as boss:
            tasks = [make_task(f"t{n}", "mind") for n in range(5)]
            result = await boss.run(make_plan(*tasks))
        assert len(server.requests) == 1
    assert {each.error.kind for each in result.tasks.values() if each.error} == {"denied"}


async def test_the_next_model_is_asked_when_one_cannot_be_had() -> None:
    broken = ch.ScriptedModel([ch.errors.ModelDenied("no key")], name="scripted:broken")
    spare = ch.ScriptedModel(["from the spare"], name="scripted:spare")
    mind = ch.Worker("mind", "Thinks", model=[broken, spare])
    async with ch.Supervisor([mind]) as boss:
        result = await boss.run(make_plan(make_task("only", "mind")))
    assert result.answer.output == "from the spare"


async def test_a_worker_without_a_model_says_what_to_do() -> None:
    boss = ch.Supervisor([ch.Worker("mind", "Thinks")])
    with pytest.raises(ch.UsageError, match="has no model"):
        await boss.run(make_plan(make_task("only", "mind")))
