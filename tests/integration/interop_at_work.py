"""What the tests of other frameworks share: a plan of one task, people who answer, calls that hang."""

import asyncio
from datetime import timedelta
from typing import Any

import chargehand as ch
from chargehand.models.base import ToolCall
from chargehand.roles.function_worker import FunctionWorker
from chargehand.testing.model_server import Later, Line, Received, Say, Status

AT_ONCE = timedelta(0)
SOON = ch.RetryPolicy(first=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))
KEY = "sk-test-0123456789abcdef"
ADD = ToolCall("call_1", "add", '{"a":1,"b":2}')


#: as often as the gateway asks before it gives up on somebody who is not waited for
DOWN = (Status(status=503),) * 3


def impatient(*workers: FunctionWorker, **more: Any) -> ch.Supervisor:
    """A supervisor that waits for nobody: after a few tries the attempt has failed, and goes on soon."""
    nobody = ch.ModelGateway(patience=AT_ONCE)
    return ch.Supervisor(workers, retry=SOON, gateway=nobody, **more)


class Adder:
    """A tool that remembers how often it was called."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls.append(a + b)
        return a + b


class Hang:
    """A reply that does not come, and when it was asked for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def __call__(self, _: Received) -> Line:
        self.asked.set()
        return Later(seconds=60, line=Say(text="too late"))


def plan_for(worker: str = "clerk", **more: Any) -> ch.Plan:
    task = ch.Task(id="t", description="Add one and two", worker=worker, **more)
    return ch.Plan(goal="A sum", tasks=[task])


async def run(worker: FunctionWorker, plan: ch.Plan | None = None, **limits: Any) -> ch.RunResult:
    """One try, with these limits."""
    boss = impatient(worker, limits=ch.Limits(attempts=1, **limits))
    return await boss.run(plan or plan_for())


async def run_answering(
    worker: FunctionWorker, *answers: str, **more: Any
) -> tuple[ch.RunResult, list[str]]:
    """A run whose questions are answered in this order; also what was asked."""
    boss = impatient(worker, on_question="wait")
    asked: list[str] = []
    replies: list[asyncio.Task[None]] = []
    left = list(answers)

    @boss.on(ch.events.AttemptFinished)
    def reply(_: str, event: ch.events.AttemptFinished) -> None:
        if isinstance(event.outcome, ch.NeedsInput):
            asked.append(event.outcome.question.text)
            answering = boss.answer(event.outcome.question.id, left.pop(0))
            replies.append(asyncio.ensure_future(answering))

    result = await boss.run(plan_for(**more))
    await asyncio.gather(*replies)
    return result, asked


class Interrupted:
    """A tool in the middle of whose call something more urgent arrives, the first time."""

    def __init__(self) -> None:
        self.calls = 0
        self.boss: ch.Supervisor | None = None
        self.urgent: ch.Run | None = None

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.calls += 1
        if self.boss is not None and self.urgent is None:
            task = ch.Task(id="u", description="Put out the fire", worker="fireman")
            plan = ch.Plan(goal="No fire", tasks=[task])
            self.urgent = await self.boss.submit(plan, priority=9)
        return a + b


async def run_preempted(worker: FunctionWorker, tool: Interrupted) -> ch.RunResult:
    """A run of this worker that makes room for another one during a call of the tool."""

    @ch.worker("fireman", "Puts out fires")
    async def fireman(brief: ch.Brief) -> str:
        return "out"

    async with ch.Supervisor([worker, fireman], parallel=1) as boss:
        tool.boss = boss
        result = await boss.run(plan_for())
        assert tool.urgent is not None
        assert (await tool.urgent.wait()).status == "succeeded"
    endings = [attempt.ending for attempt in result.trace.attempts]
    assert endings == ["preempted", "done"]
    return result
