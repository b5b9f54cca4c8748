"""How many places there should be: growing by what waits, shrinking by what lies idle, and never in a flutter."""

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.elastic_capacity import Demand, Elastic, Resizer
from chargehand.errors import UsageError
from chargehand.facts.scheduler_commands import OfferAttempt, Rank, StartAttempt

BOUNDS = Elastic(least=1, most=8, wait=timedelta(seconds=1), period=timedelta(seconds=10))
RUN = "r1"


def test_nothing_changes_before_the_queue_has_waited() -> None:
    resizer = Resizer(BOUNDS)
    assert resizer.fit(Demand(1, 20, since=0.0), 0.5) == 1
    assert resizer.looks_at == 1.0


def test_it_doubles_after_each_wait_up_to_the_most() -> None:
    resizer = Resizer(BOUNDS)
    sizes = [resizer.fit(Demand(resizer.size, 20, since=0.0), second) for second in (1, 1.5, 2, 3)]
    assert sizes == [2, 2, 4, 8]
    assert resizer.fit(Demand(8, 20, since=0.0), 4) == 8


def test_it_grows_by_no_more_than_waits() -> None:
    resizer = Resizer(Elastic(least=4, most=8))
    assert resizer.fit(Demand(4, 1, since=0.0), 5) == 5


def test_places_that_are_free_are_no_reason_to_grow() -> None:
    """What waits then waits for something else: its worker, a provider, its run."""
    resizer = Resizer(Elastic(least=4, most=8))
    assert resizer.fit(Demand(3, 9, since=0.0), 100) == 4


def test_it_shrinks_to_the_most_that_was_used_in_a_whole_period() -> None:
    resizer = grown_to_eight()
    assert resizer.fit(Demand(3), 4.0) == 8
    assert resizer.fit(Demand(0), 12.9) == 8
    assert resizer.fit(Demand(2), 13.0) == 8, "eight were in use when this period began"
    assert resizer.fit(Demand(1), 23.0) == 2


def test_it_asks_to_be_told_when_idle_places_are_due_and_then_no_more() -> None:
    resizer = grown_to_eight()
    resizer.fit(Demand(0), 5.0)
    for _ in range(5):
        if resizer.looks_at is not None:
            resizer.fit(Demand(0), resizer.looks_at)
    assert (resizer.size, resizer.looks_at) == (1, None)


def test_after_shrinking_it_grows_again_only_after_a_period() -> None:
    resizer = grown_to_eight()
    resizer.fit(Demand(0), 13.0)
    assert resizer.fit(Demand(0), 23.0) == 1
    assert resizer.fit(Demand(1, 9, since=24.0), 26.0) == 1
    assert resizer.looks_at == 33.0
    assert resizer.fit(Demand(1, 9, since=24.0), 33.0) == 2


def test_for_the_pressing_it_grows_at_once_and_for_them_alone() -> None:
    resizer = Resizer(BOUNDS)
    assert resizer.fit(Demand(1, 20, since=0.0, pressing=2), 0.0) == 3
    assert resizer.fit(Demand(3, 18, since=0.0), 0.5) == 3
    assert resizer.looks_at == 1.0, "the rest waits on as it would have"


def test_the_pressing_do_not_hold_it_back_where_all_have_waited() -> None:
    resizer = Resizer(Elastic(least=4, most=20))
    assert resizer.fit(Demand(4, 20, since=0.0, pressing=1), 5.0) == 8
    assert resizer.fit(Demand(8, 20, since=5.0, pressing=50), 5.0) == 20


def test_even_for_the_pressing_it_grows_only_a_period_after_it_shrank() -> None:
    resizer = grown_to_eight()
    resizer.fit(Demand(0), 13.0)
    assert resizer.fit(Demand(0), 23.0) == 1
    assert resizer.fit(Demand(1, 1, since=24.0, pressing=1), 24.0) == 1
    assert resizer.looks_at == 33.0


