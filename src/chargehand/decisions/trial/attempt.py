"""A worker at work in a trial: it takes its steps, asks, fails, dies, comes too late."""

from collections.abc import Generator
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.results import Results, StepRecord
from chargehand.decisions.trial.faults import Dice, FaultKind
from chargehand.decisions.trial.scenario import SECOND, StepScript
from chargehand.facts.events import Effect, StepFinished, StepStarted
from chargehand.facts.outcome import (
    Cancelled,
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
    Outcome,
    Question,
    Usage,
)
from chargehand.facts.value import Value

DONE_ALREADY, DO_IT_AGAIN = "it was done", "do it again"
#: what a person says of a `once` step in doubt


class Sleep(Struct, frozen=True):
    """The worker is busy for a while, in microseconds."""

    span: int


class Tell(Struct, frozen=True):
    """The worker reports a step and waits until it is written down or refused."""

    event: StepStarted | StepFinished


class Touch(Struct, frozen=True):
    """The worker now does to the outside world what its step is for."""

    step: StepScript


Move: TypeAlias = Sleep | Tell | Touch
#: None in answer to `Tell` means refused
Work: TypeAlias = Generator[Move, bool, Outcome]

_FAILURES = {
    FaultKind.FAILS_NETWORK: ErrorClass.NETWORK,
    FaultKind.FAILS_TIMEOUT: ErrorClass.TIMEOUT,
    FaultKind.FAILS_RESOURCE: ErrorClass.RESOURCE,
    FaultKind.FAILS_LOGIC: ErrorClass.LOGIC,
    FaultKind.FAILS_DENIED: ErrorClass.DENIED,
    FaultKind.FAILS_CANCELLED: ErrorClass.CANCELLED,
}
_NO_INSTANT = datetime.min
#: workers have no clock of their own: their process stamps what they report


class Attempt:
    """One attempt, from the moment its process starts it until it has really ended."""

    def __init__(
        self, run: str, task: str, number: int, worker: str, epoch: int, results: Results
    ) -> None:
        self.run = run
        self.task = task
        self.number = number
        self.worker = worker
        self.epoch = epoch
        self.is_stopping = False
        self.has_ended = False
        #: really: its place is free again
        self.is_dead = False
        #: its worker is gone; it only holds the place until somebody notices
        self.waits_for = 0
        #: the number of the report it waits for an answer to
        self.in_flight: StepScript | None = None
        #: written down as begun, not yet done to the outside world
        self.work: Work | None = None
        self._results = results

    @property
    def id(self) -> tuple[str, str, int]:
        return self.run, self.task, self.number

    def find(self, step: StepScript) -> StepRecord | None:
        """What the record says of this step, as a worker's brief looks it up."""
        log = self._results.steps.get(self.task)
        return None if log is None else log.find(step.name, step.ordinal, step.key)

    def answer(self, question: str) -> str | None:
        return self._results.answers.get(question)


def work(
    attempt: Attempt,
    steps: tuple[StepScript, ...],
    inputs: dict[str, str | None],
    dice: Dice,
) -> Work:
    """What the worker does, up to what comes of it."""
    pace = 20 if dice.hits(FaultKind.SLOW_WORKER) else 1
    for step in steps:
        yield Sleep(pace * dice.between(SECOND // 50, SECOND))
        trouble = yield from _take(attempt, step, dice)
        if trouble is not None:
            return trouble
    yield Sleep(pace * dice.between(SECOND // 50, 3 * SECOND))
    for kind, error in _FAILURES.items():
        if dice.hits(kind):
            return _failure(error, dice)
    question = f"{attempt.run}/{attempt.task}/which"
    if attempt.answer(question) is None and dice.hits(FaultKind.ASKS):
        return NeedsInput(question=_question(question, "plain", dice))
    report = {"task": attempt.task, "attempt": attempt.number, "inputs": inputs}
    return Done(Value.of(report), Usage(calls=1))


def _take(attempt: Attempt, step: StepScript, dice: Dice) -> Generator[Move, bool, Outcome | None]:
    """One step, as a brief takes it: what is on record is not done again."""
    known = attempt.find(step)
    if known is not None and isinstance(known.outcome, Done):
        return None
    if known is not None and step.effect is Effect.ONCE:
        question = f"{attempt.run}/{attempt.task}/{step.key}"
        said = attempt.answer(question)
        if said is None:
            dice.note(FaultKind.IN_DOUBT)
            return NeedsInput(question=_question(question, "in_doubt", dice))
        if said == DONE_ALREADY:
            return None
    elif known is not None and known.outcome is not None:
        return _failure(ErrorClass.NETWORK, dice)  # what failed is on record, too
    begun = StepStarted(
        task=attempt.task,
        attempt=attempt.number,
        name=step.name,
        ordinal=step.ordinal,
        effect=step.effect,
        key=step.key,
        digest=step.digest,
        at=_NO_INSTANT,
    )
    if not (yield Tell(begun)):
        return Cancelled(reason="the step was refused")
    attempt.in_flight = step
    yield Sleep(dice.between(SECOND // 100, SECOND))
    attempt.in_flight = None
    yield Touch(step)
    yield Sleep(dice.between(SECOND // 100, SECOND // 2))
    outcome: Done | Failed = Done(Value.of(step.key))
    if dice.hits(FaultKind.STEP_FAILED):
        outcome = Failed(kind=ErrorClass.RESOURCE, message="the step failed")
    ended = StepFinished(
        task=attempt.task,
        attempt=attempt.number,
        name=step.name,
        ordinal=step.ordinal,
        key=step.key,
        outcome=outcome,
        at=_NO_INSTANT,
    )
    if not (yield Tell(ended)):
        return Cancelled(reason="the step's end was refused")
    return outcome if isinstance(outcome, Failed) else None


def _failure(kind: ErrorClass, dice: Dice) -> Failed:
    wait = None
    if dice.hits(FaultKind.RETRY_AFTER):
        wait = timedelta(microseconds=dice.between(SECOND // 10, 90 * SECOND))
    return Failed(kind=kind, message=f"a {kind} failure", retry_after=wait)


def _question(id_: str, about: str, dice: Dice) -> Question:
    default = patience = None
    if dice.hits(FaultKind.ANSWERED_BY_DEFAULT):
        patience = timedelta(microseconds=dice.between(SECOND, 60 * SECOND))
        default = dice.random.choice((None, DONE_ALREADY))
    return Question(id=id_, text="?", about=about, default=default, patience=patience)
