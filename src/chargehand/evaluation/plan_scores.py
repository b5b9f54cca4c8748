"""Scores a plan against a gold plan: matches tasks by worker and words, then compares nodes and edges.

Two tasks can match if the gold task names no worker or the same worker, and if the overlap of their descriptions is at
least 0.2 (Dice coefficient: twice the shared words over all words, ignoring case, punctuation and very common words).
Pairs are matched greedily, the largest overlap first; equal pairs in the order of the gold plan. An edge is a need
between two tasks.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

LEAST_OVERLAP = 0.2
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by each every find for from give has have how in into is it its list many much name of "
        "on or out say tell that the their them then there these this to use was were what when which who with",
    )
)


class PlanTask(Struct, frozen=True, forbid_unknown_fields=True):
    """The compared fields of a task; in a suite, a task of the gold plan."""

    id: str
    description: str
    #: empty in a gold plan: any worker matches
    worker: str = ""
    needs: tuple[str, ...] = ()


class PlanScore(Struct, frozen=True):
    """How well a plan matches the gold plan."""

    node_f1: float
    edge_f1: float
    #: ids of the matched gold tasks, by ids of the plan's tasks
    matched: dict[str, str]


def score(plan: Sequence[PlanTask], gold: Sequence[PlanTask]) -> PlanScore:
    """Compute node F1 and edge F1 of a plan against a gold plan."""
    matched = matching(plan, gold)
    edges = _edges(plan)
    found = {(matched.get(source, ""), matched.get(target, "")) for source, target in edges}
    wanted = _edges(gold)
    return PlanScore(
        node_f1=f1(len(matched), len(plan), len(gold)),
        edge_f1=f1(len(found & wanted), len(edges), len(wanted)),
        matched=matched,
    )


def f1(common: int, first: int, second: int) -> float:
    """The harmonic mean of precision and recall; 1 if both sides are empty."""
    return 2 * common / (first + second) if first + second else 1.0


def matching(plan: Sequence[PlanTask], gold: Sequence[PlanTask]) -> dict[str, str]:
    """The gold task that each task of the plan matches; each gold task is used at most once."""
    pairs = sorted(
        (-overlap(mine.description, wanted.description), place, number)
        for place, wanted in enumerate(gold)
        for number, mine in enumerate(plan)
        if wanted.worker in ("", mine.worker)
    )
    matched: dict[str, str] = {}
    taken: set[str] = set()
    for shared, place, number in pairs:
        mine, wanted = plan[number].id, gold[place].id
        if -shared >= LEAST_OVERLAP and mine not in matched and wanted not in taken:
            matched[mine] = wanted
            taken.add(wanted)
    return matched


def overlap(one: str, other: str) -> float:
    """The Dice coefficient of the words of two texts."""
    first, second = words_of(one), words_of(other)
    if not first or not second:
        return float(one.split() == other.split())
    return 2 * len(first & second) / (len(first) + len(second))


def words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold())) - _COMMON


def _edges(tasks: Sequence[PlanTask]) -> set[tuple[str, str]]:
    known: Mapping[str, PlanTask] = {task.id: task for task in tasks}
    return {(need, task.id) for task in tasks for need in task.needs if need in known}
