"""The story of a run: each new entry of the journal adds to what can be read of it.

The rules in `invariants` judge each new entry by the story so far.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    BudgetChanged,
    CancelRequested,
    DeadlinePassed,
    HedgeDue,
    ItemsListed,
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
    RunSteered,
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
from chargehand.facts.failure_policy import ABOUT_BUDGET, ABOUT_FAILURE, TRY_AGAIN, Recourse
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput, Question
from chargehand.facts.plan import Task, item_id
from tests.simulation.attempt import AGAIN
from tests.simulation.ledger import Entry
from tests.simulation.reading import Reading
from tests.simulation.tasks import AttemptStory, StepStory, TaskStory

#: what composing the answer may take when no deadline says so
ANSWER_NOW = timedelta(minutes=1)


class RunStory(Reading):
    """One run, as it goes on."""

    @property
    def asks_for_more(self) -> bool:
        """Whether a person is to say if more may be spent."""
        pleas = (
            system_task
            for id_, system_task in self.system_tasks.items()
            if id_.startswith("@budget")
        )
        return any(not plea.ending for plea in pleas)

    def note_group(self, at: datetime) -> None:
        """After all entries of one append: does the run wait for people from here on?"""
        plan = self.find("@plan")
        is_all_there = self.is_sealed or plan.parked_until is not None or plan.question is not None
        is_idle = self.is_paused or (
            is_all_there
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
                self._allow(event.limits.calls)
            case BudgetChanged():
                self._allow(event.calls)
                for plea in self._pleas():
                    self._end(plea, "done")
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
                self.changes += not (event.is_step or event.is_steered)
                for id_ in event.removed:
                    for each in (self.tasks[id_], *self.items_of(id_)):
                        each.is_removed = True
                        self._end_if_closed(each, "cancelled", event.at)
                for id_ in event.replaced:
                    self.tasks[id_].is_replaced = True
                self._add(event.added)
            case ItemsListed():
                self.listed.setdefault(event.task, [])[event.first :] = event.items
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
                task.is_unjudged = not task.ending and (
                    self.is_told_to_stop(task) or task.losses > self.limits.losses
                )
            case AttemptParked():
                task = self.find(event.task)
                self._close(task, "parked")
                task.is_unjudged = not task.ending and self.is_told_to_stop(task)
                if not task.ending and not task.is_unjudged:
                    task.parked_until = event.due_at
            case HedgeDue():
                self._hedge(self.tasks[event.task], event.attempt)
            case RunSteered():
                self.notes += 1
                self.is_noted = True
            case RetryPlanned():
                self._plan_retry(self.find(event.task), event)
            case RetryDue():
                self.find(event.task).retry = None
                self.find(event.task).parked_until = None
            case PersonAsked(question=Question(about="budget")):
                plea = self.system_tasks[event.task] = TaskStory(
                    Task(id=event.task, description="", worker="")
                )
                plea.question, plea.asked_at = event.question, event.at
            case PersonAsked():
                task = self.find(event.task)
                task.question, task.asked_at = event.question, event.at
                task.is_unjudged = False
            case TaskFailed():
                self._give_up(self.find(event.task), event)
            case TaskSkipped():
                self._end(self.tasks[event.task], "skipped")
            case DeadlinePassed(task=""):
                self._run_out(event.at)
            case DeadlinePassed() if event.task in self.mapped:
                pass  # it is made of the items that were in time
            case DeadlinePassed():
                self.tasks[event.task].is_expired = True
                self.tasks[event.task].told_at = event.at
            case StartMissed() if event.task in self.hedges:
                self._end(self.hedges[event.task], "cancelled")
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
                self.is_paused = self.asks_for_more
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
        self._look_at_mapped()

    def _look_at_mapped(self) -> None:
        """Have items listed whose task could begin, make tasks of those that are, and see what they came to."""
        for id_, task in self.planned.items():
            if task.task.for_each is None or task.ending:
                continue
            lister = self.find(f"@items:{id_}")
            if not self.stop and self.is_satisfied(task):
                self.listings.setdefault(lister.task.id)
            if not self.stop and lister.ending == "done" and id_ not in self.mapped:
                self.mapped[id_] = count = len(self.listed.get(id_, ()))
                for index in range(count):
                    self._add([task.task.for_item(index)])
                    self.dependents[item_id(id_, index)] = [id_]
            elif not self.stop and lister.ending and id_ not in self.mapped:
                task.is_short = True
            if id_ in self.mapped and not task.is_due and not task.is_short:
                self._look_at_items(task)

    def _look_at_items(self, task: TaskStory) -> None:
        items = self.items_of(task.task.id)
        if any(not item.ending for item in items):
            return
        done = sum(item.ending == "done" for item in items)
        least = min(1, len(items)) if task.task.at_least is None else task.task.at_least
        if self.stop and not done:
            self._end(task, "skipped")
        elif done >= least or self.stop:
            task.is_due = True
        else:
            task.is_short = True

    def _allow(self, calls: int | None) -> None:
        if calls is not None:
            self.calls, self.most_calls = calls, max(calls, self.most_calls)

    def _pleas(self) -> list[TaskStory]:
        """Questions for more to spend that nothing has come of yet."""
        pleas = [
            system_task
            for id_, system_task in self.system_tasks.items()
            if id_.startswith("@budget")
        ]
        return [plea for plea in pleas if not plea.ending]

    def _add(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.tasks[task.id] = TaskStory(task)
            for need in task.all_needs:
                self.dependents.setdefault(need.task, []).append(task.id)

    def _begin(self, entry: Entry, event: AttemptStarted) -> None:
        task = self.find(event.task)
        if task.attempts and task.attempts[-1].worker != event.worker:
            self._start_over(event.task)
        task.attempts.append(AttemptStory(entry, event))
        is_system_task = event.task.startswith("@") and event.task not in self.hedges
        if is_system_task and event.task not in self.system_tasks:
            self.system_tasks[event.task] = task
            if event.task.startswith("@plan"):
                self.plannings[event.task] = self.version
                self.is_unplanned = self.is_noted = False

    def _finish(self, task: TaskStory, event: AttemptFinished) -> None:
        outcome = event.outcome
        self._close(task, "finished", is_done=isinstance(outcome, Done))
        if isinstance(outcome, Done):
            self._end(task, "done")
            task.output = outcome.value.digest
            task.has_gaps = bool(outcome.gaps)
            task.says = _said(outcome)
        elif task.ending:
            pass  # a second attempt, of which nothing is made but a result
        elif self.is_told_to_stop(task):
            task.is_unjudged = not task.ending
        elif isinstance(outcome, NeedsInput):
            task.question = outcome.question
            task.asked_at = event.at
        else:
            if isinstance(outcome, Cancelled):
                outcome = Failed(kind=ErrorClass.CANCELLED, message=outcome.reason)
            if outcome.kind is ErrorClass.LOGIC:
                self._start_over(event.task)
            task.failures.append(outcome)
            task.failed_first = task.failed_first or task.attempts[-1].worker
            task.is_unjudged = True

    def _close(self, task: TaskStory, ending: str, *, is_done: bool = False) -> None:
        if task.attempts:
            task.attempts[-1].ending = ending
        beside = self.hedge_of(task)
        if beside is not None and beside.open is None and not beside.ending:
            self._end(beside, "cancelled")  # not begun yet, so not a word of it
        is_hedge = task.task.id in self.hedges
        if (self.stop == "cancelled" or task.is_removed or is_hedge) and not is_done:
            self._end(task, "cancelled")

    def _hedge(self, task: TaskStory, attempt: int) -> None:
        id_ = f"@hedge:{task.task.id}:{attempt}"
        twin = replace(task.task, id=id_, optional=True, deadline=None, hedge=False)
        self.hedges[id_] = TaskStory(twin)

    def _plan_retry(self, task: TaskStory, event: RetryPlanned) -> None:
        task.is_unjudged = False
        task.told = ""
        task.last_retry = event
        if event.worker:
            task.task = replace(task.task, worker=event.worker, skill="")
        task.retry = event if event.due_at > event.at else None
        if event.how in (RetryHow.AFRESH, RetryHow.REWRITTEN):
            self._start_over(event.task)

    def _start_over(self, task: str) -> None:
        """What only looked is looked at again; what changed the world stays done."""
        for step in self.steps.values():
            if step.intent.task == task and step.intent.effect == "pure":
                step.is_done = False

    def _answer(self, event: QuestionAnswered) -> None:
        task = self.find(event.task)
        self.answered.append(event.question)
        if event.text == AGAIN and event.by != "default":
            for key, step in self.steps.items():
                if event.question.startswith(f"{self.run}:{event.task}:{key[:12]}."):
                    step.permissions += 1
        if task.question is not None and task.question.about in (ABOUT_FAILURE, ABOUT_BUDGET):
            task.told = event.text
            task.is_unjudged = True
            task.losses = 0 if event.text == TRY_AGAIN else task.losses
        task.question = None
        task.asked_at = None

    def _give_up(self, task: TaskStory, event: TaskFailed) -> None:
        """Another way is looked for if somebody planned this who can, and time was not the reason."""
        assert self.requested is not None
        is_planned = self.requested.approach not in (Approach.GIVEN, Approach.STEPS)
        is_needed = task.task.id in self.planned and not task.task.optional
        is_stopped = self.stop or task.is_expired or event.cause.kind is ErrorClass.CANCELLED
        is_missed = is_planned and is_needed and not is_stopped
        task.is_waived = event.then is Recourse.WITHOUT
        self._end(task, "failed")
        if event.then is Recourse.FAIL_RUN and not self.stop:
            self._stop(f"{task.task.id} failed", "skipped", event.at)
            self._close_later(event.at)
        elif not task.is_waived:
            self.is_unplanned |= is_missed

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
        task.parked_until = None
        task.question = None
        task.is_unjudged = False


def _said(outcome: Done) -> str:
    told = outcome.value.read()
    return str(told.get("says", "")) if isinstance(told, dict) else ""
