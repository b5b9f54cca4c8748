"""One pool: which offered task gets which worker now. It hears of offers and free places only."""

import math
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from heapq import heappop, heappush
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import UsageError
from chargehand.facts.commands import OfferAttempt, StartAttempt

AGEING = 300.0
#: seconds of waiting that weigh as much as one step of priority, so that no run starves


class Balance(StrEnum):
    """Who of several able workers gets the next task."""

    LEAST_BUSY = "least_busy"  #: the one with the fewest tasks
    ROUND_ROBIN = "round_robin"  #: each in turn
    WEIGHTED = "weighted"  #: in proportion to their weights


class Place(Struct, frozen=True, kw_only=True):
    """What a worker can hold."""

    worker: str
    skills: tuple[str, ...] = ()
    capacity: int | None = None
    #: attempts at once; None: as many as the pool
    weight: float | None = None
    #: its share under `Balance.WEIGHTED`; None: its capacity


class _Worker:
    __slots__ = ("active", "capacity", "given", "is_draining", "name", "skills", "turn", "weight")

    def __init__(self, place: Place, parallel: int) -> None:
        self.name = place.worker
        self.skills = place.skills
        self.capacity = parallel if place.capacity is None else place.capacity
        self.weight = float(self.capacity if place.weight is None else place.weight)
        if self.capacity < 1 or self.weight <= 0:
            raise UsageError(
                f"worker {place.worker!r}: capacity {self.capacity} must be at least 1, "
                f"weight {self.weight} more than 0"
            )
        self.active = 0
        self.given = 0.0
        self.turn = 0
        self.is_draining = False

    @property
    def has_room(self) -> bool:
        return self.active < self.capacity and not self.is_draining


class _Waiting(Struct, eq=False, gc=False):
    """An offer in a queue. Withdrawn ones stay there, dead, until they come up."""

    run: str
    arrival: float
    offer: OfferAttempt
    is_late: bool
    is_dead: bool = False


class _Run:
    __slots__ = ("active", "arrival", "parallel", "parked", "waiting")

    def __init__(self, arrival: float, parallel: int) -> None:
        self.arrival = arrival
        self.parallel = parallel
        self.active = 0
        self.parked: list[_Waiting] = []
        self.waiting: dict[str, _Waiting] = {}


# What the order goes by, and last the offer itself; the number before it is unique.
_Queued: TypeAlias = tuple[float, bool, float, float, float, int, int, _Waiting]


