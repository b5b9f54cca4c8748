"""Progress: tasks by state, runs by state, and the attempts of each worker."""

from collections import Counter
from datetime import datetime, timedelta

from msgspec import Struct

from chargehand.decisions.task_graph import TaskState

_NO_TIME = timedelta(0)


class Load(Struct, frozen=True, kw_only=True):
    """What one worker is doing and has done, counted in attempts."""

    running: int = 0
    completed: int = 0
    #: lost attempts included
    failed: int = 0
    #: the total time of all completed attempts
    busy: timedelta = _NO_TIME
    #: time of its latest event
    last_at: datetime | None = None

    @property
    def mean(self) -> timedelta | None:
        """Mean duration of its completed attempts; None if there are none."""
        return self.busy / self.completed if self.completed else None

    def __add__(self, other: "Load") -> "Load":
        heard = [at for at in (self.last_at, other.last_at) if at is not None]
        return Load(
            running=self.running + other.running,
            completed=self.completed + other.completed,
            failed=self.failed + other.failed,
            busy=self.busy + other.busy,
            last_at=max(heard, default=None),
        )


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of one run, or of all together. Each task is counted once, by its state."""

    #: waiting for other tasks, for a slot or for the next try
    pending: int = 0
    running: int = 0
    #: waiting for a person's answer
    asking: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    #: removed from the plan, or stopped with its run
    cancelled: int = 0
    workers: dict[str, Load] = {}
    #: number of runs by state: running, waiting, …, succeeded, partial, failed, cancelled
    runs: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All tasks."""
        return self.settled + self.pending + self.running + self.asking

    @property
    def settled(self) -> int:
        """The number of finished tasks, however they ended."""
        return self.completed + self.failed + self.skipped + self.cancelled

    @property
    def active_workers(self) -> tuple[str, ...]:
        """The names of the workers with a running attempt."""
        return tuple(sorted(name for name, load in self.workers.items() if load.running))

    def __add__(self, other: "Progress") -> "Progress":
        workers = dict(self.workers)
        for name, load in other.workers.items():
            workers[name] = workers[name] + load if name in workers else load
        return Progress(
            pending=self.pending + other.pending,
            running=self.running + other.running,
            asking=self.asking + other.asking,
            completed=self.completed + other.completed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
            cancelled=self.cancelled + other.cancelled,
            workers=workers,
            runs=dict(Counter(self.runs) + Counter(other.runs)),
        )

    def words(self, *, is_led: bool = True) -> str:
        """As text. In a run that no process leads, running tasks count as interrupted."""
        counts = {name: getattr(self, name) for name in _SAID}
        if not is_led:
            counts = {"interrupted": counts.pop("running"), **counts}
        rest = "".join(f", {count} {name}" for name, count in counts.items() if count)
        return f"{self.completed} of {self.total} done{rest}"

    def __str__(self) -> str:
        return self.words()


_SAID = ("running", "pending", "asking", "failed", "skipped", "cancelled")

_PENDING = (TaskState.WAITING, TaskState.READY, TaskState.RETRYING)


def progress_of(
    states: Counter[TaskState], workers: dict[str, Load], runs: dict[str, int]
) -> Progress:
    """The progress, given the number of tasks in each state."""
    return Progress(
        pending=sum(states[state] for state in _PENDING),
        running=states[TaskState.RUNNING],
        asking=states[TaskState.ASKING],
        completed=states[TaskState.DONE],
        failed=states[TaskState.FAILED],
        skipped=states[TaskState.SKIPPED],
        cancelled=states[TaskState.CANCELLED],
        workers=workers,
        runs=runs,
    )
