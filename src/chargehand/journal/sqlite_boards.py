"""Boards in an SQLite file: each a stream like any other, with an index beside it.

The index is written in the transaction of the event and holds only where to look. What is found
through it is read from the chained entry, checked against the hash before it, and looked at again.
"""

import functools
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import apsw
import msgspec

from chargehand.decisions.board_rules import (
    block_of,
    decide,
    facets_asked,
    facets_of,
    matches,
    note_of,
    ranked_facets,
    ranks_asked,
)
from chargehand.errors import UnknownRun
from chargehand.facts.board import (
    BOARD,
    Act,
    Block,
    BlockGuarded,
    BlockWritten,
    BoardEntry,
    BoardEvent,
    Guard,
    Label,
    Note,
    NoteOrder,
    NotePosted,
    NoteQuery,
    decode_board,
    is_board_of_run,
    stream_of,
)
from chargehand.facts.events import Event
from chargehand.journal.base import FORGOTTEN, GENESIS, Key, StoredRow
from chargehand.journal.hash_chain import draft, entry_hash, seal
from chargehand.journal.leases import HeadRow, head_of
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_errors import damaged
from chargehand.journal.sqlite_reader import EventSource, EventWalk, Reader
from chargehand.journal.sqlite_writer import MANY_NOTES, Transaction, Writer

#: notes that are rather all looked at than walked through in order until enough are found. With a
#: million notes, the rarest facet above it fills a hundred within 20,000 probes
FEW = 5000


class SqliteBoards:
    """The boards of one journal file."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._has_tables = False
        #: notes that were entered here since the last were moved to their places
        self._fresh = 0
        #: here changes are told at once, those of other processes by looking, ten times a second
        self.signal = writer.posts

    async def append(self, board: str, act: Act, *, key: Key | None = None) -> BoardEntry:
        """Decide on this act and store what comes of it, all in one transaction."""
        return await self._writer.do(lambda transaction: self._enter(transaction, board, act, key))

    async def notes(self, board: str, query: NoteQuery) -> list[Note]:
        """The notes that are asked for, found by the rarest thing that is asked for."""
        return await self._reader.do(lambda source: _find_notes(source, board, query))

    async def block(self, board: str, label: str, version: int = 0) -> Block | None:
        """One version of a block, 0 for the newest."""
        return await self._reader.do(lambda source: _find_block(source, board, label, version))

    async def named(self) -> list[str]:
        """The boards that have a name of their own."""
        return await self._reader.do(named_boards)

    async def labels(self, board: str, only: str = "") -> list[Label]:
        """What is known of each block, by label, or of only one."""
        return await self._reader.do(lambda source: _find_labels(source, board, only))

    async def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        """The entries after this number, checked one by one."""
        async for entry in read_board(self._reader, board, after):
            yield entry

    def _enter(self, transaction: Transaction, board: str, act: Act, key: Key | None) -> BoardEntry:
        stream = stream_of(board)
        # The key comes first: a repeated request gets its first answer.
        if key is not None and (known := transaction.find_key(key)) is not None:
            transaction.flush()  # it may be of this very transaction
            return _kept(transaction, board, known.seq)
        head = transaction.head(stream)
        if head is not None and head.forgotten:
            raise UnknownRun(stream, FORGOTTEN)
        self._make_tables(transaction)
        label = "" if isinstance(act, NotePosted) else act.label
        found = Label(label, 0)
        if label and head is not None:
            found = _known(transaction.connection, transaction.path, head.id, label)
        event = decide(act, found)
        made = draft(cast("Event", event))  # chained like an event of a run
        if head is None:
            head = transaction.new_head(stream)
        transaction.add_entries(head, [made])
        transaction.change(head)
        if _index(transaction, board, head, head.seq, event):
            self._move_fresh(transaction)
        if key is not None:
            transaction.add_key(key, stream, head.seq)
        return BoardEntry(board, head.seq, event)

    def index_rows(
        self,
        transaction: Transaction,
        head: HeadRow,
        rows: Sequence[StoredRow],
        events: list[BoardEvent],
    ) -> None:
        """Let these rows of a board be found, which were adopted from another journal."""
        self._make_tables(transaction)
        board = head.name.removeprefix(BOARD)
        for row, event in zip(rows, events, strict=True):
            if _index(transaction, board, head, row.seq, event):
                self._move_fresh(transaction)

    def _make_tables(self, transaction: Transaction) -> None:
        if self._has_tables:
            return
        execute = transaction.connection.execute
        if not execute(SQL["has_boards"]).get:
            execute(SQL["boards"])
        if not execute(SQL["has_fresh"]).get:
            execute(SQL["fresh"])
        transaction.once_committed(self._note_tables)

    def _move_fresh(self, transaction: Transaction) -> None:
        """Once enough notes have come, move them to their places among all others."""
        self._fresh += 1
        if self._fresh >= MANY_NOTES:
            self._fresh = 0
            transaction.flush()
            transaction.connection.execute(SQL["move_fresh"])

    def _note_tables(self) -> None:
        self._has_tables = True


def _index(
    transaction: Transaction, board: str, head: HeadRow, seq: int, event: BoardEvent
) -> bool:
    """Let an event be found. Returns whether it is read as a note."""
    note = note_of(board, seq, event)
    if note is not None:
        facets: list[object] = []
        for word in facets_of(note):
            facets += (facet_number(board, word), seq, note.importance)
        ranks: list[object] = []
        for word in ranked_facets(note):
            ranks += (facet_number(board, word), note.importance, seq)
        transaction.index_note(facets, ranks)
    execute = transaction.connection.execute
    if isinstance(event, BlockWritten):
        place = (head.id, event.label, event.version, seq)
        execute(SQL["add_block"], (*place, seal(*place)))
    elif isinstance(event, BlockGuarded):
        guard = (head.id, event.label, msgspec.json.encode(event.guard))
        execute(SQL["put_guard"], (*guard, seal(*guard)))
    return note is not None


@functools.lru_cache(4096)
def facet_number(board: str, word: str) -> int:
    """The number of a facet. Should two words ever share one, notes are looked at again when read."""
    over = f"{len(board)}:{board}{word}".encode()
    return int.from_bytes(hashlib.blake2b(over, digest_size=8).digest(), "big", signed=True)


# Reading


async def read_board(reader: Reader, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
    """The entries of a board after this number, checked one by one."""
    if await reader.do(lambda source: _head(source, board)) is None:
        return
    walk = EventWalk(stream_of(board), after, decode_board)
    while chunk := await reader.do(walk.next_chunk):
        for entry in chunk:
            yield BoardEntry(board, entry.seq, cast("BoardEvent", entry.event))


def all_rows(connection: apsw.Connection, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What this query finds."""
    return connection.execute(query, values).fetchall()


