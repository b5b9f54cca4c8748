"""The shared memory of a pool: insights and blocks on one journal, with a thread-safe synchronous API."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from reprlib import repr as repr_of
from typing import Any, Protocol, Self, Unpack
from weakref import WeakSet

from chargehand.clock import SystemClock
from chargehand.errors import UnknownRun, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.board import (
    LEADER,
    Block,
    Note,
    NoteFilters,
    NoteOrder,
    NoteQuery,
    Segment,
    note_query,
)
from chargehand.facts.events import AttemptFinished
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.value import Value
from chargehand.journal.base import Journal, store_value
from chargehand.journal.open_journal import open_journal
from chargehand.models.gateway import ModelGateway
from chargehand.notify.base import Notify
from chargehand.notify.run_notices import RunNotices
from chargehand.patterns.pool.leaderless_run import REQUEST, Decision, DecisionTime, LeaderlessRun
from chargehand.patterns.pool.request_store import PoolRequests
from chargehand.roles.board import Board
from chargehand.roles.data_fences import words_of
from chargehand.roles.run_history_reader import ALL_RUNS
from chargehand.supervisor import Supervisor
from chargehand.sync_async_bridge import blocking
from chargehand.sync_async_bridge import wait_in_background as wait

#: a limit that never applies
EVERYTHING = 2**31 - 1
#: the keys of an insight that an agent writes
_ASKED = ("agent_id", "content", "tags", "segment", "importance", "metadata", "timestamp")
#: metadata key of a note: the time that its author gave
SAID_AT = "said_at"
#: metadata key of a note about a conflict: the id of the conflict
SETTLES = "settles"
#: metadata key of a note about a conflict: the task that is kept, or whose result is kept
KEPT = "kept"


class Closable(Protocol):
    """The work of an agent in this process, which may be stopped."""

    async def close(self) -> None: ...


class SharedMemoryPool:
    """The shared memory of a pool: a view of a journal, not a separate store.

    `SharedMemoryPool()` is private to this process and ends with it. `SharedMemoryPool("runs.db")` is
    durable and shared with every process that opens the same file. Insights of agents are notes on the
    board with the name of the pool; readers also see the events of all runs in the journal, including
    those of supervisors. All methods are synchronous and can be called from any thread.
    """

    @checks.keywords_checked
    def __init__(
        self,
        journal: "str | os.PathLike[str] | Journal | None" = None,
        *,
        name: str = "pool",
        notify: Notify = (),
    ) -> None:
        self.name = checks.name(name, "name")
        self._notices = RunNotices(notify) if notify else None
        self.journal = open_journal(journal)
        self._is_ours = journal is None or isinstance(journal, (str, os.PathLike))
        self.clock = SystemClock()
        self.requests = PoolRequests(self.journal, self.clock, self._notices)
        #: executions in this process, which must stop before the journal is closed
        self.executions: WeakSet[Closable] = WeakSet()
        self.is_closed = False
        self.board = Board(self.journal, self.clock, name, author=LEADER, role=LEADER, run=ALL_RUNS)

    @classmethod
    def of(cls, boss: Supervisor, *, name: str = "pool") -> Self:
        """A pool on the journal of a supervisor, which also shows the events of its runs."""
        return cls(boss.journal, name=name)

    def __repr__(self) -> str:
        return f"<pool {self.name!r} on {getattr(self.journal, 'path', 'memory')}>"

    @cached_property
    def gateway(self) -> ModelGateway:
        """The gateway for the model calls of all agents of this pool, so that they share rate limits."""
        return ModelGateway()

    # insights

    @blocking
    async def write_insight(self, insight: Mapping[str, Any]) -> str:
        """Store an insight; returns its id once a crash cannot lose it.

        An insight is a dict with the keys `content`, `agent_id`, `tags`, `segment`, `importance`,
        `metadata` and `timestamp`; only the content is required. An insight in the segment `results` or
        `errors` whose metadata contain a `request_id` and a `task_id` of a pool is recorded as the outcome
        of that task. It is refused if another worker is doing the task or has done it.
        """
        written = InsightWriting(insight)
        if written.is_report and written.request:
            with suppress(UnknownRun):  # an insight about an unknown request is a normal note
                if told := await self._report(written):
                    return told
        note = await self._signed(written.author).post(
            written.content,
            tags=written.tags,
            segment=written.segment,
            importance=written.importance,
            metadata=written.metadata,
        )
        return note.id

    @blocking
    async def read_relevant(
        self,
        agent_id: str = "",
        *,
        order: NoteOrder | str = NoteOrder.NEWEST,
        limit: int | None = None,
        **filters: Unpack[NoteFilters],
    ) -> list[dict[str, Any]]:
        """The insights that pass all filters, newest or most important first.

        `exclude_own` leaves out the insights of `agent_id`. `match` says whether an insight needs one of
        the tags or all of them. All insights are returned unless there is a `limit`.
        """
        if filters.get("exclude_own") and not agent_id:
            raise UsageError("exclude_own=True needs agent_id: say whose own insights are left out")
        most = EVERYTHING if limit is None else limit
        own = checks.text(agent_id, "agent_id")
        also = ("agent_id", "order", "limit")
        query = note_query(filters, own, order=order, limit=most, also=also)
        return [insight_of(note) for note in await self.board.matching(query)]

    @blocking
    async def read_all(self) -> list[dict[str, Any]]:
        """All insights, oldest first."""
        notes = await self.board.matching(NoteQuery(limit=EVERYTHING))
        return [insight_of(note) for note in sorted(notes, key=lambda note: (note.at, note.seq))]

    def follow(
        self,
        *,
        from_now: bool = False,
        timeout: Duration | None = None,
        **filters: Unpack[NoteFilters],
    ) -> Iterator[dict[str, Any]]:
        """Yield insights as they are written, starting with the existing ones unless `from_now` is set.

        Ends when no insight has come for `timeout`, or when the pool is closed; otherwise never.
        """
        note_query(
            filters, also=("from_now", "timeout")
        )  # raises for faulty filters now, not at the first insight
        longest = checks.duration_or_none(timeout, "timeout")
        return self._follow(self.board.follow(from_now=from_now, **filters), longest)

    def _follow(
        self, coming: AsyncIterator[Note], longest: timedelta | None
    ) -> Iterator[dict[str, Any]]:
        timeout = None if longest is None else longest.total_seconds()
        with suppress(TimeoutError, StopAsyncIteration):
            while True:
                try:
                    note = wait(asyncio.wait_for(anext(coming), timeout))
                except UsageError:
                    if self.is_closed:
                        return
                    raise
                yield insight_of(note)

    # blocks

    @blocking
    async def write_block(
        self, label: str, value: object, *, expect: int | None = None, agent_id: str = ""
    ) -> dict[str, Any]:
        """Write the next version of a block; with `expect`, only if that is the newest version."""
        name = checks.name(label, "label")
        return block_of(await self._signed(agent_id).write(name, value, expect=expect))

    @blocking
    async def read_block(
        self, label: str, version: int = 0, *, agent_id: str = ""
    ) -> dict[str, Any]:
        """One version of a block; 0 is the newest. Raises `UsageError` if there is none."""
        wanted = checks.name(label, "label"), checks.count(version, "version")
        return block_of(await self._signed(agent_id).read(*wanted))

    @blocking
    async def update_block(
        self, label: str, change: Callable[[Any], object], *, agent_id: str = ""
    ) -> dict[str, Any]:
        """Apply `change` to the newest value, None if there is none, and write the result. No update is lost.

        `change` may be called several times, and must not use the pool.
        """
        if not callable(change):
            raise UsageError("change must be a function from the old value to the new one")
        return block_of(await self._signed(agent_id).update(checks.name(label, "label"), change))

    # closing

    @blocking
    async def close(self) -> None:
        """Stop the work in this process, and close the journal if the pool opened it.

        Other processes can continue the tasks from their finished steps.
        """
        self.is_closed = True
        for execution in list(self.executions):
            await execution.close()
        if self._notices is not None:
            await self._notices.settle()
        if self._is_ours:
            await self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # implementation

    async def _report(self, written: "InsightWriting") -> str:
        """Record the reported outcome of a task; returns the insight's id, empty if its author is doing the task."""
        view = await self.requests.view(written.request)
        holder = view.holders.get(written.task)
        if holder is not None and holder.worker == written.author:
            return ""  # only a note: the author is doing the task, and the result of its attempt counts
        outcome, ids = written.outcome, [""]
        if isinstance(outcome, Done):
            outcome = Done(await store_value(outcome.value, self.journal.blobs))

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            move = ledger.settle(written.task, written.author, outcome, moment)
            first = ledger.seq - len(move.events) + 1
            ids[:] = [
                f"{ledger.request}#{first + place}"
                for place, event in enumerate(move.events)
                if type(event) is AttemptFinished
            ]
            return move

        await self.requests.decide(written.request, act)
        return ids[-1]

    def _signed(self, agent_id: str) -> Board:
        author = checks.text(agent_id, "agent_id")
        return self.board.signed(author, author) if author else self.board


