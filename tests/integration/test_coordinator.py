"""The coordinator in use: live and afterwards, on both journals, from another process; it never writes."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.errors import UnknownRun
from chargehand.journal.base import Entry, Head, Journal
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

OTHER_EYES = """
import asyncio, sys
import chargehand as ch

async def main() -> None:
    async with ch.Coordinator(sys.argv[1]) as coordinator:
        print(await coordinator.progress())

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    opened: Journal = (
        MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db")
    )
    yield opened
    await opened.close()


@ch.worker("counter", "Counts")
async def counter(brief: ch.Brief) -> int:
    return int(brief.args.get("say", len(brief.task.description)))


@ch.worker("breaker", "Breaks")
async def breaker(brief: ch.Brief) -> None:
    raise PermissionError(f"{brief.task.id} is locked")


@ch.worker("asker", "Asks")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which one?")


class Gate:
    """A worker that waits until it is let through."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.has_come = asyncio.Event()

    @property
    def worker(self) -> ch.FunctionWorker:
        @ch.worker("waiter", "Waits")
        async def wait(_: ch.Brief) -> str:
            self.has_come.set()
            await self.is_open.wait()
            return "through"

        return wait


# Progress


async def test_progress_is_told_while_a_run_is_under_way_and_afterwards(journal: Journal) -> None:
    gate = Gate()
    boss = ch.Supervisor([counter, gate.worker, breaker], journal=journal)
    coordinator = boss.coordinator()
    plan = make_plan(
        make_task("a", "counter"),
        make_task("b", "waiter", "a"),
        make_task("c", "counter", "b"),
        make_task("d", "breaker"),
    )
    async with boss:
        run = await boss.submit(plan)
        await gate.has_come.wait()
        far = await coordinator.progress()
        assert far == await coordinator.progress(run.id)
        assert (far.total, far.completed, far.running, far.pending) == (4, 1, 1, 1)
        assert far.failed == 1
        assert far.active_workers == ("waiter",)
        assert far.runs == {"running": 1}
        gate.is_open.set()
        await run.wait()
    far = await coordinator.progress()
    assert (far.completed, far.failed, far.settled, far.total) == (3, 1, 4, 4)
    assert far.active_workers == ()
    assert far.runs == {"partial": 1}
    assert (far.workers["counter"].completed, far.workers["breaker"].failed) == (2, 1)
    assert far == await boss.coordinator().progress(), "whoever comes later sees the same"


async def test_many_runs_at_once_come_to_what_each_of_them_tells(journal: Journal) -> None:
    chance = random.Random(11)
    boss = ch.Supervisor([counter, breaker], journal=journal)
    coordinator = boss.coordinator()
    plans = [
        make_plan(
            *(
                make_task(
                    f"t{place}",
                    chance.choice(["counter", "counter", "breaker"]),
                    *([f"t{chance.randrange(place)}"] if place and chance.random() < 0.5 else []),
                )
                for place in range(chance.randint(1, 8))
            )
        )
        for _ in range(30)
    ]
    async with boss:
        runs = [await boss.submit(plan) for plan in plans]
        seen = [await coordinator.progress()]
        while seen[-1].runs.get("running"):
            await asyncio.sleep(0)
            seen.append(await coordinator.progress())
        results = [await run.wait() for run in runs]
    states = Counter(task.state.value for result in results for task in result.tasks.values())
    far = await coordinator.progress()
    assert (far.completed, far.failed, far.skipped) == (
        states["done"],
        states["failed"],
        states["skipped"],
    )
    assert far.total == far.settled == sum(states.values())
    assert far.runs == Counter(result.status.value for result in results)
    assert all(one.settled <= two.settled for one, two in pairwise(seen))


async def test_nothing_is_written_by_looking(journal: Journal) -> None:
    boss = ch.Supervisor([counter, breaker], journal=journal)
    board = boss.board("market")
    async with boss:
        result = await boss.run(make_plan(make_task("a", "counter"), make_task("b", "breaker")))
        await boss.board(run=result.id).post("seen")
        await board.write("summary", "so far")

        async def kept() -> tuple[list[Head], list[ch.Note], list[object]]:
            entries: list[object] = [entry async for entry in journal.read(result.id)]
            entries += [entry async for entry in journal.boards.read("market")]
            entries += await journal.mail.unread()
            return await journal.heads(), await board.notes(), entries

        before = await kept()
        coordinator = boss.coordinator(boards=["market"])
        for _ in range(3):
            await coordinator.progress()
            await coordinator.progress(result.id)
            await coordinator.health()
            await coordinator.conflicts()
            await coordinator.conflicts(result.id)
        assert await kept() == before


class CountingJournal(MemoryJournal):
    """Remembers which streams were read, and from where."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[str, int]] = []

    def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        self.looks.append((stream, after))
        return super().read(stream, after)


