"""The journal in a PostgreSQL database: shared by supervisors on any number of machines."""

import asyncio
import functools
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from chargehand.decisions.board_rules import decide as decide_act
from chargehand.errors import (
    JournalBusy,
    JournalDamaged,
    KeyConflict,
    UnknownRun,
    UsageError,
)
from chargehand.facts.argument_checks import Duration, duration
from chargehand.facts.board import (
    BOARD,
    Act,
    Block,
    BoardEntry,
    BoardEvent,
    Label,
    Note,
    NotePosted,
    NoteQuery,
    decode_board,
    is_board_of_run,
    stream_of,
)
from chargehand.facts.events import Event
from chargehand.facts.value import digest_of
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
    StoredKey,
    StoredRow,
    StreamCopy,
    Tail,
    led_by,
    nothing_to_undo,
)
from chargehand.journal.closed_guard import Availability
from chargehand.journal.hash_chain import draft, payload_digest
from chargehand.journal.leases import HeadRow, check_leads
from chargehand.journal.local_stream_owners import StreamOwner
from chargehand.journal.postgres_address import with_namespace
from chargehand.journal.postgres_connection import POSTGRES, PostgresServer, refuse_text
from chargehand.journal.postgres_lease_renewal import LeaseRenewal
from chargehand.journal.postgres_reader import (
    BoardReader,
    PostgresWalk,
    all_heads,
    unread_mail,
)
from chargehand.journal.postgres_run_deletion import PostgresStorage, clear_deleted
from chargehand.journal.postgres_writer import (
    POLL,
    Needs,
    PostgresNode,
    PostgresTransaction,
    PostgresWriter,
    Work,
    WriteRequest,
)
from chargehand.journal.sqlite_reader import ChainCheck
from chargehand.journal.stream_copy_rows import (
    check_chain,
    keys_to_add,
    rows_to_add,
    rows_to_restore,
    stored_row,
    undecoded,
)
from chargehand.sync_async_bridge import in_thread, in_thread_or_here, naming_shortage

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

#: seconds that reads under way have left when the journal is closed
CLOSING = 5.0
#: connections that read at once, at most
READERS = 3
#: seconds between two looks for changes while the server tells of them, too
RARE_POLL = 0.5

log = logging.getLogger("chargehand.journal")