def pool_of(pool: object) -> SharedMemoryPool:
    """The pool argument of an agent. Raises `UsageError` if it is not a pool."""
    if not isinstance(pool, SharedMemoryPool):
        raise UsageError(f"pool={repr_of(pool)} is not a SharedMemoryPool")
    return pool


def insight_of(note: Note) -> dict[str, Any]:
    """A note as a plain dict."""
    metadata = dict(note.metadata)
    for own, known in (("request_id", "run"), ("task_id", "task")):
        if known in metadata:
            metadata.setdefault(own, metadata[known])
    said_at = metadata.pop(SAID_AT, "")
    return {
        "id": note.id,
        "agent_id": note.author,
        "content": note.content,
        "tags": list(note.tags),
        "segment": str(note.segment),
        "importance": note.importance,
        "metadata": metadata,
        "timestamp": said_at or note.at.isoformat(),
    }


def block_of(block: Block) -> dict[str, Any]:
    """A version of a block as a plain dict."""
    return {
        "label": block.label,
        "value": block.value,
        "version": block.version,
        "agent_id": block.author,
        "timestamp": block.at.isoformat(),
    }


class InsightWriting:
    """Validates an insight before anything is stored."""

    def __init__(self, insight: object) -> None:
        if not isinstance(insight, Mapping) or "content" not in insight:
            raise UsageError("an insight is a dict with its content: {'content': …, 'tags': […]}")
        unknown = sorted({str(name) for name in insight} - {*_ASKED})
        if unknown:
            raise UsageError(
                f"an insight has no {', '.join(unknown)}; it has {', '.join(_ASKED)}: put the rest "
                "into metadata"
            )
        self.author = checks.name(insight.get("agent_id") or "unknown", "agent_id")
        self.content = insight["content"]
        self.tags = checks.names(insight.get("tags") or (), "tags")
        self.segment = checks.name(insight.get("segment") or Segment.NOTES, "segment")
        self.importance = float(checks.amount(insight.get("importance", 0.5), "importance", most=1))
        metadata = insight.get("metadata") or {}
        checks.instance(metadata, "metadata", Mapping)
        self.metadata = {checks.text(k, "metadata: a name"): v for k, v in metadata.items()}
        if insight.get("timestamp"):
            self.metadata[SAID_AT] = _moment(insight["timestamp"])

    @property
    def is_report(self) -> bool:
        """Whether it may report the result or the failure of a task."""
        return self.segment in (Segment.RESULTS, Segment.ERRORS)

    @property
    def request(self) -> str:
        """The request that it refers to; empty if there is none."""
        named = self.metadata.get("request_id")
        known = [tag for tag in self.tags if tag.startswith(REQUEST)]
        return named if isinstance(named, str) else next(iter(known), "")

    @property
    def task(self) -> str:
        """The task that it reports on. Raises `UsageError` if there is none."""
        named = self.metadata.get("task_id")
        if not isinstance(named, str) or not named:
            raise UsageError(
                f"the insight reports on a task of request {self.request} without naming it; give "
                "metadata={'task_id': …}, or a segment other than 'results' and 'errors'"
            )
        return named

    @property
    def outcome(self) -> Done | Failed:
        """The outcome of the task that it reports."""
        value = Value.of(self.content)
        if self.segment == Segment.RESULTS:
            return Done(value)
        return Failed(kind=ErrorClass.LOGIC, message=words_of(self.content))


def _moment(given: object) -> str:
    """A timestamp in ISO 8601. Raises `UsageError` if it has no time zone."""
    moment = given if isinstance(given, datetime) else None
    if isinstance(given, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(given)
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"timestamp={repr_of(given)} is not a moment; give a datetime with its time zone, or one "
            "in ISO 8601: '2026-03-01T12:00:00+00:00'"
        )
    return moment.isoformat()
