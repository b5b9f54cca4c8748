"""Who gives way: a more urgent offer that finds no free slot stops the least urgent attempt at its next step."""

import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.kernel import Kernel, RunMessage
from chargehand.decisions.preemption import MOST_TIMES
from chargehand.decisions.ready_queue import AGEING
from chargehand.facts.events import (
    AttemptFinished,
    AttemptPreempted,
    Event,
    PlanAdopted,
    RunFinished,
)
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import PreemptAttempt, StartAttempt
from tests.decisions.virtual_kernel import START, requested, seconds, tasks_of


class Pool:
    """Several runs on one kernel."""

    def __init__(
        self, parallel: int = 1, places: tuple[Place, ...] = (Place(worker="ann"),)
    ) -> None:
        self.kernel = Kernel(Dispatch(parallel))
        for place in places:
            self.kernel.dispatch.join(place)
        self.now = START
        self.journal: dict[str, list[Event]] = {}
        self.started: list[str] = []
        self.preempted: list[str] = []

    def submit(self, run: str, arrows: str, priority: int = 0, worker: str = "ann") -> None:
        tasks = [replace(task, worker=worker) for task in tasks_of(arrows)]
        self.kernel.open(run)
        plan = Plan(goal=run, tasks=tasks)
        self.tell(
            RunMessage(run, requested(run=run, priority=priority, at=self.now)),
            RunMessage(run, PlanAdopted(plan=plan, at=self.now)),
        )

    def tell(self, *messages: RunMessage) -> list[Event]:
        batch = self.kernel.decide(messages, self.now)
        for act in batch.acts:
            if isinstance(act, StartAttempt):
                self.started.append(f"{act.run}.{act.task}#{act.attempt}")
            elif isinstance(act, PreemptAttempt):
                self.preempted.append(f"{act.run}.{act.task}#{act.attempt}")
        written = [event for events in batch.entries.values() for event in events]
        for run, events in batch.entries.items():
            self.journal.setdefault(run, []).extend(events)
        self.kernel.check()
        return written

    def give_way(self, run: str, task: str, attempt: int = 1) -> list[Event]:
        self.kernel.free_place(run, task, attempt)
        return self.tell(RunMessage(run, AttemptPreempted(task=task, attempt=attempt, at=self.now)))

    def finish(self, run: str, task: str, attempt: int = 1) -> list[Event]:
        self.kernel.free_place(run, task, attempt)
        done = AttemptFinished(task=task, attempt=attempt, outcome=Done(), at=self.now)
        return self.tell(RunMessage(run, done))

    def wait(self, count: float) -> None:
        self.now += seconds(count)


def test_a_more_urgent_run_stops_the_less_urgent_at_its_next_step() -> None:
    pool = Pool()
    pool.submit("low", "a")
    pool.submit("high", "b", priority=5)
    assert pool.preempted == ["low.a#1"]
    assert pool.started == ["low.a#1"], "not before the place is free"
    pool.give_way("low", "a")
    assert pool.started == ["low.a#1", "high.b#1"]
    pool.finish("high", "b")
    assert pool.started[-1] == "low.a#2", "and then it goes on"


def test_nobody_gives_way_to_an_equal() -> None:
    pool = Pool()
    pool.submit("one", "a")
    pool.submit("two", "b")
    assert pool.preempted == []


def test_nobody_gives_way_to_an_equal_whoever_else_waits() -> None:
    pool = Pool()
    pool.submit("one", "a", priority=1)
    pool.submit("low", "c")
    pool.submit("two", "b", priority=1)
    assert pool.preempted == []


def test_nobody_gives_way_where_there_is_room() -> None:
    pool = Pool(parallel=2)
    pool.submit("low", "a")
    pool.submit("high", "b", priority=5)
    assert pool.preempted == []


def test_the_least_urgent_and_newest_gives_way() -> None:
    pool = Pool(parallel=3)
    pool.submit("middle", "m", priority=1)
    pool.submit("low", "a, b")
    pool.submit("high", "x", priority=5)
    assert pool.preempted == ["low.b#1"]


def test_as_many_give_way_as_are_needed_and_no_more() -> None:
    pool = Pool(parallel=3)
    pool.submit("low", "a, b, c")
    pool.submit("high", "x, y", priority=5)
    assert pool.preempted == ["low.c#1", "low.b#1"]
    pool.tell()
    assert len(pool.preempted) == 2, "their places are promised"


