"""Random crews, plans, limits and changes of plan."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.dispatch import Balance, Place
from chargehand.decisions.trial.faults import Dice, FaultKind
from chargehand.facts.events import Approach, Effect, Pace
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.outcome import ErrorClass
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.value import digest_of

SECOND = 1_000_000
#: trials count time in whole microseconds, so that no wake-up is early by a rounding


class StepScript(Struct, frozen=True):
    """One step that every attempt of a task takes."""

    name: str
    ordinal: int
    effect: Effect
    key: str
    digest: str
    calls: int = 1
    #: the most that it costs


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
    is_streamed: bool
    #: its tasks come one by one, though nobody plans them
    submitted: int
    #: microseconds from the start


class Crew(Struct, frozen=True):
    """What every process of a trial can offer."""

    places: tuple[Place, ...]
    parallel: int
    balance: Balance

    def able(self, task: Task) -> list[Place]:
        """Who could do this task."""
        if task.worker:
            return [place for place in self.places if place.worker == task.worker]
        return [place for place in self.places if task.skill in place.skills]

    def capacity(self, worker: str) -> int:
        place = next(place for place in self.places if place.worker == worker)
        return self.parallel if place.capacity is None else place.capacity


class Scenario(Struct, frozen=True):
    """Who works, and on what."""

    crew: Crew
    orders: tuple[Order, ...]
    processes: int


def draw_scenario(dice: Dice) -> Scenario:
    crew = _draw_crew(dice.random)
    count = dice.random.choice((1, 2, 2, 3))
    orders = tuple(_draw_order(dice, crew, number) for number in range(count))
    return Scenario(crew, orders, dice.random.choice((1, 2, 2, 3)))


def _draw_crew(chance: Random) -> Crew:
    names = ["ann", "bob", "cy", "dee"][: chance.randint(2, 4)]
    places = tuple(
        Place(
            worker=name,
            skills=tuple(skill for skill in ("read", "write") if chance.random() < 0.6),
            capacity=chance.choice((None, 1, 1, 2)),
            weight=chance.choice((None, 1.0, 3.0)),
        )
        for name in names
    )
    return Crew(places, chance.randint(1, 6), chance.choice(list(Balance)))


def _draw_order(dice: Dice, crew: Crew, number: int) -> Order:
    chance = dice.random
    size = chance.randint(1, 14)
    shape = chance.choice((_chain, _fan, _diamond, _layers, _layers, _anything))
    upstream = shape(chance, size)
    tasks = [
        draw_task(dice, crew, f"t{place}", [f"t{need}" for need in upstream[place]])
        for place in range(size)
    ]
    approach = chance.choice((Approach.GIVEN, Approach.GIVEN, Approach.GIVEN, *Approach))
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
        limits=_draw_limits(dice, size),
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
    return Task(
        id=id_,
        description=f"bring forth {id_}",
        worker="" if by_skill else chance.choice(crew.places).worker,
        skill=chance.choice(skills) if by_skill else "",
        needs=needs,
        optional=chance.random() < 0.15,
        priority=chance.choice((0, 0, 0, 1, 2, 9)),
        deadline=deadline,
        expect=timedelta(seconds=chance.randint(1, 9)) if chance.random() < 0.1 else None,
        limits=TaskLimits(attempts=chance.randint(1, 3)) if chance.random() < 0.2 else TaskLimits(),
    )


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


# changes of plan


class Standing(Struct, frozen=True):
    """What somebody who wants to change a plan can know of it."""

    version: int
    settled: tuple[str, ...]
    unsettled: tuple[str, ...]
    lost: tuple[str, ...]
    #: those of the settled that came to nothing
    needs: dict[str, tuple[str, ...]]
    fresh_id: str


class Change(Struct, frozen=True):
    """A change of plan that is asked for; it may be unsound."""

    version: int
    added: tuple[Task, ...]
    removed: tuple[str, ...]
    replaced: tuple[str, ...] = ()


def draw_change(dice: Dice, crew: Crew, now: Standing) -> Change:
    chance = dice.random
    removed = [task for task in now.unsettled if chance.random() < 0.3]
    for task in now.unsettled:  # in plan order, mostly: what needs a removed task goes too
        if task not in removed and any(need in removed for need in now.needs[task]):
            removed.append(task)
    added = draw_more(dice, crew, now, removed, chance.randint(0 if removed else 1, 2))
    replaced = tuple(task for task in now.lost if chance.random() < 0.5)
    change = Change(now.version + 1, added, tuple(removed), replaced)
    if not dice.hits(FaultKind.BAD_AMENDMENT):
        return change
    spoil = chance.choice(_SPOILERS)
    return spoil(Draft(now, change, partial(draw_task, dice, crew), chance))


def draw_more(
    dice: Dice, crew: Crew, now: Standing, removed: Sequence[str], count: int
) -> tuple[Task, ...]:
    """Further tasks, which need what there is or will be."""
    chance = dice.random
    gone = {*removed, *now.lost} if chance.random() < 0.8 else set(removed)
    others = [task for task in (*now.settled, *now.unsettled) if task not in gone]
    added: list[Task] = []
    for number in range(count):
        known = others + [task.id for task in added]
        upstream = chance.sample(known, min(len(known), chance.randint(0, 2)))
        added.append(draw_task(dice, crew, f"{now.fresh_id}.{number}", upstream))
    return tuple(added)


class Draft(Struct, frozen=True):
    """A sound change, and what is needed to spoil it."""

    now: Standing
    change: Change
    make: Callable[[str, Sequence[str]], Task]
    chance: Random


def _wrong_version(draft: Draft) -> Change:
    version = draft.now.version + draft.chance.choice((-1, 0, 2))
    return replace(draft.change, version=version)


def _id_used_again(draft: Draft) -> Change:
    used = draft.chance.choice([*draft.now.settled, *draft.now.unsettled])
    return replace(draft.change, added=(draft.make(used, []),))


def _needs_nothing_known(draft: Draft) -> Change:
    return replace(draft.change, added=(draft.make(draft.now.fresh_id, ["nowhere"]),))


def _circle(draft: Draft) -> Change:
    one, two = f"{draft.now.fresh_id}.x", f"{draft.now.fresh_id}.y"
    added = (draft.make(one, [two]), draft.make(two, [one]))
    return replace(draft.change, added=added, removed=())


def _same_id_twice(draft: Draft) -> Change:
    twice = (draft.make(draft.now.fresh_id, []), draft.make(draft.now.fresh_id, []))
    return replace(draft.change, added=twice)


def _needs_itself(draft: Draft) -> Change:
    return replace(draft.change, added=(draft.make(draft.now.fresh_id, [draft.now.fresh_id]),))


def _touches_the_settled(draft: Draft) -> Change:
    return replace(draft.change, removed=(*draft.now.settled[:1], *draft.change.removed))


def _leaves_a_need_behind(draft: Draft) -> Change:
    return replace(draft.change, added=(), removed=draft.now.unsettled[:1])


def _of_the_supervisor(draft: Draft) -> Change:
    return replace(draft.change, added=(draft.make(f"@{draft.now.fresh_id}", []),))


def _needs_the_supervisor(draft: Draft) -> Change:
    return replace(draft.change, added=(draft.make(draft.now.fresh_id, ["@plan"]),))


def _replaces_what_is_well(draft: Draft) -> Change:
    well = [
        task for task in (*draft.now.settled, *draft.now.unsettled) if task not in draft.now.lost
    ]
    return replace(draft.change, replaced=(draft.chance.choice([*well, "nowhere", "@plan"]),))


_SPOILERS: tuple[Callable[[Draft], Change], ...] = (
    _wrong_version,
    _id_used_again,
    _needs_nothing_known,
    _circle,
    _same_id_twice,
    _needs_itself,
    _touches_the_settled,
    _leaves_a_need_behind,
    _of_the_supervisor,
    _needs_the_supervisor,
    _replaces_what_is_well,
)


def draw_steps(chance: Random, run: str, task: str) -> tuple[StepScript, ...]:
    """The steps of a task: the same for every attempt, as a worker's program is."""
    steps: list[StepScript] = []
    for _ in range(chance.choice((0, 0, 1, 2, 3))):
        name = chance.choice(("look", "send"))
        ordinal = sum(step.name == name for step in steps)
        key = digest_of(f"{run}/{task}/{name}/{ordinal}".encode())
        effect, calls = chance.choice(list(Effect)), chance.choice((1, 1, 2, 5))
        steps.append(StepScript(name, ordinal, effect, key, digest_of(name.encode()), calls))
    return tuple(steps)


def draw_fate(chance: Random) -> ErrorClass | None:
    """How a task fails, whoever tries it; most do not."""
    return chance.choice((ErrorClass.DENIED, ErrorClass.LOGIC)) if chance.random() < 0.15 else None


def draw_thoughts(chance: Random, run: str, duty: str) -> tuple[StepScript, ...]:
    """The calls of a model that something takes which the supervisor does itself."""
    return tuple(thought(run, duty, "think", number) for number in range(chance.randint(1, 2)))


def thought(run: str, duty: str, name: str, ordinal: int = 0) -> StepScript:
    key = digest_of(f"{run}/{duty}/{name}/{ordinal}".encode())
    return StepScript(name, ordinal, Effect.PURE, key, digest_of(name.encode()))
