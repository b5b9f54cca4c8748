"""One pool: which offered task gets which worker now. It hears of offers and free places only."""

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.breaker import Breaker, BreakerPolicy, BreakerState
from chargehand.decisions.elastic import Demand, Elastic, Resizer
from chargehand.decisions.limiter import Bucket
from chargehand.decisions.preemption import Holding, Want, givers
from chargehand.decisions.queue import Queue
from chargehand.errors import UsageError
from chargehand.facts.commands import OfferAttempt, PreemptAttempt, Rank, StartAttempt

AGEING = 300.0
#: seconds of waiting that weigh as much as one step of priority, so that no run starves

USUAL_BREAKER = BreakerPolicy(failures=10, rest=5.0, longest_rest=60.0)
#: of a worker: it works on many things at once, so that one blip is many failures in a row

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
    elastic: Elastic | None = None
    #: between which bounds its capacity follows the work, if it does

    @property
    def targets(self) -> tuple[str, ...]:
        """What tasks may call for to get this worker."""
        return (f"worker {self.worker}", *(f"skill {skill}" for skill in self.skills))


class Starts(Struct, frozen=True, kw_only=True):
    """How often a pool may start something, whoever it is for: an agreed rate of whatever is behind it."""

    a_minute: float
    burst: int = 1
    #: how many at once after a rest

    def __post_init__(self) -> None:
        if not self.a_minute > 0 or self.burst < 1:
            raise UsageError(
                f"Starts(a_minute={self.a_minute}, burst={self.burst}): more than 0, at least 1"
            )


_Key: TypeAlias = tuple[str, str, int]
#: an attempt: run, task, number
_Held: TypeAlias = "tuple[_Worker, _Run, Holding]"
#: the run as it was when the attempt began, for it may be led anew since


