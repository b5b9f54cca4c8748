"""Timers: events that come by themselves later, of one run or of several, the earliest first."""

from collections.abc import Container
from datetime import datetime
from heapq import heappop, heappush

from msgspec.structs import replace

from chargehand.facts.events import Event


class Timers:
    """A heap of events by when they are due. Those due at the same instant come as they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, str, Event]] = []
        self._count = 0

    def set(self, due_at: datetime, run: str, event: Event) -> None:
        self._count += 1
        heappush(self._heap, (due_at, self._count, run, event))

    def pop(self, now: datetime) -> tuple[str, Event] | None:
        """The run and the event of the next timer that is due, with `now` as its instant."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, run, event = heappop(self._heap)
        return run, replace(event, at=now)

    def next_due(self, runs: Container[str] | None = None) -> datetime | None:
        """When the first timer is due. Timers of other runs than these are forgotten."""
        heap = self._heap
        while heap and runs is not None and heap[0][2] not in runs:
            heappop(heap)
        return heap[0][0] if heap else None
