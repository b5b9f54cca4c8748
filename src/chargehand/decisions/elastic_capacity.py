"""Elastic numbers of slots: more when tasks have waited for a slot, fewer when slots are idle.

Pure: instants are seconds on any clock and come from the caller.
"""

import math
from datetime import timedelta
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import (
    CheckedKeywords,
    Span,
    count,
    duration,
    usually,
)


class Elastic(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """A number of slots that follows the load, between two bounds.

    It grows when the next task in the queue has waited for a slot for `wait`: by the number of
    waiting tasks, at most to double, and not again before another `wait`. It grows at once for
    a task that is more urgent than a running one. It shrinks to the largest number in use when
    slots were idle for a whole `period`. It changes from growing to shrinking, or back, at most
    once per period.
    """

    least: int = 1
    most: int = 8
    wait: Span = usually(timedelta(seconds=1))
    period: Span = usually(timedelta(seconds=10))

    def __post_init__(self) -> None:
        for field in ("least", "most"):
            count(getattr(self, field), f"Elastic: {field}")
        force_setattr(self, "wait", duration(self.wait, "Elastic: wait", may_be_zero=True))
        force_setattr(self, "period", duration(self.period, "Elastic: period"))
        if not 1 <= self.least <= self.most:
            raise UsageError(
                f"Elastic(least={self.least}, most={self.most}): at least 1, and most not below least"
            )


class Demand(Struct, frozen=True):
    """The demand for slots."""

    #: taken slots
    busy: int
    #: tasks that wait for nothing but a slot
    waiting: int = 0
    #: since when the first of them waits
    since: float = 0.0
    #: how many of them would preempt a running attempt
    pressing: int = 0


class _Direction(IntEnum):
    SHRINKING = -1
    NONE = 0
    GROWING = 1


class Resizer:
    """Decides how many slots there should be. Call `fit` whenever the demand may have changed."""

    def __init__(self, bounds: Elastic) -> None:
        self.bounds = bounds
        self.size = bounds.least
        #: when to call `fit` again even if nothing changes; None: no need
        self.looks_at: float | None = None
        self._wait = bounds.wait.total_seconds()
        self._period = bounds.period.total_seconds()
        #: the highest demand since `_peak_from`
        self._peak = 0
        self._peak_from = -math.inf
        self._grown_at = -math.inf
        self._turned_at = -math.inf
        self._direction = _Direction.NONE

    def fit(self, demand: Demand, now: float) -> int:
        """The number of slots from now on; never fewer than are taken."""
        asked = demand.busy + demand.waiting
        self._peak = max(self._peak, asked)
        grows_at = self._grows_at(demand)
        if grows_at is not None and now >= grows_at:
            wanted = self._wanted(demand, now)
            self._grown_at = now
            self._become(wanted, _Direction.GROWING, now)
            self._watch(asked, now)
        elif now >= self._peak_from + self._period:
            wanted = max(self._peak, self.bounds.least)
            if wanted < self.size:
                self._become(wanted, _Direction.SHRINKING, now)
            self._watch(asked, now)
        self.looks_at = self._next_look(demand)
        return self.size

    def _grows_at(self, demand: Demand) -> float | None:
        """When to grow if this demand lasts; None: it is no reason to grow."""
        if not demand.waiting or demand.busy < self.size or self.size >= self.bounds.most:
            return None
        due_at = -math.inf if demand.pressing else self._waited_at(demand)
        is_turn = self._direction is _Direction.SHRINKING
        return max(due_at, self._turned_at + self._period) if is_turn else due_at

    def _waited_at(self, demand: Demand) -> float:
        """When the first task will have waited long enough."""
        return max(demand.since, self._grown_at) + self._wait

    def _wanted(self, demand: Demand, now: float) -> int:
        """The size to grow to: enough for all waiting tasks if they waited long enough, else for the pressing ones."""
        wanted = self.size + demand.pressing
        if now >= self._waited_at(demand):
            wanted = max(wanted, min(demand.busy + demand.waiting, 2 * self.size))
        return min(wanted, self.bounds.most)

    def _become(self, size: int, direction: _Direction, now: float) -> None:
        if direction is not self._direction:
            self._direction, self._turned_at = direction, now
        self.size = size

    def _watch(self, asked: int, now: float) -> None:
        """Measure the peak from now on. After growing, the size can only shrink after a whole period."""
        self._peak, self._peak_from = asked, now

    def _next_look(self, demand: Demand) -> float | None:
        grows_at = self._grows_at(demand)
        if grows_at is not None:
            return grows_at
        is_idle = max(demand.busy + demand.waiting, self.bounds.least) < self.size
        return self._peak_from + self._period if is_idle else None
