"""The journal in an SQLite file: durable on one machine, with nothing to install beside it."""

import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

import apsw
from msgspec import Struct

from chargehand.errors import JournalError, JournalFull, KeyConflict, UnknownRun, UsageError
from chargehand.facts.argument_checks import Duration, duration
from chargehand.facts.events import Event
from chargehand.journal.base import (
    FORGOTTEN,
    LEASE,
    PATIENCE,
    Entry,
    Head,
    Key,
    Mail,
    Position,
    Process,
    Tail,
    led_by,
    nothing_to_undo,
)
from chargehand.journal.blob_store import FileBlobs
from chargehand.journal.closed_guard import Availability
from chargehand.journal.hash_chain import draft, payload_digest, seal
from chargehand.journal.leases import SqliteNode
from chargehand.journal.local_stream_owners import StreamOwner
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_boards import SqliteBoards
from chargehand.journal.sqlite_errors import read_only, short
from chargehand.journal.sqlite_file import JournalFile
from chargehand.journal.sqlite_reader import (
    EventSource,
    EventWalk,
    Reader,
    all_heads,
    unread_mail,
)
from chargehand.journal.sqlite_run_deletion import SqliteStorage
from chargehand.journal.sqlite_stream_copy import SqliteStreams
from chargehand.journal.sqlite_writer import Append, Transaction, Writer
from chargehand.journal.storage_check import real_path
from chargehand.sync_async_bridge import in_thread_or_here

log = logging.getLogger("chargehand.journal")


class SqliteJournal:
    """Streams of events in one file that survive the death of the process and a power cut.

    `durability="strict"` acknowledges nothing before it is on disk. `"relaxed"` leaves the syncing
    to later: faster on slow disks, safe when the process dies, but a power cut may take the last
    moments with it; they are then missing as if they had never been.

    With `may_be_read_only`, a file that this user may only read, or whose disk is full, is opened all the same; whatever
    would write to it raises `JournalReadOnly` or `JournalFull`.

    All may be used from several event loops at once. Opening does a few milliseconds of file work
    in the caller's thread; everything after it happens in threads of the journal.
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: str = "strict",
        accept_damage: bool = False,
        lease: Duration = LEASE,
        patience: Duration = PATIENCE,
        blob_dir: Path | None = None,
        vfs: str = "",
        may_be_read_only: bool = False,
    ) -> None:
        if durability not in ("strict", "relaxed"):
            raise UsageError(f"durability={durability!r} must be 'strict' or 'relaxed'")
        term = duration(lease, "lease")
        if term < timedelta(milliseconds=10):
            raise UsageError(f"lease={term} is too short to be kept; use at least 10 ms")
        path = real_path(path)  # what lies beside the file is then found through any link to it
        longest = duration(patience, "patience", may_be_zero=True)
        file = JournalFile(path, durability=durability, patience=longest, vfs=vfs)
        refusal_to_write: JournalError | None = None
        try:
            if may_be_read_only and not file.is_writable:
                refusal_to_write = read_only(path)
                connection = file.open_read_only()
            else:
                connection = file.open(accept_damage=accept_damage)
        except JournalFull as error:  # to open it for writing takes room even if nothing is written
            if not may_be_read_only or refusal_to_write is not None:
                raise
            refusal_to_write = error
            connection = file.open_read_only()
        self.path = path
        self._gate = Availability(path)
        self._shutting = threading.Lock()  # for two that close at once
        self._writer = Writer(
            *(connection, file, SqliteNode(path, term), self._gate),
            refusal_to_write=refusal_to_write,
        )
        source = EventSource(file.open_to_read(), path, skips_damage=accept_damage)
        self._reader = Reader(source, self._gate)
        self.blobs = FileBlobs(blob_dir or path.with_name(f"{path.name}-blobs"), self._gate)
        self.leases = _Leases(self._writer)
        self.processes = _Processes(self._writer, self._reader)
        self.mail = _Mailbox(self._writer, self._reader)
        self.boards = SqliteBoards(self._writer, self._reader)
        self.storage = SqliteStorage(self._writer, self._reader, self.blobs)
        self.streams = SqliteStreams(self._writer, self._reader, self.boards)
        if durability == "relaxed":
            log.warning("journal_relaxed path=%s: a power cut may lose the last moments", path)
        try:
            self._reader.start()
            self._writer.start()
        except RuntimeError as error:  # no thread to be had
            raise short(path, str(error)) from error
        weakref.finalize(self, _let_go, self._writer, self._gate)
        _open_journals.add(self)

    async def append(
        self,
        stream: str,
        events: Sequence[Event],
        *,
        epoch: int | None = None,
        key: Key | None = None,
        taking: Sequence[int] = (),
    ) -> Position:
        """Store events at the end of a stream, all or none, and return the place of the last.

        Returns only once a crash cannot lose them. A caller that is cancelled while it waits does
        not undo the append; a key tells later whether it was stored.
        """
        drafts = [draft(event) for event in events]
        return await self._writer.do(Append(stream, drafts, epoch, key, tuple(taking)))

    async def decide(
        self,
        stream: str,
        decide: Callable[[Tail], Sequence[Event]],
        *,
        undo: Callable[[], None] = nothing_to_undo,
    ) -> Position:
        """Append what `decide` makes of the end of the stream, all in one transaction.

        It is called in the thread of the writer. Other decisions may be of the same transaction;
        each sees those before it.
        """
        decided = await self._writer.do(_Decide(stream, decide, undo, self._writer.node))
        if isinstance(decided, Exception):
            raise decided
        return decided

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, checked one by one, up to the newest when reading began."""
        walk = EventWalk(stream, after)
        while chunk := await self._reader.do(walk.next_chunk):
            for entry in chunk:
                yield entry

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All runs that have an event, the one that changed last first."""
        return await self._reader.do(partial(all_heads, forgotten=forgotten))

    async def close(self) -> None:
        """Write down what is pending and let go of everything. Closing twice is fine."""
        if not self._gate.is_forked:
            await in_thread_or_here(self._shut)

    def _shut(self) -> None:
        with self._shutting:
            self._gate.close()
            self.blobs.close()
            self._reader.close()
            # The writer goes last: SQLite then tidies its log into the file.
            self._writer.stop()
            self._writer.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def abandon(self) -> None:
        """This is a forked child: the journal stays the parent's."""
        self._gate.abandon()
        self._writer.node.abandon()


