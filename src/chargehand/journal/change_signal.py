"""Waking up those who wait for the journal to change, in whatever event loop they wait."""

import asyncio
import threading
from collections.abc import Callable

#: seconds after which a waiter is woken for nothing. What changed is noted once for all waiters,
#: so one of several can miss a change that came between its last look and its next wait
PATIENCE = 1.0


class Changes:
    """Counts changes; those who wait are told of the next one, or of one since they last waited."""

    def __init__(self, nudge: Callable[[], None] = lambda: None) -> None:
        #: called when somebody begins to wait, for those who have to look for changes; may raise
        self._nudge = nudge
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self._count = 0
        self._seen = 0

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    @property
    def count(self) -> int:
        """How many there were so far; for a waiter that is not to miss what comes after its look."""
        return self._count

    def notify(self) -> None:
        """Something has changed. May be called from any thread."""
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:
                continue  # that loop is closed; nobody waits in it any more

    def note(self) -> None:
        """Something has changed: `notify` for where it happens often and hardly anybody waits.

        One who begins to wait in this very instant may be woken late, for its patience's sake.
        """
        self._count += 1
        if self._waiting:
            self.notify()

    async def wait(self, *, since: int | None = None) -> None:
        """Return soon after the next change; at once if there was one since the last wait, or
        since the count that this waiter knew."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._count != (self._seen if since is None else since):
                if since is None:
                    self._seen = self._count
                return
            future: asyncio.Future[None] = loop.create_future()
            self._waiting[future] = loop
        try:
            self._nudge()
            await asyncio.wait([future], timeout=PATIENCE)
        finally:
            with self._lock:
                self._waiting.pop(future, None)
                if since is None:
                    self._seen = self._count


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
