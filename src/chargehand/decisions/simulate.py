"""What would become of a plan: the real desk on a virtual clock, with work that only takes time.

Nothing here is a model of the scheduler. The same desk, schedule and dispatch that lead a run are
driven from instant to instant, so a plan that is simulated starts its tasks in the order in which
it would really start them, if each took as long as is said here and none failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.desk import Desk, Message, Round, Stop
from chargehand.decisions.dispatch import Balance, Dispatch, Place
from chargehand.decisions.schedule import RULES
from chargehand.errors import UsageError
from chargehand.facts.commands import StartAttempt
from chargehand.facts.events import (
    AttemptFinished,
    Pace,
    PlanAdopted,
    RunFinished,
    RunRequested,
    RunStatus,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NOTHING_DONE, Cancelled
from chargehand.facts.plan import Plan, Task

Seconds = Callable[[Task], float]
#: how long a task takes, as far as the simulation is concerned

UNBOUNDED = Limits(tasks=10_000_000, parallel=10_000_000, active=timedelta(days=36_500))
#: only the pool holds a run back

_DAWN = datetime(2000, 1, 1, tzinfo=UTC)
#: time zero; any would do, but one that divides by AGEING keeps runs of one instant level


class Arrival(Struct, frozen=True, kw_only=True):
    """A run that is to come, among others."""

    plan: Plan
    at: timedelta = timedelta(0)
    #: from time zero
    priority: int = 0
    deadline: timedelta | None = None
    #: from its arrival; a run that is still going then is stopped, as it would really be
    name: str = ""
    #: in the spans; empty: `run1`, `run2` and so on


class Span(Struct, frozen=True):
    """One attempt, from its start to its end, both counted from time zero."""

    run: str
    task: str
    worker: str
    start: timedelta
    end: timedelta
    was_stopped: bool = False
    #: its run was out of time before it was through

    @property
    def length(self) -> timedelta:
        return self.end - self.start


class WaitedFor(StrEnum):
    """What kept a task from starting any earlier."""

    ARRIVAL = "arrival"  #: nothing: it began as soon as its run was there
    NEED = "need"  #: the task before it in the path had to end first
    PLACE = "place"  #: the task before it in the path held the place that it got


class Link(Struct, frozen=True):
    """One stretch of the path that the makespan was made of."""

    run: str
    task: str
    waited_for: WaitedFor


class RunEnd(Struct, frozen=True):
    """How a simulated run came out; both instants are counted from time zero."""

    status: RunStatus
    arrived: timedelta
    ended: timedelta

    @property
    def length(self) -> timedelta:
        return self.ended - self.arrived


class Simulation(Struct, frozen=True, kw_only=True):
    """When everything would start and end."""

    parallel: int
    spans: tuple[Span, ...]
    #: in the order of their starts
    runs: dict[str, RunEnd]
    #: by name, in the order of their ends
    path: tuple[Link, ...]
    #: from the last task to end back to one that waited for nothing, first to last: what would
    #: have to be shorter, or have more places, for the whole to be shorter

    @property
    def makespan(self) -> timedelta:
        """From the first arrival to the last end."""
        ends = self.runs.values()
        return max(end.ended for end in ends) - min(end.arrived for end in ends)

    @property
    def work(self) -> timedelta:
        """The lengths of all attempts together: the makespan of one pair of hands."""
        return sum((span.length for span in self.spans), timedelta(0))

    @property
    def speedup(self) -> float:
        """How many times faster than one after the other."""
        return self.work / self.makespan if self.makespan else 1.0

    @property
    def utilisation(self) -> float:
        """The part of the pool's time that was worked, between 0 and 1."""
        return self.speedup / self.parallel if self.makespan else 0.0

    def busy(self, worker: str) -> timedelta:
        """The lengths of all attempts of one worker together."""
        return sum((s.length for s in self.spans if s.worker == worker), timedelta(0))


