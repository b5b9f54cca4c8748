"""A run with all that belongs to it: its nested runs, their boards, and the blobs that they name."""

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
from chargehand.journal.open_journal import open_journal
from chargehand.result import RunResult

JournalLike: TypeAlias = str | os.PathLike[str] | Journal


class RunArchive(Struct, frozen=True, kw_only=True):
    """A run and the runs nested in it, outside any journal."""

    #: its id
    root: str
    #: by name: the run itself, the runs nested in it, and their boards
    streams: dict[str, StreamCopy]
    #: the bytes of a blob, by its digest
    blob: Callable[[str], Awaitable[bytes]]
    #: whether texts, values and blobs are in it
    has_content: bool = True
    #: the version of chargehand that recorded it
    chargehand: str = ""
    #: by stream: the hash of its last event when it was recorded; empty: as it is
    hashes: dict[str, str] = {}

    @property
    def runs(self) -> list[str]:
        """The ids of its runs, the root first."""
        return [name for name in self.streams if not name.startswith(BOARD)]

    def events(self, run: str) -> Iterator[Event]:
        """The events of one of its runs, in order."""
        return (decode(row.payload, row.version) for row in self.streams[run].rows)

    def hash(self, run: str) -> str:
        """The hash of a run's last event, which covers all its events."""
        rows = self.streams[run].rows
        return self.hashes.get(run) or (rows[-1].hash.hex() if rows else "")

    def refuse_without_content(self) -> "RunArchive":
        """Return it unchanged. Raises `UsageError` if it lacks the content that a journal needs."""
        if not self.has_content:
            raise UsageError(
                f"the recording of run {self.root} was made with --no-content and is not a whole run; "
                "record it again without that"
            )
        return self

    def imported(self) -> "RunArchive":
        """A copy with its runs marked as imported: requests with their idempotency keys do not return them."""
        marked = {
            name: StreamCopy(name, copy.rows, [*copy.keys, _mark(copy)])
            for name, copy in self.streams.items()
            if not name.startswith(BOARD) and copy.rows
        }
        return replace(self, streams={**self.streams, **marked})

    def blobs(self) -> list[str]:
        """The digests of all blobs that its events refer to."""
        if not self.has_content:
            return []
        rows = (row for copy in self.streams.values() for row in copy.rows)
        return list(dict.fromkeys(name for row in rows for name in named_blobs(row.payload)))


async def archive_of(journal: Journal, run: str) -> RunArchive:
    """Read a run, the runs nested in it and their boards.

    Raises `UnknownRun` if it is not there, and `NotBegun` if it was only submitted.
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
        with suppress(UnknownRun):  # nobody has written to it
            board = stream_of(board_of_run(each))
            boards[board] = await _copy_of(journal, board)
        below = all_runs_below(decode(row.payload, row.version) for row in streams[each].rows)
        for child in below:
            if child not in streams:
                with suppress(UnknownRun):  # it had no time to begin, or was forgotten since
                    streams[child] = await _copy_of(journal, child)
                    waiting.append(child)
    boards = {name: copy for name, copy in boards.items() if copy.rows}
    return RunArchive(root=run, streams={**streams, **boards}, blob=journal.blobs.get)


def impossible(run: str, seq: int, event: Event, error: Exception) -> JournalDamaged:
    """Why a recorded event cannot have happened: the decisions that it goes through raise an error."""
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
    """Keep all of an archive in a journal; returns by stream how many events were new.

    Blobs come first and the root last, so that a run that is there is whole. After an interruption, storing
    it once more completes it.
    """
    for digest in archive.blobs():
        await journal.blobs.put(await archive.blob(digest))
    added: dict[str, int] = {}
    for name in reversed(archive.streams):
        added[name] = await journal.streams.adopt(archive.streams[name])
    return added


async def result_in(archive: RunArchive, live_run: LiveRun) -> RunResult:
    """The result of the archived run whose state this is; it outlives the journal that the archive is from."""
    journal = MemoryJournal()
    await store_archive(archive, journal)

    @asynccontextmanager
    async def reading() -> AsyncIterator[Journal]:
        yield journal

    return RunResult(archive.root, live_run, reading)


@asynccontextmanager
async def journal_at(where: JournalLike) -> AsyncIterator[Journal]:
    """A journal object as it is; one that is named is opened, and closed afterwards."""
    if not isinstance(where, (str, os.PathLike)):
        yield where
        return
    journal = open_journal(where)
    try:
        yield journal
    finally:
        await journal.close()
