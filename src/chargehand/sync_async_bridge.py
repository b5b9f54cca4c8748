"""Calls between plain and async code, both ways.

Plain code that has no event loop, or cannot lend its own, calls async code on one daemon loop per process. Async
code calls plain functions in threads: as many as are needed at once, kept a while for the next call.

All threads are started here, or through `start_thread` and `naming_shortage`: where the system gives no thread, it is
waited for, and then `OutOfThreads` says so.
"""

import asyncio
import contextlib
import contextvars
import os
import sys
import threading
import time
from asyncio.tasks import _enter_task, _leave_task
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

from chargehand.errors import OutOfThreads, UsageError, is_thread_shortage
from chargehand.fork_guard import end_copy

P = ParamSpec("P")
T = TypeVar("T")
Job: TypeAlias = Callable[[], None]

#: threads kept for the next calls; starting one costs more than most plain tools do
MOST_IDLE = 8
#: seconds that a thread is waited for when the system gives none, and between two tries
PATIENCE = 4.0
PAUSE = 0.1

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


# plain code calls async code


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run a coroutine on the background loop."""
    try:
        loop = background_loop()
    except BaseException:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, loop)


def wait_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for what comes of it, in any other thread.

    On that loop itself, where the workers of `run_sync` run, the wait would never end: `UsageError`.
    """
    if is_in_background():
        coroutine.close()
        raise UsageError(
            "this call blocks, and it was made on the event loop that would have to do the work: in an "
            "async worker, tool or hook of run_sync or of a pool; await the async method instead "
            "(`await boss.run(…)`), put the supervisor on the roster, or make the worker a plain function"
        )
    return run_in_background(coroutine).result()


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make an async function a plain one that waits for its result: see `wait_in_background`."""

    @wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> T:
        return wait_in_background(function(*args, **kwargs))

    return waiting


def read_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """`wait_in_background` for a short look into a journal, which needs no particular loop."""
    if not is_in_background():
        return run_in_background(coroutine).result()
    with ThreadPoolExecutor(1) as pool, naming_shortage():
        return pool.submit(asyncio.run, coroutine).result()


def is_in_background() -> bool:
    """Whether this code runs on the background loop."""
    try:
        return asyncio.get_running_loop() is _loop
    except RuntimeError:
        return False


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of the daemon thread, started when first asked for, and anew in a forked child."""
    global _loop, _pid  # one per process is the point
    with _lock:
        if _loop is None or _pid != os.getpid():
            loop = asyncio.new_event_loop()
            try:
                start_thread(
                    threading.Thread(target=loop.run_forever, name="chargehand", daemon=True)
                )
            except BaseException:
                loop.close()  # the next call tries again
                raise
            _loop, _pid = loop, os.getpid()
        return _loop


# async code calls plain functions


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a plain function in a daemon thread. Raises `OutOfThreads` if there is none for `PATIENCE` seconds.

    A function that hangs cannot be killed; on cancellation it goes on unheard. In a pool of fixed
    size it would hold a place that other calls wait for, and the end of the program would wait
    for it.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + PATIENCE
    while True:
        try:
            done = start_call(loop, call)
            break
        except OutOfThreads:
            if loop.time() >= ends_at or sys.is_finalizing():
                raise
        await asyncio.sleep(PAUSE)
    is_fine, value = await done
    if not is_fine:
        raise value
    outcome: T = value
    return outcome


async def in_thread_or_here(function: Callable[[], None]) -> None:
    """Call a function that must be called, such as one that closes: without a thread, while the event loop waits."""
    try:
        done = start_call(asyncio.get_running_loop(), function)
    except OutOfThreads:
        function()
        return
    is_fine, error = await done
    if not is_fine:
        raise error


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; waits up to `PATIENCE` seconds until the system gives one, then raises `OutOfThreads`."""
    ends_at = time.monotonic() + PATIENCE
    while True:
        try:
            with naming_shortage():
                return thread.start()
        except OutOfThreads:
            if time.monotonic() >= ends_at or sys.is_finalizing():
                raise
        time.sleep(PAUSE)


@contextlib.contextmanager
def naming_shortage() -> Iterator[None]:
    """Raise `OutOfThreads` for what Python raises if the system gives no thread."""
    try:
        yield
    except RuntimeError as error:
        if not is_thread_shortage(error) or isinstance(error, OutOfThreads):
            raise
        raise OutOfThreads from error


def start_call(
    loop: asyncio.AbstractEventLoop, call: Callable[[], Any]
) -> "asyncio.Future[tuple[bool, Any]]":
    """Begin a call in a daemon thread; the future gets (True, result) or (False, error).

    Raises `OutOfThreads` if there is no thread to be had; the function is not called then.
    """
    done: asyncio.Future[tuple[bool, Any]] = loop.create_future()
    home = os.getpid()

    def settle(outcome: tuple[bool, Any]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        # SystemExit and the like, set on a future, would end the event loop.
        try:
            try:
                outcome = (True, call())
            finally:
                end_copy(home)  # also where a tracer that the function left behind may raise
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome = (False, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    _hand_out(work)
    expect = getattr(loop, "expect_thread", None)
    if expect is not None:
        expect(done)  # virtual time must not jump while a thread is at work
    return done


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call a function in the thread of a loop: at once if this is that thread, else when the loop comes to it."""
    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


def _hand_out(job: Job) -> None:
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(jobs,), name="chargehand-thread", daemon=True
        )
        with naming_shortage():
            thread.start()
    jobs.put(job)


def _serve(jobs: "SimpleQueue[Job]") -> None:
    while True:
        jobs.get()()
        if len(_idle) >= MOST_IDLE:
            return
        _idle.append(jobs)


_idle: "deque[SimpleQueue[Job]]" = deque()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has the queues but not the threads


@contextlib.contextmanager
def outside_task() -> Iterator[None]:
    """Within it, there is no current task, as in a callback of the event loop.

    A hook that cancels `asyncio.current_task()` would otherwise cancel the loop of the runtime, and all runs with it.
    Undoing that afterwards is not possible in all versions of Python, and could swallow a cancellation from outside,
    which this cannot: nothing else happens in the event loop meanwhile.
    """
    task = asyncio.current_task()
    if task is None:
        yield
        return
    loop = asyncio.get_running_loop()
    _leave_task(loop, task)
    try:
        yield
    finally:
        _enter_task(loop, task)
