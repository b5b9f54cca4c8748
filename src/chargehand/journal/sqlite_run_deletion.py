"""Deletes runs from a journal in SQLite: marks them in one transaction, clears them away in many small ones."""

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Any

import msgspec

from chargehand.decisions.board_rules import facets_of, note_of, ranked_facets
from chargehand.errors import JournalDamaged, JournalVersion
from chargehand.facts.board import BOARD, board_of_run, decode_board, stream_of
from chargehand.facts.events import RunRequested, decode
from chargehand.journal.base import BLOB_GRACE, UNNAMED_GRACE
from chargehand.journal.blob_store import FileBlobs
from chargehand.journal.leases import HeadRow
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_boards import all_rows, facet_number
from chargehand.journal.sqlite_reader import EventSource, Reader
from chargehand.journal.sqlite_writer import Transaction, Writer

#: events of deleted runs that one transaction clears away: a few milliseconds, in which no append is written
PIECE = 200
#: pages that are given back to the disk at a time
PAGES = 50
#: bytes that a row takes beside its payload
ROW = 64


class SqliteStorage:
    """What the journal in a file takes up, and how runs are deleted from it."""

    def __init__(self, writer: Writer, reader: Reader, blobs: FileBlobs) -> None:
        self._writer = writer
        self._reader = reader
        self._blobs = blobs

    async def used(self) -> int:
        """Bytes of the pages in use, and of the blobs that events name."""
        pages = await self._reader.do(_used_pages)
        named = await self._reader.do(lambda source: _digests(source, "named_blobs"))
        return pages + sum((await self._blobs.sizes(named)).values())

    async def sizes(self, runs: Sequence[str]) -> dict[str, int]:
        """About how many bytes these runs take up. A blob that several name counts for each in part."""
        sizes: dict[str, int] = {}
        for run in runs:
            taken, parts = await self._reader.do(partial(_size_of, run=run))
            blobs = await self._blobs.sizes([*parts])
            sizes[run] = taken + round(sum(size * parts[name] for name, size in blobs.items()))
        return sizes

    async def requests(self, runs: Sequence[str]) -> dict[str, RunRequested]:
        """The first event of each of these runs that has a sound one."""
        found = {run: await self._reader.do(partial(_request_of, run=run)) for run in runs}
        return {run: request for run, request in found.items() if request is not None}

    async def forget(self, runs: Sequence[str], *, known: Collection[str]) -> bool:
        """Delete these runs and their boards, all in one moment."""
        node = self._writer.node

        def mark(transaction: Transaction) -> bool:
            transaction.flush()
            source = EventSource(transaction.connection, transaction.path)
            for name, seq, owner in all_rows(transaction.connection, SQL["open_streams"]):
                if name in known or name.startswith(BOARD):
                    continue
                is_beginning = not seq and bool(owner) and node.is_alive(transaction, owner)
                request = _request_of(source, name) if seq else None
                if is_beginning or (request is not None and request.reuses in runs):
                    return False
            heads = [transaction.head(run) for run in runs]
            kept = [head for head in heads if head is not None and not head.forgotten]
            if len(kept) < len(heads) or not kept[0].ended:
                return False
            if any(head.owner and node.is_alive(transaction, head.owner) for head in kept):
                return False
            boards = [transaction.head(stream_of(board_of_run(run))) for run in runs]
            for head in (*kept, *(board for board in boards if board is not None)):
                # A nested run without an end of its own has one now: no one will look for its leader.
                head.owner, head.ended, head.forgotten = "", 1, 1
                transaction.change(head)
            return True

        return await self._writer.do(mark)

    async def sweep(self) -> AsyncIterator[int]:
        """Clear away events, then blobs, then free pages; yields how much each piece was."""
        for name, number in await self._reader.do(_leftovers):
            drop = partial(_drop_entries, name=name, stream=number)
            while swept := await self._writer.do(drop):
                yield swept
        while refs := await self._reader.do(_forgotten_refs):
            await self._writer.do(partial(_orphan, refs=refs))
            yield len(refs)
        yield await self._drop_blobs()
        while pages := await self._writer.do(_give_back):
            yield pages

    async def _drop_blobs(self) -> int:
        orphans = await self._reader.do(lambda source: _digests(source, "orphans"))
        gone = await self._blobs.drop(orphans, BLOB_GRACE)
        if gone:
            await self._writer.do(partial(_drop_orphans, digests=gone))
        # Listed first, looked up second: what is named in between is then known to be.
        there = await self._blobs.all()
        known = set(await self._reader.do(lambda source: _digests(source, "all_blobs")))
        unnamed = [digest for digest in there if digest not in known]
        return len(gone) + len(await self._blobs.drop(unnamed, UNNAMED_GRACE))


