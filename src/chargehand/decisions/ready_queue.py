"""The ready queue of a pool: offers that wait for a slot, by run and by target, the most urgent first."""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush, nsmallest
from typing import Generic, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

from chargehand.decisions.elastic_capacity import Demand
from chargehand.facts.scheduler_commands import OfferAttempt, Rank

#: seconds of waiting that count as much as one step of priority, so that no run starves
AGEING = 300.0
#: up to this many late items stay in the heap and are not sorted in
FEW = 32


class Ranked(Protocol):
    """Items with an order; no two of them may be equal."""

    def __lt__(self, other: Self, /) -> bool: ...


T = TypeVar("T", bound=Ranked)


class Queue(Generic[T]):
    """A priority queue: the smallest item first.

    Items that arrive together are sorted once and then popped off the end of a list; only later items
    are in a heap. A heap alone walks from its root to a leaf for every pop, and in a large heap each
    step of that walk misses the processor's cache.
    """

    __slots__ = ("_late", "_sorted")

    def __init__(self) -> None:
        #: descending: the smallest item last
        self._sorted: list[T] = []
        #: the later items, as a heap
        self._late: list[T] = []

    def __bool__(self) -> bool:
        return bool(self._sorted or self._late)

    def __len__(self) -> int:
        return len(self._sorted) + len(self._late)

    def push(self, item: T) -> None:
        heappush(self._late, item)

    def head(self) -> T | None:
        """The smallest item, which stays; None if the queue is empty."""
        late, ordered = self._late, self._sorted
        if not late:
            return ordered[-1] if ordered else None
        if len(late) > FEW and len(late) > len(ordered):
            # The late items are at least as many as the sorted ones, so the cost for each item stays constant.
            ordered += late
            ordered.sort(reverse=True)
            late.clear()
            return ordered[-1]
        if ordered and ordered[-1] < late[0]:
            return ordered[-1]
        return late[0]

    def first(self, count: int) -> list[T]:
        """The `count` smallest items, in order; they stay."""
        return nsmallest(count, (*self._sorted[-count:], *self._late))

    def all(self) -> list[T]:
        """All items, in no order; they stay."""
        return [*self._sorted, *self._late]

    def pop(self) -> T:
        """Remove and return the smallest item."""
        late, ordered = self._late, self._sorted
        if ordered and not (late and late[0] < ordered[-1]):
            return ordered.pop()
        return heappop(late)


class Waiting(Struct, order=True, gc=False):
    """An offer in a queue. A withdrawn offer stays there, marked dead, until it comes to the head."""

    # The order is that of the fields, up to the number, which is unique.
    urgency: float
    is_late: bool
    due: float
    arrival: float
    #: number of the run, which orders runs that arrived at the same instant
    turn: int
    path: float
    order: int
    number: int
    run: str
    offer: OfferAttempt
    offered_at: float
    is_dead: bool = False


#: the most urgent offer of a target, and the target
Head: TypeAlias = tuple[Waiting, str]


class Lane:
    """One run in the pool: its taken slots and its waiting offers."""

    __slots__ = (
        "active",
        "arrival",
        "gave_way",
        "longest",
        "number",
        "parallel",
        "parked",
        "waiting",
    )

    def __init__(self, arrival: float, number: int, parallel: int) -> None:
        self.arrival = arrival
        #: orders runs of one instant: otherwise they would take turns, and all of them would end late
        self.number = number
        #: the longest remaining path that it ever had
        self.longest = 0.0
        self.parallel = parallel
        self.active = 0
        #: by task: how often it was preempted
        self.gave_way: dict[str, int] = {}
        #: by target: offers that wait because the run has as many attempts as it may have
        self.parked: dict[str, Queue[Waiting]] = {}
        self.waiting: dict[str, Waiting] = {}

    @property
    def is_full(self) -> bool:
        return self.active >= self.parallel


