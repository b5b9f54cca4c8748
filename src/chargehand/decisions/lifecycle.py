"""What happens to a run, read as notes: a view of its events, folded on demand and stored nowhere."""

from typing import Any

from msgspec.structs import replace

from chargehand.decisions.duties import is_duty
from chargehand.facts.board import LEADER, Note, Segment
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    Event,
    PlanAdopted,
    PlanAmended,
    ProgressNoted,
    ResultRefused,
    RetryPlanned,
    RunFinished,
    RunRequested,
    StepFinished,
    TaskAdded,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
)
from chargehand.facts.outcome import Done, Failed
from chargehand.facts.plan import Task
from chargehand.facts.value import Value

_IMPORTANCE = {
    Segment.TASKS: 0.8,
    Segment.RESULTS: 0.8,
    Segment.ERRORS: 0.9,
    Segment.PROGRESS: 0.5,
    Segment.CONFLICTS: 0.9,
}
_REASSIGNED = 0.9


class Lifecycle:
    """Turns the events of one run, in order, into notes. The supervisor's own thinking is no task."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.seq = 0
        #: of the newest event that it has seen
        self.notes: list[Note] = []
        self._workers: dict[str, str] = {}
        self._needs: dict[str, list[str]] = {}
        self._taint: tuple[str, ...] = ()
        #: of the request, and so of every plan made of it
        self._read_by: dict[str, dict[str, None]] = {}
        #: untrusted sources that each task has read so far, and so all that it says

    def apply(self, seq: int, event: Event) -> list[Note]:
        """The notes that this event is read as; often none."""
        self.seq = seq
        notes = self._read(event)
        self.notes += notes
        return notes

    def _read(self, event: Event) -> list[Note]:
        match event:
            case RunRequested():
                self._taint = event.taint
            case PlanAdopted(plan=plan):
                for task in plan.tasks:
                    self._distrust(task.id, plan.taint)
                return [self._task(event, task, n) for n, task in enumerate(plan.tasks)]
            case TaskAdded(task=task):
                return [self._task(event, task, 0)]
            case PlanAmended(added=added, taint=taint):
                for task in added:
                    self._distrust(task.id, taint)
                return [self._task(event, task, n) for n, task in enumerate(added)]
            case RetryPlanned(task=name) if not is_duty(name):
                return [self._again(event, name)]
            case AttemptStarted(task=name) if not is_duty(name):
                self._workers[name] = event.worker
                for need in self._needs.get(name, ()):
                    self._distrust(name, tuple(self._read_by.get(need, ())))
                return [self._note(event, Segment.PROGRESS, "started", name, f"{name} is begun")]
            case StepFinished(task=name, outcome=Done(value=value)):
                self._distrust(name, value.taint)
            case TaskRewritten(task=name, taint=taint):
                self._distrust(name, taint)
            case ProgressNoted(task=name) if not is_duty(name):
                about = {"text": event.text, "fraction": event.fraction}
                return [self._note(event, Segment.PROGRESS, "working", name, about)]
            case AttemptFinished(task=name) if not is_duty(name):
                return self._finished(event, name)
            case AttemptLost(task=name) if not is_duty(name):
                self._distrust(name, event.taint)
                return [self._note(event, Segment.ERRORS, "lost", name, event.reason)]
            case TaskFailed(task=name) if not is_duty(name):
                return [self._note(event, Segment.ERRORS, "given-up", name, str(event.cause))]
            case TaskSkipped(task=name) if not is_duty(name):
                return [self._note(event, Segment.ERRORS, "skipped", name, event.why)]
            case ResultRefused(task=name):
                said = f"a second result for {name} was refused: {event.why}"
                return [self._note(event, Segment.CONFLICTS, "refused", name, said)]
            case RunFinished():
                end = {"status": event.status.value, "missing": list(event.missing)}
                return [self._note(event, Segment.PROGRESS, "finished", "", end, author=LEADER)]
        return []

    def _task(self, event: Event, task: Task, number: int) -> Note:
        self._workers[task.id] = task.worker
        self._needs[task.id] = [need.task for need in task.all_needs]
        said = {"task": task.id, "description": task.description, "worker": task.worker}
        note = self._note(event, Segment.TASKS, "pending", task.id, said, author=LEADER)
        tags = (*note.tags, task.worker) if task.worker else note.tags
        return replace(note, id=f"{note.id}.{number}", tags=tags)

    def _again(self, event: RetryPlanned, task: str) -> Note:
        said = {"task": task, "how": event.how.value, "due_at": event.due_at.isoformat()}
        if not event.worker:
            note = self._note(event, Segment.TASKS, "reassigned", task, said, author=LEADER)
            return replace(note, importance=_REASSIGNED)
        # Somebody else has it from now on, and finds it where its first worker found it.
        said["worker"] = self._workers[task] = event.worker
        note = self._note(event, Segment.TASKS, "pending", task, said, author=LEADER)
        tags = (*note.tags, event.worker, "reassigned")
        return replace(note, tags=tags, importance=_REASSIGNED)

    def _finished(self, event: AttemptFinished, task: str) -> list[Note]:
        outcome = event.outcome
        if isinstance(outcome, Done):
            self._distrust(task, outcome.value.taint)
            note = self._note(event, Segment.RESULTS, "completed", task, None)
            return [replace(note, stored=outcome.value)]
        if isinstance(outcome, Failed):
            self._distrust(task, outcome.taint)
            return [self._note(event, Segment.ERRORS, "failed", task, str(outcome))]
        return []

    def _distrust(self, task: str, sources: tuple[str, ...]) -> None:
        if sources:
            self._read_by.setdefault(task, {}).update(dict.fromkeys(sources))

    def _note(
        self,
        event: Event,
        segment: Segment,
        state: str,
        task: str,
        said: object,
        author: str = "",
    ) -> Note:
        attempt = getattr(event, "attempt", None)
        about: dict[str, Any] = {"run": self.run, "event": type(event).__name__}
        if task:
            about["task"] = task
        if attempt is not None:
            about["attempt"] = attempt
        return Note(
            id=f"{self.run}#{self.seq}",
            seq=self.seq,
            author=author or self._workers.get(task, LEADER),
            stored=Value.of(
                said, tuple(dict.fromkeys((*self._taint, *self._read_by.get(task, ()))))
            ),
            tags=(_SINGULAR[segment], state, self.run),
            segment=segment,
            importance=_IMPORTANCE[segment],
            metadata=about,
            at=event.at,
        )


_SINGULAR = {
    Segment.TASKS: "task",
    Segment.RESULTS: "result",
    Segment.ERRORS: "error",
    Segment.PROGRESS: "progress",
    Segment.CONFLICTS: "conflict",
}
