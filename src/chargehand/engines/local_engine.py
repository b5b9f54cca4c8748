"""The embedded engine: attempts as tasks of the event loop, in threads, or in child processes."""

import asyncio
import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from chargehand.engines.base import Ending, Job, Reports
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import Cancelled, ErrorClass, Failed, broken
from chargehand.sync_async_bridge import start_call

#: seconds that an attempt has for tidying up when its time is over
GRACE = 0.5
#: seconds that an attempt has at least for tidying up when it is told to stop before its time is over
STOP_GRACE = 5.0

#: seconds after which a thread or a process that could not be started is tried again
RETRY_START = 1.0

log = logging.getLogger("chargehand")

_Key = tuple[str, str, int]

#: the functions that this process is importing to work for a parent
being_loaded: list[str] = []


def refuse_while_loading() -> None:
    """Raise `UsageError` in a child that is still importing its function.

    A script without a `__main__` guard would otherwise start its run again in every child.
    """
    if being_loaded:
        raise UsageError(
            f"a run was started while a child process was importing {being_loaded[-1]}; "
            "put what starts it under `if __name__ == '__main__':`"
        )


class LocalEngine:
    """Runs every attempt in this process, or in children of it.

    An attempt ends when its time is over or it was told to stop, whatever its function does then: it
    has a moment for tidying up, after which its end is reported for it and what it says later is not
    heard. Code that goes on all the same (a thread cannot be killed, and a coroutine may ignore that
    it was cancelled) keeps its place until it returns.
    """

    def __init__(self) -> None:
        self._running: dict[_Key, _Attempt] = {}

    def start(self, job: Job, to: Reports) -> None:
        key = (job.run, job.task, job.attempt)
        # Held here until it has ended, so that neither it nor its error can get lost.
        self._running[key] = _Attempt(job, to, self._running, key)

    def stop(self, run: str, task: str, attempt: int, reason: str) -> None:
        running = self._running.get((run, task, attempt))
        if running is not None:
            running.job.brief.is_preempted = False  # it ends, and makes room for nobody
            running.stop(reason)

    def preempt(self, run: str, task: str, attempt: int) -> None:
        running = self._running.get((run, task, attempt))
        if running is not None:
            running.job.brief.is_preempted = True

    async def close(self) -> None:
        running = [attempt for attempt in self._running.values() if not attempt.is_reported]
        for attempt in running:
            attempt.stop("the engine was closed")
        if running:
            await asyncio.wait([attempt.wait_reported() for attempt in running])


class _Attempt:
    """One attempt under way: its task, its timer, and whether its end was reported."""

    __slots__ = (
        "_all",
        "_key",
        "_loop",
        "_task",
        "_timer",
        "_to",
        "_verdict",
        "_waiter",
        "is_reported",
        "job",
    )

    def __init__(self, job: Job, to: Reports, all_: "dict[_Key, _Attempt]", key: _Key) -> None:
        self.job = job
        self.is_reported = False
        self._to = to
        self._all = all_
        self._key = key
        self._loop = asyncio.get_running_loop()
        #: its outcome after a timeout, whatever the function returns
        self._verdict: Failed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(self._run())
        self._timer: asyncio.TimerHandle | None = None
        if job.timeout is not None:
            stops_at = self._loop.time() + job.timeout.total_seconds()
            job.brief.waits_until = min(job.brief.waits_until, stops_at)
            self._timer = self._loop.call_at(stops_at, self._time_out)

    def wait_reported(self) -> "asyncio.Future[None]":
        """Done when its end is reported."""
        self._waiter = self._waiter or self._loop.create_future()
        return self._waiter

    def stop(self, reason: str) -> None:
        """Tell it to stop. What it says within a moment still counts."""
        job = self.job
        if self.is_reported or job.stop_reason:
            return  # not to cancel it again while it tidies up
        job.stop_reason = reason
        if self._verdict is not None:
            return  # its time is over: it was cancelled already
        # A supervisor below ends what it leads in its own time; the attempts there end as here.
        if not job.leads_run:
            self._give_up_after(max(STOP_GRACE, job.grace), Cancelled(reason=reason))
        # Cancelling a task that has not begun would end it before it could report.
        if job.is_begun:
            self._task.cancel()

    async def _run(self) -> None:
        job = self.job
        ending: Ending
        job.is_begun = True
        try:
            if job.stop_reason:
                ending = Cancelled(reason=job.stop_reason)
            else:
                ending = await job.work(job)
        except asyncio.CancelledError:
            ending = Cancelled(reason=job.stop_reason or "its worker cancelled itself")
        except GeneratorExit as error:
            if self._loop.is_closed() or not self._loop.is_running():
                # The event loop is gone, and with it whoever would hear.
                raise
            ending = broken(error)  # raised in a thread that its worker waited for
        except BaseException as error:  # noqa: BLE001 - nothing is to keep an attempt from ending
            ending = broken(error)
        del self._all[self._key]
        if not self.is_reported:
            self._report(self._verdict or ending)
        leftover = job.leftover
        if leftover is None or leftover.done():
            self._to.freed(job)
        else:
            leftover.add_done_callback(self._free)

    def _free(self, _: object) -> None:
        # Not a lambda in `_run`: its cells would be two more objects for the collector, per attempt.
        self._to.freed(self.job)

    def _report(self, ending: Ending) -> None:
        job = self.job
        if self._timer is not None:
            self._timer.cancel()
        if job.stop_reason and type(ending) is Failed and ending is not self._verdict:
            # It failed at tidying up, which is no reason to count a try.
            ending = ending if job.leads_run else Cancelled(reason=job.stop_reason)
        self.is_reported = True
        try:
            self._to.report(job, ending)
        except Exception as error:  # noqa: BLE001 - as above: what it said cannot even be written down
            self._to.report(job, broken(error))
        if self._waiter is not None:
            self._waiter.set_result(None)

    def _time_out(self) -> None:
        assert self.job.timeout is not None  # noqa: S101 - for the type checker: the timer was set
        message = f"it took longer than {self.job.timeout.total_seconds():g} s"
        self._verdict = Failed(kind=ErrorClass.TIMEOUT, message=message)
        self._task.cancel()
        self._give_up_after(GRACE, self._verdict)

    def _give_up_after(self, seconds: float, ending: Ending) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._give_up, ending)

    def _give_up(self, ending: Ending) -> None:
        """It was told to stop and did not: end it for the schedule, and hear it no more."""
        job = self.job
        log.warning(
            "attempt_goes_on run=%s task=%s attempt=%d worker=%s; it was told to stop but still runs: what it "
            "returns is ignored, and its slot stays taken until then. Use process=True to have it killed",
            *(job.run, job.task, job.attempt, job.worker),
        )
        self._task.cancel()  # once more: what swallows this often does so once
        self._report(ending)


