"""What the journal says of a run, read naively: sets of facts, no counters, nothing shared with the schedule.

The rules in `invariants` judge each new entry by the story so far. The story must not mirror the
schedule: where the schedule keeps a count, this looks again at everything.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from chargehand.decisions.trial.attempt import AGAIN
from chargehand.decisions.trial.ledger import Entry
from chargehand.decisions.trial.purse import Purse
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    PersonAsked,
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
    RunPaused,
    RunRequested,
    RunUnpaused,
    StartMissed,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput, Question
from chargehand.facts.plan import Task

ANSWER_NOW = timedelta(minutes=1)
#: what composing the answer may take when no deadline says so


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
        self.is_too_late = False
        #: not begun, and it could not be done before its deadline any more
        self.is_removed = False
        self.is_replaced = False
        self.told_at: datetime | None = None
        #: when it was first told to stop

    @property
    def is_answer(self) -> bool:
        return self.task.id == "@answer"

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
        #: of the plan
        self.duties: dict[str, TaskStory] = {}
        #: what the supervisor does itself, once it has begun it
        self.plannings: dict[str, int] = {}
        #: by duty: the version of the plan when it began
        self.is_unplanned = False
        #: something failed since the last planning began, and another way may be found
        self.purse = Purse()
        self.dependents: dict[str, list[str]] = {}
        self.version = 0
        self.changes = 0
        self.has_plan = False
        self.is_sealed = False
        self.stop = ""
        self.is_paused = False
        #: cancelled, out of time, or why else its work was stopped
        self.closes_at: datetime | None = None
        #: when the answer must be there, once the work was stopped
        self.is_closed = False
        #: not even for an answer is there any time left
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

    def find(self, task: str) -> TaskStory:
        """A task of the plan, or something that the supervisor does itself, begun or not."""
        if not task.startswith("@"):
            return self.tasks[task]
        return self.duties.get(task) or TaskStory(Task(id=task, description="", worker=""))

    def everything(self) -> Iterator[TaskStory]:
        yield from self.tasks.values()
        yield from self.duties.values()

    def is_told_to_stop(self, task: TaskStory) -> bool:
        if task.is_answer:
            return self.stop == "cancelled" or self.is_closed
        return bool(self.stop) or task.is_expired or task.is_removed

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
            and not self.rewriting(task)
        )

    def rewriting(self, task: TaskStory) -> str:
        """The duty that has to find better words for this task before it is tried again."""
        planned = task.last_retry
        if planned is None or planned.how is not RetryHow.REWRITTEN or task.retry is not None:
            return ""
        duty = f"@refine:{task.task.id}:{planned.attempt}"
        is_next = not task.ending and task.attempts[-1].number == planned.attempt
        return duty if is_next and not self.find(duty).ending else ""

    def is_live(self, task: TaskStory) -> bool:
        """Whether it gets on without any person."""
        return not task.ending and (
            task.open is not None
            or task.retry is not None
            or self.is_ready(task)
            or bool(self.rewriting(task))
        )

    def ready(self) -> Iterator[TaskStory]:
        return (task for task in self.tasks.values() if self.is_ready(task))

    def opened(self) -> Iterator[TaskStory]:
        return (task for task in self.everything() if task.open is not None)

    def owes(self) -> list[str]:
        """What the supervisor has to do itself now, and has not begun."""
        requested = self.requested
        if requested is None or self.stop == "cancelled" or self.is_closed:
            return []
        owed = [] if self.stop else [*self._owed_plannings(), *self._owed_rewritings()]
        is_whole = self.is_sealed or bool(self.stop)
        if owed or not is_whole or any(not task.ending for task in self.everything()):
            return owed
        is_step = requested.approach is Approach.STEPS and not self.stop
        if is_step and self.version > list(self.plannings.values())[-1]:
            return [self.next_planning]
        is_any_done = any(task.ending == "done" for task in self.tasks.values())
        is_wanted = requested.answers and "@answer" not in self.duties and is_any_done
        return ["@answer"] if is_wanted else []

    def _owed_plannings(self) -> list[str]:
        assert self.requested is not None
        if self.requested.approach is Approach.GIVEN:
            return []
        is_under_way = any(not self.duties[each].ending for each in self.plannings)
        is_due = self.is_unplanned and len(self.plannings) <= self.limits.replans
        return [self.next_planning] if not self.plannings or (is_due and not is_under_way) else []

    def _owed_rewritings(self) -> list[str]:
        owed = [self.rewriting(task) for task in self.tasks.values()]
        return [duty for duty in owed if duty and duty not in self.duties]

    @property
    def next_planning(self) -> str:
        return f"@plan:{len(self.plannings) + 1}" if self.plannings else "@plan"

    @property
    def ends_at(self) -> datetime | None:
        """When all of it must be over, the answer too, if that is known."""
        assert self.requested is not None
        return self.closes_at or self.requested.deadline_at

    @property
    def work_ends_at(self) -> datetime | None:
        """When its tasks must be over: a tenth of its time is left for the answer, or 15 seconds."""
        assert self.requested is not None
        deadline_at = self.requested.deadline_at
        if deadline_at is None or not self.requested.answers:
            return deadline_at
        return deadline_at - min((deadline_at - self.began_at) * 0.1, timedelta(seconds=15))

    def deadline_of(self, task: Task) -> datetime | None:
        """Its own, or the run's if that is earlier. What waits for it does not count."""
        ends_at = self.ends_at if task.id == "@answer" else self.work_ends_at
        both = [] if ends_at is None else [ends_at]
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
        is_idle = self.is_paused or (
            self.is_sealed
            and not self.stop
            and any(not task.ending for task in self.everything())
            and not any(self.is_live(task) for task in self.everything())
            and not self.owes()
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
        self.purse.take(event)
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
                self.changes += not event.is_step
                for id_ in event.removed:
                    self.tasks[id_].is_removed = True
                    self._end_if_closed(self.tasks[id_], "cancelled", event.at)
                for id_ in event.replaced:
                    self.tasks[id_].is_replaced = True
                self._add(event.added)
            case TaskRewritten():
                story = self.tasks[event.task]
                story.task = replace(story.task, description=event.description)
            case AttemptStarted():
                self._begin(entry, event)
            case AttemptFinished():
                self._finish(self.find(event.task), event)
            case AttemptLost() | AttemptPreempted():
                task = self.find(event.task)
                self._close(task, "preempted" if isinstance(event, AttemptPreempted) else "lost")
                task.losses += not (self.is_paused and isinstance(event, AttemptPreempted))
                task.is_unjudged = not task.ending and self.is_told_to_stop(task)
            case RetryPlanned():
                self._plan_retry(self.find(event.task), event)
            case RetryDue():
                self.find(event.task).retry = None
            case PersonAsked():
                task = self.find(event.task)
                task.question, task.asked_at = event.question, event.at
                task.is_unjudged = False
            case TaskFailed():
                self._give_up(self.find(event.task), event.cause)
            case TaskSkipped():
                self._end(self.tasks[event.task], "skipped")
            case DeadlinePassed(task=""):
                self._run_out(event.at)
            case DeadlinePassed():
                self.tasks[event.task].is_expired = True
                self.tasks[event.task].told_at = event.at
            case StartMissed():
                self.tasks[event.task].is_too_late = True
            case CancelRequested():
                self._stop("cancelled", "cancelled", event.at)
            case WorkStopped():
                self._stop(event.reason, "skipped", event.at)
                self._close_later(event.at)
            case RunPaused():
                self.is_paused = True
            case RunUnpaused():
                self.is_paused = False
            case QuestionAnswered():
                self._answer(event)
            case StepStarted():
                step = self.steps.setdefault(event.key, StepStory(event))
                step.attempts.append(event.attempt)
            case StepFinished():
                self.find(event.task).losses = 0
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

    def _begin(self, entry: Entry, event: AttemptStarted) -> None:
        task = self.find(event.task)
        task.attempts.append(AttemptStory(entry, event))
        if event.task.startswith("@") and event.task not in self.duties:
            self.duties[event.task] = task
            if event.task.startswith("@plan"):
                self.plannings[event.task] = self.version
                self.is_unplanned = False

    def _finish(self, task: TaskStory, event: AttemptFinished) -> None:
        outcome = event.outcome
        self._close(task, "finished", is_done=isinstance(outcome, Done))
        if isinstance(outcome, Done):
            self._end(task, "done")
            task.output = outcome.value.digest
        elif self.is_told_to_stop(task):
            task.is_unjudged = not task.ending
        elif isinstance(outcome, NeedsInput):
            task.question = outcome.question
            task.asked_at = event.at
        else:
            if isinstance(outcome, Cancelled):
                outcome = Failed(kind=ErrorClass.CANCELLED, message=outcome.reason)
            task.failures.append(outcome)
            task.is_unjudged = True

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

    def _give_up(self, task: TaskStory, cause: Failed) -> None:
        """Another way is looked for if somebody planned this who can, and time was not the reason."""
        assert self.requested is not None
        is_planned = self.requested.approach not in (Approach.GIVEN, Approach.STEPS)
        is_needed = task.task.id in self.tasks and not task.task.optional
        is_stopped = self.stop or task.is_expired or cause.kind is ErrorClass.CANCELLED
        self.is_unplanned |= is_planned and is_needed and not is_stopped
        self._end(task, "failed")

    def _run_out(self, at: datetime) -> None:
        assert self.requested is not None
        if self.requested.answers and self.ends_at is None:
            self._stop("out of time", "skipped", at)
            self._close_later(at)
            return
        self.is_closed = True
        self._stop(self.stop or "out of time", "skipped", at)

    def _close_later(self, at: datetime) -> None:
        assert self.requested is not None
        if self.requested.answers:
            self.closes_at = self.requested.deadline_at or at + ANSWER_NOW

    def _stop(self, reason: str, ending: str, at: datetime) -> None:
        self.stop = reason
        self.is_paused = False
        for task in self.everything():
            if self.is_told_to_stop(task):
                self._end_if_closed(task, ending, at)

    def _end_if_closed(self, task: TaskStory, ending: str, at: datetime) -> None:
        task.told_at = task.told_at or at
        if task.open is None and not task.ending:
            self._end(task, ending)

    def _end(self, task: TaskStory, ending: str) -> None:
        if task.task.id == "@plan" and not self.stop:
            self.is_sealed = True  # whatever there is of a plan: nobody writes on
        task.ending = ending
        task.retry = None
        task.question = None
        task.is_unjudged = False
