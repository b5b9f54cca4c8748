"""What an engine must do: run attempts somewhere and say, each time, what came of it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from chargehand.engines.brief import Brief
from chargehand.errors import WorkerError
from chargehand.facts import argument_checks as checks
from chargehand.facts.outcome import Outcome


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

    # Without the garbage collector's care: whatever a job is part of comes apart when its attempt
    # ends, and what is made for every attempt decides how often everything else is walked.
    brief: Brief
    #: runs the attempt on the engine's event loop and never raises but for cancellation
    work: "Callable[[Job], Awaitable[Ending]]"
    timeout: timedelta | None = None
    #: of all that its result rests on, if a later run may take it over
    key: str = ""
    #: the run whose result it takes over
    reused: str = ""
    #: whether its worker leads a run of its own, which ends what it does in its own time
    leads_run: bool = False
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
            return checks.texts(taint, "Brief.taint") if taint else ()
        except Exception as error:
            raise WorkerError(
                f"its worker has changed its brief, which cannot be read any more ({type(error).__name__}); "
                "a brief is to be read, not written to"
            ) from error


class Reports(Protocol):
    """Whom an engine tells."""

    def report(self, job: Job, outcome: Ending) -> None:
        """This is what came of it. Called exactly once a job, on the event loop."""

    def freed(self, job: Job) -> None:
        """Its place is free. Called exactly once a job, not before the report."""


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
