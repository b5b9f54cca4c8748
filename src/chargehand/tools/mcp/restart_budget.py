"""How often a server that dies is started again."""

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from chargehand.facts.argument_checks import Span, count, duration, usually
from chargehand.tools.mcp.server_failure import ServerFailure

LONGEST_BACKOFF = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """At most so many restarts in any such window; each waits twice as long as the one before."""

    most: int = 3
    window: Span = usually(timedelta(minutes=5))
    backoff: Span = usually(timedelta(milliseconds=200))

    def __post_init__(self) -> None:
        count(self.most, "Restarts: most", most=1_000)
        object.__setattr__(self, "window", duration(self.window, "Restarts: window"))
        backoff = duration(self.backoff, "Restarts: backoff", may_be_zero=True)
        object.__setattr__(self, "backoff", backoff)


class RestartBudget:
    """What is left of the restarts of one server. Instants are those of one monotonic clock."""

    def __init__(self, terms: Restarts) -> None:
        self._terms = terms
        self._ends: deque[float] = deque(maxlen=terms.most + 1)

    def note_end(self, at: float) -> None:
        """A connection ended, or was never made."""
        self._ends.append(at)

    def delay(self, now: float) -> float:
        """How many seconds to wait before the next start."""
        recent = self._recent(now)
        if not recent:
            return 0.0
        seconds = self._terms.backoff.total_seconds() * 2.0 ** (recent - 1)
        return min(seconds, LONGEST_BACKOFF.total_seconds())

    def refusal(self, now: float, name: str) -> ServerFailure | None:
        """Why it is not started again for now; None: it may be."""
        if self._recent(now) <= self._terms.most:
            return None
        window = self._terms.window
        wait = window - timedelta(seconds=now - self._ends[0])
        return ServerFailure(
            f"MCP server {name!r} ended {len(self._ends)} times within {window.total_seconds():g} s "
            f"and is not started again for {wait.total_seconds():.0f} s",
            retry_after=wait,
        )

    def _recent(self, now: float) -> int:
        window = self._terms.window.total_seconds()
        return sum(1 for at in self._ends if now - at < window)