async def test_a_look_reads_only_what_is_new() -> None:
    journal = CountingJournal()
    boss = ch.Supervisor([counter], journal=journal)
    coordinator = boss.coordinator()
    async with boss:
        runs = [await boss.run(make_plan(make_task("a", "counter"))) for _ in range(20)]
        journal.looks.clear()
        assert (await coordinator.progress()).completed == 20
        assert sorted(journal.looks) == sorted((run.id, 0) for run in runs)
        last = await boss.run(make_plan(make_task("a", "counter")))
        journal.looks.clear()
        assert (await coordinator.progress()).completed == 21
        assert (await coordinator.health()).is_well
        assert await coordinator.conflicts() == []
        assert (await coordinator.progress(runs[0].id)).completed == 1
        assert journal.looks == [(last.id, 0)]


async def test_what_retention_deletes_is_counted_no_longer(journal: Journal) -> None:
    boss = ch.Supervisor([counter], journal=journal)
    coordinator = boss.coordinator()
    async with boss:
        await boss.run(make_plan(make_task("a", "counter")))
        assert (await coordinator.progress()).completed == 1
        [head] = await journal.heads()
        assert await journal.storage.forget([head.stream], known=())
        assert await coordinator.progress() == ch.Progress()


def test_runs_that_ended_long_ago_can_be_left_out() -> None:
    boss = ch.Supervisor([counter], clock=FakeClock())

    async def look() -> list[int]:
        coordinator = boss.coordinator(recent=timedelta(hours=1))
        async with boss:
            await boss.run(make_plan(make_task("a", "counter")))
            await asyncio.sleep(3000)
            await boss.run(make_plan(make_task("a", "counter")))
            early = await coordinator.progress()
            await asyncio.sleep(3000)
            return [early.completed, (await coordinator.progress()).completed]

    assert run_virtual(look()) == [2, 1]


async def test_two_looks_at_once_count_everything_once(journal: Journal) -> None:
    boss = ch.Supervisor([counter], journal=journal)
    coordinator = boss.coordinator()
    async with boss:
        for _ in range(5):
            await boss.run(make_plan(make_task("a", "counter"), make_task("b", "counter")))
        seen = await asyncio.gather(*(coordinator.progress() for _ in range(4)))
    assert [far.completed for far in seen][-1] == 10
    assert (await coordinator.progress()).completed == 10