class ReadyQueue:
    """All offers, in the order of `Dispatch`. Holds no clock: the caller passes the time."""

    def __init__(self) -> None:
        #: all urgencies that were ever offered; with only one, no attempt is ever preempted
        self.urgencies: set[int] = set()
        self._lanes: dict[str, Lane] = {}
        self._queues: dict[str, Queue[Waiting]] = {}
        #: when the waiting offers age next
        self._ages_at = 0.0
        #: runs whose parked offers may have room now
        self._thawing: dict[str, Lane] = {}
        #: recently withdrawn offers: an offer that returns at once with another rank keeps its waiting time
        self._withdrawn: dict[tuple[str, str], Waiting] = {}
        self._lane_count = 0
        self._arrivals = 0

    def __bool__(self) -> bool:
        """Whether any offer may be waiting that its run has room for."""
        return bool(self._queues)

    # offers

    def open_run(self, run: str, at: datetime, parallel: int) -> None:
        self._lane_count += 1
        self._lanes[run] = Lane(at.timestamp(), self._lane_count, parallel)

    def close_run(self, run: str) -> None:
        closed = self._lanes.pop(run, None)
        self._thawing.pop(run, None)
        if closed is not None:
            for waiting in closed.waiting.values():
                waiting.is_dead = True

    def add(self, run: str, offer: OfferAttempt, now: float) -> None:
        """Queue a task that may start."""
        lane = self._lanes[run]
        rank = offer.rank
        lane.longest = max(lane.longest, -rank.path)
        self._arrivals += 1
        if rank.urgency not in self.urgencies:
            self.urgencies.add(rank.urgency)
        waiting = Waiting(
            rank.urgency - _steps(lane.arrival, now),
            now > rank.latest_start,
            _due(rank, lane.longest),
            lane.arrival,
            lane.number,
            rank.path,
            rank.order,
            self._arrivals,
            run,
            offer,
            now if not self._withdrawn else self._waits_since(run, offer, now),
        )
        lane.waiting[offer.task] = waiting
        _push(self._queues, target_of(offer), waiting)

    def withdraw(self, run: str, task: str) -> None:
        lane = self._lanes.get(run)
        waiting = None if lane is None else lane.waiting.pop(task, None)
        if waiting is not None and lane is not None:
            waiting.is_dead = True
            self._withdrawn[run, task] = waiting
            self.thaw(run, lane)

    def forget_withdrawn(self) -> None:
        """Forget the withdrawn offers that have not been offered again."""
        self._withdrawn.clear()

    def take(self, target: str) -> tuple[Waiting, Lane]:
        """Remove and return the most urgent offer of this target; `heads` must have returned it."""
        waiting = self._queues[target].pop()
        return waiting, self._lanes[waiting.run]

    def park(self, waiting: Waiting, lane: Lane, target: str) -> None:
        """Set an offer aside until its run has room for it."""
        _push(lane.parked, target, waiting)

    def thaw(self, run: str, lane: Lane) -> None:
        """Let the next `refresh` bring back the parked offers of this run."""
        if lane.parked and self._lanes.get(run) is lane:
            self._thawing[run] = lane

    # order

    def refresh(self, now: float) -> None:
        """Bring back parked offers that their runs have room for, and age the waiting offers."""
        self._unpark(now)
        if now >= self._ages_at:
            self._age(now)

    def heads(self, has_room: Callable[[str], bool], now: float) -> list[Head]:
        """The most urgent offer of each target that has room, as a heap."""
        heads: list[Head] = []
        for target in list(self._queues):
            if has_room(target):
                head = self.head(target, now)
                if head is not None:
                    heads.append((head, target))
        heapify(heads)
        return heads

    def head(self, target: str, now: float) -> Waiting | None:
        """The most urgent offer of this target, which stays."""
        head = self._live_head(self._queues[target], now)
        if head is None:
            del self._queues[target]
        return head

    def first(self, most: int) -> list[Head]:
        """The most urgent offers that wait for nothing but a slot, in order, at most `most`."""
        waiting = [
            (each, target)
            for target, queue in self._queues.items()
            for each in queue.first(most)
            if not each.is_dead
        ]
        waiting.sort(key=lambda pair: pair[0])
        return [pair for pair in waiting[:most] if not self._lanes[pair[0].run].is_full]

    @property
    def targets(self) -> Sequence[str]:
        """The targets that have a queue."""
        return list(self._queues)

    def demand(self, busy: int, targets: Iterable[str], now: float, pressing: int) -> Demand:
        """The demand for slots that serve these targets; `busy` of them are taken."""
        waiting, since = 0, now
        for target in targets:
            queue = self._queues.get(target)
            head = None if queue is None else self._live_head(queue, now)
            if queue is not None and head is not None:
                waiting += len(queue)  # withdrawn ones may be among them; an elastic size has time
                since = min(since, head.offered_at)
        return Demand(busy, waiting, since, pressing)

    def find(self, run: str, task: str) -> tuple[Waiting, Lane] | None:
        """A waiting offer and its run; None if it does not wait."""
        lane = self._lanes.get(run)
        waiting = None if lane is None else lane.waiting.get(task)
        return None if lane is None or waiting is None else (waiting, lane)

    def check(self) -> None:
        """Check the invariants."""
        for lane in self._lanes.values():
            assert 0 <= lane.active <= lane.parallel, "a run holds more than it may"

    def _waits_since(self, run: str, offer: OfferAttempt, now: float) -> float:
        before = self._withdrawn.pop((run, offer.task), None)
        is_same = before is not None and before.offer.attempt == offer.attempt
        return before.offered_at if before is not None and is_same else now

    def _unpark(self, now: float) -> None:
        """Bring back as many parked offers of each run as it has room for, the most urgent first."""
        for lane in self._thawing.values():
            for target, parked in list(lane.parked.items()):
                for _ in range(lane.parallel - lane.active):
                    if self._live_head(parked, now) is None:
                        break
                    _push(self._queues, target, parked.pop())
                if not parked:
                    del lane.parked[target]
        self._thawing.clear()

    def _age(self, now: float) -> None:
        """Raise the urgency of offers of runs that have waited, so that no run starves."""
        self._ages_at = now + AGEING
        for target, queue in list(self._queues.items()):
            aged = self._queues[target] = Queue()
            for waiting in queue.all():
                if not waiting.is_dead:
                    waiting.urgency = waiting.offer.rank.urgency - _steps(waiting.arrival, now)
                    aged.push(waiting)

    def _live_head(self, queue: Queue[Waiting], now: float) -> Waiting | None:
        while (waiting := queue.head()) is not None:
            if waiting.is_dead:
                queue.pop()
            elif not waiting.is_late and now > waiting.offer.rank.latest_start:
                queue.pop()
                waiting.is_late = True  # can no longer be in time: behind those that can
                self._arrivals += 1
                waiting.number = self._arrivals
                queue.push(waiting)
            else:
                return waiting
        return None


def target_of(offer: OfferAttempt) -> str:
    """The target of an offer: the worker or skill that it asks for."""
    return f"worker {offer.worker}" if offer.worker else f"skill {offer.skill}"


def _push(queues: dict[str, Queue[Waiting]], target: str, waiting: Waiting) -> None:
    queue = queues.get(target)
    if queue is None:
        queue = queues[target] = Queue()
    queue.push(waiting)


def _steps(arrival: float, now: float) -> int:
    """The steps of priority that a run has gained by waiting."""
    return max(0, math.floor((now - arrival) / AGEING))


def _due(rank: Rank, longest: float) -> float:
    """The deadline as the order uses it: moved earlier by half of the run's longest path, if lengths are known.

    By the deadline alone, a long run with a late deadline would start too late. By the latest start alone,
    a crowded pool would serve the longest runs first, and few would be in time. The path of the whole run
    counts, not the remaining one: a run that makes progress would fall behind, and no run would finish.
    """
    is_known = rank.latest_start < rank.deadline
    return rank.deadline - longest / 2 if is_known else rank.deadline
