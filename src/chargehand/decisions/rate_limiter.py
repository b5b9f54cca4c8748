"""The rate limiter of one provider and key: configured limits, and limits learned from its responses.

Pure: instants are seconds on a steady clock and come from the caller. A 429 slows down all calls that
share the key; it is not a failure of the call that got it.
"""

import math
from collections import deque
from typing import NamedTuple, TypeVar

from msgspec import Struct

from chargehand.errors import UsageError

#: calls at once before anything is known; doubles with each round of replies until the first 429
FIRST_WINDOW = 16
#: the part of a minute's requests and tokens that may be sent at once
REQUEST_BURST, TOKEN_BURST = 1 / 6, 1 / 2
LONGEST_BACKOFF = 30.0
FIRST_BACKOFF = 0.25
#: the largest share by which a backoff is lengthened at random, so that processes that share a key spread out
JITTER = 0.25
#: doublings after which every backoff is the longest: a larger power overflows
_MOST_DOUBLINGS = 10


class Rates(Struct, frozen=True, kw_only=True):
    """The rate limits of a provider. None: unknown, learned from its responses."""

    #: per minute: a sixth of them at once, then evenly spread; 120 means 20 at once, then 2 per second
    requests: float | None = None
    #: per minute: half of them at once, then evenly spread
    tokens: float | None = None
    #: calls at once
    concurrency: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens", "concurrency"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"Rates({name}={value}) must be more than 0")

    def stricter(self, other: "Rates") -> "Rates":
        """The lower value of each limit."""
        return Rates(
            requests=_lower(self.requests, other.requests),
            tokens=_lower(self.tokens, other.tokens),
            concurrency=_lower(self.concurrency, other.concurrency),
        )


#: a rate limit: a number of calls, or units a minute
Limit = TypeVar("Limit", int, float)


def _lower(one: Limit | None, other: Limit | None) -> Limit | None:
    return min((each for each in (one, other) if each is not None), default=None)


class Bucket:
    """A token bucket: `a_minute` units a minute, at most `size` at once. Its level is never negative."""

    def __init__(self, a_minute: float, size: float) -> None:
        self.rate = a_minute / 60
        self.size = max(size, 1.0)
        self._level = self.size
        self._at = -math.inf

    def wait(self, units: float, now: float) -> float:
        """Seconds until this many units may be taken; more than `size` units wait until the bucket is full."""
        lacking = min(units, self.size) - self._refilled(now)
        return lacking / self.rate if lacking > 1e-9 else 0.0

    def take(self, units: float, now: float) -> None:
        self._level = max(self._refilled(now) - units, 0.0)

    def give_back(self, units: float, now: float) -> None:
        self._level = min(self._refilled(now) + units, self.size)

    def _refilled(self, now: float) -> float:
        if now > self._at:
            self._level = min(self._level + (now - self._at) * self.rate, self.size)
            self._at = now
        return self._level


class ReachedLimit(NamedTuple):
    """A limit that a call waits for."""

    words: str
    #: configured with `Rates`; otherwise stated by the provider or learned from its responses
    is_own: bool


