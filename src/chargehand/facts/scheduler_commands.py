"""The commands that decisions return. The runtime carries them out; decisions do not act themselves."""

from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from chargehand.facts.events import Event


class Record(Struct, frozen=True, gc=False):
    """Record and apply another event, which follows from the one just applied."""

    event: Event


class Rank(Struct, frozen=True, order=True, gc=False):
    """A task's place among the ready tasks of its run; the smallest goes first."""

    #: minus the priority: its own, or a higher one of a task that waits for it; for hedges, a large number
    urgency: int
    #: seconds since the Unix epoch; infinity without a deadline
    deadline: float
    #: if it starts later, it cannot meet its deadline
    latest_start: float
    #: minus the longest remaining path
    path: float
    #: its position in the plan
    order: int


class OfferAttempt(Struct, frozen=True, gc=False):
    """A task may start as soon as the pool has a slot for it."""

    task: str
    attempt: int
    worker: str
    skill: str
    rank: Rank
    #: workers that failed at it; other workers are preferred
    avoid: tuple[str, ...] = ()
    #: when it must start at the latest to meet its deadline; None: not known
    latest_at: datetime | None = None


class WithdrawOffer(Struct, frozen=True, gc=False):
    """Take back the offer of a task."""

    task: str


class StopAttempt(Struct, frozen=True, gc=False):
    """Tell a running attempt to stop; after `grace`, it is abandoned."""

    task: str
    attempt: int
    reason: str
    grace: timedelta


class SetTimer(Struct, frozen=True, gc=False):
    """Report `event` at `due_at`; it is dropped if it no longer applies then."""

    due_at: datetime
    event: Event


Command: TypeAlias = Record | OfferAttempt | WithdrawOffer | StopAttempt | SetTimer


class StartAttempt(Struct, frozen=True, gc=False):
    """Start this attempt at this worker, which has a free slot."""

    run: str
    task: str
    attempt: int
    worker: str
    why: str


class PreemptAttempt(Struct, frozen=True, gc=False):
    """Stop this attempt at its next safe point, because of a more urgent one or a pause of its run."""

    run: str
    task: str
    attempt: int
    why: str