@pytest.mark.parametrize("seed", range(50))
def test_whatever_comes_it_turns_at_most_once_a_period_and_keeps_what_is_taken(seed: int) -> None:
    chance = random.Random(seed)
    bounds = Elastic(
        least=chance.randint(1, 3),
        most=chance.randint(3, 20),
        wait=timedelta(seconds=chance.choice((0, 0.3, 2))),
        period=timedelta(seconds=chance.choice((1, 5))),
    )
    resizer, now = Resizer(bounds), 0.0
    turns: list[float] = []
    direction = 0
    for _ in range(500):
        now += chance.choice((0.01, 0.2, 1, 7)) * chance.random()
        before = resizer.size
        busy = chance.choice((0, before, chance.randint(0, before)))
        waiting = chance.choice((0, 0, 1, 50))
        pressing = chance.choice((0, waiting))
        size = resizer.fit(Demand(busy, waiting, now - 3 * chance.random(), pressing), now)
        assert max(bounds.least, busy) <= size <= bounds.most
        turned = (size > before) - (size < before)
        if turned and turned != direction:
            turns.append(now)
            direction = turned
    pauses = [late - early for early, late in pairwise(turns)]
    assert min(pauses, default=math.inf) >= bounds.period.total_seconds() - 1e-9


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": 0},
        {"least": 9},
        {"wait": timedelta(seconds=-1)},
        {"period": timedelta(0)},
    ],
)
def test_bounds_that_mean_nothing_are_refused(wrong: dict[str, int | timedelta]) -> None:
    with pytest.raises(UsageError, match="Elastic"):
        Elastic(**wrong)  # type: ignore[arg-type]  # that is the point


# In the pool


def test_a_burst_is_done_by_eight_and_then_one_is_left() -> None:
    dispatch = pool(BOUNDS, Place(worker="w"))
    story = Burst(dispatch, 100, seconds=2.0)
    story.play()
    assert story.done == 100
    assert max(story.sizes) == 8
    assert story.sizes[-1] == 1
    assert story.turns == 2, "up once, down once"


def test_a_workers_own_capacity_follows_the_work_and_is_told() -> None:
    dispatch = pool(50, Place(worker="w", capacity=BOUNDS))
    story = Burst(dispatch, 40, seconds=2.0)
    story.play()
    assert story.done == 40
    assert story.told == [2, 4, 8, 1]


def test_an_elastic_worker_in_an_elastic_pool_grows_with_it() -> None:
    dispatch = pool(BOUNDS, Place(worker="w", capacity=BOUNDS))
    story = Burst(dispatch, 40, seconds=2.0)
    story.play()
    assert story.done == 40
    assert max(story.sizes) == 8


def test_a_pool_does_not_grow_for_a_worker_that_is_full() -> None:
    dispatch = pool(BOUNDS, Place(worker="w", capacity=1))
    offer(dispatch, "a", 0.0)
    offer(dispatch, "b", 0.0)
    assert len(dispatch.place(0.0)) == 1
    assert dispatch.place(60.0) == []
    assert dispatch.parallel == 1
    assert (
        dispatch.why_waiting(RUN, "b")
        == "a slot in the pool (1 of 1 taken; the pool can grow to 8)"
    )


def test_a_full_pool_that_can_grow_has_nobody_give_way() -> None:
    dispatch = pool(BOUNDS, Place(worker="w"))
    offer(dispatch, "usual", 0.0)
    assert len(dispatch.place(0.0)) == 1
    offer(dispatch, "urgent", 0.1, urgency=-5)
    offer(dispatch, "patient", 0.1)
    assert [start.task for start in dispatch.place(0.1)] == ["urgent"]
    assert dispatch.make_room() == []
    assert dispatch.parallel == 2, "one more, for the urgent one; the other waits like any"


def test_a_full_worker_that_can_grow_has_nobody_give_way() -> None:
    dispatch = pool(50, Place(worker="w", capacity=BOUNDS), Place(worker="v"))
    offer(dispatch, "usual", 0.0)
    assert len(dispatch.place(0.0)) == 1
    offer(dispatch, "urgent", 0.1, urgency=-5)
    assert [start.task for start in dispatch.place(0.1)] == ["urgent"]
    assert dispatch.make_room() == []
    assert dispatch.resized == {"w": 2}


