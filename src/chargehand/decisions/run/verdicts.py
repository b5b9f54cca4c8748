"""What becomes of a task that failed, ran out of time or must ask: tried again, given up, or a person decides."""

from datetime import datetime

from msgspec.structs import replace

from chargehand.decisions.asking import budget_after, patience
from chargehand.decisions.duties import ANSWER, asking_for_more, is_duty, refining
from chargehand.decisions.graph import Node, TaskState
from chargehand.decisions.hours import CANCELLED, OUT_OF_TIME
from chargehand.decisions.retry import (
    Again,
    GiveUp,
    History,
    Verdict,
    draw_for,
    judge,
    question_about,
    set_aside,
)
from chargehand.decisions.run.stopping import Stopping
from chargehand.facts.commands import Command, Record, SetTimer
from chargehand.facts.events import (
    BudgetChanged,
    DeadlinePassed,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
    RetryDue,
    RetryHow,
    RetryPlanned,
    RunPaused,
    RunUnpaused,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
)
from chargehand.facts.outcome import ErrorClass, Failed, Question
from chargehand.facts.policy import ABOUT_BUDGET, ABOUT_FAILURE, GO_ON_WITHOUT, TRY_AGAIN, Recourse

EXPIRED = Failed(kind=ErrorClass.TIMEOUT, message="its deadline has passed")
TOO_LATE = Failed(
    kind=ErrorClass.TIMEOUT,
    message="it was not started: there was less time left than it takes at least",
)
#: why a run pauses that no person paused
SPENT = "the budget is used up"
#: why tasks fail that nobody failed at
UNANSWERED = Failed(kind=ErrorClass.TIMEOUT, message="nobody answered its question in time")


def unanswered_by(event: QuestionExpired, question: Question | None) -> Failed:
    """Why a task fails whose question was given up; the reason quotes it."""
    if not event.why:
        return UNANSWERED
    taint = () if question is None else question.taint
    return Failed(kind=ErrorClass.DENIED, message=event.why, taint=taint)


