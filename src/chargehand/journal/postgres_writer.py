"""Writes to a journal in PostgreSQL: what many callers ask for at once becomes one transaction.

A transaction locks all rows that it needs first, and writes all that it writes last. Requests of many callers share
one. What they need is locked in one order for all processes (keys, then streams, then mail, each sorted), so that two
transactions never wait for each other in a circle. The requests themselves then only look at what was read, and note
what is to be written.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from chargehand.decisions.board_rules import facets_of, note_of
from chargehand.errors import ChargehandError, JournalBusy, JournalFailed, KeyConflict
from chargehand.facts.board import BlockGuarded, BlockWritten, BoardEvent, Guard, Label
from chargehand.facts.events import VERSION, RunFinished
from chargehand.journal.base import GENESIS, Key, Position, StoredRow, named_blobs
from chargehand.journal.change_signal import Changes
from chargehand.journal.hash_chain import Draft, chain_hash, header, header_start
from chargehand.journal.leases import HeadRow, JournalNode, advance, led_elsewhere, steady
from chargehand.journal.postgres_connection import POSTGRES, PostgresServer
from chargehand.journal.sqlite_boards import facet_number

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

#: requests of one transaction, at most
MOST = 1_000
#: how often a transaction is tried again that the server gave up for the sake of another one
CONFLICTS = 5
#: seconds between two looks for changes of other processes, while somebody waits for them
POLL = 0.1

log = logging.getLogger("chargehand.journal")

_ENDING = RunFinished.__name__
_COLUMNS = ("stream", "seq", "epoch", "kind", "version", "at", "author", "payload", "hash")
decode_guard = msgspec.json.Decoder(Guard).decode


class Needs(Struct, frozen=True):
    """What a request must have locked before it is entered."""

    stream: str = ""
    #: more of them
    streams: tuple[str, ...] = ()
    key: Key | None = None
    #: more keys
    keys: tuple[Key, ...] = ()
    mail: tuple[int, ...] = ()
    #: of the board that `stream` is
    label: str = ""
    #: who is alive
    nodes: bool = False


class Living(Struct, frozen=True):
    """A node whose lease holds by the clock of the database."""

    seconds_left: float
    pid: int
    host: str


class PostgresTransaction:
    """Everything that is about to be committed as one."""

    def __init__(self, connection: "Connection[Any]", namespace: str, node: str) -> None:
        self.connection = connection
        self.namespace = namespace
        self.node = node
        self.nodes: dict[str, Living] = {}
        #: streams whose run has ended
        self.ended: list[str] = []
        #: others should look: mail was posted, or a board was written to
        self.is_told = False
        self._heads: dict[str, HeadRow] = {}
        self._made: dict[str, HeadRow] = {}
        self._changed: dict[str, HeadRow] = {}
        self._entries: list[tuple[object, ...]] = []
        self._unused_keys: set[tuple[str, str]] = set()
        self._keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._new_keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._mail: dict[int, tuple[str, bool]] = {}
        self._taken: set[int] = set()
        self._labels: dict[tuple[int, str], Label] = {}
        self._blob_refs: set[tuple[str, int]] = set()
        self._facets: list[tuple[object, ...]] = []
        self._blocks: list[tuple[object, ...]] = []
        self._guards: dict[tuple[int, str], bytes] = {}
        #: the lease of this node is renewed with it
        self.is_renewal = False
        self._callbacks: list[Callable[[], None]] = []
        self._undoing: list[Callable[[], None]] = []

    # What is there

    async def lock(self, needs: Iterable[Needs]) -> None:
        """Lock and read all that these requests need."""
        wanted = list(needs)
        keys = [each.key for each in wanted if each.key is not None]
        if keys := keys + [key for each in wanted for key in each.keys]:
            await self._lock_keys(keys)
        streams = {name for each in wanted for name in (each.stream, *each.streams) if name}
        if streams:
            await self._lock_streams(sorted(streams))
        if mail := sorted({number for each in wanted for number in each.mail}):
            await self.lock_mail(mail)
        if labelled := {(each.stream, each.label) for each in wanted if each.label}:
            await self._read_labels(labelled)
        if any(each.nodes for each in wanted):
            rows = await self.connection.fetch(POSTGRES["nodes"], self.namespace)
            self.nodes = {row[0]: Living(row[1], row[2], row[3]) for row in rows}

    async def _lock_keys(self, keys: Sequence[Key]) -> None:
        digests = {(key.scope, key.name): key.digest for key in reversed(keys)}
        names = sorted(digests)
        scopes, words = [scope for scope, _ in names], [name for _, name in names]
        rows = await self.connection.fetch(
            *(POSTGRES["claim_keys"], self.namespace, scopes, words),
            [digests[name] for name in names],
        )
        self._unused_keys = {(row[0], row[1]) for row in rows}
        if len(self._unused_keys) < len(names):
            found = await self.connection.fetch(
                POSTGRES["known_keys"], self.namespace, scopes, words
            )
            known = {(row[0], row[1]): (row[2], row[3], row[4]) for row in found}
            self._keys = {k: used for k, used in known.items() if k not in self._unused_keys}

    async def _lock_streams(self, names: list[str]) -> None:
        heads = await self._read_heads(names)
        if missing := [name for name in names if name not in heads]:
            rows = await self.connection.fetch(
                POSTGRES["make_streams"], self.namespace, missing, GENESIS
            )
            made = {row[0] for row in rows}
            for name, head in (await self._read_heads(missing)).items():
                (self._made if name in made else heads)[name] = head
        self._heads = heads

    async def _read_heads(self, names: list[str]) -> dict[str, HeadRow]:
        rows = await self.connection.fetch(POSTGRES["lock_heads"], self.namespace, names)
        return {row[0]: HeadRow(*row) for row in rows}

    async def claim(self, keys: Sequence[Key]) -> None:
        """Claim these keys, whose rows this transaction has deleted."""
        columns = _columns([(each.scope, each.name, each.digest) for each in keys])
        if columns:
            await self.connection.fetch(POSTGRES["claim_keys"], self.namespace, *columns)

    async def lock_mail(self, numbers: list[int]) -> None:
        """Lock this mail, to be checked and taken."""
        rows = await self.connection.fetch(POSTGRES["lock_mail"], self.namespace, numbers)
        self._mail.update({row[0]: (row[1], row[2]) for row in rows})

    async def _read_labels(self, labelled: set[tuple[str, str]]) -> None:
        pairs = [(self._heads[s].id, label) for s, label in labelled if s in self._heads]
        if not pairs:
            return
        streams, labels = [stream for stream, _ in pairs], [label for _, label in pairs]
        newest = await self.connection.fetch(POSTGRES["newest_blocks"], streams, labels)
        guards = await self.connection.fetch(POSTGRES["guards"], streams, labels)
        guarded = {(row[0], row[1]): decode_guard(row[2]) for row in guards}
        versions = {(row[0], row[1]): row[2] for row in newest}
        for place in pairs:
            guard = guarded.get(place, Guard())
            self._labels[place] = Label(place[1], versions.get(place, 0), guard)

    def head(self, stream: str) -> HeadRow | None:
        """The newest state of a stream, with what this transaction adds; None for one without any."""
        return self._heads.get(stream)

    def new_head(self, stream: str) -> HeadRow:
        """A stream that was not there before."""
        head = self._heads[stream] = self._made.pop(stream)
        self.change(head)
        return head

    def label(self, head: HeadRow | None, label: str) -> Label:
        """What is known of a block at this moment."""
        found = None if head is None else self._labels.get((head.id, label))
        return found or Label(label, 0)

    def find_key(self, key: Key) -> Position | None:
        """Where this key was used before; raises `KeyConflict` if it was for something else."""
        name = (key.scope, key.name)
        known = self._new_keys.get(name) or self._keys.get(name)
        if known is None:
            return None
        digest, stream, seq = known
        if digest != key.digest:
            raise KeyConflict(key.name, stream)
        return Position(stream, seq, is_new=False)

    def check_unread(self, mail: int) -> None:
        """Raise `KeyConflict` unless this mail is there to be taken."""
        key, is_unread = self._mail.get(mail, (f"mail {mail}", False))
        if mail in self._taken or not is_unread:
            raise KeyConflict(key)

    def pending(self, stream: int, after: int) -> list[tuple[Any, ...]]:
        """The entries of a stream that this very transaction adds, from a number on."""
        return [row[1:] for row in self._entries if row[0] == stream and row[1] > after]  # type: ignore[operator]  # columns of `entries`

    # What is added

    def change(self, head: HeadRow) -> None:
        """This head is not what it was."""
        self._changed[head.name] = head

    def take_mail(self, mail: int) -> None:
        """Take mail that was checked to be unread."""
        self._taken.add(mail)

    def add_key(self, key: Key, stream: str, seq: int) -> None:
        self._unused_keys.discard((key.scope, key.name))
        self._new_keys[key.scope, key.name] = (key.digest, stream, seq)

    def add_entries(self, head: HeadRow, drafts: Sequence[Draft]) -> None:
        """Chain these to the end of a stream."""
        seq, previous, epoch, stream = head.seq, head.hash, head.epoch, head.id
        start, at = header_start(head.name, self.node), None
        for payload, digest, kind, at in drafts:
            seq += 1
            previous = chain_hash(previous, header(start, seq, epoch, kind, at), digest)
            self._entries.append(
                (stream, seq, epoch, kind, VERSION, at, self.node, payload, previous)
            )
            self._blob_refs |= {(name, stream) for name in named_blobs(payload)}
            if kind == _ENDING:
                head.ended, head.owner = True, ""
                self.ended.append(head.name)
        if head.began_at is None:
            head.began_at = drafts[0][3]
        head.seq, head.hash, head.changed_at = seq, previous, at
        self.change(head)

    def adopt_rows(self, head: HeadRow, rows: Sequence[StoredRow]) -> None:
        """Put rows that other nodes wrote, in another journal, at the end of a stream."""
        for row in rows:
            place = (head.id, row.seq, row.epoch, row.kind, row.version, row.at)
            self._entries.append((*place, row.author, row.payload, row.hash))
            self._blob_refs |= {(name, head.id) for name in named_blobs(row.payload)}
        advance(head, rows)
        self.change(head)

    def index(self, board: str, head: HeadRow, event: BoardEvent, seq: int = 0) -> None:
        """Let an event of a board be found, the newest or the one with this number."""
        seq = seq or head.seq
        note = note_of(board, seq, event)
        if note is not None:
            self._facets += [
                (head.id, facet_number(board, word), seq, note.importance)
                for word in facets_of(note)
            ]
        if isinstance(event, BlockWritten):
            self._blocks.append((head.id, event.label, event.version, seq))
            known = self.label(head, event.label)
            self._labels[head.id, event.label] = Label(event.label, event.version, known.guard)
        elif isinstance(event, BlockGuarded):
            self._guards[head.id, event.label] = msgspec.json.encode(event.guard)
            known = self.label(head, event.label)
            self._labels[head.id, event.label] = Label(event.label, known.version, event.guard)
        self.is_told = True

    def once_committed(self, callback: Callable[[], None]) -> None:
        """Call this when, and only if, the transaction has become durable."""
        self._callbacks.append(callback)

    def unless_committed(self, callback: Callable[[], None]) -> None:
        """Call this if the transaction comes to nothing, before another one is begun."""
        self._undoing.append(callback)

    def tell_undone(self) -> None:
        """Nothing of it is kept."""
        for callback in self._undoing:
            callback()

    def tell_committed(self) -> None:
        """It is durable now."""
        for callback in self._callbacks:
            callback()

    @property
    def is_blank(self) -> bool:
        """Whether nothing is to be written."""
        return not (self._changed or self._new_keys or self._taken or self._callbacks)

    async def write(self) -> None:
        """Write all that was added."""
        run, space = self.connection.execute, self.namespace
        if self._entries:
            await self._copy("chargehand_entries", self._entries, _COLUMNS)
        if self._changed:
            await run(POSTGRES["put_heads"], *_columns([_kept(h) for h in self._changed.values()]))
        if self._made:
            await run(POSTGRES["drop_unused"], [head.id for head in self._made.values()])
        if self._new_keys:
            rows = [(*name, *used) for name, used in self._new_keys.items()]
            await run(POSTGRES["put_keys"], space, *_columns(rows))
        if self._unused_keys:
            await run(POSTGRES["drop_keys"], space, *_columns(list(self._unused_keys)))
        if self._taken:
            await run(POSTGRES["take_mail"], space, list(self._taken))
        if self._blob_refs:
            await run(POSTGRES["add_blob_refs"], *_columns(list(self._blob_refs)))
        if self._facets:
            await self._copy("chargehand_facets", self._facets)
        if self._blocks:
            await self._copy("chargehand_blocks", self._blocks)
        if self._guards:
            guards = [(*place, guard) for place, guard in self._guards.items()]
            await run(POSTGRES["put_guards"], *_columns(guards))
        if self.is_told:
            await run(POSTGRES["tell"], space)

    async def _copy(
        self, table: str, rows: list[tuple[object, ...]], columns: Sequence[str] | None = None
    ) -> None:
        await self.connection.copy_records_to_table(table, records=rows, columns=columns)


def _kept(head: HeadRow) -> tuple[object, ...]:
    return (
        *(head.id, head.seq, head.hash, head.epoch, head.owner, bool(head.ended)),
        *(head.began_at, head.changed_at, bool(head.forgotten)),
    )


def _columns(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


Work = Callable[[PostgresTransaction], Awaitable[T]]


class WriteRequest(Struct, frozen=True):
    """Something to be entered into the next transaction, and who waits for it."""

    needs: Needs
    work: Work[Any]
    future: "asyncio.Future[Any]"
    #: it can be entered only once: if its transaction is lost, so is it
    undo: Callable[[], None] | None = None


Answer = tuple[WriteRequest, Any, BaseException | None]


class PostgresNode(JournalNode[PostgresTransaction]):
    """A node whose lease is on the clock of the database."""

    def _put(self, transaction: PostgresTransaction, now: int) -> None:  # noqa: ARG002 - the database has the clock
        transaction.is_renewal = True

    def _refuse_living(self, transaction: PostgresTransaction, stream: str, owner: str) -> None:
        if (living := transaction.nodes.get(owner)) is not None:
            process = f"process {living.pid} on {living.host}"
            raise led_elsewhere(stream, owner, process, living.seconds_left)

    def end(self) -> None:
        """It leads nothing any more."""
        self._renewed = None


class PostgresWriter:
    """Takes requests and makes them durable, as many as there are at a time.

    Everything here runs in the event loop of the journal's own thread. While one transaction is being
    committed the next one gathers. The same task renews the node's lease.
    """

    def __init__(
        self,
        server: PostgresServer,
        namespace: str,
        node: PostgresNode,
        *,
        patience: timedelta,
        is_strict: bool,
    ) -> None:
        #: set while somebody waits for changes of other processes
        self.awaited = asyncio.Event()
        loop = asyncio.get_running_loop()

        def nudge() -> None:
            loop.call_soon_threadsafe(self.awaited.set)

        self.changes = Changes(nudge)
        #: of boards and runs, our own too; apart, so that they wake nobody who waits for mail
        self.posts = Changes(nudge)
        self.node = node
        self._server = server
        self.namespace = namespace
        self._patience = patience.total_seconds()
        commits = "on" if is_strict else "off"
        grace = max(int(node.length.total_seconds() * 1000), 1000)
        # A process that freezes inside a transaction must not hold its locks for ever.
        self._begin = (
            f"BEGIN; SET LOCAL synchronous_commit = {commits}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {grace}"
        )
        self._connection: Connection[Any] | None = None
        self._requests: list[WriteRequest] = []
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._failure = ""
        #: transactions of this node that were begun
        self._count = 0
        #: one of them was stored, so that the database may know this node
        self._has_stored = False

    @property
    def is_well(self) -> bool:
        """Whether appends can still succeed."""
        return not self._failure and not self._is_stopping

    def put(self, request: WriteRequest) -> None:
        """Enter this into the next transaction."""
        if self._is_stopping or self._failure:
            fail(request, JournalFailed(self._failure or "the journal is closed"))
            return
        self._requests.append(request)
        self._wake.set()

    def stop(self) -> None:
        """Write down what is pending, then end."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Write until told to stop."""
        while True:
            is_last = self._is_stopping
            if not is_last and not self._requests:
                await self._sleep()
            group, self._requests = self._requests[:MOST], self._requests[MOST:]
            if group or self.node.is_due:
                await self._commit(group)
            if is_last and not self._requests:
                break
        await self._leave()

    async def _sleep(self) -> None:
        self._wake.clear()
        if self._requests or self._is_stopping:
            return
        due = self.node.due
        wait = None if due is None else max(0.0, (due - steady()) / 1e6)
        try:
            await asyncio.wait_for(self._wake.wait(), wait)
        except TimeoutError:
            return

    async def _commit(self, group: list[WriteRequest]) -> None:
        conflicts = 0
        while True:
            number = self._count = self._count + 1
            attempt = _Attempt(self, group, number)
            try:
                connection = await self._connect(is_patient=False)
                await attempt.run(connection, self._begin)
                break
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, somebody waits for each of these
                self._disconnect(error)
                if attempt.is_unknown and await self._was_committed(number):
                    break
                attempt.undo()
                is_conflict = self._server.is_conflict(error)
                conflicts += is_conflict
                if self._server.is_lost(error) or (is_conflict and conflicts <= CONFLICTS):
                    group = attempt.repeatable()
                    continue
                self._refuse(group, error)
                return
        self._has_stored = True
        attempt.tell()
        self.posts.note()

    async def _connect(self, *, is_patient: bool) -> "Connection[Any]":
        if self._connection is None or self._connection.is_closed():
            patience = None if is_patient else self._patience
            self._connection = await self._server.connect_patiently(patience, self._is_wanted)
        return self._connection

    def _is_wanted(self) -> bool:
        return not self._is_stopping

    def _disconnect(self, error: BaseException) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        if self._server.is_lost(error):
            log.warning("journal_connection_lost path=%s error=%r", self._server.place, error)

    async def _was_committed(self, number: int) -> bool:
        """Whether a transaction whose connection broke in the moment of its commit was stored.

        Nothing may be said before that is known, so the server is waited for without end.
        """
        while True:
            try:
                connection = await self._connect(is_patient=True)
                async with connection.transaction():
                    found = await connection.fetchval(
                        POSTGRES["committed"], self.namespace, self.node.id
                    )
                return found is not None and found >= number
            except Exception as error:
                self._disconnect(error)
                if not self._server.is_lost(error):
                    raise

    def _refuse(self, group: list[WriteRequest], error: BaseException) -> None:
        told = self._server.refusal(error)
        if isinstance(told, JournalFailed):
            self._failure = str(told)
        log.error("journal_write_failed path=%s error=%s", self._server.place, told)
        for request in group:
            own = type(told)(str(told))
            own.__cause__ = error
            fail(request, own)

    async def _leave(self) -> None:
        """Give up the lease, so that others need not wait for its end."""
        self.node.end()
        try:
            if self._has_stored and not self._failure:
                connection = await asyncio.wait_for(self._connect(is_patient=False), 5)
                await connection.execute(POSTGRES["drop_node"], self.namespace, self.node.id)
        except Exception as error:  # noqa: BLE001 - the lease then ends by time
            log.warning("journal_left_late path=%s error=%r", self._server.place, error)
        if self._connection is not None:
            self._connection.terminate()
        self.changes.notify()
        self.posts.notify()


