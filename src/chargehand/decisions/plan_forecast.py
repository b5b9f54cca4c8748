"""Forecast of a plan before it runs: its duration, its cost, and how many slots it needs.

The plan is simulated many times on the real kernel. Each simulation draws other durations from what is
known about each worker. The draws are seeded, so the same arguments give the same forecast.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from random import Random

from msgspec import Struct

from chargehand.decisions.dispatch import Place, Starts
from chargehand.decisions.plan_simulation import Simulation, as_done, item_count, simulate
from chargehand.errors import UsageError
from chargehand.facts.events import Pace
from chargehand.facts.plan import Plan, Task, item_of

#: standard deviation ÷ mean of one worker's attempts: a middle value; recorded agents have 0.5 to 1.7
SPREAD = 0.8
#: seconds of a task about which nothing is known
GUESS = 30.0
#: a makespan of up to this many times the shortest one counts as equally good
CLOSE = 1.05
#: the sweep ends when the makespan is within this factor of that with the most slots
SAME = 1.01
#: with more tasks and items than this, one draw is enough to measure a pool size
LARGE = 1_000
#: tasks and items of all simulations together (a million takes about 30 s), and the fewest simulations
MOST_SIMULATED, LEAST_RUNS = 400_000, 3
#: draws for each pool size in the sweep: ranking sizes needs fewer draws than a p95
SWEPT = 40

#: draws the seconds of one attempt
Draw = Callable[[Random], float]


class Range(Struct, frozen=True):
    """Seconds between two bounds, all equally likely; with two equal bounds the duration is exact."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < math.inf:
            raise UsageError(
                f"a task cannot take {self.low} to {self.high} seconds; give two numbers from 0 on, "
                "the smaller first"
            )


class Outlook(Struct, frozen=True, kw_only=True):
    """The durations and prices that are known before a plan runs."""

    #: by worker or skill: figures that you give; they override everything below
    given: Mapping[str, Range] = {}
    #: by worker: what past runs taught; the supervisor orders tasks by these and by `Task.expect`
    paces: Mapping[str, Pace] = {}
    #: by worker or skill: money for one task
    prices: Mapping[str, float] = {}
    #: by task with `for_each`: how many items it will have, where the plan does not list them
    items: Mapping[str, int] = {}


class Level(Struct, frozen=True):
    """The forecast with this many slots."""

    parallel: int
    p50: timedelta
    p95: timedelta
    utilisation: float


class Forecast(Struct, frozen=True, kw_only=True):
    """The expected time and cost of a plan."""

    parallel: int
    #: how often the plan was simulated
    runs: int
    p50: timedelta
    p95: timedelta
    #: mean duration of all tasks together
    work: timedelta
    #: mean utilisation of the pool
    utilisation: float
    #: of the tasks whose price is known
    cost: float
    #: workers whose price is unknown
    unpriced: tuple[str, ...]
    #: workers whose pace is unknown
    guessed: tuple[str, ...]
    #: tasks with `for_each` whose number of items is unknown
    guessed_items: tuple[str, ...]
    #: by task: the share of simulations in which the end waited for it; largest first
    critical: dict[str, float]
    #: the median run
    typical: Simulation
    sweep: tuple[Level, ...]
    #: the smallest number of slots with which p50 is within 5 % of the best
    best: int

    @property
    def speedup(self) -> float:
        """How many times faster than running the tasks one after another."""
        return self.work / self.p50 if self.p50 else 1.0


