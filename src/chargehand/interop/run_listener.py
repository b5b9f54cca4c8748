"""An ear for runs: hears what happens to them, and when they may have come to wait for a person."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from chargehand.facts.events import KINDS, AttemptFinished, Event
from chargehand.facts.outcome import NeedsInput
from chargehand.supervisor import Supervisor

Tell: TypeAlias = Callable[[Event], None]


class Listening:
    """Listens to one run while it goes on."""

    def __init__(self, tell: Tell | None) -> None:
        self.tell = tell
        #: somebody has asked something, of this run or of one that may be below it
        self.is_asked = False
        #: set by whatever happens after that
        self.news = asyncio.Event()


class RunListener:
    """Hears the events of a supervisor's runs and, as far as questions go, of those below it."""

    def __init__(self, boss: Supervisor) -> None:
        self._open: dict[str, list[Listening]] = {}
        for each in _with_those_below(boss):
            each.on(*KINDS.values())(self._hear)

    @contextmanager
    def listening(self, run: str, tell: Tell | None) -> Iterator[Listening]:
        """Listen to a run from now on, whether it has begun or not."""
        one = Listening(tell)
        self._open.setdefault(run, []).append(one)
        try:
            yield one
        finally:
            self._open[run].remove(one)
            if not self._open[run]:
                del self._open[run]

    def _hear(self, run: str, event: Event) -> None:
        for one in self._open.get(run, ()):
            if one.tell is not None:
                one.tell(event)
        is_question = isinstance(event, AttemptFinished) and isinstance(event.outcome, NeedsInput)
        for listeners in self._open.values():
            for one in listeners:
                one.is_asked = one.is_asked or is_question
                if one.is_asked:
                    one.news.set()


def _with_those_below(boss: Supervisor) -> list[Supervisor]:
    found = [boss]
    for each in found:  # grows while it is walked
        below = [worker for worker in each.roster if isinstance(worker, Supervisor)]
        found += [worker for worker in below if worker not in found]
    return found
