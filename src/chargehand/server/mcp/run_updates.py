"""Progress updates for an MCP client that waits for a run."""

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

#: most unsent lines; a slow client gets only the newest ones
MOST_LINES = 20


class Follower:
    """Follows a run for one caller, and collects progress for it."""

    def __init__(self, result: RunResult) -> None:
        self.changed = asyncio.Event()
        #: whether the run may have new questions
        self.may_ask = bool(result.questions)
        self._lines: deque[str] = deque([f"run {result.id}"], maxlen=MOST_LINES)
        self._words = ProgressLines(self._add)
        self._words.catch_up(result)
        self._total = len(result.tasks)
        self._settled = sum(task.state.is_settled for task in result.tasks.values())
        #: number of lines sent since the last task ended
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
        """Request a new check for questions."""
        self.may_ask = True
        self.changed.set()

    def news(self) -> Iterator[tuple[float, float | None, str]]:
        """The unsent updates: progress, total, and a line of text.

        MCP requires that progress increases with each update. Between the ends of two tasks, it approaches the next
        whole number without reaching it.
        """
        while self._lines:
            self._told += 1
            progress = self._settled + 1 - 1 / (self._told + 1)
            total = max(self._total, self._settled) + 1  # plus 1 for the answer
            yield progress, total if self._total else None, self._lines.popleft()

    def _add(self, line: str) -> None:
        self._lines.append(line.partition("  ")[2])  # without the time

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
