"""A circuit breaker pauses a worker or provider that keeps failing, then tries one call at a time."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import CheckedKeywords, count, duration_or_none
from chargehand.facts.breaker_figures import BreakerFigures
from chargehand.facts.events import AttemptFinished
from chargehand.facts.outcome import Failed

#: usual figures for a model provider
OF_PROVIDERS = BreakerFigures(failures=5, rest=15.0, longest_rest=300.0)
#: usual figures for a worker: it runs many attempts at once, so one outage causes many failures in a row
OF_WORKERS = BreakerFigures(failures=10, rest=5.0, longest_rest=60.0)


#: not the worker's fault: the journal could not store its result, or a provider failed (which has its own breaker)
_NOT_ITS_FAULT = {
    "JournalFull",
    "ModelBusy",
    "ModelExhausted",
    "ModelGarbled",
    "ModelTooSlow",
    "ModelUnreachable",
}


class BreakerPolicy(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """When a circuit breaker opens, and for how long.

    None: 10 failures, 5 s and 60 s for a worker (`Supervisor(breaker=…)`), and 5 failures, 15 s
    and 300 s for a model provider (`ModelGateway(breaker=…)`).
    """

    #: failures in a row; 0: it never opens
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

        If only one of `rest` and `longest_rest` is given, the usual value of the other adapts to it.
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

    CLOSED = "closed"  #: calls are allowed
    OPEN = "open"  #: no call is allowed before the rest is over
    HALF_OPEN = "half_open"  #: one probe is in progress; all other calls wait for its result


class Breaker:
    """One circuit breaker. Pure: instants are seconds on a steady clock and come from the caller."""

    def __init__(self, figures: BreakerFigures) -> None:
        self._figures = figures
        self.state = BreakerState.CLOSED
        self.last_error = ""
        self._failures = 0
        self._rest = self._figures.rest
        self._opens_until = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a call may be tried; 0: now; infinity: when the probe has returned."""
        match self.state:
            case BreakerState.CLOSED:
                return 0.0
            case BreakerState.OPEN:
                return max(self._opens_until - now, 0.0)
            case BreakerState.HALF_OPEN:
                return float("inf")

    @property
    def opens_at(self) -> float:
        """When an open breaker allows its next probe."""
        return self._opens_until

    def start(self) -> None:
        """A call starts; after a rest, it is the probe."""
        if self.state is BreakerState.OPEN:
            self.state = BreakerState.HALF_OPEN

    def succeed(self) -> None:
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._rest = self._figures.rest

    def fail(self, now: float, error: str) -> None:
        """A call failed in a way that counts against the worker or provider."""
        self._failures += 1
        self.last_error = error
        if self.state is BreakerState.HALF_OPEN:
            self._rest = min(self._rest * 2, self._figures.longest_rest)
            self._open(now)
        elif self.state is BreakerState.CLOSED and 0 < self._figures.failures <= self._failures:
            self._open(now)

    def withdraw(self) -> None:
        """The call ended without saying anything about the worker or provider; the next call can be the probe."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self._opens_until = now + self._rest


def counts_against_worker(event: AttemptFinished) -> str:
    """The failure, in words, if it counts against the worker; empty if it does not."""
    outcome = event.outcome
    if type(outcome) is not Failed or not outcome.kind.backs_off or event.reused:
        return ""
    return "" if outcome.error in _NOT_ITS_FAULT else str(outcome)


def breaker_words(whose: str, until: datetime | None) -> str:
    """What waits for a breaker, in words that fit after "waits for". Without `until`, its probe is in progress."""
    if until is None:
        return f"the circuit breaker of {whose}, until its probe has ended"
    return f"the circuit breaker of {whose}, until {until.replace(microsecond=0).isoformat()}"
