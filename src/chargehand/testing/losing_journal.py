"""A journal whose database becomes unreachable for a while."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

from chargehand.errors import JournalBusy
from chargehand.facts.argument_checks import Duration, count, duration
from chargehand.facts.events import Event
from chargehand.journal.base import (
    Blobs,
    Boards,
    Entry,
    Head,
    Journal,
    Key,
    Leases,
    Mailbox,
    Position,
    Processes,
    Storage,
    Streams,
    Tail,
    nothing_to_undo,
)
from chargehand.journal.memory import MemoryJournal

_GONE = "the database is gone, as planned; nothing of this request was stored"


class LosingJournal:
    """A journal that loses its database: at the `at_write`-th append for `seconds`, or when you call `lose()`.

        journal = LosingJournal(at_write=4, seconds=30)
        boss = ch.Supervisor(workers, journal=journal, clock=FakeClock())

    While the database is lost, each operation waits at most `patience` seconds and then raises `JournalBusy`, as with
    PostgreSQL. The default `journal` is in memory and works in virtual time.
    """

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        at_write: int | None = None,
        seconds: Duration = 10.0,
        patience: Duration = 4.0,
    ) -> None:
        self._journal: Journal = journal or MemoryJournal()
        self._seconds = duration(seconds, "LosingJournal: seconds").total_seconds()
        self._at = None if at_write is None else count(at_write, "LosingJournal: at_write", least=1)
        self._patience = duration(
            patience, "LosingJournal: patience", may_be_zero=True
        ).total_seconds()
        self._back = asyncio.Event()
        self._back.set()
        self._writes = 0
        #: how often the database was lost
        self.losses = 0
        #: number of refused operations
        self.refused = 0

    def lose(self, seconds: Duration | None = None) -> None:
        """Lose the database now, for `seconds` or until `recover`."""
        self._back.clear()
        self.losses += 1
        if seconds is not None:
            length = duration(seconds, "lose: seconds").total_seconds()
            asyncio.get_running_loop().call_later(length, self.recover)

    def recover(self) -> None:
        """Bring the database back."""
        self._back.set()

    @property
    def leases(self) -> Leases:
        return cast("Leases", _Part(self._journal.leases, self._reach))

    @property
    def processes(self) -> Processes:
        return cast("Processes", _Part(self._journal.processes, self._reach))

    @property
    def mail(self) -> Mailbox:
        return cast("Mailbox", _Part(self._journal.mail, self._reach))

    @property
    def blobs(self) -> Blobs:
        return cast("Blobs", _Part(self._journal.blobs, self._reach))

    @property
    def boards(self) -> Boards:
        return cast("Boards", _Part(self._journal.boards, self._reach))

    @property
    def storage(self) -> Storage:
        return cast("Storage", _Part(self._journal.storage, self._reach))

    @property
    def streams(self) -> Streams:
        return cast("Streams", _Part(self._journal.streams, self._reach))

    async def append(
        self,
        stream: str,
        events: Sequence[Event],
        *,
        epoch: int | None = None,
        key: Key | None = None,
        taking: Sequence[int] = (),
    ) -> Position:
        self._writes += bool(events)
        if self._writes == self._at and events:
            self.lose(self._seconds)
        await self._reach()
        return await self._journal.append(stream, events, epoch=epoch, key=key, taking=taking)

    async def decide(
        self,
        stream: str,
        decide: Callable[[Tail], Sequence[Event]],
        *,
        undo: Callable[[], None] = nothing_to_undo,
    ) -> Position:
        await self._reach()
        return await self._journal.decide(stream, decide, undo=undo)

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        await self._reach()
        async for entry in self._journal.read(stream, after):
            yield entry

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        await self._reach()
        return await self._journal.heads(forgotten=forgotten)

    async def close(self) -> None:
        await self._journal.close()

    async def _reach(self) -> None:
        if self._back.is_set():
            return
        try:
            await asyncio.wait_for(self._back.wait(), self._patience)
        except TimeoutError:
            self.refused += 1
            raise JournalBusy(_GONE) from None


class _Part:
    """A part of a journal, such as its blobs, that is unreachable while the database is lost."""

    def __init__(self, part: object, reach: Callable[[], Awaitable[None]]) -> None:
        self._part = part
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if inspect.iscoroutinefunction(found):

            async def reached(*args: Any, **more: Any) -> Any:
                await self._reach()
                return await found(*args, **more)

            return reached
        if inspect.isasyncgenfunction(found):

            async def read(*args: Any, **more: Any) -> AsyncIterator[Any]:
                await self._reach()
                async for each in found(*args, **more):
                    yield each

            return read
        return found