def named_boards(source: EventSource) -> list[str]:
    """The boards that have a name of their own."""
    names = [
        name.removeprefix(BOARD) for (name,) in all_rows(source.connection, SQL["boards_kept"])
    ]
    return [name for name in names if not is_board_of_run(name)]


def _head(source: EventSource, board: str) -> HeadRow | None:
    """The board's newest state; None if nobody has written to it."""
    stream = stream_of(board)
    row = source.query("head", stream).fetchone()
    if row is None:
        return None
    head = head_of(row, source.path)
    if head.forgotten:
        raise UnknownRun(stream, FORGOTTEN)
    return head


def _find_notes(source: EventSource, board: str, query: NoteQuery) -> list[Note]:
    head = _head(source, board)
    if head is None:
        return []
    places = _Search(source, board, query).places()
    found = {entry.seq: entry for entry in _entries(source, board, head, places)}
    notes = [note_of(board, seq, found[seq].event) for seq in places]
    return [note for note in notes if note is not None and matches(note, query)]


class _Search:
    """Finds the numbers of the notes that a query is after, without reading any of them."""

    def __init__(self, source: EventSource, board: str, query: NoteQuery) -> None:
        self._source = source
        self._query = query
        asked = facets_asked(query)
        self._groups = [[facet_number(board, word) for word in group] for group in asked.groups]
        self._ranks = [facet_number(board, word) for word in ranks_asked(query)]
        self._never = facet_number(board, asked.never) if asked.never else None
        self._has_fresh = bool(self._ask("has_fresh"))

    def places(self) -> list[int]:
        """In the order that is asked for, as many as are asked for."""
        found: dict[int, float] = {}
        is_ranked, driver, others = self._way()
        # The first of several facets together are among the first of each.
        for facet in driver:
            # The newest first: should they be moved meanwhile, they are found twice and not never.
            for is_fresh in (True, False) if self._has_fresh else (False,):
                found.update(self._walk(facet, others, is_ranked=is_ranked, is_fresh=is_fresh))
        if self._query.order is NoteOrder.NEWEST:
            ranked = sorted(found, reverse=True)
        else:
            ranked = sorted(found, key=lambda seq: (found[seq], seq), reverse=True)
        return ranked[: self._query.limit]

    def _way(self) -> tuple[bool, list[int], list[list[int]]]:
        """Where to begin: by importance or not, at which facets, and which others to look at."""
        groups, least = self._groups, self._query.min_importance
        sizes = [sum(self._ask("count_facet", facet, FEW) for facet in each) for each in groups]
        smallest = min(sizes)
        if least > 0 and smallest >= FEW:
            important = sum(self._ask("count_rank", facet, least, FEW) for facet in self._ranks)
            if important < FEW:
                return True, self._ranks, groups
        if smallest < FEW:
            place = sizes.index(smallest)
        elif self._query.order is NoteOrder.IMPORTANT:
            return True, self._ranks, [each for each in groups if each != self._ranks]
        else:
            reaches = [max(self._ask("reach", each, FEW - 1) or 0 for each in g) for g in groups]
            place = reaches.index(min(reaches))
        return False, groups[place], groups[:place] + groups[place + 1 :]

    def _ask(self, name: str, *values: Any) -> int:
        return cast("int", self._source.query(name, *values).get)

    def _walk(
        self, facet: int, others: Sequence[Sequence[int]], *, is_ranked: bool, is_fresh: bool
    ) -> list[tuple[Any, ...]]:
        parts = [SQL["by_rank" if is_ranked else "by_facet"]]
        values: list[object] = [facet, self._query.min_importance]
        for group in others:
            parts.append(SQL["also_in"])
            values.append(msgspec.json.encode(group).decode())
        if self._never is not None:
            parts.append(SQL["not_in"])
            values.append(self._never)
        is_newest = self._query.order is NoteOrder.NEWEST
        parts.append(SQL["newest_notes" if is_newest else "important_notes"])
        values.append(self._query.limit)
        query = "\n".join(parts)
        if is_fresh:  # all that a note can be found by is moved together
            query = query.replace("FROM facets", "FROM fresh_facets")
            query = query.replace("FROM ranks", "FROM fresh_ranks")
        return all_rows(self._source.connection, query, *values)