class PostgresJournal:
    """Streams of events in a PostgreSQL database.

    `durability="strict"` acknowledges nothing before the server has it on disk (and on its synchronous
    replicas, if it has any). `"relaxed"` does not wait for the disk: a crash of the server may take the
    last moments with it. `namespace` keeps the runs of several teams apart in one database; the DSN may
    name it, too, as `?namespace=`. Without `makes_tables`, a database that holds no journal of today's
    format is refused and left as it is.

    All connections live in one thread with an event loop of its own, so that the journal may be used from
    several event loops at once, and its lease is renewed whatever those are busy with.
    """

    def __init__(
        self,
        dsn: str,
        *,
        namespace: str = "",
        durability: str = "strict",
        lease: Duration = LEASE,
        patience: Duration = PATIENCE,
        makes_tables: bool = True,
    ) -> None:
        if durability not in ("strict", "relaxed"):
            raise UsageError(f"durability={durability!r} must be 'strict' or 'relaxed'")
        term = duration(lease, "lease")
        if term < timedelta(milliseconds=100):
            raise UsageError(
                f"lease={term} is too short to be kept over a network; use at least 0.1 s"
            )
        if not isinstance(namespace, str):
            raise UsageError(
                f"namespace={namespace!r} must be a text; leave it out for the usual one"
            )
        longest = duration(patience, "patience", may_be_zero=True)
        server = PostgresServer(with_namespace(dsn, namespace), makes_tables=makes_tables)
        namespace = server.namespace
        refuse_text(namespace=namespace)
        self.path = server.place
        self._gate = Availability(self.path)
        self._thread = _LoopThread()
        try:
            self._core = self._thread.wait(
                _Core.open(server, namespace, term, longest, is_strict=durability == "strict")
            )
        except BaseException:
            self._thread.stop()
            raise
        port = _Port(self._core, self._thread, self._gate)
        self._port = port
        self.leases = _Leases(port)
        self.processes = _Processes(port)
        self.mail = _Mailbox(port)
        self.blobs = _Blobs(port)
        self.boards = _Boards(port)
        self.storage = PostgresStorage(self._core.namespace, port.read, port.write)
        self.streams = _Streams(port)
        weakref.finalize(self, _let_go, self._core, self._thread, self._gate)
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
        """Store events at the end of a stream, all or none, and return the place of the last."""
        drafts = [draft(event) for event in events]
        refuse_text(stream=stream, key="" if key is None else f"{key.scope} {key.name}")
        taken = tuple(taking)

        async def enter(transaction: PostgresTransaction) -> Position:
            # The key comes first: a repeated request gets its first answer, whoever leads by now.
            if key is not None and (known := transaction.find_key(key)) is not None:
                return known
            head = _living_head(transaction, stream)
            if epoch is not None:
                check_leads(head, transaction.node, stream, epoch)
            for mail in taken:
                transaction.check_unread(mail)
            head = head or transaction.new_head(stream)
            if drafts:
                transaction.add_entries(head, drafts)
            for mail in taken:
                transaction.take_mail(mail)
            if key is not None:
                transaction.add_key(key, stream, head.seq)
            return Position(stream, head.seq)

        return await self._port.write(Needs(stream=stream, key=key, mail=taken), enter)

    async def decide(
        self,
        stream: str,
        decide: Callable[[Tail], Sequence[Event]],
        *,
        undo: Callable[[], None] = nothing_to_undo,
    ) -> Position:
        """Append what `decide` makes of the end of the stream, in one transaction that locks the stream.

        It is called in a thread of the journal. If the connection breaks before what it decided is stored,
        `undo` is called and `JournalBusy` raised.
        """
        refuse_text(stream=stream)
        work = functools.partial(_decide, core=self._core, stream=stream, decide=decide, undo=undo)
        decided = await self._port.write(Needs(stream=stream, nodes=True), work, undo=undo)
        if isinstance(decided, Exception):
            raise decided
        return decided

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, checked one by one, up to the newest when reading began."""
        refuse_text(stream=stream)
        walk = PostgresWalk(self._core.namespace, self.path, stream, after)
        while chunk := await self._port.read(walk.next_chunk):
            for entry in chunk:
                yield entry

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All runs that have an event, the one that changed last first."""
        namespace = self._core.namespace
        return await self._port.read(
            functools.partial(all_heads, namespace=namespace, forgotten=forgotten)
        )

    async def close(self) -> None:
        """Write down what is pending and let go of everything. Closing twice is fine."""
        if not self._gate.is_forked:
            await in_thread_or_here(self._shut)

    def _shut(self) -> None:
        self._gate.close()
        self._thread.end(self._core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def abandon(self) -> None:
        """This is a forked child: the connections are the parent's alone."""
        self._gate.abandon()


def _living_head(transaction: PostgresTransaction, stream: str) -> HeadRow | None:
    head = transaction.head(stream)
    if head is not None and head.forgotten:
        raise UnknownRun(stream, FORGOTTEN)
    return head


async def _decide(
    transaction: PostgresTransaction,
    core: "_Core",
    stream: str,
    decide: Callable[[Tail], Sequence[Event]],
    undo: Callable[[], None],
) -> Position | Exception:
    """Where it was stored, or what speaks against it: that reaches this caller, and no other of the group."""
    head = _living_head(transaction, stream)
    node = core.writer.node
    if (
        head is not None
        and head.owner
        and (head.owner == node.id or head.owner in transaction.nodes)
    ):
        return led_by(stream, head.owner)
    tail = _Tail(transaction, core, stream)
    try:
        events = await in_thread(decide, tail)
    except Exception as error:
        if tail.failure is not None:
            raise tail.failure from error  # the database said it, so nothing of the group is stored
        return error
    try:
        drafts = [draft(event) for event in events]
    except Exception as error:  # noqa: BLE001 - likewise: what cannot be written down
        undo()
        return error
    tail.take_all()
    if not drafts:
        return Position(stream, 0 if head is None else head.seq)
    node.stay(transaction)
    transaction.unless_committed(undo)
    head = head or transaction.new_head(stream)
    transaction.add_entries(head, drafts)
    return Position(stream, head.seq)


class _Tail:
    """The end of a stream with all that was added in this transaction before; used in another thread."""

    def __init__(self, transaction: PostgresTransaction, core: "_Core", stream: str) -> None:
        self._transaction = transaction
        self._core = core
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._taken: list[int] = []
        #: what the database said; it must not be taken for the decision's own error
        self.failure: BaseException | None = None

    @property
    def seq(self) -> int:
        head = self._transaction.head(self._stream)
        return 0 if head is None else head.seq

    def read(self, after: int) -> list[Entry]:
        head = self._transaction.head(self._stream)
        if head is None or after >= head.seq:
            return []
        return self._wait(self._read(head, after))

    async def _read(self, head: HeadRow, after: int) -> list[Entry]:
        connection, pending = (
            self._transaction.connection,
            self._transaction.pending(head.id, after),
        )
        check = ChainCheck(self._stream, self._core.place)
        if after:
            known = await connection.fetchrow(POSTGRES["entry_hash"], head.id, after)
            if known is not None:
                check.previous, check.epoch = known
            check.last = after
        stored = pending[0][0] - 1 if pending else head.seq
        rows = await connection.fetch(
            POSTGRES["entries"], head.id, after, stored, max(stored - after, 0)
        )
        return [check.entry(row) for row in (*rows, *pending)]

    def is_alive(self, node: str) -> bool:
        return node == self._transaction.node or node in self._transaction.nodes

    def take(self, mail: int) -> None:
        self._wait(self._transaction.lock_mail([mail]))
        self._transaction.check_unread(mail)
        if mail in self._taken:
            raise KeyConflict(f"mail {mail}")
        self._taken.append(mail)

    def take_all(self) -> None:
        """Take the mail that was decided on."""
        for mail in self._taken:
            self._transaction.take_mail(mail)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except BaseException as error:
            self.failure = error
            raise


class _Core:
    """The writer, the connections that read, and the watch for changes; all in one event loop."""

    def __init__(
        self, server: PostgresServer, namespace: str, writer: PostgresWriter, patience: timedelta
    ) -> None:
        self.server = server
        self.namespace = namespace
        self.place = server.place
        self.writer = writer
        self._patience = patience.total_seconds()
        self._idle: list[Connection[Any]] = []
        self._places = asyncio.Semaphore(READERS)
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: Connection[Any] | None = None
        self._reading: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    @classmethod
    async def open(
        cls,
        server: PostgresServer,
        namespace: str,
        lease: timedelta,
        patience: timedelta,
        *,
        is_strict: bool,
    ) -> "_Core":
        """Connect once, so that whatever is wrong is said now."""
        try:
            connection = await server.connect()
        except JournalBusy as error:
            raise JournalBusy(
                str(error).replace("nothing of this request was stored: ", "")
            ) from error
        node = PostgresNode(lease)
        writer = PostgresWriter(server, namespace, node, patience=patience, is_strict=is_strict)
        core = cls(server, namespace, writer, patience)
        core._idle.append(connection)
        core._tasks = [
            asyncio.create_task(writer.run(), name="chargehand journal writer"),
            asyncio.create_task(core._watch(), name="chargehand journal watch"),
            asyncio.create_task(
                LeaseRenewal(server, namespace, node).run(), name="chargehand lease renewal"
            ),
        ]
        return core

    async def read(self, work: "Callable[[Connection[Any]], Awaitable[T]]") -> T:
        """What this function reads; tried again over another connection if one breaks."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - every read runs in a task of its own
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        async with self._places:
            while True:
                connection = self._idle.pop() if self._idle else await self._connect()
                try:
                    found = await self.server.transact(connection, work)
                except (UnknownRun, JournalDamaged, UsageError):
                    self._idle.append(connection)
                    raise
                except Exception as error:
                    connection.terminate()
                    if self.server.is_lost(error):
                        continue
                    raise self.server.refusal(error) from error
                except BaseException:
                    connection.terminate()
                    raise
                self._idle.append(connection)
                return found

    async def _connect(self) -> "Connection[Any]":
        return await self.server.connect_patiently(self._patience, lambda: not self._is_closing)

    async def _watch(self) -> None:
        """Tell of what other processes change, for as long as somebody waits for that."""
        known = ""
        while True:
            await self.writer.awaited.wait()
            self.writer.awaited.clear()
            while self.writer.changes.is_awaited or self.writer.posts.is_awaited:
                if self._listener is None or self._listener.is_closed():
                    self._listener = await self._listen()
                seen = await self._snapshot()
                if seen and seen != known:
                    known = seen
                    self.tell()
                await asyncio.sleep(POLL if self._listener is None else RARE_POLL)

    async def _listen(self) -> "Connection[Any] | None":
        """A connection over which the server tells of changes; None where it cannot be had."""
        if self.server.is_pooled:
            return None
        connection: Connection[Any] | None = None
        try:
            connection = await self.server.connect()
            await self.server.listen(connection, self._hear)
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if not isinstance(error, Exception):
                raise  # the journal is being closed
            # Only a hint: without it we look more often.
            log.debug("journal_not_listening path=%s error=%r", self.place, error)
            return None
        return connection

    def _hear(self, namespace: str) -> None:
        if namespace == self.namespace:
            self.tell()

    def tell(self) -> None:
        """Wake all who wait for a change."""
        self.writer.changes.notify()
        self.writer.posts.notify()

    async def _snapshot(self) -> str:
        async def look(connection: "Connection[Any]") -> str:
            return str(await connection.fetchval(POSTGRES["snapshot"]))

        try:
            return await self.read(look)
        except Exception as error:  # noqa: BLE001 - the next look may find it well again
            log.debug("journal_not_watched path=%s error=%r", self.place, error)
            return ""

    async def close(self) -> None:
        """Write down what is pending, and let go of all connections."""
        self._is_closing = True
        self.writer.stop()
        writing, watching, renewing = self._tasks
        await asyncio.wait([writing])
        watching.cancel()
        renewing.cancel()
        if reading := self._reading - {watching}:
            await asyncio.wait(reading, timeout=CLOSING)
        for task in self._reading:
            task.cancel()
        await asyncio.wait([watching, renewing, *self._reading])
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.error("journal_write_failed path=%s error=%r", self.place, error)
        for connection in self._idle:
            connection.terminate()
        if self._listener is not None:
            self._listener.terminate()


class _LoopThread:
    """A thread with an event loop of its own. It is a daemon: a journal left open keeps no program alive."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._ending = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name="chargehand-journal-postgres", daemon=True
        )
        with naming_shortage():
            self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def end(self, core: _Core, timeout: float | None = None) -> None:
        """Close the core, then the loop; the second to ask waits for the first."""
        with self._ending:
            if self._thread.is_alive() and not self.loop.is_closed():
                asyncio.run_coroutine_threadsafe(core.close(), self.loop).result(timeout)
                self.stop()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)


