"""What must hold of tasks that fail: their policy is kept to the letter, or the usual is done.

Rules like those in `invariants`, which calls them. A policy is read here in its plainest form, as the
lists of words that it was given as.
"""

from collections.abc import Sequence
from datetime import timedelta

from chargehand.facts.events import PersonAsked, RetryHow, RetryPlanned, TaskFailed
from chargehand.facts.failure_policy import GO_ON_WITHOUT, TRY_AGAIN, OnFailure
from chargehand.facts.outcome import ErrorClass, Failed
from tests.simulation.ledger import Entry
from tests.simulation.story import RunStory
from tests.simulation.tasks import TaskStory

NO_WAIT = timedelta(0), timedelta(0)
_TRIES = ("again", "elsewhere", "rewritten")


def i08_failures_are_dealt_with_as_was_said(run: RunStory, entry: Entry) -> str:
    """By the plan, by a worker's policy, by that for all, or by a person who was asked."""
    event = entry.event
    assert isinstance(event, RetryPlanned | PersonAsked | TaskFailed)
    if isinstance(event, PersonAsked) and event.question.about == "budget":
        is_asked = run.requested is not None and run.requested.asks_budget
        return "" if is_asked else "more is asked for, and nobody wants to be asked"
    task = run.find(event.task)
    if event.task in run.mapped and isinstance(event, TaskFailed):
        policy = None if run.stop else run.policy_of(task)
        said = "fail" if policy is None else _ending(policy, event.cause.kind, may_ask=False)
        return "" if event.then == said else f"{event.task}: {event.then} is done, {said} was said"
    terms = run.terms_of(task)
    if terms is None:
        is_usual = not isinstance(event, PersonAsked)
        is_usual = is_usual and (not isinstance(event, TaskFailed) or event.then == "fail")
        return "" if is_usual else f"{event.task} has no policy, and {_did(event)} is done"
    allowed = _owed(run, task, terms, entry)
    if any(_is(step, event, task) for step in allowed):
        return ""
    return f"{event.task}: {_did(event)} is done, {' or '.join(allowed)} was said"


def _owed(run: RunStory, task: TaskStory, terms: OnFailure, entry: Entry) -> Sequence[str]:
    """What may be done now; more than one thing only where a wait, which is drawn, decides."""
    if run.stop:
        return ["fail"]
    if task.is_expired or task.is_too_late or task.question is not None:
        return [_ending(terms, ErrorClass.TIMEOUT, may_ask=False)]
    if task.is_short and isinstance(entry.event, TaskFailed):
        return [_ending(terms, entry.event.cause.kind, may_ask=False)]
    if task.told:
        said = {TRY_AGAIN: "again", GO_ON_WITHOUT: "without"}
        return [said.get(task.told, "fail")]
    if task.losses > run.limits.losses:
        return [_ending(terms, ErrorClass.RESOURCE, may_ask=True)]
    failure = task.failures[-1]
    step = _step(terms, task.failures, task.attempts[-1].worker)
    if step.partition(":")[0] not in _TRIES:
        return [step]
    deadline_at = run.deadline_of(task.task)
    low, high = waits(task)
    without_time = _ending(terms, failure.kind, may_ask=False)
    if deadline_at is None or entry.event.at + high < deadline_at:
        return [step]
    return [without_time] if entry.event.at + low >= deadline_at else [step, without_time]


def _step(terms: OnFailure, failures: Sequence[Failed], by: str) -> str:
    """The word in the list of this failure's class that it has come to."""
    failure = failures[-1]
    kind = failure.kind
    alike = [f for f in failures if f.kind == kind or {f.kind, kind}.isdisjoint(terms.kinds)]
    steps = _list(terms, kind)
    left = [*steps, *([_after(steps[-1])] * len(alike))][len(alike) - 1 :]
    if failure.is_final:  # whoever failed would fail again, but another that is named may not
        away = [f"elsewhere:{name}" for name in _named(left) if name != by]
        return away[0] if away else _ended(terms, left[0], kind)
    step = left[0]
    if step == "ask":
        return step if kind is not ErrorClass.CANCELLED else _ending(terms, kind, may_ask=False)
    is_try = step.partition(":")[0] in _TRIES
    is_denied = kind is ErrorClass.DENIED and kind not in terms.kinds
    if is_try and (kind is ErrorClass.CANCELLED or is_denied):
        return _ending(terms, kind, may_ask=True)
    return step


def _named(steps: Sequence[str]) -> list[str]:
    parts = [step.partition(":") for step in steps]
    return [worker for name, _, worker in parts if name == "elsewhere" and worker]


def _ended(terms: OnFailure, step: str, kind: ErrorClass) -> str:
    is_try = step.partition(":")[0] in _TRIES
    return _ending(terms, kind, may_ask=True) if is_try else step


def _after(last: str) -> str:
    return "fail" if last.partition(":")[0] in _TRIES else last


def _ending(terms: OnFailure, kind: ErrorClass, *, may_ask: bool) -> str:
    """How the list of this class ends, for a task that is not tried again."""
    may_ask = may_ask and kind is not ErrorClass.CANCELLED
    ends = [step for step in _list(terms, kind) if step.partition(":")[0] not in _TRIES]
    ends = [step for step in ends if may_ask or step != "ask"]
    return ends[0] if ends else "fail"


def _list(terms: OnFailure, kind: ErrorClass) -> Sequence[str]:
    return terms.kinds.get(kind, terms.steps)


def _is(step: str, event: RetryPlanned | PersonAsked | TaskFailed, task: TaskStory) -> bool:
    """Whether this event is that step."""
    if isinstance(event, PersonAsked):
        return step == "ask"
    if isinstance(event, TaskFailed):
        return event.then == step
    name, _, worker = step.partition(":")
    if name not in _TRIES or event.worker != worker:
        return False
    if name == "rewritten":
        return event.how is RetryHow.REWRITTEN
    if name == "elsewhere" and (worker or task.task.skill):
        return event.how is RetryHow.ELSEWHERE
    return event.how in (RetryHow.AGAIN, RetryHow.AFRESH)


def _did(event: RetryPlanned | PersonAsked | TaskFailed) -> str:
    if isinstance(event, RetryPlanned):
        return f"a retry ({event.how} {event.worker})"
    return "asking" if isinstance(event, PersonAsked) else str(event.then)


def waits(task: TaskStory) -> tuple[timedelta, timedelta]:
    """The shortest and the longest wait that is allowed after the last failure."""
    if task.told or not task.failures:
        return NO_WAIT  # a person has said so, which took long enough
    failure = task.failures[-1]
    high = timedelta(0)
    if failure.kind in (ErrorClass.NETWORK, ErrorClass.TIMEOUT, ErrorClass.RESOURCE):
        high = min(timedelta(seconds=2 ** (len(task.failures) - 1)), timedelta(minutes=1))
    low = high / 2
    asked = failure.retry_after or timedelta(0)
    return max(low, asked), max(high, asked)
