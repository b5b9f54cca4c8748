"""The state of a run for a live view, computed from its events, each in constant time."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from chargehand.decisions.schedule import RunState
from chargehand.decisions.speedup import SpeedupSoFar
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskState, ranks_of
from chargehand.facts import events
from chargehand.facts.events import Event, RunStatus
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NO_USAGE, Cancelled, Done, Failed, NeedsInput, Question, Usage
from chargehand.facts.plan import Task, item_of
from chargehand.facts.value import Value
from chargehand.presentation.nested_paths import NestedPath
from chargehand.presentation.progress_lines import ItemCount
from chargehand.result import RunResult

#: the state of a task after an attempt with this outcome
_AFTER = {
    Done: TaskState.DONE,
    Failed: TaskState.RETRYING,
    NeedsInput: TaskState.ASKING,
    Cancelled: TaskState.CANCELLED,
}
#: assumed duration on the critical path of a task without an estimate
ONE = timedelta(seconds=1)


class CurrentCall(Struct):
    """The step that an attempt is waiting for: a model call, a tool call, or another step."""

    name: str
    began_at: datetime
    about: Value = Value()

    def __str__(self) -> str:
        if self.name != "model":
            return self.name.removeprefix("tool ")
        try:
            named = msgspec.json.decode(self.about.json, type=_Asked)
        except msgspec.MsgspecError:
            return self.name
        return next(iter(named.models), self.name)


class _Asked(Struct):
    models: list[str] = []


class LiveTask(Struct, kw_only=True):
    """The current state of a task."""

    id: str
    worker: str = ""
    needs: tuple[str, ...] = ()
    #: 1 for tasks without needs; otherwise 1 more than the highest phase of a need
    phase: int = 1
    state: TaskState = TaskState.WAITING
    #: start of the current or last attempt
    began_at: datetime | None = None
    attempt: int = 0
    call: CurrentCall | None = None
    #: number of needs that have not ended
    unmet: int = 0
    dependents: list[str] = field(default_factory=list)
    items: ItemCount | None = None
    #: the worker's last progress note
    note: str = ""
    #: done, but with gaps
    is_in_part: bool = False


class LiveState:
    """The state of a run, updated by `hear`."""

    def __init__(self, where: NestedPath | None = None) -> None:
        #: the path of a nested run; empty for the run itself
        self.where = where or NestedPath()
        self.run = ""
        self.request = ""
        self.limits = Limits()
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.status: RunStatus | None = None
        self.is_paused = False
        self.is_stopping = False
        self.is_planned = False
        self.usage: Usage = NO_USAGE
        #: of this run and of its nested runs, as far as they are heard
        self.speedup = SpeedupSoFar()
        self.tasks: dict[str, LiveTask] = {}
        self.counts: Counter[TaskState] = Counter()
        self.running: dict[str, LiveTask] = {}
        #: the most tasks that ran at once
        self.peak = 0
        #: start of each running system task
        self.duties: dict[str, datetime] = {}
        #: open questions by id, with the task that asks
        self.questions: dict[str, tuple[str, Question]] = {}
        self._paces: dict[str, events.Pace] = {}
        #: estimated time from the start of each task to the end of the run
        self._tails: dict[str, timedelta] = {}

    def hear(self, event: Event) -> None:
        self.speedup.hear(event)
        heard = self._HEARD.get(type(event))
        if heard is not None:
            heard(self, event)

    def hear_below(self, run: str, event: Event) -> None:
        """Take an event of a run nested in this one, which has a `LiveState` of its own."""
        self.speedup.hear(event, run)

    def catch_up(self, result: RunResult) -> None:
        """Take over the state of a run whose earlier events were not heard."""
        self.run, self.request, self.limits = result.id, result.request, result.limits
        self.usage, self.is_planned = result.usage, bool(result.tasks)
        self.began_at, self.is_paused = result.trace.began_at, result.status is RunState.PAUSED
        self._add(task.task for task in result.tasks.values())
        for id_, task in result.tasks.items():
            self._move(self.tasks[id_], task.state)
            self.tasks[id_].is_in_part = bool(task.gaps)
            if task.items:
                done = sum(item.state is TaskState.DONE for item in task.items)
                count = ItemCount(len(task.items), done, len(task.failed_items))
                for item in task.items:
                    if item.attempts:
                        count.move(item.task.id, item.state)
                self.tasks[id_].items = count

    # for views

    def elapsed(self, now: datetime) -> timedelta:
        if self.began_at is None:
            return timedelta()
        return max((self.ended_at or now) - self.began_at, timedelta())

    def phases(self) -> dict[int, list[LiveTask]]:
        """The tasks by phase, in the order of the plan."""
        phases: dict[int, list[LiveTask]] = {}
        for task in self.tasks.values():
            phases.setdefault(task.phase, []).append(task)
        return dict(sorted(phases.items()))

    def critical_path(self) -> list[str]:
        """The longest path through the unfinished tasks, estimated from the known paces of their workers."""
        front = [*self.running.values(), *self._in(TaskState.READY, TaskState.RETRYING)]
        front = front or list(self._in(TaskState.ASKING, TaskState.WAITING))
        path: list[str] = []
        while front:
            first = max(front, key=self._tail)
            path.append(first.id)
            front = [self.tasks[id_] for id_ in first.dependents if id_ in self.tasks]
            front = [task for task in front if not task.state.is_settled]
        return path

    def waiting_behind(self, task: str) -> int:
        """The number of tasks that depend on this task, directly or indirectly."""
        seen: set[str] = set()
        open_ = [task]
        while open_:
            known = self.tasks.get(open_.pop())
            after = set() if known is None else set(known.dependents) & self.tasks.keys() - seen
            seen |= after
            open_ += after
        return len(seen)

    def waiting_for_items(self) -> list[LiveTask]:
        """The tasks with `for_each` whose open items all wait for a retry."""
        return [task for task in self._in(TaskState.RETRYING) if task.items and task.items.open]

    def _in(self, *states: TaskState) -> Iterable[LiveTask]:
        return (task for task in self.tasks.values() if task.state in states)

    def _tail(self, task: LiveTask) -> timedelta:
        """Estimated time from the start of this task to the end of the run. Not recursive: chains may be long."""
        tails, open_ = self._tails, [task]
        while open_:
            last = open_[-1]
            after = [self.tasks[id_] for id_ in last.dependents if id_ in self.tasks]
            unknown = [each for each in after if each.id not in tails]
            if unknown:
                open_ += unknown
                continue
            pace = self._paces.get(last.worker)
            own = ONE if pace is None else pace.mean
            tails[last.id] = own + max((tails[each.id] for each in after), default=timedelta())
            open_.pop()
        return tails[task.id]

    # events

    def _requested(self, event: events.RunRequested) -> None:
        self.run, self.request, self.limits = event.run, event.request, event.limits
        self.began_at, self._paces = event.at, event.paces

    def _adopted(self, event: events.PlanAdopted) -> None:
        self.is_planned = True
        self._add(event.plan.tasks)

    def _added(self, event: events.TaskAdded) -> None:
        self._add([event.task])

    def _sealed(self, _: events.PlanSealed) -> None:
        self.is_planned = True

    def _amended(self, event: events.PlanAmended) -> None:
        for id_ in event.removed:
            gone = self.tasks.pop(id_, None)
            if gone is not None:
                self.counts[gone.state] -= 1
                self.running.pop(id_, None)
        self._add(event.added)

    def _add(self, tasks: Iterable[Task]) -> None:
        fresh = [
            LiveTask(
                id=task.id,
                worker=task.worker or task.skill,
                needs=tuple(need.task for need in task.all_needs),
                items=None if task.for_each is None else ItemCount(),
            )
            for task in tasks
        ]
        for task in fresh:
            replaced = self.tasks.get(task.id)
            if replaced is not None:
                self.counts[replaced.state] -= 1
                task.dependents = replaced.dependents
            self.tasks[task.id] = task
            self.counts[task.state] += 1
        self._tails.clear()
        for task in fresh:
            needed = [self.tasks[id_] for id_ in task.needs if id_ in self.tasks]
            for need in needed:
                if task.id not in need.dependents[-1:]:
                    need.dependents.append(task.id)
            task.unmet = sum(not need.state.is_settled for need in needed)
            self._move(task, TaskState.WAITING if task.unmet else TaskState.READY)
        self._set_phases(fresh)

    def _set_phases(self, fresh: list[LiveTask]) -> None:
        ranks = ranks_of({task.id: task.needs for task in fresh})
        for task in sorted(fresh, key=lambda task: ranks[task.id]):
            phases = (self.tasks[id_].phase for id_ in task.needs if id_ in self.tasks)
            task.phase = 1 + max(phases, default=0)

    def _listed(self, event: events.ItemsListed) -> None:
        if (task := self.tasks.get(event.task)) is not None:
            task.items = task.items or ItemCount()
            task.items.total = event.first + len(event.items)

    def _started(self, event: events.AttemptStarted) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            if task.items is None or task.began_at is None:  # else it combines the items' results
                task.worker, task.began_at = event.worker, event.at
            task.attempt, task.call, task.note = event.attempt, None, ""
            self._move(task, TaskState.RUNNING)
            return
        if is_system_task(event.task):
            self.duties[event.task] = event.at
            return
        if (mapped := self._mapped(event.task)) is not None:
            items = mapped.items = mapped.items or ItemCount()
            items.move(event.task, TaskState.RUNNING)
            if mapped.state is not TaskState.RUNNING:
                mapped.worker, mapped.began_at = event.worker, mapped.began_at or event.at
                self._move(mapped, TaskState.RUNNING)

    def _finished(self, event: events.AttemptFinished) -> None:
        self.usage += event.outcome.usage
        self.duties.pop(event.task, None)
        outcome = event.outcome
        if isinstance(outcome, NeedsInput):
            self.questions[outcome.question.id] = (event.task, outcome.question)
        task = self.tasks.get(event.task)
        if task is None:
            self._finish_item(event)
            return
        task.is_in_part = isinstance(outcome, Done) and bool(outcome.gaps)
        self._end(task, _AFTER[type(outcome)])

    def _finish_item(self, event: events.AttemptFinished) -> None:
        mapped = self._mapped(event.task)
        if mapped is not None and mapped.items is not None:
            mapped.items.done += isinstance(event.outcome, Done)
            if isinstance(event.outcome, Failed):
                mapped.items.reason = str(event.outcome)
            self._move_item(mapped, event.task, _AFTER[type(event.outcome)])

    def _move_item(self, mapped: LiveTask, item: str, state: TaskState) -> None:
        """Set the state of an item. While a task waits for its items, the task shows their state."""
        if mapped.items is None:
            return
        mapped.items.move(item, state)
        has_more = mapped.items.open or mapped.items.done + mapped.items.failed < mapped.items.total
        if has_more and not mapped.state.is_settled:
            self._move(mapped, mapped.items.state)

    def _mapped(self, task: str) -> LiveTask | None:
        item = item_of(task)
        return None if item is None else self.tasks.get(item[0])

    def _lost(self, event: events.AttemptLost) -> None:
        self._leave(event.task, TaskState.RETRYING)

    def _preempted(self, event: events.AttemptPreempted) -> None:
        self._leave(event.task, TaskState.READY)

    def _parked(self, event: events.AttemptParked) -> None:
        self._leave(event.task, TaskState.RETRYING)

    def _leave(self, id_: str, state: TaskState) -> None:
        self.duties.pop(id_, None)
        if (task := self.tasks.get(id_)) is not None:
            self._end(task, state)
        elif (mapped := self._mapped(id_)) is not None:
            self._move_item(mapped, id_, state)

    def _failed(self, event: events.TaskFailed) -> None:
        if (task := self.tasks.get(event.task)) is not None:
            self._end(task, TaskState.FAILED)
        elif (mapped := self._mapped(event.task)) is not None and mapped.items is not None:
            mapped.items.failed += 1
            self._move_item(mapped, event.task, TaskState.FAILED)

    def _skipped(self, event: events.TaskSkipped) -> None:
        if (task := self.tasks.get(event.task)) is not None:
            self._end(task, TaskState.SKIPPED)
        elif (mapped := self._mapped(event.task)) is not None and mapped.items is not None:
            mapped.items.move(event.task, TaskState.SKIPPED)

    def _step_began(self, event: events.StepStarted) -> None:
        if (task := self.running.get(event.task)) is not None:
            task.call = CurrentCall(event.name, event.at, event.about)

    def _step_ended(self, event: events.StepFinished) -> None:
        self.usage += event.outcome.usage
        if (task := self.running.get(event.task)) is not None:
            task.call = None

    def _noted(self, event: events.ProgressNoted) -> None:
        if (task := self.running.get(event.task)) is not None:
            share = "" if event.fraction is None else f" {event.fraction:.0%}"
            task.note = f"{event.text}{share}"

    def _asked(self, event: events.PersonAsked) -> None:
        self.questions[event.question.id] = (event.task, event.question)
        if (task := self.tasks.get(event.task)) is not None:
            self._end(task, TaskState.ASKING)
        elif (mapped := self._mapped(event.task)) is not None:
            self._move_item(mapped, event.task, TaskState.ASKING)

    def _answered(self, event: events.QuestionAnswered | events.QuestionExpired) -> None:
        self.questions.pop(event.question, None)
        task = self.tasks.get(event.task)
        if task is not None and task.state is TaskState.ASKING:
            self._move(task, TaskState.READY)
        elif task is None and (mapped := self._mapped(event.task)) is not None:
            self._move_item(mapped, event.task, TaskState.READY)

    def _paused(self, _: events.RunPaused) -> None:
        self.is_paused = True

    def _unpaused(self, _: events.RunUnpaused) -> None:
        self.is_paused = False

    def _stopped(self, _: events.CancelRequested | events.WorkStopped) -> None:
        self.is_stopping = True

    def _budgeted(self, event: events.BudgetChanged) -> None:
        given = {"money": event.money, "tokens": event.tokens, "calls": event.calls}
        changed = {name: value for name, value in given.items() if value is not None}
        self.limits = msgspec.structs.replace(self.limits, **changed)

    def _ended(self, event: events.RunFinished) -> None:
        self.status, self.ended_at = event.status, event.at
        self.questions.clear()
        for task in self.tasks.values():
            if not task.state.is_settled:
                self._end(task, TaskState.CANCELLED)

    def _end(self, task: LiveTask, state: TaskState) -> None:
        task.call = None
        self._move(task, state)

    def _move(self, task: LiveTask, state: TaskState) -> None:
        before = task.state
        if before is state:
            return
        self.counts[before] -= 1
        self.counts[state] += 1
        task.state = state
        if state is TaskState.RUNNING:
            self.running[task.id] = task
            self.peak = max(self.peak, len(self.running))
        else:
            self.running.pop(task.id, None)
        if state.is_settled and not before.is_settled:
            for id_ in task.dependents:
                after = self.tasks.get(id_)
                if after is not None:
                    after.unmet -= 1
                    if not after.unmet and after.state is TaskState.WAITING:
                        self._move(after, TaskState.READY)

    _HEARD: ClassVar[dict[type[Any], Callable[["LiveState", Any], None]]] = {
        events.RunRequested: _requested,
        events.PlanAdopted: _adopted,
        events.TaskAdded: _added,
        events.PlanSealed: _sealed,
        events.PlanAmended: _amended,
        events.ItemsListed: _listed,
        events.AttemptStarted: _started,
        events.AttemptFinished: _finished,
        events.AttemptLost: _lost,
        events.AttemptPreempted: _preempted,
        events.AttemptParked: _parked,
        events.TaskFailed: _failed,
        events.TaskSkipped: _skipped,
        events.StepStarted: _step_began,
        events.StepFinished: _step_ended,
        events.ProgressNoted: _noted,
        events.PersonAsked: _asked,
        events.QuestionAnswered: _answered,
        events.QuestionExpired: _answered,
        events.RunPaused: _paused,
        events.RunUnpaused: _unpaused,
        events.CancelRequested: _stopped,
        events.WorkStopped: _stopped,
        events.BudgetChanged: _budgeted,
        events.RunFinished: _ended,
    }
