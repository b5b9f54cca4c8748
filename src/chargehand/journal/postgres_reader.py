"""Reads a journal in PostgreSQL: streams with every link of their chain checked, heads, mail, notes, blocks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chargehand.decisions.board_rules import (
    block_of,
    facets_asked,
    matches,
    note_of,
)
from chargehand.errors import JournalDamaged, UnknownRun
from chargehand.facts.board import (
    BOARD,
    Block,
    BlockWritten,
    BoardEntry,
    Guard,
    Label,
    Note,
    NoteOrder,
    NoteQuery,
    decode_board,
    stream_of,
)
from chargehand.facts.events import decode
from chargehand.journal.base import FORGOTTEN, GENESIS, Entry, Head, Mail
from chargehand.journal.leases import HeadRow
from chargehand.journal.postgres_connection import POSTGRES
from chargehand.journal.postgres_writer import decode_guard
from chargehand.journal.sqlite_boards import facet_number
from chargehand.journal.sqlite_errors import damaged
from chargehand.journal.sqlite_reader import ChainCheck

if TYPE_CHECKING:
    from asyncpg import Connection

#: rows that are read at a time
CHUNK = 500


class PostgresWalk:
    """One reading of a stream from a number on, up to the newest entry when it began."""

    def __init__(
        self,
        namespace: str,
        place: str,
        stream: str,
        after: int,
        decoding: Callable[[bytes, int], Any] = decode,
    ) -> None:
        self._namespace = namespace
        self._check = ChainCheck(stream, place, decoding)
        self._check.last = after
        self._head: HeadRow | None = None
        self._damage: JournalDamaged | None = None

    async def next_chunk(self, connection: "Connection[Any]") -> list[Entry]:
        """The next entries; none when the end that was there at the beginning is reached."""
        if self._damage is not None:
            raise self._damage
        check = self._check
        head = self._head = self._head or await self._begin(connection)
        if check.last >= head.seq:
            return []
        rows = await connection.fetch(POSTGRES["entries"], head.id, check.last, head.seq, CHUNK)
        entries: list[Entry] = []
        for row in rows:
            try:
                entries.append(check.entry(row))
            except JournalDamaged as error:
                await self._refuse_forgotten(connection)
                if not entries:
                    raise
                self._damage = error  # raised when what is sound before it has been read
                return entries
        if not entries:
            await self._refuse_forgotten(connection)
            raise check.damaged(check.last + 1, "it is missing")
        if check.last == head.seq and check.previous != head.hash:
            raise check.damaged(check.last, "the last event is not the one that was stored")
        return entries

    async def _begin(self, connection: "Connection[Any]") -> HeadRow:
        check = self._check
        head = await head_of_stream(connection, self._namespace, check.stream)
        if head is None:
            raise UnknownRun(check.stream)
        if 0 < check.last <= head.seq:
            known = await connection.fetchrow(POSTGRES["entry_hash"], head.id, check.last)
            if known is None:
                raise check.damaged(check.last, "it is missing")
            check.previous, check.epoch = known
        return head

    async def _refuse_forgotten(self, connection: "Connection[Any]") -> None:
        await head_of_stream(connection, self._namespace, self._check.stream)


async def head_of_stream(
    connection: "Connection[Any]", namespace: str, stream: str
) -> HeadRow | None:
    """The newest state of a stream. Raises `UnknownRun` if its events were deleted."""
    row = await connection.fetchrow(POSTGRES["head"], namespace, stream)
    head = None if row is None else HeadRow(*row)
    if head is not None and head.forgotten:
        raise UnknownRun(stream, FORGOTTEN)
    return head


async def all_heads(
    connection: "Connection[Any]", namespace: str, *, forgotten: bool
) -> list[Head]:
    """All runs with an event, the one that changed last first."""
    query = POSTGRES["all_heads" if forgotten else "kept_heads"]
    rows = [HeadRow(*row) for row in await connection.fetch(query, namespace)]
    return [head.told() for head in rows if head.seq and not head.name.startswith(BOARD)]


async def unread_mail(connection: "Connection[Any]", namespace: str) -> list[Mail]:
    """Mail that nobody has taken, oldest first."""
    rows = await connection.fetch(POSTGRES["unread_mail"], namespace)
    return [
        Mail(key=key, stream=stream, subject=subject, body=body, id=number)
        for number, key, stream, subject, body, _ in rows
    ]


class BoardReader:
    """Finds notes and blocks of one board."""

    def __init__(
        self, connection: "Connection[Any]", namespace: str, place: str, board: str
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._place = place
        self._board = board
        self._stream = stream_of(board)

    async def notes(self, query: NoteQuery) -> list[Note]:
        """The notes that are asked for, found by their facets."""
        head = await head_of_stream(self._connection, self._namespace, self._stream)
        if head is None:
            return []
        sql, values = self._search(head.id, query)
        places = [row[0] for row in await self._connection.fetch(sql, *values)]
        found = {entry.seq: entry for entry in await self._entries(head.id, places)}
        notes = [note_of(self._board, seq, found[seq].event) for seq in places]
        return [note for note in notes if note is not None and matches(note, query)]

    def _search(self, stream: int, query: NoteQuery) -> tuple[str, list[object]]:
        asked = facets_asked(query)
        first, *others = [[self._facet(word) for word in group] for group in asked.groups]
        values: list[object] = [stream, first, query.min_importance]
        parts = [
            "SELECT d.seq, max(d.importance) AS importance FROM chargehand_facets AS d",
            "WHERE d.stream = $1 AND d.facet = ANY($2::bigint[]) AND d.importance >= $3",
        ]
        has = "EXISTS (SELECT 1 FROM chargehand_facets AS f WHERE f.stream = $1 AND f.seq = d.seq"
        for group in others:
            values.append(group)
            parts.append(f"AND {has} AND f.facet = ANY(${len(values)}::bigint[]))")
        if asked.never:
            values.append(self._facet(asked.never))
            parts.append(f"AND NOT {has} AND f.facet = ${len(values)})")
        values.append(query.limit)
        is_newest = query.order is NoteOrder.NEWEST
        order = "d.seq DESC" if is_newest else "importance DESC, d.seq DESC"
        parts.append(f"GROUP BY d.seq ORDER BY {order} LIMIT ${len(values)}")
        return "\n".join(parts), values

    def _facet(self, word: str) -> int:
        return facet_number(self._board, word)

    async def block(self, label: str, version: int) -> Block | None:
        """One version of a block, 0 for the newest; None if there is no such version."""
        head = await head_of_stream(self._connection, self._namespace, self._stream)
        if head is None or version < 0:
            return None
        place = await self._connection.fetchrow(POSTGRES["block_place"], head.id, label, version)
        if place is None:
            return None
        (entry,) = await self._entries(head.id, [place[1]])
        event = entry.event
        if not isinstance(event, BlockWritten) or (event.label, event.version) != (label, place[0]):
            raise JournalDamaged(
                f"{self._place} is damaged: event {place[1]} of board {self._board!r} is not block {label!r}; "
                "restore it from a backup"
            )
        return block_of(event)

    async def labels(self, only: str = "") -> list[Label]:
        """What is known of each block, by label, or of only one."""
        head = await head_of_stream(self._connection, self._namespace, self._stream)
        if head is None:
            return []
        fetch = self._connection.fetch
        rows = [] if only else await fetch(POSTGRES["block_labels"], head.id)
        labels = [only] if only else sorted(row[0] for row in rows)
        streams = [head.id] * len(labels)
        newest = await fetch(POSTGRES["newest_blocks"], streams, labels)
        guarded = await fetch(POSTGRES["guards"], streams, labels)
        versions = {row[1]: row[2] for row in newest}
        guards = {row[1]: decode_guard(row[2]) for row in guarded}
        known = [Label(each, versions.get(each, 0), guards.get(each, Guard())) for each in labels]
        return [each for each in known if each != Label(each.label, 0)]

    async def entry(self, seq: int) -> BoardEntry:
        """What was stored under this number."""
        head = await head_of_stream(self._connection, self._namespace, self._stream)
        if head is None:
            raise UnknownRun(self._stream)
        (entry,) = await self._entries(head.id, [seq])
        return entry

    async def _entries(self, stream: int, places: Sequence[int]) -> list[BoardEntry]:
        """The entries at these places, each checked against the hash before it."""
        rows = await self._connection.fetch(POSTGRES["board_entries"], stream, list(places))
        entries: list[BoardEntry] = []
        for *row, previous in rows:
            check = ChainCheck(self._stream, self._place, decode_board)
            check.last, check.previous = row[0] - 1, previous or GENESIS
            entries.append(BoardEntry(self._board, row[0], check.entry(row).event))  # type: ignore[arg-type]  # decoded as an event of a board
        if len(entries) != len(places):
            raise damaged(self._place, f"an event of board {self._board!r} is missing")
        return entries