class Limiter:
    """Says when the next call may start, and adapts: a 429 halves the window, successes let it grow again."""

    def __init__(self, rates: Rates | None = None) -> None:
        rates = rates or Rates()
        self.in_flight = 0
        self.window = float(rates.concurrency or FIRST_WINDOW)
        self._most = float(rates.concurrency or math.inf)
        self._requests = (
            None
            if rates.requests is None
            else Bucket(rates.requests, rates.requests * REQUEST_BURST)
        )
        self._tokens = (
            None if rates.tokens is None else Bucket(rates.tokens, rates.tokens * TOKEN_BURST)
        )
        #: the limits that the provider's headers stated
        self._stated: set[str] = set()
        self._pace: Bucket | None = None
        self._is_slow_start = True
        self._blocked_until = -math.inf
        self._slowed_at = -math.inf
        self._setbacks = 0
        self._successes: deque[float] = deque(maxlen=64)

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a call of about this many tokens may start; 0: now; infinity: when a call returns."""
        if self.in_flight >= max(math.floor(self.window), 1):
            return math.inf
        waits = [self._blocked_until - now]
        waits += [
            bucket.wait(1, now) for bucket in (self._requests, self._pace) if bucket is not None
        ]
        if self._tokens is not None:
            waits.append(self._tokens.wait(tokens, now))
        return max(0.0, *waits)

    def hold(self, tokens: int, now: float) -> ReachedLimit:
        """The limit that a call of about this many tokens waits for."""
        limits = ((self._requests, 1, "requests"), (self._tokens, tokens, "tokens"))
        for bucket, units, name in limits:
            if bucket is not None and bucket.wait(units, now) > 0:
                whose = "the limit" if name not in self._stated else "the provider's limit"
                words = f"{whose} of {_a_minute(bucket)} {name} a minute"
                return ReachedLimit(words, is_own=name not in self._stated)
        if self._pace is not None and self._pace.wait(1, now) > 0:
            words = (
                f"after a 429, calls go at the rate of recent replies: {_a_minute(self._pace)} requests a minute, "
                "and more while they succeed"
            )
            return ReachedLimit(words, is_own=False)
        window = max(math.floor(self.window), 1)
        at_once = f"{window} call{'s' * (window > 1)} at once"
        if window >= self._most:
            return ReachedLimit(f"the limit of {at_once}", is_own=True)
        since = "" if self._is_slow_start else "after a refused call, "
        return ReachedLimit(
            f"{since}no more than {at_once}, and more while they succeed", is_own=False
        )

    def time_for(self, calls: int) -> float:
        """Seconds that this many calls take at the known rates; 0: no rate is known."""
        rates = [b.rate for b in (self._requests, self._pace) if b is not None]
        return calls / min(rates) if rates else 0.0

    def shut(self, now: float) -> float:
        """Seconds for which no call may start, because the provider asked for a pause or a backoff runs."""
        return max(self._blocked_until - now, 0.0)

    def start(self, tokens: int, now: float) -> None:
        """A call starts now."""
        self.in_flight += 1
        for bucket in (self._requests, self._pace):
            if bucket is not None:
                bucket.take(1, now)
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def succeed(self, reserved: int, used: int, now: float) -> None:
        """A call returned its reply."""
        self.in_flight -= 1
        self._setbacks = 0
        self._successes.append(now)
        # The window doubles with each round until the first setback, then grows by one call a round.
        grown = 1.0 if self._is_slow_start else 1.0 / self.window
        self.window = min(self.window + grown, self._most)
        if self._pace is not None:
            self._pace.rate *= 1.05
        if self._tokens is not None and used < reserved:
            self._tokens.give_back(reserved - used, now)

    def fail(self) -> None:
        """A call returned an error that says nothing about the rate."""
        self.in_flight -= 1

    def slow_down(
        self, began: float, now: float, retry_after: float | None, draw: float = 0.0
    ) -> None:
        """A call that started at `began` was refused because of the rate; `draw` is between 0 and 1."""
        self.in_flight -= 1
        self._block(now + (retry_after or 0.0))
        if began <= self._slowed_at:
            return  # it was sent before the last slow-down, so it says nothing new
        self._slowed_at = now
        self._is_slow_start = False
        self.window = max(self.window / 2, 1.0)
        self._slow_pace(now)
        # Also where the provider names a wait: one of no time at all must not have it called without a pause.
        backoff = min(FIRST_BACKOFF * 2 ** min(self._setbacks, _MOST_DOUBLINGS), LONGEST_BACKOFF)
        self._block(now + backoff * (1 + JITTER * draw))
        self._setbacks += 1

    def _block(self, until: float) -> None:
        self._blocked_until = max(self._blocked_until, until)

    def agree(self, requests: float | None, tokens: float | None) -> None:
        """Take over the limits a minute that the provider's headers state."""
        if requests and (self._requests is None or self._requests.rate != requests / 60):
            self._requests = Bucket(requests, requests * REQUEST_BURST)
            self._stated.add("requests")
        if tokens and (self._tokens is None or self._tokens.rate != tokens / 60):
            self._tokens = Bucket(tokens, tokens * TOKEN_BURST)
            self._stated.add("tokens")

    def _slow_pace(self, now: float) -> None:
        """From now on, call no faster than the provider replied recently."""
        recent = [at for at in self._successes if now - at <= 10]
        if len(recent) >= 4:
            # A little slower than the recent replies: any faster, and the provider would refuse again.
            rate = 0.9 * len(recent) / max(now - recent[0], 0.05)
            if self._pace is not None:
                rate = min(rate, self._pace.rate * 0.9)
            self._pace = Bucket(rate * 60, 1)
        elif self._pace is not None:
            self._pace.rate *= 0.7


def _a_minute(bucket: Bucket) -> str:
    units = bucket.rate * 60
    return f"{units:.0f}" if units >= 1 else f"{units:.2g}"
