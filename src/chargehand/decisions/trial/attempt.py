"""A worker at work in a trial: it takes its steps, asks, fails, dies, comes too late."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
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

RAN, AGAIN, GIVE_UP = "it ran", "run it again", "give up"
#: what a person may answer about a `once` step in doubt


class Sleep(Struct, frozen=True):
    """The worker is busy for a while, in microseconds."""

    span: int


class Tell(Struct, frozen=True):
    """The worker reports a step; if it waits, it hears whether that was written down or refused."""

    event: StepStarted | StepFinished
    waits: bool = True


class Touch(Struct, frozen=True):
    """The worker now does to the outside world what its step is for."""

    step: StepScript


Move: TypeAlias = Sleep | Tell | Touch
Work: TypeAlias = Generator[Move, bool, Outcome]

_FAILURES = {
    FaultKind.FAILS_NETWORK: ErrorClass.NETWORK,
    FaultKind.FAILS_TIMEOUT: ErrorClass.TIMEOUT,
    FaultKind.FAILS_RESOURCE: ErrorClass.RESOURCE,
    FaultKind.FAILS_LOGIC: ErrorClass.LOGIC,
    FaultKind.FAILS_DENIED: ErrorClass.DENIED,
    FaultKind.FAILS_CANCELLED: ErrorClass.CANCELLED,
}
NO_INSTANT = datetime.min.replace(tzinfo=UTC)
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
        self._log = results.steps.get(task)
        self._answers = results.answers

    @property
    def id(self) -> tuple[str, str, int]:
        return self.run, self.task, self.number

    def find(self, step: StepScript) -> StepRecord | None:
        """What the record says of this step, as a worker's brief looks it up."""
        return None if self._log is None else self._log.find(step.name, step.ordinal, step.key)

    def answer(self, question: str) -> str | None:
        return self._answers.get(question)


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
        return NeedsInput(question=_question(question, (), dice))
    report = {"task": attempt.task, "attempt": attempt.number, "inputs": inputs}
    return Done(Value.of(report), Usage(calls=1))


def _take(attempt: Attempt, step: StepScript, dice: Dice) -> Generator[Move, bool, Outcome | None]:
    """One step, as a brief takes it: what is on record is not done again."""
    known = attempt.find(step)
    if known is not None:
        if isinstance(known.outcome, Done):
            return None
        if step.effect is Effect.ONCE:
            question = f"{attempt.run}:{attempt.task}:{step.key[:12]}.{known.begun}"
            said = attempt.answer(question)
            if said is None:
                dice.note(FaultKind.IN_DOUBT)
                return NeedsInput(question=_question(question, (RAN, AGAIN, GIVE_UP), dice))
            if said == GIVE_UP:
                return Failed(kind=ErrorClass.DENIED, message="given up by a person")
            if said == RAN:
                is_noted = yield Tell(_ended(attempt, step, Done()))
                return None if is_noted else Cancelled(reason="the step was refused")
        elif known.outcome is not None:
            return _failure(ErrorClass.NETWORK, dice)  # a failure on record is handed out, too
    # As in a brief: for what may be repeated freely, the intent need not be certain first.
    is_urgent = step.effect in (Effect.ONCE, Effect.KEYED)
    if not (yield Tell(_begun(attempt, step), waits=is_urgent)):
        return Cancelled(reason="the step was refused")
    attempt.in_flight = step
    yield Sleep(dice.between(SECOND // 100, SECOND))
    attempt.in_flight = None
    yield Touch(step)
    yield Sleep(dice.between(SECOND // 100, SECOND // 2))
    outcome: Done | Failed = Done(Value.of(step.key))
    if dice.hits(FaultKind.STEP_FAILED):
        outcome = Failed(kind=ErrorClass.RESOURCE, message="the step failed")
    if not (yield Tell(_ended(attempt, step, outcome))):
        return Cancelled(reason="the step's end was refused")
    return outcome if isinstance(outcome, Failed) else None


def _begun(attempt: Attempt, step: StepScript) -> StepStarted:
    return StepStarted(
        task=attempt.task,
        attempt=attempt.number,
        name=step.name,
        ordinal=step.ordinal,
        effect=step.effect,
        key=step.key,
        digest=step.digest,
        at=NO_INSTANT,
    )


def _ended(attempt: Attempt, step: StepScript, outcome: Done | Failed) -> StepFinished:
    return StepFinished(
        task=attempt.task,
        attempt=attempt.number,
        name=step.name,
        ordinal=step.ordinal,
        key=step.key,
        outcome=outcome,
        at=NO_INSTANT,
    )


def _failure(kind: ErrorClass, dice: Dice) -> Failed:
    wait = None
    if dice.hits(FaultKind.RETRY_AFTER):
        wait = timedelta(microseconds=dice.between(SECOND // 10, 90 * SECOND))
    return Failed(kind=kind, message=f"a {kind} failure", retry_after=wait)


def _question(id_: str, choices: tuple[str, ...], dice: Dice) -> Question:
    default = patience = None
    if dice.hits(FaultKind.ANSWERED_BY_DEFAULT):
        patience = timedelta(microseconds=dice.between(SECOND, 60 * SECOND))
        default = dice.random.choice((None, RAN))
    about = "in_doubt" if choices else "plain"
    return Question(
        id=id_, text="?", about=about, choices=choices, default=default, patience=patience
    )