def forecast(
    plan: Plan,
    places: Sequence[Place],
    *,
    parallel: int,
    outlook: Outlook,
    runs: int = 200,
    seed: int = 1,
    starts: Starts | None = None,
) -> Forecast:
    """Simulate the plan `runs` times; a plan with very many items less often, because chance matters less.

    Raises `PlanRefused` for a plan that a supervisor would refuse.
    """
    if runs < 1:
        raise UsageError(f"runs={runs} must be at least 1")
    size = sum(1 if t.for_each is None else item_count(t, outlook.items) for t in plan.tasks)
    runs = min(runs, max(LEAST_RUNS, MOST_SIMULATED // max(size, 1)))
    lengths = list(_lengths(plan, places, outlook, runs, seed))

    def live_run(parallel: int, drawn: Mapping[str, float]) -> Simulation:
        return simulate(
            plan,
            places,
            parallel=parallel,
            seconds=lambda task: drawn[task.id],
            paces=outlook.paces,
            starts=starts,
            items=outlook.items,
        )

    work = list(as_done(plan.tasks, outlook.items))

    simulations = sorted((live_run(parallel, drawn) for drawn in lengths), key=lambda s: s.makespan)
    is_large = len(work) > LARGE
    swept = lengths[: 1 if is_large else SWEPT]
    sweep = tuple(_sweep(max(len(work), 1), swept, live_run, step=4 if is_large else 1))
    least = min(level.p50 for level in sweep)
    names = list(dict.fromkeys(_who(task) for task in plan.tasks))
    return Forecast(
        parallel=parallel,
        runs=runs,
        p50=_at(simulations, 0.5).makespan,
        p95=_at(simulations, 0.95).makespan,
        work=sum((each.work for each in simulations), timedelta(0)) / runs,
        utilisation=sum(each.utilisation for each in simulations) / runs,
        cost=sum(outlook.prices.get(_who(task), 0.0) for task in work),
        unpriced=tuple(name for name in names if name not in outlook.prices),
        guessed=tuple(_guessed(plan, places, outlook)),
        guessed_items=tuple(_guessed_items(plan, outlook)),
        critical=_critical(simulations),
        typical=_at(simulations, 0.5),
        sweep=sweep,
        best=next(level.parallel for level in sweep if level.p50 <= CLOSE * least),
    )


def places_for(plan: Plan) -> list[Place]:
    """A pool with every worker and skill that the plan names, each with as many slots as the pool."""
    names = dict.fromkeys((task.worker, task.skill) for task in plan.tasks)
    return [
        Place(worker=worker) if worker else Place(worker=f"any {skill}", skills=(skill,))
        for worker, skill in names
    ]


# Draws


def _lengths(
    plan: Plan, places: Sequence[Place], outlook: Outlook, runs: int, seed: int
) -> Iterator[dict[str, float]]:
    """For each simulation, the seconds of each task; they do not depend on the size of the pool."""
    for number in range(runs):
        dice = Random(f"{seed}:{number}")  # noqa: S311 - a repeatable draw, not a secret
        leaning = {
            # A mean of few attempts is uncertain, so each simulation draws another mean.
            worker: _spread(1.0, SPREAD / math.sqrt(max(pace.count, 1)), dice)
            for worker, pace in sorted(outlook.paces.items())
        }
        yield {
            task.id: _draw(task, places, outlook, leaning)(dice)
            for task in as_done(plan.tasks, outlook.items)
        }


def _draw(
    task: Task, places: Sequence[Place], outlook: Outlook, leaning: Mapping[str, float]
) -> Draw:
    given = outlook.given.get(_who(task))
    if given is not None:
        return lambda dice: dice.uniform(given.low, given.high)
    if task.expect is not None:
        mean = task.expect.total_seconds()
    else:
        able = [worker for worker in _able(task, places) if worker in outlook.paces]
        means = [outlook.paces[each].mean.total_seconds() * leaning[each] for each in able]
        mean = sum(means) / len(means) if means else GUESS
    return lambda dice: _spread(mean, SPREAD, dice)


def _spread(mean: float, spread: float, dice: Random) -> float:
    """A draw around a mean, skewed as durations are: most are shorter, a few much longer."""
    variance = math.log(1 + spread**2)
    return mean * dice.lognormvariate(-variance / 2, math.sqrt(variance))


def _guessed_items(plan: Plan, outlook: Outlook) -> Iterator[str]:
    """The tasks with `for_each` whose number of items neither the plan nor the outlook gives."""
    for task in plan.tasks:
        is_open = task.for_each is not None and not isinstance(task.for_each, list)
        if is_open and task.id not in outlook.items:
            yield task.id


def _guessed(plan: Plan, places: Sequence[Place], outlook: Outlook) -> Iterator[str]:
    seen: set[str] = set()
    for task in plan.tasks:
        name = _who(task)
        is_known = name in outlook.given or task.expect is not None
        if name not in seen and not is_known:
            seen.add(name)
            if not any(worker in outlook.paces for worker in _able(task, places)):
                yield name


def _who(task: Task) -> str:
    return task.worker or task.skill


def _able(task: Task, places: Sequence[Place]) -> list[str]:
    if task.worker:
        return [task.worker]
    return [place.worker for place in places if task.skill in place.skills]


# Results of the simulations


def _sweep(
    most: int,
    lengths: Sequence[Mapping[str, float]],
    live_run: Callable[[int, Mapping[str, float]], Simulation],
    step: int = 1,
) -> Iterator[Level]:
    """Levels with more and more slots, until more slots change almost nothing; tries each `step`-th size."""
    soonest = _level(most, lengths, live_run).p50
    for parallel in dict.fromkeys([*list(_sizes(most))[::step], most]):
        level = _level(parallel, lengths, live_run)
        yield level
        if level.p50 <= SAME * soonest:
            return


def _level(
    parallel: int,
    lengths: Sequence[Mapping[str, float]],
    live_run: Callable[[int, Mapping[str, float]], Simulation],
) -> Level:
    simulations = sorted((live_run(parallel, drawn) for drawn in lengths), key=lambda s: s.makespan)
    utilisation = sum(each.utilisation for each in simulations) / len(simulations)
    p50, p95 = _at(simulations, 0.5).makespan, _at(simulations, 0.95).makespan
    return Level(parallel, p50, p95, utilisation)


def _sizes(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on, and `most` at the end."""
    size = 1
    while size < most:
        yield size
        size += max(1, 2 ** (size.bit_length() - 2))
    yield most


def _critical(simulations: Iterable[Simulation]) -> dict[str, float]:
    counts: dict[str, int] = {}
    total = 0
    for simulation in simulations:
        total += 1
        for task in dict.fromkeys(planned_as(link.task) for link in simulation.path):
            counts[task] = counts.get(task, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return {task: count / total for task, count in ordered}


def planned_as(task: str) -> str:
    """The task of the plan that this task belongs to: an item belongs to its task with `for_each`."""
    item = item_of(task)
    return task if item is None else item[0]


def _at(simulations: Sequence[Simulation], share: float) -> Simulation:
    """The simulation at this quantile; the simulations are in the order of their makespans."""
    return simulations[max(math.ceil(share * len(simulations)) - 1, 0)]
