"""Conflicts between workers, and the rules that say who gives way."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from chargehand.decisions.coordination.observed_run import Clash, RunWatch
from chargehand.decisions.quorum import VOTE, count
from chargehand.decisions.rule_answer import cut
from chargehand.decisions.system_tasks import is_of_plan
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts.answer import Contradiction
from chargehand.facts.plan import Strategy
from chargehand.facts.value import canonical

#: characters of a result in a message
SHOWN = 80


class ConflictKind(StrEnum):
    """The kinds of conflicts."""

    DOUBLE_ASSIGNMENT = "double_assignment"  #: the same work was assigned twice
    CONTRADICTION = "contradiction"  #: two results for the same thing that cannot both be right
    TWO_WRITERS = "two_writers"  #: two authors overwrite each other's changes to a block


class Resolution(Struct, frozen=True, kw_only=True):
    """What a rule says about a conflict. chargehand does not carry it out."""

    words: str
    #: who keeps the task or the block, or whose result stands
    keeper: str = ""
    #: the task that stays, or whose result stands
    task: str = ""
    #: for contradicting results: the value that stands
    value: Any = None

    def __str__(self) -> str:
        return self.words


class Conflict(Struct, frozen=True, kw_only=True):
    """A conflict between workers: the fact, and the resolution by rule. As text, it shows both."""

    kind: ConflictKind
    #: names, the earliest first
    parties: tuple[str, ...]
    fact: str
    resolution: Resolution
    at: datetime
    run: str = ""
    board: str = ""
    tasks: tuple[str, ...] = ()
    #: label of the block
    block: str = ""
    #: it is over: nothing needs to be done about it
    is_settled: bool = False

    @property
    def task(self) -> str:
        """The task that it is about, the first one if there are several; empty for a block."""
        return self.tasks[0] if self.tasks else ""

    def __str__(self) -> str:
        return f"{self.fact}; {self.resolution}"


class Said(Struct, frozen=True, kw_only=True):
    """One result among several for the same thing."""

    by: str
    value: Any
    at: datetime
    task: str = ""
    importance: float = 0.0


def rule(results: Sequence[Said]) -> Resolution | None:
    """Which of these results stands; None if they agree.

    The result of the largest group stands; among equally large groups, the most important, then the earliest.
    """
    ballot = count({str(place): each.value for place, each in enumerate(results)})
    if len(ballot.groups) < 2:
        return None
    groups = [[results[int(place)] for place in places] for places in ballot.groups]
    most = len(groups[0])
    largest = [group for group in groups if len(group) == most]
    if len(largest) == 1:
        why = f"{most} of {len(results)} say so"
        return _standing(largest[0], why)
    weights = [max(each.importance for each in group) for group in largest]
    heaviest = [group for group, w in zip(largest, weights, strict=True) if w == max(weights)]
    if len(heaviest) == 1:
        return _standing(heaviest[0], "it is the more important one")
    first = min(heaviest, key=lambda group: min(each.at for each in group))
    return _standing(first, "it came first, so the later one is rejected")


def _standing(group: Sequence[Said], why: str) -> Resolution:
    best = min(group, key=lambda each: (-each.importance, each.at))
    words = f"{shown(best.value)} by {best.by} stands: {why}"
    return Resolution(words=words, keeper=best.by, task=best.task, value=best.value)


def shown(value: Any) -> str:
    """A value as short text."""
    return cut(value if isinstance(value, str) else canonical(value).decode(), SHOWN)


def contradiction(
    results: Sequence[Said], about: str, *, run: str = "", board: str = "", is_settled: bool = False
) -> Conflict | None:
    """The conflict between these results for the same thing; None if they agree."""
    verdict = rule(results)
    if verdict is None:
        return None
    said = "; ".join(f"{each.by} says {shown(each.value)}" for each in results)
    return Conflict(
        kind=ConflictKind.CONTRADICTION,
        parties=tuple(dict.fromkeys(each.by for each in results)),
        fact=f"results for {about} differ: {said}",
        resolution=verdict,
        at=max(each.at for each in results),
        run=run,
        board=board,
        tasks=tuple(dict.fromkeys(each.task for each in results if each.task)),
        is_settled=is_settled,
    )


# Conflicts of a run


def conflicts_in(watch: RunWatch) -> list[Conflict]:
    """All conflicts of one run, in the order in which they came up."""
    compared = list(_differing(watch))
    told = {frozenset(each.tasks) for each in compared}
    found = [
        *(_clash(watch, clash) for clash in watch.clashes),
        *_doubles(watch),
        *compared,
        *(each for each in _composed(watch) if frozenset(each.tasks) not in told),
    ]
    return sorted(found, key=lambda conflict: conflict.at)


def _clash(watch: RunWatch, clash: Clash) -> Conflict:
    first, second, task = clash.first, clash.second, clash.task
    names = f"{first.worker} (attempt {first.attempt}) and {second.worker} ({second.attempt})"
    if clash.refused:
        fact = f"task {task} was with {names}, and both reported: {clash.refused}"
        words = f"{second.worker} keeps it: the late result of {first.worker} was refused"
        keeper = second.worker
    else:
        fact = f"task {task} is held by {names} at once"
        words = f"{first.worker} began first and keeps it; stop {second.worker}"
        keeper = first.worker
    is_over = watch.schedule.nodes[task].state.is_settled
    return Conflict(
        kind=ConflictKind.DOUBLE_ASSIGNMENT,
        parties=tuple(dict.fromkeys((first.worker, second.worker))),
        fact=fact,
        resolution=Resolution(words=words, keeper=keeper, task=task),
        at=clash.at,
        run=watch.run,
        tasks=(task,),
        is_settled=bool(clash.refused) or is_over,
    )


def _doubles(watch: RunWatch) -> Iterator[Conflict]:
    """Tasks of one plan with the same work for different workers, although no vote or selection needs them."""
    for nodes in _same_work(watch):
        workers = {node.task.id: watch.worker_of(node) for node in nodes}
        if len(set(workers.values()) - {""}) < 2:
            continue
        began = [(watch.began_at(node.task.id), node) for node in nodes]
        first = min(((at, node.order, node) for at, node in began if at), default=None)
        kept = first[2] if first is not None else nodes[0]
        keeper = workers[kept.task.id]
        others = [f"{node.task.id} ({workers[node.task.id]})" for node in nodes if node is not kept]
        why = "began first" if first is not None else "was assigned first"
        given = ", ".join(f"{task} to {who or 'no worker yet'}" for task, who in workers.items())
        words = f"{keeper} {why} and keeps {kept.task.id}; remove {', '.join(others)} from the plan"
        yield Conflict(
            kind=ConflictKind.DOUBLE_ASSIGNMENT,
            parties=tuple(dict.fromkeys(who for who in workers.values() if who)),
            fact=f"the same work was assigned {len(nodes)} times: {given}",
            resolution=Resolution(words=words, keeper=keeper, task=kept.task.id),
            at=max(filter(None, (node.since_at for node in nodes)), default=_start(watch)),
            run=watch.run,
            tasks=tuple(workers),
            is_settled=watch.is_over or all(node.state.is_settled for node in nodes),
        )


def _differing(watch: RunWatch) -> Iterator[Conflict]:
    for nodes in _same_work(watch):
        results = [
            Said(
                by=watch.worker_of(node),
                value=watch.outputs[node.task.id].read(),
                at=watch.ended[node.task.id],
                task=node.task.id,
                importance=node.task.priority,
            )
            for node in nodes
            if node.task.id in watch.outputs
        ]
        about = f"the same work ({', '.join(each.task for each in results)})"
        found = contradiction(results, about, run=watch.run) if len(results) > 1 else None
        if found is not None:
            yield found


def _composed(watch: RunWatch) -> Iterator[Conflict]:
    """The contradictions that the composed answer names."""
    for pair in watch.contradictions:
        results = [_claimed(watch, pair, place) for place in (0, 1)]
        verdict = rule([each for claim, many in results for each in [claim] * max(many, 1)])
        if verdict is None:
            continue
        tasks = tuple(dict.fromkeys((*pair.first.tasks, *pair.second.tasks)))
        yield Conflict(
            kind=ConflictKind.CONTRADICTION,
            parties=tuple(dict.fromkeys(claim.by for claim, _ in results)),
            fact=f"results contradict each other: {pair}",
            resolution=verdict,
            at=max(claim.at for claim, _ in results),
            run=watch.run,
            tasks=tasks,
        )


def _claimed(watch: RunWatch, pair: Contradiction, place: int) -> tuple[Said, int]:
    """One side of a contradiction, and how many tasks support it."""
    claim = (pair.first, pair.second)[place]
    nodes = [node for node in watch.nodes() if node.task.id in claim.tasks]
    ends = [watch.ended[node.task.id] for node in nodes if node.task.id in watch.ended]
    by = ", ".join(dict.fromkeys(watch.worker_of(node) for node in nodes))
    said = Said(
        by=by or "an unknown worker",
        value=claim.text,
        at=min(ends, default=_start(watch)),
        task=claim.tasks[0] if claim.tasks else "",
        importance=max((node.task.priority for node in nodes), default=0),
    )
    return said, len(claim.tasks)


_OUT = (TaskState.FAILED, TaskState.SKIPPED, TaskState.CANCELLED)


def _same_work(watch: RunWatch) -> list[list[TaskNode]]:
    """Groups of tasks with the same description, arguments and needs, unless they are for a vote or a selection."""
    if watch.schedule.strategy is Strategy.SELECT:
        return []
    by_words: dict[str, list[TaskNode]] = {}
    for node in watch.nodes():
        if is_of_plan(node) and node.state not in _OUT:
            by_words.setdefault(" ".join(node.task.description.split()).casefold(), []).append(node)
    same: dict[bytes, list[TaskNode]] = {}
    for words, nodes in by_words.items():
        for node in nodes if len(nodes) > 1 else ():
            if not any(each.task.worker == VOTE for each in node.dependents):
                key = canonical([words, node.task.args, node.task.needs])
                same.setdefault(key, []).append(node)
    return [nodes for nodes in same.values() if len(nodes) > 1]


def _start(watch: RunWatch) -> datetime:
    requested = watch.schedule.requested
    at = requested.at if requested is not None else watch.last_at
    assert at is not None, "a run that has tasks has begun"
    return at
