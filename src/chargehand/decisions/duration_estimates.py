"""Estimated durations of tasks, learned from the attempts of each worker."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec import Struct, field

from chargehand.facts.events import Pace
from chargehand.facts.plan import Task

#: older attempts lose weight once a worker has this many
_REMEMBERED = 200
#: with this many attempts of a worker, the fastest of them counts as its least time
ENOUGH = 10


def learn(known: Mapping[str, Pace], seen: Iterable[tuple[str, Pace]]) -> dict[str, Pace]:
    """The paces of all workers after these runs. Each attempt has the same weight, up to `_REMEMBERED`."""
    paces = dict(known)
    for worker, pace in seen:
        before = paces.get(worker)
        if before is None:
            paces[worker] = Pace(min(pace.count, _REMEMBERED), pace.mean, pace.least)
            continue
        count = before.count + pace.count
        mean = (before.mean * before.count + pace.mean * pace.count) / count
        least = [each for each in (before.least, pace.least) if each is not None]
        paces[worker] = Pace(min(count, _REMEMBERED), mean, min(least, default=None))
    return paces


def least_time(task: Task, paces: Mapping[str, Pace]) -> timedelta | None:
    """The least time that this task takes: its `expect`, else the fastest attempt of its worker so far.

    None if too little is known to refuse a start.
    """
    if task.expect is not None:
        return task.expect
    pace = paces.get(task.worker)
    return None if pace is None or pace.count < ENOUGH else pace.least


class WorkTimes(Struct):
    """How long the successful attempts of a run took, by worker."""

    #: how many, their total time, the time of the fastest
    by_worker: dict[str, tuple[int, timedelta, timedelta]] = field(default_factory=dict)

    def add(self, worker: str, took: timedelta) -> None:
        count, total, least = self.by_worker.get(worker, (0, _NO_TIME, took))
        self.by_worker[worker] = (count + 1, total + took, min(least, took))

    def mean(self, worker: str) -> timedelta | None:
        """The mean duration of this worker's attempts; None if none is done."""
        count, total, _ = self.by_worker.get(worker, (0, _NO_TIME, _NO_TIME))
        return total / count if count else None

    @property
    def total(self) -> timedelta:
        return sum((total for _, total, _ in self.by_worker.values()), _NO_TIME)

    def paces(self) -> dict[str, Pace]:
        return {
            worker: Pace(count, total / count, least)
            for worker, (count, total, least) in self.by_worker.items()
        }


_NO_TIME = timedelta(0)


class Estimates:
    """Expected seconds of each task. If nothing is known of any worker, every task counts 1."""

    def __init__(self, paces: Mapping[str, Pace]) -> None:
        self._seconds = {worker: pace.mean.total_seconds() for worker, pace in paces.items()}
        known = [seconds for seconds in self._seconds.values() if seconds > 0]
        self._unknown = sum(known) / len(known) if known else 1.0

    def seconds(self, task: Task) -> float:
        if task.expect is not None:
            return task.expect.total_seconds()
        return self._seconds.get(task.worker or task.skill, self._unknown)
