"""Workers with faults: slow, failing, dying or hanging. Each function wraps a worker and keeps its name."""

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.engines.base import Lost
from chargehand.engines.brief import (
    AttemptHost,
    Brief,
    NestingHost,
    PlanningHost,
    SharedBoard,
)
from chargehand.errors import UsageError, WorkerError
from chargehand.facts.argument_checks import Duration, count, duration, shown
from chargehand.facts.outcome import Done, ErrorClass, Failed, NeedsInput
from chargehand.roles.function_worker import Where, Work
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import Resources
from chargehand.supervisor import Supervisor

Breaking: TypeAlias = Callable[[Member], Member]
_DEAD = "its worker died, as planned"


def slow(worker: Member, seconds: Duration) -> Member:
    """Wrap a worker so that it waits for `seconds` before each attempt."""
    wait = duration(seconds, "slow: seconds").total_seconds()

    async def later(work: Work, brief: Brief) -> Any:
        await asyncio.sleep(wait)
        return await work(brief)

    def later_in_thread(work: Work, brief: Brief) -> Any:
        time.sleep(wait)
        return work(brief)

    return _BrokenWorker(worker, later, later_in_thread)


def hangs(worker: Member) -> Member:
    """Wrap a worker so that it never returns: only a timeout, a deadline or a cancellation ends its attempts."""

    async def never(work: Work, brief: Brief) -> Any:  # noqa: ARG001 - the signature of all of these
        await asyncio.Event().wait()

    return _BrokenWorker(worker, never, None)


def fails(
    worker: Member, error: BaseException | None = None, *, attempts: int | None = None
) -> Member:
    """Wrap a worker so that its attempts raise `error`, by default a `WorkerError`.

    With `attempts`, only the first `attempts` attempts at each task fail.
    """
    left = None if attempts is None else count(attempts, "fails: attempts", least=1)
    begun: Counter[tuple[str, str]] = Counter()
    if error is not None and not isinstance(error, BaseException):
        raise UsageError(f"fails: error={shown(error)} is not an exception; give ValueError('…')")

    def strike(brief: Brief) -> None:
        begun[brief.run, brief.task.id] += 1
        if left is None or begun[brief.run, brief.task.id] <= left:
            raise error or WorkerError(f"{worker.name} fails, as planned")

    async def failing(work: Work, brief: Brief) -> Any:
        strike(brief)
        return await work(brief)

    def failing_in_thread(work: Work, brief: Brief) -> Any:
        strike(brief)
        return work(brief)

    return _BrokenWorker(worker, failing, failing_in_thread)


def dies(worker: Member, *, at_step: int, times: int = 1) -> Member:
    """Wrap a worker so that its first `times` attempts die right after their `at_step`-th step is recorded.

    Steps are model calls, tool calls and calls to `brief.step`; replayed steps do not count. The attempt is lost, as if
    its process had been killed, and another attempt continues. If an attempt that should die returns earlier, its task
    fails and is not retried, so that a test does not pass without its fault.
    """
    last = count(at_step, "dies: at_step", least=1)
    left = count(times, "dies: times", least=1)

    def host_of(brief: Brief) -> AttemptHost:
        nonlocal left
        if left:
            left -= 1
            return _DyingHost(brief.host, last)
        return brief.host

    async def dying(work: Work, brief: Brief) -> Any:
        brief.host = host_of(brief)
        try:
            return _survived(await work(brief), brief.host, last)
        except _Died:
            return Lost(_DEAD)

    def dying_in_thread(work: Work, brief: Brief) -> Any:
        brief.host = host_of(brief)
        try:
            return _survived(work(brief), brief.host, last)
        except _Died:
            return Lost(_DEAD)

    return _BrokenWorker(worker, dying, dying_in_thread)


