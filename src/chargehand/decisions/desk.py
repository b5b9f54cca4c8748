"""The desk at which all runs of one process are led: messages in; entries to write, then acts, out.

It joins the schedule of each run with the one pool, and is as pure as they are: the supervisor
drains its inbox into `decide`, appends the round's entries to the journal, and only then carries
out the round's acts. The simulator does the same with a journal and a clock that it breaks.
"""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.budget import Account, has_caps, task_caps
from chargehand.decisions.dispatch import Dispatch
from chargehand.decisions.duties import is_duty
from chargehand.decisions.results import Results
from chargehand.decisions.retry import RetryPolicy
from chargehand.decisions.schedule import Schedule
from chargehand.errors import InternalError
from chargehand.facts.commands import (
    Command,
    OfferAttempt,
    PreemptAttempt,
    Record,
    SetTimer,
    StartAttempt,
    StopAttempt,
    WithdrawOffer,
)
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    Event,
    PlanAdopted,
    PlanAmended,
    RunFinished,
    RunPaused,
    RunRequested,
    RunStatus,
    StartMissed,
    StepFinished,
    StepStarted,
    TaskAdded,
)
from chargehand.facts.outcome import Done, Failed, failed_by
from chargehand.facts.value import Value

_A_MOMENT = timedelta(milliseconds=1)
_BRINGS_TASKS = (PlanAdopted, TaskAdded, PlanAmended)


#: a result that we could not keep says nothing of who brought it forth; providers have their own breaker
_NOT_ITS_FAULT = {
    "JournalFull",
    "ModelBusy",
    "ModelExhausted",
    "ModelGarbled",
    "ModelTooSlow",
    "ModelUnreachable",
}


class Message(Struct, gc=False):
    """Something that is said to have happened to a run."""

    run: str
    event: Event
    #: whoever waits to hear that it was written down, or refused
    ticket: object = None
    #: the mail that it came by
    mail: int = 0


class Stop(Struct, frozen=True, gc=False):
    """Tell an attempt to stop."""

    run: str
    task: str
    attempt: int
    reason: str


Act: TypeAlias = StartAttempt | Stop | PreemptAttempt


class Led(Struct):
    """A run that this process leads."""

    schedule: Schedule
    results: Results
    #: if something that it spends is limited, for itself or above it
    account: Account | None = None
    #: results of an earlier run, by the key of all they rest on
    reusable: dict[str, Value] = {}
    #: of the workers that have changed since the run began
    versions: dict[str, str] = {}
    #: of its lease, before the schedule has heard of it
    epoch: int = 0


class Round(Struct):
    """What one decision came to. First all `entries` are written down, then the rest is done."""

    #: by run
    entries: dict[str, list[Event]] = {}
    #: taken together with those entries
    mail: dict[str, list[int]] = {}
    acts: list[Act] = []
    #: who waits, and what was written down in answer; None: refused
    tickets: list[tuple[object, Event | None]] = []
    #: runs whose last event is among the entries
    ended: dict[str, Led] = {}
    #: runs about which a decision raised; those that could not even be ended are not among `ended`
    broken: dict[str, tuple[Led, InternalError]] = {}
    #: workers whose capacity has changed
    sizes: dict[str, int] = {}


