"""Troubles: stuck attempts, workers that keep failing, questions that wait for a person."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

#: failures of one worker in a row that are a trouble
IN_A_ROW = 3
#: an attempt is stuck if it is silent for this many times the mean duration of its worker
FACTOR = 3
#: attempts that a worker must have completed before its mean duration is used
KNOWN = 3
#: an attempt that is silent for less is never stuck, however quick its worker is
LEAST = timedelta(seconds=10)
#: a worker whose last failure is older is no trouble any more
RECENT = timedelta(hours=1)
#: failures that are kept for each worker
_KEPT = 100


class Symptom(StrEnum):
    """The kinds of troubles."""

    STUCK = "stuck"  #: an attempt is silent for too long
    FAILING = "failing"  #: a worker keeps failing
    ASKING = "asking"  #: a question waits for a person
    UNLED = "unled"  #: an open run has no leader, or its leader is silent
    GONE = "gone"  #: the process that had a task of a pool is gone
    UNREADABLE = "unreadable"  #: a run cannot be read


class Trouble(Struct, frozen=True, kw_only=True):
    """One problem, and what you can do about it."""

    kind: Symptom
    #: name of the worker, or id of the question or the run
    name: str
    fact: str
    advice: str
    run: str = ""
    task: str = ""
    since_at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.fact}; {self.advice}"


class Health(Struct, frozen=True):
    """All troubles at one moment."""

    at: datetime
    troubles: tuple[Trouble, ...] = ()

    @property
    def is_well(self) -> bool:
        return not self.troubles

    def of(self, kind: Symptom | str) -> list[Trouble]:
        """The troubles of one kind."""
        return [trouble for trouble in self.troubles if trouble.kind == kind]

    def __str__(self) -> str:
        return "\n".join(map(str, self.troubles)) or "all is well"


class Failure(Struct, frozen=True):
    """A failed attempt of a worker."""

    at: datetime
    #: run and task
    where: str
    why: str


class WorkerPulse:
    """The failures of each worker in a row, over all runs. Reports may come in any order: their times decide."""

    def __init__(self) -> None:
        self._done_at: dict[str, datetime] = {}
        self._failures: dict[str, list[Failure]] = {}

    def done(self, worker: str, at: datetime) -> None:
        """An attempt of this worker is done."""
        before = self._done_at.get(worker)
        self._done_at[worker] = at if before is None else max(at, before)
        if worker in self._failures:
            self._failures[worker] = self.in_a_row(worker)

    def failed(self, worker: str, at: datetime, where: str, why: str) -> None:
        """An attempt of this worker failed."""
        failures = [*self._failures.get(worker, ()), Failure(at, where, why)]
        self._failures[worker] = sorted(failures, key=lambda each: each.at)[-_KEPT:]

    def in_a_row(self, worker: str) -> list[Failure]:
        """The failures since the worker's last success, the oldest first."""
        done_at = self._done_at.get(worker)
        failures = self._failures.get(worker, [])
        return [each for each in failures if done_at is None or each.at > done_at]

    def troubles(self, now: datetime) -> list[Trouble]:
        """The workers that keep failing, with a recent failure."""
        rows = {worker: self.in_a_row(worker) for worker in sorted(self._failures)}
        return [
            _failing(name, row)
            for name, row in rows.items()
            if len(row) >= IN_A_ROW and now - row[-1].at <= RECENT
        ]


def _failing(worker: str, row: list[Failure]) -> Trouble:
    last = row[-1]
    many = f"{len(row)} times" if len(row) < _KEPT else f"at least {_KEPT} times"
    return Trouble(
        kind=Symptom.FAILING,
        name=worker,
        fact=f"worker {worker} failed {many} in a row, last in {last.where}: {last.why}",
        advice="fix the cause, or drain this worker and give its tasks to another one",
        since_at=row[0].at,
    )


def patience_with(
    worker: str, usual: Mapping[str, tuple[int, timedelta]], patience: timedelta
) -> timedelta:
    """How long an attempt of this worker may be silent: `patience`, or less if the worker is known to be quick."""
    count, mean = usual.get(worker, (0, patience))
    return patience if count < KNOWN else min(patience, max(FACTOR * mean, LEAST))
