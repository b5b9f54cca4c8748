"""A worker at work in a trial: it takes its steps, asks, fails, dies, comes too late."""

from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.budget import OVER_BUDGET
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.questions import budget_question, next_asking_for_more
from chargehand.decisions.quorum import count
from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.decisions.system_tasks import COLLECTOR, is_hedge
from chargehand.facts.events import (
    Effect,
    Event,
    PersonAsked,
    StepFinished,
    StepStarted,
    WorkStopped,
)
from chargehand.facts.outcome import (
    NO_USAGE,
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
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.scenario import SECOND, StepScript

#: what a person may answer about a `once` step in doubt
RAN, AGAIN, GIVE_UP = "it ran", "run it again", "give up"


class Sleep(Struct, frozen=True):
    """The worker is busy for a while, in microseconds."""

    span: int


class Tell(Struct, frozen=True):
    """Somebody reports something; who waits hears whether that was written down or refused."""

    event: Event
    waits: bool = True


class Touch(Struct, frozen=True):
    """The worker now does to the outside world what its step is for."""

    step: StepScript


class Park(Struct, frozen=True):
    """The worker stops here, for it needs somebody who cannot be called for so many microseconds."""

    span: int


class GiveWay(Struct, frozen=True):
    """The worker stops here, to go on once there is reason to."""


class Script(Struct, frozen=True, kw_only=True):
    """What a worker is given for one attempt, and what it will do about it."""

    steps: tuple[StepScript, ...]
    inputs: dict[str, str | None]
    words: str
    #: how it fails, whoever tries it
    fate: ErrorClass | None
    #: for the one who counts: who says what
    votes: Mapping[str, str] | None = None
    agree: int = 0


Move: TypeAlias = Sleep | Tell | Touch | Park | GiveWay
Work: TypeAlias = Generator[Move, bool, Outcome]

_FAILURES = {
    FaultKind.FAILS_NETWORK: ErrorClass.NETWORK,
    FaultKind.FAILS_TIMEOUT: ErrorClass.TIMEOUT,
    FaultKind.FAILS_RESOURCE: ErrorClass.RESOURCE,
    FaultKind.FAILS_LOGIC: ErrorClass.LOGIC,
    FaultKind.FAILS_DENIED: ErrorClass.DENIED,
    FaultKind.FAILS_CANCELLED: ErrorClass.CANCELLED,
}
#: workers have no clock of their own: their process stamps what they report
NO_INSTANT = datetime.min.replace(tzinfo=UTC)


class Attempt:
    """One attempt, from the moment its process starts it until it has really ended."""

    def __init__(
        self, run: str, task: str, number: int, worker: str, epoch: int, live_run: LiveRun
    ) -> None:
        self.run = run
        self.task = task
        self.number = number
        self.worker = worker
        self.epoch = epoch
        self.is_stopping = False
        #: to be left at its next safe point
        self.gives_way = False
        #: really: its place is free again
        self.has_ended = False
        #: its worker is gone; it only holds the place until somebody notices
        self.is_dead = False
        #: the number of the report it waits for an answer to
        self.waits_for = 0
        #: written down as begun, not yet done to the outside world
        self.in_flight: StepScript | None = None
        self.work: Work | None = None
        self.live_run = live_run
        self._log = live_run.results.steps.get(task)

    @property
    def id(self) -> tuple[str, str, int]:
        return self.run, self.task, self.number

    @property
    def is_system_task(self) -> bool:
        """Whether it takes no place: the supervisor's own, or what puts items together."""
        is_own = self.task.startswith("@") and not is_hedge(self.task)
        return is_own or self.worker == COLLECTOR

    def find(self, step: StepScript) -> StepRecord | None:
        """What the record says of this step, as a worker's brief looks it up."""
        return None if self._log is None else self._log.find(step.name, step.ordinal, step.key)

    def answer(self, question: str) -> str | None:
        return self.live_run.results.answers.get(question)

    def reserve(self, step: StepScript) -> Usage:
        """The most that the step can cost, in a run where that matters."""
        return NO_USAGE if self.live_run.account is None else Usage(calls=step.calls)

    def hindrance(self, step: StepScript) -> str:
        """Why there is no money for this step, if there is none."""
        account = self.live_run.account
        return "" if account is None else account.refusal(self.task, self.reserve(step))

    @property
    def may_plead(self) -> bool:
        """Whether a person is to be asked for more before the work is stopped."""
        schedule = self.live_run.schedule
        asks = schedule.requested is not None and schedule.requested.asks_budget
        return asks and not schedule.is_winding_up

    def plea(self, step: StepScript) -> PersonAsked:
        """The question whether more may be spent, as a runtime puts it."""
        assert self.live_run.account is not None
        short = self.live_run.account.shortage(self.task, self.reserve(step))
        assert short is not None
        task = next_asking_for_more(self.live_run.schedule.nodes)
        question = budget_question(self.run, task, short)
        return PersonAsked(task=task, attempt=0, question=question, at=NO_INSTANT)


def work(attempt: Attempt, script: Script, dice: Dice) -> Work:
    """What the worker does, up to what comes of it."""
    pace = 20 if dice.hits(FaultKind.SLOW_WORKER) else 1
    for step in script.steps:
        yield Sleep(pace * dice.between(SECOND // 50, SECOND))
        trouble = yield from take(attempt, step, dice)
        if trouble is not None:
            return trouble
    yield Sleep(pace * dice.between(SECOND // 50, 3 * SECOND))
    yield from pause(dice)
    if script.fate is not None and dice.hits(FaultKind.FAILS_TIME_AND_AGAIN):
        return _failure(script.fate, dice)
    failure = mishap(dice)
    if failure is not None:
        return failure
    question = f"{attempt.run}/{attempt.task}/which"
    if attempt.answer(question) is None and dice.hits(FaultKind.ASKS):
        return NeedsInput(question=question_of(question, (), dice))
    says = dice.random.choice(("yes", "yes", "no"))
    if script.votes is not None:
        said = list(count(script.votes).agreed)
        if len(said) < script.agree:
            dice.note(FaultKind.NO_QUORUM)
            return Failed(kind=ErrorClass.LOGIC, message="too few agree", is_final=True)
        says = script.votes[said[0]]
    report = {"attempt": attempt.id, "inputs": script.inputs, "words": script.words, "says": says}
    # Where calls are limited each is a step, and paid for as such.
    return Done(Value.of(report), Usage(calls=1) if attempt.live_run.account is None else NO_USAGE)


def pause(dice: Dice) -> Generator[Move, bool, None]:
    """Find, now and then, that a provider cannot be called yet."""
    if dice.hits(FaultKind.PARKED):
        yield Park(dice.between(SECOND // 10, 60 * SECOND))


def mishap(dice: Dice) -> Failed | None:
    """A failure, if there is to be one."""
    for kind, error in _FAILURES.items():
        if dice.hits(kind):
            return _failure(error, dice)
    return None


def take(
    attempt: Attempt, step: StepScript, dice: Dice, value: object = None
) -> Generator[Move, bool, Outcome | None]:
    """One step, as a brief takes it: what is on record is not done again. Returns what went wrong."""
    known = attempt.find(step)
    if known is not None:
        if isinstance(known.outcome, Done):
            return None
        if step.effect is Effect.ONCE:
            question = f"{attempt.run}:{attempt.task}:{step.key[:12]}.{known.begun}"
            said = attempt.answer(question)
            if said is None:
                dice.note(FaultKind.IN_DOUBT)
                return NeedsInput(question=question_of(question, (RAN, AGAIN, GIVE_UP), dice))
            if said == GIVE_UP:
                return Failed(kind=ErrorClass.DENIED, message="given up by a person")
            if said == RAN:
                is_noted = yield Tell(_ended(attempt, step, Done()))
                return None if is_noted else Cancelled(reason="the step was refused")
        elif known.outcome is not None:
            return _failure(ErrorClass.NETWORK, dice)  # a failure on record is handed out, too
    # As in a brief: for what may be repeated freely and costs nothing, the intent need not be
    # certain first.
    reserve = attempt.reserve(step)
    is_urgent = step.effect in (Effect.ONCE, Effect.KEYED) or reserve != NO_USAGE
    if not (yield Tell(_begun(attempt, step), waits=is_urgent)):
        return (yield from _refused(attempt, step, dice))
    if step.effect in (Effect.PURE, Effect.IDEMPOTENT):
        yield from pause(dice)
    attempt.in_flight = step
    yield Sleep(dice.between(SECOND // 100, SECOND))
    attempt.in_flight = None
    yield Touch(step)
    yield Sleep(dice.between(SECOND // 100, SECOND // 2))
    cost = Usage(calls=dice.random.randint(0, reserve.calls))
    outcome: Done | Failed = Done(Value.of(value or step.key), cost)
    if dice.hits(FaultKind.STEP_FAILED):
        outcome = Failed(kind=ErrorClass.RESOURCE, message="the step failed", usage=cost)
    if not (yield Tell(_ended(attempt, step, outcome))):
        return Cancelled(reason="the step's end was refused")
    # What the step cost is told with the step, and not once more with the attempt.
    return replace(outcome, usage=NO_USAGE) if isinstance(outcome, Failed) else None


def _refused(
    attempt: Attempt, step: StepScript, dice: Dice
) -> Generator[Move, bool, Outcome | None]:
    """As a runtime does it: whoever has no money for a step asks for more, or stops the work of the run."""
    hindrance = attempt.hindrance(step)
    if not hindrance:
        return Cancelled(reason="the step was refused")
    dice.note(FaultKind.OVER_BUDGET)
    if attempt.may_plead:
        dice.note(FaultKind.ASKED_FOR_MORE)
        yield Tell(attempt.plea(step), waits=False)
        yield GiveWay()
    yield Tell(WorkStopped(reason=OVER_BUDGET, by=hindrance, at=NO_INSTANT), waits=False)
    return Failed(kind=ErrorClass.DENIED, message=OVER_BUDGET)


def _begun(attempt: Attempt, step: StepScript) -> StepStarted:
    return StepStarted(
        task=attempt.task,
        attempt=attempt.number,
        name=step.name,
        ordinal=step.ordinal,
        effect=step.effect,
        key=step.key,
        digest=step.digest,
        reserve=attempt.reserve(step),
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


def question_of(id_: str, choices: tuple[str, ...], dice: Dice) -> Question:
    default = patience = None
    if dice.hits(FaultKind.ANSWERED_BY_DEFAULT):
        patience = timedelta(microseconds=dice.between(SECOND, 60 * SECOND))
        default = dice.random.choice((None, RAN))
    about = "in_doubt" if choices else "plain"
    return Question(
        id=id_, text="?", about=about, choices=choices, default=default, patience=patience
    )
