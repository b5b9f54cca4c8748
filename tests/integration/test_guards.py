"""Single lines that stand between a fault and its harm: each is tried alone, because larger tests survive without it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import chargehand as ch
from chargehand.engines.base import Job
from chargehand.engines.brief import Brief
from chargehand.engines.local_engine import LocalEngine, Threads
from chargehand.errors import JournalDamaged, KeyConflict, NotLeading
from chargehand.facts.outcome import Failed
from chargehand.facts.plan import Task
from chargehand.journal.base import GENESIS
from chargehand.journal.hash_chain import chain_hash, draft, header, header_start
from chargehand.journal.head_mark import KEPT_COMMITS, HeadMark, Mark
from chargehand.journal.leases import HeadRow
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_reader import EventSource, EventWalk
from chargehand.runtime import run_leader as rounds
from chargehand.testing import START_AT, FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task
from tests.integration.sqlite_at_hand import entries_of, meddle, notes
from tests.integration.test_attempts_end import Heard

HOUR = timedelta(hours=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@ch.worker("quick", "Returns at once")
async def quick(brief: ch.Brief) -> str:
    return brief.task.id


# the journal


def test_a_head_mark_never_goes_back(path: Path) -> None:
    mark = HeadMark(path)
    later, earlier = Mark(7, "07", "strict"), Mark(3, "03", "strict")
    mark.write(later)
    mark.write(earlier)
    assert mark.read() == later.sealed()
    mark.write(Mark(8, "08", "strict"))
    assert mark.read() == Mark(8, "08", "strict").sealed()
    mark.replace(earlier)
    assert mark.read() == earlier.sealed()


async def test_a_lease_of_another_boot_is_void(path: Path) -> None:
    """As after a power cut: the row says that its lease lasts, by a clock that began anew."""
    async with SqliteJournal(path, lease=HOUR) as first:
        await first.leases.lead("run")
        async with SqliteJournal(path) as second:
            with pytest.raises(NotLeading):
                await second.leases.lead("run")
            meddle(path, "UPDATE nodes SET boot = 'before the power cut'")
            assert await second.leases.lead("run") == 2


async def test_a_lease_that_has_run_out_is_void(path: Path) -> None:
    async with SqliteJournal(path, lease=HOUR) as first:
        await first.leases.lead("run")
        meddle(path, "UPDATE nodes SET expires = 1")
        async with SqliteJournal(path) as second:
            assert await second.leases.lead("run") == 2


async def test_what_was_led_in_an_earlier_epoch_is_not_released(path: Path) -> None:
    async with SqliteJournal(path) as journal:
        old = await journal.leases.lead("run")
        new = await journal.leases.lead("run")
        await journal.leases.release("run", old)
        await journal.append("run", notes("still led"), epoch=new)
        with pytest.raises(NotLeading):
            await journal.append("run", notes("late"), epoch=old)
        (head,) = await journal.heads()
        assert head.owner == journal.leases.node


class Rows(EventSource):
    """Two entries of one stream in a row, whose hashes are right."""

    def __init__(self, *epochs: int) -> None:
        super().__init__(apsw.Connection(":memory:"), Path("runs.db"))
        self.rows: list[tuple[Any, ...]] = []
        previous = GENESIS
        for seq, epoch in enumerate(epochs, 1):
            payload, digest, kind, at = draft(notes(f"note {seq}")[0])
            over = header(header_start("run", "node"), seq, epoch, kind, at, 1)
            previous = chain_hash(previous, over, digest)
            self.rows.append((seq, epoch, kind, 1, at, 1, payload, previous))
        self.head = previous

    def author(self, number: int) -> str:
        return "node"

    def walk(self) -> list[int]:
        walk = EventWalk("run", 0)
        walk._head = HeadRow("run", 0)
        return [walk._checked(self, row).epoch for row in self.rows]

    def query(self, name: str, *values: Any) -> Any:
        return self  # of which there is nothing to fetch

    def fetchone(self) -> None:
        """No head: nothing was forgotten meanwhile."""


def test_epochs_that_fall_are_damage_though_the_chain_holds() -> None:
    assert Rows(1, 1, 2).walk() == [1, 1, 2]
    with pytest.raises(JournalDamaged, match="epoch 1 is below 2"):
        Rows(1, 2, 1).walk()


def test_an_event_that_was_changed_or_is_missing_is_damage() -> None:
    changed = Rows(1, 1, 1)
    changed.rows[1] = (*changed.rows[1][:6], changed.rows[0][6], changed.rows[1][7])
    with pytest.raises(JournalDamaged, match=r"event 2 .* changed"):
        changed.walk()
    missing = Rows(1, 1, 1)
    del missing.rows[1]
    with pytest.raises(JournalDamaged, match=r"event 2 .* missing"):
        missing.walk()


async def test_the_newest_commits_are_kept_when_older_ones_are_pruned(path: Path) -> None:
    """Another process may have marked any of them."""
    first = KEPT_COMMITS // 1024 * 1024 + 1024 - KEPT_COMMITS
    async with SqliteJournal(path) as journal:
        await journal.append("run", notes("one"))
        meddle(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO commits SELECT i, x'00' FROM n",
            KEPT_COMMITS + first - 1,
        )
        await journal.append("run", notes("two"))
    kept = commits(path)
    assert kept[-1] == KEPT_COMMITS + first
    assert kept[0] == kept[-1] - KEPT_COMMITS


def commits(path: Path) -> list[int]:
    import apsw

    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    try:
        return [number for (number,) in connection.execute("SELECT number FROM commits")]
    finally:
        connection.close()


# the loop


class Leases:
    """Leases that say they do not hold until they are told to."""

    def __init__(self, leases: Any) -> None:
        self._leases = leases
        self.is_held = asyncio.Event()
        self.node, self.lead, self.release = leases.node, leases.lead, leases.release
        self.asked = asyncio.Event()

    def is_valid(self) -> bool:
        self.asked.set()
        return self.is_held.is_set()


def test_nothing_is_started_after_a_write_while_the_lease_may_have_run_out() -> None:
    async def main() -> None:
        journal: Any = MemoryJournal()
        leases = journal.leases = Leases(journal.leases)
        begun = asyncio.Event()

        @ch.worker("w", "Works")
        async def work(_: ch.Brief) -> str:
            begun.set()
            return "done"

        boss = ch.Supervisor([work], journal=journal, clock=FakeClock())
        running = asyncio.create_task(boss.run(make_plan(make_task("a", "w"))))
        await leases.asked.wait()
        await asyncio.sleep(30)
        assert not begun.is_set()
        leases.is_held.set()
        assert (await running).status == "succeeded"

    run_virtual(main())


def test_a_run_taken_over_goes_on_no_earlier_than_it_stopped() -> None:
    """The wall clock may have been set back meanwhile; order and timers must not go back with it."""

    async def main() -> None:
        journal = MemoryJournal()
        asked = asyncio.Event()

        @ch.worker("w", "Works")
        async def work(_: ch.Brief) -> str:
            if not asked.is_set():
                asked.set()
                await asyncio.Event().wait()
            return "done"

        first = ch.Supervisor([work], journal=journal, clock=FakeClock(START_AT + HOUR))
        run = await first.submit(make_plan(make_task("a", "w")))
        await asked.wait()
        await first.stop(timedelta(0))
        second = ch.Supervisor([work], journal=journal, clock=FakeClock(START_AT))
        assert (await second.resume(run.id)).status == "succeeded"
        instants = [entry.event.at async for entry in journal.read(run.id)]
        assert instants == sorted(instants)

    run_virtual(main())


async def test_two_requests_with_one_key_at_the_same_moment_are_told_apart() -> None:
    """The first is written before the second is looked at."""
    async with ch.Supervisor([quick]) as boss:
        plans = [make_plan(make_task(name, "quick")) for name in ("a", "b")]
        runs = (boss.run(plan, key="k") for plan in plans)
        came = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(came[0], ch.RunResult)
    assert isinstance(came[1], KeyConflict)


async def test_two_requests_with_one_key_and_plan_at_the_same_moment_are_one_run() -> None:
    async with ch.Supervisor([quick]) as boss:
        plan = make_plan(make_task("a", "quick"))
        first, second = await asyncio.gather(boss.run(plan, key="k"), boss.run(plan, key="k"))
    assert first.id == second.id
    assert first.status == second.status == "succeeded"


async def test_a_run_that_cannot_be_read_is_not_kept_by_who_tried_to_lead_it() -> None:
    """Another may have a version that can."""

    class Broken(MemoryJournal):
        is_broken = False

        async def read(self, stream: str, after: int = 0) -> AsyncIterator[Any]:
            async for entry in super().read(stream, after):
                if self.is_broken and entry.seq == 3:
                    raise JournalDamaged("event 3 cannot be read")
                yield entry

    journal = Broken()
    begun = asyncio.Event()

    @ch.worker("w", "Works")
    async def work(_: ch.Brief) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    boss = ch.Supervisor([work], journal=journal)
    run = await boss.submit(make_plan(make_task("a", "w")))
    await begun.wait()
    await boss.stop(timedelta(0))
    journal.is_broken = True
    async with ch.Supervisor([work], journal=journal) as other:
        runtime = other._runtimes.enter()
        with pytest.raises(JournalDamaged):
            await runtime.opener.take_over(run.id, lambda _: None)
        other._runtimes.leave()
        (head,) = await journal.heads()
        assert head.owner == ""


# the engine


def test_a_thread_that_goes_on_after_its_time_keeps_its_place() -> None:
    async def main() -> None:
        threads, heard, engine = Threads(1), Heard(), LocalEngine()
        go, begun = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def work(_: Brief) -> None:
            loop.call_soon_threadsafe(begun.set)
            go.wait(60)

        async def call(job: Job) -> Any:
            return await threads.call(work, job.brief, job)

        task = Task(id="t", description="Go on in a thread", worker="w")
        brief = Brief("run", task, 1, "w", {}, None)
        engine.start(Job(brief, call, timedelta(milliseconds=10)), heard)
        while not heard.endings:
            await asyncio.sleep(0.005)
        assert isinstance(heard.endings[0], Failed)
        await begun.wait()
        await asyncio.sleep(0)
        assert heard.places == 0
        go.set()
        await heard.freed_now.wait()
        threads.close()

    asyncio.run(main())


def test_how_often_a_journal_that_cannot_be_written_is_tried_again() -> None:
    assert timedelta(0) < rounds.RETRY_WRITE <= timedelta(seconds=5)


async def test_entries_carry_the_epoch_in_which_they_were_written(path: Path) -> None:
    async with SqliteJournal(path) as journal:
        for _ in range(2):
            epoch = await journal.leases.lead("run")
            await journal.append("run", notes("x"), epoch=epoch)
        assert [entry.epoch for entry in await entries_of(journal)] == [1, 2]