def test_a_full_pool_and_a_full_worker_grow_together_for_the_urgent() -> None:
    dispatch = pool(BOUNDS, Place(worker="w", capacity=BOUNDS))
    offer(dispatch, "usual", 0.0)
    dispatch.place(0.0)
    offer(dispatch, "urgent", 0.1, urgency=-5)
    assert [start.task for start in dispatch.place(0.1)] == ["urgent"]
    assert (dispatch.parallel, dispatch.resized) == (2, {"w": 2})


@pytest.mark.parametrize(
    ("parallel", "capacity"), [(1, BOUNDS), (BOUNDS, 1), (Elastic(least=1, most=1), None)]
)
def test_where_growing_would_not_help_somebody_gives_way(
    parallel: int | Elastic, capacity: int | Elastic | None
) -> None:
    dispatch = pool(parallel, Place(worker="w", capacity=capacity))
    offer(dispatch, "usual", 0.0)
    dispatch.place(0.0)
    offer(dispatch, "urgent", 0.1, urgency=-5)
    assert dispatch.place(0.1) == []
    assert [preempt.task for preempt in dispatch.make_room()] == ["usual"]
    assert not dispatch.resized
    assert dispatch.parallel == 1


def test_what_is_offered_again_under_another_rank_has_waited_all_the_time() -> None:
    """As when a plan grows that is still being written: each new task may change the order."""
    dispatch = pool(BOUNDS, Place(worker="w"))
    offer(dispatch, "first", 0.0)
    offer(dispatch, "second", 0.0)
    dispatch.place(0.0)
    for tenth in range(1, 10):
        dispatch.withdraw(RUN, "second")
        offer(dispatch, "second", tenth / 10)
        assert dispatch.place(tenth / 10) == []
    assert [start.task for start in dispatch.place(1.0)] == ["second"]


def test_what_is_offered_again_later_has_not_waited_meanwhile() -> None:
    dispatch = pool(BOUNDS, Place(worker="w"))
    offer(dispatch, "first", 0.0)
    offer(dispatch, "second", 0.0)
    dispatch.place(0.0)
    dispatch.withdraw(RUN, "second")
    dispatch.place(0.5)
    offer(dispatch, "second", 5.0)
    assert dispatch.place(5.0) == []
    assert dispatch.probes_at == 6.0


# Coming and going


def test_a_worker_that_leaves_is_forgotten_once_it_holds_nothing() -> None:
    dispatch = pool(5, Place(worker="w"))
    offer(dispatch, "a", 0.0)
    offer(dispatch, "b", 0.0, n=2)
    (start, _) = dispatch.place(0.0)
    assert not dispatch.leave("w")
    offer(dispatch, "c", 1.0)
    assert dispatch.place(1.0) == []
    with pytest.raises(UsageError, match="still leaving"):
        dispatch.join(Place(worker="w"))
    for run, task, attempt in dispatch.held_by("w"):
        dispatch.freed(run, task, attempt)
    dispatch.check()
    assert dispatch.why_waiting(RUN, "c") == "a worker w to join the pool"
    dispatch.join(Place(worker="w"))
    assert [each.task for each in dispatch.place(2.0)] == ["c"]
    assert start.worker == "w"


def test_a_worker_that_drains_gets_nothing_until_it_joins_again() -> None:
    dispatch = pool(5, Place(worker="w"))
    dispatch.drain("w")
    offer(dispatch, "a", 0.0)
    assert dispatch.place(0.0) == []
    assert dispatch.why_waiting(RUN, "a") == "a worker to take it; no new tasks go to w"
    dispatch.join(Place(worker="w"))
    assert len(dispatch.place(1.0)) == 1
    with pytest.raises(UsageError, match="already"):
        dispatch.join(Place(worker="w"))


def test_who_is_gone_can_leave_again() -> None:
    dispatch = pool(5, Place(worker="w", skills=("s",)), Place(worker="v", skills=("s",)))
    assert dispatch.leave("w")
    assert dispatch.leave("w")
    dispatch.check()


