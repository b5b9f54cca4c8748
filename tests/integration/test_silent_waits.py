"""J9: whatever waits longer than a second for a person, a worker, a provider or a time says so, once."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.decisions.explaining import Cause, Wait
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

LATE = 1.3
#: seconds: a second, and the time from one look to the next


@ch.worker("asker", "Asks a person")
async def ask(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


@ch.worker("slow", "Takes long")
async def slow(_: ch.Brief) -> None:
    await asyncio.sleep(20)


@ch.worker("busy", "Is told to come back later, once")
async def busy(brief: ch.Brief) -> str:
    if brief.tries == 0:
        raise ch.WorkerError("full", kind="resource", retry_after=timedelta(seconds=20))
    return "done"


@ch.worker("broken", "Never works")
async def broken(_: ch.Brief) -> None:
    raise ch.WorkerError("no", kind="logic")


@ch.tool(effect="once", approve=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def clerk() -> ch.Worker:
    calls = ch.ScriptedModel([ToolCall("1", "pay", '{"amount": 9}'), "It is paid."])
    return ch.Worker("clerk", "Pays bills", tools=[pay], model=calls)


def inner(_: ch.Brief) -> ch.Plan:
    return make_plan(make_task("in", "asker"))


async def never(_: ch.Supervisor, __: str) -> None:
    pass


async def pause(boss: ch.Supervisor, run: str) -> None:
    await boss.pause(run)


async def drain(boss: ch.Supervisor, _: str) -> None:
    await boss.drain("slow")


Act = Callable[[ch.Supervisor, str], Awaitable[None]]
STORIES: dict[str, tuple[ch.Plan, Act, dict[str, Any]]] = {
    "question": (make_plan(make_task("a", "asker")), never, {}),
    "question beside work": (make_plan(make_task("a", "asker"), make_task("b", "slow")), never, {}),
    "two questions": (make_plan(make_task("a", "asker"), make_task("b", "asker")), never, {}),
    "approval": (make_plan(make_task("a", "clerk")), never, {}),
    "question below": (make_plan(make_task("a", "below")), never, {}),
    "failure": (make_plan(make_task("a", "broken", on_failure=ch.OnFailure(["ask"]))), never, {}),
    "retry": (make_plan(make_task("a", "busy")), never, {}),
    "pause": (make_plan(make_task("a", "slow"), make_task("b", "slow", "a")), pause, {}),
    "no worker": (make_plan(make_task("a", "slow"), make_task("b", "slow", "a")), drain, {}),
}


@pytest.mark.parametrize("name", STORIES)
def test_j9_no_wait_is_silent(name: str, caplog: pytest.LogCaptureFixture) -> None:
    plan, act, terms = STORIES[name]
    below = ch.Supervisor([ask], name="below", description="Has it asked", plan_for=inner)
    workers: list[Any] = [ask, slow, busy, broken, clerk(), below]

    async def story() -> None:
        async with ch.Supervisor(workers, clock=FakeClock()) as boss:
            run = await boss.submit(plan, **terms)
            await asyncio.sleep(0.1)
            await act(boss, run.id)
            seen = 0
            for _ in range(160):  # forty seconds
                await asyncio.sleep(0.25)
                waits = await waits_of(boss, run.id)
                seen += len(waits)
                assert [str(wait) for wait in waits if not is_said(wait, caplog)] == []
            assert seen, "the story has no wait in it"

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(story())
    lines = [each.getMessage() for each in caplog.records if "run_waits" in each.getMessage()]
    assert [line for line, times in Counter(lines).items() if times > 1] == []  # once
    assert all("end the wait with: " in line for line in lines)


async def waits_of(boss: ch.Supervisor, run: str) -> list[Wait]:
    """What waits for something outside, and has for more than a second."""
    waits = (await boss.look(run)).waits
    return [each for each in waits if each.cause is not Cause.NEEDS and each.seconds > LATE]


def is_said(wait: Wait, caplog: pytest.LogCaptureFixture) -> bool:
    begins = f"run_waits run={wait.run} task={wait.task} "
    return any(each.getMessage().startswith(begins) for each in caplog.records)


async def test_j9_a_lease_that_is_not_renewed_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chargehand.shift.rounds.SILENCE", 0.125)
    boss = ch.Supervisor([broken])
    looks = iter([False] * 6)
    monkeypatch.setattr(boss.journal.leases, "is_valid", lambda: next(looks, True))
    await boss.run(make_plan(make_task("a", "broken", on_failure=ch.OnFailure(["fail"]))))
    assert caplog.text.count("lease_not_renewed") == 1