class _Port:
    """How the parts of a journal reach its thread, from whatever event loop they are asked in."""

    def __init__(self, core: _Core, thread: _LoopThread, gate: Availability) -> None:
        self.core = core
        self._thread = thread
        self._gate = gate

    @property
    def is_open(self) -> bool:
        return self._gate.is_usable

    def check(self) -> None:
        if not self._gate.is_usable:
            raise self._gate.refusal()

    async def write(
        self, needs: Needs, work: Work[T], *, undo: Callable[[], None] | None = None
    ) -> T:
        """Enter this into the next transaction; returns once it is durable."""
        self.check()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        request = WriteRequest(needs, work, future, undo)
        self._thread.loop.call_soon_threadsafe(self.core.writer.put, request)
        return await future

    async def read(self, work: "Callable[[Connection[Any]], Awaitable[T]]") -> T:
        """Read something over a connection of the journal."""
        self.check()
        asked = asyncio.run_coroutine_threadsafe(self.core.read(work), self._thread.loop)
        return await asyncio.wrap_future(asked)


class _Leases:
    """The node of this journal and what it leads."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self._node = port.core.writer.node

    @property
    def node(self) -> str:
        return self._node.id

    async def lead(self, stream: str, holder: StreamOwner | None = None) -> int:
        refuse_text(stream=stream)

        async def enter(transaction: PostgresTransaction) -> int:
            return self._node.lead(transaction, stream, holder)

        return await self._port.write(Needs(stream=stream, nodes=True), enter)

    async def release(self, stream: str, epoch: int) -> None:
        async def enter(transaction: PostgresTransaction) -> None:
            self._node.release(transaction, stream, epoch)

        await self._port.write(Needs(stream=stream), enter)

    async def abandoned(self) -> list[str]:
        namespace = self._port.core.namespace

        async def find(connection: "Connection[Any]") -> list[str]:
            rows = await connection.fetch(POSTGRES["abandoned"], namespace)
            return [row[0] for row in rows]

        return await self._port.read(find)

    def is_valid(self) -> bool:
        return self._port.is_open and self._port.core.writer.is_well and self._node.is_valid()


class _Processes:
    """The table of nodes, and of what they serve."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self._node = port.core.writer.node

    @property
    def beat(self) -> float | None:
        return self._node.beat

    async def alive(self) -> list[Process]:
        return [each for each in await self.known() if each.is_alive]

    async def known(self) -> list[Process]:
        namespace = self._port.core.namespace

        async def find(connection: "Connection[Any]") -> list[Process]:
            return [Process(*row) for row in await connection.fetch(POSTGRES["known"], namespace)]

        return await self._port.read(find)

    async def serve(self, offer: str) -> None:
        refuse_text(offer=offer)

        async def enter(transaction: PostgresTransaction) -> None:
            space, execute = transaction.namespace, transaction.connection.execute
            await execute(POSTGRES["drop_old_offers"], space)
            await execute(POSTGRES["put_offer"], space, self._node.id, offer)
            transaction.once_committed(_nothing_more)
            self._node.stay(transaction)

        await self._port.write(Needs(), enter)

    async def withdraw(self) -> None:
        async def enter(transaction: PostgresTransaction) -> None:
            space = transaction.namespace
            await transaction.connection.execute(POSTGRES["drop_offer"], space, self._node.id)
            transaction.once_committed(_nothing_more)

        await self._port.write(Needs(), enter)


