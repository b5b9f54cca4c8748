"""What the journal says of a run, read naively: sets of facts, no counters, nothing shared with the schedule.

The rules in `invariants` judge each new entry by the story so far. The story must not mirror the
schedule: where the schedule keeps a count, this looks again at everything.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from chargehand.decisions.trial.attempt import AGAIN
from chargehand.decisions.trial.ledger import Entry
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    QuestionAnswered,
    RetryDue,
    RetryHow,
    RetryPlanned,
    RunFinished,
    RunLed,
    RunRequested,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput, Question
from chargehand.facts.plan import Task


class AttemptStory:
    """One attempt, as journaled."""

    def __init__(self, entry: Entry, event: AttemptStarted) -> None:
        self.number = event.attempt
        self.worker = event.worker
        self.epoch = entry.epoch
        self.author = entry.author
        self.at = event.at
        self.ending = ""
        #: finished, lost or preempted; empty while it is open


class TaskStory:
    """One task, as journaled."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.attempts: list[AttemptStory] = []
        self.ending = ""
        #: done, failed, skipped or cancelled; empty while it may go on
        self.output = ""
        #: the digest of its result
        self.failures: list[Failed] = []
        self.losses = 0
        #: since it last got a step done
        self.retry: RetryPlanned | None = None
        #: the retry that is waited for
        self.last_retry: RetryPlanned | None = None
        self.question: Question | None = None
        self.asked_at: datetime | None = None
        self.is_unjudged = False
        #: an attempt failed, and nothing has been said of what becomes of the task
        self.is_expired = False
        self.is_removed = False

    @property
    def open(self) -> AttemptStory | None:
        return self.attempts[-1] if self.attempts and not self.attempts[-1].ending else None


class StepStory:
    """One step of one task, by its key, as journaled."""

    def __init__(self, event: StepStarted) -> None:
        self.intent = event
        self.attempts: list[int] = []
        self.is_done = False
        #: in the present line of attempts
        self.permissions = 0
        #: how often a person said that it may run again


