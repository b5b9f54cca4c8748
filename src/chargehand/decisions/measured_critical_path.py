"""The critical path: the chain of tasks that the end of a run waited for."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from chargehand.decisions.system_tasks import ITEMS, PLAN, REFINE, hedged, is_hedge, is_system_task
from chargehand.decisions.trace_types import AttemptSpan, NeedLink
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    ItemsListed,
    PlanAdopted,
    PlanAmended,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Task, item_id

#: start and end
Interval: TypeAlias = tuple[datetime, datetime]


class Release(NamedTuple):
    """The event that made a task ready: the end of another task, or the task being planned."""

    #: number of the event: instants may be equal, numbers are not
    place: int
    at: datetime
    #: the task that ended, or the system task that planned it; empty: the task came with the request
    task: str


class CriticalPaths:
    """A fold over a run's events that remembers what made each task ready.

    A task is ready when the last of its needs has ended, in whatever state, or when it was planned, if that
    was later. A system task is ready because of the task that ended last before it.
    """

    def __init__(self) -> None:
        self._place = 0
        self._needs: dict[str, tuple[str, ...]] = {}
        self._planned: dict[str, Release] = {}
        self._ended: dict[str, Release] = {}
        self._last: Release | None = None
        self._system_tasks: dict[str, Release | None] = {}
        self._planner = ""

    def apply(self, event: Event) -> None:
        self._place += 1
        match event:
            case PlanAdopted():
                self._plan(event.plan.tasks, event.at)
            case TaskAdded():
                self._plan([event.task], event.at)
            case PlanAmended():
                self._plan(event.added, event.at)
            case ItemsListed():
                self._list(event)
            case AttemptStarted():
                self._start(event.task)
            case AttemptFinished(outcome=Done()) | TaskFailed() | TaskSkipped():
                self._end(event.task, event.at)
            case _:
                pass  # makes no task ready

    def ready_at(self, task: str) -> datetime | None:
        """When this task was ready; None: it waited for nothing."""
        release = self._release_of(task, self._place)
        return None if release is None else release.at

    def links(self, attempts: Iterable[AttemptSpan]) -> list[NeedLink]:
        """The critical path, first task first: walk back from the last end, each time to what made the task ready."""
        efforts: dict[str, list[AttemptSpan]] = {}
        for attempt in attempts:
            efforts.setdefault(served_by(attempt.task), []).append(attempt)
        links: list[NeedLink] = []
        here = self._last
        while here is not None and here.task:
            before = self._release_of(here.task, here.place)
            links += _link(here, before, efforts.get(here.task, []))
            here = before
        return links[::-1]

    def _plan(self, tasks: Iterable[Task], at: datetime) -> None:
        for task in tasks:
            self._needs[task.id] = tuple(need.task for need in task.all_needs)
            self._planned[task.id] = Release(self._place, at, self._planner)

    def _list(self, event: ItemsListed) -> None:
        """Add needs: a task with `for_each` waits for its items, and they wait for being listed."""
        last = event.first + len(event.items)
        items = [item_id(event.task, index) for index in range(event.first, last)]
        lister = f"{ITEMS}:{event.task}"
        self._needs.update(dict.fromkeys(items, (lister,)))
        self._needs[event.task] = (*self._needs.get(event.task, ()), lister, *items)

    def _start(self, task: str) -> None:
        if task.startswith(PLAN):
            self._planner = task
        if is_system_task(task):
            self._system_tasks.setdefault(task, self._last)

    def _end(self, task: str, at: datetime) -> None:
        if served_by(task) != task:
            return  # its time counts as time of the task that it serves
        self._last = self._ended[task] = Release(self._place, at, task)

    def _release_of(self, task: str, place: int) -> Release | None:
        """The last release that this task waited for, before `place`."""
        if is_system_task(task):
            return self._system_tasks.get(task)
        waited_for = [
            self._ended[need] for need in self._needs.get(task, ()) if need in self._ended
        ]
        if task in self._planned:
            waited_for.append(self._planned[task])
        return max((each for each in waited_for if each.place < place), default=None)


def served_by(task: str) -> str:
    """The task that an attempt counts for: a hedge or a rewrite counts for the task that it is for."""
    if is_hedge(task):
        return hedged(task)
    if not task.startswith(f"{REFINE}:"):
        return task
    return task.removeprefix(f"{REFINE}:").rpartition(":")[0]


def _link(here: Release, before: Release | None, efforts: list[AttemptSpan]) -> list[NeedLink]:
    if not efforts:
        return []  # skipped: its end took no time
    began = efforts[0].began_at if before is None else before.at
    stretches = [
        (max(each.began_at, began), min(each.ended_at or here.at, here.at)) for each in efforts
    ]
    worker = [each.worker for each in efforts if each.task == here.task][-1]
    worked = covered(stretches).total_seconds()
    return [NeedLink(here.task, worker, began, here.at, worked)]


def covered(intervals: Iterable[Interval]) -> timedelta:
    """The total time that these intervals cover; overlaps count once."""
    total, until = timedelta(0), None
    for began, ended in sorted(intervals):
        start = began if until is None else max(began, until)
        if ended > start:
            total += ended - start
            until = ended
    return total
