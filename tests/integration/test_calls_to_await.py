"""A worker that calls its brief without `await` fails, and nothing that rests on the call is done."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import chargehand as ch
from chargehand.engines.brief import Brief
from chargehand.facts.value import Value
from tests.guide.conftest import make_plan, make_task

TIMES: list[str] = []


@pytest.fixture(autouse=True)
def _clean() -> None:
    TIMES.clear()


async def outcome_of(
    function: Callable[[ch.Brief], Any], *, process: bool = False
) -> ch.TaskResult:
    worker = ch.worker("w", "Works", process=process)(function)
    async with ch.Supervisor([worker]) as boss:
        return (await boss.run(make_plan(make_task("t", "w")))).tasks["t"]


def asks_and_sends(brief: ch.Brief) -> str:
    if brief.ask("May I send it?", choices=["yes", "no"]) != "no":  # type: ignore[comparison-overlap]  # the fault
        TIMES.append("sent")
        return "sent"
    return "not sent"


async def sends_in_a_step(brief: ch.Brief) -> str:
    brief.step("send", TIMES.append, "sent")  # type: ignore[unused-coroutine]  # the fault
    return "sent"


def posts(brief: ch.Brief) -> str:
    brief.board.post("sent")  # type: ignore[unused-coroutine]  # the fault
    return "sent"


@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
@pytest.mark.parametrize(
    ("function", "call"),
    [
        (asks_and_sends, "brief.ask('May I send it?')"),
        (sends_in_a_step, "brief.step('send')"),
        (posts, "brief.board.post('sent')"),
    ],
)
async def test_a_call_that_is_not_awaited_fails_the_attempt(
    function: Callable[[ch.Brief], Any], call: str, *, process: bool
) -> None:
    """In a thread, on the event loop and in a process of its own; and it is not tried again."""
    task = await outcome_of(function, process=process)
    assert task.error is not None
    assert (task.error.kind, task.error.error) == ("logic", "NotAwaited")
    assert f"{call} was not awaited" in task.error.message
    assert ("make the worker `async def`" in task.error.message) == (
        not asyncio.iscoroutinefunction(function)
    )
    assert task.attempts == 1
    assert TIMES == []


@pytest.mark.parametrize(
    "use",
    [
        lambda call: bool(call),
        lambda call: call == "yes",
        lambda call: "yes" != call,  # noqa: SIM300 - the other way round, too
        lambda call: f"{call}",
        lambda call: str(call),
        lambda call: list(call),
        lambda call: "y" in call,
        lambda call: call in ("yes", "no"),
        lambda call: call["answer"],
        lambda call: call.strip(),
        lambda call: "It is " + call,
        lambda call: int(call),
        lambda call: call > 3,
    ],
)
async def test_a_call_cannot_be_taken_for_its_result(use: Callable[[Any], Any]) -> None:
    """The worker stops there, before it does anything."""

    def hasty(brief: ch.Brief) -> str:
        TIMES.append(str(use(brief.ask("Which?"))))
        return "done"

    task = await outcome_of(hasty)
    assert "brief.ask('Which?') was not awaited" in task.why
    assert "`brief.wait(brief.ask(…))`" in task.why
    assert (task.attempts, TIMES) == (1, [])


async def test_a_worker_that_catches_the_refusal_has_failed_all_the_same() -> None:
    async def stubborn(brief: ch.Brief) -> str:
        try:
            return str(brief.ask("Which?"))
        except ch.UsageError:
            return "any"

    assert "was not awaited" in (await outcome_of(stubborn)).why


async def test_a_failure_of_its_own_is_told_as_it_is() -> None:
    async def breaks(brief: ch.Brief) -> str:
        brief.step("send", TIMES.append, 1)  # type: ignore[unused-coroutine]  # the fault
        raise ch.WorkerError("the sky is falling", kind="denied")

    assert (await outcome_of(breaks)).why == "denied: the sky is falling"


async def test_what_was_spent_counts_all_the_same() -> None:
    async def spends(brief: ch.Brief) -> object:
        brief.step("send", TIMES.append, 1)  # type: ignore[unused-coroutine]  # the fault
        return ch.Done(Value.of("sent"), usage=ch.Usage(calls=3))

    error = (await outcome_of(spends)).error
    assert error is not None
    assert (error.error, error.usage.calls) == ("NotAwaited", 3)


async def test_calls_may_be_awaited_by_others() -> None:
    """By `gather`, a task, a task group, `wait_for`, and later than they were made."""

    async def gathers(brief: ch.Brief) -> list[object]:
        later = [brief.step("later", str, number) for number in (1, 2)]
        both = await asyncio.gather(brief.step("a", str, 3), asyncio.create_task(later[0]))
        async with asyncio.TaskGroup() as group:
            last = group.create_task(brief.step("b", str, 4))
        timed = await asyncio.wait_for(brief.step("c", str, 5), 60)
        first = [await each for each in asyncio.as_completed([later[1]])]
        note = await brief.board.post("said")
        return [*both, last.result(), timed, *first, note.content]

    task = await outcome_of(gathers)
    assert task.output == ["3", "1", "4", "5", "2", "said"]


async def test_a_task_of_a_call_can_be_described() -> None:
    """As asyncio does in its logs, and in the signal handlers of `asyncio.run`."""

    async def describes(brief: ch.Brief) -> str:
        task = asyncio.create_task(brief.step("a", str, 3))
        told = repr(task)
        await task
        return f"{told} {task!r}"

    assert "coro=<" in str((await outcome_of(describes)).output)


async def test_a_call_that_was_cancelled_before_it_began_is_not_missed() -> None:
    async def changes_its_mind(brief: ch.Brief) -> str:
        sending = asyncio.create_task(brief.step("send", TIMES.append, 1))
        sending.cancel()
        await asyncio.wait([sending])
        return "not sent"

    assert (await outcome_of(changes_its_mind)).output == "not sent"


def test_a_worker_that_calls_nothing_keeps_nothing() -> None:
    brief = Brief("r", make_task("t", "w"), 1, "w", {}, None)
    assert brief.drop_pending() is None
    assert brief._pending is None
