"""The kernel of a runtime: holds all runs that it leads. Messages in; entries to write and acts to carry out, out.

It combines the live runs with the one pool of worker slots, and does no I/O: the runtime passes the messages
of its inbox to `decide`, appends the entries of the batch to the journal, and only then carries out its acts.
The fault simulator does the same with a journal and a clock that it breaks.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.budget import Account
from chargehand.decisions.circuit_breaker import OF_WORKERS, counts_against_worker
from chargehand.decisions.dispatch import Dispatch
from chargehand.decisions.live_run import LiveRun, Timers, mistake_in
from chargehand.decisions.run_outputs_and_steps import RunResults
from chargehand.decisions.schedule import USUAL_RETRY
from chargehand.decisions.system_tasks import is_system_task
from chargehand.errors import InternalError
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    Event,
    RunFinished,
    RunLed,
    RunRequested,
    RunStatus,
    StartMissed,
)
from chargehand.facts.outcome import Done
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import (
    Command,
    OfferAttempt,
    PreemptAttempt,
    StartAttempt,
    StopAttempt,
    WithdrawOffer,
)

_A_MOMENT = timedelta(milliseconds=1)


class RunMessage(Struct, gc=False):
    """A report of an event of a run."""

    run: str
    event: Event
    #: identifies the caller who waits until the event is recorded or refused; None: nobody waits
    ticket: object = None
    #: id of the message from another process that it came with; 0: none
    mail: int = 0


class StopAct(Struct, frozen=True, gc=False):
    """Tell an attempt to stop."""

    run: str
    task: str
    attempt: int
    reason: str


Act: TypeAlias = StartAttempt | StopAct | PreemptAttempt


class Batch(Struct):
    """The result of one decision. The caller writes all `entries` first, then does the rest."""

    #: events to write, by run
    entries: dict[str, list[Event]] = {}
    #: by run: ids of messages from other processes, which are marked as read together with these entries
    mail: dict[str, list[int]] = {}
    acts: list[Act] = []
    #: tickets of the messages, each with the event that is recorded; None: refused
    tickets: list[tuple[object, Event | None]] = []
    #: runs whose last event is in `entries`
    ended: dict[str, LiveRun] = {}
    #: runs for which a decision raised an exception; those that could not be ended are not in `ended`
    broken: dict[str, tuple[LiveRun, InternalError]] = {}
    #: workers whose capacity has changed
    sizes: dict[str, int] = {}


class Kernel:
    """Decides for all runs that one runtime leads. Holds no clock and does no I/O."""

    def __init__(self, dispatch: Dispatch, retry: RetryPolicy | None = None) -> None:
        self.dispatch = dispatch
        self.runs: dict[str, LiveRun] = {}
        #: no new attempts are started
        self.is_draining = False
        self._retry = retry
        self._timers = Timers()
        self._backlog: list[tuple[str, list[Command]]] = []
        #: when the pool may be able to start the next attempt: a breaker, the start rate or an elastic size
        self._probe_at: datetime | None = None
        #: offered system tasks; they need no slot in the pool
        self._system_tasks: dict[tuple[str, str], OfferAttempt] = {}
        self._running_system_tasks: set[tuple[str, str, int]] = set()

    def led_by(
        self, node: str, epoch: int, at: datetime, live_run: LiveRun | None = None
    ) -> RunLed:
        """The event with which this process starts to lead a run, with its retry policy and breakers unless they are usual.

        For a resumed run, it also has the changed crew that a person has accepted.
        """
        retry = None if self._retry == USUAL_RETRY else self._retry
        breaker = None if self.dispatch.breaker == OF_WORKERS else self.dispatch.breaker
        crew, members = ("", {}) if live_run is None else live_run.accepted
        return RunLed(
            node=node, epoch=epoch, retry=retry, breaker=breaker, crew=crew, members=members, at=at
        )

    def open(
        self,
        run: str,
        history: Iterable[Event] = (),
        above: Account | None = None,
        results: RunResults | None = None,
    ) -> LiveRun:
        """Lead this run from now on, starting from its history. The next `decide` carries out what is outstanding.

        What it spends also counts against the account `above`. A fork starts with the `results` of another run.
        """
        live_run = LiveRun(
            run, retry=self._retry, results=results, above=above, timers=self._timers
        )
        self.runs[run] = live_run
        if above is not None:
            above.hand_over(run)
        try:
            live_run.replay(history)
            requested = live_run.schedule.requested
            if requested is not None:
                self.dispatch.open_run(run, requested.at, requested.limits.parallel)
                self._backlog.append((run, live_run.schedule.outstanding()))
        except Exception as error:
            self.close(run)
            raise mistake_in(run, error) from error
        return live_run

    def close(self, run: str) -> None:
        """Stop leading this run. Its running attempts keep their slots until they end."""
        live_run = self.runs.pop(run, None)
        if live_run is not None:
            if live_run.account is not None:
                live_run.account.close()
            self.dispatch.close_run(run)
            self._backlog = [(each, commands) for each, commands in self._backlog if each != run]
            for system_task in [each for each in self._system_tasks if each[0] == run]:
                del self._system_tasks[system_task]

    def decide(self, messages: Sequence[RunMessage], now: datetime) -> Batch:
        """Apply messages, then due timers, then fill the free slots."""
        batch = Batch()
        backlog, self._backlog = self._backlog, []
        for run, commands in backlog:
            if run in self.runs:
                try:
                    self._resume(run, self.runs[run], commands, batch, now)
                except Exception as error:  # noqa: BLE001 - it ends this run; the others continue
                    self.break_off(run, error, batch, now)
        self._hear(messages, batch, now)
        while (due := self._timers.pop(now)) is not None:
            self._hear([RunMessage(*due)], batch, now, is_timed=True)
        if not self.is_draining:
            self._fill_places(batch, now)
        for run in batch.ended:
            self.close(run)
        for run in [run for run, events in batch.entries.items() if not events]:
            if run not in batch.mail:  # no message said anything new
                del batch.entries[run]
        return batch

    def break_off(self, run: str, error: Exception, batch: Batch, now: datetime) -> None:
        """End a run for which a decision raised an exception. Only this run fails; its error asks for a report.

        Entries of this batch that were applied before stay. If even the end cannot be decided, the process only
        stops leading the run.
        """
        live_run = self.runs.get(run) or batch.ended.get(run)
        if live_run is None:
            return
        mistake = mistake_in(run, error)
        batch.broken[run] = (live_run, mistake)
        ours = [act for act in batch.acts if act.run == run]
        batch.acts = [act for act in batch.acts if act.run != run]
        self.free_unstarted(run, (act for act in ours if type(act) is StartAttempt))
        batch.acts += [
            StopAct(run, node.task.id, node.attempt, "the run was broken off")
            for node in live_run.schedule.nodes.values()
            if node.is_open
        ]
        self.close(run)
        finished = RunFinished(status=RunStatus.FAILED, reason=str(mistake), at=now)
        try:
            live_run.enter(finished, [])
        except Exception:  # noqa: BLE001 - no more decisions about this run are possible
            batch.ended.pop(run, None)
        if not live_run.schedule.epoch:  # not even its first events could be applied
            batch.entries.pop(run, None)
        elif live_run.schedule.status is not None:
            batch.entries.setdefault(run, []).append(finished)
            batch.ended[run] = live_run
        written = {id(event) for events in batch.entries.values() for event in events}
        batch.tickets = [
            (ticket, event if id(event) in written else None) for ticket, event in batch.tickets
        ]

    def next_due(self) -> datetime | None:
        """When to call `decide` at the latest, even without messages; None: nothing is due."""
        timer_at = self._timers.next_due(self.runs)
        probe_at = None if self.is_draining else self._probe_at
        if timer_at is None or probe_at is None:
            return timer_at or probe_at
        return min(timer_at, probe_at)

    @property
    def has_probe(self) -> bool:
        """Whether the pool may start attempts later without a message: see `Dispatch.probes_at`."""
        return self._probe_at is not None

    def free_place(self, run: str, task: str, attempt: int) -> None:
        """Free the slot of an attempt that has really ended, whatever became of its report."""
        if (run, task, attempt) in self._running_system_tasks:
            self._running_system_tasks.remove((run, task, attempt))
        else:
            self.dispatch.freed(run, task, attempt)

    def free_unstarted(self, run: str, starts: Iterable[StartAttempt]) -> None:
        """Free the slots of starts that were decided but will not be carried out."""
        for start in starts:
            self.free_place(run, start.task, start.attempt)

    @property
    def busy(self) -> int:
        """The number of attempts that hold a slot, plus running system tasks."""
        return self.dispatch.active + len(self._running_system_tasks)

    def check(self) -> None:
        """Check the invariants; the tests call this after every batch."""
        self.dispatch.check()
        for live_run in self.runs.values():
            if live_run.schedule.requested is not None:
                live_run.schedule.check()

    def _hear(
        self,
        messages: Sequence[RunMessage],
        batch: Batch,
        now: datetime,
        *,
        is_timed: bool = False,
    ) -> None:
        for message in messages:
            try:
                self._take(message, batch, now, is_timed=is_timed)
            except Exception as error:  # noqa: BLE001 - it ends this run; the others continue
                ticket = message.ticket
                if ticket is not None and all(each is not ticket for each, _ in batch.tickets):
                    batch.tickets.append((ticket, None))
                self.break_off(message.run, error, batch, now)

    def _take(
        self, message: RunMessage, batch: Batch, now: datetime, *, is_timed: bool = False
    ) -> None:
        run, live_run = message.run, self.runs.get(message.run)
        if live_run is None:
            if message.ticket is not None:
                batch.tickets.append((message.ticket, None))
            return
        if message.mail:
            batch.mail.setdefault(run, []).append(message.mail)
        schedule = live_run.schedule
        paused_at = schedule.paused_at
        written = batch.entries.setdefault(run, [])
        count = len(written)
        commands = live_run.take(message.event, written)
        admitted = written[count] if len(written) > count else None
        if message.ticket is not None:
            batch.tickets.append((message.ticket, admitted))
        if admitted is None:
            return
        if type(admitted) is AttemptFinished:
            self._judge_worker(run, live_run, admitted, now)
        elif type(admitted) is AttemptLost and not is_timed:
            # A timer reports attempts that did not stop when told to; that does not count against a worker.
            worker = schedule.nodes[admitted.task].worker
            self._blame(run, admitted, worker, admitted.reason, now)
        elif type(admitted) is RunRequested:
            self.dispatch.open_run(run, admitted.at, admitted.limits.parallel)
        if schedule.paused_at is not paused_at and schedule.is_paused:
            batch.acts += _stops_for_pause(run, live_run)
        if commands:
            self._carry(run, commands, batch, now)
        if schedule.status is not None:
            batch.ended[run] = live_run

    def _resume(
        self, run: str, live_run: LiveRun, commands: list[Command], batch: Batch, now: datetime
    ) -> None:
        """Carry out what was outstanding after the history of a run was applied."""
        left = live_run.follow(commands, batch.entries.setdefault(run, []))
        self._carry(run, left, batch, now)
        if live_run.schedule.status is not None:
            batch.ended[run] = live_run

    def _judge_worker(
        self, run: str, live_run: LiveRun, event: AttemptFinished, now: datetime
    ) -> None:
        """Tell the pool whether an attempt counts for or against its worker; many failures count neither way."""
        worker, outcome = live_run.schedule.nodes[event.task].worker, event.outcome
        if type(outcome) is Done:
            self.dispatch.succeeded(worker)
        elif why := counts_against_worker(event):
            self._blame(run, event, worker, why, now)

    def _blame(
        self, run: str, event: AttemptFinished | AttemptLost, worker: str, why: str, now: datetime
    ) -> None:
        self.dispatch.failed(run, event.task, event.attempt, worker, now.timestamp(), why)

    def _carry(self, run: str, commands: list[Command], batch: Batch, now: datetime) -> None:
        timestamp = now.timestamp()
        for command in commands:
            match command:
                case OfferAttempt(task) if is_system_task(command.worker):
                    self._system_tasks[run, task] = command
                case OfferAttempt(task, attempt):
                    self.dispatch.offer(run, command, timestamp)
                    if command.latest_at is not None:
                        missed = StartMissed(task=task, attempt=attempt, at=command.latest_at)
                        self._timers.set(command.latest_at, run, missed)
                case StopAttempt(task, attempt, reason, _):
                    batch.acts.append(StopAct(run, task, attempt, reason))
                case WithdrawOffer(task):
                    if self._system_tasks.pop((run, task), None) is None:
                        self.dispatch.withdraw(run, task)
                case _:
                    pass  # `LiveRun.follow` has carried out the others

    def _fill_places(self, batch: Batch, now: datetime) -> None:
        timestamp = now.timestamp()
        starts = (*self._start_system_tasks(), *self.dispatch.place(timestamp))
        batch.sizes.update(self.dispatch.resized)
        probes_at = self.dispatch.probes_at
        # A millisecond later: if the instant were rounded down, the loop would wake up too early again and again.
        self._probe_at = (
            None
            if probes_at is None
            else now + timedelta(seconds=probes_at - timestamp) + _A_MOMENT
        )
        for start in starts:
            live_run = self.runs.get(start.run)
            if live_run is None:  # it was broken off in this batch
                self.free_place(start.run, start.task, start.attempt)
                continue
            try:
                self._start(start, live_run, batch, now)
            except Exception as error:  # noqa: BLE001 - it ends this run; the others continue
                self.free_place(start.run, start.task, start.attempt)
                self.break_off(start.run, error, batch, now)
        batch.acts += self.dispatch.make_room()

    def _start(self, start: StartAttempt, live_run: LiveRun, batch: Batch, now: datetime) -> None:
        started = AttemptStarted(
            task=start.task,
            attempt=start.attempt,
            worker=start.worker,
            why=start.why,
            version=live_run.versions.get(start.worker, "") if live_run.versions else "",
            at=now,
        )
        # A start only leads to timers, and the live run sets those itself.
        live_run.enter(started, batch.entries.setdefault(start.run, []))
        batch.acts.append(start)

    def _start_system_tasks(self) -> list[StartAttempt]:
        if not self._system_tasks:
            return []
        starts = [
            StartAttempt(run, task, offer.attempt, offer.worker, "")
            for (run, task), offer in self._system_tasks.items()
        ]
        self._system_tasks.clear()
        self._running_system_tasks.update(
            (start.run, start.task, start.attempt) for start in starts
        )
        return starts


def _stops_for_pause(run: str, live_run: LiveRun) -> Iterator[PreemptAttempt]:
    """Preempt all running attempts: each stops at its next safe point, or runs to its end if it has none."""
    for node in live_run.schedule.nodes.values():
        if node.is_open:
            yield PreemptAttempt(run, node.task.id, node.attempt, "the run is paused")
