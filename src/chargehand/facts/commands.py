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

    urgency: int
    #: minus the priority, its own or inherited from a task that waits for it
    deadline: float
    #: seconds of the epoch; infinity without one
    latest_start: float
    #: started later than this, the deadline cannot be kept
    path: float
    #: minus the longest remaining path
    order: int
    #: in the plan


class OfferAttempt(Struct, frozen=True, gc=False):
    """A task may start as soon as the pool has a place for it."""

    task: str
    attempt: int
    worker: str
    skill: str
    rank: Rank
    avoid: tuple[str, ...] = ()
    #: workers that failed at it, to be passed over if there are others
    latest_at: datetime | None = None
    #: when it must have begun to be done before its deadline; None: not known


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
