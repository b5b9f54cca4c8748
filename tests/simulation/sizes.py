"""What must hold of numbers of places that follow the work: no flutter, and no queue left waiting for ever."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from chargehand.decisions.elastic_capacity import Elastic

#: run, task, and how often it was begun
Offer: TypeAlias = tuple[str, str, int]


class Gauge:
    """Watches one such number and remembers how it changed."""

    def __init__(self, name: str, size: int | Elastic) -> None:
        self.name = name
        self.bounds = size if isinstance(size, Elastic) else None
        self.size = size.least if isinstance(size, Elastic) else size
        self._changed_at: datetime | None = None
        self._turned_at: datetime | None = None
        self._has_grown: bool | None = None
        #: what waits for nothing but a place, and since when
        self._waiting: dict[Offer, datetime] = {}

    def i47_it_turns_at_most_once_a_period(self, size: int, now: datetime) -> str:
        """Judge what the size is now."""
        before, self.size = self.size, size
        if size == before:
            return ""
        if self.bounds is None or not self.bounds.least <= size <= self.bounds.most:
            return f"{self.name} has {size} places, its bounds are {self.bounds}"
        self._changed_at = now
        turned_at, had_grown = self._turned_at, self._has_grown
        self._has_grown = size > before
        if self._has_grown == had_grown:
            return ""
        self._turned_at = now
        is_soon = turned_at is not None and now - turned_at < self.bounds.period
        return f"{self.name} turns from growing to shrinking, or back, too soon" if is_soon else ""

    def i47_a_queue_that_waits_makes_it_grow(self, now: datetime, waiting: Iterable[Offer]) -> str:
        """Judge whether something that waits for nothing else has waited too long."""
        self._waiting = {offer: self._waiting.get(offer, now) for offer in waiting}
        if self.bounds is None or self.size >= self.bounds.most or not self._waiting:
            return ""
        since = min(self._waiting.values())
        since = since if self._changed_at is None else max(since, self._changed_at)
        is_long = now - since > self.bounds.wait + self.bounds.period
        return f"{self.name} stays at {self.size} since {since}, and work waits" if is_long else ""
