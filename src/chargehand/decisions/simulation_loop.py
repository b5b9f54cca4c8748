"""The simulation loop: runs the kernel on a virtual clock, with attempts that only take time.

It replaces the runtime, without a journal and workers: it takes the kernel from one instant to the next,
and the outcome of each attempt is known when the attempt starts.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.kernel import Batch, Kernel, RunMessage, StopAct
from chargehand.facts import events
from chargehand.facts.outcome import NOTHING_DONE, Cancelled, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.scheduler_commands import StartAttempt

Ending: TypeAlias = (
    events.AttemptFinished | events.AttemptLost | events.AttemptPreempted | events.AttemptParked
)


class Fate(Struct, frozen=True):
    """How a simulated attempt goes: its duration, its end, and further events."""

    length: timedelta
    #: the event that ends it; None: it is done
    ending: Ending | None = None
    #: further events that it causes, each with the time since its start
    beside: Sequence[tuple[timedelta, events.Event]] = ()
    #: if it is told to stop, it still takes its whole length
    is_stopped_later: bool = False


Fates: TypeAlias = Callable[[StartAttempt], Fate]


class Span(Struct, frozen=True):
    """One attempt. `start` and `end` are counted from time zero."""

    run: str
    task: str
    worker: str
    start: timedelta
    end: timedelta
    #: it was stopped before its end
    was_stopped: bool = False

    @property
    def length(self) -> timedelta:
        return self.end - self.start


class WaitedFor(StrEnum):
    """Why a task did not start earlier."""

    ARRIVAL = "arrival"  #: it started as soon as its run arrived
    NEED = "need"  #: the task before it in the path had to end first
    PLACE = "place"  #: the task before it in the path held the slot that it got


class PathLink(Struct, frozen=True):
    """One task of the path that determines the makespan."""

    run: str
    task: str
    waited_for: WaitedFor


class RunEnd(Struct, frozen=True):
    """The end of a simulated run. `arrived` and `ended` are counted from time zero."""

    status: events.RunStatus
    arrived: timedelta
    ended: timedelta

    @property
    def length(self) -> timedelta:
        return self.ended - self.arrived


class VirtualPool:
    """A pool on a virtual clock: goes from instant to instant and records spans and ends of runs."""

    def __init__(self, kernel: Kernel, fates: Fates, dawn: datetime) -> None:
        self.spans: list[Span] = []
        self.ends: dict[str, RunEnd] = {}
        self.arrived: dict[str, timedelta] = {}
        self._kernel = kernel
        self._fates = fates
        self._dawn = dawn
        self._agenda: list[tuple[datetime, int, str, events.Event | StartAttempt]] = []
        self._agenda_count = 0
        #: by run, task and attempt: index in `spans`, and the fate
        self._under_way: dict[tuple[str, str, int], tuple[int, Fate]] = {}

    def expect(self, run: str, at: datetime, event: events.Event) -> None:
        """Report this event to a run at this instant. A `RunRequested` starts the run."""
        if isinstance(event, events.RunRequested):
            self.arrived[run] = at - self._dawn
        self._note(at, run, event)

    def run_to_the_end(self) -> None:
        """Go from instant to instant until nothing is due any more."""
        while (now := self._next_instant()) is not None:
            self._carry_out(self._kernel.decide(self._happenings(now), now), now)

    def path(self, tasks: Mapping[tuple[str, str], Task]) -> tuple[PathLink, ...]:
        """The path that determines the makespan; `tasks` has all tasks by run and id."""
        return path_walked(self.spans, tasks, self.arrived)

    def _next_instant(self) -> datetime | None:
        due = self._kernel.next_due()
        if not self._agenda:
            return due
        return self._agenda[0][0] if due is None else min(due, self._agenda[0][0])

    def _happenings(self, now: datetime) -> list[RunMessage]:
        # All events of one instant together, as the runtime finds them in its inbox. Otherwise the first
        # free slot would go to the first ready task before the others are known.
        messages: list[RunMessage] = []
        while self._agenda and self._agenda[0][0] <= now:
            _, _, run, what = heappop(self._agenda)
            if isinstance(what, StartAttempt):
                if _key(what) in self._under_way:  # else it was stopped before
                    messages.append(self._finish(what, now))
                continue
            if isinstance(what, events.RunRequested):
                self._kernel.open(run)
            messages.append(RunMessage(run, replace(what, at=now)))
        return messages

    def _finish(self, start: StartAttempt, now: datetime) -> RunMessage:
        index, fate = self._under_way.pop(_key(start))
        self._kernel.free_place(start.run, start.task, start.attempt)
        if fate.ending is not None and not self.spans[index].was_stopped:
            return RunMessage(start.run, _shifted(fate.ending, now))
        was_stopped = self.spans[index].was_stopped
        outcome: Outcome = Cancelled(reason="out of time") if was_stopped else NOTHING_DONE
        return RunMessage(
            start.run,
            events.AttemptFinished(task=start.task, attempt=start.attempt, outcome=outcome, at=now),
        )

    def _carry_out(self, batch: Batch, now: datetime) -> None:
        for act in batch.acts:
            if isinstance(act, StopAct):
                self._cut_short(act, now)
            elif isinstance(act, StartAttempt):
                self._start(act, now)
            # Preemptions wait for the next step of an attempt, and simulated attempts have no steps.
        for run in batch.ended:
            last = batch.entries[run][-1]
            assert isinstance(last, events.RunFinished), "a run ends with its last entry"
            self.ends[run] = RunEnd(last.status, self.arrived[run], now - self._dawn)

    def _start(self, start: StartAttempt, now: datetime) -> None:
        fate = self._fates(start)
        began = now - self._dawn
        self._under_way[_key(start)] = (len(self.spans), fate)
        self.spans.append(Span(start.run, start.task, start.worker, began, began + fate.length))
        for offset, event in fate.beside:
            self._note(now + offset, start.run, event)
        self._note(now + fate.length, start.run, start)

    def _cut_short(self, stop: StopAct, now: datetime) -> None:
        index, fate = self._under_way[_key(stop)]
        if fate.is_stopped_later:
            return
        span = self.spans[index]
        self.spans[index] = replace(span, end=now - self._dawn, was_stopped=True)
        start = StartAttempt(stop.run, stop.task, stop.attempt, span.worker, "")
        self._note(now, stop.run, start)

    def _note(self, at: datetime, run: str, what: events.Event | StartAttempt) -> None:
        self._agenda_count += 1
        heappush(self._agenda, (at, self._agenda_count, run, what))


def path_walked(
    spans: Sequence[Span], tasks: Mapping[tuple[str, str], Task], arrived: Mapping[str, timedelta]
) -> tuple[PathLink, ...]:
    """Walk back from the last end, each time to an attempt that ended when the current one started."""
    ended: dict[timedelta, list[int]] = {}
    for index, span in enumerate(spans):
        ended.setdefault(span.end, []).append(index)
    links: list[PathLink] = []
    here = max(range(len(spans)), key=lambda index: spans[index].end, default=None)
    while here is not None:
        span = spans[here]
        # Only attempts that started earlier can have made way for it. This also ends the walk
        # if tasks take no time.
        before = [index for index in ended.get(span.start, ()) if index < here]
        task = tasks.get((span.run, span.task))
        needs = set() if task is None else {need.task for need in task.all_needs}
        needed = [i for i in before if spans[i].run == span.run and spans[i].task in needs]
        same_worker = [i for i in before if spans[i].worker == span.worker]
        why = WaitedFor.ARRIVAL
        here = None
        if needed:
            why, here = WaitedFor.NEED, needed[-1]
        elif before and span.start > arrived[span.run]:
            why, here = WaitedFor.PLACE, (same_worker or before)[-1]
        links.append(PathLink(span.run, span.task, why))
    return tuple(reversed(links))


def _shifted(ending: Ending, now: datetime) -> Ending:
    if isinstance(ending, events.AttemptParked):
        return replace(ending, due_at=now + (ending.due_at - ending.at), at=now)
    return replace(ending, at=now)


def _key(act: StartAttempt | StopAct) -> tuple[str, str, int]:
    return act.run, act.task, act.attempt