class Dispatch:
    """Gives free places to the most urgent offers.

    The order is: priority (aged by the run's arrival), runs that can still be in time before those
    that cannot, deadline, arrival of the run, longest remaining path, plan order.
    """

    def __init__(self, parallel: int, balance: Balance = Balance.LEAST_BUSY) -> None:
        if parallel < 1:
            raise UsageError(f"parallel={parallel} must be at least 1")
        self.parallel = parallel
        self.active = 0
        self._balance = balance
        self._workers: dict[str, _Worker] = {}
        self._able: dict[str, list[_Worker]] = {}
        self._runs: dict[str, _Run] = {}
        self._queues: dict[str, list[_Queued]] = {}
        self._arrivals = 0
        self._turns = 0

    def join(self, place: Place) -> None:
        """A worker takes part from now on."""
        if place.worker in self._workers:
            raise UsageError(f"worker {place.worker!r} is in the pool already")
        worker = _Worker(place, self.parallel)
        # A newcomer starts level with the others; from nothing it would get every task for a while.
        worker.given = min((other.given for other in self._workers.values()), default=0.0)
        self._workers[place.worker] = worker
        for target in (f"worker {place.worker}", *(f"skill {skill}" for skill in place.skills)):
            self._able.setdefault(target, []).append(worker)

    def drain(self, worker: str) -> None:
        """Give this worker nothing new."""
        self._workers[worker].is_draining = True

    def open_run(self, run: str, at: datetime, parallel: int) -> None:
        """Hear of a run before its offers. Runs are served in the order of their arrival."""
        self._runs[run] = _Run(at.timestamp(), parallel)

    def close_run(self, run: str) -> None:
        """The run ended; what it still has in the queue is dead. Its running attempts still count."""
        closed = self._runs.pop(run, None)
        if closed is not None:
            for waiting in closed.waiting.values():
                waiting.is_dead = True

    def offer(self, run: str, offer: OfferAttempt, now: float) -> None:
        """Queue a task that may start."""
        owner = self._runs[run]
        waiting = _Waiting(run, owner.arrival, offer, now > offer.rank.latest_start)
        owner.waiting[offer.task] = waiting
        self._push(waiting)

    def withdraw(self, run: str, task: str) -> None:
        """The task is not to start after all; unknown ones are fine."""
        owner = self._runs.get(run)
        waiting = None if owner is None else owner.waiting.pop(task, None)
        if waiting is not None:
            waiting.is_dead = True

    def freed(self, run: str, worker: str) -> None:
        """An attempt has really ended, and its place with it."""
        self.active -= 1
        self._workers[worker].active -= 1
        owner = self._runs.get(run)
        if owner is not None:
            owner.active -= 1
            for waiting in owner.parked:
                self._push(waiting)
            owner.parked.clear()

    def place(self, now: float) -> list[StartAttempt]:
        """Fill the free places, most urgent first."""
        starts: list[StartAttempt] = []
        queues = self._queues
        while self.active < self.parallel:
            target = self._most_urgent_target(now)
            if target is None:
                break
            queue = queues[target]
            waiting = heappop(queue)[-1]
            if not queue:
                del queues[target]
            run = self._runs[waiting.run]
            if run.active >= run.parallel:
                run.parked.append(waiting)
                continue
            offer = waiting.offer
            worker, why = self._choose(target, offer.avoid)
            worker.active += 1
            run.active += 1
            self.active += 1
            del run.waiting[offer.task]
            starts.append(StartAttempt(waiting.run, offer.task, offer.attempt, worker.name, why))
        return starts

    def why_waiting(self, run: str, task: str) -> str:
        """In words, what an offered task waits for; empty if it is not in the queue."""
        owner = self._runs.get(run)
        waiting = None if owner is None else owner.waiting.get(task)
        if owner is None or waiting is None:
            return ""
        if self.active >= self.parallel:
            return f"a place in the pool ({self.active} of {self.parallel} taken)"
        if owner.active >= owner.parallel:
            return f"a place of its run ({owner.active} of {owner.parallel} taken)"
        able = self._able.get(_target(waiting.offer), [])
        if not able:
            return f"a {_target(waiting.offer)} to join the pool"
        if not any(worker.has_room for worker in able):
            return f"a place at {' or '.join(worker.name for worker in able)}"
        return "its turn"

    def check(self) -> None:
        """State the invariants; the tests call this after every change."""
        assert 0 <= self.active <= self.parallel, "the pool holds more than it may"
        assert self.active == sum(worker.active for worker in self._workers.values())
        for worker in self._workers.values():
            assert 0 <= worker.active <= worker.capacity, f"{worker.name} holds more than it may"
        for run in self._runs.values():
            assert 0 <= run.active <= run.parallel, "a run holds more than it may"

    def _push(self, waiting: _Waiting) -> None:
        rank = waiting.offer.rank
        self._arrivals += 1
        # Ageing is linear, so that the order of two offers never changes while they wait and a
        # plain heap will do: arriving AGEING seconds earlier is worth one step of priority.
        urgency = rank.urgency + math.floor(waiting.arrival / AGEING)
        queued = (
            urgency,
            waiting.is_late,
            rank.deadline,
            waiting.arrival,
            rank.path,
            rank.order,
            self._arrivals,
            waiting,
        )
        heappush(self._queues.setdefault(_target(waiting.offer), []), queued)

    def _most_urgent_target(self, now: float) -> str | None:
        best: str | None = None
        best_head: _Queued | None = None
        for target in list(self._queues):
            if not self._has_room(target):
                continue
            head = self._live_head(target, now)
            if head is not None and (best_head is None or head < best_head):
                best, best_head = target, head
        return best

    def _has_room(self, target: str) -> bool:
        return any(
            worker.active < worker.capacity and not worker.is_draining
            for worker in self._able.get(target, ())
        )

    def _live_head(self, target: str, now: float) -> _Queued | None:
        queue = self._queues[target]
        while queue:
            head = queue[0]
            waiting = head[-1]
            if waiting.is_dead:
                heappop(queue)
            elif not waiting.is_late and now > waiting.offer.rank.latest_start:
                heappop(queue)  # can no longer be in time: behind those that can
                waiting.is_late = True
                self._push(waiting)
            else:
                return head
        del self._queues[target]
        return None

    def _choose(self, target: str, avoid: tuple[str, ...]) -> tuple[_Worker, str]:
        able = self._able[target]
        if len(able) == 1:
            return able[0], ""
        free = [worker for worker in able if worker.has_room]
        others = [worker for worker in free if worker.name not in avoid]
        chosen = self._balanced(others or free)
        self._turns += 1
        chosen.turn = self._turns
        chosen.given += 1 / chosen.weight
        why = f"{self._balance} of {_names(free)}"
        if others and len(others) < len(free):
            why += f", not {_names(worker for worker in free if worker.name in avoid)}"
        return chosen, why

    def _balanced(self, free: list[_Worker]) -> _Worker:
        match self._balance:
            case Balance.LEAST_BUSY:
                return min(free, key=lambda worker: (worker.active, worker.turn))
            case Balance.ROUND_ROBIN:
                return min(free, key=lambda worker: worker.turn)
            case Balance.WEIGHTED:
                return min(free, key=lambda w: (w.given + 1 / w.weight, w.turn))


def _target(offer: OfferAttempt) -> str:
    return f"worker {offer.worker}" if offer.worker else f"skill {offer.skill}"


def _names(workers: Iterable[_Worker]) -> str:
    return ", ".join(worker.name for worker in workers)
