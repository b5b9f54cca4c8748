"""What would become of a plan: the real kernel on a virtual clock, with work that only takes time.

Nothing here is a model of the scheduler. The same kernel, schedule and dispatch that lead a run are
driven from instant to instant, so a plan that is simulated starts its tasks in the order in which
it would really start them, if each took as long as is said here and none failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.decisions.dispatch import Balance, Dispatch, Place, Starts
from chargehand.decisions.kernel import Kernel
from chargehand.decisions.schedule import RULES
from chargehand.decisions.simulation_loop import Fate, PathLink, RunEnd, Span, VirtualPool
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.commands import StartAttempt
from chargehand.facts.events import Pace, PlanAdopted, RunRequested
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan, Task

#: how long a task takes, as far as the simulation is concerned
Seconds = Callable[[Task], float]

#: only the pool holds a run back
UNBOUNDED = Limits(tasks=10_000_000, parallel=10_000_000, active=timedelta(days=36_500))

#: time zero; any would do, but one that divides by AGEING keeps runs of one instant level
_DAWN = datetime(2000, 1, 1, tzinfo=UTC)


class Arrival(Struct, frozen=True, kw_only=True):
    """A run that is to come, among others."""

    plan: Plan
    #: from time zero
    at: checks.Span = checks.usually(timedelta(0))
    priority: int = 0
    #: from its arrival; a run that is still going then is stopped, as it would really be
    deadline: checks.SpanOrNone = checks.usually(None)
    #: in the spans; empty: `run1`, `run2` and so on
    name: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "at", checks.duration(self.at, "Arrival: at", may_be_zero=True))
        deadline = checks.duration_or_none(self.deadline, "Arrival: deadline", may_be_zero=True)
        force_setattr(self, "deadline", deadline)


class Simulation(Struct, frozen=True, kw_only=True):
    """When everything would start and end."""

    parallel: int
    #: in the order of their starts
    spans: tuple[Span, ...]
    #: by name, in the order of their ends
    runs: dict[str, RunEnd]
    #: from the last task to end back to one that waited for nothing, first to last: what would
    #: have to be shorter, or have more places, for the whole to be shorter
    path: tuple[PathLink, ...]

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
    plan: Plan | Sequence[Arrival],
    places: Iterable[Place],
    *,
    parallel: int,
    seconds: Seconds,
    paces: Mapping[str, Pace] | None = None,
    limits: Limits = UNBOUNDED,
    balance: Balance = Balance.LEAST_BUSY,
    starts: Starts | None = None,
) -> Simulation:
    """Lead one run of a plan, or several runs, on a pool of `parallel` places, and say when everything happened.

    The order of tasks rests on what the supervisor would know, `paces` and each task's `expect`;
    `seconds` is what comes true. Runs of one instant arrive in the order given. Raises `PlanRefused`
    for a plan that would not be led at all.
    """
    arrivals = [Arrival(plan=plan)] if isinstance(plan, Plan) else plan
    if not arrivals:
        raise UsageError("there is nothing to simulate; give at least one plan")
    dispatch = Dispatch(parallel, balance, starts=starts)
    roster: set[str] = set()
    for place in places:
        dispatch.join(place)
        roster |= {place.worker, *place.skills}
    tasks: dict[tuple[str, str], Task] = {}
    floor = VirtualPool(Kernel(dispatch), lambda start: _fate(start, tasks, seconds), _DAWN)
    for number, arrival in enumerate(arrivals, 1):
        arrival.plan.refuse_faults(roster, limits)
        name = arrival.name or f"run{number}"
        if name in floor.arrived:
            raise UsageError(f"two runs are called {name!r}; give each a name of its own")
        tasks.update(((name, task.id), task) for task in arrival.plan.tasks)
        requested = _requested(name, arrival, limits, paces or {})
        floor.expect(name, requested.at, requested)
        floor.expect(name, requested.at, PlanAdopted(plan=arrival.plan, at=requested.at))
    floor.run_to_the_end()
    return Simulation(
        parallel=parallel, spans=tuple(floor.spans), runs=floor.ends, path=floor.path(tasks)
    )


def _fate(start: StartAttempt, tasks: Mapping[tuple[str, str], Task], seconds: Seconds) -> Fate:
    return Fate(_length(tasks[start.run, start.task], seconds))


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


def _length(task: Task, seconds: Seconds) -> timedelta:
    lasting = seconds(task)
    try:
        length = timedelta(seconds=lasting)
    except (ValueError, OverflowError):
        length = timedelta(-1)
    if length < timedelta(0):
        raise UsageError(f"task {task.id!r} cannot take {lasting} seconds; say 0 or more")
    return length
