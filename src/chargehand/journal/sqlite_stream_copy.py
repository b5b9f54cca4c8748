"""Streams of an SQLite file as they are stored, to be copied from and to other journals."""

from collections.abc import AsyncIterator

from chargehand.facts.board import BOARD, decode_board
from chargehand.journal.base import Key, StoredKey, StoredRow, StreamCopy, led_by
from chargehand.journal.hash_chain import seal
from chargehand.journal.leases import HeadRow
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_boards import SqliteBoards
from chargehand.journal.sqlite_errors import damaged
from chargehand.journal.sqlite_reader import EventSource, EventWalk, Reader
from chargehand.journal.sqlite_run_deletion import revive
from chargehand.journal.sqlite_writer import Transaction, Writer
from chargehand.journal.stream_copy_rows import (
    check_chain,
    keys_to_add,
    rows_to_add,
    rows_to_restore,
    stored_row,
    undecoded,
)


class SqliteStreams:
    """The streams of one journal file."""

    def __init__(self, writer: Writer, reader: Reader, boards: SqliteBoards) -> None:
        self._writer = writer
        self._reader = reader
        self._boards = boards

    async def rows(self, stream: str) -> AsyncIterator[StoredRow]:
        """All rows of a stream in order, each checked against the one before it."""
        walk = EventWalk(stream, 0, undecoded)
        while chunk := await self._reader.do(walk.next_chunk):
            for entry in chunk:
                yield stored_row(entry)

    async def keys(self, stream: str) -> list[StoredKey]:
        """The idempotency keys that were used for entries of this stream."""
        return await self._reader.do(lambda source: _keys_of(source, stream))

    async def adopt(self, copy: StreamCopy) -> int:
        """Keep a copy of a stream, in one transaction."""
        return await self._writer.do(lambda transaction: self._adopt(transaction, copy))

    def _adopt(self, transaction: Transaction, copy: StreamCopy) -> int:
        check_chain(copy, "the copy")
        stream, head = copy.stream, transaction.head(copy.stream)
        known = 0 if head is None else head.seq
        if head is not None and head.owner and self._writer.node.is_alive(transaction, head.owner):
            raise led_by(stream, head.owner)
        transaction.flush()  # some of the stream may be of this very transaction
        is_deleted = head is not None and bool(head.forgotten)
        if head is not None and is_deleted:
            rows, known = rows_to_restore(copy, head.seq, head.hash, str(transaction.path)), 0
        else:
            common = _hash_at(transaction, head, len(copy.rows))
            rows = rows_to_add(copy, known, common, str(transaction.path))
        # All that can be refused is refused before anything is entered.
        keys = keys_to_add(copy, known)
        new_keys = [each for each in keys if is_deleted or transaction.find_key(each.key) is None]
        is_board = stream.startswith(BOARD)
        events = [decode_board(row.payload, row.version) for row in rows] if is_board else []
        if rows:
            head = head or transaction.new_head(stream)
            if head.forgotten:
                revive(transaction, head)
            transaction.adopt_rows(head, rows)
            if is_board:
                self._boards.index_rows(transaction, head, rows, events)
        for each in new_keys:
            transaction.add_key(each.key, stream, each.seq)
        return len(rows)


def _hash_at(transaction: Transaction, head: HeadRow | None, most: int) -> bytes | None:
    if head is None:
        return None
    row = transaction.connection.execute(
        SQL["entry_hash"], (head.id, min(head.seq, most))
    ).fetchone()
    return None if row is None else row[0]


def _keys_of(source: EventSource, stream: str) -> list[StoredKey]:
    found = []
    for scope, name, digest, used_for, seq, kept in source.query("keys_of_stream", stream):
        if seal(scope, name, digest, used_for, seq) != kept:
            raise damaged(source.path, f"the idempotency key {name!r} was changed")
        found.append(StoredKey(Key(scope, name, digest), seq))
    return found
