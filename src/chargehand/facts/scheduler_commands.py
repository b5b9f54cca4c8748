"""All that a decision can ask for. The shell carries commands out; nothing else acts."""

from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from chargehand.facts.events import Event


class Record(Struct, frozen=True, gc=False):
    """Write down a further event that follows from the one just applied, and apply it too."""

    event: Event


class Rank(Struct, frozen=True, order=True, gc=False):
    """A task's place among the ready tasks of its run; the smallest goes first."""

    #: minus the priority, its own or inherited from a task that waits for it
    urgency: int
    #: seconds of the epoch; infinity without one
    deadline: float
    #: started later than this, the deadline cannot be kept
    latest_start: float
    #: minus the longest remaining path
    path: float
    #: in the plan
    order: int


class OfferAttempt(Struct, frozen=True, gc=False):
    """A task may start as soon as the pool has a place for it."""

    task: str
    attempt: int
    worker: str
    skill: str
    rank: Rank
    #: workers that failed at it, to be passed over if there are others
    avoid: tuple[str, ...] = ()
    #: when it must have begun to be done before its deadline; None: not known
    latest_at: datetime | None = None


class WithdrawOffer(Struct, frozen=True, gc=False):
    """An offered task is not to start after all."""

    task: str


class StopAttempt(Struct, frozen=True, gc=False):
    """A running attempt is to stop; after `grace` it is given up."""

    task: str
    attempt: int
    reason: str
    grace: timedelta


class SetTimer(Struct, frozen=True, gc=False):
    """At `due_at`, propose `event`; it is dropped then if it no longer applies."""

    due_at: datetime
    event: Event


Command: TypeAlias = Record | OfferAttempt | WithdrawOffer | StopAttempt | SetTimer


class StartAttempt(Struct, frozen=True, gc=False):
    """A place was found: start this attempt on this worker."""

    run: str
    task: str
    attempt: int
    worker: str
    why: str


class PreemptAttempt(Struct, frozen=True, gc=False):
    """Stop this attempt at its next safe point, to make room for a more urgent one."""

    run: str
    task: str
    attempt: int
    why: str


Placement: TypeAlias = StartAttempt | PreemptAttempt
