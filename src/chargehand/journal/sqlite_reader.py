"""Reading a journal, in a thread and over a connection of its own: a long read delays no append."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from chargehand.errors import JournalDamaged, UnknownRun
from chargehand.facts.board import BOARD
from chargehand.facts.events import decode
from chargehand.journal.base import FORGOTTEN, GENESIS, Entry, Head, Mail
from chargehand.journal.closed_guard import Availability
from chargehand.journal.hash_chain import entry_hash, payload_digest, seal
from chargehand.journal.leases import HeadRow, head_of
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_errors import NONSENSE, damaged, refusal, short

T = TypeVar("T")

CHUNK_ROWS = 500
#: a chunk is read in one transaction; between chunks the log can be checkpointed
CHUNK_BYTES = 1 << 20


class EventSource:
    """What streams are read from: the connection of the source, or of a transaction being written."""

    def __init__(
        self, connection: apsw.Connection, path: Path, *, skips_damage: bool = False
    ) -> None:
        self.connection = connection
        self.path = path
        #: in lists; a damaged stream itself is never read as if it were whole
        self.skips_damage = skips_damage
        self._authors: dict[int, str] = {}

    def query(self, name: str, *values: Any) -> apsw.Cursor:
        return self.connection.execute(SQL[name], values)

    def author(self, number: int) -> str | None:
        """The name of an author; None for a number that nobody has."""
        if number not in self._authors:
            self._authors = dict(self.query("all_authors"))
        return self._authors.get(number)


class Reader:
    """Runs functions on the read-only connection, one after the other, in its own thread."""

    def __init__(self, source: EventSource, gate: Availability) -> None:
        self._source = source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chargehand-journal-reader")
        self._gate = gate

    def start(self) -> None:
        """Start the thread now: when it is wanted first, there may be none to be had."""
        self._thread.submit(int)

    async def do(self, work: Callable[[EventSource], T]) -> T:
        """What this function returns; SQLite's errors become the journal's."""
        if not self._gate.is_usable:
            raise self._gate.refusal()
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._thread, self._run, work)
        except RuntimeError as error:  # no thread to be had
            raise short(self._source.path, str(error)) from error
        return await future

    def _run(self, work: Callable[[EventSource], T]) -> T:
        source = self._source
        try:
            return work(source)
        except apsw.Error as error:
            raise refusal(error, source.path, source.connection.system_errno) from error
        except NONSENSE as error:
            raise damaged(source.path, f"a value in it makes no sense ({error})") from error

    def close(self) -> None:
        """Finish the read under way, and let go of the file."""
        self._thread.shutdown()
        self._source.connection.close()


class ChainCheck:
    """Checks the entries of one stream, each against the one before it."""

    def __init__(
        self, stream: str, place: Path | str, decoding: Callable[[bytes, int], Any] = decode
    ) -> None:
        self.stream = stream
        #: of the journal, for messages
        self.place = place
        self.last = 0
        self.previous = GENESIS
        self.epoch = 0
        self._decode = decoding

    def entry(self, row: Sequence[Any]) -> Entry:
        """The entry in this row of `entries`. Raises `JournalDamaged` if it is not what was appended."""
        try:
            seq, epoch, _, version, _, author, payload, kept = row
            if seq != self.last + 1:
                raise self.damaged(self.last + 1, "it is missing")
            if author is None:
                raise self.damaged(seq, "its author is unknown")
            made = entry_hash(self.previous, self.stream, author, row[:-1])
            if made != kept:
                raise self.damaged(seq, "it was changed, or the event before it was")
            if epoch < self.epoch:
                raise self.damaged(seq, f"its epoch {epoch} is below {self.epoch} before it")
            event = self._decoded(seq, payload, version)
        except NONSENSE as error:
            fact = f"it holds what no event holds ({error})"
            raise self.damaged(self.last + 1, fact) from error
        self.last, self.previous, self.epoch = seq, made, epoch
        return Entry(self.stream, seq, epoch, author, event, made)

    def _decoded(self, seq: int, payload: bytes, version: int) -> Any:
        try:
            return self._decode(payload, version)
        except JournalDamaged as error:
            raise self.damaged(seq, str(error)) from error

    def damaged(self, seq: int, fact: str) -> JournalDamaged:
        return damaged(self.place, f"event {seq} of stream {self.stream!r}: {fact}")


class EventWalk:
    """One reading of a stream from a number on, checking every link of its chain."""

    def __init__(
        self, stream: str, after: int, decoding: Callable[[bytes, int], Any] = decode
    ) -> None:
        self._stream = stream
        self._check = ChainCheck(stream, "", decoding)
        self._check.last = after
        self._head: HeadRow | None = None
        self._damage: JournalDamaged | None = None

    def next_chunk(self, source: EventSource) -> list[Entry]:
        """The next entries; none when the end that was there at the beginning is reached."""
        if self._damage is not None:
            raise self._damage
        check = self._check
        head = self._head = self._head or self._begin(source)
        if check.last >= head.seq:
            return []
        rows = source.query("entries", head.id, check.last, head.seq)
        entries: list[Entry] = []
        size = 0
        try:
            for row in rows:
                try:
                    entries.append(self._checked(source, row))
                except JournalDamaged as error:
                    self._refuse_forgotten(source)
                    if not entries:
                        raise
                    self._damage = error  # raised when what is sound before it has been read
                    return entries
                size += len(row[6])
                if len(entries) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                    break
        finally:
            rows.close(True)  # ends the transaction, even while an exception keeps the cursor alive
        if not entries:
            self._refuse_forgotten(source)
            raise check.damaged(check.last + 1, "it is missing")
        if check.last == head.seq and check.previous != head.hash:
            raise check.damaged(check.last, "the last event is not the one that was stored")
        return entries

    def _begin(self, source: EventSource) -> HeadRow:
        check = self._check
        check.place = source.path
        row = source.query("head", self._stream).fetchone()
        if row is None:
            raise UnknownRun(self._stream)
        head = head_of(row, source.path)
        if head.forgotten:
            raise UnknownRun(self._stream, FORGOTTEN)
        if 0 < check.last <= head.seq:
            known = source.query("entry_hash", head.id, check.last).fetchone()
            if known is None:
                raise check.damaged(check.last, "it is missing")
            check.previous, check.epoch = known
        return head

    def _checked(self, source: EventSource, row: tuple[Any, ...]) -> Entry:
        return self._check.entry((*row[:5], source.author(row[5]), *row[6:]))

    def _refuse_forgotten(self, source: EventSource) -> None:
        row = source.query("head", self._stream).fetchone()
        if row is not None and head_of(row, source.path).forgotten:
            raise UnknownRun(self._stream, FORGOTTEN)  # by retention, while it was being read


def all_heads(source: EventSource, *, forgotten: bool) -> list[Head]:
    """All runs with an event, the one that changed last first."""
    rows = source.query("all_heads" if forgotten else "kept_heads").fetchall()
    heads = [_sound_head(source, row) for row in rows]
    return [
        head.told()
        for head in heads
        if head is not None and head.seq and not head.name.startswith(BOARD)
    ]


def _sound_head(source: EventSource, row: tuple[Any, ...]) -> HeadRow | None:
    try:
        return head_of(row, source.path)
    except JournalDamaged:
        if source.skips_damage:
            return None  # told in the log when the journal was opened
        raise


def unread_mail(source: EventSource) -> list[Mail]:
    """Mail that nobody has taken, oldest first."""
    return [_mail(source, row) for row in source.query("unread_mail")]


def _mail(source: EventSource, row: tuple[Any, ...]) -> Mail:
    number, key, stream, subject, body, digest, kept = row
    if seal(number, key, stream, subject, digest) != kept or payload_digest(body) != digest:
        raise damaged(source.path, f"mail {number} was changed")
    return Mail(key=key, stream=stream, subject=subject, body=body, id=number)
