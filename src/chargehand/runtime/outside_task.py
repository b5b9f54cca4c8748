"""Calls hooks in such a way that they cannot cancel the task that calls them."""

import asyncio
import contextlib
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Iterator


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