class _Worker:
    __slots__ = (
        "active",
        "breaker",
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

    def __init__(self, place: Place, parallel: int, breaker: BreakerPolicy) -> None:
        self.name = place.worker
        self.targets = place.targets
        self.resizer = None if place.elastic is None else Resizer(place.elastic)
        self.capacity = parallel if place.capacity is None else place.capacity
        self.weight = float(self.capacity if place.weight is None else place.weight)
        if self.resizer is not None:
            self.capacity = self.resizer.size
        if self.capacity < 1 or self.weight <= 0:
            raise UsageError(
                f"worker {place.worker!r}: capacity {self.capacity} must be at least 1, "
                f"weight {self.weight} more than 0"
            )
        self.active = 0
        self.given = 0.0
        self.turn = 0
        self.is_draining = False
        self.is_leaving = False
        self.breaker = Breaker(breaker)
        self.is_resting = False
        #: its breaker lets nothing through
        self.probe: _Key | None = None
        #: the attempt that is to show whether it works again

    @property
    def has_room(self) -> bool:
        return self.active < self.capacity and not self.is_draining and not self.is_resting

    @property
    def could_have_room(self) -> bool:
        """Whether it has room, or may grow until it has."""
        most = self.capacity if self.resizer is None else self.resizer.bounds.most
        return self.active < most and not self.is_draining and not self.is_resting


class _Waiting(Struct, order=True, gc=False):
    """An offer in a queue. Withdrawn ones stay there, dead, until they come up."""

    # The order goes by the fields down to the number, which is unique.
    urgency: float
    is_late: bool
    due: float
    arrival: float
    turn: int
    #: of the run, among those of one instant
    path: float
    order: int
    number: int
    run: str
    offer: OfferAttempt
    offered_at: float
    is_dead: bool = False


class _Run:
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
        self.number = number
        #: among runs of one instant, which would otherwise all take turns and end together, last
        self.longest = 0.0
        #: the longest path that was ever left of it
        self.parallel = parallel
        self.active = 0
        self.gave_way: dict[str, int] = {}
        #: by task: how often it was preempted
        self.parked: dict[str, Queue[_Waiting]] = {}
        #: by target: what waits for a place of the run itself
        self.waiting: dict[str, _Waiting] = {}


class Dispatch:
    """Gives free places to the most urgent offers.

    The order is: priority (aged by the run's arrival), runs that can still be in time before those
    that cannot, deadline (less half the run's longest path, where lengths are known), arrival of the
    run, longest remaining path, plan order. A worker that keeps
    failing gets nothing for a while, then one attempt as a probe, and everything again once one is done.
    """

    def __init__(
        self,
        parallel: int | Elastic,
        balance: Balance = Balance.LEAST_BUSY,
        breaker: BreakerPolicy | None = None,
        starts: Starts | None = None,
    ) -> None:
        self._resizer = Resizer(parallel) if isinstance(parallel, Elastic) else None
        self.most = parallel.most if isinstance(parallel, Elastic) else parallel
        #: places that the pool may ever have
        self.parallel = self.most if self._resizer is None else self._resizer.size
        if self.parallel < 1:
            raise UsageError(f"parallel={parallel} must be at least 1")
        self.active = 0
        self.probes_at: float | None = None
        #: when a breaker, the rate of starts or an elastic size may let the next attempt through, as
        #: of the last `place`
        self.resized: dict[str, int] = {}
        #: workers whose capacity the last `place` changed
        self._bucket = None if starts is None else Bucket(starts.a_minute, starts.burst)
        self._balance = balance
        self._breaker = breaker or USUAL_BREAKER
        self._troubled: dict[str, _Worker] = {}
        #: workers whose breaker is not closed
        self._workers: dict[str, _Worker] = {}
        self._elastic: dict[str, tuple[_Worker, Resizer]] = {}
        #: those whose capacity follows the work
        self._able: dict[str, list[_Worker]] = {}
        self._runs: dict[str, _Run] = {}
        self._queues: dict[str, Queue[_Waiting]] = {}
        self._held: dict[_Key, _Held] = {}
        #: the places that are taken, by attempt
        self._urgencies: set[int] = set()
        #: all that were ever offered; with one alone, nobody need give way
        self._ages_at = 0.0
        #: when those who wait are to be put in order anew
        self._thawing: dict[str, _Run] = {}
        #: runs in which something parked may go on
        self._run_count = 0
        self._arrivals = 0
        self._turns = 0
        self._started = 0

    def join(self, place: Place) -> None:
        """A worker takes part from now on; one that drains takes part again."""
        known = self._workers.get(place.worker)
        if known is not None:
            self._readmit(known)
            return
        worker = _Worker(place, self.most, self._breaker)
        # A newcomer starts level with the others; from nothing it would get every task for a while.
        worker.given = min((other.given for other in self._workers.values()), default=0.0)
        self._workers[place.worker] = worker
        if worker.resizer is not None:
            self._elastic[place.worker] = worker, worker.resizer
        for target in place.targets:
            self._able.setdefault(target, []).append(worker)

    def drain(self, worker: str) -> None:
        """Give this worker nothing new."""
        self._workers[worker].is_draining = True

    def leave(self, worker: str) -> bool:
        """Give this worker nothing new, and forget it once it holds nothing; whether that is so now."""
        known = self._workers.get(worker)
        if known is not None:
            known.is_draining = known.is_leaving = True
            self._let_go(known)
        return worker not in self._workers

    def held_by(self, worker: str) -> list[tuple[str, str, int]]:
        """The attempts that hold a place of this worker: run, task and number of each."""
        return [key for key, (holder, _, _) in self._held.items() if holder.name == worker]

    def _readmit(self, worker: _Worker) -> None:
        if worker.is_leaving:
            raise UsageError(f"worker {worker.name!r} is still leaving the pool; let it go first")
        if not worker.is_draining:
            raise UsageError(f"worker {worker.name!r} is in the pool already")
        worker.is_draining = False

    def _let_go(self, worker: _Worker) -> None:
        if worker.is_leaving and not worker.active:
            del self._workers[worker.name]
            self._elastic.pop(worker.name, None)
            self._troubled.pop(worker.name, None)
            for target in worker.targets:
                self._able[target].remove(worker)
                if not self._able[target]:
                    del self._able[target]

    def open_run(self, run: str, at: datetime, parallel: int) -> None:
        """Hear of a run before its offers. Runs are served in the order of their arrival."""
        self._run_count += 1
        self._runs[run] = _Run(at.timestamp(), self._run_count, parallel)

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
        rank = offer.rank
        owner.longest = max(owner.longest, -rank.path)
        self._arrivals += 1
        if rank.urgency not in self._urgencies:
            self._urgencies.add(rank.urgency)
        waiting = _Waiting(
            rank.urgency - _steps(owner.arrival, now),
            now > rank.latest_start,
            _due(rank, owner.longest),
            owner.arrival,
            owner.number,
            rank.path,
            rank.order,
            self._arrivals,
            run,
            offer,
            now,
        )
        owner.waiting[offer.task] = waiting
        self._queue_of(self._queues, _target(offer)).push(waiting)

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
        worker, owner, _ = held
        self.active -= 1
        worker.active -= 1
        owner.active -= 1
        self._thaw(run, owner)
        if worker.is_leaving:
            self._let_go(worker)

    def succeeded(self, worker: str) -> None:
        """An attempt of this worker's is done: it works."""
        known = self._workers.get(worker)
        if known is not None:
            known.breaker.succeed()
            known.probe = None
            if self._troubled.pop(worker, None) is not None:
                known.is_resting = False

    def failed(
        self, run: str, task: str, attempt: int, worker: str, now: float, error: str
    ) -> None:
        """An attempt failed in a way that speaks against its worker."""
        known = self._workers.get(worker)
        if known is None:
            return
        is_probe = known.probe == (run, task, attempt)
        if known.breaker.state is BreakerState.HALF_OPEN and not is_probe:
            return  # it began before the breaker opened, so it says nothing new
        known.breaker.fail(now, error)
        known.probe = None
        if known.breaker.state is not BreakerState.CLOSED:
            self._troubled[worker] = known
            known.is_resting = True

    def place(self, now: float) -> list[StartAttempt]:
        """Fill the free places, most urgent first; where their number is elastic, fit it to the demand."""
        self.probes_at = self._rouse(now) if self._troubled else None
        starts = self._fill(now)
        if self._resizer is not None or self._elastic:
            self.resized.clear()
            while self._resize(now):
                starts += self._fill(now)
        return starts

    def _fill(self, now: float) -> list[StartAttempt]:
        starts: list[StartAttempt] = []
        if self.active >= self.parallel:
            return starts
        self._unpark(now)
        if now >= self._ages_at:
            self._age(now)
        heads = self._heads(now)
        queues = self._queues
        while heads and self.active < self.parallel:
            if not self._may_start(now):
                break
            target = heads[0][1]
            queue = queues[target]
            if not self._has_room(target):  # another target took the last of it
                heappop(heads)
                continue
            waiting = queue.pop()
            run = self._runs[waiting.run]
            if run.active >= run.parallel:
                self._queue_of(run.parked, target).push(waiting)
            else:
                starts.append(self._start(waiting, run, target))
                if self._bucket is not None:
                    self._bucket.take(1, now)
            head = self._live_head(queue, now)
            if head is None:
                del queues[target]
                heappop(heads)
            else:
                heapreplace(heads, (head, target))
        return starts

    def _resize(self, now: float) -> bool:
        """Fit elastic numbers of places to the demand; whether there is more room than before."""
        looks: list[float] = []
        has_grown = False
        if self._resizer is not None:
            targets = [target for target in self._queues if self._could_have_room(target)]
            size = self._resizer.fit(self._demand(self.active, targets, now), now)
            has_grown, self.parallel = size > self.parallel, size
            looks.append(self._resizer.looks_at or math.inf)
        for worker, resizer in self._elastic.values():
            size = resizer.fit(self._demand(worker.active, worker.targets, now), now)
            if size != worker.capacity:
                has_grown |= size > worker.capacity
                self.resized[worker.name] = worker.capacity = size
            looks.append(resizer.looks_at or math.inf)
        looks_at = min(looks)
        if math.isfinite(looks_at):
            self.probes_at = min(self.probes_at or math.inf, looks_at)
        return has_grown

    def _demand(self, busy: int, targets: Iterable[str], now: float) -> Demand:
        waiting, since = 0, now
        for target in targets:
            queue = self._queues.get(target)
            head = None if queue is None else self._live_head(queue, now)
            if queue is not None and head is not None:
                waiting += len(queue)  # withdrawn ones may be among them; an elastic size has time
                since = min(since, head.offered_at)
        return Demand(busy, waiting, since)

    def make_room(self) -> list[PreemptAttempt]:
        """Whom to stop at the next safe point, because a more urgent offer finds no place. To be asked after `place`."""
        if len(self._urgencies) < 2 or not self._queues or self._bucket is not None:
            return []
        holdings = [holding for _, _, holding in self._held.values()]
        preempts: list[PreemptAttempt] = []
        for holding, want in givers(self._wants(len(holdings)), holdings):
            holding.gives_way = True
            times = self._held[holding.run, holding.task, holding.attempt][1].gave_way
            times[holding.task] = times.get(holding.task, 0) + 1
            why = f"{want.task} is more urgent and finds no place"
            preempts.append(PreemptAttempt(holding.run, holding.task, holding.attempt, why))
        return preempts

    def _wants(self, most: int) -> list[Want]:
        """The most urgent offers that wait for nothing but a place, in order."""
        waiting = [
            (each, target)
            for target, queue in self._queues.items()
            for each in queue.first(most)
            if not each.is_dead
        ]
        waiting.sort(key=lambda pair: pair[0])
        return [
            Want(each.offer.task, each.offer.rank.urgency, self._serving(target))
            for each, target in waiting[:most]
            if self._runs[each.run].active < self._runs[each.run].parallel
        ]

    def _serving(self, target: str) -> Callable[[str], bool]:
        able = {w.name for w in self._able.get(target, ()) if not (w.is_draining or w.is_resting)}
        # Where a worker has room, any place of the pool will do.
        return (lambda _: bool(able)) if self._has_room(target) else able.__contains__

    def _age(self, now: float) -> None:
        """Let those who wait gain on those who came later, so that no run starves."""
        self._ages_at = now + AGEING
        for target, queue in list(self._queues.items()):
            aged = self._queues[target] = Queue()
            for waiting in queue.all():
                if not waiting.is_dead:
                    waiting.urgency = waiting.offer.rank.urgency - _steps(waiting.arrival, now)
                    aged.push(waiting)

    def _may_start(self, now: float) -> bool:
        """Whether the rate of starts allows one more; if not, `probes_at` says when it will."""
        wait = 0.0 if self._bucket is None else self._bucket.wait(1, now)
        if wait:
            self.probes_at = min(self.probes_at or math.inf, now + wait)
        return not wait

    def _rouse(self, now: float) -> float | None:
        """See whose rest is over; returns when the next one's will be."""
        due: list[float] = []
        for worker in self._troubled.values():
            if worker.probe is not None and worker.probe not in self._held:
                # It has ended, and its report, if it came at all, spoke neither for nor against.
                worker.breaker.withdraw()
                worker.probe = None
            wait = worker.breaker.wait(now)
            worker.is_resting = wait > 0
            if worker.is_resting and math.isfinite(wait):
                due.append(worker.breaker.opens_at)
        return min(due, default=None)

    def _heads(self, now: float) -> list[tuple[_Waiting, str]]:
        """The most urgent offer of each target that has room, as a heap."""
        heads: list[tuple[_Waiting, str]] = []
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
        key = (waiting.run, offer.task, offer.attempt)
        times = run.gave_way.get(offer.task, 0) if run.gave_way else 0
        self._started += 1
        holding = Holding(*key, worker.name, offer.rank.urgency, self._started, times)
        self._held[key] = (worker, run, holding)
        if worker.name in self._troubled:
            worker.breaker.start()
            worker.probe, worker.is_resting = key, True
            why = f"to see whether {worker.name} works again"
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
                    self._queue_of(self._queues, target).push(parked.pop())
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
            grows = f", up to {self.most} in a while" if self.parallel < self.most else ""
            return f"a place in the pool ({self.active} of {self.parallel} taken{grows})"
        if owner.active >= owner.parallel:
            return f"a place of its run ({owner.active} of {owner.parallel} taken)"
        able = self._able.get(_target(waiting.offer), [])
        if not able:
            return f"a {_target(waiting.offer)} to join the pool"
        if all(worker.is_draining for worker in able):
            return f"somebody to take it; nothing new goes to {_names(able)}"
        if all(worker.is_resting for worker in able):
            return _breakers(able)
        if not any(worker.has_room for worker in able):
            return f"a place at {' or '.join(worker.name for worker in able)}"
        if self._bucket is not None:
            return f"the next start ({self._bucket.rate * 60:g} a minute)"
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

    def _queue_of(self, queues: dict[str, Queue[_Waiting]], target: str) -> Queue[_Waiting]:
        queue = queues.get(target)
        if queue is None:
            queue = queues[target] = Queue()
        return queue

    def _has_room(self, target: str) -> bool:
        for worker in self._able.get(target, ()):
            if worker.active < worker.capacity and not worker.is_draining and not worker.is_resting:
                return True
        return False

    def _could_have_room(self, target: str) -> bool:
        return any(worker.could_have_room for worker in self._able.get(target, ()))

    def _live_head(self, queue: Queue[_Waiting], now: float) -> _Waiting | None:
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


def _steps(arrival: float, now: float) -> int:
    """The steps of priority that a run has gained by waiting."""
    return max(0, math.floor((now - arrival) / AGEING))


def _due(rank: Rank, longest: float) -> float:
    """What goes for the deadline in the order: half-way from there to the latest start of the whole run.

    By the deadline alone, a long run that is due late begins too late; by the latest start alone, a
    crowded pool serves the longest first and few are in time. The whole run's, not that of what is
    left of it: one that gets on would fall behind those that did not, and none would ever be done.
    """
    is_known = rank.latest_start < rank.deadline
    return rank.deadline - longest / 2 if is_known else rank.deadline


def _target(offer: OfferAttempt) -> str:
    return f"worker {offer.worker}" if offer.worker else f"skill {offer.skill}"


def _breakers(workers: list[_Worker]) -> str:
    """Whose breakers are waited for, and until when."""
    whose = f"worker {workers[0].name}" if len(workers) == 1 else f"all of {_names(workers)}"
    rests = [w.breaker.opens_at for w in workers if w.breaker.state is BreakerState.OPEN]
    if not rests:
        return f"the breaker of {whose}, until its probe is back"
    until = datetime.fromtimestamp(min(rests), UTC).replace(microsecond=0)
    return f"the breaker of {whose}, until {until.isoformat()}"


def _names(workers: Iterable[_Worker]) -> str:
    names = [worker.name for worker in workers]
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} workers"
