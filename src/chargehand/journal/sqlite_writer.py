"""The one thread of a process that writes to a journal, its transactions, and how it commits in groups.

A transaction holds guards that look first, and rows that are written at the end. Requests are entered one
after the other. A request that fails its guards has not touched the transaction, so the others go on without a
savepoint; each sees what those before it have entered.
"""

import asyncio
import contextlib
import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec import Struct
from msgspec.structs import astuple

from chargehand.errors import (
    ChargehandError,
    JournalError,
    JournalFailed,
    JournalFull,
    KeyConflict,
    UnknownRun,
    UsageError,
)
from chargehand.facts.events import VERSION, RunFinished
from chargehand.journal.base import FORGOTTEN, GENESIS, Key, Position, StoredRow, named_blobs
from chargehand.journal.change_signal import Changes
from chargehand.journal.closed_guard import Availability
from chargehand.journal.hash_chain import Draft, chain_hash, header, header_start, seal
from chargehand.journal.head_mark import INTERVAL, KEPT_COMMITS, Mark
from chargehand.journal.leases import HeadRow, SqliteNode, advance, check_leads, head_of, steady
from chargehand.journal.sql_queries import BULK_INSERTS, SQL
from chargehand.journal.sqlite_errors import damaged, refusal
from chargehand.journal.sqlite_file import JournalFile, roll_back

T = TypeVar("T")

#: notes in one transaction from which they are indexed directly; smaller batches first go to a small table
MANY_NOTES = 2_000
#: size of the log, in pages, past which it is copied into the database; 16 MB measured no slower
#: than 4 MB and syncs the database a quarter as often
CHECKPOINT_PAGES = 4000
#: seconds between two looks for changes of other processes, while somebody waits for them
POLL = 0.1
_ENDING = RunFinished.__name__

