"""Simulates a plan: the real kernel on a virtual clock, with attempts that only take time.

There is no separate model of the scheduler: the kernel, schedule and dispatch that lead real runs also run
the simulation. A simulated plan therefore starts its tasks in the order of a real run in which each task
takes the given time and none fails.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chargehand.decisions.dispatch import Balance, Dispatch, Place, Starts
from chargehand.decisions.kernel import Kernel
from chargehand.decisions.schedule import RULES
from chargehand.decisions.simulation_loop import Fate, PathLink, RunEnd, Span, VirtualPool
from chargehand.decisions.system_tasks import COLLECTOR, ITEMS, LISTER, is_system_task
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.events import ItemsListed, Pace, PlanAdopted, RunRequested
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan, Task, item_of
from chargehand.facts.scheduler_commands import StartAttempt
from chargehand.facts.value import Value

#: returns how many seconds a task takes in the simulation
Seconds = Callable[[Task], float]

#: items of a task with `for_each` whose list is not known before the run
GUESSED_ITEMS = 10

#: no cap that matters: only the pool limits a run
UNBOUNDED = Limits(
    tasks=10_000_000, items=10_000_000, parallel=10_000_000, active=timedelta(days=36_500)
)

#: time zero; a multiple of AGEING, so that all runs of one instant age at the same time
_DAWN = datetime(2000, 1, 1, tzinfo=UTC)


class Arrival(Struct, frozen=True, kw_only=True):
    """A run to simulate: its plan and when it arrives."""

    plan: Plan
    #: from time zero
    at: checks.Span = checks.usually(timedelta(0))
    priority: int = 0
    #: from its arrival; a run that has not ended by then is stopped, as a real one would be
    deadline: checks.SpanOrNone = checks.usually(None)
    #: its name in the spans; empty: `run1`, `run2` and so on
    name: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "at", checks.duration(self.at, "Arrival: at", may_be_zero=True))
        deadline = checks.duration_or_none(self.deadline, "Arrival: deadline", may_be_zero=True)
        force_setattr(self, "deadline", deadline)


class Simulation(Struct, frozen=True, kw_only=True):
    """The result of a simulation: when each attempt and run starts and ends."""

    parallel: int
    #: in the order of their starts
    spans: tuple[Span, ...]
    #: by name, in the order of their ends
    runs: dict[str, RunEnd]
    #: the path that determines the makespan, first task first: to shorten the makespan, shorten these
    #: tasks or add slots
    path: tuple[PathLink, ...]

    @property
    def makespan(self) -> timedelta:
        """From the first arrival to the last end."""
        ends = self.runs.values()
        return max(end.ended for end in ends) - min(end.arrived for end in ends)

    @property
    def work(self) -> timedelta:
        """The total duration of all attempts: the makespan with a single slot."""
        return sum((span.length for span in self.spans), timedelta(0))

    @property
    def speedup(self) -> float:
        """How many times faster than running the tasks one after another."""
        return self.work / self.makespan if self.makespan else 1.0

    @property
    def utilisation(self) -> float:
        """The share of the pool's time in which its slots were busy, between 0 and 1."""
        return self.speedup / self.parallel if self.makespan else 0.0

    def busy(self, worker: str) -> timedelta:
        """The total duration of all attempts of one worker."""
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
    items: Mapping[str, int] | None = None,
) -> Simulation:
    """Simulate one run of a plan, or several runs, on a pool of `parallel` slots; returns when everything happened.

    The order of tasks depends on what the supervisor would know: `paces` and each task's `expect`.
    `seconds` gives the real durations. `items` says how many items a task with `for_each` has, if the plan
    does not list them; `seconds` is called for each item. Runs with the same arrival time arrive in the
    order given. Raises `PlanRefused` for a plan that a supervisor would refuse.
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
    counts = items or {}
    floor = VirtualPool(Kernel(dispatch), lambda start: _fate(start, tasks, seconds, counts), _DAWN)
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
    own = [span for span in floor.spans if not is_system_task(span.worker)]
    path = tuple(
        link for link in floor.path(_linked(tasks, counts)) if not is_system_task(link.task)
    )
    return Simulation(parallel=parallel, spans=tuple(own), runs=floor.ends, path=path)


def item_count(task: Task, items: Mapping[str, int]) -> int:
    """How many items a task with `for_each` has: as the plan lists them, else the number in `items`, else a guess."""
    if isinstance(task.for_each, list):
        return len(task.for_each)
    return items.get(task.id, GUESSED_ITEMS)


def as_done(tasks: Iterable[Task], items: Mapping[str, int]) -> Iterator[Task]:
    """The tasks that workers get: for a task with `for_each`, one task for each item."""
    for task in tasks:
        if task.for_each is None:
            yield task
        else:
            yield from (task.for_item(index) for index in range(item_count(task, items)))


def _fate(
    start: StartAttempt,
    tasks: Mapping[tuple[str, str], Task],
    seconds: Seconds,
    items: Mapping[str, int],
) -> Fate:
    if start.worker == COLLECTOR:
        return Fate(timedelta(0))
    if start.worker == LISTER:
        task = tasks[start.run, start.task.removeprefix(f"{ITEMS}:")]
        values = (Value(),) * item_count(task, items)
        listed = ItemsListed(task=task.id, first=0, items=values, at=_DAWN)
        return Fate(timedelta(0), beside=((timedelta(0), listed),))
    item = item_of(start.task)
    if item is None:
        return Fate(_length(tasks[start.run, start.task], seconds))
    return Fate(_length(tasks[start.run, item[0]].for_item(item[1]), seconds))


def _linked(
    tasks: Mapping[tuple[str, str], Task], items: Mapping[str, int]
) -> dict[tuple[str, str], Task]:
    """The tasks with what they really wait for: a task with `for_each` waits for its items."""
    linked = dict(tasks)
    for (run, id_), task in tasks.items():
        if task.for_each is not None:
            each = [task.for_item(index) for index in range(item_count(task, items))]
            lister = f"{ITEMS}:{id_}"
            linked[run, lister] = replace(task, id=lister, for_each=None, at_least=None)
            linked |= {(run, item.id): replace(item, needs=(lister,)) for item in each}
            needs = [item.id for item in each] or [lister]
            linked[run, id_] = replace(task, for_each=None, at_least=None, needs=needs)
    return linked


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
