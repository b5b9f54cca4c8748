"""Dispatch: which ready task gets which worker now. It knows only offers and worker slots."""

import math
from collections.abc import Callable
from datetime import datetime
from heapq import heappop, heapreplace
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.elastic_capacity import Elastic, Resizer
from chargehand.decisions.preemption import Holding, Want, givers
from chargehand.decisions.rate_limiter import Bucket
from chargehand.decisions.ready_queue import AGEING, Lane, ReadyQueue, Waiting, target_of
from chargehand.decisions.worker_slots import Balance, Key, Place, SlotState, WorkerSlots
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import CheckedKeywords, amount, count
from chargehand.facts.scheduler_commands import OfferAttempt, PreemptAttempt, StartAttempt

__all__ = ["AGEING", "Balance", "Dispatch", "Place", "Starts"]

#: worker, run and slot of an attempt; its lane is kept because the run may have been opened again since
_Held: TypeAlias = tuple[SlotState, Lane, Holding]


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