def _find_block(source: EventSource, board: str, label: str, version: int) -> Block | None:
    head = _head(source, board)
    if head is None:
        return None
    row = (
        source.query("block_version", head.id, label, version)
        if version
        else source.query("newest_block", head.id, label)
    ).fetchone()
    if row is None:
        return None
    _, _, version, seq = _sealed(row, source.path)
    (entry,) = _entries(source, board, head, [seq])
    event = entry.event
    if not isinstance(event, BlockWritten) or (event.label, event.version) != (label, version):
        raise damaged(source.path, f"event {seq} of board {board!r} is not block {label!r}")
    return block_of(event)


def _find_labels(source: EventSource, board: str, only: str) -> list[Label]:
    head = _head(source, board)
    if head is None:
        return []
    labels = (
        [(only,)] if only else all_rows(source.connection, SQL["block_labels"], head.id, head.id)
    )
    known = [_known(source.connection, source.path, head.id, label) for (label,) in labels]
    return [each for each in known if each != Label(each.label, 0)]


def _known(connection: apsw.Connection, path: Any, stream: int, label: str) -> Label:
    newest = connection.execute(SQL["newest_block"], (stream, label)).fetchone()
    guarded = connection.execute(SQL["guard"], (stream, label)).fetchone()
    version = 0 if newest is None else _sealed(newest, path)[2]
    guard = Guard() if guarded is None else _guard.decode(_sealed(guarded, path)[2])
    return Label(label, version, guard)


def _sealed(row: Sequence[Any], path: Any) -> list[Any]:
    *fields, kept = row
    if seal(*fields) != kept:
        raise damaged(path, f"what is known of block {fields[1]!r} was changed")
    return fields


def _entries(
    source: EventSource, board: str, head: HeadRow, places: Sequence[int]
) -> list[BoardEntry]:
    """The entries at these places, each checked against the hash before it."""
    listed = msgspec.json.encode(places).decode()
    rows = all_rows(source.connection, SQL["board_entry"], head.id, listed)
    if len(rows) != len(places):
        raise damaged(source.path, f"an event of board {board!r} is missing")
    return [_checked(source, board, row) for row in rows]


def _checked(source: EventSource, board: str, row: tuple[Any, ...]) -> BoardEntry:
    *fields, kept, previous = row
    if entry_hash(previous or GENESIS, stream_of(board), source.author(fields[5]), fields) != kept:
        raise damaged(source.path, f"event {row[0]} of board {board!r} was changed")
    return BoardEntry(board, row[0], decode_board(row[6], row[3]))


def _kept(transaction: Transaction, board: str, seq: int) -> BoardEntry:
    """What was stored there before."""
    head = transaction.head(stream_of(board))
    row = None
    if head is not None and not head.forgotten:
        row = transaction.connection.execute(SQL["board_payload"], (head.id, seq)).fetchone()
    if row is None:
        raise UnknownRun(stream_of(board), FORGOTTEN)
    return BoardEntry(board, seq, decode_board(*row))


_guard = msgspec.json.Decoder(Guard)
