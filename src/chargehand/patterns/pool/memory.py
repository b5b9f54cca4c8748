"""The shared memory of a pool: insights and blocks in plain calls, from any thread, over one journal."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from chargehand.background import wait_in_background as wait
from chargehand.clock import SystemClock
from chargehand.decisions.board import matches, note_of, select
from chargehand.errors import UsageError
from chargehand.facts.board import LEADER, Match, Note, Order, Query
from chargehand.journal.base import Journal
from chargehand.journal.opening import open_journal
from chargehand.models.switchboard import Switchboard
from chargehand.patterns.pool.execution import Execution
from chargehand.patterns.pool.insights import (
    Lives,
    Writing,
    block_of,
    choice_of,
    content_of,
    insight_of,
    words_of,
)
from chargehand.patterns.pool.requests import Requests
from chargehand.roles.board import Board
from chargehand.supervisor import Supervisor

EVERYTHING = 2**31 - 1
#: a limit that is none


class SharedMemoryPool:
    """What the agents of a pool share: a view of a journal, not a store of its own.

    `SharedMemoryPool()` is private to this process and ends with it, `SharedMemoryPool("runs.db")` is
    durable and shared with every process that opens the same file. Insights that agents write stand on
    the board of its name; what happens to the runs of the journal, those of supervisors too, is read
    beside them. All methods are plain calls, for any thread, with or without an event loop.
    """

    def __init__(
        self, journal: "str | os.PathLike[str] | Journal | None" = None, *, name: str = "pool"
    ) -> None:
        self.journal = open_journal(journal)
        self.name = name
        self._is_ours = journal is None or isinstance(journal, (str, os.PathLike))
        self.clock = SystemClock()
        self.requests = Requests(self.journal, self.clock)
        self.executions: WeakSet[Execution] = WeakSet()
        #: where tasks are done that must be stopped before the journal is closed
        self.is_closed = False
        self.board = Board(self.journal, self.clock, name, author=LEADER, role=LEADER)
        self._lives = Lives(self.journal)
        self._updating: dict[str, asyncio.Lock] = {}

    @classmethod
    def of(cls, boss: Supervisor, *, name: str = "pool") -> Self:
        """The pool on a supervisor's journal: what its runs do can be read here."""
        return cls(boss.journal, name=name)

    def __repr__(self) -> str:
        return f"<pool {self.name!r} on {getattr(self.journal, 'path', 'memory')}>"

    @cached_property
    def switchboard(self) -> Switchboard:
        """Through which all agents of this pool reach their models, so that they share its limits."""
        return Switchboard()

    # insights

    def write_insight(self, insight: Mapping[str, Any]) -> str:
        """Keep an insight; returns its id once a crash cannot lose it.

        It is a dict of `content`, `agent_id`, `tags`, `segment`, `importance` and `metadata`; all but the
        content may be left out.
        """
        written = Writing(insight)
        board = self.board.signed(written.author, written.author)
        posted = board.post(
            written.content,
            tags=written.tags,
            segment=written.segment,
            importance=written.importance,
            metadata=written.metadata,
        )
        return wait(posted).id

    def read_relevant(
        self,
        agent_id: str = "",
        *,
        tags: Sequence[str] | None = None,
        match: Match | str = Match.ANY,
        segments: Sequence[str] | None = None,
        min_importance: float = 0.0,
        author: str = "",
        exclude_own: bool = False,
        order: Order | str = Order.NEWEST,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """The insights that fit all that is asked for, newest or most important first.

        `exclude_own` leaves out those of `agent_id`. `match` says whether one of the tags is enough, or
        all must be there.
        """
        if exclude_own and not agent_id:
            raise UsageError("exclude_own=True needs agent_id: say whose own insights are left out")
        query = Query(
            tags=words_of("tags", tags),
            match=choice_of(Match, "match", match),
            segments=words_of("segments", segments),
            min_importance=min_importance,
            author=author,
            not_by=agent_id if exclude_own else "",
            order=choice_of(Order, "order", order),
            limit=limit,
        )
        return wait(self._find(query))

    def read_all(self) -> list[dict[str, Any]]:
        """All insights, the oldest first."""
        return wait(self._all())

    def follow(
        self,
        *,
        tags: Sequence[str] | None = None,
        segments: Sequence[str] | None = None,
        min_importance: float = 0.0,
        from_now: bool = False,
        timeout: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Insights as they come: first those that are there, unless `from_now`.

        Ends when none has come for `timeout` seconds, or when the pool is closed; else never.
        """
        query = Query(
            tags=words_of("tags", tags),
            segments=words_of("segments", segments),
            min_importance=min_importance,
        )
        coming = self._coming(query, from_now=from_now)
        with suppress(TimeoutError, StopAsyncIteration):
            while True:
                try:
                    insight = wait(_next_of(coming, timeout))
                except UsageError:
                    if self.is_closed:
                        return
                    raise
                yield insight

    # blocks

    def write_block(
        self, label: str, value: object, *, expect: int | None = None, agent_id: str = ""
    ) -> dict[str, Any]:
        """Write the next version of a block; with `expect`, only if that is the newest so far."""
        return block_of(wait(self._signed(agent_id).write(label, value, expect=expect)))

    def read_block(self, label: str, version: int = 0, *, agent_id: str = "") -> dict[str, Any]:
        """One version of a block; 0 is the newest. Raises `UsageError` if there is none."""
        return block_of(wait(self._signed(agent_id).read(label, version)))

    def update_block(
        self, label: str, change: Callable[[Any], object], *, agent_id: str = ""
    ) -> dict[str, Any]:
        """Write what `change` makes of the newest value, None if there is none. No update is lost.

        It may be called several times, and must not use the pool.
        """
        return block_of(wait(self._update(label, change, agent_id)))

    # ending

    def close(self) -> None:
        """Stop what is being done here, and let go of the journal if it was opened here.

        What was begun is left to others, who go on from its finished steps.
        """
        wait(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # how it is done

    async def _find(self, query: Query) -> list[dict[str, Any]]:
        posted = await self.journal.boards.notes(self.name, query)
        found = select([*posted, *await self._lives.notes(query)], query)
        return [await self._insight(note) for note in found]

    async def _all(self) -> list[dict[str, Any]]:
        query = Query(limit=EVERYTHING)
        posted = await self.journal.boards.notes(self.name, query)
        notes = [*posted[::-1], *await self._lives.notes(query)]
        return [await self._insight(note) for note in sorted(notes, key=lambda note: note.at)]

    async def _insight(self, note: Note) -> dict[str, Any]:
        return insight_of(note, await content_of(note, self.journal))

    async def _coming(self, query: Query, *, from_now: bool) -> AsyncIterator[dict[str, Any]]:
        signal = self.journal.boards.signal
        lives, seq = Lives(self.journal), 0
        while True:
            known = signal.count
            posted = [entry async for entry in self.journal.boards.read(self.name, seq)]
            seq = posted[-1].seq if posted else seq
            notes = [note_of(self.name, entry.seq, entry.event) for entry in posted]
            fresh = [note for note in notes if note is not None] + await lives.catch_up()
            for note in sorted(fresh, key=lambda note: note.at):
                if matches(note, query) and not from_now:
                    yield await self._insight(note)
            from_now = False
            await signal.wait(since=known)

    def _signed(self, agent_id: str) -> Board:
        return self.board.signed(agent_id, agent_id) if agent_id else self.board

    async def _update(self, label: str, change: Callable[[Any], object], agent_id: str) -> Any:
        # Those of one process take turns: of many that race, all but one would have to begin anew.
        async with self._updating.setdefault(label, asyncio.Lock()):
            return await self._signed(agent_id).update(label, change)

    async def _close(self) -> None:
        self.is_closed = True
        for execution in list(self.executions):
            await execution.close()
        if self._is_ours:
            await self.journal.close()


async def _next_of(coming: AsyncIterator[dict[str, Any]], timeout: float | None) -> dict[str, Any]:  # noqa: ASYNC109 - of this one wait
    return await asyncio.wait_for(anext(coming), timeout)
