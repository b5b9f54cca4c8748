"""A breaker stops asking somebody who keeps failing, and tries again with one call at a time."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import CheckedKeywords, count, duration_or_none


class BreakerFigures(Struct, frozen=True, kw_only=True):
    """A policy with nothing left open."""

    failures: int
    rest: float
    longest_rest: float


#: of a model provider
OF_PROVIDERS = BreakerFigures(failures=5, rest=15.0, longest_rest=300.0)
#: of a worker: it works on many things at once, so that one blip is many failures in a row
OF_WORKERS = BreakerFigures(failures=10, rest=5.0, longest_rest=60.0)


class BreakerPolicy(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """When a circuit breaker opens, and for how long.

    None: 10 failures, 5 s and 60 s for a worker (`Supervisor(breaker=…)`), and 5 failures, 15 s
    and 300 s for a model provider (`ModelGateway(breaker=…)`).
    """

    #: in a row; 0: it never opens
    failures: int | None = None
    #: seconds, or a `timedelta`; doubled each time a probe fails
    rest: float | None = None
    longest_rest: float | None = None

    def __post_init__(self) -> None:
        if self.failures is not None:
            count(self.failures, "BreakerPolicy: failures")
        for field in ("rest", "longest_rest"):
            what = f"BreakerPolicy: {field}"
            given = duration_or_none(getattr(self, field), what, may_be_zero=True)
            force_setattr(self, field, None if given is None else given.total_seconds())
            if given is not None and not given:
                raise UsageError(f"{what}=0 must be more than 0; failures=0 turns the breaker off")
        if self.rest and self.longest_rest and self.rest > self.longest_rest:
            raise UsageError(
                f"BreakerPolicy(rest={self.rest:g}, longest_rest={self.longest_rest:g}): "
                "rest must be no longer than longest_rest"
            )

    def over(self, usual: BreakerFigures) -> BreakerFigures:
        """These figures, completed with the usual ones.

        A given rest may be longer than the usual longest one, and the other way round.
        """
        rest, longest = self.rest, self.longest_rest
        if rest is None:
            rest = usual.rest if longest is None else min(usual.rest, longest)
        if longest is None:
            longest = max(usual.longest_rest, rest)
        failures = usual.failures if self.failures is None else self.failures
        return BreakerFigures(failures=failures, rest=rest, longest_rest=longest)


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"  #: calls pass
    OPEN = "open"  #: no call passes before its rest is over
    HALF_OPEN = "half_open"  #: one probe is out; everybody else waits for what it says


class Breaker:
    """Pure: instants are seconds on a steady clock and come from the caller."""

    def __init__(self, figures: BreakerFigures) -> None:
        self._figures = figures
        self.state = BreakerState.CLOSED
        self.last_error = ""
        self._failures = 0
        self._rest = self._figures.rest
        self._opens_until = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a call may be tried; 0: now; infinity: when the probe is back."""
        match self.state:
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.OPEN:
                return max(self._opens_until - now, 0.0)
            case BreakerState.HALF_OPEN:
                return float("inf")

    @property
    def opens_at(self) -> float:
        """When an open one lets its next probe through."""
        return self._opens_until

    def start(self) -> None:
        """A call goes; after a rest it is the probe."""
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN

    def succeed(self) -> None:
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._rest = self._figures.rest

    def fail(self, now: float, error: str) -> None:
        """A call failed in a way that speaks against whoever was called."""
        self._failures += 1
        self.last_error = error
        if self.state is BreakerState.HALF_OPEN:
            self._rest = min(self._rest * 2, self._figures.longest_rest)
            self._open(now)
        elif self.state is BreakerState.CLOSED and 0 < self._figures.failures <= self._failures:
            self._open(now)

    def withdraw(self) -> None:
        """The call came to nothing for reasons of its own; a probe gives its turn back."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self._opens_until = now + self._rest
