"""Caps on what a run or a task may use. Nothing is unlimited by accident."""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chargehand.facts.argument_checks import (
    CheckedKeywords,
    Span,
    SpanOrNone,
    amount,
    count,
    duration,
    duration_or_none,
    usually,
)

#: levels of supervisors where nobody said a number
USUAL_DEPTH = 3


class Limits(
    Struct,
    metaclass=CheckedKeywords,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Caps on one run and all runs nested in it."""

    #: in the currency of the price list; None: no cap
    money: float | None = None
    tokens: int | None = None
    calls: int | None = None
    #: counted from the request; waiting for people counts too
    deadline: SpanOrNone = usually(None)
    #: without a deadline: time in which something could run; waiting for people does not count
    active: Span = usually(timedelta(hours=1))
    tasks: int = 200
    #: of all tasks with `for_each` together; items do not count as tasks
    items: int = 10_000
    #: levels of supervisors, this one included. None: `USUAL_DEPTH`; in a nested supervisor, what the levels above allow
    depth: int | None = None
    #: tries of one task; lost attempts and preemptions do not count
    attempts: int = 3
    #: lost attempts and preemptions of one task in a row, without a finished step between them
    losses: int = 10
    replans: int = 3
    #: model calls of one task, over all its tries with one worker
    turns: int = 50
    #: attempts of this run at once
    parallel: int = 100
    #: how long an attempt may still run after it was asked to stop, before it is abandoned
    grace: Span = usually(timedelta(seconds=0.5))

    def __post_init__(self) -> None:
        for field in (
            "tasks",
            "items",
            "attempts",
            "losses",
            "turns",
            "parallel",
            "replans",
        ):
            least = 0 if field == "replans" else 1
            force_setattr(self, field, count(getattr(self, field), f"Limits: {field}", least=least))
        if self.depth is not None:
            force_setattr(self, "depth", count(self.depth, "Limits: depth", least=1))
        force_setattr(self, "deadline", duration_or_none(self.deadline, "Limits: deadline"))
        force_setattr(self, "active", duration(self.active, "Limits: active"))
        force_setattr(self, "grace", duration(self.grace, "Limits: grace", may_be_zero=True))
        _check_spending(self)

    @property
    def levels(self) -> int:
        """How many levels of supervisors there may be, counted from the top."""
        return USUAL_DEPTH if self.depth is None else self.depth


def tightened(own: Limits, **wanted: float | None) -> Limits:
    """These limits, lowered where a client asks for less; never raised."""
    tighter = {
        name: value if (cap := getattr(own, name)) is None else min(cap, value)
        for name, value in wanted.items()
        if value is not None
    }
    return replace(own, **tighter)


class TaskLimits(
    Struct,
    metaclass=CheckedKeywords,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Caps of one task; None means the cap of the run."""

    attempts: int | None = None
    #: time that one attempt may take
    timeout: SpanOrNone = usually(None)
    turns: int | None = None
    money: float | None = None
    tokens: int | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        for field in ("attempts", "turns"):
            value = getattr(self, field)
            if value is not None:
                force_setattr(self, field, count(value, f"TaskLimits: {field}", least=1))
        force_setattr(self, "timeout", duration_or_none(self.timeout, "TaskLimits: timeout"))
        _check_spending(self)


def has_caps(limits: Limits | TaskLimits) -> bool:
    """Whether money, tokens or calls are limited."""
    return limits.money is not None or limits.tokens is not None or limits.calls is not None


def _check_spending(limits: Limits | TaskLimits) -> None:
    whose = type(limits).__name__
    if limits.money is not None:
        force_setattr(limits, "money", amount(limits.money, f"{whose}: money"))
    for field in ("tokens", "calls"):
        value = getattr(limits, field)
        if value is not None:
            force_setattr(limits, field, count(value, f"{whose}: {field}"))
