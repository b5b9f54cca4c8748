"""What a client is told while it waits for a run: how far it is, and what has changed, in words."""

import asyncio
from collections import deque
from collections.abc import Iterator

from chargehand.decisions.system_tasks import is_planned
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    PlanAdopted,
    PlanAmended,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.outcome import Done
from chargehand.presentation.event_relay import is_about_people
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.result import RunResult

#: that wait to be told; a client that reads slowly is told the newest ones
MOST_LINES = 20


class Follower:
    """What one caller hears of the run it waits for."""

    def __init__(self, result: RunResult) -> None:
        self.changed = asyncio.Event()
        #: whether it is worth looking what the run asks
        self.may_ask = bool(result.questions)
        self._lines: deque[str] = deque([f"run {result.id}"], maxlen=MOST_LINES)
        self._words = ProgressLines(self._add)
        self._words.catch_up(result)
        self._total = len(result.tasks)
        self._settled = sum(task.state.is_settled for task in result.tasks.values())
        #: since the last task was settled
        self._told = 0

    def hear(self, event: Event) -> None:
        before = self._settled
        self._count(event)
        self._words.hear(event)
        if self._settled > before:
            self._told = 0
        if is_about_people(event):
            self.may_ask = True
        self.changed.set()

    def hear_below(self, event: Event) -> None:
        if is_about_people(event):
            self.look_again()

    def look_again(self) -> None:
        """Have it looked what the run asks now."""
        self.may_ask = True
        self.changed.set()

    def news(self) -> Iterator[tuple[float, float | None, str]]:
        """What is to be told: how far the run is, out of how much, and a line of words.

        The protocol wants every number larger than the one before. Between two tasks that are settled
        it creeps towards the next whole number, and never gets there.
        """
        while self._lines:
            self._told += 1
            progress = self._settled + 1 - 1 / (self._told + 1)
            total = max(self._total, self._settled) + 1  # the answer is one thing more
            yield progress, total if self._total else None, self._lines.popleft()

    def _add(self, line: str) -> None:
        self._lines.append(line.partition("  ")[2])  # without the time of day

    def _count(self, event: Event) -> None:
        match event:
            case PlanAdopted():
                self._total += len(event.plan.tasks)
            case TaskAdded():
                self._total += 1
            case PlanAmended():
                self._total += len(event.added) - len(event.removed)
            case AttemptFinished(outcome=Done()) | TaskFailed() | TaskSkipped():
                self._settled += is_planned(event.task)
            case _:
                pass
