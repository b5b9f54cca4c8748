"""Ctrl-C, SIGTERM and SIGHUP: counted, and left to the parent by forked copies of this process."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | signal.Handlers

#: what a forked copy does on each signal that this process handles
_in_copies: dict[signal.Signals, Handler] = {}


@contextmanager
def usual_in_copies(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Give these handlers to every copy of this process that a worker forks inside the block.

    Set at the fork, not when a signal comes: a copy that computes need not come to its Python handler at all (it never
    does in CPython 3.13.0 if another thread forked it).
    """
    before = dict(_in_copies)
    _in_copies.update(handlers)
    try:
        yield
    finally:
        _in_copies.clear()
        _in_copies.update(before)


def _leave_to_the_parent() -> None:
    """In a forked copy: a signal to it must not wake the parent's event loop, whose socket it shares."""
    if _in_copies:
        signal.set_wakeup_fd(-1)
        for sign, handler in _in_copies.items():
            signal.signal(sign, handler)
        _in_copies.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)


@contextmanager
def counting_signals(interrupted: Callable[[int], None]) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP counted, where nobody else has a say in them: `nohup` ignores SIGHUP.

    A handler, not `except KeyboardInterrupt`: an exception could come at any line, also between two
    that belong together.
    """
    usual: dict[signal.Signals, Handler] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    if sys.platform != "win32":
        usual[signal.SIGHUP] = signal.SIG_DFL
    is_main = threading.current_thread() is threading.main_thread()
    ours = [
        sign for sign, handler in usual.items() if is_main and signal.getsignal(sign) is handler
    ]
    times = 0

    def count(sign: int, _: object) -> None:
        nonlocal times
        if times and sign not in (signal.SIGINT, signal.SIGTERM):
            return  # the kernel and the shell both tell of a closed terminal, and nobody has asked again
        times += 1
        interrupted(times)

    for sign in ours:
        signal.signal(sign, count)
    try:
        with usual_in_copies({sign: usual[sign] for sign in ours}):
            yield
    finally:
        for sign in ours:
            signal.signal(sign, usual[sign])
