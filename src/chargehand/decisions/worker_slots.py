"""The workers of a pool and their slots: skills, free slots, circuit breakers, balance."""

import math
from collections.abc import Container, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.circuit_breaker import (
    OF_WORKERS,
    Breaker,
    BreakerPolicy,
    BreakerState,
)
from chargehand.decisions.elastic_capacity import Elastic, Resizer
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import amount, count

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
        self._breaker = OF_WORKERS if breaker is None else breaker.over(OF_WORKERS)
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
            breaker = self._breakers[worker] = Breaker(self._breaker)
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
        if not rests:
            return f"the circuit breaker of {whose}, until its probe has ended"
        until = datetime.fromtimestamp(min(rests), UTC).replace(microsecond=0)
        return f"the circuit breaker of {whose}, until {until.isoformat()}"

    def check(self, active: int) -> None:
        """Check the invariants; `active` attempts hold a slot."""
        assert active == sum(worker.active for worker in self._workers.values())
        for worker in self._workers.values():
            assert 0 <= worker.active <= worker.capacity, f"{worker.name} holds more than it may"


def _readmit(worker: SlotState) -> None:
    if worker.is_leaving:
        raise UsageError(f"worker {worker.name!r} is still leaving the pool; let it go first")
    if not worker.is_draining:
        raise UsageError(f"worker {worker.name!r} is in the pool already")
    worker.is_draining = False


def _names(workers: Iterable[SlotState]) -> str:
    names = [worker.name for worker in workers]
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} workers"
