"""One daemon event loop per process, for callers that have none or cannot lend theirs."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from chargehand.errors import UsageError
from chargehand.reused_threads import naming_shortage, start_thread

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


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