def test_another_process_sees_what_a_run_does(tmp_path: Path) -> None:
    boss = ch.Supervisor([counter], journal=tmp_path / "runs.db")
    boss.run_sync(make_plan(make_task("a", "counter"), make_task("b", "counter", "a")))
    told = subprocess.run(
        [sys.executable, "-c", OTHER_EYES, str(tmp_path / "runs.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "2 of 2 done\n"


async def test_a_run_can_be_followed_to_its_end(journal: Journal) -> None:
    gate = Gate()
    boss = ch.Supervisor([counter, gate.worker], journal=journal)
    async with boss:
        plan = make_plan(make_task("a", "waiter"), make_task("b", "counter", "a"))
        run = await boss.submit(plan)
        seen: list[ch.Progress] = []
        async for far in boss.coordinator().follow(run.id):
            seen.append(far)
            if far.running:
                gate.is_open.set()
        await run.wait()
    assert seen[0].completed == 0
    assert seen[-1].completed == seen[-1].total == 2
    assert all(one != two for one, two in pairwise(seen))


async def test_what_cannot_be_looked_at_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ch.UsageError, match=r"there is no journal at .*nowhere\.db"):
        ch.Coordinator(tmp_path / "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()
    with pytest.raises(ch.UsageError, match=r"boards=\['market'\]"):
        ch.Coordinator(MemoryJournal(), boards="market")
    with pytest.raises(ch.UsageError, match="patience"):
        ch.Supervisor([]).coordinator(patience=timedelta(0))
    with pytest.raises(UnknownRun):
        await ch.Coordinator(MemoryJournal()).progress("r1")


# Health


def test_a_worker_that_says_nothing_for_too_long_is_named() -> None:
    @ch.worker("sleeper", "Sleeps")
    async def sleep(_: ch.Brief) -> None:
        await asyncio.sleep(1000)

    boss = ch.Supervisor([sleep], clock=FakeClock())

    async def look() -> list[ch.Health]:
        coordinator = boss.coordinator(patience=timedelta(seconds=60))
        async with boss:
            run = await boss.submit(make_plan(make_task("a", "sleeper")))
            seen = []
            for _ in range(3):
                await asyncio.sleep(31)
                seen.append(await coordinator.health())
            await run.wait()
            return [*seen, await coordinator.health()]

    early, late, later, after = run_virtual(look())
    assert early.is_well
    assert after.is_well
    (trouble,) = late.of("stuck")
    assert (trouble.name, trouble.task) == ("sleeper", "a")
    assert later.of("stuck")[0].since_at == trouble.since_at


async def test_questions_failures_and_runs_without_a_leader_are_named(journal: Journal) -> None:
    boss = ch.Supervisor([asker, breaker], journal=journal)
    coordinator = boss.coordinator()
    async with boss:
        tasks = [make_task(f"b{number}", "breaker") for number in range(3)]
        await boss.run(make_plan(*tasks))
        run = await boss.submit(make_plan(make_task("a", "asker")))
        async for far in coordinator.follow(run.id):
            if far.asking:
                break
        health = await coordinator.health()
        (asking,) = health.of("asking")
        assert "Which one?" in asking.fact
        (failing,) = health.of("failing")
        assert failing.name == "breaker"
        assert "3 times in a row" in failing.fact
        assert not health.of("unled")
        await boss.stop(timedelta(0))
        with pytest.raises(ch.RunInterrupted):
            await run.wait()
    (unled,) = (await coordinator.health()).of("unled")
    assert unled.run == run.id
    assert f"chargehand resume {run.id}" in unled.advice


LEADER = """
import asyncio, sys
import chargehand as ch

@ch.worker("waiter", "Waits")
async def wait(_: ch.Brief) -> None:
    print("working", flush=True)
    await asyncio.Event().wait()

boss = ch.Supervisor([wait], journal=sys.argv[1])
boss.run_sync(ch.Plan(goal="Wait", tasks=[ch.Task(id="t", description="Wait on", worker="waiter")]))
"""


async def test_a_run_whose_leader_was_killed_is_named(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    command = [sys.executable, "-c", LEADER, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "working\n"
        async with ch.Coordinator(place) as coordinator:
            assert (await coordinator.health()).is_well
            leader.kill()
            leader.wait()
            (trouble,) = (await coordinator.health()).troubles
            assert (await coordinator.health()).troubles == (trouble,)
    assert trouble.kind == "unled"
    assert "0 of 1 done, 1 interrupted" in trouble.fact
    told = subprocess.run(
        [sys.executable, "-m", "chargehand", "status", "--journal", str(place)],
        capture_output=True,
        text=True,
        check=True,
    )
    way_out = f"chargehand resume {trouble.run} --journal {place} --crew FILE.py:NAME"
    assert f"no process serves the journal; continue it with: {way_out}\n" in told.stdout
    assert told.stderr == "", "the list says it already"


POOLED = """
import sys, threading
from chargehand.patterns.pool import SharedMemoryPool, SupervisorAgent, WorkerAgent

def wait(brief):
    print("working", flush=True)
    threading.Event().wait()

pool = SharedMemoryPool(sys.argv[1])
(task,) = SupervisorAgent(None, pool).delegate("Wait on", ["ann"], 1)
WorkerAgent(None, pool, "ann", work=wait).execute_task(task)
"""


async def test_a_task_of_a_pool_whose_process_was_killed_is_named(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    command = [sys.executable, "-c", POOLED, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "working\n"
        async with ch.Coordinator(place) as coordinator:
            assert (await coordinator.health()).is_well
            holder.kill()
            holder.wait()
            (trouble,) = (await coordinator.health()).troubles
    assert (trouble.kind, trouble.name) == ("gone", "ann")


async def test_status_tells_who_is_in_whose_way(tmp_path: Path) -> None:
    gate = Gate()
    boss = ch.Supervisor([counter, gate.worker], journal=tmp_path / "runs.db")
    tasks = [
        ch.Task(id="one", description="Count the apples", worker="counter"),
        ch.Task(id="two", description="Count the apples", worker="waiter"),
    ]
    async with boss:
        run = await boss.submit(ch.Plan(goal="Know", tasks=tasks))
        await gate.has_come.wait()
        (conflict,) = await boss.coordinator().conflicts()
        status = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chargehand", "status", "--journal", tmp_path / "runs.db"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        listed, warned = await status.communicate()
        gate.is_open.set()
        await run.wait()
    assert listed.decode().startswith(f"{run.id}  running")
    assert warned.decode() == f"conflict: {conflict}\n"


# Conflicts


async def test_the_same_work_given_twice_is_named_live_and_afterwards(journal: Journal) -> None:
    gate = Gate()
    boss = ch.Supervisor([counter, gate.worker], journal=journal)
    coordinator = boss.coordinator()
    tasks = [
        ch.Task(id="one", description="Count the apples", worker="counter"),
        ch.Task(id="two", description="Count the apples", worker="waiter"),
    ]
    async with boss:
        run = await boss.submit(ch.Plan(goal="Know", tasks=tasks))
        await gate.has_come.wait()
        (conflict,) = await coordinator.conflicts()
        assert conflict.kind == "double_assignment"
        assert set(conflict.parties) == {"counter", "waiter"}
        assert not conflict.is_settled
        gate.is_open.set()
        await run.wait()
    double, contradiction = await coordinator.conflicts(run.id)
    assert double.is_settled
    assert contradiction.kind == "contradiction"
    assert contradiction.resolution.keeper == "counter"
    assert contradiction.resolution.value == len("Count the apples")
    assert await coordinator.conflicts() == [double, contradiction]
    assert await boss.coordinator().conflicts() == [double, contradiction]


async def test_boards_of_runs_and_named_ones_are_looked_at(journal: Journal) -> None:
    boss = ch.Supervisor([counter], journal=journal)
    async with boss:
        market = boss.board("market")
        for _ in range(2):
            await market.signed("ann").write("price", 3)
            await market.signed("bob").write("price", 4)
        for worker in ("ann", "bob"):
            about = {"task_id": "t1", "assigned_to": worker}
            await market.post("do it", segment="tasks", metadata=about)
        assert await boss.coordinator().conflicts() == []
        double, writers = sorted(
            await boss.coordinator(boards=["market"]).conflicts(), key=lambda each: each.kind
        )
        assert (double.kind, double.board) == ("double_assignment", "market")
        assert (writers.kind, writers.block, writers.parties) == (
            "two_writers",
            "price",
            ("ann", "bob"),
        )


async def test_what_workers_of_a_run_write_against_each_other_is_of_that_run() -> None:
    @ch.worker("ann", "Writes one thing")
    async def ann(brief: ch.Brief) -> None:
        await brief.board.write("title", "war")

    @ch.worker("bob", "Writes another")
    async def bob(brief: ch.Brief) -> None:
        await brief.board.write("title", "peace")

    boss = ch.Supervisor([ann, bob])
    tasks = [
        make_task(f"t{n}", "ann" if n % 2 else "bob", *([f"t{n - 1}"] if n > 1 else []))
        for n in range(1, 5)
    ]
    async with boss:
        result = await boss.run(make_plan(*tasks))
        (conflict,) = await boss.coordinator().conflicts()
    assert (conflict.kind, conflict.run, conflict.block) == ("two_writers", result.id, "title")
    assert conflict.resolution.keeper == "ann"
