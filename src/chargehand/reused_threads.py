"""Threads for plain functions: as many as are needed at once, kept a while for the next call."""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from chargehand.fork_guard import end_copy

#: threads kept for the next calls; starting one costs more than most plain tools do
MOST_IDLE = 8

Job: TypeAlias = Callable[[], None]


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
