"""Time, as the supervisor sees it: an instant that never goes back, and a way to wait."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What the supervisor asks for the time."""

    def now(self) -> datetime:
        """The present instant in UTC; never earlier than the one before."""

    def not_before(self, at: datetime) -> None:
        """From now on never answer with an instant before `at`."""

    async def sleep_until(self, at: datetime) -> None:
        """Return once `now()` is at least `at`."""


#: counts the time the machine was asleep too, where the system offers it
_elapsed = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The wall clock as it was at the start, carried on by the machine's steady clock.

    So a wall clock that is set back or forth while a run is under way moves no timeout.
    """

    def __init__(self) -> None:
        #: seconds from the steady clock to the instant
        self._ahead = time.time() - time.clock_gettime(_elapsed)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._ahead + time.clock_gettime(_elapsed), UTC)

    def not_before(self, at: datetime) -> None:
        # A journal from before the wall clock was set back: go on from its newest event, so that
        # timers written then are late by the time we were down at most, not by the clock's jump.
        self._ahead += max((at - self.now()).total_seconds(), 0.0)

    async def sleep_until(self, at: datetime) -> None:
        while (left := (at - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - waiting is made here
            await asyncio.sleep(min(left, 3600))
