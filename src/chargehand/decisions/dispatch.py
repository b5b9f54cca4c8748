"""Dispatch: which ready task gets which worker now. It knows only offers, and the workers of a pool with their slots."""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from heapq import heappop, heapreplace
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.circuit_breaker import (
    OF_WORKERS,
    Breaker,
    BreakerPolicy,
    BreakerState,
    breaker_words,
)
from chargehand.decisions.elastic_capacity import Elastic, Resizer
from chargehand.decisions.preemption import Holding, Want, givers
from chargehand.decisions.rate_limiter import Bucket
from chargehand.decisions.ready_queue import Lane, ReadyQueue, Waiting, target_of
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import CheckedKeywords, amount, count
from chargehand.facts.breaker_figures import BreakerFigures
from chargehand.facts.scheduler_commands import OfferAttempt, PreemptAttempt, StartAttempt

#: an attempt: run, task, number
Key: TypeAlias = tuple[str, str, int]

#: words about a task that waits until a worker is added
TO_JOIN, TO_TAKE = "to join the pool", "a worker to take it"
#: names of workers in an explanation
MOST_NAMES = 4


class Balance(StrEnum):
    """Which of several suitable workers gets the next task."""

    LEAST_BUSY = "least_busy"  #: the one with the fewest tasks
    ROUND_ROBIN = "round_robin"  #: each in turn
    WEIGHTED = "weighted"  #: in proportion to their weights


