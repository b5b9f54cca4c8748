"""The one thread of a process that writes to a journal, and how it commits in groups."""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw
from msgspec import Struct

from chargehand.errors import (
    ChargehandError,
    JournalError,
    JournalFailed,
    JournalFull,
    UsageError,
)
from chargehand.journal.change_signal import Changes
from chargehand.journal.closed_guard import Availability
from chargehand.journal.head_mark import INTERVAL, Mark
from chargehand.journal.leases import SqliteNode, steady
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_errors import refusal
from chargehand.journal.sqlite_file import JournalFile, roll_back
from chargehand.journal.sqlite_transaction import Transaction

T = TypeVar("T")

#: size of the log, in pages, past which it is copied into the database; 16 MB measured no slower
#: than 4 MB and syncs the database a quarter as often
CHECKPOINT_PAGES = 4000
#: seconds between two looks for changes of other processes, while somebody waits for them
POLL = 0.1

log = logging.getLogger("chargehand.journal")

Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Request(Struct, frozen=True):
    """Something to be entered into the next sheet, and who waits for it."""

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
            sheet = self._fill(group, answers)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each of these
            self._roll_back()
            self._refuse(group, self._judge(error))
            return
        self._author = sheet.author
        if sheet.commit is not None:
            self._note_commit(*sheet.commit)
            self.posts.note()
        sheet.tell_committed()
        self.node.let_go(sheet.ended)
        self._answer(group, answers)

    def _fill(self, group: list[Request], answers: list[Answer]) -> Transaction:
        """One transaction with all of the group that passes its guards."""
        execute = self._connection.execute
        is_renewal = self.node.is_due
        if is_renewal:
            self.node.try_renewal()
        execute("BEGIN IMMEDIATE")
        sheet = Transaction(self._connection, self._path, self.node.id, self._author)
        try:
            self._enter(group, sheet, answers)
            if is_renewal:
                self.node.renew(sheet)
            if sheet.is_blank:
                execute("ROLLBACK")
            else:
                if not self._is_mark_noted:
                    execute(SQL["note_mark"])
                sheet.write()
                execute("COMMIT")
                self._file.check_in_place()  # nothing is acknowledged into a file without a name
                self._is_mark_noted = True
        except BaseException:
            sheet.tell_undone()
            raise
        return sheet

    @staticmethod
    def _enter(group: list[Request], sheet: Transaction, answers: list[Answer]) -> None:
        for request in group:
            try:
                answers.append((request.future, request.work(sheet), None))
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
