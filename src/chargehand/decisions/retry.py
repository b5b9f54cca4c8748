"""Decides what happens after a failed attempt: retry (how and when), ask a person, or give the task up."""

import random
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.rule_answer import item_text
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import RetryHow
from chargehand.facts.failure_policy import (
    ABOUT_FAILURE,
    GIVE_UP,
    GO_ON_WITHOUT,
    TRY_AGAIN,
    FailureStep,
    OnFailure,
    Recourse,
)
from chargehand.facts.outcome import ErrorClass, Failed, Question, QuestionId
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.value import Value


class Again(Struct, frozen=True):
    """Retry the task."""

    due_at: datetime
    how: RetryHow
    #: the worker that has the task from now on; empty: no change
    worker: str = ""


class Ask(Struct, frozen=True):
    """Ask a person what happens to the task."""


class GiveUp(Struct, frozen=True):
    """The task has failed for good."""

    cause: Failed
    #: what happens to the rest of the run
    then: Recourse = Recourse.FAIL


Verdict: TypeAlias = Again | Ask | GiveUp


class History(Struct, frozen=True, kw_only=True):
    """What a verdict depends on besides the failure itself."""

    #: failures that count, this one included
    tries: int
    #: tries the task may have
    attempts: int
    at: datetime
    deadline_at: datetime | None
    #: whether the task asks for a skill, so that another worker may do it
    has_others: bool
    #: the worker that failed
    worker: str = ""
    #: whether `has_others`, and this worker failed at the task for the first time
    has_untried: bool = False
    #: whether a model may rewrite the task
    refines: bool = False
    #: the failure policy; None: the usual retries
    terms: OnFailure | None = None
    #: the classes of the failures before this one
    before: tuple[ErrorClass, ...] = ()


def judge(policy: RetryPolicy, failure: Failed, history: History, draw: float) -> Verdict:
    """Decide what happens to a task whose attempt failed. No retry is planned after the deadline."""
    if history.terms is not None:
        return _judge_by(history.terms, policy, failure, history, draw)
    if failure.kind.is_final or (failure.is_final and not history.has_untried):
        return GiveUp(failure)
    if history.tries >= history.attempts:
        if history.tries == 1:
            return GiveUp(failure)
        tried = f"{failure.message} (tried {history.tries} times)"
        return GiveUp(replace(failure, message=tried))
    due_at = _due_at(policy, failure, history, draw)
    if due_at is None:
        return GiveUp(_without_time(failure))
    return Again(due_at, _how(failure, history))


def set_aside(failure: Failed, terms: OnFailure | None, *, may_ask: bool) -> Ask | GiveUp:
    """Decide what happens to a task that is not retried, although its policy may have tries left."""
    if terms is None:
        return GiveUp(failure)
    step = terms.ending(failure.kind, may_ask=may_ask)
    return Ask() if step.recourse is Recourse.ASK else GiveUp(failure, step.recourse)


def question_about(
    run: str, node: TaskNode, terms: OnFailure | None, item: Value | None = None
) -> Question:
    """The question to a person about a failed task; `item` is the item that the task is for, if any."""
    told = _ended(f"Task {node.task.id} failed ({node.last_failure}): {node.task.description}")
    taint = () if node.last_failure is None else node.last_failure.taint
    if item is not None and (what := item_text(item)):
        told, taint = f"{told}\nIts item: {what}.", (*taint, *item.taint)
    is_timed = terms is not None and terms.patience is not None
    return Question(
        id=str(QuestionId(run, node.task.id, f"failed-{node.attempt}")),
        text=f"{told}\nWhat should happen to the task?",
        about=ABOUT_FAILURE,
        choices=(TRY_AGAIN, GO_ON_WITHOUT, GIVE_UP),
        default=GIVE_UP if is_timed else None,
        patience=None if terms is None else terms.patience,
        taint=tuple(dict.fromkeys(taint)),
    )


def _ended(sentence: str) -> str:
    """The sentence with a full stop, which tells it from the next one where both are on one line."""
    return sentence if sentence[-1:] in ".!?…:" else f"{sentence}."


def _judge_by(
    terms: OnFailure, policy: RetryPolicy, failure: Failed, history: History, draw: float
) -> Verdict:
    step = terms.step(failure, history.before, by=history.worker, to_others=history.has_untried)
    if step.recourse is Recourse.ASK:
        return Ask()
    if not step.recourse.is_try:
        return GiveUp(failure, step.recourse)
    due_at = _due_at(policy, failure, history, draw)
    if due_at is None:
        return set_aside(_without_time(failure), terms, may_ask=False)
    return Again(due_at, _how_by(step, failure, history), step.worker)


def _due_at(policy: RetryPolicy, failure: Failed, history: History, draw: float) -> datetime | None:
    """When the next try is due; None if that is not before the deadline."""
    wait = timedelta(0)
    if failure.kind.backs_off:
        wait = policy.backoff(history.tries, draw)
    if failure.retry_after is not None:
        wait = max(wait, failure.retry_after)
    due_at = history.at + wait
    is_late = history.deadline_at is not None and due_at >= history.deadline_at
    return None if is_late else due_at


def draw_for(seed: int, task: str, attempt: int) -> float:
    """A random number between 0 and 1 for one attempt: the same on every replay and machine."""
    return random.Random(f"{seed}:{task}:{attempt}").random()  # noqa: S311 - jitter, not a secret


def _how(failure: Failed, history: History) -> RetryHow:
    if history.has_others:
        return RetryHow.ELSEWHERE
    if failure.kind is not ErrorClass.LOGIC:
        return RetryHow.AGAIN
    return RetryHow.REWRITTEN if history.refines else RetryHow.AFRESH


def _how_by(step: FailureStep, failure: Failed, history: History) -> RetryHow:
    """How to retry by this step; if there is no other worker, `elsewhere` means the same worker."""
    if step.recourse is Recourse.REWRITTEN:
        return RetryHow.REWRITTEN
    if step.recourse is Recourse.ELSEWHERE and (step.worker or history.has_others):
        return RetryHow.ELSEWHERE
    return RetryHow.AFRESH if failure.kind is ErrorClass.LOGIC else RetryHow.AGAIN


def _without_time(failure: Failed) -> Failed:
    return replace(failure, message=f"{failure.message} (no time left for another try)")
