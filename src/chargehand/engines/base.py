"""What an engine must do: run attempts somewhere and say, each time, what came of it.

With it, what all engines share: how the end of an attempt is read and becomes an event, and the host that writes
what an attempt reports to the journal.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.engines.brief import (
    AskedPerson,
    AttemptHost,
    Brief,
    Fenced,
    NestingHost,
    PlanningHost,
    SharedBoard,
)
from chargehand.engines.text_streams import TextStreams
from chargehand.errors import NotAwaited, WorkerError
from chargehand.facts.argument_checks import LONGEST, text, texts
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    Event,
    ProgressNoted,
    StepFinished,
    StepStarted,
)
from chargehand.facts.outcome import (
    NOTHING_DONE,
    Cancelled,
    Done,
    Failed,
    NeedsInput,
    Outcome,
    Parked,
    checked,
    failed_by,
    tainted,
)
from chargehand.facts.value import Value, plain
from chargehand.fork_guard import call_uncopied, end_copy, refuse_copy
from chargehand.sync_async_bridge import call_in

_Said = TypeVar("_Said")
Work: TypeAlias = Callable[[Brief], Any]

NOT_ITS_TASK = "the task is no longer this attempt's"


class Lost(Struct, frozen=True):
    """The attempt cannot report any more: the process it ran in died."""

    reason: str


class Parking(Struct, frozen=True):
    """The attempt has stopped to wait for somebody who cannot be called now; it is to go on then."""

    wait: timedelta
    why: str
    is_long: bool = False


Ending: TypeAlias = Outcome | Lost | Parking
"""What comes of a job."""


class Job(Struct, eq=False, gc=False):
    """One attempt, as an engine runs it."""

    # Not tracked by the garbage collector: its cycles are broken when the attempt ends, and the number of
    # objects made for each attempt decides how often the collector runs.
    brief: Brief
    #: runs the attempt on the engine's event loop and never raises but for cancellation
    work: "Callable[[Job], Awaitable[Ending]]"
    timeout: timedelta | None = None
    #: digest of everything that its result depends on; empty if no later run may reuse it
    key: str = ""
    #: the run whose result it reuses
    reused: str = ""
    #: whether its worker leads a run of its own, which ends what it does in its own time
    leads_run: bool = False
    #: seconds that it has for tidying up when it is told to stop, if more than the engine gives
    grace: float = 0.0
    is_begun: bool = False
    stop_reason: str = ""
    #: what may go on after the attempt was told to stop: a thread cannot be killed
    leftover: asyncio.Future[Any] | None = None
    # Kept apart from the brief, which its worker may change: whatever becomes of that, the end of
    # the attempt is reported.
    run: str = ""
    task: str = ""
    attempt: int = 0
    worker: str = ""

    def __post_init__(self) -> None:
        brief = self.brief
        self.run, self.task = brief.run, brief.task.id
        self.attempt, self.worker = brief.attempt, brief.worker

    def sources(self) -> tuple[str, ...]:
        """The untrusted sources that its result may derive from. Raises `WorkerError` if its worker
        has changed its brief so that they cannot be known."""
        try:
            taint = self.brief.taint
            return texts(taint, "Brief.taint") if taint else ()
        except Exception as error:
            raise WorkerError(
                f"its worker has changed its brief, which cannot be read any more ({type(error).__name__}); "
                "a brief is to be read, not written to"
            ) from error


class Reports(Protocol):
    """Whom an engine tells."""

    def report(self, job: Job, outcome: Ending) -> None:
        """This is what came of it. Called exactly once per job, on the event loop."""

    def freed(self, job: Job) -> None:
        """Its slot is free. Called exactly once per job, not before the report."""


class Engine(Protocol):
    """Where attempts execute."""

    def start(self, job: Job, to: Reports) -> None:
        """Begin a job; returns at once."""

    def stop(self, run: str, task: str, attempt: int, reason: str) -> None:
        """Tell a job to stop, at once where that is possible; unknown ones are fine."""

    def preempt(self, run: str, task: str, attempt: int) -> None:
        """Have a job stop at its next safe point: before the next step it would begin."""

    async def close(self) -> None:
        """Stop everything and return when nothing runs any more that could be stopped."""


async def outcome_of(call: Callable[[Job], Awaitable[Any]], job: Job) -> Ending:
    """What came of a worker's call, whatever it did: returned, raised, asked or was stopped."""
    try:
        value = await call_uncopied(call, job)
    except asyncio.CancelledError:
        _drop_pending(job)
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and worse are failures of a worker too
        _drop_pending(job)
        return _ending_raised(error)
    return _ending_returned(value, job)


