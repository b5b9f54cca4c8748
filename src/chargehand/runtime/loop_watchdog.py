"""A thread that watches event loops and names the code that blocks one, while it blocks."""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

#: seconds of a blocked event loop that are worth a warning
STALL = 1.0
#: the innermost of a stack; those further out are asyncio's and ours
FRAMES = 12

log = logging.getLogger("chargehand")


class Watchdog:
    """Asks an event loop for a sign of life twice a second; if none comes, logs the stack of its thread.

    Nothing can stop code that blocks its own event loop, so all that is done is to say so, once a
    stall. Extension code that holds the interpreter's lock is named when it lets go of that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._is_told = False

    @classmethod
    def watch(cls) -> "Watchdog":
        """Watch the running loop from now on, until `release`."""
        dog = cls()
        with _lock:
            _start()
            _dogs.add(dog)
        _is_needed.set()
        return dog

    def release(self) -> None:
        with _lock:
            _dogs.discard(self)

    def look(self) -> None:
        """In the thread of all watchdogs: ask, or tell that the last question was not answered."""
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop was closed without a word
                self.release()
        elif now - self._asked_at > STALL and not self._is_told:
            self._is_told = True
            self._tell(now - self._asked_at)

    def _answer(self) -> None:
        asked_at, self._asked_at = self._asked_at, None
        if self._is_told and asked_at is not None:
            self._is_told = False
            log.warning(
                "event_loop_stalled seconds=%.1f; it runs again", time.monotonic() - asked_at
            )

    def _tell(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented, and the only way
        stack = traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
        log.warning(
            "event_loop_blocked seconds=%.1f; nothing else happens in this loop meanwhile: %s. It is "
            "at\n%s",
            seconds,
            advice([each.filename for each in stack]),
            "".join(stack.format()[-FRAMES:]).rstrip(),
        )


def advice(files: Sequence[str]) -> str:
    """What helps, by the files of the stack of what blocks, the innermost last."""
    inner = files[-FRAMES:]
    if any(file.startswith("<frozen importlib") for file in inner):
        return (
            "a module is imported here, once; import it before the loop starts to have it at hand"
        )
    if inner and inner[-1].startswith(_OURS):
        return "this is chargehand itself; if it comes often, please report it"
    return "make what blocks it a plain function or process=True"


_OURS = str(Path(__file__).parents[1]) + os.sep
_lock = threading.Lock()
_dogs: set[Watchdog] = set()
_is_needed = threading.Event()
_pid = 0


def _start() -> None:
    """Start the one thread of this process, if it does not run; a forked child has none."""
    global _pid  # one per process is the point
    if _pid == os.getpid():
        return
    _dogs.clear()
    try:
        threading.Thread(target=_run, name="chargehand-watchdog", daemon=True).start()
    except RuntimeError as error:  # no thread to be had just now: work comes first
        log.warning("watchdog_not_started error=%s", error)
    else:
        _pid = os.getpid()


def _run() -> None:
    while True:
        _is_needed.wait()
        with _lock:
            dogs = list(_dogs)
            if not dogs:
                _is_needed.clear()
        for dog in dogs:
            dog.look()
        del dogs
        time.sleep(STALL / 2)