log = logging.getLogger("chargehand.journal")

Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Transaction:
    """Everything that is about to be committed as one."""

    def __init__(
        self, connection: apsw.Connection, path: Path, node: str, author: int | None
    ) -> None:
        self.connection = connection
        self.path = path
        self.node = node
        #: this node's number among the authors, once it has one
        self.author = author
        self._heads: dict[str, HeadRow | None] = {}
        self._changed: dict[str, HeadRow] = {}
        self._streams: int | None = None
        self._entries: list[object] = []
        self._keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._taken: set[int] = set()
        self._blob_refs: list[tuple[str, int]] = []
        self._facets: list[object] = []
        self._ranks: list[object] = []
        self._notes = 0
        self._seals: list[bytes] = []
        self._callbacks: list[Callable[[], None]] = []
        self._undoing: list[Callable[[], None]] = []
        #: streams whose run has ended
        self.ended: list[str] = []
        #: number and hash, once written; None if nothing changed that anybody was promised
        self.commit: tuple[int, bytes] | None = None

    @property
    def is_blank(self) -> bool:
        """Whether nothing was entered that is worth a commit."""
        return not (self._changed or self._seals or self._callbacks)

    def once_committed(self, callback: Callable[[], None]) -> None:
        """Call this when, and only if, the transaction has become durable."""
        self._callbacks.append(callback)

    def unless_committed(self, callback: Callable[[], None]) -> None:
        """Call this if the transaction comes to nothing, before another one is begun."""
        self._undoing.append(callback)

    def head(self, stream: str) -> HeadRow | None:
        """The newest state of a stream, with what this transaction has entered."""
        try:
            return self._heads[stream]
        except KeyError:
            row = self.connection.execute(SQL["head"], (stream,)).fetchone()
            head = None if row is None else head_of(row, self.path)
            self._heads[stream] = head
            return head

    def new_head(self, stream: str) -> HeadRow:
        """A stream that was not there before."""
        if self._streams is None:
            self._streams = int(self.connection.execute(SQL["meta"], ("streams",)).get)
        self._streams += 1
        head = self._heads[stream] = HeadRow(stream, self._streams)
        self.change(head)
        return head

    def change(self, head: HeadRow) -> None:
        """This head is not what it was."""
        self._changed[head.name] = head

    def find_key(self, key: Key) -> Position | None:
        """Where this key was used before; raises `KeyConflict` if it was for something else."""
        known = self._keys.get((key.scope, key.name))
        if known is None:
            row = self.connection.execute(SQL["key"], (key.scope, key.name)).fetchone()
            if row is None:
                return None
            digest, stream, seq, kept = row
            if seal(key.scope, key.name, digest, stream, seq) != kept:
                raise damaged(self.path, f"the idempotency key {key.name!r} was changed")
            known = (digest, stream, seq)
        if known[0] != key.digest:
            raise KeyConflict(key.name, known[1])
        return Position(known[1], known[2], is_new=False)

    def check_unread(self, mail: int) -> None:
        """Raise `KeyConflict` unless this mail is there to be taken."""
        row = self.connection.execute(SQL["mail_by_id"], (mail,)).fetchone()
        if mail in self._taken or row is None or not row[1]:
            raise KeyConflict(f"mail {mail}" if row is None else row[0])

    def take_mail(self, mail: int) -> None:
        """Take mail that was checked to be unread."""
        self._taken.add(mail)
        self._seals.append(b"taken %d" % mail)

    def add_seal(self, kept: bytes) -> None:
        """Make something that was written directly a part of this commit's hash."""
        self._seals.append(kept)

    def add_key(self, key: Key, stream: str, seq: int) -> None:
        self._keys[key.scope, key.name] = (key.digest, stream, seq)

    def add_entries(self, head: HeadRow, drafts: Sequence[Draft]) -> None:
        """Chain these to the end of a stream."""
        author = self._author_number()
        entries = self._entries
        seq, previous, epoch, stream = head.seq, head.hash, head.epoch, head.id
        start = header_start(head.name, self.node)
        at: int | None = None
        for payload, digest, kind, at in drafts:
            seq += 1
            previous = chain_hash(previous, header(start, seq, epoch, kind, at), digest)
            entries += (stream, seq, epoch, kind, VERSION, at, author, payload, previous)
            if b'"blob":"' in payload:
                self._blob_refs += [(name, stream) for name in named_blobs(payload)]
            if kind == _ENDING:
                head.ended = 1
                head.owner = ""  # nothing is left to be led
                self.ended.append(head.name)
        if head.began_at is None:
            head.began_at = drafts[0][3]
        head.seq, head.hash, head.changed_at = seq, previous, at

    def adopt_rows(self, head: HeadRow, rows: Sequence[StoredRow]) -> None:
        """Put rows that other nodes wrote, in another journal, at the end of a stream."""
        numbers = {row.author: 0 for row in rows}
        for author in numbers:
            numbers[author] = self._number_of(author)
        for row in rows:
            self._entries += (head.id, row.seq, row.epoch, row.kind, row.version, row.at)
            self._entries += (numbers[row.author], row.payload, row.hash)
            self._blob_refs += [(name, head.id) for name in named_blobs(row.payload)]
        advance(head, rows)
        self.change(head)

    def index_note(self, facets: Sequence[object], ranks: Sequence[object]) -> None:
        """Let a note be found by these rows of `facets` and `ranks`, their columns in a row."""
        self._facets += facets
        self._ranks += ranks
        self._notes += 1

    def _author_number(self) -> int:
        if self.author is None:
            self.author = self._number_of(self.node)
        return self.author

    def _number_of(self, author: str) -> int:
        execute = self.connection.execute
        found = execute(SQL["author"], (author,)).get
        return int(execute(SQL["add_author"], (author,)).get if found is None else found)

    def flush(self) -> None:
        """Write all that was entered so far, so that SQL can see it."""
        execute = self.connection.execute
        self._bulk("add_entry", self._entries)
        self._entries = []
        heads: list[object] = []
        for head in self._changed.values():
            fields = astuple(head)
            kept = seal(*fields)
            heads += (*fields, kept)
            self._seals.append(kept)
        self._bulk("put_head", heads)
        self._changed = {}
        if self._streams is not None:
            execute(SQL["put_meta"], (self._streams, "streams"))
        for (scope, name), used in self._keys.items():
            kept = seal(scope, name, *used)
            execute(SQL["add_key"], (scope, name, *used, kept))
            self._seals.append(kept)
        self._keys = {}
        for mail in self._taken:
            execute(SQL["take_mail"], (mail,))
        self._taken = set()
        if self._blob_refs:
            self.connection.executemany(SQL["add_blob_ref"], self._blob_refs)
            self._blob_refs = []
        if self._facets:
            # Many notes go to their places at once; few are moved there together with others.
            where = "" if self._notes >= MANY_NOTES else "fresh_"
            self._bulk(f"add_{where}facet", self._facets)
            self._bulk(f"add_{where}rank", self._ranks)
            self._facets, self._ranks, self._notes = [], [], 0

    def write(self) -> None:
        """Write all that was entered, under the next commit number of the journal."""
        self.flush()
        if not self._seals:
            return
        execute = self.connection.execute
        last, previous = execute(SQL["last_commit"]).fetchone() or (0, GENESIS)
        number = last + 1
        sealed = b"".join((previous, number.to_bytes(8, "big"), *self._seals))
        self.commit = (number, hashlib.blake2b(sealed, digest_size=16).digest())
        execute(SQL["add_commit"], self.commit)
        if number % 1024 == 0:
            execute(SQL["prune_commits"], (number - KEPT_COMMITS,))

    def tell_committed(self) -> None:
        """It is durable now."""
        for callback in self._callbacks:
            callback()

    def tell_undone(self) -> None:
        """Nothing of it is kept."""
        for callback in self._undoing:
            callback()

    def _bulk(self, query: str, values: list[Any]) -> None:
        done = 0
        for size, statement in BULK_INSERTS[query]:
            while len(values) - done >= size:
                self.connection.execute(statement, values[done : done + size])
                done += size


