"""Writes that wait until the journal can be written again, and callers who do not wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from chargehand.errors import JournalError, JournalFull, JournalReadOnly

T = TypeVar("T")

#: it may take long until these are over
NO_ROOM = (JournalFull, JournalReadOnly)


class BlockedWrites:
    """The runs whose events cannot be written just now, and why."""

    def __init__(self) -> None:
        self._errors: dict[str, JournalError] = {}
        #: set while nothing can be written for want of room or of the right to write
        self._is_stalled = asyncio.Event()
        #: done when what was decided last is written; None if it is
        self._writing: asyncio.Future[None] | None = None
        #: work that somebody has given up waiting for; it goes on
        self._left: set[asyncio.Task[Any]] = set()

    def add(self, run: str, error: JournalError) -> None:
        self._errors[run] = error
        if isinstance(error, NO_ROOM):
            self._is_stalled.set()

    def remove(self, run: str) -> None:
        if self._errors:
            self._errors.pop(run, None)
            if self._no_room is None:
                self._is_stalled.clear()

    @property
    def error(self) -> JournalError | None:
        """Why nothing can be written just now; None if it can."""
        return next(iter(self._errors.values()), None)

    @property
    def _no_room(self) -> JournalError | None:
        return next((each for each in self._errors.values() if isinstance(each, NO_ROOM)), None)

    def refuse(self) -> None:
        """Raise the error of the journal if what is begun now would wait for long."""
        error = self._no_room
        if error is not None:
            raise type(error)(*error.args)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around the writing of what was decided: `settled` waits for that."""
        self._writing = writing = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._writing = None
            writing.set_result(None)

    async def settled(self) -> None:
        """Return once what was decided so far is written. Raises the error of the journal if that waits for room."""
        if self._writing is not None:
            await self.unless_stalled(self._writing)

    def keep(self, work: "asyncio.Task[Any]") -> None:
        """Let this go on although nobody may wait for it any more."""
        self._left.add(work)
        work.add_done_callback(self._forget)

    def _forget(self, work: "asyncio.Task[Any]") -> None:
        self._left.discard(work)
        if not work.cancelled():
            work.exception()  # who still waits has it

    async def unless_stalled(self, done: "asyncio.Future[T]") -> T:
        """What this returns, once it is done. Raises the error of the journal if that waits for room."""
        stalled = asyncio.ensure_future(self._is_stalled.wait())
        try:
            waited: set[asyncio.Future[Any]] = {done, stalled}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stalled.cancel()
        error = self._no_room
        if not done.done() and error is not None:
            fact = str(error).partition("; ")[0]
            raise type(error)(
                f"{fact}; this is not stored yet: it waits, and takes effect when the journal can be written "
                "again, unless this process ends before"
            )
        return await done