def replace_worker(boss: Supervisor, name: str, breaking: Breaking) -> None:
    """Replace a worker of an existing supervisor: `replace_worker(boss, "researcher", fails)`.

    Call it before the first run. Name a worker of a nested supervisor by its path: `"team/researcher"`.
    """
    path = name.split("/")
    for above in path[:-1]:
        below = boss.roster.get(above)
        if not isinstance(below, Supervisor):
            raise UsageError(f"{shown(above)} is not a supervisor on the roster of {boss.name!r}")
        boss = below
    member = boss.roster.get(path[-1])
    if member is None:
        there = ", ".join(worker.name for worker in boss.roster)
        raise UsageError(f"{boss.name!r} has no worker {path[-1]!r}; there are {there}")
    broken = breaking(member)
    if broken.name != member.name:
        raise UsageError(f"the worker in place of {member.name!r} must have its name")
    boss.roster.leave(member.name)
    boss.roster.join(broken)


def _survived(ending: Any, host: AttemptHost, at_step: int) -> Any:
    """The outcome of a worker; a final failure if the attempt should have died."""
    if not isinstance(host, _DyingHost) or isinstance(ending, (Failed, NeedsInput)):
        return ending
    why = (
        f"dies(at_step={at_step}) did not strike: the attempt returned after {at_step - host.left} new steps; "
        "give a lower at_step, or fewer times"
    )
    return Failed(kind=ErrorClass.LOGIC, message=why, error="FaultNotStruck", is_final=True)


class _Died(BaseException):
    """Ends an attempt. A `BaseException`, so that workers do not catch it by accident."""


class _BrokenWorker:
    """A worker whose attempts go through a wrapper function."""

    def __init__(
        self,
        worker: Member,
        around: Callable[[Work, Brief], Any],
        in_thread: Callable[[Work, Brief], Any] | None,
    ) -> None:
        self._worker = worker  # first, for the repr of one that is refused
        if not hasattr(worker, "work") or not hasattr(worker, "place"):
            raise UsageError(
                f"{shown(worker)} is not a worker; give a ch.Worker, a supervisor or a function under @ch.worker"
            )
        if worker.where is Where.PROCESS:
            raise UsageError(
                f"worker {worker.name!r} runs in a process of its own, which this cannot reach; "
                "test it without process=True"
            )
        self._around = around
        self._in_thread = in_thread
        self.name = worker.name
        self.description = worker.description
        self.skills = worker.skills
        self.timeout = worker.timeout
        self.place = worker.place
        is_thread = worker.where is Where.THREAD and in_thread is not None
        self.where = Where.THREAD if is_thread else worker.where
        if worker.where is Where.THREAD and in_thread is None:
            self.where = Where.LOOP

    def __getattr__(self, name: str) -> Any:
        if name == "_worker":  # a copy asks before it has one
            raise AttributeError(name)
        return getattr(self._worker, name)

    def __repr__(self) -> str:
        return f"<broken {self._worker!r}>"

    def work(self, resources: Resources) -> Work:
        work, around, in_thread = self._worker.work(resources), self._around, self._in_thread
        if self.where is Where.THREAD and in_thread is not None:
            return lambda brief: in_thread(work, brief)

        async def broken(brief: Brief) -> Any:
            done = around(work, brief)
            return await done if inspect.isawaitable(done) else done

        return broken

    def version(self, resources: Resources) -> str:
        return self._worker.version(resources)


class _DyingHost(AttemptHost):
    """A host that ends the attempt after `last` recorded steps."""

    def __init__(self, host: AttemptHost, last: int) -> None:
        self._host = host
        #: steps until the attempt dies
        self.left = last

    @property
    def nesting(self) -> NestingHost | None:
        return self._host.nesting

    @property
    def planning(self) -> PlanningHost | None:
        return self._host.planning

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        await self._host.begin_step(brief, step, is_urgent=is_urgent)

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        await self._host.end_step(brief, step, outcome)
        self.left -= 1
        if self.left == 0:
            raise _Died

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        self._host.note_progress(brief, text, fraction)

    def board_for(self, brief: Brief) -> SharedBoard:
        return self._host.board_for(brief)