def test_a_place_of_a_worker_is_made_by_that_worker() -> None:
    places = (Place(worker="ann", capacity=1), Place(worker="bob", capacity=1))
    pool = Pool(parallel=2, places=places)
    pool.submit("low", "a", worker="ann")
    pool.submit("other", "b", worker="bob")
    pool.submit("high", "x", priority=5, worker="ann")
    assert pool.preempted == ["low.a#1"]


def test_where_only_the_pool_is_full_anybody_gives_way() -> None:
    places = (Place(worker="ann"), Place(worker="bob"))
    pool = Pool(parallel=1, places=places)
    pool.submit("low", "a", worker="ann")
    pool.submit("high", "x", priority=5, worker="bob")
    assert pool.preempted == ["low.a#1"]


def test_giving_way_costs_no_try() -> None:
    pool = Pool()
    pool.submit("low", "a")
    for number in range(1, 3):
        pool.submit(f"high{number}", "x", priority=5)
        pool.give_way("low", "a", number)
        pool.finish(f"high{number}", "x")
    assert pool.kernel.runs["low"].schedule.nodes["a"].tries == 0


def test_whoever_gave_way_often_enough_may_finish() -> None:
    pool = Pool()
    pool.submit("low", "a")
    for number in range(1, MOST_TIMES + 1):
        pool.submit(f"high{number}", "x", priority=5)
        pool.give_way("low", "a", number)
        pool.finish(f"high{number}", "x")
    pool.submit("last", "x", priority=5)
    assert len(pool.preempted) == MOST_TIMES


@pytest.mark.parametrize("seed", range(10))
def test_g1_preempting_races_completion_a_thousand_times_and_each_time_one_wins(seed: int) -> None:
    """Whichever report comes first is the attempt's end; the other changes nothing."""
    dice = random.Random(seed)
    for _ in range(1000):
        pool = Pool()
        pool.submit("low", "a")
        pool.submit("high", "x", priority=5)
        done = RunMessage("low", AttemptFinished(task="a", attempt=1, outcome=Done(), at=pool.now))
        gone = RunMessage("low", AttemptPreempted(task="a", attempt=1, at=pool.now))
        reports = [done, gone]
        dice.shuffle(reports)
        pool.kernel.free_place("low", "a", 1)
        if dice.random() < 0.5:
            pool.tell(*reports)
        else:
            for report in reports:
                pool.tell(report)
        ends = [
            e for e in pool.journal["low"] if isinstance(e, (AttemptFinished, AttemptPreempted))
        ]
        assert len(ends) == 1
        assert type(ends[0]) is type(reports[0].event)
        pool.finish("high", "x")
        if isinstance(ends[0], AttemptPreempted):
            pool.finish("low", "a", 2)
        assert isinstance(pool.journal["low"][-1], RunFinished)


# ageing


def test_who_waits_long_enough_gains_a_step() -> None:
    pool = Pool()
    pool.submit("busy", "z", priority=9)
    pool.submit("old", "a")
    pool.wait(AGEING)
    pool.submit("new", "b", priority=1)
    pool.wait(1)
    pool.finish("busy", "z")
    assert pool.started[-1] == "old.a#1"


def test_what_is_offered_late_has_waited_as_long_as_its_run() -> None:
    pool = Pool()
    pool.submit("old", "a -> b")
    pool.wait(AGEING)
    pool.finish("old", "a")
    pool.submit("busy", "z", priority=9)
    pool.wait(1)
    pool.give_way("old", "b")
    pool.submit("new", "c", priority=1)
    pool.finish("busy", "z")
    assert pool.started[-1] == "old.b#2"


def test_a_moment_earlier_does_not_beat_a_higher_priority() -> None:
    """Wherever that moment falls: nothing is rounded to the hour."""
    for offset in range(0, int(AGEING) + 1, 10):
        pool = Pool()
        pool.wait(offset)
        pool.submit("busy", "z", priority=9)
        pool.submit("low", "a")
        pool.wait(1)
        pool.submit("high", "b", priority=1)
        pool.finish("busy", "z")
        assert pool.started[-1] == "high.b#1", timedelta(seconds=offset)
