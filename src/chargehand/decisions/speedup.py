"""The speed-up of a run: how much faster it was than running its tasks one after another.

The speed-up is the work of all finished attempts, divided by the time from the request to the end. The steps of an
attempt that ended early (it was lost or preempted, or it asked a person) also count as work if a later attempt
continued from them. Time in which nothing ran because a person was asked, the run was paused, or no process led it
does not count. Traces, reports, the HTTP API and the dashboard show this figure; `SpeedupSoFar` is the same figure of a
run in progress, for the live view.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from chargehand.decisions.budget import NESTED
from chargehand.decisions.measured_critical_path import covered
from chargehand.decisions.trace_types import AttemptSpan, StepKind, StepSpan
from chargehand.facts import events
from chargehand.facts.outcome import Done, NeedsInput

#: start and end of a wait for a person; None: it still waits
PersonWait: TypeAlias = tuple[datetime, datetime | None]
#: the run (empty: the run itself), task and number of an attempt
_Attempt: TypeAlias = tuple[str, str, int]
_PAUSED, _UNLED = "paused", "unled"


class PersonWaits:
    """A fold over a run's events that collects the times in which it waited for a person or a leader."""

    def __init__(self) -> None:
        self._ended: list[PersonWait] = []
        self._open: dict[str, datetime] = {}

    @property
    def spans(self) -> list[PersonWait]:
        return [*self._ended, *((began_at, None) for began_at in self._open.values())]

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a person or a leader now."""
        return bool(self._open)

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


def kept_steps(attempts: Sequence[AttemptSpan]) -> list[list[StepSpan]]:
    """For each attempt: its finished steps that are part of a result, its own or that of a later attempt.

    Walks backwards: whether the steps of an attempt are used depends on the next attempt at its task.
    """
    used: dict[str, bool] = {}
    kept: list[list[StepSpan]] = []
    for attempt in reversed(attempts):
        is_of_use = attempt.ending in ("", "done") or (
            attempt.is_carried_on and used.get(attempt.task, False)
        )
        used[attempt.task] = is_of_use
        kept.append([step for step in attempt.steps if is_of_use and _is_done(step)])
    return kept[::-1]


def _is_done(step: StepSpan) -> bool:
    return step.ended_at is not None and (not step.error or step.kind is StepKind.TOOL)


def kept_time(steps: Iterable[StepSpan]) -> timedelta:
    """How long at least one of these steps was running."""
    return covered((step.began_at, step.ended_at) for step in steps if step.ended_at is not None)


def work_of(attempts: Sequence[AttemptSpan], below: Mapping[str, timedelta]) -> timedelta:
    """The total work of all finished attempts; `below` has the work of nested runs, by task.

    This is service time: the time that calls wait for their provider does not count.
    """
    work = timedelta(0)
    for attempt, steps in zip(attempts, kept_steps(attempts), strict=True):
        if attempt.ending == "done":
            work += below.get(attempt.task, attempt.service)
        elif attempt.ending and attempt.task not in below:  # its kept steps: it ended early
            waited = timedelta(seconds=sum(step.waited for step in steps))
            work += max(kept_time(steps) - waited, timedelta(0))
    return work


def idle_for_people(
    attempts: Sequence[AttemptSpan], waits: Sequence[PersonWait], end: datetime
) -> timedelta:
    """How long no attempt ran while only a person could move the run."""
    if not waits:
        return timedelta(0)
    # Each mark has an instant and its change of two counts: running attempts, and waits for people.
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


class SpeedupSoFar:
    """The speed-up of a run in progress, from its events and those of its nested runs, each in constant time.

    Running attempts count with the time that they have run. An attempt that leads a nested run counts with the attempts
    of that run, because it does nothing itself. The time that calls waited for their provider is not left out yet.
    """

    def __init__(self) -> None:
        self._began_at: datetime | None = None
        self._at: datetime | None = None
        self._done = timedelta(0)
        self._idle = timedelta(0)
        self._waits = PersonWaits()
        #: by run (empty: the run itself), task and number: when an attempt began
        self._running: dict[_Attempt, datetime] = {}
        #: by nested run: the attempt that leads it
        self._leading: dict[str, _Attempt] = {}
        #: attempts whose nested runs have been heard of
        self._above: set[_Attempt] = set()
        #: how many attempts of the run itself are running
        self._count = 0

    @property
    def has_work(self) -> bool:
        """Whether anything has been done."""
        return bool(self._done or self._running)

    def hear(self, event: events.Event, run: str = "") -> None:
        """Take an event of the run, or of a nested run."""
        at = event.at
        if self._began_at is None:
            self._began_at = at
        if self._at is not None:
            self._idle += self._idle_since(self._at, at)
        self._at = at if self._at is None else max(self._at, at)
        if run in self._leading:
            self._above.add(self._leading[run])
        if not run:
            self._waits.apply(event)
        match event:
            case events.AttemptStarted():
                self._running[run, event.task, event.attempt] = at
                self._count += not run
            case events.AttemptFinished():
                self._end(
                    (run, event.task, event.attempt), at, is_done=isinstance(event.outcome, Done)
                )
            case events.AttemptLost() | events.AttemptPreempted() | events.AttemptParked():
                self._end((run, event.task, event.attempt), at, is_done=False)
            case events.StepStarted(name=name) if name == NESTED:
                nested = event.about.read()
                if isinstance(nested, dict):
                    leading = (run, event.task, event.attempt)
                    self._leading[str(nested.get("run"))] = leading
            case _:
                pass

    def at(self, now: datetime) -> float:
        """The speed-up at this time; 0 if no time has passed."""
        if self._began_at is None or self._at is None:
            return 0.0
        began_at, idle = self._began_at, self._idle + self._idle_since(self._at, now)
        work = self._done
        for attempt, since in self._running.items():
            if attempt not in self._above:
                work += max(now - since, timedelta(0))
        took = now - began_at - idle
        return work / took if took > timedelta(0) else 0.0

    def _idle_since(self, before: datetime, at: datetime) -> timedelta:
        is_idle = self._waits.is_waiting and not self._count
        return max(at - before, timedelta(0)) if is_idle else timedelta(0)

    def _end(self, attempt: "_Attempt", at: datetime, *, is_done: bool) -> None:
        since = self._running.pop(attempt, None)
        if since is None:
            return
        self._count -= not attempt[0]
        if attempt in self._above:
            self._above.discard(attempt)
        elif is_done:
            self._done += max(at - since, timedelta(0))
