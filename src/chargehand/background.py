"""One daemon event loop per process, for callers that have none or cannot lend theirs."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Run a coroutine on the background loop; works from any thread but that loop's own."""
    return asyncio.run_coroutine_threadsafe(coroutine, background_loop())


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of the daemon thread, started when first asked for, and anew in a forked child."""
    global _loop, _pid  # one per process is the point
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="chargehand", daemon=True).start()
        return _loop
