"""Closes, as the program ends, the connections that nobody closed.

They live on a daemon thread, which just stops; their processes would be left to notice that.
"""

import asyncio
import atexit
import contextlib
import functools
import os
from typing import Any, Protocol

#: seconds for all of them
PATIENCE = 10.0


class Stoppable(Protocol):
    """A connection, and the event loop that it lives on."""

    loop: asyncio.AbstractEventLoop

    async def stop(self) -> None: ...


_open: dict[
    Stoppable, int
] = {}  # with the process that opened it: a fork has only its own to close


def keep_until_gone(connection: Stoppable, task: "asyncio.Task[Any]") -> None:
    """Hold on to a connection until its task is done, at the latest when the program ends."""
    _register()
    _open[connection] = os.getpid()
    task.add_done_callback(lambda _: _open.pop(connection, None))


@functools.cache
def _register() -> None:
    atexit.register(_close_all)


def _close_all() -> None:
    mine = [each for each, pid in list(_open.items()) if pid == os.getpid()]
    closing = [asyncio.run_coroutine_threadsafe(each.stop(), each.loop) for each in mine]
    for each in closing:
        with contextlib.suppress(Exception):
            each.result(PATIENCE)
