"""A run outside a journal, with its nested runs, their boards and their blobs."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.budget import all_runs_below
from chargehand.decisions.live_run import LiveRun
from chargehand.errors import JournalDamaged, NotBegun, UnknownRun, UsageError
from chargehand.facts.board import BOARD, board_of_run, stream_of
from chargehand.facts.events import Event, decode
from chargehand.journal.base import (
    IMPORTED,
    Journal,
    Key,
    StoredKey,
    StreamCopy,
    named_blobs,
    submission_key,
)
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.open_journal import open_to_read
from chargehand.result import RunResult

JournalLike: TypeAlias = str | os.PathLike[str] | Journal


class RunArchive(Struct, frozen=True, kw_only=True):
    """A run and the runs nested in it, outside any journal."""

    #: id of the run
    root: str
    #: by name: the run, the runs nested in it, and their boards
    streams: dict[str, StreamCopy]
    #: loads a blob by its digest
    blob: Callable[[str], Awaitable[bytes]]
    #: whether the archive contains text, values and blobs
    has_content: bool = True
    #: version of chargehand that recorded the run
    chargehand: str = ""
    #: hash of the last event of each stream when it was recorded; empty: the current hash
    hashes: dict[str, str] = {}

    @property
    def runs(self) -> list[str]:
        """The ids of all runs, the root first."""
        return [name for name in self.streams if not name.startswith(BOARD)]

    def events(self, run: str) -> Iterator[Event]:
        """The events of one run, in order."""
        return (decode(row.payload, row.version) for row in self.streams[run].rows)

    def hash(self, run: str) -> str:
        """The hash of a run's last event, which covers all its events."""
        rows = self.streams[run].rows
        return self.hashes.get(run) or (rows[-1].hash.hex() if rows else "")

    def refuse_without_content(self) -> "RunArchive":
        """Return the archive. Raises `UsageError` if it lacks the content, which a journal needs."""
        if not self.has_content:
            raise UsageError(
                f"the recording of run {self.root} was made with --no-content and is not a whole run; "
                "record it again without that"
            )
        return self

    def imported(self) -> "RunArchive":
        """A copy whose runs are marked as imported: requests with their idempotency keys do not return them."""
        marked = {
            name: StreamCopy(name, copy.rows, [*copy.keys, _mark(copy)])
            for name, copy in self.streams.items()
            if not name.startswith(BOARD) and copy.rows
        }
        return replace(self, streams={**self.streams, **marked})

    def blobs(self) -> list[str]:
        """The digests of all blobs that the events refer to."""
        if not self.has_content:
            return []
        rows = (row for copy in self.streams.values() for row in copy.rows)
        return list(dict.fromkeys(name for row in rows for name in named_blobs(row.payload)))


async def archive_of(journal: Journal, run: str) -> RunArchive:
    """Read a run, the runs nested in it and their boards.

    Raises `UnknownRun` if the run does not exist, and `NotBegun` if it is submitted but not started.
    """
    try:
        streams = {run: await _copy_of(journal, run)}
    except UnknownRun:
        if any(mail.key == submission_key(run) for mail in await journal.mail.unread()):
            raise NotBegun(run) from None
        raise
    boards: dict[str, StreamCopy] = {}
    waiting = [run]
    while waiting:
        each = waiting.pop(0)
        with suppress(UnknownRun):  # nothing was written to the board
            board = stream_of(board_of_run(each))
            boards[board] = await _copy_of(journal, board)
        below = all_runs_below(decode(row.payload, row.version) for row in streams[each].rows)
        for child in below:
            if child not in streams:
                with suppress(UnknownRun):  # it never started, or retention deleted it
                    streams[child] = await _copy_of(journal, child)
                    waiting.append(child)
    boards = {name: copy for name, copy in boards.items() if copy.rows}
    return RunArchive(root=run, streams={**streams, **boards}, blob=journal.blobs.get)


def impossible(run: str, seq: int, event: Event, error: Exception) -> JournalDamaged:
    """The error for a recorded event that cannot have happened: applying it raised `error`."""
    return JournalDamaged(
        f"event {seq} of run {run}, {type(event).__name__}, cannot have happened after those before it "
        f"({type(error).__name__}: {error}); the recording was changed, or made by a faulty chargehand: record the "
        "run again"
    )


def _mark(copy: StreamCopy) -> StoredKey:
    return StoredKey(Key(copy.stream, IMPORTED, ""), len(copy.rows))


async def _copy_of(journal: Journal, stream: str) -> StreamCopy:
    rows = [row async for row in journal.streams.rows(stream)]
    return StreamCopy(stream, rows, await journal.streams.keys(stream))


async def store_archive(archive: RunArchive, journal: Journal) -> dict[str, int]:
    """Store an archive in a journal. Returns the number of new events by stream.

    Blobs are stored first and the root last, so that a stored root is complete. Storing again after an interruption
    completes the archive.
    """
    for digest in archive.blobs():
        await journal.blobs.put(await archive.blob(digest))
    added: dict[str, int] = {}
    for name in reversed(archive.streams):
        added[name] = await journal.streams.adopt(archive.streams[name])
    return added


async def result_in(archive: RunArchive, live_run: LiveRun) -> RunResult:
    """The result of an archived run with this state. It stays usable after the journal of the archive is closed."""
    journal = MemoryJournal()
    await store_archive(archive, journal)

    @asynccontextmanager
    async def reading() -> AsyncIterator[Journal]:
        yield journal

    return RunResult(archive.root, live_run, reading)


@asynccontextmanager
async def journal_at(where: JournalLike) -> AsyncIterator[Journal]:
    """Yield a journal object unchanged; open a named journal, and close it afterwards."""
    if not isinstance(where, (str, os.PathLike)):
        yield where
        return
    journal = open_to_read(where)
    try:
        yield journal
    finally:
        await journal.close()
