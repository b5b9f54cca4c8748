"""Where the attempts of one simulated process run, and what goes wrong with them there."""

from collections.abc import Callable
from datetime import datetime, timedelta

from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    Event,
    StepStarted,
)
from chargehand.facts.outcome import Cancelled, Outcome
from tests.simulation.attempt import (
    NO_INSTANT,
    Attempt,
    GiveWay,
    Park,
    Sleep,
    Tell,
    Work,
)
from tests.simulation.faults import FaultKind
from tests.simulation.scenario import SECOND, StepScript
from tests.simulation.stage import Stage

AttemptId = tuple[str, str, int]


class Ticket:
    """Waits to hear whether a report was written down."""

    def __init__(self, shop: "Workshop", attempt: Attempt, number: int) -> None:
        self.run = attempt.run
        self._shop = shop
        self._attempt = attempt
        self._number = number

    def answer(self, *, is_written: bool) -> None:
        # A report that was delivered twice is answered twice; only the first answer is waited for.
        if self._attempt.waits_for == self._number:
            self._attempt.waits_for = 0
            self._shop.go_on(self._attempt, is_written=is_written)


class Workshop:
    """Runs attempts. Everything an attempt says reaches the process as a message, sooner or later."""

    def __init__(
        self,
        stage: Stage,
        hear: Callable[[str, Event, object], None],
        freed: Callable[[Attempt], None],
        cancel: Callable[[str], None],
        clock: Callable[[], datetime],
    ) -> None:
        #: those that hold a place here, whatever the journal says of them
        self.attempts: dict[AttemptId, Attempt] = {}
        self._stage = stage
        self._hear = hear
        self._freed = freed
        self._cancel = cancel
        self._clock = clock
        self._is_open = True
        self._tickets = 0

    def start(self, attempt: Attempt, work: Work) -> None:
        self.attempts[attempt.id] = attempt
        attempt.work = work
        later, dice = self._stage.later, self._stage.dice
        later(dice.between(100, 10_000), lambda: self._run(attempt, None))
        for kind, mishap in (
            (FaultKind.WORKER_DIED, self._die_noticed),
            (FaultKind.WORKER_VANISHED, self._die),
            (FaultKind.FALSE_ALARM, self._raise_alarm),
            (FaultKind.PREEMPTED, self._preempt),
        ):
            if dice.hits(kind):
                self._befall(mishap, attempt)
                return

    def stop(self, attempt: Attempt) -> None:
        """Tell a worker to stop. It may need a while, or not listen at all."""
        if attempt.is_stopping:
            return
        attempt.is_stopping = True
        if not self._stage.dice.hits(FaultKind.STOP_IGNORED):
            delay = self._stage.dice.between(1000, SECOND // 2)
            self._stage.later(delay, lambda: self._obey(attempt))

    def give_way(self, attempt: Attempt) -> None:
        """Have a worker leave off at its next safe point: when it would begin another step."""
        attempt.gives_way = True

    def close(self) -> None:
        """The process dies, and all that runs in it."""
        self._is_open = False
        for attempt in self.attempts.values():
            self._die(attempt)

    def notice_the_dead(self) -> None:
        """Report what died unseen."""
        for attempt in list(self.attempts.values()):
            if attempt.is_dead:
                self._report_loss(attempt)
                self._end(attempt)

    # working

    def go_on(self, attempt: Attempt, *, is_written: bool) -> None:
        """Hand a worker the answer to its report; it goes on after the round that answers it."""
        self._stage.later(0, lambda: self._run(attempt, is_written))

    def _run(self, attempt: Attempt, answer: bool | None) -> None:
        if attempt.is_dead or attempt.has_ended or attempt.work is None:
            return
        while True:
            try:
                move = attempt.work.send(answer)  # type: ignore[arg-type]  # None starts it
            except StopIteration as ended:
                self._finish(attempt, ended.value)
                return
            answer = True
            if isinstance(move, Sleep):
                self._stage.later(move.span, lambda: self._run(attempt, True))
                return
            if isinstance(move, Park):
                self._park(attempt, move.span)
                return
            if isinstance(move, GiveWay):
                self._preempt(attempt)
                return
            if isinstance(move, Tell):
                if attempt.gives_way and isinstance(move.event, StepStarted):
                    self._preempt(attempt)
                    return
                self._tell_step(attempt, move)
                if move.waits:
                    return
            else:
                self._stage.observer.saw_effect(attempt, move.step)

    def _tell_step(self, attempt: Attempt, tell: Tell) -> None:
        ticket = None
        if tell.waits:
            self._tickets += 1
            attempt.waits_for = self._tickets
            ticket = Ticket(self, attempt, self._tickets)
        self._say(attempt.run, tell.event, ticket)

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        dice = self._stage.dice
        delay = 0
        if dice.hits(FaultKind.LATE_RESULT):
            delay = dice.between(SECOND, 50 * SECOND)
            if dice.random.random() < 0.7:
                self._report_loss(attempt)
        if dice.hits(FaultKind.CANCEL_AT_COMPLETION):
            self._cancel(attempt.run)
        self._say(attempt.run, _finished(attempt, outcome), delay=delay)
        self._end(attempt)

    def _obey(self, attempt: Attempt) -> None:
        if self._is_open and not attempt.has_ended and not attempt.is_dead:
            self._leave_work(attempt)
            self._say(attempt.run, _finished(attempt, Cancelled(reason="told to")))
            self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        attempt.has_ended = True
        del self.attempts[attempt.id]
        self._freed(attempt)

    def _park(self, attempt: Attempt, span: int) -> None:
        self._leave_work(attempt)
        due_at = self._clock() + timedelta(microseconds=span)
        parked = AttemptParked(
            task=attempt.task, attempt=attempt.number, due_at=due_at, at=NO_INSTANT
        )
        self._say(attempt.run, parked)
        self._end(attempt)

    # mishaps

    def lose(self, worker: str) -> None:
        """Everything that this worker is at is lost, and that is noticed."""
        for attempt in self._of(worker):
            self._die_noticed(attempt)

    def has(self, worker: str) -> bool:
        """Whether this worker is at anything."""
        return bool(self._of(worker))

    def _of(self, worker: str) -> list[Attempt]:
        all_ = self.attempts.values()
        return [each for each in all_ if each.worker == worker and not each.is_dead]

    def _befall(self, mishap: Callable[[Attempt], None], attempt: Attempt) -> None:
        def strike() -> None:
            if self._is_open and not attempt.has_ended and not attempt.is_dead:
                mishap(attempt)
                if self._stage.dice.is_healed:
                    self.notice_the_dead()

        self._stage.later(self._stage.dice.between(SECOND // 100, 4 * SECOND), strike)

    def _die(self, attempt: Attempt) -> None:
        attempt.is_dead = True
        self._leave_work(attempt)

    def _die_noticed(self, attempt: Attempt) -> None:
        self._die(attempt)
        self._report_loss(attempt)
        self._end(attempt)

    def _raise_alarm(self, attempt: Attempt) -> None:
        self._report_loss(attempt)

    def _preempt(self, attempt: Attempt) -> None:
        self._leave_work(attempt)
        told = AttemptPreempted(task=attempt.task, attempt=attempt.number, at=NO_INSTANT)
        self._say(attempt.run, told)
        self._end(attempt)

    def _leave_work(self, attempt: Attempt) -> None:
        """Break off. What was sent to the outside world already may still arrive there."""
        step = attempt.in_flight
        attempt.work = None
        attempt.in_flight = None
        attempt.waits_for = 0
        if step is not None and self._stage.dice.hits(FaultKind.EFFECT_AFTER_DEATH):
            self._land(attempt, step)

    def _land(self, attempt: Attempt, step: StepScript) -> None:
        delay = self._stage.dice.between(1000, 20 * SECOND)
        observer = self._stage.observer
        self._stage.later(delay, lambda: observer.saw_effect(attempt, step, is_late=True))

    def _report_loss(self, attempt: Attempt) -> None:
        lost = AttemptLost(
            task=attempt.task,
            attempt=attempt.number,
            reason="it is gone",
            at=NO_INSTANT,
        )
        self._say(attempt.run, lost)

    # talking

    def _say(self, run: str, event: Event, ticket: Ticket | None = None, delay: int = 0) -> None:
        dice = self._stage.dice
        # A worker that does not wait for the intent of a step still tells it before the outcome.
        is_in_order = ticket is None and isinstance(event, StepStarted)
        if not is_in_order and dice.hits(FaultKind.DELAYED):
            delay += dice.between(SECOND // 10, 5 * SECOND)
        self._send(run, event, ticket, delay)
        if dice.hits(FaultKind.DUPLICATE):
            self._send(run, event, ticket, delay + dice.between(1000, 20 * SECOND))

    def _send(self, run: str, event: Event, ticket: Ticket | None, delay: int) -> None:
        if delay:
            self._stage.later(delay, lambda: self._hear(run, event, ticket))
        else:
            self._hear(run, event, ticket)


def _finished(attempt: Attempt, outcome: Outcome) -> AttemptFinished:
    return AttemptFinished(
        task=attempt.task, attempt=attempt.number, outcome=outcome, at=NO_INSTANT
    )
