"""The speed-up of a run: how much faster it was than its work one after another.

It is the work of all finished attempts, divided by the time from the request to the end. Time in which nothing
ran because a person was asked, the run was paused, or no process led it does not count. Traces, reports, the
HTTP API and the dashboard show this figure.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from chargehand.decisions.trace_types import AttemptSpan
from chargehand.facts import events
from chargehand.facts.outcome import NeedsInput

#: from when to when a run waited for a person; None: it still does
PersonWait: TypeAlias = tuple[datetime, datetime | None]
_PAUSED, _UNLED = "paused", "unled"


class PersonWaits:
    """A fold over a run's events that keeps when only a person could move it."""

    def __init__(self) -> None:
        self._ended: list[PersonWait] = []
        self._open: dict[str, datetime] = {}

    @property
    def spans(self) -> list[PersonWait]:
        return [*self._ended, *((began_at, None) for began_at in self._open.values())]

    def apply(self, event: events.Event) -> None:
        match event:
            case (
                events.AttemptFinished(outcome=NeedsInput(question=question))
                | events.PersonAsked(question=question)
            ):
                self._open.setdefault(question.id, event.at)
            case events.QuestionAnswered():
                self._end(event.question, event.at)
            case events.RunPaused():
                self._open.setdefault(_PAUSED, event.at)
            case events.RunUnpaused():
                self._end(_PAUSED, event.at)
            case events.RunReleased():
                self._open.setdefault(_UNLED, event.at)
            case events.RunLed():
                self._end(_UNLED, event.at)
            case _:
                pass

    def _end(self, name: str, at: datetime) -> None:
        if (began_at := self._open.pop(name, None)) is not None:
            self._ended.append((began_at, at))


def work_of(attempts: Iterable[AttemptSpan], below: Mapping[str, timedelta]) -> timedelta:
    """The work of all finished attempts added up; `below` is that of nested runs, by the task that each did.

    This is service time: waits of a call for its provider are left out.
    """
    done = (each for each in attempts if each.ending == "done")
    return sum((below.get(each.task, each.service) for each in done), timedelta(0))


def idle_for_people(
    attempts: Sequence[AttemptSpan], waits: Sequence[PersonWait], end: datetime
) -> timedelta:
    """How long nothing ran while only a person could move it."""
    if not waits:
        return timedelta(0)
    # Each with what it does to the count of open attempts, and of waits for people.
    marks = [(each.began_at, 1, 0) for each in attempts]
    marks += [(each.ended_at or end, -1, 0) for each in attempts]
    marks += [(began_at, 0, 1) for began_at, _ in waits]
    marks += [(ended_at or end, 0, -1) for _, ended_at in waits]
    idle, before, running, asked = timedelta(0), end, 0, 0
    for at, run, ask in sorted(marks):
        if asked and not running:
            idle += at - before
        before, running, asked = at, running + run, asked + ask
    return idle