class _Attempt:
    """One try at a transaction with all of a group that passes its guards."""

    def __init__(self, writer: PostgresWriter, group: list[WriteRequest], number: int) -> None:
        self._writer = writer
        self._group = group
        self._number = number
        self._answers: list[Answer] = []
        self._transaction: PostgresTransaction | None = None
        #: the commit was sent, and its answer never came
        self.is_unknown = False

    async def run(self, connection: "Connection[Any]", begin: str) -> None:
        node = self._writer.node
        transaction = PostgresTransaction(connection, self._writer.namespace, node.id)
        self._transaction = transaction
        await connection.execute(begin)
        await transaction.lock(request.needs for request in self._group)
        for request in self._group:
            try:
                self._answers.append((request, await request.work(transaction), None))
            except ChargehandError as error:
                self._answers.append((request, None, error))
        if node.is_due and not transaction.is_renewal:
            node.renew(transaction)
        if transaction.is_blank:
            await connection.execute("ROLLBACK")
            return
        await transaction.write()
        lease = node.length if transaction.is_renewal else timedelta()
        await connection.execute(
            *(POSTGRES["put_node"], self._writer.namespace, node.id, lease, os.getpid()),
            *(socket.gethostname(), self._number),
        )
        self.is_unknown = True
        await connection.execute("COMMIT")
        self.is_unknown = False

    def tell(self) -> None:
        """It is durable: tell all that wait."""
        transaction = self._transaction
        if transaction is not None:
            transaction.tell_committed()
            self._writer.node.let_go(transaction.ended)
            if transaction.is_told:
                self._writer.changes.notify()
        answer(self._answers)

    def undo(self) -> None:
        """Nothing of it is kept."""
        if self._transaction is not None:
            self._transaction.tell_undone()

    def repeatable(self) -> list[WriteRequest]:
        """What can be entered again; the others are refused now."""
        entered = {id(request) for request, _, _ in self._answers}
        again: list[WriteRequest] = []
        for request in self._group:
            if request.undo is not None and id(request) in entered:
                fail(
                    request,
                    JournalBusy("the transaction was lost while this was decided; try again"),
                )
            else:
                again.append(request)
        return again


def fail(request: WriteRequest, error: BaseException) -> None:
    """Tell who waits for this request that it failed."""
    answer([(request, None, error)])


def answer(answers: list[Answer]) -> None:
    """Tell all that wait: one call into each event loop, however many wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for each in answers:
        by_loop.setdefault(each[0].future.get_loop(), []).append(each)
    for loop, theirs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed; nobody waits in it any more
            loop.call_soon_threadsafe(_tell, theirs)


def _tell(answers: list[Answer]) -> None:
    for request, result, error in answers:
        if request.future.done():
            continue  # cancelled; what it asked for stands all the same
        if error is None:
            request.future.set_result(result)
        else:
            request.future.set_exception(error)
