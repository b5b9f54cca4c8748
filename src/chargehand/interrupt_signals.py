"""Ctrl-C and SIGTERM, counted."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counting_signals(interrupted: Callable[[int], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM counted, where nobody else has a say in them.

    A handler, not `except KeyboardInterrupt`: an exception could come at any line, also between two
    that belong together.
    """
    usual: dict[signal.Signals, Callable[[int, FrameType | None], object] | signal.Handlers] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    is_main = threading.current_thread() is threading.main_thread()
    ours = [
        sign for sign, handler in usual.items() if is_main and signal.getsignal(sign) is handler
    ]
    times = 0

    home = os.getpid()

    def count(number: int, _: object) -> None:
        nonlocal times
        if os.getpid() != home:  # a copy that a worker forked: its signals are not the supervisor's
            signal.signal(number, usual[signal.Signals(number)])
            os.kill(os.getpid(), number)
            return
        times += 1
        interrupted(times)

    for sign in ours:
        signal.signal(sign, count)
    try:
        yield
    finally:
        for sign in ours:
            signal.signal(sign, usual[sign])