class Append(Struct, frozen=True):
    """A request to append, entered into a transaction by the writer."""

    stream: str
    drafts: list[Draft]
    epoch: int | None
    key: Key | None
    taking: tuple[int, ...]

    def __call__(self, transaction: Transaction) -> Position:
        # The key comes first: a repeated request gets its first answer, whoever leads by now.
        if self.key is not None and (known := transaction.find_key(self.key)) is not None:
            return known
        head = transaction.head(self.stream)
        if head is not None and head.forgotten:
            raise UnknownRun(self.stream, FORGOTTEN)
        if self.epoch is not None:
            check_leads(head, transaction.node, self.stream, self.epoch)
        for mail in self.taking:
            transaction.check_unread(mail)
        if head is None:
            head = transaction.new_head(self.stream)
        if self.drafts:
            transaction.add_entries(head, self.drafts)
            transaction.change(head)
        for mail in self.taking:
            transaction.take_mail(mail)
        if self.key is not None:
            transaction.add_key(self.key, self.stream, head.seq)
        return Position(self.stream, head.seq)


class Request(Struct, frozen=True):
    """Something to be entered into the next transaction, and who waits for it."""

    work: Callable[[Transaction], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Writer:
    """Takes requests from any thread and makes them durable, as many as there are at a time.

    While one group is being synced to disk the next one gathers, so the slower the disk, the larger
    the groups. The thread also renews the node's lease and writes the head mark: neither depends on
    an event loop that may be stuck in somebody's code.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        file: JournalFile,
        node: SqliteNode,
        gate: Availability,
        *,
        refusal_to_write: JournalError | None = None,
    ) -> None:
        self.changes = Changes(self._expect_changes)
        #: of boards and runs, our own too; apart, so that they wake nobody who waits for mail
        self.posts = Changes(self._expect_changes)
        self.node = node
        self._connection = connection
        self._file = file
        self._path = file.path
        self._mark = file.mark
        self._durability = file.durability
        self._author: int | None = None
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._door = threading.Lock()  # nothing comes in once the writer is told to stop
        self._gate = gate
        #: why nothing is written: this thread then only looks for changes that others make
        self._refusal_to_write = refusal_to_write
        self._is_stopping = False
        self._failure = ""
        self._unmarked: Mark | None = None
        self._mark_due = 0.0
        #: whether the journal says of itself that it has a mark, and is not to be opened without it
        self._is_mark_noted = False
        self._data_version = 0
        self._log_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._thread = threading.Thread(
            target=self._run, name="chargehand-journal-writer", daemon=True
        )

    def start(self) -> None:
        """Begin to write. The thread is a daemon: a journal left open keeps no program alive."""
        self._connection.set_wal_hook(self._note_log)
        self._data_version = self._connection.pragma("data_version")
        self._thread.start()

    async def do(self, work: Callable[[Transaction], T]) -> T:
        """Enter this into the next group; returns once it is durable.

        A caller that is cancelled meanwhile no longer learns whether it was stored.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.check()
        if self._refusal_to_write is not None:
            raise type(self._refusal_to_write)(str(self._refusal_to_write))
        with self._door:
            self.check()
            self._requests.put(Request(work, future, loop))
        return await future

    def _expect_changes(self) -> None:
        """Somebody waits. The thread may be asleep without end; awake, it looks again and again."""
        self.check()
        self._requests.put(None)

    @property
    def _is_awaited(self) -> bool:
        return self.changes.is_awaited or self.posts.is_awaited

    def check(self) -> None:
        """Raise if nothing can be written any more."""
        if not self._gate.is_usable:
            raise self._gate.refusal()
        if self._failure:
            raise JournalFailed(self._failure)

    @property
    def is_well(self) -> bool:
        """Whether appends can still succeed."""
        return self._gate.is_usable and not self._failure

    def stop(self) -> None:
        """Write down what is pending, then end; returns at once."""
        with self._door:
            self._gate.close()
            self._is_stopping = True
            self._requests.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            # Read before draining: what was handed in before the door closed is then drained too.
            is_last = self._is_stopping
            group = self._drain(wait=not is_last)
            if self._failure:
                self._refuse(group, JournalFailed(self._failure))
            elif group or self.node.is_due:
                self._commit(group)
            if not self._failure:
                self._tend()
            if is_last:
                break
        self._finish()

    def _drain(self, *, wait: bool) -> list[Request]:
        requests = self._requests
        found: list[Request | None] = []
        if wait:
            try:
                found.append(requests.get(timeout=self._patience()))
            except queue.Empty:
                return []
        found += [requests.get_nowait() for _ in range(requests.qsize())]
        return [request for request in found if request is not None]

    def _patience(self) -> float | None:
        """Seconds until there is something to do even if nobody asks."""
        waits: list[float] = []
        if self._failure:
            return None
        if self.node.due is not None:
            waits.append((self.node.due - steady()) / 1e6)
        if self._unmarked is not None:
            waits.append(self._mark_due - time.monotonic())
        if self._is_awaited:
            waits.append(POLL)
        return max(0.0, min(waits)) if waits else None

    def _commit(self, group: list[Request]) -> None:
        answers: list[Answer] = []
        try:
            transaction = self._fill(group, answers)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each of these
            self._roll_back()
            self._refuse(group, self._judge(error))
            return
        self._author = transaction.author
        if transaction.commit is not None:
            self._note_commit(*transaction.commit)
            self.posts.note()
        transaction.tell_committed()
        self.node.let_go(transaction.ended)
        self._answer(group, answers)

    def _fill(self, group: list[Request], answers: list[Answer]) -> Transaction:
        """One transaction with all of the group that passes its guards."""
        execute = self._connection.execute
        is_renewal = self.node.is_due
        if is_renewal:
            self.node.try_renewal()
        execute("BEGIN IMMEDIATE")
        transaction = Transaction(self._connection, self._path, self.node.id, self._author)
        try:
            self._enter(group, transaction, answers)
            if is_renewal:
                self.node.renew(transaction)
            if transaction.is_blank:
                execute("ROLLBACK")
            else:
                if not self._is_mark_noted:
                    execute(SQL["note_mark"])
                transaction.write()
                execute("COMMIT")
                self._file.check_in_place()  # nothing is acknowledged into a file without a name
                self._is_mark_noted = True
        except BaseException:
            transaction.tell_undone()
            raise
        return transaction

    @staticmethod
    def _enter(group: list[Request], transaction: Transaction, answers: list[Answer]) -> None:
        for request in group:
            try:
                answers.append((request.future, request.work(transaction), None))
            except ChargehandError as error:
                answers.append((request.future, None, error))
            except UnicodeError as error:  # a name that is no text, met before anything was entered
                told = UsageError(f"the journal can only hold text: {error}")
                answers.append((request.future, None, told))

    def _judge(self, error: Exception) -> ChargehandError:
        """What the waiting are told; after an error of the disk, everybody from now on."""
        told = refusal(error, self._path, self._connection.system_errno)
        told.__cause__ = error
        if isinstance(told, JournalFailed):
            # Never tried again: after a failed sync the kernel may have dropped what was unsynced
            # and would call the next sync a success.
            self._failure = str(told)
        log.error("journal_write_failed path=%s error=%s", self._path, told)
        return told

    def _roll_back(self) -> None:
        try:
            roll_back(self._connection)
        except apsw.Error as error:
            self._judge(error)

    def _refuse(self, group: list[Request], error: ChargehandError) -> None:
        """Tell all of a group the same, each in an exception of its own to hang a trace on."""
        answers: list[Answer] = []
        for request in group:
            own = type(error)(str(error))
            own.__cause__ = error.__cause__
            answers.append((request.future, None, own))
        self._answer(group, answers)

    @staticmethod
    def _answer(group: list[Request], answers: list[Answer]) -> None:
        """Tell all that wait: one call into each event loop, however many wait there."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
        for request, answer in zip(group, answers, strict=True):
            by_loop.setdefault(request.loop, []).append(answer)
        for loop, theirs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_tell, theirs)
            except RuntimeError:
                continue  # that loop is closed; nobody waits in it any more

    def _note_commit(self, number: int, digest: bytes) -> None:
        if self._unmarked is None:
            self._mark_due = time.monotonic() + INTERVAL
        self._unmarked = Mark(number, digest.hex(), self._durability)

    def _note_log(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _tend(self) -> None:
        """The chores between two groups."""
        if self._unmarked is not None and time.monotonic() >= self._mark_due:
            self._write_mark()
        try:
            self._checkpoint()
            if self._is_awaited:
                self._look_for_changes()
        except apsw.Error as error:
            told = self._judge(error)
            if isinstance(told, JournalFull):
                self._checkpoint_at = self._log_pages + CHECKPOINT_PAGES // 4

    def _write_mark(self) -> None:
        assert self._unmarked is not None  # noqa: S101 - the caller has looked
        try:
            self._file.check_in_place()
            self._mark.write(self._unmarked)
            self._unmarked = None
        except (OSError, JournalFailed) as error:
            # A mark that lags finds less damage and loses nothing; a broken disk is another thing.
            self._judge(error)
            self._mark_due = time.monotonic() + INTERVAL

    def _checkpoint(self) -> None:
        """Copy the log into the database. Done here, since SQLite's own way hides disk errors."""
        if self._log_pages < CHECKPOINT_PAGES:
            self._checkpoint_at = CHECKPOINT_PAGES
        elif self._log_pages >= self._checkpoint_at:
            self._checkpoint_at = self._log_pages + CHECKPOINT_PAGES // 4
            with contextlib.suppress(apsw.BusyError):  # another process is at it: just as well
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _look_for_changes(self) -> None:
        # On this connection the number moves for commits of other processes only, so our own
        # appends wake nobody.
        version = self._connection.pragma("data_version")
        if version != self._data_version:
            self._data_version = version
            self.changes.notify()
            self.posts.notify()

    def _finish(self) -> None:
        try:
            self.node.leave(None if self._failure else self._connection)
        except apsw.Error as error:
            self._judge(error)
        if self._unmarked is not None and not self._failure:
            self._write_mark()
        try:
            if self._failure:
                # Leave the log as it lies: tidying it away would sync again what failed to sync.
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()
        except apsw.Error as error:
            # Closed all the same, so there is nothing left to ask; what was acknowledged is synced.
            log.error("journal_close_failed path=%s error=%s", self._path, error)  # noqa: TRY400
        self.changes.notify()
        self.posts.notify()


def _tell(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():
            continue  # cancelled; what it asked for stands all the same
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
