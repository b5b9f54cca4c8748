"""Journals that refuse at the worst moment, each in memory: what hangs, repeats or acts unwritten."""

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import JournalFailed, JournalFull, KeyConflict, NotLeading
from chargehand.facts.events import AttemptFinished, Event, RunRequested, StepStarted
from chargehand.journal.base import Leases, Position
from chargehand.journal.local_stream_owners import StreamOwner
from chargehand.journal.memory import MemoryJournal


class Refusing(MemoryJournal):
    """Raises an error in place of the first appends that have an event of this kind."""

    def __init__(self, error: Exception, kind: type[Event]) -> None:
        super().__init__()
        self._error = error
        self._kind = kind

    async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
        if any(isinstance(event, self._kind) for event in events):
            raise self._error
        return await super().append(stream, events, **how)


class FewerLeases:
    """Leases over others, which can be made to end or to refuse."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self.is_dead = False
        self.refusals: list[Exception] = []

    @property
    def node(self) -> str:
        return self._leases.node

    async def lead(self, stream: str, holder: StreamOwner | None = None) -> int:
        if self.refusals:
            raise self.refusals.pop()
        return await self._leases.lead(stream, holder)

    async def release(self, stream: str, epoch: int) -> None:
        await self._leases.release(stream, epoch)

    async def abandoned(self) -> list[str]:
        return await self._leases.abandoned()

    def is_valid(self) -> bool:
        return not self.is_dead and self._leases.is_valid()


def task(id_: str, worker: str, *needs: str) -> ch.Task:
    return ch.Task(id=id_, description="Be refused for the test", worker=worker, needs=needs)


def plan(*tasks: ch.Task) -> ch.Plan:
    return ch.Plan(goal="be refused", tasks=tasks)


@ch.worker("quick", "Returns at once")
async def quick(brief: ch.Brief) -> str:
    return brief.task.id


@ch.worker("slow", "Returns after a while")
async def slow(brief: ch.Brief) -> str:
    await asyncio.sleep(0.2)
    return brief.task.id


@pytest.mark.parametrize("error", [NotLeading("another leads"), JournalFailed("the disk failed")])
async def test_a16_a9_effect_of_a_thread_needs_its_intent_written(error: Exception) -> None:
    """A thread cannot be cancelled; told that its intent was not written, it ends without the effect."""
    happened: list[int] = []
    ended = threading.Event()

    @ch.worker("thread", "Wants to change the world")
    def thread(brief: ch.Brief) -> None:
        try:
            brief.wait(brief.step("effect", happened.append, 1, effect="once"))
        finally:
            ended.set()

    boss = ch.Supervisor([thread], journal=Refusing(error, StepStarted))
    with pytest.raises(type(error)):
        await boss.run(plan(task("t", "thread")))
    assert await asyncio.to_thread(ended.wait, 5.0)
    assert not happened


async def test_a9_disk_that_fails_after_an_append_ends_the_shift() -> None:
    """A lease that can never be renewed any more is not waited for."""

    class Failing(MemoryJournal):
        leases: Any

        async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
            if self.leases.is_dead:
                raise JournalFailed("the disk failed")
            position = await super().append(stream, events, **how)
            self.leases.is_dead = any(isinstance(event, AttemptFinished) for event in events)
            return position

    journal = Failing()
    journal.leases = FewerLeases(journal.leases)
    boss = ch.Supervisor([quick], journal=journal)
    with pytest.raises(JournalFailed):
        await asyncio.wait_for(boss.run(plan(task("a", "quick"), task("b", "quick", "a"))), 5.0)


async def test_a9_submit_does_not_return_what_was_not_written() -> None:
    boss = ch.Supervisor([quick], journal=Refusing(JournalFailed("the disk failed"), RunRequested))
    with pytest.raises(JournalFailed):
        await boss.submit(plan(task("a", "quick")))


async def test_a7_posted_run_waits_for_room_and_harms_no_other() -> None:
    """A full disk puts off a submission from elsewhere; the runs that are led go on."""

    class Leased(MemoryJournal):
        leases: Any

    journal = Leased()
    journal.leases = FewerLeases(journal.leases)
    async with ch.Supervisor([quick, slow], journal=journal) as boss:
        run = await boss.submit(plan(task("a", "slow")))
        journal.leases.refusals = [JournalFull("no room"), JournalFull("no room")]
        posted = await boss.post(plan(task("a", "quick")))
        assert (await run.wait()).status is ch.RunStatus.SUCCEEDED
        deadline = time.monotonic() + 10
        while not [
            head for head in await journal.heads() if head.stream == posted and head.is_ended
        ]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_c5_mail_that_was_taken_before_ends_no_shift() -> None:
    """Mail is taken once; finding it taken is no reason to let go of everything."""

    class Taken(MemoryJournal):
        async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
            if how.get("taking"):
                raise KeyConflict("mail 1")
            return await super().append(stream, events, **how)

    async with ch.Supervisor([quick, slow], journal=Taken()) as boss:
        run = await boss.submit(plan(task("a", "slow")))
        await boss.post(plan(task("a", "quick")))
        assert (await run.wait()).status is ch.RunStatus.SUCCEEDED


async def test_c5_two_requests_with_one_key_at_once_are_one_run() -> None:
    journal = MemoryJournal()
    boss = ch.Supervisor([slow], journal=journal)
    asked = [boss.run(plan(task("a", "slow")), key="k") for _ in range(3)]
    results = await asyncio.wait_for(asyncio.gather(*asked), 10.0)
    assert len({result.id for result in results}) == 1
    events = [entry.event async for entry in journal.read(results[0].id)]
    assert sum(isinstance(event, RunRequested) for event in events) == 1


async def test_a16_one_process_resumes_a_run_once(tmp_path: Path) -> None:
    """Two calls of `resume`, and one of `cancel` of a third: each run is led in one epoch more."""
    async with ch.Supervisor([slow], journal=tmp_path / "runs.db") as boss:
        runs = [await boss.submit(plan(task("a", "slow"))) for _ in range(2)]
        await boss.stop(timedelta(0))
    async with ch.Supervisor([slow], journal=tmp_path / "runs.db") as boss:
        results = await asyncio.wait_for(
            asyncio.gather(
                boss.resume(runs[0].id),
                boss.resume(runs[0].id),
                boss.cancel(runs[1].id),
                boss.cancel(runs[1].id),
            ),
            10.0,
        )
        assert results[0] is not None
        assert results[0].status is ch.RunStatus.SUCCEEDED
        assert (await boss.look(runs[1].id)).status is ch.RunStatus.CANCELLED


async def test_c3_worker_that_swallows_its_cancellation_is_timed_out_all_the_same() -> None:
    @ch.worker("deaf", "Does not stop", timeout=timedelta(seconds=0.05))
    async def deaf(brief: ch.Brief) -> str:
        if brief.attempt > 1:
            return "in time"
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(1.0)
        return "too late"

    boss = ch.Supervisor([deaf], retry=ch.RetryPolicy(first=timedelta(milliseconds=5)))
    result = await boss.run(plan(task("t", "deaf")))
    assert (result.tasks["t"].output, result.tasks["t"].attempts) == ("in time", 2)
