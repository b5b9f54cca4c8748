"""Replay: recompute every decision of a recorded run from its recorded inputs, and compare.

Recorded events are either inputs or decisions. Inputs came from outside: reports of attempts, answers,
commands, the choice of a worker, the moment at which a timer fired. They are fed to the same `LiveRun`
that leads runs. Decisions followed from the inputs: retries, failed and skipped tasks, questions about
failures, the end of the run. They are computed again, and the first difference is reported.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.deadlines import OUT_OF_TIME
from chargehand.decisions.live_run import LiveRun, Timers
from chargehand.decisions.schedule import SILENT
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    DeadlinePassed,
    Event,
    HedgeDue,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
    ResultRefused,
    RetryDue,
    RetryPlanned,
    RunFinished,
    RunLed,
    StartMissed,
    TaskFailed,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import (
    Cancelled,
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
    Outcome,
    Question,
)
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import Command, OfferAttempt, WithdrawOffer
from chargehand.facts.value import Value

#: characters of a value that a difference shows
SHOWN = 200
#: tasks up to which the invariants are checked after every event
FEW_TASKS = 64
#: events that no process reports: they are always decisions
_DECIDED = (RetryPlanned, TaskFailed, TaskSkipped, RunFinished)
_OF_TIMERS = (RetryDue, HedgeDue, DeadlinePassed, StartMissed)
_BROKEN_OFF = "was broken off by"
_REPORTED: dict[str, Outcome] = {
    "Done": Done(Value()),
    "Failed": Failed(kind=ErrorClass.LOGIC, message=""),
    "NeedsInput": NeedsInput(question=Question(id="", text="")),
    "Cancelled": Cancelled(),
}


class Difference(Struct, frozen=True, kw_only=True):
    """The first place where recomputed decisions differ from the recorded ones."""

    run: str
    seq: int
    #: the type of the recorded event; empty: the recording ends before it
    kind: str
    task: str
    #: where they differ, such as `due_at` or `cause.message`
    field: str
    recorded: str
    recomputed: str

    def __str__(self) -> str:
        of = f" of {self.task}" if self.task else ""
        return (
            f"run {self.run}, event {self.seq}, {self.kind or 'end of the recording'}{of}: {self.field} was "
            f"recorded as {self.recorded}, and recomputed as {self.recomputed}"
        )


class _SetTimers(Timers):
    """Timers that never fire by themselves: the recording says when they fired."""

    def __init__(self) -> None:
        super().__init__()
        #: by event without its instant: when it was due first
        self._due: dict[bytes, datetime] = {}

    def set(self, due_at: datetime, run: str, event: Event) -> None:  # noqa: ARG002 - of one run
        name = _timeless(event)
        self._due[name] = min(due_at, self._due.get(name, due_at))

    def due_at(self, event: Event) -> datetime | None:
        """When this event was due first; None: no such timer was set."""
        return self._due.get(_timeless(event))


class RunReplay:
    """One recorded run, replayed event by event. Holds no clock and does no I/O."""

    def __init__(
        self,
        run: str,
        retry: RetryPolicy | None = None,
        recordable: Callable[[Event], Event] | None = None,
    ) -> None:
        self.run = run
        #: turns a decision into the form in which it would be recorded; None: it is recorded as it is
        self._recordable = recordable
        #: by type: how many decisions were recomputed, and how many inputs were taken from the recording
        self.decided: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        #: how many inputs were checked: starts against the offers, timed events against the timers
        self.checked = 0
        #: the recorded events so far, all equal to the recomputed ones
        self.events: list[Event] = []
        #: the last of them as it was recomputed; None: it was an input
        self.decision: Event | None = None
        self._retry = retry
        self.live_run = self._new_run()
        #: decisions that follow from the last input and are not compared yet
        self._expected: deque[Event] = deque()
        self._offers: dict[str, OfferAttempt] = {}

    def take(self, recorded: Event) -> Difference | None:
        """Compare the next recorded event with the recomputed one; None: they agree."""
        try:
            difference = self._decision(recorded) if self._expected else self._input(recorded)
            if difference is None:
                self._check()
        except Exception as error:  # noqa: BLE001 - whatever a changed decision raises is a difference
            raised = f"{type(error).__name__}: {error}"
            return self._differs(recorded, "decision", type(recorded).__name__, raised)
        return difference

    def end(self) -> Difference | None:
        """The difference if more events were recomputed than recorded; None: there are none left."""
        if not self._expected:
            return None
        more = self._expected[0]
        return Difference(
            run=self.run,
            seq=len(self.events) + 1,
            kind="",
            task=task_of(more),
            field="event",
            recorded="nothing",
            recomputed=_shown(more),
        )

    def _new_run(self) -> LiveRun:
        self.timers = _SetTimers()
        return LiveRun(self.run, retry=self._retry, timers=self.timers)

    def _decision(self, recorded: Event) -> Difference | None:
        expected = self.decision = self._expected.popleft()
        difference = self._compare(recorded, expected)
        if difference is None:
            self.decided[type(recorded).__name__] += 1
            self.events.append(recorded)
        return difference

    def _input(self, recorded: Event) -> Difference | None:
        self.decision = None
        if type(recorded) is RunLed and self.live_run.schedule.epoch:
            self._take_over()
            if self._expected:  # its outstanding decisions come first
                return self._decision(recorded)
        refused = self._refusal(recorded)
        if refused is not None:
            return refused
        written: list[Event] = []
        report = self._report_of(recorded)
        if type(recorded) in (AttemptStarted, RunFinished):
            self._note(self.live_run.enter(report, written))
        else:
            self._note(self.live_run.take(report, written))
        if not written:
            return self._differs(recorded, "event", type(recorded).__name__, "refused: nothing new")
        taken, *decided = written
        self._expected.extend(decided)
        difference = self._compare(recorded, taken)
        if difference is None:
            self.given[type(recorded).__name__] += 1
            self.events.append(recorded)
        return difference

    def _refusal(self, recorded: Event) -> Difference | None:
        """Why this event cannot be an input of a run in this state; None if it can."""
        if type(recorded) is AttemptStarted:
            self.checked += 1
            return self._not_offered(recorded)
        if isinstance(recorded, _OF_TIMERS) or _is_timed(recorded):
            self.checked += 1
            return self._not_due(recorded)
        is_decided = isinstance(recorded, _DECIDED)
        if type(recorded) is RetryPlanned and self._is_pooled:
            is_decided = False  # an agent of the pool gave the task to another worker
        if type(recorded) is RunFinished and _BROKEN_OFF in recorded.reason:
            is_decided = False  # a decision raised an exception, which the reason names
        if type(recorded) is PersonAsked:
            is_decided = recorded.question.about != ABOUT_BUDGET
        if not is_decided:
            return None
        return self._differs(recorded, "event", _shown(recorded), "no decision")

    @property
    def _is_pooled(self) -> bool:
        requested = self.live_run.schedule.requested
        return requested is not None and requested.approach is Approach.POOL

    def _not_offered(self, started: AttemptStarted) -> Difference | None:
        offer = self._offers.pop(started.task, None)
        if offer is None or self.live_run.schedule.is_paused:
            return self._differs(started, "event", _shown(started), "the task was not offered")
        if offer.attempt != started.attempt:
            return self._differs(started, "attempt", str(started.attempt), str(offer.attempt))
        if offer.worker and offer.worker != started.worker and not self._is_pooled:
            return self._differs(started, "worker", started.worker, offer.worker)
        return None

    def _not_due(self, recorded: Event) -> Difference | None:
        due_at = self.timers.due_at(recorded)
        if due_at is None:
            return self._differs(recorded, "event", _shown(recorded), "no timer was set for it")
        if due_at > recorded.at:
            return self._differs(
                recorded, "at", recorded.at.isoformat(), f"not before {due_at.isoformat()}"
            )
        return None

    def _take_over(self) -> None:
        """Another process leads the run from here: rebuild the run from the events so far."""
        self.live_run = self._new_run()
        self.live_run.replay(self.events)
        self._offers = {}
        written: list[Event] = []
        self._note(self.live_run.follow(self.live_run.schedule.outstanding(), written))
        self._expected.extend(written)

    def _report_of(self, recorded: Event) -> Event:
        """The report in place of which this event was recorded."""
        if type(recorded) is ResultRefused:
            return AttemptFinished(
                task=recorded.task,
                attempt=recorded.attempt,
                outcome=_REPORTED[recorded.reported],
                at=recorded.at,
            )
        if type(recorded) is QuestionAnswered and recorded.by == "default":
            return QuestionExpired(question=recorded.question, task=recorded.task, at=recorded.at)
        return recorded

    def _note(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if type(command) is OfferAttempt:
                self._offers[command.task] = command
                if command.latest_at is not None:
                    missed = StartMissed(
                        task=command.task, attempt=command.attempt, at=command.latest_at
                    )
                    self.timers.set(command.latest_at, self.run, missed)
            elif type(command) is WithdrawOffer:
                self._offers.pop(command.task, None)

    def _check(self) -> None:
        """Check the invariants of the schedule; for a large run only now and then."""
        schedule = self.live_run.schedule
        is_due = len(schedule.nodes) <= FEW_TASKS or not len(self.events) % len(schedule.nodes)
        if schedule.requested is not None and (is_due or schedule.status is not None):
            schedule.check()

    def _compare(self, recorded: Event, recomputed: Event) -> Difference | None:
        if self._recordable is not None:
            recomputed = self._recordable(recomputed)
        if recorded == recomputed:
            return None
        if type(recorded) is not type(recomputed):
            return self._differs(recorded, "event", _shown(recorded), _shown(recomputed))
        path, one, other = _first_difference(
            msgspec.to_builtins(recorded), msgspec.to_builtins(recomputed)
        )
        return self._differs(recorded, path, _shown(one), _shown(other))

    def _differs(self, event: Event, field: str, recorded: str, recomputed: str) -> Difference:
        return Difference(
            run=self.run,
            seq=len(self.events) + 1,
            kind=type(event).__name__,
            task=task_of(event),
            field=field,
            recorded=recorded,
            recomputed=recomputed,
        )


def task_of(event: Event) -> str:
    """The id of the task that an event is about; empty if it is about none."""
    task = getattr(event, "task", "")
    return task if isinstance(task, str) else str(task.id)


def _is_timed(event: Event) -> bool:
    """Whether only a timer proposes this event."""
    match event:
        case WorkStopped():
            return event.reason == OUT_OF_TIME and not event.by
        case AttemptLost():
            return event.reason.startswith(SILENT)
        case QuestionExpired():
            return not event.why
        case _:
            return False


def _timeless(event: Event) -> bytes:
    return msgspec.json.encode(replace(event, at=datetime.min.replace(tzinfo=UTC)))


def _first_difference(one: Any, other: Any, path: str = "") -> tuple[str, Any, Any]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            if one.get(key) != other.get(key):
                inner = f"{path}.{key}" if path else str(key)
                return _first_difference(one.get(key), other.get(key), inner)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return _first_difference(left, right, f"{path}[{place}]")
    return path, one, other


def _shown(data: Any) -> str:
    text = msgspec.json.encode(data).decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