class RunStory:
    """One run, as journaled."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.requested: RunRequested | None = None
        self.tasks: dict[str, TaskStory] = {}
        self.dependents: dict[str, list[str]] = {}
        self.version = 0
        self.changes = 0
        self.has_plan = False
        self.is_sealed = False
        self.stop = ""
        #: cancelled or out of time
        self.stopped_at: datetime | None = None
        self.finished: RunFinished | None = None
        self.answered: list[str] = []
        self.steps: dict[str, StepStory] = {}
        self.last: Entry | None = None
        self.authors: dict[int, str] = {}
        self.idle = timedelta(0)
        self.idle_since: datetime | None = None
        self.is_led = False

    # what can be asked of it

    @property
    def limits(self) -> Limits:
        assert self.requested is not None
        return self.requested.limits

    @property
    def began_at(self) -> datetime:
        assert self.requested is not None
        return self.requested.at

    def is_satisfied(self, task: TaskStory) -> bool:
        """Whether every need has come to what the task demands of it."""
        for need in task.task.all_needs:
            ending = self.tasks[need.task].ending
            if ending != "done" and not (need.optional and ending):
                return False
        return True

    def is_hopeless(self, task: TaskStory) -> bool:
        """Whether a need that it cannot do without has come to nothing."""
        return any(
            not need.optional and self.tasks[need.task].ending not in ("", "done")
            for need in task.task.all_needs
        )

    def is_ready(self, task: TaskStory) -> bool:
        return (
            not task.ending
            and not self.stop
            and task.open is None
            and task.retry is None
            and task.question is None
            and self.is_satisfied(task)
        )

    def is_live(self, task: TaskStory) -> bool:
        """Whether it gets on without any person."""
        return not task.ending and (
            task.open is not None or task.retry is not None or self.is_ready(task)
        )

    def ready(self) -> Iterator[TaskStory]:
        return (task for task in self.tasks.values() if self.is_ready(task))

    def opened(self) -> Iterator[TaskStory]:
        return (task for task in self.tasks.values() if task.open is not None)

    def deadline_of(self, task: Task) -> datetime | None:
        """Its own, or the run's if that is earlier. What waits for it does not count."""
        assert self.requested is not None
        both = [self.requested.deadline_at] if self.requested.deadline_at else []
        if task.deadline is not None:
            both.append(self.began_at + task.deadline)
        return min(both, default=None)

    def urgency(self, task: str, *, of_unfinished_only: bool) -> int:
        """The run's priority, and the largest among this task and all that wait for it."""
        assert self.requested is not None
        seen, urgency = {task}, self.tasks[task].task.priority
        rising = [task]
        while rising:
            for dependent in self.dependents.get(rising.pop(), ()):
                story = self.tasks[dependent]
                if dependent not in seen and not (of_unfinished_only and story.ending):
                    seen.add(dependent)
                    rising.append(dependent)
                    urgency = max(urgency, story.task.priority)
        return urgency + self.requested.priority

    def active_until(self, now: datetime) -> timedelta:
        """How long the run has been active, waiting for people not counted."""
        waiting = now - self.idle_since if self.idle_since is not None else timedelta(0)
        return now - self.began_at - self.idle - waiting

    # how it goes on

    def note_group(self, at: datetime) -> None:
        """After all entries of one append: does the run wait for people from here on?"""
        is_idle = (
            self.is_sealed
            and not self.stop
            and any(not task.ending for task in self.tasks.values())
            and not any(self.is_live(task) for task in self.tasks.values())
        )
        if is_idle and self.idle_since is None:
            self.idle_since = at
        elif not is_idle and self.idle_since is not None:
            self.idle += at - self.idle_since
            self.idle_since = None

    def take(self, entry: Entry) -> None:
        if isinstance(entry.event, RunLed) and self.is_led and self.idle_since is None:
            assert self.last is not None
            self.idle += entry.event.at - self.last.event.at  # nobody led meanwhile
        self.is_led = self.is_led or isinstance(entry.event, RunLed)
        self.last = entry
        self.authors.setdefault(entry.epoch, entry.author)
        event = entry.event
        match event:
            case RunRequested():
                self.requested = event
            case PlanAdopted():
                self._add(event.plan.tasks)
                self.has_plan = self.is_sealed = True
                self.version = event.plan.version
            case PlanOpened():
                self.has_plan = True
                self.version = 1
            case TaskAdded():
                self._add([event.task])
            case PlanSealed():
                self.is_sealed = True
            case PlanAmended():
                self.version = event.version
                self.changes += 1
                for id_ in event.removed:
                    self.tasks[id_].is_removed = True
                    self._end_if_closed(self.tasks[id_], "cancelled")
                self._add(event.added)
            case AttemptStarted():
                task = self.tasks[event.task]
                task.attempts.append(AttemptStory(entry, event))
            case AttemptFinished():
                self._finish(self.tasks[event.task], event)
            case AttemptLost() | AttemptPreempted():
                task = self.tasks[event.task]
                self._close(task, "preempted" if isinstance(event, AttemptPreempted) else "lost")
                task.losses += 1
                task.is_unjudged = not task.ending and self._is_told_to_stop(task)
            case RetryPlanned():
                self._plan_retry(self.tasks[event.task], event)
            case RetryDue():
                self.tasks[event.task].retry = None
            case TaskFailed():
                self._end(self.tasks[event.task], "failed")
            case TaskSkipped():
                self._end(self.tasks[event.task], "skipped")
            case DeadlinePassed(task=""):
                self._stop("out of time", "skipped", event.at)
            case DeadlinePassed():
                self.tasks[event.task].is_expired = True
            case CancelRequested():
                self._stop("cancelled", "cancelled", event.at)
            case QuestionAnswered():
                self._answer(event)
            case StepStarted():
                step = self.steps.setdefault(event.key, StepStory(event))
                step.attempts.append(event.attempt)
            case StepFinished():
                self.tasks[event.task].losses = 0
                if event.key in self.steps and isinstance(event.outcome, Done):
                    self.steps[event.key].is_done = True
            case RunFinished():
                self.finished = event
            case _:
                pass

    def _add(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.tasks[task.id] = TaskStory(task)
            for need in task.all_needs:
                self.dependents.setdefault(need.task, []).append(task.id)

    def _finish(self, task: TaskStory, event: AttemptFinished) -> None:
        outcome = event.outcome
        self._close(task, "finished", is_done=isinstance(outcome, Done))
        if isinstance(outcome, Done):
            self._end(task, "done")
            task.output = outcome.value.digest
        elif self._is_told_to_stop(task):
            task.is_unjudged = not task.ending
        elif isinstance(outcome, NeedsInput):
            task.question = outcome.question
            task.asked_at = event.at
        else:
            if isinstance(outcome, Cancelled):
                outcome = Failed(kind=ErrorClass.CANCELLED, message=outcome.reason)
            task.failures.append(outcome)
            task.is_unjudged = True

    def _is_told_to_stop(self, task: TaskStory) -> bool:
        return bool(self.stop) or task.is_expired or task.is_removed

    def _close(self, task: TaskStory, ending: str, *, is_done: bool = False) -> None:
        if task.attempts:
            task.attempts[-1].ending = ending
        if (self.stop == "cancelled" or task.is_removed) and not is_done:
            self._end(task, "cancelled")

    def _plan_retry(self, task: TaskStory, event: RetryPlanned) -> None:
        task.is_unjudged = False
        task.last_retry = event
        task.retry = event if event.due_at > event.at else None
        if event.how in (RetryHow.AFRESH, RetryHow.REWRITTEN):
            for step in self.steps.values():
                # what only looked is looked at again; what changed the world stays done
                if step.intent.task == event.task and step.intent.effect == "pure":
                    step.is_done = False

    def _answer(self, event: QuestionAnswered) -> None:
        task = self.tasks[event.task]
        self.answered.append(event.question)
        if event.text == AGAIN and event.by != "default":
            for key, step in self.steps.items():
                if event.question.startswith(f"{self.run}:{event.task}:{key[:12]}."):
                    step.permissions += 1
        task.question = None
        task.asked_at = None

    def _stop(self, reason: str, ending: str, at: datetime) -> None:
        self.stop = reason
        self.stopped_at = at
        for task in self.tasks.values():
            self._end_if_closed(task, ending)

    def _end_if_closed(self, task: TaskStory, ending: str) -> None:
        if task.open is None and not task.ending:
            self._end(task, ending)

    def _end(self, task: TaskStory, ending: str) -> None:
        task.ending = ending
        task.retry = None
        task.question = None
        task.is_unjudged = False