class Place(Struct, frozen=True, kw_only=True):
    """A worker with its skills and slots."""

    worker: str
    skills: tuple[str, ...] = ()
    #: attempts at once, fixed or elastic; None: as many as the pool
    capacity: int | Elastic | None = None
    #: its share under `Balance.WEIGHTED`; None: its capacity
    weight: float | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that this worker serves: its name and its skills."""
        return (f"worker {self.worker}", *(f"skill {skill}" for skill in self.skills))

    @property
    def most(self) -> int | None:
        """The largest number of attempts that it may have at once; None: as many as the pool."""
        return self.capacity.most if isinstance(self.capacity, Elastic) else self.capacity


class SlotState:
    """One worker of the pool and the state of its slots."""

    __slots__ = (
        "active",
        "capacity",
        "given",
        "is_draining",
        "is_leaving",
        "is_resting",
        "name",
        "probe",
        "resizer",
        "targets",
        "turn",
        "weight",
    )

    def __init__(self, place: Place, parallel: int) -> None:
        self.name = place.worker
        self.targets = place.targets
        whose = f"worker {place.worker!r}"
        most = count(parallel if place.most is None else place.most, f"{whose}: capacity", least=1)
        self.weight = amount(most if place.weight is None else place.weight, f"{whose}: weight")
        self.resizer = Resizer(place.capacity) if isinstance(place.capacity, Elastic) else None
        self.capacity = self.resizer.size if self.resizer is not None else most
        if not self.weight:
            raise UsageError(f"{whose}: weight=0 must be more than 0")
        self.active = 0
        self.given = 0.0
        self.turn = 0
        self.is_draining = False
        self.is_leaving = False
        #: its circuit breaker lets no new attempt through
        self.is_resting = False
        #: the attempt that tests whether it works again
        self.probe: Key | None = None

    @property
    def is_willing(self) -> bool:
        """Whether it takes new attempts, if it has room."""
        return not self.is_draining and not self.is_resting

    @property
    def has_room(self) -> bool:
        return self.active < self.capacity and self.is_willing

    @property
    def could_have_room(self) -> bool:
        """Whether it has room, or can grow to have room."""
        most = self.capacity if self.resizer is None else self.resizer.bounds.most
        return self.active < most and self.is_willing


class WorkerSlots:
    """The workers of a pool, by name and by target.

    A worker that keeps failing gets no attempts for a while, then one attempt as a probe, and all
    again as soon as an attempt of it is done.
    """

    def __init__(self, parallel: int, balance: Balance, breaker: BreakerPolicy | None) -> None:
        #: the workers with an elastic capacity
        self.elastic: dict[str, tuple[SlotState, Resizer]] = {}
        #: the workers whose breaker is not closed
        self.troubled: dict[str, SlotState] = {}
        self._parallel = parallel
        self._balance = balance
        #: when the breakers of these workers open, and for how long
        self.breaker = OF_WORKERS if breaker is None else breaker.over(OF_WORKERS)
        #: the breakers of workers that have failed since they last succeeded
        self._breakers: dict[str, Breaker] = {}
        self._workers: dict[str, SlotState] = {}
        self._able: dict[str, list[SlotState]] = {}
        self._turns = 0
        #: the smallest `given` of all workers, and the turn at which it was computed
        self._least: tuple[int, float] | None = None

    def __iter__(self) -> Iterator[SlotState]:
        return iter(self._workers.values())

    # workers

    def join(self, place: Place) -> None:
        """Add a worker; a draining worker gets new attempts again."""
        known = self._workers.get(place.worker)
        if known is not None:
            _readmit(known)
            return
        worker = SlotState(place, self._parallel)
        # A new worker starts level with the others; from 0, it would get every task for a while.
        worker.given = self._least_given()
        self._workers[place.worker] = worker
        if worker.resizer is not None:
            self.elastic[place.worker] = worker, worker.resizer
        for target in place.targets:
            self._able.setdefault(target, []).append(worker)

    def _least_given(self) -> float:
        # Computed again only after a start, so that many joins in a row stay cheap.
        if self._least is None or self._least[0] != self._turns:
            given = (worker.given for worker in self._workers.values())
            self._least = self._turns, min(given, default=0.0)
        return self._least[1]

    def drain(self, worker: str) -> None:
        """Give this worker no new attempts."""
        self._workers[worker].is_draining = True

    def leave(self, worker: str) -> bool:
        """Drain this worker and remove it as soon as it holds no attempt; returns whether it is removed now."""
        known = self._workers.get(worker)
        if known is not None:
            known.is_draining = known.is_leaving = True
            self.let_go(known)
        return worker not in self._workers

    def let_go(self, worker: SlotState) -> None:
        """Remove a leaving worker if it holds no attempt any more."""
        if not worker.is_leaving or worker.active:
            return
        del self._workers[worker.name]
        self._least = None
        self.elastic.pop(worker.name, None)
        self.troubled.pop(worker.name, None)
        self._breakers.pop(worker.name, None)
        for target in worker.targets:
            self._able[target].remove(worker)
            if not self._able[target]:
                del self._able[target]

    # circuit breakers

    def succeeded(self, worker: str) -> None:
        """An attempt of this worker is done, so its breaker closes."""
        if self._breakers.pop(worker, None) is None:
            return  # it had not failed
        known = self._workers[worker]
        known.probe = None
        if self.troubled.pop(worker, None) is not None:
            known.is_resting = False

    def failed(self, attempt: Key, worker: str, now: float, error: str) -> None:
        """An attempt failed in a way that counts against its worker."""
        known = self._workers.get(worker)
        if known is None:
            return
        breaker = self._breakers.get(worker)
        if breaker is None:
            breaker = self._breakers[worker] = Breaker(self.breaker)
        if breaker.state is BreakerState.HALF_OPEN and known.probe != attempt:
            return  # it started before the breaker opened, so it says nothing new
        breaker.fail(now, error)
        known.probe = None
        if breaker.state is not BreakerState.CLOSED:
            self.troubled[worker] = known
            known.is_resting = True

    def rouse(self, now: float, held: Container[Key]) -> float | None:
        """Wake the workers whose rest is over; returns when the next rest ends. `held` are the open attempts."""
        due: list[float] = []
        for worker in self.troubled.values():
            breaker = self._breakers[worker.name]
            if worker.probe is not None and worker.probe not in held:
                # The probe ended without a report that counts for or against the worker.
                breaker.withdraw()
                worker.probe = None
            wait = breaker.wait(now)
            worker.is_resting = wait > 0
            if worker.is_resting and math.isfinite(wait):
                due.append(breaker.opens_at)
        return min(due, default=None)

    def is_tried(self, worker: SlotState, attempt: Key) -> bool:
        """If the worker's breaker is not closed, make this attempt its probe; returns whether it is."""
        if worker.name not in self.troubled:
            return False
        self._breakers[worker.name].start()
        worker.probe, worker.is_resting = attempt, True
        return True

    # choice of a worker

    def has_room(self, target: str) -> bool:
        for worker in self._able.get(target, ()):
            if worker.active < worker.capacity and not worker.is_draining and not worker.is_resting:
                return True
        return False

    def could_have_room(self, target: str) -> bool:
        return any(worker.could_have_room for worker in self._able.get(target, ()))

    def willing(self, target: str) -> set[str]:
        """The workers that serve this target and take new attempts, if they have room."""
        return {worker.name for worker in self._able.get(target, ()) if worker.is_willing}

    def choose(self, target: str, avoid: tuple[str, ...]) -> tuple[SlotState, str]:
        """The worker that gets the next task, and why. At least one worker must have room."""
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

    def _balanced(self, free: list[SlotState]) -> SlotState:
        match self._balance:
            case Balance.LEAST_BUSY:
                return min(free, key=lambda worker: (worker.active, worker.turn))
            case Balance.ROUND_ROBIN:
                return min(free, key=lambda worker: worker.turn)
            case Balance.WEIGHTED:
                return min(free, key=lambda w: (w.given + 1 / w.weight, w.turn))

    def why_nobody(self, target: str) -> str:
        """Why no worker can take this target now, in words; empty if one can."""
        able = self._able.get(target, [])
        if not able:
            return f"a {target} {TO_JOIN}"
        if all(worker.is_draining for worker in able):
            return f"{TO_TAKE}; no new tasks go to {_names(able)}"
        if all(worker.is_resting for worker in able):
            return self._waiting_for_breakers(able)
        if not any(worker.has_room for worker in able):
            return f"a slot of {' or '.join(worker.name for worker in able)}"
        return ""

    def _waiting_for_breakers(self, workers: list[SlotState]) -> str:
        """Which breakers are waited for, and until when."""
        whose = f"worker {workers[0].name}" if len(workers) == 1 else f"all of {_names(workers)}"
        breakers = [self._breakers[worker.name] for worker in workers]
        rests = [each.opens_at for each in breakers if each.state is BreakerState.OPEN]
        until = datetime.fromtimestamp(min(rests), UTC) if rests else None
        return breaker_words(whose, until)

    def check(self, active: int) -> None:
        """Check the invariants; `active` attempts hold a slot."""
        assert active == sum(worker.active for worker in self._workers.values())
        for worker in self._workers.values():
            assert 0 <= worker.active <= worker.capacity, f"{worker.name} holds more than it may"