def simulate(
    plan: Plan,
    places: Iterable[Place],
    *,
    parallel: int,
    seconds: Seconds,
    paces: Mapping[str, Pace] | None = None,
    limits: Limits = UNBOUNDED,
    balance: Balance = Balance.LEAST_BUSY,
) -> Simulation:
    """Lead one run of `plan` on a pool of `parallel` places, and say when everything happened.

    The order of tasks rests on what the supervisor would know, `paces` and each task's `expect`;
    `seconds` is what comes true. Raises `PlanRefused` for a plan that would not be led at all.
    """
    return simulate_runs(
        [Arrival(plan=plan)],
        places,
        parallel=parallel,
        seconds=seconds,
        paces=paces,
        limits=limits,
        balance=balance,
    )


def simulate_runs(
    arrivals: Sequence[Arrival],
    places: Iterable[Place],
    *,
    parallel: int,
    seconds: Seconds,
    paces: Mapping[str, Pace] | None = None,
    limits: Limits = UNBOUNDED,
    balance: Balance = Balance.LEAST_BUSY,
) -> Simulation:
    """Lead several runs on one pool; those of one instant arrive in the order given."""
    if not arrivals:
        raise UsageError("there is nothing to simulate; give at least one plan")
    dispatch = Dispatch(parallel, balance)
    roster: set[str] = set()
    for place in places:
        dispatch.join(place)
        roster |= {place.worker, *place.skills}
    floor = _Floor(Desk(dispatch), seconds)
    for number, arrival in enumerate(arrivals, 1):
        arrival.plan.refuse_faults(roster, limits)
        name = arrival.name or f"run{number}"
        floor.expect(name, arrival, _requested(name, arrival, limits, paces or {}))
    floor.run_to_the_end()
    path = _path_walked(floor.spans, floor.tasks, {n: a.at for n, a in floor.arrivals.items()})
    return Simulation(parallel=parallel, spans=tuple(floor.spans), runs=floor.ends, path=path)


def _requested(
    name: str, arrival: Arrival, limits: Limits, paces: Mapping[str, Pace]
) -> RunRequested:
    at = _DAWN + arrival.at
    deadline = limits.deadline if arrival.deadline is None else arrival.deadline
    return RunRequested(
        run=name,
        request=arrival.plan.goal,
        limits=limits,
        seed=0,
        rules=RULES,
        crew="",
        priority=arrival.priority,
        deadline_at=None if deadline is None else at + deadline,
        paces=dict(paces),
        at=at,
    )