class _Tail:
    """The end of a stream with all that was entered into this transaction before."""

    def __init__(self, transaction: Transaction, stream: str, node: SqliteNode) -> None:
        self._transaction = transaction
        self._stream = stream
        self._node = node

    @property
    def seq(self) -> int:
        head = self._transaction.head(self._stream)
        return 0 if head is None else head.seq

    def read(self, after: int) -> list[Entry]:
        if after >= self.seq:
            return []
        self._transaction.flush()  # some of it may be of this very transaction
        walk = EventWalk(self._stream, after)
        source = EventSource(self._transaction.connection, self._transaction.path)
        entries: list[Entry] = []
        while chunk := walk.next_chunk(source):
            entries += chunk
        return entries

    def is_alive(self, node: str) -> bool:
        return self._node.is_alive(self._transaction, node)

    def take(self, mail: int) -> None:
        self._transaction.check_unread(mail)
        self._transaction.take_mail(mail)


class _Decide(Struct, frozen=True):
    """A request to decide and append, entered into a transaction by the writer."""

    stream: str
    decide: Callable[[Tail], Sequence[Event]]
    undo: Callable[[], None]
    node: SqliteNode

    def __call__(self, transaction: Transaction) -> Position | Exception:
        """Where it was stored, or what speaks against it.

        That is handed back and not raised: whatever a decision raises must not undo the others of
        its group. Only what the database itself says does.
        """
        head = transaction.head(self.stream)
        if head is not None and head.forgotten:
            return UnknownRun(self.stream, FORGOTTEN)
        if head is not None and head.owner and self.node.is_alive(transaction, head.owner):
            return led_by(self.stream, head.owner)
        try:
            events = self.decide(_Tail(transaction, self.stream, self.node))
        except apsw.Error:
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's, and reaches the caller
            return error
        try:
            drafts = [draft(event) for event in events]
        except Exception as error:  # noqa: BLE001 - likewise: what cannot be written down
            self.undo()
            return error
        if not drafts:
            return Position(self.stream, 0 if head is None else head.seq)
        self.node.stay(transaction)
        head = head or transaction.new_head(self.stream)
        transaction.unless_committed(self.undo)
        transaction.add_entries(head, drafts)
        transaction.change(head)
        return Position(self.stream, head.seq)


class _Leases:
    """The node of this journal and what it leads."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._node = writer.node

    @property
    def node(self) -> str:
        return self._node.id

    async def lead(self, stream: str, holder: StreamOwner | None = None) -> int:
        return await self._writer.do(
            lambda transaction: self._node.lead(transaction, stream, holder)
        )

    async def release(self, stream: str, epoch: int) -> None:
        await self._writer.do(lambda transaction: self._node.release(transaction, stream, epoch))

    async def abandoned(self) -> list[str]:
        return await self._writer.do(self._node.abandoned)

    def is_valid(self) -> bool:
        return self._writer.is_well and self._node.is_valid()


class _Processes:
    """The table of nodes, and of what they serve."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._node = writer.node

    @property
    def beat(self) -> float | None:
        return self._node.beat

    async def known(self) -> list[Process]:
        return await self._reader.do(lambda source: self._node.known(source.connection))

    async def alive(self) -> list[Process]:
        return [each for each in await self.known() if each.is_alive]

    async def serve(self, offer: str) -> None:
        await self._writer.do(lambda transaction: self._node.serve(transaction, offer))

    async def withdraw(self) -> None:
        await self._writer.do(self._node.withdraw)


class _Mailbox:
    """The table of mail. Other processes' mail is found by looking, ten times a second."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def post(self, mail: Mail) -> bool:
        digest = payload_digest(mail.body)
        return await self._writer.do(lambda transaction: self._post(transaction, mail, digest))

    async def unread(self) -> list[Mail]:
        return await self._reader.do(unread_mail)

    async def wait_changed(self) -> None:
        await self._writer.changes.wait()

    def _post(self, transaction: Transaction, mail: Mail, digest: bytes) -> bool:
        execute = transaction.connection.execute
        written = (mail.stream, mail.subject, digest)
        known = execute(SQL["mail_by_key"], (mail.key,)).fetchone()
        if known is not None:
            if known != written:
                raise KeyConflict(mail.key, known[0])
            return False
        row = (mail.key, mail.stream, mail.subject, mail.body, digest)
        number = execute(SQL["add_mail"], row).get
        kept = seal(number, mail.key, *written)
        execute(SQL["seal_mail"], (kept, number))
        transaction.add_seal(kept)
        transaction.once_committed(self._writer.changes.notify)
        return True


def _let_go(writer: Writer, gate: Availability) -> None:
    """End a journal that nobody closed: when it is collected, or when the program ends."""
    if not gate.is_forked:
        writer.stop()
        writer.join(timeout=5)


_open_journals: "weakref.WeakSet[SqliteJournal]" = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_open_journals):
        journal.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
