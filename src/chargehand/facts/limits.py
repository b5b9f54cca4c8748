"""How much a run, or one task of it, may take. Nothing is infinite by accident."""

from datetime import timedelta

from msgspec import Struct

from chargehand.errors import UsageError


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Caps of one run and everything below it."""

    money: float | None = None
    #: in the currency of the price list; None: no cap
    tokens: int | None = None
    calls: int | None = None
    deadline: timedelta | None = None
    #: from the request on, waiting for people included
    active: timedelta = timedelta(hours=1)
    #: without a deadline: time in which something could run, waiting for people not counted
    tasks: int = 200
    depth: int = 3
    attempts: int = 3
    #: tries of one task that count: failures, not lost workers and preemptions
    losses: int = 10
    #: lost workers and preemptions of one task
    replans: int = 3
    turns: int = 50
    parallel: int = 100
    #: attempts of this run at once
    grace: timedelta = timedelta(seconds=0.5)
    #: what an attempt that is told to stop has left before it is given up

    def __post_init__(self) -> None:
        for name in ("tasks", "depth", "attempts", "losses", "turns", "parallel"):
            if getattr(self, name) < 1:
                raise UsageError(f"Limits({name}={getattr(self, name)}) must be at least 1")
        for name in ("money", "tokens", "calls", "replans"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"Limits({name}={value}) must not be negative")
        for name in ("deadline", "active"):
            span = getattr(self, name)
            if span is not None and span <= timedelta(0):
                raise UsageError(f"Limits({name}={span}) must be longer than nothing")
        if self.grace < timedelta(0):
            raise UsageError(f"Limits(grace={self.grace}) must not be negative")


class TaskLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Caps of one task; what is None is the run's."""

    attempts: int | None = None
    timeout: timedelta | None = None
    #: of one attempt
    turns: int | None = None
    money: float | None = None
    tokens: int | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("attempts", "turns"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"TaskLimits({name}={value}) must be at least 1")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise UsageError(f"TaskLimits(timeout={self.timeout}) must be longer than nothing")
