"""Simulates finished runs again on a virtual clock, with the real duration of every attempt.

The outcomes of the attempts come from the recorded events. The current kernel decides again when each
attempt starts. If the end differs, the simulator is inexact or the pool is not the same as then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from chargehand.decisions.dispatch import Balance, Dispatch, Place
from chargehand.decisions.kernel import Kernel
from chargehand.decisions.plan_simulation import Simulation
from chargehand.decisions.simulation_loop import Ending, Fate, VirtualPool
from chargehand.decisions.system_tasks import LISTER, PLANNER, REFINER
from chargehand.errors import UsageError
from chargehand.facts import events
from chargehand.facts.outcome import Cancelled
from chargehand.facts.plan import Task
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import StartAttempt

#: events that no schedule decides: they come from planners, people and budgets
_OUTSIDE = (
    events.PlanAdopted,
    events.PlanOpened,
    events.TaskAdded,
    events.PlanSealed,
    events.PlanAmended,
    events.ItemsListed,
    events.TaskRewritten,
    events.CancelRequested,
    events.WorkStopped,
    events.RunPaused,
    events.RunUnpaused,
    events.RunSteered,
    events.QuestionAnswered,
)
_BY_PEOPLE = (
    events.CancelRequested,
    events.WorkStopped,
    events.RunPaused,
    events.RunUnpaused,
    events.RunSteered,
)


class PastRunSimulation(Struct, frozen=True):
    """A simulation of past runs, compared with what really happened."""

    simulation: Simulation
    #: from the first request to the last end, as recorded
    happened: timedelta

    @property
    def ratio(self) -> float:
        """Simulated time divided by real time; 1 means that the simulator is exact."""
        return self.simulation.makespan / self.happened if self.happened else 1.0


def retrace(
    records: Iterable[Sequence[events.Event]],
    places: Iterable[Place],
    *,
    parallel: int,
    balance: Balance = Balance.LEAST_BUSY,
    retry: RetryPolicy | None = None,
) -> PastRunSimulation:
    """Simulate finished runs that shared one pool, from their events.

    Raises `UsageError` for a run that has not ended, or that was interrupted: time in which no process
    led it cannot be simulated.
    """
    told = [_Record(history) for history in records]
    if not told:
        raise UsageError("there is no run to retrace; give the events of at least one")
    by_run = {record.requested.run: record for record in told}
    dispatch = Dispatch(parallel, balance)
    for place in places:
        dispatch.join(place)
    dawn = min(record.requested.at for record in told)
    floor = VirtualPool(Kernel(dispatch, retry), lambda start: by_run[start.run].fate(start), dawn)
    for record in told:
        for event in (record.requested, *record.alone):
            floor.expect(record.requested.run, event.at, event)
    floor.run_to_the_end()
    tasks = {(run, task.id): task for run, record in by_run.items() for task in record.tasks}
    simulation = Simulation(
        parallel=parallel, spans=tuple(floor.spans), runs=floor.ends, path=floor.path(tasks)
    )
    return PastRunSimulation(simulation, max(record.ended_at for record in told) - dawn)


class _Try(Struct):
    """An attempt as it was recorded."""

    task: str
    worker: str
    began_at: datetime
    ending: Ending | None = None
    beside: list[tuple[timedelta, events.Event]] = []

    @property
    def fate(self) -> Fate:
        if self.ending is None:  # its run ended before it did
            return Fate(timedelta(0))
        is_stopped = isinstance(self.ending, events.AttemptFinished) and isinstance(
            self.ending.outcome, Cancelled
        )
        length = self.ending.at - self.began_at
        return Fate(length, self.ending, tuple(self.beside), is_stopped_later=is_stopped)


class _Record:
    """One recorded run: how its attempts ended, and which events came from outside."""

    def __init__(self, history: Sequence[events.Event]) -> None:
        self.requested, self.ended_at = _ends_of(history)
        #: events from outside that no attempt caused; the simulation keeps their instants
        self.alone: list[events.Event] = []
        self._tries: dict[tuple[str, int], _Try] = {}
        self.tasks = list(_tasks_in(history))
        for event in history:
            self._take(event)

    def fate(self, start: StartAttempt) -> Fate:
        """The recorded fate. An attempt that was not recorded takes the mean time of the task's other attempts."""
        known = self._tries.get((start.task, start.attempt))
        if known is not None:
            return known.fate
        others = [each.fate.length for each in self._tries.values() if each.task == start.task]
        return Fate(sum(others, timedelta(0)) / max(len(others), 1))

    def _take(self, event: events.Event) -> None:
        match event:
            case events.AttemptStarted():
                self._tries[event.task, event.attempt] = _Try(event.task, event.worker, event.at)
            case (
                events.AttemptFinished()
                | events.AttemptLost()
                | events.AttemptPreempted()
                | events.AttemptParked()
            ):
                self._tries[event.task, event.attempt].ending = event
            case _ if isinstance(event, _OUTSIDE):
                cause = self._cause_of(event)
                if cause is None:
                    self.alone.append(event)
                else:
                    cause.beside.append((event.at - cause.began_at, event))

    def _cause_of(self, event: events.Event) -> _Try | None:
        """The attempt that caused this event, so that both move together in time; None: no attempt did."""
        tries: Mapping[tuple[str, int], _Try] = self._tries
        if isinstance(event, events.QuestionAnswered):
            return [each for each in tries.values() if each.task == event.task][-1]
        if isinstance(event, _BY_PEOPLE):
            return None
        ours = [each for each in tries.values() if each.worker in (LISTER, PLANNER, REFINER)]
        is_open = [each for each in ours if each.ending is None]
        return next(reversed(is_open or ours), None)


def _ends_of(history: Sequence[events.Event]) -> tuple[events.RunRequested, datetime]:
    first, last = (history[0], history[-1]) if history else (None, None)
    if not isinstance(first, events.RunRequested) or not isinstance(last, events.RunFinished):
        raise UsageError("only a run that has ended can be retraced; give all its events")
    if sum(isinstance(event, events.RunLed) for event in history) > 1:
        raise UsageError(f"run {first.run} was interrupted and resumed; it cannot be retraced")
    return first, last.at


def _tasks_in(history: Sequence[events.Event]) -> Iterator[Task]:
    for event in history:
        match event:
            case events.PlanAdopted():
                yield from event.plan.tasks
            case events.TaskAdded():
                yield event.task
            case events.PlanAmended():
                yield from event.added
