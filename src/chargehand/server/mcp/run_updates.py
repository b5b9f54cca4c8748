"""Hearing what happens to runs: what has changed, in words, and when to look whether one asks something."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from chargehand.decisions.system_tasks import is_system_task
from chargehand.facts.events import (
    KINDS,
    AttemptFinished,
    Event,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    QuestionAnswered,
    QuestionExpired,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.outcome import Done, NeedsInput
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.presentation.run_status import nested_in
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor

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

    def hear_below(self) -> None:
        """Somebody is asked something, or no longer, by a run that may be below this one."""
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
                self._settled += not is_system_task(event.task)
            case _:
                pass


class RunUpdates:
    """Hears all that a supervisor does, and those below it, and passes it on to who waits for it."""

    def __init__(self, boss: Supervisor) -> None:
        self._followers: dict[str, set[Follower]] = {}
        boss.on(*KINDS.values())(self._hear)
        for _, nested in nested_in(boss):
            nested.on(*KINDS.values())(self._hear_below)

    @contextmanager
    def following(self, result: RunResult) -> Iterator[Follower]:
        """Hear what happens to this run from now on."""
        follower = Follower(result)
        group = self._followers.setdefault(result.id, set())
        group.add(follower)
        try:
            yield follower
        finally:
            group.discard(follower)
            if not group:
                self._followers.pop(result.id, None)

    def _hear(self, run: str, event: Event) -> None:
        for follower in self._followers.get(run, ()):
            follower.hear(event)

    def _hear_below(self, _: str, event: Event) -> None:
        if is_about_people(event):
            for group in self._followers.values():
                for follower in group:
                    follower.hear_below()


def is_about_people(event: Event) -> bool:
    """Whether somebody is asked something by this event, or no longer."""
    is_asking = isinstance(event, AttemptFinished) and isinstance(event.outcome, NeedsInput)
    return is_asking or isinstance(event, (PersonAsked, QuestionAnswered, QuestionExpired))