class _Mailbox:
    """The table of mail. The server tells of new mail; where it cannot, we look ten times a second."""

    def __init__(self, port: _Port) -> None:
        self._port = port

    async def post(self, mail: Mail) -> bool:
        refuse_text(key=mail.key, stream=mail.stream, subject=mail.subject)
        digest = payload_digest(mail.body)

        async def enter(transaction: PostgresTransaction) -> bool:
            connection, space = transaction.connection, transaction.namespace
            row = (space, mail.key, mail.stream, mail.subject, mail.body, digest)
            if await connection.fetchval(POSTGRES["add_mail"], *row) is not None:
                transaction.is_told = True
                transaction.once_committed(_nothing_more)
                return True
            known = await connection.fetchrow(POSTGRES["mail_by_key"], space, mail.key)
            if known is None or tuple(known) != (mail.stream, mail.subject, digest):
                raise KeyConflict(mail.key, "" if known is None else known[0])
            return False

        return await self._port.write(Needs(), enter)

    async def unread(self) -> list[Mail]:
        namespace = self._port.core.namespace
        return await self._port.read(functools.partial(unread_mail, namespace=namespace))

    async def wait_changed(self) -> None:
        self._port.check()
        await self._port.core.writer.changes.wait()


class _Blobs:
    """Bytes too large for an event, in a table of their own."""

    def __init__(self, port: _Port) -> None:
        self._port = port

    async def put(self, data: bytes) -> str:
        kept = bytes(data)
        digest = digest_of(kept)

        async def enter(transaction: PostgresTransaction) -> str:
            space = transaction.namespace
            await transaction.connection.execute(POSTGRES["put_blob"], space, digest, kept)
            transaction.once_committed(_nothing_more)
            return digest

        return await self._port.write(Needs(), enter)

    async def get(self, digest: str) -> bytes:
        core = self._port.core

        async def find(connection: "Connection[Any]") -> bytes | None:
            found = await connection.fetchval(POSTGRES["blob"], core.namespace, digest)
            return None if found is None else bytes(found)

        if len(digest) != 32 or not all(each in "0123456789abcdef" for each in digest):
            raise UsageError(f"{digest!r} is not a digest of a blob: 32 hexadecimal digits")
        data = await self._port.read(find)
        if data is None or digest_of(data) != digest:
            fact = "is missing" if data is None else "was changed"
            raise JournalDamaged(
                f"{core.place} is damaged: blob {digest} {fact}; restore it from a backup"
            )
        return data


