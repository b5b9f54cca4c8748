"""Calls between plain and async code, both ways.

Plain code that has no event loop, or cannot lend its own, calls async code on one daemon loop per process. Async
code calls plain functions in threads: as many as are needed at once, kept a while for the next call.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

from chargehand.errors import UsageError
from chargehand.fork_guard import end_copy

P = ParamSpec("P")
T = TypeVar("T")
Job: TypeAlias = Callable[[], None]

#: threads kept for the next calls; starting one costs more than most plain tools do
MOST_IDLE = 8

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


# plain code calls async code


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run a coroutine on the background loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, background_loop())


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
    with ThreadPoolExecutor(1) as pool:
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
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="chargehand", daemon=True).start()
        return _loop


# async code calls plain functions


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a daemon thread.

    A function that hangs cannot be killed; on cancellation it goes on unheard. In a pool of fixed
    size it would hold a place that other calls wait for, and the end of the program would wait
    for it.
    """
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    done = start_call(asyncio.get_running_loop(), call)
    is_fine, value = await done
    if not is_fine:
        raise value
    return value


def start_call(
    loop: asyncio.AbstractEventLoop, call: Callable[[], Any]
) -> "asyncio.Future[tuple[bool, Any]]":
    """Begin a call in a daemon thread; the future gets (True, result) or (False, error).

    Raises `RuntimeError` if there is no thread to be had; the function is not called then.
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
        threading.Thread(target=_serve, args=(jobs,), name="chargehand-thread", daemon=True).start()
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
