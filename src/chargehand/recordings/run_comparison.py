"""Compares two runs: their plans, the outcomes of their tasks, their answers, time and cost."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    Event,
    StepFinished,
)
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.facts.plan import Task, item_of
from chargehand.recordings.run_archive import RunArchive, impossible, result_in
from chargehand.result import RunResult
from chargehand.sync_async_bridge import in_thread

_ENDINGS = (AttemptFinished, AttemptLost, AttemptParked, AttemptPreempted)


class Pair(Struct, frozen=True):
    """One value from each of two runs."""

    a: Any
    b: Any

    @property
    def is_same(self) -> bool:
        return bool(self.a == self.b)


class TaskComparison(Struct, frozen=True, kw_only=True):
    """One task in both runs. A value is None if that run does not have the task."""

    task: str
    #: fields of the task that differ, such as `description` or `worker`
    changed: dict[str, Pair]
    state: Pair
    attempts: Pair
    #: digests of the results
    output: Pair
    #: the gaps of each result
    gaps: Pair
    #: total seconds of its attempts; for a task with `for_each`, from the first start to the last end
    seconds: Pair
    #: None if the price of a model is not known
    money: Pair

    @property
    def is_same(self) -> bool:
        """Whether both runs have the task, unchanged and with the same result."""
        return not self.changed and self.state.is_same and self.output.is_same and self.gaps.is_same


class RunComparison(Struct, frozen=True, kw_only=True):
    """Two runs side by side."""

    runs: Pair
    request: Pair
    status: Pair
    answer: Pair
    #: seconds from the request to the last event
    seconds: Pair
    #: total seconds of all attempts
    busy: Pair
    calls: Pair
    tokens: Pair
    #: None if the price of a model is not known
    money: Pair
    tasks: tuple[TaskComparison, ...]

    @property
    def is_same(self) -> bool:
        """Whether both runs have the same request, plan, outcomes and answer."""
        parts = (self.request, self.status, self.answer)
        return all(part.is_same for part in parts) and all(task.is_same for task in self.tasks)


class _Side(Struct, frozen=True):
    """One side of a comparison."""

    result: RunResult
    live_run: LiveRun
    events: list[Event]


async def compare(a: RunArchive, b: RunArchive) -> RunComparison:
    """Compare two runs: plan, outcomes, answers, time and cost."""
    sides = []
    for archive in (a, b):
        live_run, events = LiveRun(archive.root), list(archive.events(archive.root))
        for seq, event in enumerate(events, 1):
            try:
                live_run.replay((event,))
            except Exception as error:
                raise impossible(archive.root, seq, event, error) from error
        sides.append(_Side(await result_in(archive, live_run), live_run, events))
    return await in_thread(_compare, *sides)  # this may load answers from blobs


def _compare(a: _Side, b: _Side) -> RunComparison:
    of_a, of_b = a.live_run.schedule, b.live_run.schedule
    taken_a, taken_b = _taken(a.events), _taken(b.events)
    tasks = dict.fromkeys((*of_a.nodes, *of_b.nodes))
    usage_a, usage_b = a.result.usage, b.result.usage
    return RunComparison(
        runs=Pair(a.result.id, b.result.id),
        request=Pair(a.result.request, b.result.request),
        status=Pair(a.result.status.value, b.result.status.value),
        answer=Pair(a.result.answer.text, b.result.answer.text),
        seconds=_lengths(a.result.wall, b.result.wall),
        busy=_lengths(of_a.busy, of_b.busy),
        calls=Pair(usage_a.calls, usage_b.calls),
        tokens=Pair(*(each.tokens_in + each.tokens_out for each in (usage_a, usage_b))),
        money=Pair(usage_a.cost, usage_b.cost),
        tasks=tuple(
            _compare_task(task, (a.live_run, taken_a), (b.live_run, taken_b))
            for task in tasks
            if not is_system_task(task)
        ),
    )


class _Taken(Struct):
    """Time and usage of the attempts at a task, and the first start and last end of its items."""

    time: timedelta = timedelta(0)
    usage: Usage = NO_USAGE
    began_at: datetime | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def length(self) -> timedelta:
        """Total time of the attempts; for items, which run in parallel, from the first start to the last end."""
        if self.first_at is None or self.last_at is None:
            return self.time
        return self.last_at - self.first_at


def _taken(events: Iterable[Event]) -> dict[str, _Taken]:
    by_task: dict[str, _Taken] = {}
    mapped: dict[str, _Taken] = {}
    for event in events:
        if isinstance(event, (AttemptStarted, StepFinished, *_ENDINGS)):
            item = None if is_system_task(event.task) else item_of(event.task)
            if item is not None:
                mapped[item[0]] = by_task.setdefault(item[0], _Taken())
            whole = mapped.get(event.task if item is None else item[0])
            if whole is not None:
                whole.first_at = whole.first_at or event.at
                whole.last_at = event.at
                if item is not None and isinstance(event, AttemptFinished | StepFinished):
                    whole.usage += event.outcome.usage
        if isinstance(event, AttemptStarted):
            by_task.setdefault(event.task, _Taken()).began_at = event.at
        elif isinstance(event, StepFinished) and event.task in by_task:
            by_task[event.task].usage += event.outcome.usage
        elif isinstance(event, _ENDINGS) and event.task in by_task:
            taken = by_task[event.task]
            if taken.began_at is not None:
                taken.time += event.at - taken.began_at
                taken.began_at = None
            if isinstance(event, AttemptFinished):
                taken.usage += event.outcome.usage
    return by_task


def _compare_task(
    task: str, a: tuple[LiveRun, dict[str, _Taken]], b: tuple[LiveRun, dict[str, _Taken]]
) -> TaskComparison:
    nodes = [run.schedule.nodes.get(task) for run, _ in (a, b)]
    values = [run.results.outputs.get(task) for run, _ in (a, b)]
    taken = [times.get(task, _Taken()) for _, times in (a, b)]
    return TaskComparison(
        task=task,
        changed=_changed(nodes[0], nodes[1]),
        state=Pair(*(None if node is None else node.state.value for node in nodes)),
        attempts=Pair(*(None if node is None else node.attempt for node in nodes)),
        output=Pair(*(None if value is None else value.digest for value in values)),
        gaps=Pair(*(() if node is None else node.gaps for node in nodes)),
        seconds=_lengths(taken[0].length, taken[1].length),
        money=Pair(taken[0].usage.cost, taken[1].usage.cost),
    )


def _changed(a: TaskNode | None, b: TaskNode | None) -> dict[str, Pair]:
    if a is None or b is None:
        return {}
    return {
        field: Pair(one, other)
        for field in Task.__struct_fields__
        if (one := _plain(a.task, field)) != (other := _plain(b.task, field))
    }


def _plain(task: Task, field: str) -> Any:
    return msgspec.to_builtins(getattr(task, field))


def _lengths(a: timedelta, b: timedelta) -> Pair:
    return Pair(a.total_seconds(), b.total_seconds())
