"""Waiting in a plain thread for what is done on the background loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from chargehand.background import background_loop, run_in_background
from chargehand.errors import UsageError

T = TypeVar("T")


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """What comes of a coroutine. May be called from any thread, but not by what runs on that loop itself."""
    try:
        is_there = asyncio.get_running_loop() is background_loop()
    except RuntimeError:
        is_there = False
    if is_there:
        coroutine.close()
        raise UsageError(
            "a pool cannot be waited for from an async worker of its own: the loop it waits for is "
            "the one that would stand still; make the worker a plain function, or use brief.board"
        )
    return run_in_background(coroutine).result()
