"""Random changes of plan, some of which are unsound."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from chargehand.facts.plan import Task
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.scenario import Crew, draw_task


class Standing(Struct, frozen=True):
    """What somebody who wants to change a plan can know of it."""

    version: int
    settled: tuple[str, ...]
    unsettled: tuple[str, ...]
    #: those of the settled that came to nothing
    lost: tuple[str, ...]
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
