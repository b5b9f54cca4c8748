"""The events of a run, read as notes: a view that is computed on demand and stored nowhere."""

from typing import Any

from msgspec.structs import replace

from chargehand.decisions.system_tasks import is_system_task
from chargehand.facts import events
from chargehand.facts.board import LEADER, Note, Segment
from chargehand.facts.outcome import Done, Failed
from chargehand.facts.plan import Task
from chargehand.facts.value import Value

#: by segment: the first tag of a note, and its importance
_SEGMENTS = {
    Segment.TASKS: ("task", 0.8),
    Segment.RESULTS: ("result", 0.8),
    Segment.ERRORS: ("error", 0.9),
    Segment.PROGRESS: ("progress", 0.5),
    Segment.CONFLICTS: ("conflict", 0.9),
}
_REASSIGNED = 0.9
#: tag of a task that is still to be done
PENDING = "pending"


class RunNotes:
    """Turns the events of one run, in order, into notes. System tasks get none, except for refused results."""

    def __init__(self, run: str) -> None:
        self.run = run
        #: number of the last event that was applied
        self.seq = 0
        self.notes: list[Note] = []
        self._workers: dict[str, str] = {}
        self._needs: dict[str, list[str]] = {}
        #: author of the notes that assign tasks
        self._author = LEADER
        #: taint of the request, and therefore of every plan made from it
        self._taint: tuple[str, ...] = ()
        #: by task: the untrusted sources that it has read so far; they taint all its notes
        self._read_by: dict[str, dict[str, None]] = {}
        #: by task: index in `notes` of the note that assigned it last
        self._given_out: dict[str, int] = {}

    def apply(self, seq: int, event: events.Event) -> list[Note]:
        """Take the next event; returns the notes that it is read as, often none."""
        self.seq = seq
        self._settle(event)
        notes = self._read(event)
        for place, note in enumerate(notes, len(self.notes)):
            if note.segment == Segment.TASKS and PENDING in note.tags:
                self._given_out[note.metadata["task"]] = place
        self.notes += notes
        return notes

    def _settle(self, event: events.Event) -> None:
        """Update the state tags of the notes that assigned tasks."""
        match event:
            case events.AttemptFinished(task=name, outcome=Done()):
                self._tag(name, "completed")
            case events.AttemptFinished(task=name, outcome=Failed()) | events.TaskFailed(task=name):
                self._tag(name, "failed")
            case events.RetryPlanned(task=name, worker=worker):
                self._tag(name, "moved" if worker else PENDING)
            case events.TaskSkipped(task=name):
                self._tag(name, "skipped")
            case events.PlanAmended(removed=removed):
                for name in removed:
                    self._tag(name, "cancelled")
            case events.RunFinished():
                for name, place in self._given_out.items():
                    if self.notes[place].tags[1] == PENDING:
                        self._tag(name, "cancelled")

    def _tag(self, task: str, state: str) -> None:
        if task in self._given_out:
            place = self._given_out[task]
            note = self.notes[place]
            self.notes[place] = replace(note, tags=(note.tags[0], state, *note.tags[2:]))

    def _read(self, event: events.Event) -> list[Note]:
        match event:
            case events.RunRequested():
                self._taint = event.taint
                self._author = event.by or LEADER
            case events.PlanAdopted(plan=plan):
                for task in plan.tasks:
                    self._distrust(task.id, plan.taint)
                return [self._task(event, task, n) for n, task in enumerate(plan.tasks)]
            case events.TaskAdded(task=task, taint=taint):
                self._distrust(task.id, taint)
                return [self._task(event, task, 0)]
            case events.PlanAmended(added=added, taint=taint):
                for task in added:
                    self._distrust(task.id, taint)
                return [self._task(event, task, n) for n, task in enumerate(added)]
            case events.RetryPlanned(task=name) if not is_system_task(name):
                return [self._again(event, name)]
            case events.AttemptStarted(task=name) if not is_system_task(name):
                self._workers[name] = event.worker
                for need in self._needs.get(name, ()):
                    self._distrust(name, tuple(self._read_by.get(need, ())))
                return [self._note(event, Segment.PROGRESS, "started", name, f"{name} is begun")]
            case events.StepFinished(task=name, outcome=Done(value=value)):
                self._distrust(name, value.taint)
            case events.TaskRewritten(task=name, taint=taint):
                self._distrust(name, taint)
            case events.ProgressNoted(task=name) if not is_system_task(name):
                self._distrust(name, event.taint)
                about = {"text": event.text, "fraction": event.fraction}
                return [self._note(event, Segment.PROGRESS, "working", name, about)]
            case events.AttemptFinished(task=name) if not is_system_task(name):
                return self._finished(event, name)
            case events.AttemptLost(task=name) if not is_system_task(name):
                self._distrust(name, event.taint)
                return [self._note(event, Segment.ERRORS, "lost", name, event.reason)]
            case events.TaskFailed(task=name) if not is_system_task(name):
                return [self._failure(event, "given-up", name, event.cause)]
            case events.TaskSkipped(task=name) if not is_system_task(name):
                return [self._note(event, Segment.ERRORS, "skipped", name, event.why)]
            case events.ResultRefused(task=name):
                said = f"a second result for {name} was refused: {event.why}"
                return [self._note(event, Segment.CONFLICTS, "refused", name, said)]
            case events.RunFinished():
                end = {"status": event.status.value, "missing": list(event.missing)}
                return [self._note(event, Segment.PROGRESS, "finished", "", end, author=LEADER)]
        return []

    def _task(self, event: events.Event, task: Task, number: int) -> Note:
        self._workers[task.id] = task.worker
        self._needs[task.id] = [need.task for need in task.all_needs]
        said = {"task": task.id, "description": task.description, "worker": task.worker}
        note = self._note(event, Segment.TASKS, PENDING, task.id, said, author=self._author)
        tags = (*note.tags, task.worker) if task.worker else note.tags
        return replace(note, id=f"{note.id}.{number}", tags=tags)

    def _again(self, event: events.RetryPlanned, task: str) -> Note:
        said = {"task": task, "how": event.how.value, "due_at": event.due_at.isoformat()}
        if not event.worker:
            note = self._note(event, Segment.TASKS, "reassigned", task, said, author=self._author)
            return replace(note, importance=_REASSIGNED)
        # The new worker finds it where the first worker found it: among the pending tasks.
        said["worker"] = self._workers[task] = event.worker
        note = self._note(event, Segment.TASKS, PENDING, task, said, author=self._author)
        tags = (*note.tags, event.worker, "reassigned")
        return replace(note, tags=tags, importance=_REASSIGNED)

    def _finished(self, event: events.AttemptFinished, task: str) -> list[Note]:
        outcome = event.outcome
        if isinstance(outcome, Done):
            self._distrust(task, outcome.value.taint)
            note = self._note(event, Segment.RESULTS, "completed", task, None)
            return [replace(note, stored=outcome.value)]
        if isinstance(outcome, Failed):
            self._distrust(task, outcome.taint)
            return [self._failure(event, "failed", task, outcome)]
        return []

    def _failure(self, event: events.Event, state: str, task: str, failure: Failed) -> Note:
        note = self._note(event, Segment.ERRORS, state, task, str(failure))
        return replace(note, metadata={**note.metadata, **told_of(failure)})

    def _distrust(self, task: str, sources: tuple[str, ...]) -> None:
        if sources:
            self._read_by.setdefault(task, {}).update(dict.fromkeys(sources))

    def _note(
        self,
        event: events.Event,
        segment: Segment,
        state: str,
        task: str,
        said: object,
        author: str = "",
    ) -> Note:
        attempt = getattr(event, "attempt", None)
        tag, importance = _SEGMENTS[segment]
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
            tags=(tag, state, self.run),
            segment=segment,
            importance=importance,
            metadata=about,
            at=event.at,
        )


def told_of(failure: Failed) -> dict[str, str]:
    """Class, exception and stack of a failure, as metadata of a note."""
    return {"class": failure.kind.value, "exception": failure.error, "stack": failure.stack}