class Desk:
    """Leads runs. Holds no clock and does no I/O."""

    def __init__(self, dispatch: Dispatch, retry: RetryPolicy | None = None) -> None:
        self.dispatch = dispatch
        self.runs: dict[str, Led] = {}
        #: nothing new is started any more
        self.is_draining = False
        self._retry = retry
        self._timers: list[tuple[datetime, int, str, Event]] = []
        self._timer_count = 0
        self._backlog: list[tuple[str, list[Command]]] = []
        #: by run: the account of the run above it
        self._above: dict[str, Account | None] = {}
        #: when a worker that rests may be given something again
        self._probe_at: datetime | None = None
        #: what the supervisor is to do itself; it needs no place in the pool
        self._duties: dict[tuple[str, str], OfferAttempt] = {}
        self._on_duty: set[tuple[str, str, int]] = set()

    def open(self, run: str, history: Iterable[Event] = (), above: Account | None = None) -> Led:
        """Lead this run from now on, going on from its history. Its first round comes with the next `decide`.

        What it spends counts against the account `above` it, too.
        """
        led = self.runs[run] = Led(Schedule(self._retry), Results())
        self._above[run] = above
        if above is not None:
            above.hand_over(run)
        try:
            for event in history:
                led.schedule.apply(event)
                self._note(led, event)
            requested = led.schedule.requested
            if requested is not None:
                self.dispatch.open_run(run, requested.at, requested.limits.parallel)
                self._backlog.append((run, led.schedule.outstanding()))
        except Exception as error:
            self.close(run)
            raise mistake_in(run, error) from error
        return led

    def close(self, run: str) -> None:
        """Lead this run no longer. Attempts of it that still run keep their places until they end."""
        self._above.pop(run, None)
        led = self.runs.pop(run, None)
        if led is not None:
            if led.account is not None:
                led.account.close()
            self.dispatch.close_run(run)
            self._backlog = [(each, commands) for each, commands in self._backlog if each != run]
            for duty in [each for each in self._duties if each[0] == run]:
                del self._duties[duty]

    def decide(self, messages: Sequence[Message], now: datetime) -> Round:
        """Take in messages and due timers, in this order, and fill the pool."""
        round_ = Round()
        backlog, self._backlog = self._backlog, []
        for run, commands in backlog:
            if run in self.runs:
                try:
                    self._carry(run, self.runs[run], commands, round_, now)
                except Exception as error:  # noqa: BLE001 - of this run; the others go on
                    self.break_off(run, error, round_, now)
        self._hear(messages, round_, now)
        while self._timers and self._timers[0][0] <= now:
            _, _, run, event = heappop(self._timers)
            self._hear([Message(run, replace(event, at=now))], round_, now, is_timed=True)
        if not self.is_draining:
            self._fill_places(round_, now)
        for run in round_.ended:
            self.close(run)
        return round_

    def break_off(self, run: str, error: Exception, round_: Round, now: datetime) -> None:
        """End a run about which a decision raised: it alone fails, with an error that asks for a report.

        What was written of it in this round stays, as far as it was applied. If not even its end can be
        decided, it is led no longer.
        """
        led = self.runs.get(run) or round_.ended.get(run)
        if led is None:
            return
        mistake = mistake_in(run, error)
        round_.broken[run] = (led, mistake)
        ours = [act for act in round_.acts if act.run == run]
        round_.acts = [act for act in round_.acts if act.run != run]
        self.free_unstarted(run, (act for act in ours if type(act) is StartAttempt))
        round_.acts += [
            Stop(run, node.task.id, node.attempt, "the run was broken off")
            for node in led.schedule.nodes.values()
            if node.is_open
        ]
        self.close(run)
        finished = RunFinished(status=RunStatus.FAILED, reason=str(mistake), at=now)
        try:
            led.schedule.apply(finished)
        except Exception:  # noqa: BLE001 - nothing more can be decided about it
            round_.ended.pop(run, None)
        if not led.schedule.epoch:  # not even its beginning could be decided: it never was
            round_.entries.pop(run, None)
        elif led.schedule.status is not None:
            round_.entries.setdefault(run, []).append(finished)
            round_.ended[run] = led
        written = {id(event) for events in round_.entries.values() for event in events}
        round_.tickets = [
            (ticket, event if id(event) in written else None) for ticket, event in round_.tickets
        ]

    def next_due(self) -> datetime | None:
        """When `decide` is to be called at the latest, if nothing comes before."""
        while self._timers and self._timers[0][2] not in self.runs:
            heappop(self._timers)
        timer_at = self._timers[0][0] if self._timers else None
        probe_at = None if self.is_draining else self._probe_at
        if timer_at is None or probe_at is None:
            return timer_at or probe_at
        return min(timer_at, probe_at)

    @property
    def has_probe(self) -> bool:
        """Whether the pool looks again by itself: a worker that was left alone is to be tried."""
        return self._probe_at is not None

    def free_place(self, run: str, task: str, attempt: int) -> None:
        """An attempt has really ended, whatever was made of its report."""
        if (run, task, attempt) in self._on_duty:
            self._on_duty.remove((run, task, attempt))
        else:
            self.dispatch.freed(run, task, attempt)

    def free_unstarted(self, run: str, starts: Iterable[StartAttempt]) -> None:
        """These starts of a run were decided but will not be carried out."""
        for start in starts:
            self.free_place(run, start.task, start.attempt)

    @property
    def busy(self) -> int:
        """Attempts that hold a place, and what the supervisor does itself."""
        return self.dispatch.active + len(self._on_duty)

    def check(self) -> None:
        """State the invariants; the tests call this after every round."""
        self.dispatch.check()
        for led in self.runs.values():
            if led.schedule.requested is not None:
                led.schedule.check()

    def _hear(
        self, messages: Sequence[Message], round_: Round, now: datetime, *, is_timed: bool = False
    ) -> None:
        for message in messages:
            try:
                self._take(message, round_, now, is_timed=is_timed)
            except Exception as error:  # noqa: BLE001 - of this run; the others go on
                ticket = message.ticket
                if ticket is not None and all(each is not ticket for each, _ in round_.tickets):
                    round_.tickets.append((ticket, None))
                self.break_off(message.run, error, round_, now)

    def _take(
        self, message: Message, round_: Round, now: datetime, *, is_timed: bool = False
    ) -> None:
        led = self.runs.get(message.run)
        admitted = None if led is None else led.schedule.admit(message.event)
        if (
            type(admitted) is StepFinished
            and led is not None
            and not led.results.has_begun(admitted)
        ):
            admitted = (
                None  # its beginning was refused: the attempt is to stop, and did not wait to hear
            )
        account = None if led is None else led.account
        if (
            type(admitted) is StepStarted
            and account is not None
            and account.refusal(admitted.task, admitted.reserve)
        ):
            admitted = None
        if message.ticket is not None:
            round_.tickets.append((message.ticket, admitted))
        if led is None:
            return
        if message.mail:
            round_.mail.setdefault(message.run, []).append(message.mail)
            round_.entries.setdefault(message.run, [])
        if admitted is None:
            return
        if type(admitted) is AttemptFinished:
            self._judge_worker(message.run, led, admitted, now)
        elif type(admitted) is AttemptLost and not is_timed:
            # One that was told to stop and did not is lost by a timer; that is not held against it.
            worker = led.schedule.nodes[admitted.task].worker
            self._blame(message.run, admitted, worker, admitted.reason, now)
        elif type(admitted) is RunRequested:
            self.dispatch.open_run(message.run, admitted.at, admitted.limits.parallel)
        commands = self._enter(message.run, led, admitted, round_)
        if commands:
            self._carry(message.run, led, commands, round_, now)

    def _judge_worker(self, run: str, led: Led, event: AttemptFinished, now: datetime) -> None:
        """Let the pool know what an attempt says of its worker. What says nothing is passed over."""
        worker, outcome = led.schedule.nodes[event.task].worker, event.outcome
        if type(outcome) is Done:
            self.dispatch.succeeded(worker)
        elif type(outcome) is Failed and outcome.kind.backs_off:
            if outcome.error in _NOT_ITS_FAULT:
                return
            self._blame(run, event, worker, str(outcome), now)

    def _blame(
        self, run: str, event: AttemptFinished | AttemptLost, worker: str, why: str, now: datetime
    ) -> None:
        self.dispatch.failed(run, event.task, event.attempt, worker, now.timestamp(), why)

    def _carry(
        self, run: str, led: Led, commands: list[Command], round_: Round, now: datetime
    ) -> None:
        schedule = led.schedule
        timestamp = now.timestamp()
        pending = list(commands)
        for command in pending:  # grows while it is walked
            match command:
                case Record(event):
                    if schedule.status is None and not schedule.is_moot(event):
                        pending.extend(self._enter(run, led, event, round_))
                case OfferAttempt(task) if is_duty(command.worker):
                    self._duties[run, task] = command
                case OfferAttempt(task, attempt):
                    self.dispatch.offer(run, command, timestamp)
                    if command.latest_at is not None:
                        missed = StartMissed(task=task, attempt=attempt, at=command.latest_at)
                        self._set_timer(command.latest_at, run, missed)
                case SetTimer(due_at, event):
                    self._set_timer(due_at, run, event)
                case StopAttempt(task, attempt, reason, _):
                    round_.acts.append(Stop(run, task, attempt, reason))
                case WithdrawOffer(task):
                    if self._duties.pop((run, task), None) is None:
                        self.dispatch.withdraw(run, task)

    def _set_timer(self, due_at: datetime, run: str, event: Event) -> None:
        self._timer_count += 1
        heappush(self._timers, (due_at, self._timer_count, run, event))

    def _enter(self, run: str, led: Led, event: Event, round_: Round) -> list[Command]:
        """Write an event down and apply it. One that cannot be applied is not written: nobody could read it."""
        entries = round_.entries.get(run)
        if entries is None:
            entries = round_.entries[run] = []
        entries.append(event)
        try:
            self._note(led, event)
            if type(event) is RunFinished:
                round_.ended[run] = led
            elif type(event) is RunPaused:
                round_.acts += _stops_for_pause(run, led)
            return led.schedule.apply(event)
        except Exception:
            entries.pop()
            raise

    def _note(self, led: Led, event: Event) -> None:
        led.results.apply(event)
        if led.account is not None:
            led.account.apply(event)
        elif type(event) is RunRequested:
            above = self._above.get(event.run)
            if above is not None or has_caps(event.limits):
                led.account = Account(
                    event.limits, keeps_back=event.answers, above=above, run=event.run
                )
        elif isinstance(event, _BRINGS_TASKS) and task_caps(event):
            led.account = Account(led.schedule.limits)
            led.account.apply(event)

    def _fill_places(self, round_: Round, now: datetime) -> None:
        timestamp = now.timestamp()
        starts = (*self._take_up_duties(), *self.dispatch.place(timestamp))
        round_.sizes.update(self.dispatch.resized)
        probes_at = self.dispatch.probes_at
        # A moment later: rounded down, the loop would be woken too early, time and again.
        self._probe_at = (
            None
            if probes_at is None
            else now + timedelta(seconds=probes_at - timestamp) + _A_MOMENT
        )
        for start in starts:
            led = self.runs.get(start.run)
            if led is None:  # broken off a moment ago
                self.free_place(start.run, start.task, start.attempt)
                continue
            try:
                self._start(start, led, round_, now)
            except Exception as error:  # noqa: BLE001 - of this run; the others go on
                self.free_place(start.run, start.task, start.attempt)
                self.break_off(start.run, error, round_, now)
        round_.acts += self.dispatch.make_room()

    def _start(self, start: StartAttempt, led: Led, round_: Round, now: datetime) -> None:
        started = AttemptStarted(
            task=start.task,
            attempt=start.attempt,
            worker=start.worker,
            why=start.why,
            version=led.versions.get(start.worker, "") if led.versions else "",
            at=now,
        )
        # Not `_enter`: that somebody began has brought forth no result yet.
        led.results.start(started)
        timers = led.schedule.apply(started)
        round_.entries.setdefault(start.run, []).append(started)
        if timers:
            self._carry(start.run, led, timers, round_, now)
        round_.acts.append(start)

    def _take_up_duties(self) -> list[StartAttempt]:
        if not self._duties:
            return []
        starts = [
            StartAttempt(run, task, offer.attempt, offer.worker, "")
            for (run, task), offer in self._duties.items()
        ]
        self._duties.clear()
        self._on_duty.update((start.run, start.task, start.attempt) for start in starts)
        return starts


def mistake_in(run: str, error: Exception) -> InternalError:
    """What is said of a run about which a decision raised: where, and whom to tell."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" in {each.name} ({each.filename}:{each.lineno})" for each in last)
    words = failed_by(error).message
    return InternalError(
        f"run {run} was broken off by {type(error).__name__}: {words}{place}; this is a mistake of "
        "chargehand, please report it with these words; where the journal is a file, add the output "
        f"of: chargehand trace {run}"
    )


def _stops_for_pause(run: str, led: Led) -> Iterator[PreemptAttempt]:
    """All that runs is to stop at its next safe point; what has none goes on to its end."""
    for node in led.schedule.nodes.values():
        if node.is_open:
            yield PreemptAttempt(run, node.task.id, node.attempt, "the run is paused")
