"""Random crews, plans, limits and changes of plan."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.dispatch import Balance, Place
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.quorum import VOTE
from chargehand.facts.events import Approach, Effect, Pace
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.outcome import ErrorClass
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.value import digest_of
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.terms import (
    asked_of_several,
    draw_bounds,
    draw_policies,
    draw_policy,
)

#: trials count time in whole microseconds, so that no wake-up is early by a rounding
SECOND = 1_000_000


#: all that a process leads; the tasks of a pool are led by nobody
APPROACHES = (
    *([Approach.GIVEN] * 4),
    *(Approach.WHOLE, Approach.STREAM, Approach.ROUTE, Approach.STEPS),
)


class StepScript(Struct, frozen=True):
    """One step that every attempt of a task takes."""

    name: str
    ordinal: int
    effect: Effect
    key: str
    digest: str
    #: the most that it costs
    calls: int = 1


class Order(Struct, frozen=True, kw_only=True):
    """A run that somebody will ask for."""

    run: str
    plan: Plan
    limits: Limits
    priority: int
    seed: int
    paces: dict[str, Pace]
    approach: Approach
    answers: bool
    drafts: bool
    refines: bool
    shape: dict[str, Any] | None
    hedges: bool
    asks_budget: bool
    policies: dict[str, OnFailure]
    #: its tasks come one by one, though nobody plans them
    is_streamed: bool
    #: microseconds from the start
    submitted: int


class Crew(Struct, frozen=True):
    """What every process of a trial can offer."""

    places: tuple[Place, ...]
    parallel: int | Elastic
    balance: Balance

    @property
    def workers(self) -> list[str]:
        """Whom a plan may name, but for the one who counts."""
        return [place.worker for place in self.places if place.worker != VOTE]

    def able(self, task: Task) -> list[Place]:
        """Who could do this task."""
        if task.worker:
            return [place for place in self.places if place.worker == task.worker]
        return [place for place in self.places if task.skill in place.skills]

    def place(self, worker: str) -> Place:
        return next(place for place in self.places if place.worker == worker)


class Scenario(Struct, frozen=True):
    """Who works, and on what."""

    crew: Crew
    orders: tuple[Order, ...]
    processes: int


def draw_scenario(dice: Dice) -> Scenario:
    crew = _draw_crew(dice)
    count = dice.random.choice((1, 2, 2, 3))
    orders = tuple(_draw_order(dice, crew, number) for number in range(count))
    return Scenario(crew, orders, dice.random.choice((1, 2, 2, 3)))


def _draw_crew(dice: Dice) -> Crew:
    chance = dice.random
    names = ["ann", "bob", "cy", "dee"][: chance.randint(2, 4)]
    places = tuple(
        Place(
            worker=name,
            skills=tuple(skill for skill in ("read", "write") if chance.random() < 0.6),
            capacity=draw_bounds(dice) or chance.choice((None, 1, 1, 2)),
            weight=chance.choice((None, 1.0, 3.0)),
        )
        for name in names
    )
    parallel = draw_bounds(dice) or chance.randint(1, 6)
    return Crew((*places, Place(worker=VOTE)), parallel, chance.choice(list(Balance)))


def _draw_order(dice: Dice, crew: Crew, number: int) -> Order:
    chance = dice.random
    size = chance.randint(1, 14)
    shape = chance.choice((_chain, _fan, _diamond, _layers, _layers, _anything))
    upstream = shape(chance, size)
    tasks: list[Task] = []
    for place in range(size):
        task = draw_task(dice, crew, f"t{place}", [f"t{need}" for need in upstream[place]])
        tasks += asked_of_several(dice, task, crew.workers)
    approach = chance.choice(APPROACHES)
    is_streamed = approach is Approach.STREAM or chance.random() < 0.3
    if not is_streamed and chance.random() < 0.3:
        chance.shuffle(tasks)  # a plan may name its tasks in any order
    return Order(
        run=f"r{number}",
        plan=Plan(goal="a trial", tasks=tasks),
        approach=approach,
        answers=(answers := chance.random() < 0.6),
        drafts=answers and chance.random() < 0.3,
        refines=chance.random() < 0.6,
        shape=chance.choice((None, None, {"type": "object"})),
        asks_budget=chance.random() < 0.5,
        hedges=chance.random() < 0.7,
        policies=draw_policies(dice, crew.workers),
        limits=_draw_limits(dice, len(tasks)),
        priority=chance.choice((0, 0, 1, 5)),
        seed=chance.randrange(1000),
        paces={crew.places[0].worker: Pace(3, timedelta(seconds=2))}
        if chance.random() < 0.3
        else {},
        is_streamed=is_streamed,
        submitted=chance.choice((0, dice.between(SECOND // 10, 400 * SECOND))),
    )


def _draw_limits(dice: Dice, size: int) -> Limits:
    chance = dice.random
    deadline = active = None
    if dice.hits(FaultKind.RUN_DEADLINE):
        deadline = timedelta(microseconds=dice.between(SECOND, 120 * SECOND))
    elif dice.hits(FaultKind.SHORT_ACTIVE):
        active = timedelta(microseconds=dice.between(2 * SECOND, 60 * SECOND))
    calls = None
    if dice.hits(FaultKind.FEW_CALLS):
        calls = dice.between(1, 40)
    elif chance.random() < 0.2:
        calls = 1000
    return Limits(
        calls=calls,
        deadline=deadline,
        active=active or timedelta(hours=1),
        attempts=chance.choice((1, 2, 3, 3, 4)),
        losses=chance.choice((1, 2, 3, 10)),
        replans=chance.choice((0, 1, 3, 3)),
        tasks=size + chance.choice((0, 2, 100)),
        parallel=chance.choice((1, 2, 4, 100)),
        grace=timedelta(microseconds=chance.choice((0, 200_000, 500_000))),
        items=dice.of_items.choice((5, 10_000, 10_000)) if dice.maps else 10_000,
    )


def draw_task(dice: Dice, crew: Crew, id_: str, upstream: Sequence[str]) -> Task:
    chance = dice.random
    skills = sorted({skill for place in crew.places for skill in place.skills})
    by_skill = bool(skills) and chance.random() < 0.4
    needs = [Need(task, optional=chance.random() < 0.25) for task in upstream]
    if needs and chance.random() < 0.1:
        # the same task twice, under two names: two parts of one output
        needs.append(Need(needs[0].task, optional=chance.random() < 0.5, name="again"))
    deadline = None
    if dice.hits(FaultKind.TASK_DEADLINE):
        deadline = timedelta(microseconds=dice.between(SECOND // 2, 60 * SECOND))
    task = Task(
        id=id_,
        description=f"bring forth {id_}",
        worker="" if by_skill else chance.choice(crew.workers),
        skill=chance.choice(skills) if by_skill else "",
        needs=needs,
        optional=chance.random() < 0.15,
        priority=chance.choice((0, 0, 0, 1, 2, 9)),
        deadline=deadline,
        expect=timedelta(seconds=chance.randint(1, 9)) if chance.random() < 0.1 else None,
        limits=TaskLimits(attempts=chance.randint(1, 3)) if chance.random() < 0.2 else TaskLimits(),
        hedge=chance.random() < 0.6,
        on_failure=draw_policy(chance, crew.workers) if dice.hits(FaultKind.POLICY) else None,
    )
    return _mapped(dice, task)


def _mapped(dice: Dice, task: Task) -> Task:
    """The task itself or, in trials that map some, mapped over a list or over what it needs."""
    chance = dice.of_items
    if not dice.maps or dice.is_healed or chance.random() >= 0.3:
        return task
    dice.note(FaultKind.MAPPED)
    over: str | list[str] = ["x", "y"]
    if task.needs and chance.random() < 0.6:
        over = task.all_needs[0].key
    return replace(task, for_each=over, at_least=chance.choice((None, None, None, 0, 1, 2)))


# shapes: for each task, the earlier ones that it needs

_Upstream = list[list[int]]


def _chain(_: Random, size: int) -> _Upstream:
    return [[place - 1] if place else [] for place in range(size)]


def _fan(_: Random, size: int) -> _Upstream:
    middle: _Upstream = [[0] if place else [] for place in range(size - 1)]
    return [*middle, list(range(1, size - 1)) or ([0] if size > 1 else [])]


def _diamond(_: Random, size: int) -> _Upstream:
    return [
        [] if not place else [place - 1] if place % 3 == 1 else [place - 2, place - 1][-place:]
        for place in range(size)
    ]


def _layers(chance: Random, size: int) -> _Upstream:
    width = chance.randint(1, 4)
    needs: _Upstream = []
    for place in range(size):
        first = (place // width - 1) * width
        above = list(range(first, first + width)) if first >= 0 else []
        needs.append(sorted(chance.sample(above, min(len(above), chance.randint(1, 3)))))
    return needs


def _anything(chance: Random, size: int) -> _Upstream:
    return [
        sorted(chance.sample(range(place), min(place, chance.randint(0, 3))))
        for place in range(size)
    ]


def draw_steps(chance: Random, run: str, task: str, *, is_free: bool) -> tuple[StepScript, ...]:
    """The steps of a task: the same for every attempt, as a worker's program is.

    Free ones may be repeated, as those of tasks that are hedged mostly are.
    """
    effects = (
        [Effect.PURE, Effect.IDEMPOTENT] if is_free and chance.random() < 0.7 else list(Effect)
    )
    steps: list[StepScript] = []
    for _ in range(chance.choice((0, 0, 1, 2, 3))):
        name = chance.choice(("look", "send"))
        ordinal = sum(step.name == name for step in steps)
        key = digest_of(f"{run}/{task}/{name}/{ordinal}".encode())
        effect, calls = chance.choice(effects), chance.choice((1, 1, 2, 5))
        steps.append(StepScript(name, ordinal, effect, key, digest_of(name.encode()), calls))
    return tuple(steps)


def draw_fate(chance: Random) -> ErrorClass | None:
    """How a task fails, whoever tries it; most do not."""
    return chance.choice((ErrorClass.DENIED, ErrorClass.LOGIC)) if chance.random() < 0.15 else None


def draw_thoughts(chance: Random, run: str, system_task: str) -> tuple[StepScript, ...]:
    """The calls of a model that something takes which the supervisor does itself."""
    return tuple(
        thought(run, system_task, "think", number) for number in range(chance.randint(1, 2))
    )


def thought(run: str, system_task: str, name: str, ordinal: int = 0) -> StepScript:
    key = digest_of(f"{run}/{system_task}/{name}/{ordinal}".encode())
    return StepScript(name, ordinal, Effect.PURE, key, digest_of(name.encode()))
