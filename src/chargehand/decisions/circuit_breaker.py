"""A breaker stops asking somebody who keeps failing, and tries again with one call at a time."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import CheckedKeywords, count, duration


class BreakerPolicy(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """When a circuit breaker opens, and for how long."""

    #: in a row; 0: it never opens
    failures: int = 5
    #: seconds, or a `timedelta`; doubled each time a probe fails
    rest: float = 15.0
    longest_rest: float = 300.0

    def __post_init__(self) -> None:
        count(self.failures, "BreakerPolicy: failures")
        for field in ("rest", "longest_rest"):
            given = duration(getattr(self, field), f"BreakerPolicy: {field}", may_be_zero=True)
            force_setattr(self, field, given.total_seconds())
        if not 0 < self.rest <= self.longest_rest:
            raise UsageError(
                f"BreakerPolicy(failures={self.failures}, rest={self.rest:g}, longest_rest="
                f"{self.longest_rest:g}): rest must be more than 0 and no longer than "
                "longest_rest"
            )


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"  #: calls pass
    OPEN = "open"  #: no call passes before its rest is over
    HALF_OPEN = "half_open"  #: one probe is out; everybody else waits for what it says


class Breaker:
    """Pure: instants are seconds on a steady clock and come from the caller."""

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        self._policy = policy or BreakerPolicy()
        self.state = BreakerState.CLOSED
        self.last_error = ""
        self._failures = 0
        self._rest = self._policy.rest
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
        self._rest = self._policy.rest

    def fail(self, now: float, error: str) -> None:
        """A call failed in a way that speaks against whoever was called."""
        self._failures += 1
        self.last_error = error
        if self.state is BreakerState.HALF_OPEN:
            self._rest = min(self._rest * 2, self._policy.longest_rest)
            self._open(now)
        elif self.state is BreakerState.CLOSED and 0 < self._policy.failures <= self._failures:
            self._open(now)

    def withdraw(self) -> None:
        """The call came to nothing for reasons of its own; a probe gives its turn back."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self._opens_until = now + self._rest
