"""When a circuit breaker opens, and for how long, in numbers."""

from msgspec import Struct


class BreakerFigures(Struct, frozen=True, kw_only=True):
    """A `BreakerPolicy` in which every figure is set."""

    failures: int
    rest: float
    longest_rest: float
