"""How long a failed task waits before it is tried again."""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.facts.argument_checks import CheckedKeywords, Span, amount, duration, usually


class RetryPolicy(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """The backoff between tries. It doubles up to a cap, with jitter."""

    first: Span = usually(timedelta(seconds=1))
    #: of every wait, including the first: with a cap below `first`, every wait is the cap
    cap: Span = usually(timedelta(minutes=1))
    #: the largest share by which a wait is shortened at random
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for field in ("first", "cap"):
            what = f"RetryPolicy: {field}"
            force_setattr(self, field, duration(getattr(self, field), what, may_be_zero=True))
        jitter = float(amount(self.jitter, "RetryPolicy: jitter", most=1))
        force_setattr(self, "jitter", jitter)

    def backoff(self, tries: int, draw: float) -> timedelta:
        """The wait after this many failures; `draw` is between 0 and 1."""
        longest = self.first
        for _ in range(
            min(tries - 1, 40)
        ):  # doubled one by one: a large power overflows a timedelta
            if longest >= self.cap:
                break
            longest *= 2
        longest = min(self.cap, longest)
        return longest * (1 - self.jitter * draw)