class _Floor:
    """Where attempts take their time: the shell around the desk, without a journal or a worker."""

    def __init__(self, desk: Desk, seconds: Seconds) -> None:
        self.arrivals: dict[str, Arrival] = {}
        self.tasks: dict[tuple[str, str], Task] = {}
        #: by run and id
        self.spans: list[Span] = []
        self.ends: dict[str, RunEnd] = {}
        self._desk = desk
        self._seconds = seconds
        self._agenda: list[tuple[datetime, int, RunRequested | StartAttempt]] = []
        self._agenda_count = 0
        self._under_way: dict[tuple[str, str, int], int] = {}
        #: from run, task and attempt to the place in `spans`

    def expect(self, name: str, arrival: Arrival, requested: RunRequested) -> None:
        """Let this run arrive when its time comes."""
        if name in self.arrivals:
            raise UsageError(f"two runs are called {name!r}; give each a name of its own")
        self.arrivals[name] = arrival
        for task in arrival.plan.tasks:
            self.tasks[name, task.id] = task
        self._note(requested.at, requested)

    def run_to_the_end(self) -> None:
        """Go from instant to instant until nothing is left to happen."""
        while (now := self._next_instant()) is not None:
            self._carry_out(self._desk.decide(self._happenings(now), now), now)

    def _next_instant(self) -> datetime | None:
        due = self._desk.next_due()
        if not self._agenda:
            return due
        return self._agenda[0][0] if due is None else min(due, self._agenda[0][0])

    def _happenings(self, now: datetime) -> list[Message]:
        # All of one instant together, as the supervisor would find it in its inbox: otherwise
        # the first place freed would go to whatever is ready before the rest is known.
        messages: list[Message] = []
        while self._agenda and self._agenda[0][0] <= now:
            _, _, what = heappop(self._agenda)
            if isinstance(what, RunRequested):
                messages += self._arrive(what)
            elif _key(what) in self._under_way:  # else it was cut short before
                messages.append(self._finish(what, now))
        return messages

    def _arrive(self, requested: RunRequested) -> list[Message]:
        self._desk.open(requested.run)
        adopted = PlanAdopted(plan=self.arrivals[requested.run].plan, at=requested.at)
        return [Message(requested.run, requested), Message(requested.run, adopted)]

    def _finish(self, start: StartAttempt, now: datetime) -> Message:
        span = self.spans[self._under_way.pop(_key(start))]
        self._desk.free_place(start.run, start.task, start.attempt)
        finished = AttemptFinished(
            task=start.task,
            attempt=start.attempt,
            outcome=Cancelled(reason="out of time") if span.was_stopped else NOTHING_DONE,
            at=now,
        )
        return Message(start.run, finished)

    def _carry_out(self, round_: Round, now: datetime) -> None:
        for act in round_.acts:
            if isinstance(act, Stop):
                self._cut_short(act, now)
            else:
                self._start(act, now)
        for run in round_.ended:
            last = round_.entries[run][-1]
            assert isinstance(last, RunFinished), "a run ends with its last entry"
            self.ends[run] = RunEnd(last.status, self.arrivals[run].at, now - _DAWN)

    def _start(self, start: StartAttempt, now: datetime) -> None:
        length = _length(self.tasks[start.run, start.task], self._seconds)
        began = now - _DAWN
        self._under_way[_key(start)] = len(self.spans)
        self.spans.append(Span(start.run, start.task, start.worker, began, began + length))
        self._note(now + length, start)

    def _cut_short(self, stop: Stop, now: datetime) -> None:
        index = self._under_way[_key(stop)]
        span = self.spans[index]
        self.spans[index] = replace(span, end=now - _DAWN, was_stopped=True)
        self._note(now, StartAttempt(stop.run, stop.task, stop.attempt, span.worker, ""))

    def _note(self, at: datetime, what: RunRequested | StartAttempt) -> None:
        self._agenda_count += 1
        heappush(self._agenda, (at, self._agenda_count, what))


def _key(act: StartAttempt | Stop) -> tuple[str, str, int]:
    return act.run, act.task, act.attempt


def _length(task: Task, seconds: Seconds) -> timedelta:
    lasting = seconds(task)
    try:
        length = timedelta(seconds=lasting)
    except (ValueError, OverflowError):
        length = timedelta(-1)
    if length < timedelta(0):
        raise UsageError(f"task {task.id!r} cannot take {lasting} seconds; say 0 or more")
    return length


def _path_walked(
    spans: Sequence[Span], tasks: Mapping[tuple[str, str], Task], arrived: Mapping[str, timedelta]
) -> tuple[Link, ...]:
    """Walk back from the last end, each time to what ended just when the task at hand began."""
    ended: dict[timedelta, list[int]] = {}
    for index, span in enumerate(spans):
        ended.setdefault(span.end, []).append(index)
    links: list[Link] = []
    here = max(range(len(spans)), key=lambda index: spans[index].end, default=None)
    while here is not None:
        span = spans[here]
        # What made way for a task began before it, which also ends the walk among tasks that
        # take no time at all.
        before = [index for index in ended.get(span.start, ()) if index < here]
        needs = {need.task for need in tasks[span.run, span.task].all_needs}
        needed = [i for i in before if spans[i].run == span.run and spans[i].task in needs]
        same_worker = [i for i in before if spans[i].worker == span.worker]
        why = WaitedFor.ARRIVAL
        here = None
        if needed:
            why, here = WaitedFor.NEED, needed[-1]
        elif before and span.start > arrived[span.run]:
            why, here = WaitedFor.PLACE, (same_worker or before)[-1]
        links.append(Link(span.run, span.task, why))
    return tuple(reversed(links))