async def outcome_in_thread(
    call: Callable[[Work, Brief, Job], Awaitable[Any]], function: Work, job: Job
) -> Ending:
    """As `outcome_of`, of a plain function that `call` has called in a thread.

    What it returned or raised is read in that thread, too: a `model_dump` or a `__str__` may take its
    time, which is the worker's and not that of all others on the event loop.
    """
    try:
        said = await call_uncopied(call, partial(_concluded, function, job), job.brief, job)
    except asyncio.CancelledError:
        if job.leftover is not None:
            job.leftover.add_done_callback(_drop_late)
        raise
    except BaseException as error:  # noqa: BLE001 - there is no thread to be had any more
        return failed_by(error)
    if type(said) is not _ToAwait:
        return cast("Ending", said)
    return await outcome_of(lambda _: said.result, job)


class _ToAwait(NamedTuple):
    """A plain function, such as a lambda, has returned a coroutine: the event loop is to await it."""

    result: Awaitable[Any]


def _concluded(function: Work, job: Job, brief: Brief) -> Ending | _ToAwait:
    """Call the function and read what comes of it. Runs in a thread; passes on that it was cancelled."""
    home = os.getpid()
    try:
        value = function(brief)
        end_copy(home)
        if inspect.isawaitable(value):
            return _ToAwait(value)
    except asyncio.CancelledError:
        _drop_pending(job)
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        end_copy(home)
        _drop_pending(job)
        return _ending_raised(error)
    return _ending_returned(value, job)


def _drop_late(call: "asyncio.Future[tuple[bool, Any]]") -> None:
    """A function returned when nobody heard it any more: Python would warn of a coroutine that is never awaited."""
    said = None if call.cancelled() else call.result()[1]
    if type(said) is _ToAwait and isinstance(said.result, Coroutine):
        said.result.close()


def _ending_raised(error: BaseException) -> Ending:
    """What a worker means by an exception. Those of ours it may have raised itself, with anything in them."""
    try:
        if isinstance(error, AskedPerson):
            return checked(NeedsInput(question=error.question))
        if isinstance(error, Parked):
            wait = max(min(error.wait, LONGEST), timedelta(0))
            return Parking(wait, plain(error.why), bool(error.is_long))
        if isinstance(error, Fenced):
            return Cancelled(reason=plain(str(error)))
    except Exception:  # noqa: BLE001, S110 - it is none of ours, or not as we make them: a failure like any other
        pass
    return failed_by(error)


def _drop_pending(job: Job) -> NotAwaited | None:
    """Close the calls of its brief that its worker has not awaited."""
    try:
        return job.brief.drop_pending()
    except Exception:  # noqa: BLE001 - its worker has changed its brief: `Job.sources` says so
        return None


def _ending_returned(value: Any, job: Job) -> Ending:
    """What a worker means by its result. There is none if a step or a question was never awaited."""
    unawaited = _drop_pending(job)
    ending = _ending_meant(value, job)
    if type(ending) is Done and job.brief.log is not None:
        try:
            job.brief.settle_doubts()
        except BaseException as error:  # noqa: BLE001 - it asks, gives up, or its worker has changed its brief
            return _ending_raised(error)
    is_told = isinstance(value, Failed)  # by the worker itself
    if unawaited is not None and not is_told and isinstance(ending, Done | Failed):
        return replace(failed_by(unawaited), usage=ending.usage)
    return ending


def _ending_meant(value: Any, job: Job) -> Ending:
    # With all that it has read, for those who share this result; how it ended otherwise, `end_of` marks.
    try:
        taint = job.sources()
    except WorkerError as error:
        return failed_by(error)
    if value is None and not taint:
        return NOTHING_DONE
    try:
        if isinstance(value, (Done, Failed, Cancelled, NeedsInput)):
            return tainted(checked(value), taint)
        if isinstance(value, Lost):
            return Lost(text(value.reason, "Lost: reason"))
        return Done(Value.of(value, taint))
    except BaseException as error:  # noqa: BLE001 - whatever a model's own dump raises, if only SystemExit
        return failed_by(error)


