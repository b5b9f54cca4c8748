"""One pool: which offered task gets which worker now. It hears of offers and free places only."""

import math
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from msgspec import Struct

from chargehand.errors import UsageError
from chargehand.facts.commands import OfferAttempt, StartAttempt

AGEING = 300.0
#: seconds of waiting that weigh as much as one step of priority, so that no run starves

MOST_NAMES = 4
#: of workers in an explanation


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
    offer: OfferAttempt
    is_late: bool
    is_dead: bool = False


class _Run:
    __slots__ = ("active", "ageing", "arrival", "parallel", "parked", "waiting")

    def __init__(self, arrival: float, parallel: int) -> None:
        self.arrival = arrival
        self.parallel = parallel
        self.active = 0
        self.ageing = math.floor(arrival / AGEING)
        self.parked: dict[str, list[_Queued]] = {}
        #: by target: what waits for a place of the run itself
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
        self._held: dict[tuple[str, str, int], tuple[_Worker, _Run]] = {}
        #: the places that are taken, by attempt; the run as it was then, for it may be led anew since
        self._thawing: dict[str, _Run] = {}
        #: runs in which something parked may go on
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
        self._thawing.pop(run, None)
        if closed is not None:
            for waiting in closed.waiting.values():
                waiting.is_dead = True

    def offer(self, run: str, offer: OfferAttempt, now: float) -> None:
        """Queue a task that may start."""
        owner = self._runs[run]
        waiting = _Waiting(run, offer, now > offer.rank.latest_start)
        owner.waiting[offer.task] = waiting
        self._push(waiting, owner)

    def withdraw(self, run: str, task: str) -> None:
        """The task is not to start after all; unknown ones are fine."""
        owner = self._runs.get(run)
        waiting = None if owner is None else owner.waiting.pop(task, None)
        if waiting is not None and owner is not None:
            waiting.is_dead = True
            self._thaw(run, owner)

    def freed(self, run: str, task: str, attempt: int) -> None:
        """An attempt has really ended, and its place with it; unknown ones are fine."""
        held = self._held.pop((run, task, attempt), None)
        if held is None:
            return
        worker, owner = held
        self.active -= 1
        worker.active -= 1
        owner.active -= 1
        self._thaw(run, owner)

    def place(self, now: float) -> list[StartAttempt]:
        """Fill the free places, most urgent first."""
        starts: list[StartAttempt] = []
        if self.active >= self.parallel:
            return starts
        self._unpark(now)
        heads = self._heads(now)
        queues = self._queues
        while heads and self.active < self.parallel:
            target = heads[0][1]
            queue = queues[target]
            if not self._has_room(target):  # another target took the last of it
                heappop(heads)
                continue
            queued = heappop(queue)
            waiting = queued[-1]
            run = self._runs[waiting.run]
            if run.active >= run.parallel:
                heappush(run.parked.setdefault(target, []), queued)
            else:
                starts.append(self._start(waiting, run, target))
            head = self._live_head(queue, now)
            if head is None:
                del queues[target]
                heappop(heads)
            else:
                heapreplace(heads, (head, target))
        return starts

    def _heads(self, now: float) -> list[tuple[_Queued, str]]:
        """The most urgent offer of each target that has room, as a heap."""
        heads: list[tuple[_Queued, str]] = []
        for target, queue in list(self._queues.items()):
            if self._has_room(target):
                head = self._live_head(queue, now)
                if head is None:
                    del self._queues[target]
                else:
                    heads.append((head, target))
        heapify(heads)
        return heads

    def _start(self, waiting: _Waiting, run: _Run, target: str) -> StartAttempt:
        offer = waiting.offer
        worker, why = self._choose(target, offer.avoid)
        worker.active += 1
        run.active += 1
        self.active += 1
        del run.waiting[offer.task]
        self._held[waiting.run, offer.task, offer.attempt] = (worker, run)
        return StartAttempt(waiting.run, offer.task, offer.attempt, worker.name, why)

    def _thaw(self, name: str, run: _Run) -> None:
        if run.parked and self._runs.get(name) is run:
            self._thawing[name] = run

    def _unpark(self, now: float) -> None:
        """Bring back as many offers of each run as it has places for, the most urgent ones."""
        for run in self._thawing.values():
            for target, parked in list(run.parked.items()):
                for _ in range(run.parallel - run.active):
                    if self._live_head(parked, now) is None:
                        break
                    heappush(self._queues.setdefault(target, []), heappop(parked))
                if not parked:
                    del run.parked[target]
        self._thawing.clear()

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
        assert self.active == len(self._held), "a place is taken by nobody"
        for worker in self._workers.values():
            assert 0 <= worker.active <= worker.capacity, f"{worker.name} holds more than it may"
        for run in self._runs.values():
            assert 0 <= run.active <= run.parallel, "a run holds more than it may"

    def _push(self, waiting: _Waiting, run: _Run) -> None:
        queue = self._queues.setdefault(_target(waiting.offer), [])
        heappush(queue, self._queued(waiting, run))

    def _queued(self, waiting: _Waiting, run: _Run) -> _Queued:
        rank = waiting.offer.rank
        self._arrivals += 1
        # Ageing is linear, so that the order of two offers never changes while they wait and a
        # plain heap will do: arriving AGEING seconds earlier is worth one step of priority.
        return (
            rank.urgency + run.ageing,
            waiting.is_late,
            rank.deadline,
            run.arrival,
            rank.path,
            rank.order,
            self._arrivals,
            waiting,
        )

    def _has_room(self, target: str) -> bool:
        for worker in self._able.get(target, ()):
            if worker.active < worker.capacity and not worker.is_draining:
                return True
        return False

    def _live_head(self, queue: list[_Queued], now: float) -> _Queued | None:
        while queue:
            head = queue[0]
            waiting = head[-1]
            if waiting.is_dead:
                heappop(queue)
            elif not waiting.is_late and now > waiting.offer.rank.latest_start:
                waiting.is_late = True  # can no longer be in time: behind those that can
                heapreplace(queue, self._queued(waiting, self._runs[waiting.run]))
            else:
                return head
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
    names = [worker.name for worker in workers]
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} workers"