class _Boards:
    """The boards of one namespace."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self.signal = _Signal(port)

    async def append(self, board: str, act: Act, *, key: Key | None = None) -> BoardEntry:
        """Decide on this act and store what comes of it, all in one transaction."""
        stream = stream_of(board)
        label = "" if isinstance(act, NotePosted) else act.label
        refuse_text(board=board, label=label)

        async def enter(transaction: PostgresTransaction) -> BoardEntry | int:
            if key is not None and (known := transaction.find_key(key)) is not None:
                return known.seq
            head = _living_head(transaction, stream)
            event = decide_act(act, transaction.label(head, label))
            made = draft(cast("Event", event))  # chained like an event of a run
            head = head or transaction.new_head(stream)
            transaction.add_entries(head, [made])
            transaction.index(board, head, event)
            if key is not None:
                transaction.add_key(key, stream, head.seq)
            return BoardEntry(board, head.seq, event)

        stored = await self._port.write(Needs(stream=stream, key=key, label=label), enter)
        if isinstance(stored, BoardEntry):
            return stored
        seq = stored
        return await self._read(board, lambda reader: reader.entry(seq))

    async def _read(self, board: str, ask: Callable[[BoardReader], Awaitable[T]]) -> T:
        core = self._port.core

        async def look(connection: "Connection[Any]") -> T:
            return await ask(BoardReader(connection, core.namespace, core.place, board))

        return await self._port.read(look)

    async def notes(self, board: str, query: NoteQuery) -> list[Note]:
        """The notes that are asked for, found by their facets."""
        return await self._read(board, lambda reader: reader.notes(query))

    async def block(self, board: str, label: str, version: int = 0) -> Block | None:
        """One version of a block, 0 for the newest."""
        return await self._read(board, lambda reader: reader.block(label, version))

    async def named(self) -> list[str]:
        async def find(connection: "Connection[Any]") -> list[str]:
            rows = await connection.fetch(POSTGRES["boards_kept"], self._port.core.namespace)
            return [row[0].removeprefix(BOARD) for row in rows]

        return sorted(name for name in await self._port.read(find) if not is_board_of_run(name))

    async def labels(self, board: str, only: str = "") -> list[Label]:
        """What is known of each block, by label, or of only one."""
        return await self._read(board, lambda reader: reader.labels(only))

    async def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        """The entries after this number, checked one by one."""
        core = self._port.core
        walk = PostgresWalk(core.namespace, core.place, stream_of(board), after, decode_board)
        try:
            while chunk := await self._port.read(walk.next_chunk):
                for entry in chunk:
                    yield BoardEntry(board, entry.seq, cast("BoardEvent", entry.event))
        except UnknownRun as error:
            if FORGOTTEN in str(error):
                raise
            return  # nobody has written to it


class _Streams:
    """Streams of one namespace as they are stored, to be copied from and to other journals."""

    def __init__(self, port: _Port) -> None:
        self._port = port

    async def rows(self, stream: str) -> AsyncIterator[StoredRow]:
        """All rows of a stream in order, each checked against the one before it."""
        refuse_text(stream=stream)
        core = self._port.core
        walk = PostgresWalk(core.namespace, core.place, stream, 0, undecoded)
        while chunk := await self._port.read(walk.next_chunk):
            for entry in chunk:
                yield stored_row(entry)

    async def keys(self, stream: str) -> list[StoredKey]:
        """The idempotency keys that were used for entries of this stream."""
        namespace = self._port.core.namespace

        async def find(connection: "Connection[Any]") -> list[StoredKey]:
            rows = await connection.fetch(POSTGRES["keys_of_stream"], namespace, stream)
            return [StoredKey(Key(row[0], row[1], row[2]), row[3]) for row in rows]

        return await self._port.read(find)

    async def adopt(self, copy: StreamCopy) -> int:
        """Keep a copy of a stream, in one transaction."""
        check_chain(copy, "the copy")
        stream, place = copy.stream, self._port.core.place
        refuse_text(stream=stream)
        is_board = stream.startswith(BOARD)

        async def enter(transaction: PostgresTransaction) -> int:
            head = transaction.head(stream)
            known = 0 if head is None else head.seq
            if head is not None and head.owner in (transaction.node, *transaction.nodes):
                raise led_by(stream, head.owner)
            is_deleted = head is not None and bool(head.forgotten)
            if head is not None and is_deleted:
                rows, known = rows_to_restore(copy, head.seq, head.hash, place), 0
            else:
                common = await _hash_at(transaction, head, len(copy.rows))
                rows = rows_to_add(copy, known, common, place)
            # All that can be refused is refused before anything is entered.
            keys_here = keys_to_add(copy, known)
            new_keys = [
                each for each in keys_here if is_deleted or transaction.find_key(each.key) is None
            ]
            events = [decode_board(row.payload, row.version) for row in rows] if is_board else []
            if rows:
                head = head or transaction.new_head(stream)
                if head.forgotten:
                    await clear_deleted(transaction, head)
                    await transaction.claim([each.key for each in new_keys])
                    head.restart()
                transaction.adopt_rows(head, rows)
                for row, event in zip(rows, events, strict=False):
                    transaction.index(stream.removeprefix(BOARD), head, event, row.seq)
            for each in new_keys:
                transaction.add_key(each.key, stream, each.seq)
            return len(rows)

        keys = tuple(each.key for each in copy.keys)
        return await self._port.write(Needs(stream=stream, keys=keys, nodes=True), enter)


async def _hash_at(
    transaction: PostgresTransaction, head: HeadRow | None, most: int
) -> bytes | None:
    if head is None:
        return None
    number = min(head.seq, most)
    pending = transaction.pending(head.id, number - 1)
    if pending:
        return cast("bytes", pending[0][-1])
    row = await transaction.connection.fetchrow(POSTGRES["entry_hash"], head.id, number)
    return None if row is None else cast("bytes", row[0])


class _Signal:
    """Tells of what is stored: here at once, elsewhere as the server tells, or by looking."""

    def __init__(self, port: _Port) -> None:
        self._port = port

    @property
    def count(self) -> int:
        return self._port.core.writer.posts.count

    async def wait(self, *, since: int) -> None:
        self._port.check()
        await self._port.core.writer.posts.wait(since=since)


def _nothing_more() -> None:
    """Does nothing; it only makes the transaction count as one that changes something."""


def _let_go(core: _Core, thread: _LoopThread, gate: Availability) -> None:
    """End a journal that nobody closed: when it is collected, or when the program ends."""
    if gate.is_usable:
        gate.close()
        try:
            thread.end(core, timeout=5)
        except TimeoutError:
            log.warning("journal_left_open; its server does not answer")


_open_journals: "weakref.WeakSet[PostgresJournal]" = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_open_journals):
        journal.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
