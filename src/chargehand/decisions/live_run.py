"""A live run: its schedule, results, budget account and timers, changed by one event at a time.

The kernel leads several live runs, a pool decides about one inside a transaction, and past runs are read
with one. Nothing else applies events to a run or admits reports about it.
"""

import traceback
from collections.abc import Container, Iterable
from datetime import datetime
from heapq import heappop, heappush

from msgspec.structs import replace

from chargehand.decisions.budget import Account
from chargehand.decisions.run_outputs_and_steps import RunResults
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.worker_breakers import BREAKER_EVENTS, WorkerBreakers
from chargehand.errors import InternalError
from chargehand.facts.events import (
    Event,
    PlanAdopted,
    PlanAmended,
    RunRequested,
    StepFinished,
    StepStarted,
    TaskAdded,
    tasks_added_by,
)
from chargehand.facts.limits import Limits, has_caps
from chargehand.facts.outcome import Done, Failed, failed_by
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import Command, Record, SetTimer


class Timers:
    """A heap of events by due time. Events that are due at the same instant come in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, str, Event]] = []
        self._count = 0

    def set(self, due_at: datetime, run: str, event: Event) -> None:
        self._count += 1
        heappush(self._heap, (due_at, self._count, run, event))

    def pop(self, now: datetime) -> tuple[str, Event] | None:
        """The run and the event of the next due timer, with `now` as its instant; None if none is due."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, run, event = heappop(self._heap)
        return run, replace(event, at=now)

    def next_due(self, runs: Container[str] | None = None) -> datetime | None:
        """When the first timer is due. Drops timers at the head of the heap that are of other runs than `runs`."""
        heap = self._heap
        while heap and runs is not None and heap[0][2] not in runs:
            heappop(heap)
        return heap[0][0] if heap else None


class LiveRun:
    """One run. Holds no clock and does no I/O.

    `take` is for reports, `enter` for events that were decided elsewhere, `read` and `replay` for stored
    events.
    """

    def __init__(
        self,
        run: str = "",
        *,
        retry: RetryPolicy | None = None,
        results: RunResults | None = None,
        above: Account | None = None,
        timers: Timers | None = None,
    ) -> None:
        self.run = run
        self.schedule = Schedule(retry)
        self.results = results or RunResults()
        #: the breakers of its workers, from past events; None if it was never replayed: whoever leads it knows more
        self.breakers: WorkerBreakers | None = None
        #: None: no cap on money, tokens or calls applies, neither its own nor of a run above it
        self.account: Account | None = None
        #: may be shared with other runs
        self.timers = timers or Timers()
        #: results of an earlier run, by a key computed from everything that they depend on
        self.reusable: dict[str, Done] = {}
        #: in a fork: results, and failures of items, of the run that it starts from, by task
        self.kept: dict[str, Done | Failed] = {}
        #: versions of the workers that have changed since the run began
        self.versions: dict[str, str] = {}
        #: digest and members of the roster, if it has changed and a person accepted the change
        self.accepted: tuple[str, dict[str, dict[str, str]]] = ("", {})
        #: epoch of its lease, before `RunLed` is applied
        self.epoch = 0
        #: the account of the run above it
        self._above = above

    def take(self, event: Event, written: list[Event]) -> list[Command]:
        """Apply a report and every decision that follows from it.

        Adds the events to store to `written`, in order: none if the report says nothing new. Returns the
        commands that the caller must carry out: offers, withdrawals and stops. If a decision raises,
        `written` has the events that were applied before.
        """
        admitted = self._admit(event)
        return [] if admitted is None else self.enter(admitted, written)

    def enter(self, event: Event, written: list[Event]) -> list[Command]:
        """Like `take`, for an event that is known to be valid and is not checked."""
        commands = self._apply(event)
        written.append(event)
        return self.follow(commands, written) if commands else commands

    def follow(self, commands: list[Command], written: list[Event]) -> list[Command]:
        """Carry out `Record` and `SetTimer` commands; returns the other commands."""
        schedule, left = self.schedule, []
        for command in commands:  # grows while it is walked
            if type(command) is Record:
                event = command.event
                if schedule.status is None and not schedule.is_moot(event):
                    commands += self._apply(event)
                    written.append(event)
            elif type(command) is SetTimer:
                self.timers.set(command.due_at, self.run, command.event)
            else:
                left.append(command)
        return left

    def read(self, event: Event) -> list[Command]:
        """Apply an event that another process stored. That process also stores the decisions that follow."""
        commands = [each for each in self._apply(event) if type(each) is not Record]
        return self.follow(commands, [])

    def replay(self, events: Iterable[Event]) -> None:
        """Apply past events. Afterwards, `Schedule.outstanding` returns the commands that are still due."""
        for event in events:
            self._apply(event)
            if type(event) in BREAKER_EVENTS:
                self.breakers = self.breakers or WorkerBreakers()
                self.breakers.apply(event)

    def _admit(self, event: Event) -> Event | None:
        """The event to record when `event` is reported; None if nothing is to be recorded."""
        admitted = self.schedule.admit(event)
        if type(admitted) is StepStarted:
            account = self.account
            if account is not None and account.refusal(admitted.task, admitted.reserve):
                return None
        elif type(admitted) is StepFinished and not self.results.has_begun(admitted):
            return None  # its start was refused, but the attempt did not wait for the refusal
        return admitted

    @property
    def limits(self) -> Limits:
        """The limits as they are now: a person may have changed the budget since the request."""
        return self.schedule.limits if self.account is None else self.account.limits

    def _apply(self, event: Event) -> list[Command]:
        self.results.apply(event)
        if self.account is not None:
            self.account.apply(event)
        elif type(event) in _OPENS_ACCOUNT:
            self._open_account(event)
        return self.schedule.apply(event)

    def _open_account(self, event: Event) -> None:
        if isinstance(event, RunRequested):
            if self._above is not None or has_caps(event.limits):
                self.account = Account(
                    event.limits, keeps_back=event.answers, above=self._above, run=event.run
                )
        elif isinstance(event, (PlanAdopted, TaskAdded, PlanAmended)):
            # No generator, for speed: this runs for every task of every plan.
            capped = [task for task in tasks_added_by(event) if has_caps(task.limits)]
            if capped:
                self.account = Account(self.schedule.limits)
                self.account.apply(event)


_OPENS_ACCOUNT = {RunRequested, PlanAdopted, TaskAdded, PlanAmended}


def mistake_in(run: str, error: Exception) -> InternalError:
    """The error for a run for which a decision raised an exception: it names the place and asks for a report."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" in {each.name} ({each.filename}:{each.lineno})" for each in last)
    words = failed_by(error).message
    return InternalError(
        f"run {run} was broken off by {type(error).__name__}: {words}{place}; this is a bug in "
        "chargehand; please report it with this message; where the journal is a file, add the output "
        f"of: chargehand trace {run}"
    )
