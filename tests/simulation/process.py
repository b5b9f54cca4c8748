"""A simulated process: one kernel, the attempts that run in it, and all the ways in which it dies."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.kernel import Batch, Kernel, RunMessage, StopAct
from chargehand.decisions.live_run import LiveRun
from chargehand.errors import JournalFull, NotLeading
from chargehand.facts.events import AttemptFinished, AttemptLost, Event, RunLed, RunReleased
from chargehand.facts.outcome import Done
from chargehand.facts.scheduler_commands import PreemptAttempt, StartAttempt
from tests.simulation.attempt import NO_INSTANT, Attempt, Work
from tests.simulation.faults import FaultKind
from tests.simulation.scenario import SECOND
from tests.simulation.sight import Sight, Start, waiting_for_a_place
from tests.simulation.sizes import Gauge
from tests.simulation.stage import Stage
from tests.simulation.workshop import Ticket, Workshop

#: where the virtual clock starts
START_AT = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

WorkOf = Callable[[Attempt, LiveRun], Work]


class _Crash(Exception):
    """The process dies here."""


class Process:
    """One life of a process: it ends with a crash, and another begins in its place."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        offset: int,
        work_of: WorkOf,
        cancel: Callable[[str], None],
        died: Callable[["Process"], None],
        lost: Callable[["Process", str], None],
    ) -> None:
        self.name = name
        self.is_alive = True
        self.is_stalled = False
        self.epochs: dict[str, int] = {}
        self.shop = Workshop(stage, self.hear, self._freed, cancel, self.clock)
        dispatch = Dispatch(stage.crew.parallel, stage.crew.balance)
        for place in stage.crew.places:
            dispatch.join(place)
        self.kernel = Kernel(dispatch)
        #: workers that get nothing here, and whether they leave
        self.away: dict[str, bool] = {}
        self._pool = Gauge("the pool", stage.crew.parallel)
        self._gauges = {place.worker: self._gauge(place) for place in stage.crew.places}
        self._stage = stage
        self._offset = offset
        self._work_of = work_of
        self._died = died
        self._lost = lost
        self._inbox: list[RunMessage] = []
        self._troubles: Counter[str] = Counter()
        self._unwritten: Batch | None = None
        self._decided_at = START_AT
        self._has_lost = False
        #: a worker came back after the last decision, which the next one takes into account
        self._has_returned = False
        self._turn_at: int | None = None
        stage.ledger.renew(name)

    @property
    def is_able(self) -> bool:
        """Whether it can be given something to do."""
        return self.is_alive and not self.is_stalled and not self.kernel.is_draining

    @property
    def is_busy_writing(self) -> bool:
        return self._unwritten is not None

    def clock(self) -> datetime:
        return START_AT + timedelta(microseconds=self._stage.now + self._offset)

    # leading

    def begin(self, run: str, request: Callable[[datetime], Event]) -> None:
        """Lead a run that is not in the journal yet."""
        epoch = self._stage.ledger.lead(run, self.name, self._stage.now)
        self.epochs[run] = epoch
        self.kernel.open(run)
        self.hear(run, request(self.clock()))
        self.hear(run, RunLed(node=self.name, epoch=epoch, at=NO_INSTANT))

    def knows_better(self, run: str) -> bool:
        """Whether it has heard, or hears now, that it does not lead this run any more."""
        if run in self.epochs and self._unwritten is None:
            self._leave(run)  # what it was at may still be at work here
        return run not in self.epochs

    def take_over(self, run: str) -> None:
        """Lead a run that nobody leads any more, from what the journal holds of it."""
        ledger = self._stage.ledger
        epoch = ledger.lead(run, self.name, self._stage.now)
        history = ledger.streams[run].history()
        behind = history[-1].at - self.clock()
        if behind > timedelta(0):  # as the real clock's `not_before`: never behind the journal
            self._offset += behind // MICROSECOND
        self.epochs[run] = epoch
        self._stage.observer.watch(
            "i19_history_can_be_read", lambda: self.kernel.open(run, history)
        )
        self.hear(run, RunLed(node=self.name, epoch=epoch, at=NO_INSTANT))

    def hear(self, run: str, event: Event, ticket: object = None) -> None:
        """Put something into the inbox; it is dealt with at the next turn."""
        if self.is_alive:
            self._inbox.append(RunMessage(run, event, ticket))
            self.turn_in(self._stage.dice.random.choice((0, 1000, 50_000)))

    # dying

    def die(self) -> None:
        """End at once. The lease runs on for a while, as nobody knows."""
        if self.is_alive:
            self.is_alive = False
            self._stage.observer.note(f"{self.name} dies")
            self._stage.ledger.fall_silent(self.name, self._stage.now)
            self.shop.close()
            self._died(self)

    def stall(self) -> None:
        """Do nothing for a while, not even renew the lease. What runs here runs on."""
        self.is_stalled = True
        self._stage.ledger.fall_silent(self.name, self._stage.now)

    def wake(self) -> None:
        """Go on as if nothing had happened: an old leader that does not know it."""
        if self.is_alive:
            self.is_stalled = False
            self._stage.ledger.renew(self.name)
            self._turn_at = None
            self.turn_in(0)

    def drain(self) -> None:
        """Stop gently: start nothing, then let go of every run."""
        self.kernel.is_draining = True
        self._stage.later(self._stage.dice.between(SECOND // 10, 5 * SECOND), self._let_go)

    def _let_go(self) -> None:
        if not self.is_alive or self.is_stalled or self._unwritten is not None:
            self.die()
            return
        for run in list(self.epochs):
            self.release(run)
        self.die()

    def release(self, run: str) -> None:
        """Let go of a run, so that another may lead it at once."""
        self.hear(run, RunReleased(node=self.name, at=NO_INSTANT))
        try:
            self.turn()
        except _Crash:
            self.die()
        if self.is_alive and self._unwritten is None and run in self.epochs:
            self._stage.ledger.release(run, self.epochs[run])
            self._leave(run)

    def _crash_if(self, kind: FaultKind) -> None:
        if self._stage.dice.hits(kind):
            raise _Crash

    # who works here

    def dismiss(self, worker: str, *, for_good: bool) -> None:
        """Give a worker nothing new; one that goes for good is forgotten once it holds nothing."""
        self.away[worker] = for_good
        if for_good:
            self.kernel.dispatch.leave(worker)
        else:
            self.kernel.dispatch.drain(worker)

    def part_with(self, worker: str) -> None:
        """End waiting for what a worker that leaves still has."""
        if self.is_alive and self.away.get(worker):
            self.shop.lose(worker)

    def bring_back(self, worker: str) -> None:
        """Have a worker take part again, as soon as it has really gone."""
        if worker not in self.away or not self.is_alive:
            return
        is_new = self.away[worker]
        if is_new and not self.kernel.dispatch.leave(worker):
            self._stage.later(SECOND, lambda: self.bring_back(worker))
            return
        place = self._stage.crew.place(worker)
        self.kernel.dispatch.join(place)
        if is_new:
            self._gauges[worker] = self._gauge(place)
        del self.away[worker]
        self._has_returned = True
        self.turn_in(0)

    def _gauge(self, place: Place) -> Gauge:
        capacity = self.kernel.dispatch.most if place.capacity is None else place.capacity
        return Gauge(place.worker, capacity)

    # its turns

    def turn_in(self, delay: int) -> None:
        at = self._stage.now + max(delay, 0)
        if self._turn_at is None or at < self._turn_at:
            self._turn_at = at
            self._stage.later(at - self._stage.now, lambda: self._turn_if(at))

    def _turn_if(self, at: int) -> None:
        if self.is_alive and not self.is_stalled and self._turn_at == at:
            self._turn_at = None
            try:
                self.turn()
            except _Crash:
                self.die()

    def turn(self) -> None:
        """Decide, write down, act; unless something comes in between."""
        if self._unwritten is None:
            self._unwritten = self._decide()
        self._write(self._unwritten)
        if self._unwritten is None:
            due_at = self.kernel.next_due()
            if due_at is not None:
                self.turn_in((due_at - self.clock()) // MICROSECOND)
            if self._inbox or self._has_lost:
                self.turn_in(0)

    def _decide(self) -> Batch:
        self._has_lost = self._has_returned = False
        self._decided_at = now = self.clock()
        messages = [
            RunMessage(message.run, replace(message.event, at=now), message.ticket)
            for message in self._inbox
        ]
        self._inbox.clear()
        for run in self.epochs:
            messages += [
                RunMessage(run, letter.report(now), mail=letter.id)
                for letter in self._stage.ledger.unread(run)
            ]
        observer = self._stage.observer
        batch = observer.watch("the desk", lambda: self.kernel.decide(messages, now))
        for gauge, size in self._sizes(batch):
            if size != gauge.size:
                kind = FaultKind.GREW if size > gauge.size else FaultKind.SHRANK
                self._stage.dice.note(kind)
            observer.judge(gauge.i47_it_turns_at_most_once_a_period, size, now)
        return batch

    def _sizes(self, batch: Batch) -> list[tuple[Gauge, int]]:
        told = [(self._gauges[worker], size) for worker, size in batch.sizes.items()]
        return [(self._pool, self.kernel.dispatch.parallel), *told]

    def _write(self, batch: Batch) -> None:
        ledger = self._stage.ledger
        for number, run in enumerate(list(batch.entries)):
            kind = FaultKind.CRASH_BETWEEN_APPENDS if number else FaultKind.CRASH_BEFORE_APPEND
            self._crash_if(kind)
            events, mail = batch.entries[run], batch.mail.get(run, [])
            try:
                ledger.append(run, events, self.epochs[run], self.name, mail)
            except NotLeading:
                self._lose(run, batch)
            except JournalFull:
                self.turn_in(SECOND)  # the same entries again; nothing is acted upon meanwhile
                return
            else:
                self._compare(run, batch)
                self._note_troubles(run, events)
            del batch.entries[run]
        self._unwritten = None
        self._crash_if(FaultKind.CRASH_BEFORE_ACTS)
        self._carry_out(batch)

    def _compare(self, run: str, batch: Batch) -> None:
        """Now and then, and at the end: is the live state what the journal says?"""
        if run in batch.ended or self._stage.dice.random.random() < 0.05:
            live_run = batch.ended.get(run) or self.kernel.runs[run]
            self._stage.observer.compare(live_run, self._stage.ledger.streams[run])

    def _note_troubles(self, run: str, events: Sequence[Event]) -> None:
        story = self._stage.observer.stories[run]
        for event in events:
            if isinstance(event, (AttemptFinished, AttemptLost)):
                worker = story.find(event.task).attempts[event.attempt - 1].worker
                is_done = isinstance(event, AttemptFinished) and isinstance(event.outcome, Done)
                self._troubles[worker] = 0 if is_done else self._troubles[worker] + 1

    def _lose(self, run: str, batch: Batch) -> None:
        """Another process leads this run now: nothing of the round is done for it here."""
        self._stage.dice.note(FaultKind.ZOMBIE_APPEND)
        self._has_lost = True
        ours = [act for act in batch.acts if act.run == run]
        batch.acts = [act for act in batch.acts if act.run != run]
        batch.tickets = [
            (ticket, None if isinstance(ticket, Ticket) and ticket.run == run else event)
            for ticket, event in batch.tickets
        ]
        batch.ended.pop(run, None)
        self.kernel.free_unstarted(run, [act for act in ours if isinstance(act, StartAttempt)])
        self._leave(run)
        self._lost(self, run)

    def _leave(self, run: str) -> None:
        self.kernel.close(run)
        del self.epochs[run]
        for attempt in list(self.shop.attempts.values()):
            if attempt.run == run:
                self.shop.stop(attempt)

    def _carry_out(self, batch: Batch) -> None:
        starts: list[Start] = []
        for ticket, event in batch.tickets:
            if isinstance(ticket, Ticket):
                ticket.answer(is_written=event is not None)
        for number, act in enumerate(batch.acts):
            if number:
                self._crash_if(FaultKind.CRASH_BETWEEN_ACTS)
            self._stage.observer.note(f"{self.name} {act}")
            if isinstance(act, (StopAct, PreemptAttempt)):
                stopped = self.shop.attempts.get((act.run, act.task, act.attempt))
                if stopped is not None:
                    leave = self.shop.stop if isinstance(act, StopAct) else self.shop.give_way
                    leave(stopped)
            else:
                live_run = self.kernel.runs[act.run]
                epoch = self.epochs[act.run]
                attempt = Attempt(act.run, act.task, act.attempt, act.worker, epoch, live_run)
                if not attempt.is_system_task:
                    starts.append(Start(act.run, act.task, act.worker))
                self.shop.start(attempt, self._work_of(attempt, live_run))
        for run in batch.ended:
            del self.epochs[run]
        self._stage.observer.watch("desk.check", self.kernel.check)
        is_outdated = self._has_lost or self._has_returned
        if self._decided_at == self.clock() and not is_outdated:
            self._show(starts)

    def _show(self, starts: list[Start]) -> None:
        observer, running = self._stage.observer, self.shop.attempts.values()
        attempts = [attempt for attempt in running if not attempt.is_system_task]
        sight = Sight(
            now=self._decided_at,
            crew=self._stage.crew,
            parallel=self._pool.size,
            capacity={worker: gauge.size for worker, gauge in self._gauges.items()},
            away=self.away,
            live_run={run: observer.stories[run] for run in self._really_led()},
            busy=Counter(attempt.worker for attempt in attempts),
            busy_runs=Counter(a.run for a in attempts if a.epoch == self.epochs.get(a.run)),
            starts=starts,
            is_draining=self.kernel.is_draining,
            troubles=self._troubles,
            running=len(running),
            held=self.kernel.busy,
        )
        observer.saw_round(sight)
        waiting = waiting_for_a_place(sight)
        observer.judge(self._pool.i47_a_queue_that_waits_makes_it_grow, self._decided_at, waiting)

    def _really_led(self) -> list[str]:
        """Without those that another took over unseen: a stalled process cannot know of them."""
        streams = self._stage.ledger.streams
        return [
            run
            for run, epoch in self.epochs.items()
            if streams[run].epoch == epoch and streams[run].entries
        ]

    def _freed(self, attempt: Attempt) -> None:
        if self.is_alive:
            self.kernel.free_place(*attempt.id)
            self.turn_in(0)
