"""The circuit breakers of workers as the events of one run show them, for processes that do not lead the run."""

from datetime import UTC, datetime

from chargehand.decisions.circuit_breaker import (
    OF_WORKERS,
    Breaker,
    BreakerState,
    breaker_words,
    counts_against_worker,
)
from chargehand.decisions.system_tasks import is_system_task
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    Event,
    RunLed,
)
from chargehand.facts.outcome import Done

#: kinds of events that change a breaker
BREAKER_EVENTS = frozenset(
    {AttemptFinished, AttemptLost, AttemptParked, AttemptPreempted, AttemptStarted, RunLed}
)


class WorkerBreakers:
    """Folds the events of one run into the breakers of its workers.

    The process that leads the run counts the attempts of all its runs: their failures open a breaker earlier, and
    their results close it earlier.
    """

    def __init__(self) -> None:
        self._figures = OF_WORKERS
        #: the breakers of workers that have failed since they last succeeded
        self._breakers: dict[str, Breaker] = {}
        #: worker and number of the attempt that each task has
        self._attempts: dict[str, tuple[str, int]] = {}
        #: task and number of the attempt that tests whether a worker works again
        self._probes: dict[str, tuple[str, int]] = {}

    def apply(self, event: Event) -> str:
        """Apply an event. Returns the worker whose breaker it opens for the first time in a row; otherwise empty."""
        match event:
            case RunLed():
                # A process that takes a run over begins with closed breakers.
                for memory in (self._breakers, self._attempts, self._probes):
                    memory.clear()
                self._figures = event.breaker or OF_WORKERS
            case AttemptStarted() if not is_system_task(event.task):
                self._start(event)
            case AttemptFinished() | AttemptLost():
                return self._end(event)
            case AttemptParked() | AttemptPreempted():
                self._withdraw(event.task)
            case _:
                pass
        return ""

    def _start(self, event: AttemptStarted) -> None:
        self._attempts[event.task] = event.worker, event.attempt
        breaker = self._breakers.get(event.worker)
        if breaker is not None and breaker.state is BreakerState.OPEN:
            breaker.start()
            self._probes[event.worker] = event.task, event.attempt

    def _end(self, event: AttemptFinished | AttemptLost) -> str:
        worker, number = self._attempts.get(event.task, ("", 0))
        if number != event.attempt:
            return ""
        why = event.reason if isinstance(event, AttemptLost) else counts_against_worker(event)
        if not why:
            self._withdraw(event.task)
            if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done):
                self._breakers.pop(worker, None)
            return ""
        del self._attempts[event.task]
        breaker = self._breakers.setdefault(worker, Breaker(self._figures))
        before, probe = breaker.state, self._probes.get(worker)
        if before is BreakerState.HALF_OPEN and probe != (event.task, number):
            return ""
        breaker.fail(event.at.timestamp(), why)
        self._probes.pop(worker, None)
        has_opened = before is BreakerState.CLOSED and breaker.state is BreakerState.OPEN
        return worker if has_opened else ""

    def _withdraw(self, task: str) -> None:
        """The attempt ended without saying anything about its worker."""
        worker, number = self._attempts.pop(task, ("", 0))
        if self._probes.get(worker) == (task, number):
            del self._probes[worker]
            self._breakers[worker].withdraw()

    def why_waiting(self, worker: str, now: datetime | None = None) -> str:
        """The words for a wait at the open breaker of this worker; empty if the breaker lets attempts through."""
        breaker = self._breakers.get(worker)
        if breaker is None or breaker.state is BreakerState.CLOSED:
            return ""
        if breaker.state is BreakerState.HALF_OPEN:
            return breaker_words(f"worker {worker}", None)
        if now is not None and not breaker.wait(now.timestamp()):
            return ""
        return breaker_words(f"worker {worker}", datetime.fromtimestamp(breaker.opens_at, UTC))