class Starts(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """The start rate of a pool: the maximum number of starts per minute, over all workers."""

    a_minute: float
    #: how many may start at once after an idle time
    burst: int = 1

    def __post_init__(self) -> None:
        if not amount(self.a_minute, "Starts: a_minute"):
            raise UsageError("Starts: a_minute=0 would never start anything; give more")
        count(self.burst, "Starts: burst", least=1)


class WorkerLoad(Struct, frozen=True, kw_only=True):
    """The current load of one worker."""

    name: str
    #: attempts in progress, and how many it may have at once
    active: int
    capacity: int
    #: it gets no new attempts
    is_draining: bool
    #: it keeps failing, so it gets no attempts for a while
    is_resting: bool
    #: run, task and number of each attempt
    held: tuple[tuple[str, str, int], ...]


#: worker, run and slot of an attempt; its lane is kept because the run may have been opened again since
_Held: TypeAlias = tuple[SlotState, Lane, Holding]


class Dispatch:
    """Gives free slots to the most urgent offers.

    The order is: priority (aged by the run's arrival), runs that can still be in time before those
    that cannot, deadline (less half the run's longest path, where lengths are known), arrival of the
    run, longest remaining path, plan order. If no slot is free for an offer that is more urgent than
    a running attempt, the pool grows if it can; otherwise the least urgent attempt is preempted.
    """

    def __init__(
        self,
        parallel: int | Elastic,
        balance: Balance = Balance.LEAST_BUSY,
        breaker: BreakerPolicy | None = None,
        starts: Starts | None = None,
    ) -> None:
        self._resizer = Resizer(parallel) if isinstance(parallel, Elastic) else None
        if not isinstance(parallel, Elastic):
            count(parallel, "parallel", least=1)
        #: the largest number of slots that the pool may have
        self.most = parallel.most if isinstance(parallel, Elastic) else parallel
        self.parallel = self.most if self._resizer is None else self._resizer.size
        if self.parallel < 1:
            raise UsageError(f"parallel={parallel} must be at least 1")
        self.active = 0
        #: when a breaker, the start rate or an elastic size may allow the next start, as of the last `place`
        self.probes_at: float | None = None
        #: workers whose capacity the last `place` changed
        self.resized: dict[str, int] = {}
        self._bucket = None if starts is None else Bucket(starts.a_minute, starts.burst)
        self._staff = WorkerSlots(self.most, balance, breaker)
        self._offers = ReadyQueue()
        #: the taken slots, by attempt
        self._held: dict[Key, _Held] = {}
        self._started = 0

    # workers

    def join(self, place: Place) -> None:
        """Add a worker; a draining worker gets new attempts again."""
        self._staff.join(place)

    @property
    def breaker(self) -> BreakerFigures:
        """When the breakers of the workers open, and for how long."""
        return self._staff.breaker

    def drain(self, worker: str) -> None:
        """Give this worker no new attempts."""
        self._staff.drain(worker)

    def leave(self, worker: str) -> bool:
        """Drain this worker and remove it as soon as it holds no attempt; returns whether it is removed now."""
        return self._staff.leave(worker)

    def held_by(self, worker: str) -> list[tuple[str, str, int]]:
        """The attempts that hold a slot of this worker: run, task and number of each."""
        return [key for key, (holder, _, _) in self._held.items() if holder.name == worker]

    def loads(self) -> list[WorkerLoad]:
        """The current load of each worker."""
        held: dict[str, list[Key]] = {}
        for key, (holder, _, _) in self._held.items():
            held.setdefault(holder.name, []).append(key)
        return [
            WorkerLoad(
                name=slot.name,
                active=slot.active,
                capacity=slot.capacity,
                is_draining=slot.is_draining,
                is_resting=slot.is_resting,
                held=tuple(held.get(slot.name, ())),
            )
            for slot in self._staff
        ]

    def succeeded(self, worker: str) -> None:
        """An attempt of this worker is done, so its breaker closes."""
        self._staff.succeeded(worker)

    def failed(
        self, run: str, task: str, attempt: int, worker: str, now: float, error: str
    ) -> None:
        """An attempt failed in a way that counts against its worker."""
        self._staff.failed((run, task, attempt), worker, now, error)

    # offers

    def open_run(self, run: str, at: datetime, parallel: int) -> None:
        """Register a run, before its first offer. Runs are served in the order of their arrival."""
        self._offers.open_run(run, at, parallel)

    def close_run(self, run: str) -> None:
        """Drop the queued offers of a run. Its running attempts still count."""
        self._offers.close_run(run)

    def offer(self, run: str, offer: OfferAttempt, now: float) -> None:
        """Queue a task that may start."""
        self._offers.add(run, offer, now)

    def withdraw(self, run: str, task: str) -> None:
        """Take back an offer; an unknown task is ignored."""
        self._offers.withdraw(run, task)

    def freed(self, run: str, task: str, attempt: int) -> None:
        """Free the slot of an attempt that has really ended; an unknown attempt is ignored."""
        held = self._held.pop((run, task, attempt), None)
        if held is None:
            return
        worker, lane, _ = held
        self.active -= 1
        worker.active -= 1
        lane.active -= 1
        self._offers.thaw(run, lane)
        if worker.is_leaving:
            self._staff.let_go(worker)

    # slots

    def place(self, now: float) -> list[StartAttempt]:
        """Fill the free slots, most urgent offer first, and fit an elastic number of slots to the demand."""
        staff = self._staff
        self._offers.forget_withdrawn()
        self.probes_at = staff.rouse(now, self._held) if staff.troubled else None
        starts = self._fill(now)
        if self._resizer is not None or staff.elastic:
            self.resized.clear()
            while self._resize(now):
                starts += self._fill(now)
        return starts

    def make_room(self) -> list[PreemptAttempt]:
        """The attempts to preempt because a more urgent offer finds no free slot. Call this after `place`."""
        preempts: list[PreemptAttempt] = []
        for holding, want in self._givers():
            holding.gives_way = True
            times = self._held[holding.run, holding.task, holding.attempt][1].gave_way
            times[holding.task] = times.get(holding.task, 0) + 1
            why = f"{want.task} is more urgent and finds no free slot"
            preempts.append(PreemptAttempt(holding.run, holding.task, holding.attempt, why))
        return preempts

    def why_waiting(self, run: str, task: str) -> str:
        """What an offered task waits for, in words; empty if it is not in the queue."""
        found = self._offers.find(run, task)
        if found is None:
            return ""
        waiting, lane = found
        if self.active >= self.parallel:
            grows = f"; the pool can grow to {self.most}" if self.parallel < self.most else ""
            return f"a slot in the pool ({self.active} of {self.parallel} taken{grows})"
        if lane.is_full:
            return f"a slot of its run ({lane.active} of {lane.parallel} taken)"
        nobody = self._staff.why_nobody(target_of(waiting.offer))
        if nobody:
            return nobody
        if self._bucket is not None:
            return f"the next start (at most {self._bucket.rate * 60:g} per minute)"
        return "its turn"

    def check(self) -> None:
        """State the invariants; the tests call this after every change."""
        assert 0 <= self.active <= self.parallel, "the pool holds more than it may"
        assert self.active == len(self._held), "a slot is taken by no attempt"
        self._staff.check(self.active)
        self._offers.check()

    def _fill(self, now: float) -> list[StartAttempt]:
        starts: list[StartAttempt] = []
        if self.active >= self.parallel:
            return starts
        offers, has_room = self._offers, self._staff.has_room
        offers.refresh(now)
        heads = offers.heads(has_room, now)
        while heads and self.active < self.parallel:
            if not self._may_start(now):
                break
            target = heads[0][1]
            if not has_room(target):  # another target took the last slot
                heappop(heads)
                continue
            waiting, lane = offers.take(target)
            if lane.active >= lane.parallel:
                offers.park(waiting, lane, target)
            else:
                starts.append(self._start(waiting, lane, target))
                if self._bucket is not None:
                    self._bucket.take(1, now)
            head = offers.head(target, now)
            if head is None:
                heappop(heads)
            else:
                heapreplace(heads, (head, target))
        return starts

    def _start(self, waiting: Waiting, lane: Lane, target: str) -> StartAttempt:
        offer = waiting.offer
        worker, why = self._staff.choose(target, offer.avoid)
        worker.active += 1
        lane.active += 1
        self.active += 1
        del lane.waiting[offer.task]
        key = (waiting.run, offer.task, offer.attempt)
        times = lane.gave_way.get(offer.task, 0) if lane.gave_way else 0
        self._started += 1
        holding = Holding(*key, worker.name, offer.rank.urgency, self._started, times)
        self._held[key] = (worker, lane, holding)
        if self._staff.troubled and self._staff.is_tried(worker, key):
            why = f"to see whether {worker.name} works again"
        return StartAttempt(waiting.run, offer.task, offer.attempt, worker.name, why)

    def _may_start(self, now: float) -> bool:
        """Whether the start rate allows one more start; if not, `probes_at` says when it will."""
        wait = 0.0 if self._bucket is None else self._bucket.wait(1, now)
        if wait:
            self.probes_at = min(self.probes_at or math.inf, now + wait)
        return not wait

    # elastic numbers of slots

    def _resize(self, now: float) -> bool:
        """Fit elastic numbers of slots to the demand; returns whether there are more slots than before."""
        offers, looks = self._offers, list[float]()
        pressing = self._pressing()
        has_grown = False
        if self._resizer is not None:
            targets = [each for each in offers.targets if self._staff.could_have_room(each)]
            size = self._resizer.fit(offers.demand(self.active, targets, now, len(pressing)), now)
            has_grown, self.parallel = size > self.parallel, size
            looks.append(self._resizer.looks_at or math.inf)
        for worker, resizer in self._staff.elastic.values():
            pressed = sum(target in worker.targets for target in pressing)
            size = resizer.fit(offers.demand(worker.active, worker.targets, now, pressed), now)
            if size != worker.capacity:
                has_grown |= size > worker.capacity
                self.resized[worker.name] = worker.capacity = size
            looks.append(resizer.looks_at or math.inf)
        looks_at = min(looks)
        if math.isfinite(looks_at):
            self.probes_at = min(self.probes_at or math.inf, looks_at)
        return has_grown

    def _pressing(self) -> list[str]:
        """The targets of offers that would preempt an attempt unless the pool gets more slots."""
        if self.active >= self.most:
            return []
        targets = [want.target for _, want in self._givers()]
        return [target for target in targets if self._staff.could_have_room(target)]

    def _givers(self) -> list[tuple[Holding, Want]]:
        """Which attempt would be preempted for which offer, with the slots that there are now."""
        offers = self._offers
        if len(offers.urgencies) < 2 or not offers or self._bucket is not None:
            return []
        holdings = [holding for _, _, holding in self._held.values()]
        wants = [
            Want(each.offer.task, each.offer.rank.urgency, target, self._serving(target))
            for each, target in offers.first(len(holdings))
        ]
        return givers(wants, holdings)

    def _serving(self, target: str) -> Callable[[str], bool]:
        able = self._staff.willing(target)
        # If a suitable worker has room, any slot of the pool will do.
        return (lambda _: bool(able)) if self._staff.has_room(target) else able.__contains__


def _readmit(worker: SlotState) -> None:
    if worker.is_leaving:
        raise UsageError(f"worker {worker.name!r} is still leaving the pool; let it go first")
    if not worker.is_draining:
        raise UsageError(f"worker {worker.name!r} is in the pool already")
    worker.is_draining = False


def _names(workers: Iterable[SlotState]) -> str:
    names = [worker.name for worker in workers]
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} workers"