class Verdicts(Stopping):
    """Judges failures as the policy says, and goes by what people answer."""

    def _judge(self, node: Node, failure: Failed, at: datetime) -> list[Command]:
        node.tries += 1
        node.last_failure = failure
        node.failed_first = node.failed_first or node.worker
        before, node.failures = node.failures, (*node.failures, failure.kind)
        history = History(
            tries=node.tries,
            attempts=self._attempts_of(node, failure),
            at=at,
            deadline_at=self.work_ends_at(node.task.id),
            has_others=bool(node.task.skill),
            worker=node.worker,
            has_untried=bool(node.task.skill) and node.worker not in node.avoid,
            refines=self._request_of_run.refines and not is_duty(node.task.id),
            terms=self.policy_of(node.task.id),
            before=before,
        )
        draw = draw_for(self._request_of_run.seed, node.task.id, node.attempt)
        return self._conclude(node, judge(self._retry, failure, history, draw), at)

    def _conclude(self, node: Node, verdict: Verdict, at: datetime) -> list[Command]:
        """Have it written down what becomes of a task that failed."""
        task, attempt = node.task.id, node.attempt
        if isinstance(verdict, Again):
            planned = RetryPlanned(
                task=task,
                attempt=attempt,
                due_at=verdict.due_at,
                how=verdict.how,
                worker=verdict.worker,
                at=at,
            )
            return [Record(planned)]
        if isinstance(verdict, GiveUp):
            failed = TaskFailed(task=task, cause=verdict.cause, then=verdict.then, at=at)
            return [Record(failed)]
        question = question_about(self._request_of_run.run, node, self.policy_of(task))
        return [Record(PersonAsked(task=task, attempt=attempt, question=question, at=at))]

    def _attempts_of(self, node: Node, failure: Failed) -> int:
        most = node.task.limits.attempts or self.limits.attempts
        if is_duty(node.task.id) and failure.kind is ErrorClass.LOGIC:
            # It has told the model what was wrong, time and again; but all the work hangs on the answer.
            return min(most, 2) if node.task.id == ANSWER else 1
        return most

    def _plan_retry(self, event: RetryPlanned) -> list[Command]:
        node = self.nodes[event.task]
        node.due_at = event.due_at
        node.granted += self.policy_of(event.task) is not None
        if event.worker:
            node.task = replace(node.task, worker=event.worker, skill="")
        match event.how:
            case RetryHow.AFRESH:
                node.lineage += 1
            case RetryHow.REWRITTEN:
                node.lineage += 1
                node.is_unclear = True
            case RetryHow.ELSEWHERE:
                node.avoid = (*node.avoid, node.worker)
            case RetryHow.AGAIN:
                pass
        if event.due_at <= event.at:
            return [self._try_again(node)]
        return [
            SetTimer(
                event.due_at, RetryDue(task=event.task, attempt=event.attempt, at=event.due_at)
            )
        ]

    def _try_again(self, node: Node) -> Command:
        if not node.is_unclear:
            return self._offer(node)
        node.due_at = None
        return self._take_on(refining(node.task.id, node.attempt))

    def _rewrite(self, event: TaskRewritten) -> list[Command]:
        node = self.nodes[event.task]
        node.task = replace(node.task, description=event.description)
        node.taint = tuple(dict.fromkeys((*node.taint, *event.taint)))
        return []

    def _fail(self, node: Node, cause: Failed, at: datetime) -> list[Command]:
        # In a run that is stopping nothing more hangs on it.
        terms = None if self._stop_reason else self.policy_of(node.task.id)
        return self._conclude(node, set_aside(cause, terms, may_ask=False), at)

    def _give_up(self, event: TaskFailed) -> list[Command]:
        node = self.nodes[event.task]
        withdrawn = self._withdraw(node)
        node.cause = event.cause
        node.question = None
        node.is_waived = event.then is Recourse.WITHOUT
        if event.then is Recourse.FAIL_RUN and not self._stop_reason:
            return withdrawn + self._fail_run(node, event.at)
        # Before it settles: the run must not end while there may be another way.
        again = [] if node.is_waived else self._plan_again(node)
        return withdrawn + again + self._settle(node, TaskState.FAILED, event.at)

    def _fail_run(self, node: Node, at: datetime) -> list[Command]:
        """Stop the run for this task, and have its answer made of what there is."""
        # Before it settles: what needs it is stopped like all the rest.
        self._stop_reason = f"{node.task.id} failed"
        settled = self._settle(node, TaskState.FAILED, at)
        return [*settled, *self._stop_all(self._stop_reason, at), *self._hours.close(at)]

    def _skip(self, event: TaskSkipped) -> list[Command]:
        node = self.nodes[event.task]
        node.why = event.cause
        return self._settle(node, TaskState.SKIPPED, event.at)

    def _stopped(self, node: Node, at: datetime) -> list[Command]:
        if self._stop_reason == CANCELLED or node.is_removed:
            return self._settle(node, TaskState.CANCELLED, at)
        if self._stop_reason in ("", OUT_OF_TIME):
            return self._fail(node, EXPIRED, at)
        why = f"it was stopped: {self._stop_words}"
        return self._fail(node, Failed(kind=ErrorClass.CANCELLED, message=why), at)

    def _expire(self, event: DeadlinePassed) -> list[Command]:
        if not event.task:
            return self._run_out(event.at)
        node = self.nodes[event.task]
        node.is_expired = True
        if node.is_open:
            return self._stop(node, "its deadline has passed", event.at)
        return self._fail(node, EXPIRED, event.at)

    def _await_answer(self, node: Node, question: Question, at: datetime) -> list[Command]:
        node.state = TaskState.ASKING
        node.question = question
        self._live -= 1
        self._note_idle(at)
        if question.patience is not None:
            node.due_at = at + question.patience
        return patience(node)

    def _go_by(self, event: QuestionAnswered) -> list[Command]:
        node = self.nodes[event.task]
        question, failure = node.question, node.last_failure
        if question is not None and question.about == ABOUT_BUDGET:
            return [Record(budget_after(question, event))]
        if question is None or question.about != ABOUT_FAILURE or failure is None:
            return [self._offer(node)]
        if event.text == TRY_AGAIN:
            node.losses = 0
            how = RetryHow.AFRESH if failure.kind is ErrorClass.LOGIC else RetryHow.AGAIN
            return self._conclude(node, Again(event.at, how), event.at)
        then = Recourse.WITHOUT if event.text == GO_ON_WITHOUT else Recourse.FAIL
        return self._conclude(node, GiveUp(failure, then), event.at)

    def _ask_for_more(self, event: PersonAsked) -> list[Command]:
        """Nothing is left to spend: pause, until a person has said whether more may be."""
        node = self._graph.add([asking_for_more(event.task)])[0]
        node.state, node.question, node.since_at = TaskState.ASKING, event.question, event.at
        self._short = node
        self._unsettled += 1
        why = SPENT
        paused = [] if self.is_paused else [Record(RunPaused(reason=why, at=event.at))]
        return [*patience(node), *paused]

    def _have_more(self, event: BudgetChanged) -> list[Command]:
        node, self._short = self._short, None
        if node is None:
            return []
        node.question = None
        settled = self._settle(node, TaskState.DONE, event.at)
        if self._is_halted:
            return settled
        return [*settled, Record(RunUnpaused(by=event.by, at=event.at))]
