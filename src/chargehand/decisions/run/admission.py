"""What is written down when somebody reports something: late, repeated and overtaken news change nothing."""

from chargehand.decisions.asking import is_answer, unanswered
from chargehand.decisions.duties import is_duty, of_plan
from chargehand.decisions.graph import TaskState
from chargehand.decisions.hedging import may_begin
from chargehand.decisions.hours import CANCELLED
from chargehand.decisions.run.standing import Standing
from chargehand.facts.events import (
    AttemptFinished,
    AttemptHeldUp,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    AttemptWentOn,
    CancelRequested,
    DeadlinePassed,
    Event,
    HedgeDue,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    ProgressNoted,
    QuestionAnswered,
    QuestionExpired,
    ResultRefused,
    RetryDue,
    RetryPlanned,
    RunPaused,
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
from chargehand.facts.plan import Task


class Admission(Standing):
    """Knows which reports say something new."""

    def admit(self, event: Event) -> Event | None:
        """What is to be written down when somebody reports `event`.

        That is the event itself, another in its place (a late result becomes `ResultRefused`), or
        nothing if it says nothing new. Changes no state.
        """
        if self.status is not None:
            return None
        match event:
            case AttemptFinished():
                return event if self._holds(event.task, event.attempt) else self._refusal(event)
            case (
                AttemptLost()
                | AttemptPreempted()
                | AttemptParked()
                | StepFinished()
                | ProgressNoted()
            ):
                return event if self._holds(event.task, event.attempt) else None
            case AttemptHeldUp() | AttemptWentOn():
                is_new = self.nodes[event.task].is_held_up is isinstance(event, AttemptWentOn)
                return event if is_new and self._holds(event.task, event.attempt) else None
            case StepStarted():
                is_open = self._holds(event.task, event.attempt)
                is_free = not self._is_told_to_stop(event.task) and may_begin(event)
                return event if is_open and is_free else None
            case HedgeDue():
                return event if self._is_straggling(event) else None
            case AttemptStarted():
                node = self.nodes[event.task]
                is_due = node.state is TaskState.READY and event.attempt == node.attempt + 1
                return event if is_due else None
            case RetryDue():
                node = self.nodes[event.task]
                is_due = node.state is TaskState.RETRYING and event.attempt == node.attempt
                return event if is_due else None
            case DeadlinePassed():
                return event if self._is_over(event) else None
            case StartMissed():
                node = self.nodes[event.task]
                is_next = node.state is TaskState.READY and event.attempt == node.attempt + 1
                return event if is_next else None
            case QuestionAnswered():
                return event if is_answer(self.nodes, event) else None
            case QuestionExpired():
                return unanswered(self.nodes, event)
            case CancelRequested():
                return event if self._stop_reason != CANCELLED else None
            case WorkStopped():
                return None if self._stop_reason else event
            case RunPaused():
                return None if self._stop_reason or self._is_halted else event
            case RunUnpaused():
                return event if self._is_halted else None
            case PersonAsked():
                is_known = self._short is not None or event.task in self.nodes
                return None if self._stop_reason or is_known else event
            case RunSteered():
                return None if self.why_not_steered() else event
            case TaskRewritten():
                return event if self._is_rewritable(event) else None
            case PlanAmended():
                return None if self.check_amendment(event) else event
            case PlanAdopted() | PlanOpened():
                # A run has one plan; whatever comes later amends it.
                return None if self._stop_reason or self.version else event
            case TaskAdded():
                return event if self._may_add(event.task) else None
            case PlanSealed():
                return None if self._stop_reason or self._is_sealed else event
            case _:
                return event

    def is_moot(self, event: Event) -> bool:
        """Whether a decision has been overtaken by one before it: a run that stops settles much at once."""
        match event:
            case AttemptFinished() | AttemptLost():
                return not self._holds(event.task, event.attempt)
            case RetryPlanned() | PersonAsked() | TaskFailed() | TaskSkipped():
                return self.nodes[event.task].state.is_settled
            case _:
                return False

    def _refusal(self, event: AttemptFinished) -> Event | None:
        node = self.nodes.get(event.task)
        if node is None:
            return None
        return ResultRefused(
            task=event.task,
            attempt=event.attempt,
            reported=type(event.outcome).__name__,
            why=f"the task is {node.state.value} at attempt {node.attempt}",
            at=event.at,
        )

    def _may_add(self, task: Task) -> bool:
        is_open = bool(self.version) and not self._is_sealed and not self._stop_reason
        has_room = len(of_plan(self.nodes)) < self.limits.tasks
        needs = [need.task for need in task.all_needs]
        is_known = all(need in self.nodes for need in needs) and of_plan(needs) == needs
        is_new = task.id not in self.nodes and not is_duty(task.id)
        return is_open and has_room and is_known and is_new

    def _is_rewritable(self, event: TaskRewritten) -> bool:
        node = self.nodes.get(event.task)
        if node is None or node.state is not TaskState.RETRYING:
            return False
        return node.is_unclear and node.attempt == event.attempt

    def _is_straggling(self, event: HedgeDue) -> bool:
        is_open = self._holds(event.task, event.attempt)
        is_free = is_open and not self._is_told_to_stop(event.task) and not self.is_paused
        return is_free and not self.nodes[event.task].hedge

    def _is_over(self, event: DeadlinePassed) -> bool:
        if event.task:
            return not self.nodes[event.task].state.is_settled and not self._is_told_to_stop(
                event.task
            )
        return self._hours.are_over(event.at, self._stop_reason)