def _used_pages(source: EventSource) -> int:
    pragma = source.connection.pragma
    pages = int(pragma("page_count")) - int(pragma("freelist_count"))
    return pages * int(pragma("page_size"))


def _digests(source: EventSource, query: str) -> list[str]:
    return [digest for (digest,) in source.query(query)]


def _size_of(source: EventSource, run: str) -> tuple[int, dict[str, float]]:
    names = (run, stream_of(board_of_run(run)))
    numbers = [number for name in names for (number,) in source.query("stream_number", name)]
    taken = 0
    for number in numbers:
        [(rows, payload)] = all_rows(source.connection, SQL["stream_size"], number)
        taken += rows * ROW + int(payload)
    listed = msgspec.json.encode(numbers).decode()
    return taken, dict(all_rows(source.connection, SQL["blobs_of"], listed))


def _request_of(source: EventSource, run: str) -> RunRequested | None:
    row = source.query("request", run).fetchone()
    try:
        event = None if row is None else decode(*row)
    except (JournalDamaged, JournalVersion):
        return None  # `verify` names it
    return event if isinstance(event, RunRequested) else None


def _leftovers(source: EventSource) -> list[tuple[Any, ...]]:
    return all_rows(source.connection, SQL["leftovers"])


def _drop_entries(transaction: Transaction, name: str, stream: int) -> int:
    """Delete the first events that a forgotten stream still has; returns how many."""
    transaction.flush()
    execute = transaction.connection.execute
    end = execute(SQL["piece_end"], (stream, PIECE)).get
    if name.startswith(BOARD):
        _drop_facets(transaction, name.removeprefix(BOARD), stream, end)
    execute(SQL["drop_entries"], (stream, end))
    swept: int = transaction.connection.changes()
    if end is None:
        execute(SQL["drop_mail"], (name,))
        execute(SQL["drop_keys"], (name,))
        if name.startswith(BOARD):
            execute(SQL["drop_blocks"], (stream,))
            execute(SQL["drop_guards"], (stream,))
    transaction.once_committed(_nothing_more)
    return swept


def revive(transaction: Transaction, head: HeadRow) -> None:
    """Make a deleted stream an empty one, so that its events can be kept again."""
    while _drop_entries(transaction, head.name, head.id):
        pass
    head.restart()
    transaction.change(head)


def _drop_facets(transaction: Transaction, board: str, stream: int, end: int | None) -> None:
    execute, many = transaction.connection.execute, transaction.connection.executemany
    if execute(SQL["has_fresh"]).get:
        execute(SQL["move_fresh"])
    for seq, payload, version in all_rows(
        transaction.connection, SQL["board_payloads"], stream, end
    ):
        try:
            note = note_of(board, seq, decode_board(payload, version))
        except (JournalDamaged, JournalVersion):
            continue  # what it was found by stays, and leads to nothing
        if note is not None:
            many(SQL["drop_facet"], [(facet_number(board, word), seq) for word in facets_of(note)])
            ranks = [
                (facet_number(board, word), note.importance, seq) for word in ranked_facets(note)
            ]
            many(SQL["drop_rank"], ranks)


def _forgotten_refs(source: EventSource) -> list[tuple[Any, ...]]:
    return all_rows(source.connection, SQL["forgotten_refs"], PIECE)


def _orphan(transaction: Transaction, refs: Sequence[tuple[Any, ...]]) -> None:
    """These blobs are no longer named by these streams; those named by none can then be deleted."""
    transaction.flush()
    transaction.connection.executemany(SQL["orphan_blob"], [(digest,) for digest, _ in refs])
    transaction.connection.executemany(SQL["drop_blob_ref"], refs)
    transaction.once_committed(_nothing_more)


def _drop_orphans(transaction: Transaction, digests: Sequence[str]) -> None:
    for digest in digests:
        transaction.connection.execute(SQL["drop_orphan"], (digest,))
        transaction.add_seal(digest.encode())


def _give_back(transaction: Transaction) -> int:
    """Give free pages back to the disk. A file from before that was possible keeps them for new events."""
    connection = transaction.connection
    free = int(connection.pragma("freelist_count"))
    if not free or not connection.pragma("auto_vacuum"):
        return 0
    transaction.flush()
    connection.execute(f"PRAGMA incremental_vacuum({PAGES})").fetchall()
    transaction.once_committed(_nothing_more)
    return free - int(connection.pragma("freelist_count"))


def _nothing_more() -> None:
    """A transaction with a callback is committed, even if it adds nothing to the journal."""
