"""Who gets the next free place, and at whom."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.dispatch import Balance, Dispatch, Place, SlotState, WorkerSlots
from chargehand.decisions.ready_queue import AGEING
from chargehand.errors import UsageError
from chargehand.facts.scheduler_commands import OfferAttempt, Rank
from tests.decisions.virtual_kernel import START

NOW = START.timestamp()


def pool(
    *places: Place, parallel: int = 100, balance: Balance = Balance.LEAST_BUSY, run: int = 100
) -> Dispatch:
    dispatch = Dispatch(parallel, balance)
    for place in places or (Place(worker="ann"),):
        dispatch.join(place)
    dispatch.open_run("r", START, run)
    return dispatch


def offer(
    task: str,
    *,
    priority: int = 0,
    deadline: float = float("inf"),
    latest: float = float("inf"),
    path: float = 1.0,
    order: int = 0,
    worker: str = "ann",
    skill: str = "",
    avoid: tuple[str, ...] = (),
) -> OfferAttempt:
    rank = Rank(-priority, deadline, latest, -path, order)
    return OfferAttempt(task, 1, "" if skill else worker, skill, rank, avoid)


def order_of(dispatch: Dispatch, *offers: OfferAttempt, now: float = NOW) -> list[str]:
    """In which order these start when there is one place, and each leaves it at once."""
    for each in offers:
        dispatch.offer("r", each, now)
    served = []
    while starts := dispatch.place(now):
        (start,) = starts
        served.append(start.task)
        dispatch.freed("r", start.task, start.attempt)
        dispatch.check()
    return served


def workers_of(dispatch: Dispatch, count: int, *, free: bool) -> list[str]:
    """Who gets these many tasks of one skill, leaving their places at once or never."""
    chosen = []
    for number in range(count):
        dispatch.offer("r", offer(f"t{number}", skill="write"), NOW)
        (start,) = dispatch.place(NOW)
        chosen.append(start.worker)
        if free:
            dispatch.freed("r", start.task, start.attempt)
    return chosen


# order


def test_the_larger_priority_goes_first() -> None:
    assert order_of(pool(parallel=1), offer("low"), offer("high", priority=1)) == ["high", "low"]


def test_among_equals_the_earlier_deadline_goes_first() -> None:
    served = order_of(
        pool(parallel=1),
        offer("none"),
        offer("later", deadline=NOW + 20),
        offer("sooner", deadline=NOW + 10),
    )
    assert served == ["sooner", "later", "none"]


def test_what_cannot_be_in_time_any_more_goes_behind_what_can() -> None:
    served = order_of(
        pool(parallel=1),
        offer("lost", deadline=NOW + 5, latest=NOW - 1),
        offer("in time", deadline=NOW + 50, latest=NOW + 40),
    )
    assert served == ["in time", "lost"]


def test_an_offer_that_becomes_late_in_the_queue_falls_behind() -> None:
    dispatch = pool(parallel=1)
    dispatch.offer("r", offer("lost", deadline=NOW + 5, latest=NOW + 1), NOW)
    dispatch.offer("r", offer("in time", deadline=NOW + 50, latest=NOW + 40), NOW)
    (start,) = dispatch.place(NOW + 2)
    assert start.task == "in time"


def test_the_longest_remaining_path_goes_first_then_plan_order() -> None:
    served = order_of(
        pool(parallel=1),
        offer("third", order=2),
        offer("second", order=1),
        offer("longest", path=9, order=3),
    )
    assert served == ["longest", "second", "third"]


def test_the_run_that_came_first_goes_first() -> None:
    dispatch = pool(parallel=1)
    dispatch.open_run("earlier", START - timedelta(seconds=1), 100)
    dispatch.offer("r", offer("mine"), NOW)
    dispatch.offer("earlier", offer("theirs"), NOW)
    assert [start.task for start in dispatch.place(NOW)] == ["theirs"]


@pytest.mark.parametrize(("waited", "first"), [(0, "urgent"), (2.5, "old")])
def test_waiting_long_enough_outweighs_a_step_of_priority(waited: float, first: str) -> None:
    dispatch = pool(parallel=1)
    dispatch.open_run("old", START - timedelta(seconds=waited * AGEING), 100)
    dispatch.offer("r", offer("urgent", priority=1), NOW)
    dispatch.offer("old", offer("old"), NOW)
    (start,) = dispatch.place(NOW)
    assert start.task == first


RANKS = st.tuples(st.integers(-3, 3), st.integers(1, 5), st.integers(1, 5))


@given(ranks=st.lists(RANKS, min_size=1, max_size=12))
def test_offers_start_in_the_order_of_their_ranks(ranks: list[tuple[int, int, int]]) -> None:
    offers = [
        offer(f"t{place}", priority=rank[0], deadline=NOW + rank[1], path=rank[2], order=place)
        for place, rank in enumerate(ranks)
    ]
    by_rank = sorted(
        offers, key=lambda e: (e.rank.urgency, e.rank.deadline, e.rank.path, e.rank.order)
    )
    assert order_of(pool(parallel=1), *offers) == [each.task for each in by_rank]


# places


@given(
    parallel=st.integers(1, 6),
    capacities=st.lists(st.one_of(st.none(), st.integers(1, 3)), min_size=1, max_size=3),
    limit=st.integers(1, 6),
    wanted=st.lists(st.integers(0, 2), max_size=15),
)
def test_no_place_is_overfilled_and_none_that_is_wanted_stays_empty(
    parallel: int, capacities: list[int | None], limit: int, wanted: list[int]
) -> None:
    places = [Place(worker=f"w{n}", capacity=cap) for n, cap in enumerate(capacities)]
    dispatch = pool(*places, parallel=parallel, run=limit)
    wanted = [choice % len(places) for choice in wanted]
    for number, choice in enumerate(wanted):
        dispatch.offer("r", offer(f"t{number}", worker=f"w{choice}", order=number), NOW)
    busy = Counter(start.worker for start in dispatch.place(NOW))
    dispatch.check()
    room = {f"w{n}": parallel if cap is None else cap for n, cap in enumerate(capacities)}
    asked = Counter(f"w{choice}" for choice in wanted)
    most = sum(min(asked[worker], room[worker]) for worker in room)
    assert sum(busy.values()) == min(parallel, limit, most)
    assert all(busy[worker] <= room[worker] for worker in busy)


def test_a_worker_without_a_capacity_holds_as_much_as_the_pool() -> None:
    dispatch = pool(Place(worker="ann"), parallel=3)
    for number in range(5):
        dispatch.offer("r", offer(f"t{number}"), NOW)
    assert len(dispatch.place(NOW)) == 3


def test_an_offer_parked_by_its_runs_limit_comes_back_when_a_place_of_the_run_is_free() -> None:
    dispatch = pool(run=1)
    dispatch.offer("r", offer("a"), NOW)
    dispatch.offer("r", offer("b"), NOW)
    assert [start.task for start in dispatch.place(NOW)] == ["a"]
    assert dispatch.place(NOW) == []
    dispatch.freed("r", "a", 1)
    assert [start.task for start in dispatch.place(NOW)] == ["b"]


def test_a_run_at_its_limit_does_not_hold_up_others() -> None:
    dispatch = pool(run=1)
    dispatch.open_run("other", START, 1)
    for task in ("a", "b"):
        dispatch.offer("r", offer(task, priority=9), NOW)
    dispatch.offer("other", offer("c"), NOW)
    assert [start.task for start in dispatch.place(NOW)] == ["a", "c"]


def test_a_withdrawn_offer_does_not_start() -> None:
    dispatch = pool()
    dispatch.offer("r", offer("a"), NOW)
    dispatch.withdraw("r", "a")
    assert dispatch.place(NOW) == []


def test_a_closed_run_starts_nothing_more_but_keeps_its_places_until_they_are_left() -> None:
    dispatch = pool(parallel=1)
    for task in ("a", "b"):
        dispatch.offer("r", offer(task), NOW)
    dispatch.place(NOW)
    dispatch.close_run("r")
    assert dispatch.active == 1
    dispatch.freed("r", "a", 1)
    assert dispatch.place(NOW) == []


def test_a_draining_worker_gets_nothing_new() -> None:
    dispatch = pool()
    dispatch.drain("ann")
    dispatch.offer("r", offer("a"), NOW)
    assert dispatch.place(NOW) == []


def test_an_offer_waits_for_a_worker_to_join() -> None:
    dispatch = pool()
    dispatch.offer("r", offer("a", worker="bob"), NOW)
    assert dispatch.place(NOW) == []
    assert dispatch.why_waiting("r", "a") == "a worker bob to join the pool"
    dispatch.join(Place(worker="bob"))
    assert len(dispatch.place(NOW)) == 1


def test_the_pool_says_what_an_offer_waits_for() -> None:
    dispatch = pool(Place(worker="ann", capacity=1), Place(worker="bob"), parallel=2, run=5)
    for task in ("a", "b"):
        dispatch.offer("r", offer(task), NOW)
    dispatch.place(NOW)
    assert dispatch.why_waiting("r", "b") == "a slot of ann"
    dispatch.offer("r", offer("c", worker="bob"), NOW)
    dispatch.place(NOW)
    assert dispatch.why_waiting("r", "b") == "a slot in the pool (2 of 2 taken)"
    assert dispatch.why_waiting("r", "a") == ""


@pytest.mark.parametrize("place", [Place(worker="w", capacity=0), Place(worker="w", weight=0)])
def test_a_worker_that_could_hold_nothing_is_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="must be"):
        pool(place)


def test_a_worker_joins_once() -> None:
    with pytest.raises(UsageError, match="already"):
        pool(Place(worker="ann"), Place(worker="ann"))


# balance

WRITERS = [Place(worker=name, skills=("write",)) for name in ("ann", "bob", "cy")]


def test_round_robin_gives_each_its_turn() -> None:
    dispatch = pool(*WRITERS, balance=Balance.ROUND_ROBIN)
    assert workers_of(dispatch, 6, free=True) == ["ann", "bob", "cy"] * 2


def test_least_busy_gives_to_whoever_has_the_fewest() -> None:
    dispatch = pool(*WRITERS)
    chosen = workers_of(dispatch, 9, free=False)
    assert Counter(chosen) == {"ann": 3, "bob": 3, "cy": 3}
    dispatch.freed("r", f"t{chosen.index('bob')}", 1)
    assert workers_of(dispatch, 1, free=False) == ["bob"]


@pytest.mark.parametrize("free", [True, False])
def test_weights_of_ten_and_five_share_two_to_one(free: bool) -> None:
    heavy = Place(worker="heavy", skills=("write",), weight=10)
    light = Place(worker="light", skills=("write",), weight=5)
    dispatch = pool(heavy, light, balance=Balance.WEIGHTED)
    assert Counter(workers_of(dispatch, 30, free=free)) == {"heavy": 20, "light": 10}


def test_without_a_weight_the_capacity_weighs() -> None:
    big = Place(worker="big", skills=("write",), capacity=10)
    small = Place(worker="small", skills=("write",), capacity=5)
    dispatch = pool(big, small, balance=Balance.WEIGHTED)
    assert Counter(workers_of(dispatch, 15, free=False)) == {"big": 10, "small": 5}


def test_a_newcomer_does_not_get_everything() -> None:
    dispatch = pool(*WRITERS[:2], balance=Balance.WEIGHTED)
    workers_of(dispatch, 20, free=True)
    dispatch.join(WRITERS[2])
    assert Counter(workers_of(dispatch, 9, free=True)) == {"ann": 3, "bob": 3, "cy": 3}


def test_workers_that_failed_at_it_are_passed_over_if_there_are_others() -> None:
    dispatch = pool(*WRITERS)
    dispatch.offer("r", offer("a", skill="write", avoid=("ann", "bob")), NOW)
    dispatch.offer("r", offer("b", skill="write", avoid=("ann", "bob", "cy")), NOW)
    starts = dispatch.place(NOW)
    assert starts[0].worker == "cy"
    assert len(starts) == 2


class Walked(dict[str, SlotState]):
    """Workers by name; counts how often somebody goes through all of them."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def test_many_who_join_in_a_row_do_not_look_at_each_other() -> None:
    """A thousand joined in cubic time once: each counted all others, for every one of them anew."""
    staff = WorkerSlots(4, Balance.WEIGHTED, None)
    staff._workers = walked = Walked()
    for number in range(300):
        staff.join(Place(worker=f"w{number}"))
    assert walked.walks <= 1
    walked["w7"].given = 0.5
    staff._turns += 1
    staff.join(Place(worker="late"))
    assert walked["late"].given == 0.0


def test_a_newcomer_starts_level_after_the_one_that_got_least_has_left() -> None:
    staff = WorkerSlots(4, Balance.WEIGHTED, None)
    for name, got in (("a", 1.0), ("b", 3.0)):
        staff.join(Place(worker=name))
        staff._workers[name].given = got
    staff._turns += 1
    staff.join(Place(worker="c"))
    assert staff._workers["c"].given == 1.0
    for name in ("a", "c"):
        assert staff.leave(name)
    staff.join(Place(worker="d"))
    assert staff._workers["d"].given == 3.0
