"""The story of a run, told from its events alone: who did what when, and where the time went."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    Event,
    PlanAdopted,
    PlanAmended,
    RetryPlanned,
    RunFinished,
    RunRequested,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.outcome import Failed
from chargehand.facts.plan import Task


class StepSpan(Struct):
    """One step of an attempt."""

    name: str
    ordinal: int
    effect: str
    began_at: datetime
    ended_at: datetime | None = None
    error: str = ""


class AttemptSpan(Struct):
    """One try at a task."""

    task: str
    attempt: int
    worker: str
    why: str
    began_at: datetime
    ready_at: datetime
    #: when its needs were met; the time until it began is the wait for a place
    ended_at: datetime | None = None
    ending: str = ""
    #: done, failed, cancelled, needs_input, lost, preempted; empty: still open
    error: str = ""
    steps: list[StepSpan] = []

    @property
    def length(self) -> timedelta:
        return timedelta(0) if self.ended_at is None else self.ended_at - self.began_at


class Trace(Struct):
    """A read-only view of a run's events."""

    run: str = ""
    request: str = ""
    status: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: list[AttemptSpan] = []
    retries: int = 0
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    critical_path: list[str] = []
    #: the tasks that the end of the run waited for, one after another

    @property
    def wall(self) -> timedelta:
        """From the request to the end, or to the last thing known."""
        if self.began_at is None or self.ended_at is None:
            return timedelta(0)
        return self.ended_at - self.began_at

    @property
    def busy(self) -> timedelta:
        """The time of all finished tasks, one after another: what doing them in turn would have taken."""
        lengths = (each.length for each in self.attempts if each.ending == "done")
        return sum(lengths, timedelta(0))

    @property
    def speedup(self) -> float:
        """How much sooner the run ended than its tasks one after another would have."""
        return self.busy / self.wall if self.wall else 1.0

    def to_json(self, *, indent: int | None = 2) -> str:
        facts = msgspec.to_builtins(self)
        facts |= {
            "seconds": self.wall.total_seconds(),
            "seconds_in_turn": self.busy.total_seconds(),
            "speedup": round(self.speedup, 3),
        }
        data = msgspec.json.encode(facts)
        return (msgspec.json.format(data, indent=indent) if indent else data).decode()

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of what `to_json` writes."""
        schema = msgspec.json.schema(Trace)
        facts = schema["$defs"]["Trace"]
        for name in ("seconds", "seconds_in_turn", "speedup"):
            facts["properties"][name] = {"type": "number"}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def trace_of(events: Iterable[Event]) -> Trace:
    """Fold the events of a run, ended or not, into its trace."""
    fold = _Fold()
    for event in events:
        fold.apply(event)
    fold.trace.critical_path = fold.critical_path()
    return fold.trace


class _Fold:
    def __init__(self) -> None:
        self.trace = Trace()
        self._open: dict[str, AttemptSpan] = {}
        self._tasks: dict[str, Task] = {}
        self._done_at: dict[str, datetime] = {}
        self._due_at: dict[str, datetime] = {}
        self._added_at: dict[str, datetime] = {}

    def apply(self, event: Event) -> None:
        trace = self.trace
        trace.ended_at = event.at
        match event:
            case RunRequested():
                trace.run, trace.request, trace.began_at = event.run, event.request, event.at
            case PlanAdopted():
                self._add(event.plan.tasks, event.at)
            case TaskAdded():
                self._add([event.task], event.at)
            case PlanAmended():
                self._add(event.added, event.at)
            case AttemptStarted():
                self._start(event)
            case AttemptFinished():
                outcome = event.outcome
                error = str(outcome) if isinstance(outcome, Failed) else ""
                self._end(event.task, event.at, _ENDINGS[type(outcome).__name__], error)
            case AttemptLost():
                self._end(event.task, event.at, "lost", event.reason)
            case AttemptPreempted():
                self._end(event.task, event.at, "preempted", "")
            case StepStarted():
                step = StepSpan(event.name, event.ordinal, event.effect.value, event.at)
                self._open[event.task].steps.append(step)
            case StepFinished():
                self._end_step(event)
            case RetryPlanned():
                trace.retries += 1
                self._due_at[event.task] = event.due_at
            case TaskFailed():
                trace.failed[event.task] = str(event.cause)
            case TaskSkipped():
                trace.skipped[event.task] = event.why
            case RunFinished():
                trace.status = event.status.value
            case _:
                pass  # tells nothing about where the time went

    def critical_path(self) -> list[str]:
        """Walk back from the task that ended last, each time to the need that ended last."""
        if not self._done_at:
            return []
        here = max(self._done_at, key=lambda task: self._done_at[task])
        path = [here]
        while True:
            needs = [n.task for n in self._tasks[here].all_needs if n.task in self._done_at]
            if not needs:
                return path[::-1]
            here = max(needs, key=lambda task: self._done_at[task])
            path.append(here)

    def _add(self, tasks: Iterable[Task], at: datetime) -> None:
        for task in tasks:
            self._tasks[task.id] = task
            self._added_at[task.id] = at

    def _start(self, event: AttemptStarted) -> None:
        needs = self._tasks[event.task].all_needs
        met = [self._done_at[need.task] for need in needs if need.task in self._done_at]
        ready_at = max([self._added_at[event.task], *met])
        ready_at = min(max(ready_at, self._due_at.get(event.task, ready_at)), event.at)
        span = AttemptSpan(event.task, event.attempt, event.worker, event.why, event.at, ready_at)
        self._open[event.task] = span
        self.trace.attempts.append(span)

    def _end(self, task: str, at: datetime, ending: str, error: str) -> None:
        span = self._open.pop(task, None)
        if span is None:
            return
        span.ended_at, span.ending, span.error = at, ending, error
        if ending == "done":
            self._done_at[task] = at
        else:
            self._due_at[task] = at

    def _end_step(self, event: StepFinished) -> None:
        for step in reversed(self._open[event.task].steps):
            if (step.name, step.ordinal) == (event.name, event.ordinal):
                step.ended_at = event.at
                step.error = str(event.outcome) if isinstance(event.outcome, Failed) else ""
                return


_ENDINGS = {
    "Done": "done",
    "Failed": "failed",
    "Cancelled": "cancelled",
    "NeedsInput": "needs_input",
}
