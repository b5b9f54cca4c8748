"""The embedded engine: attempts as tasks of the event loop, in threads, or in child processes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from chargehand.engines.base import Ending, Job, Reports
from chargehand.engines.brief import Brief
from chargehand.facts.outcome import Cancelled, ErrorClass, Failed

GRACE = 0.5
#: seconds that an attempt has for tidying up when its time is over


class LocalEngine:
    """Runs every attempt in this process, or in children of it."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str, int], tuple[asyncio.Task[None], Job]] = {}

    def start(self, job: Job, to: Reports) -> None:
        brief = job.brief
        # Held here until it has reported, so that neither it nor its error can get lost.
        task = asyncio.get_running_loop().create_task(self._run(job, to))
        self._running[brief.run, brief.task.id, brief.attempt] = (task, job)

    def stop(self, run: str, task: str, attempt: int, reason: str) -> None:
        running = self._running.get((run, task, attempt))
        if running is not None:
            running[1].brief.is_preempted = False  # it ends, and makes room for nobody
            _stop(*running, reason)

    def preempt(self, run: str, task: str, attempt: int) -> None:
        running = self._running.get((run, task, attempt))
        if running is not None:
            running[1].brief.is_preempted = True

    async def close(self) -> None:
        running = list(self._running.values())
        for task, job in running:
            _stop(task, job, "the engine was closed")
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)

    async def _run(self, job: Job, to: Reports) -> None:
        brief = job.brief
        outcome: Ending
        job.is_begun = True
        try:
            if job.stop_reason:
                outcome = Cancelled(reason=job.stop_reason)
            elif job.timeout is None:
                outcome = await job.work(job)
            else:
                outcome = await self._within(job)
        except asyncio.CancelledError:
            outcome = Cancelled(reason=job.stop_reason or "its worker cancelled itself")
        del self._running[brief.run, brief.task.id, brief.attempt]
        to.report(job, outcome)
        if job.leftover is None or job.leftover.done():
            to.freed(job)
        else:
            _free_when_done(job.leftover, job, to)

    async def _within(self, job: Job) -> Ending:
        assert job.timeout is not None  # noqa: S101 - for the type checker; the caller has looked
        seconds = job.timeout.total_seconds()
        work = asyncio.ensure_future(job.work(job))
        try:
            await asyncio.wait({work}, timeout=seconds)
        except asyncio.CancelledError:
            work.cancel()
            return await work
        if work.done():
            return work.result()
        work.cancel()
        # Not every worker lets itself be cancelled; one that goes on keeps its place, unheard.
        job.leftover = job.leftover or work
        await asyncio.wait({work}, timeout=GRACE)
        return Failed(kind=ErrorClass.TIMEOUT, message=f"it took longer than {seconds:g} s")


def _free_when_done(leftover: asyncio.Future[Any], job: Job, to: Reports) -> None:
    leftover.add_done_callback(lambda _: to.freed(job))


def _stop(task: asyncio.Task[None], job: Job, reason: str) -> None:
    job.stop_reason = job.stop_reason or reason
    # Cancelling a task that has not begun would end it before it could report.
    if job.is_begun:
        task.cancel()


class Threads:
    """Threads for workers that are plain functions."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="chargehand-worker")

    async def call(self, function: Callable[[Brief], Any], brief: Brief, job: Job) -> Any:
        """Call a plain function in a thread. Cancelled, it goes on unheard; `job.leftover` tells when it ends."""
        loop = asyncio.get_running_loop()
        brief.serve_thread(loop)
        future = loop.run_in_executor(self._pool, _caught, function, brief)
        job.leftover = future
        # Shielded, because cancelling the future would only make us forget the thread.
        is_fine, value = await asyncio.shield(future)
        if not is_fine:
            raise value
        return value

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _caught(function: Callable[[Brief], Any], brief: Brief) -> tuple[bool, Any]:
    # SystemExit and the like would end the thread or, set on a future, the event loop.
    try:
        return True, function(brief)
    except BaseException as error:  # noqa: BLE001 - handed on to the attempt as it is
        return False, error