class Threads:
    """Daemon threads for workers that are plain functions.

    A function that never returns must not keep the interpreter from exiting, as the threads of a
    `ThreadPoolExecutor` would: what goes on at exit is named in one line of the log.
    """

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._is_closed = False

    async def call(self, function: Callable[[Brief], Any], brief: Brief, job: Job) -> Any:
        """Call a plain function in a thread. Cancelled, it goes on unheard; `job.leftover` tells when it ends."""
        loop = asyncio.get_running_loop()
        brief.serve_thread(loop)
        call = partial(_in_its_name, job.worker, function, brief)
        await self._room.acquire()
        future = None
        try:
            while (future := self._started(loop, call, brief)) is None:  # noqa: ASYNC110 - no event says when
                await asyncio.sleep(RETRY_START)
        finally:
            if future is None:
                self._room.release()
        future.add_done_callback(self._make_room)
        job.leftover = future
        # Shielded, because cancelling the future would only make us forget the thread.
        is_fine, value = await asyncio.shield(future)
        if not is_fine:
            raise value
        return value

    def _started(
        self, loop: asyncio.AbstractEventLoop, call: Callable[[], Any], brief: Brief
    ) -> "asyncio.Future[tuple[bool, Any]] | None":
        """The call in its thread; None if there is none to be had just now."""
        try:
            return start_call(loop, call)
        except RuntimeError as error:
            if self._is_closed or sys.is_finalizing():
                raise
            say_short("thread", brief, error)
            return None

    def _make_room(self, _: object) -> None:
        self._room.release()

    def close(self) -> None:
        """Wait for no more threads. Functions that run go on."""
        self._is_closed = True


def _in_its_name(worker: str, function: Callable[[Brief], Any], brief: Brief) -> Any:
    """Call the function in a thread that bears the name of its worker while it runs."""
    thread = threading.current_thread()
    before, thread.name = thread.name, f"chargehand-worker-{worker}"
    _at_work[thread] = worker
    try:
        return function(brief)
    finally:
        _at_work.pop(thread, None)
        thread.name = before


def _say_who_goes_on() -> None:
    if _at_work:
        log.warning(
            "workers_still_running workers=%s; the program ends, and cuts off what they do. Use process=True "
            "for functions that may not return",
            ", ".join(sorted(set(_at_work.values()))),
        )


#: workers whose functions run in threads just now
_at_work: dict[threading.Thread, str] = {}
atexit.register(_say_who_goes_on)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_at_work.clear)  # the threads stay with the parent


def say_short(of: str, brief: Brief, error: Exception) -> None:
    """There is no thread or process to be had for an attempt just now; it is waited for."""
    log.warning(
        "no_%s_available run=%s task=%s worker=%s error=%s; trying again",
        *(of, brief.run, brief.task.id, brief.worker, error),
    )