@pytest.mark.parametrize("seed", range(30))
def test_whoever_comes_and_goes_no_task_is_lost_and_none_is_started_twice(seed: int) -> None:
    chance = random.Random(seed)
    dispatch = pool(chance.choice((3, BOUNDS)), Place(worker="v0", skills=("s",)))
    names, running, started, now = {"v0"}, list[StartAttempt](), Counter[str](), 0.0
    for number in range(300):
        now += chance.random()
        match chance.randrange(5):
            case 0 if (place := any_place(chance)).worker not in names:
                if not dispatch.held_by(place.worker):  # else it may still be leaving
                    dispatch.join(place)
                    names.add(place.worker)
            case 1 if names:
                leaving = chance.choice(sorted(names))
                names.discard(leaving)
                assert dispatch.leave(leaving) is (not dispatch.held_by(leaving))
            case 2:
                offer(dispatch, f"t{number}", now, skill="s")
                started[f"t{number}"] += 0
            case _ if running:
                ended = running.pop(chance.randrange(len(running)))
                dispatch.freed(ended.run, ended.task, ended.attempt)
        starts = dispatch.place(now)
        dispatch.check()
        running += starts
        started.update(start.task for start in starts)
        assert all(start.worker in names for start in starts)
    dispatch.join(Place(worker="last", skills=("s",)))
    while running or any(times == 0 for times in started.values()):
        for ended in running:
            dispatch.freed(ended.run, ended.task, ended.attempt)
        now += 1
        running = dispatch.place(now)
        started.update(start.task for start in running)
        assert running or all(started.values()), "a task waits although somebody could do it"
    assert set(started.values()) == {1}


def any_place(chance: random.Random) -> Place:
    capacity = chance.choice((chance.randint(1, 4), Elastic(most=4, wait=timedelta(0))))
    return Place(worker=f"v{chance.randrange(4)}", skills=("s",), capacity=capacity)


def grown_to_eight() -> Resizer:
    resizer = Resizer(BOUNDS)
    for second in (1, 2, 3):
        resizer.fit(Demand(resizer.size, 20, since=0.0), second)
    assert resizer.size == 8
    return resizer


def pool(parallel: int | Elastic, *places: Place) -> Dispatch:
    dispatch = Dispatch(parallel)
    for place in places:
        dispatch.join(place)
    dispatch.open_run(RUN, datetime.fromtimestamp(0, UTC), 1000)
    return dispatch


def offer(
    dispatch: Dispatch, task: str, now: float, n: int = 1, skill: str = "", urgency: int = 0
) -> None:
    rank = Rank(urgency, math.inf, math.inf, -1.0, 0)
    worker = "" if skill else "w"
    dispatch.offer(RUN, OfferAttempt(task, n, worker, skill, rank), now)


class Burst:
    """Many tasks of the same length at one instant, one worker, and the pool's own wake-ups."""

    def __init__(self, dispatch: Dispatch, count: int, seconds: float) -> None:
        self.sizes: list[int] = []
        self.told: list[int] = []
        self.done = 0
        self._dispatch = dispatch
        self._seconds = seconds
        self._ends: list[tuple[float, StartAttempt]] = []
        for number in range(count):
            offer(dispatch, f"t{number}", 0.0)

    def play(self) -> None:
        now = 0.0
        while True:
            self._end(now)
            starts = self._dispatch.place(now)
            self._dispatch.check()
            self._ends += [(now + self._seconds, start) for start in starts]
            self.sizes.append(self._dispatch.parallel)
            self.told += self._dispatch.resized.values()
            due = [at for at, _ in self._ends]
            if self._dispatch.probes_at is not None:
                due.append(self._dispatch.probes_at)
            if not due:
                return
            now = min(due)

    @property
    def turns(self) -> int:
        changes = [late > early for early, late in pairwise(self.sizes) if early != late]
        return bool(changes) + sum(early != late for early, late in pairwise(changes))

    def _end(self, now: float) -> None:
        for at, start in list(self._ends):
            if at <= now:
                self._ends.remove((at, start))
                self._dispatch.freed(start.run, start.task, start.attempt)
                self.done += 1