def end_of(job: Job, ending: Ending, at: datetime, *, goes_on: bool) -> Event:
    """What came of an attempt. One that was stopped and `goes_on` elsewhere or later was preempted."""
    task, attempt = job.task, job.attempt
    try:
        taint = job.sources()
    except WorkerError as error:
        taint, ending = (), failed_by(error)
    if type(ending) is Lost:
        return AttemptLost(task=task, attempt=attempt, reason=ending.reason, taint=taint, at=at)
    if type(ending) is Parking:
        return AttemptParked(
            task=task,
            attempt=attempt,
            due_at=at + min(ending.wait, LONGEST),
            why=plain(ending.why),
            is_long=ending.is_long,
            at=at,
        )
    if type(ending) is Cancelled and goes_on:
        return AttemptPreempted(task=task, attempt=attempt, at=at)
    return AttemptFinished(
        task=task,
        attempt=attempt,
        outcome=_written(tainted(ending, taint) if taint else ending),  # type: ignore[arg-type]  # Lost and Parking are gone
        key=job.key if type(ending) is Done else "",
        reused=job.reused,
        at=at,
    )


class RunWriter(Protocol):
    """Has events of runs written to the journal."""

    def post(self, run: str, event: Event) -> None:
        """Some time soon, before what is proposed later."""

    def propose(self, run: str, event: Event) -> Awaitable[Event | None]:
        """Now: returns what was written once it is durable, or None if it was refused."""

    async def wait_for_room(self, brief: Brief, step: StepStarted) -> None:
        """A step was refused: return when it may be proposed again. Raises what ends the attempt."""


class JournalHost(AttemptHost):
    """The host of attempts wherever a journal is at hand: every report becomes an event."""

    def __init__(
        self,
        writer: RunWriter,
        clock: Clock,
        spill: Callable[[Done], Awaitable[Done | Failed]],
        boards: Callable[[Brief], SharedBoard],
        *,
        nesting: NestingHost | None = None,
        planning: PlanningHost | None = None,
        texts: TextStreams | None = None,
    ) -> None:
        self._writer = writer
        self._clock = clock
        #: puts a large result into a blob
        self._spill = spill
        self._boards = boards
        self._nesting = nesting
        self._planning = planning
        self._texts = texts
        self._loop = asyncio.get_running_loop()
        self._home = os.getpid()

    @property
    def nesting(self) -> NestingHost | None:
        return self._nesting

    @property
    def planning(self) -> PlanningHost | None:
        return self._planning

    @property
    def text_streams(self) -> TextStreams | None:
        return self._texts

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        refuse_copy(self._home)
        _refuse_preempted(brief)
        event = step_started(brief, step, self._clock.now())
        if not is_urgent:
            self._writer.post(brief.run, event)
            return
        while await self._writer.propose(brief.run, event) is None:
            await self._writer.wait_for_room(brief, event)
            _refuse_preempted(brief)  # its run may have been paused meanwhile
            event = replace(event, at=self._clock.now())

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        refuse_copy(self._home)
        if type(outcome) is Done and outcome.value.is_large:
            outcome = await self._spill(outcome)
        event = step_finished(brief, step, outcome, self._clock.now())
        if await self._writer.propose(brief.run, event) is None:
            raise Fenced(NOT_ITS_TASK)

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        refuse_copy(self._home)
        event = progress_noted(brief, text, fraction, self._clock.now())
        # At once where that is possible: the end of the attempt may come next, and nothing after it counts.
        call_in(self._loop, self._writer.post, brief.run, event)

    def board_for(self, brief: Brief) -> SharedBoard:
        return self._boards(brief)


def _refuse_preempted(brief: Brief) -> None:
    if brief.is_preempted:
        raise Fenced("it makes room for something more urgent")


def step_started(brief: Brief, step: StepRecord, at: datetime) -> StepStarted:
    return StepStarted(
        task=brief.task.id,
        attempt=brief.attempt,
        name=step.name,
        ordinal=step.ordinal,
        effect=step.effect,
        key=step.key,
        digest=step.digest,
        about=step.about,
        reserve=step.reserve,
        at=at,
    )


def step_finished(
    brief: Brief, step: StepRecord, outcome: Done | Failed, at: datetime
) -> StepFinished:
    return StepFinished(
        task=brief.task.id,
        attempt=brief.attempt,
        name=step.name,
        ordinal=step.ordinal,
        key=step.key,
        outcome=outcome if type(outcome) is Done else _written(outcome),
        at=at,
    )


def progress_noted(brief: Brief, text: str, fraction: float | None, at: datetime) -> ProgressNoted:
    task, attempt = brief.task.id, brief.attempt
    return ProgressNoted(
        task=task,
        attempt=attempt,
        text=plain(text),
        fraction=fraction,
        taint=brief.taint,
        at=at,
    )


def _written(outcome: _Said) -> _Said:
    """What was said, in words that can be stored: an error may quote the name of any file."""
    if not isinstance(outcome, Failed):
        return outcome
    message, error, stack = map(plain, (outcome.message, outcome.error, outcome.stack))
    return replace(outcome, message=message, error=error, stack=stack)
