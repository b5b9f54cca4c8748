"""Passes the events of runs, and of their nested runs, to listeners."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from chargehand.facts.events import (
    KINDS,
    AttemptFinished,
    Event,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
)
from chargehand.facts.outcome import NeedsInput
from chargehand.presentation.run_status import nested_in
from chargehand.supervisor import Supervisor


class Listener(Protocol):
    """Gets the events of one run."""

    def hear(self, event: Event) -> None:
        """Take an event of the run itself."""

    def hear_below(self, event: Event) -> None:
        """Take an event of a nested run, which may be nested in this run or in another one."""


class RunListener:
    """Passes the events of a supervisor's runs to the listeners of each run."""

    def __init__(self, boss: Supervisor) -> None:
        self._open: dict[str, list[Listener]] = {}
        boss.on(*KINDS.values())(self._hear)
        for nested in dict.fromkeys(each for _, each in nested_in(boss)):
            nested.on(*KINDS.values())(self._hear_below)

    @contextmanager
    def listening(self, run: str, listener: Listener) -> Iterator[None]:
        """Pass the events of a run to `listener` inside the block. The run need not exist yet."""
        listeners = self._open.setdefault(run, [])
        listeners.append(listener)
        try:
            yield
        finally:
            listeners.remove(listener)
            if not listeners:
                del self._open[run]

    def _hear(self, run: str, event: Event) -> None:
        for listener in self._open.get(run, ()):
            listener.hear(event)

    def _hear_below(self, _: str, event: Event) -> None:
        for listeners in self._open.values():
            for listener in listeners:
                listener.hear_below(event)


def is_about_people(event: Event) -> bool:
    """Whether this event opens or closes a question."""
    is_asking = isinstance(event, AttemptFinished) and isinstance(event.outcome, NeedsInput)
    return is_asking or isinstance(event, (PersonAsked, QuestionAnswered, QuestionExpired))
