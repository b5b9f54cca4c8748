"""A pool that breathes: places that follow the work, and workers that come and go while runs are led."""

import asyncio
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.crews.crew import Crew
from chargehand.crews.toml_crews import toml_crew
from chargehand.decisions.dispatch import Place, SlotState
from chargehand.errors import RosterMismatch, RunInterrupted, UsageError
from chargehand.testing import FakeClock, run_virtual
from tests.integration.children_at_work import HeldPipe
from tests.integration.elastic_at_work import wait_at_gate

CREW = """
[crew]
parallel = { min = 2, max = 6, wait = "3s", period = "1m" }

[[worker]]
name = "thinker"
description = "Thinks"
capacity = { min = 1, max = 8 }

[[worker]]
name = "digger"
description = "Digs"
function = "work.py:dig"
capacity = { max = 4 }
"""


def plan(count: int, *, worker: str = "", skill: str = "") -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{number}", description=f"Do part {number}", worker=worker, skill=skill)
        for number in range(count)
    ]
    return ch.Plan(goal="Do all of it", tasks=tasks)


class Gauge:
    """How many were at work at once, and when."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def worker(self, name: str = "w", *skills: str, seconds: float = 2.0) -> ch.FunctionWorker:
        @ch.worker(name, "Takes its time", skills=skills)
        async def work(brief: ch.Brief) -> str:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1
            return name

        return work


# Places


def test_a_pool_grows_for_a_burst_loses_nothing_and_is_small_again_afterwards() -> None:
    gauge = Gauge()
    parallel = ch.Elastic(least=1, most=8, period=timedelta(seconds=10))

    async def story() -> tuple[ch.RunResult, int, ch.RunResult]:
        async with ch.Supervisor([gauge.worker()], parallel=parallel, clock=FakeClock()) as boss:
            burst = await boss.run(plan(100, worker="w"))
            most, gauge.most = gauge.most, 0
            await asyncio.sleep(60)
            return burst, most, await boss.run(plan(3, worker="w"), limits=ch.Limits())

    burst, most, after = run_virtual(story())
    assert burst.status == after.status == "succeeded"
    assert {task.attempts for task in burst.tasks.values()} == {1}
    assert most == 8
    assert burst.wall < timedelta(seconds=2 * 100 / 8 + 6)
    # One place at first; what waits longer than a second gets a second place.
    assert gauge.most == 2
    assert after.wall == timedelta(seconds=4)


def test_a_short_queue_is_no_reason_to_grow() -> None:
    gauge = Gauge()

    async def story() -> ch.RunResult:
        async with ch.Supervisor(
            [gauge.worker(seconds=0.1)], parallel=ch.Elastic(most=8), clock=FakeClock()
        ) as boss:
            return await boss.run(plan(9, worker="w"))

    assert run_virtual(story()).status == "succeeded"
    assert gauge.most == 1


def test_an_urgent_run_gets_a_place_of_its_own_and_interrupts_nobody() -> None:
    gauge = Gauge()

    async def story() -> tuple[ch.RunResult, ch.RunResult]:
        async with ch.Supervisor(
            [gauge.worker()], parallel=ch.Elastic(most=2), clock=FakeClock()
        ) as boss:
            usual = await boss.submit(plan(1, worker="w"))
            urgent = await boss.submit(plan(1, worker="w"), priority=5)
            return await usual.wait(), await urgent.wait()

    usual, urgent = run_virtual(story())
    assert usual.wall == urgent.wall == timedelta(seconds=2)
    assert usual.tasks["t0"].attempts == 1


def test_a_worker_with_a_mind_may_be_elastic_too() -> None:
    places = ch.Elastic(least=2, most=5)
    agent = ch.Worker("agent", "Thinks", capacity=places, model="offline")
    assert agent.place.capacity == places
    assert agent.place.most == 5


def test_a_crew_file_says_between_which_bounds_places_follow_the_work(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def dig(brief):\n    return 7\n")
    (tmp_path / "crew.toml").write_text(CREW)
    crew = toml_crew(tmp_path / "crew.toml")
    patient = ch.Elastic(least=2, most=6, wait=timedelta(seconds=3), period=timedelta(minutes=1))
    assert crew.parallel == patient
    assert [hand.place.capacity for hand in crew.workers if not isinstance(hand, Crew)] == [
        ch.Elastic(least=1, most=8),
        ch.Elastic(least=1, most=4),
    ]


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ("{ min = 1 }", r"\('thinker'\), capacity max: is missing"),
        ("{ min = 9, max = 8 }", r"capacity: min = 9 is above max = 8"),
        ("{ max = 0 }", r"capacity max: .* not 0"),
        ("{ max = 8, most = 8 }", r"capacity most: is not a known key; .*keys are min, max, wait"),
        ("{ max = 8, wait = 1 }", r"capacity wait: must be a length of time in quotes"),
    ],
)
def test_bounds_that_mean_nothing_are_told_with_their_place(
    tmp_path: Path, places: str, told: str
) -> None:
    (tmp_path / "crew.toml").write_text(CREW.replace("{ min = 1, max = 8 }", places))
    with pytest.raises(UsageError, match=told):
        toml_crew(tmp_path / "crew.toml")


def test_no_more_is_started_a_minute_than_was_agreed() -> None:
    gauge = Gauge()

    async def story() -> ch.RunResult:
        agreed = ch.Starts(a_minute=30, burst=2)
        boss = ch.Supervisor([gauge.worker(seconds=1)], starts=agreed, clock=FakeClock())
        return await boss.run(plan(5, worker="w"))

    # Two at once, then one every two seconds, each a moment late rather than early.
    wall = run_virtual(story()).wall
    assert timedelta(seconds=7) <= wall < timedelta(seconds=7.1)


async def test_processes_are_started_for_a_burst_and_let_go_when_they_idle(tmp_path: Path) -> None:
    """No task ends before three of them are there, so three processes there must be."""
    pipes = [HeldPipe(tmp_path / f"held{number}") for number in range(3)]
    gates = [tmp_path / f"gate{number}" for number in range(3)]
    tasks = []
    for number, (pipe, gate) in enumerate(zip(pipes, gates, strict=True)):
        os.mkfifo(gate)
        args = {"held": pipe.path, "gate": str(gate)}
        words = "Wait at the gate"
        tasks.append(ch.Task(id=f"t{number}", description=words, worker="holder", args=args))
    noted: asyncio.Queue[str] = asyncio.Queue()
    async with ch.Supervisor([wait_at_gate]) as boss, asyncio.timeout(60):
        boss.on(ch.events.ProgressNoted)(lambda _, event: noted.put_nowait(event.task))
        run = await boss.submit(ch.Plan(goal="Meet", tasks=tasks))
        assert {await noted.get() for _ in tasks} == {task.id for task in tasks}
        for gate in gates:
            await asyncio.to_thread(gate.write_text, "")
        await run.wait()
        ends = {asyncio.create_task(pipe.wait_let_go()) for pipe in pipes}
        staying = ends
        while len(staying) > 1:  # two may go at once
            _, staying = await asyncio.wait(staying, return_when=asyncio.FIRST_COMPLETED)
        assert len(staying) == 1
    await asyncio.gather(*ends)


# Workers


def test_who_joins_gets_work_that_waits() -> None:
    gauge = Gauge()

    async def story() -> ch.RunResult:
        clock = FakeClock()
        first = gauge.worker("first", "dig", seconds=10)
        first.capacity = 1
        async with ch.Supervisor([first], clock=clock) as boss:
            run = await boss.submit(plan(4, skill="dig"))
            await asyncio.sleep(1)
            await boss.join(gauge.worker("second", "dig", seconds=1))
            return await run.wait()

    result = run_virtual(story())
    assert [task.output for task in result.tasks.values()] == ["first", *["second"] * 3]
    assert result.wall == timedelta(seconds=10)


def test_who_leaves_ends_what_it_has_and_others_do_the_rest() -> None:
    gauge = Gauge()

    async def story() -> tuple[ch.RunResult, float]:
        slow, quick = gauge.worker("slow", "dig", seconds=5), gauge.worker("quick", "dig")
        slow.capacity = quick.capacity = 1
        async with ch.Supervisor([slow, quick], clock=FakeClock()) as boss:
            run = await boss.submit(plan(6, skill="dig"))
            await asyncio.sleep(1)
            await boss.leave("slow")
            left_at = asyncio.get_running_loop().time()
            with pytest.raises(UsageError, match="not on the roster"):
                await boss.leave("slow")
            return await run.wait(), left_at

    result, left_at = run_virtual(story())
    outputs = sorted(task.output for task in result.tasks.values())
    assert outputs == [*["quick"] * 5, "slow"]
    assert left_at == 5


def test_what_is_not_done_in_time_is_done_anew_by_another_and_costs_no_attempt() -> None:
    gauge = Gauge()

    async def story() -> ch.RunResult:
        endless = gauge.worker("endless", "dig", seconds=1e6)
        async with ch.Supervisor(
            [endless], clock=FakeClock(), limits=ch.Limits(attempts=1)
        ) as boss:
            run = await boss.submit(plan(3, skill="dig"))
            await asyncio.sleep(1)
            await boss.join(gauge.worker("quick", "dig"))
            await boss.leave("endless", grace=timedelta(seconds=5))
            return await run.wait()

    result = run_virtual(story())
    assert [task.output for task in result.tasks.values()] == ["quick"] * 3
    assert gauge.now == 0
    assert result.wall == timedelta(seconds=8)


def test_tasks_that_only_the_one_who_left_could_do_wait_for_somebody_who_joins() -> None:
    gauge = Gauge()

    async def story() -> tuple[str, ch.RunResult]:
        async with ch.Supervisor([gauge.worker("digger")], parallel=1, clock=FakeClock()) as boss:
            run = await boss.submit(plan(2, worker="digger"))
            await asyncio.sleep(1)
            await boss.leave("digger")
            await asyncio.sleep(60)
            state = str((await boss.look(run.id)).tasks["t1"].state)
            await boss.join(gauge.worker("digger"))
            return state, await run.wait()

    state, result = run_virtual(story())
    assert state == "ready"
    assert result.status == "succeeded"


def test_who_is_drained_gets_nothing_until_it_joins_again() -> None:
    gauge = Gauge()

    async def story() -> list[int]:
        worker = gauge.worker()
        async with ch.Supervisor([worker], clock=FakeClock()) as boss:
            await boss.drain("w")
            run = await boss.submit(plan(1, worker="w"))
            await asyncio.sleep(10)
            at_work = [gauge.now]
            await boss.join(worker)
            await run.wait()
            return [*at_work, gauge.most]

    assert run_virtual(story()) == [0, 1]


def test_a_supervisor_that_rests_keeps_in_mind_who_came_and_went() -> None:
    gauge = Gauge()

    async def story() -> None:
        boss = ch.Supervisor([gauge.worker("one")], clock=FakeClock())
        await boss.join(gauge.worker("two"))
        assert (await boss.run(plan(1, worker="two"))).status == "succeeded"
        await boss.leave("one")
        with pytest.raises(ch.PlanRefused):
            await boss.run(plan(1, worker="one"))

    run_virtual(story())


def test_a_thread_that_cannot_be_stopped_is_waited_for() -> None:
    ends = threading.Event()

    @ch.worker("thread", "Waits in a thread")
    def wait(brief: ch.Brief) -> str:
        ends.wait(60)
        return "done"

    async def story() -> ch.RunResult:
        async with ch.Supervisor([wait]) as boss:
            run = await boss.submit(plan(1, worker="thread"))
            leaving = asyncio.create_task(boss.leave("thread"))
            await asyncio.sleep(0)
            assert not leaving.done()
            ends.set()
            await leaving
            return await run.wait()

    assert asyncio.run(story()).tasks["t0"].output == "done"


def test_a_supervisor_below_that_leaves_and_comes_back_repeats_nothing() -> None:
    gauge = Gauge()
    done: list[str] = []

    async def story() -> ch.RunResult:
        chain = [
            ch.Task(
                id=f"s{n}",
                description=f"Step {n}",
                worker="w",
                needs=[f"s{n - 1}"] if n else [],
            )
            for n in range(3)
        ]
        worker = gauge.worker()
        below = ch.Supervisor(
            [worker], name="crew", plan_for=lambda _: ch.Plan(goal="Walk", tasks=chain)
        )
        below.on(ch.events.AttemptFinished)(lambda _, event: done.append(event.task))
        async with ch.Supervisor([below], clock=FakeClock(), limits=ch.Limits(attempts=1)) as boss:
            run = await boss.submit(plan(1, worker="crew"))
            await asyncio.sleep(3)
            await boss.leave("crew", grace=timedelta(0))
            await boss.join(below)
            return await run.wait()

    assert run_virtual(story()).status == "succeeded"
    assert done == ["s0", "s1", "s2"]


def test_a_worker_of_the_same_name_or_of_no_use_is_refused_and_changes_nothing() -> None:
    gauge = Gauge()

    async def story() -> None:
        async with ch.Supervisor([gauge.worker()], clock=FakeClock()) as boss:
            with pytest.raises(UsageError, match="two workers are named 'w'"):
                await boss.join(gauge.worker())
            useless = gauge.worker("useless")
            useless.capacity = 0
            with pytest.raises(UsageError, match="at least 1"):
                await boss.join(useless)
            assert boss.roster.names == {"w"}
            with pytest.raises(UsageError, match=r"'nobody' is not on the roster \(w\)"):
                await boss.drain("nobody")

    run_virtual(story())


async def test_a_run_is_resumed_by_the_same_crew_whoever_had_joined_it(tmp_path: Path) -> None:
    """Who joins or leaves does not make it another crew; what a task names must be there, though."""
    gate = asyncio.Event()

    @ch.worker("waiter", "Waits")
    async def wait(brief: ch.Brief) -> str:
        await gate.wait()
        return "done"

    @ch.worker("guest", "Comes and goes")
    async def visit(brief: ch.Brief) -> str:
        return "visited"

    tasks = [
        ch.Task(id="wait", description="Wait for the gate", worker="waiter"),
        ch.Task(id="visit", description="Visit it then", worker="guest", needs=["wait"]),
    ]
    async with ch.Supervisor([wait], journal=tmp_path / "runs.db") as boss:
        await boss.join(visit)
        run = await boss.submit(ch.Plan(goal="Wait and visit", tasks=tasks))
        await boss.stop(timedelta(0))
        with pytest.raises(RunInterrupted):
            await run.wait()
    gate.set()
    async with ch.Supervisor([wait], journal=tmp_path / "runs.db") as boss:
        with pytest.raises(RosterMismatch, match="needs guest"):
            await boss.resume(run.id)
        await boss.join(visit)
        assert (await boss.resume(run.id)).status == "succeeded"


async def test_workers_that_join_are_counted_once_each_not_with_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    init = SlotState.__init__

    def count(self: SlotState, place: Place, *others: Any) -> None:
        made.append(place.worker)
        init(self, place, *others)

    monkeypatch.setattr(SlotState, "__init__", count)

    async def work(_: ch.Brief) -> int:
        return 1

    async with ch.Supervisor([ch.worker("w", "Works")(work)]) as boss:
        made.clear()
        for number in range(100):
            await boss.join(ch.worker(f"w{number}", "Works, too")(work))
    assert len(made) <= 2 * 100  # checked, then taken in
