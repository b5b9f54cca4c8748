"""The journal's file: made if it is not there, and looked at before anybody relies on it."""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw

from chargehand.errors import (
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalUnfit,
    JournalVersion,
)
from chargehand.journal.base import GENESIS
from chargehand.journal.hash_chain import seal
from chargehand.journal.head_mark import KEPT_COMMITS, HeadMark, Mark, accept_words
from chargehand.journal.leases import SERVED_FORMAT, head_of
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_errors import NONSENSE, damaged, failed, not_a_journal, refusal
from chargehand.journal.storage_check import (
    check_sqlite,
    prepare,
    refuse_network,
    refuse_unreadable,
)
from chargehand.regular_file import refuse_special_file

#: marks an SQLite file as a journal of ours
APPLICATION = int.from_bytes(b"chrg", "big")
#: of the tables in `sqlite.sql`; the first process that serves a journal makes it a `SERVED_FORMAT`
FORMAT = 1

#: bytes of the smallest file of SQLite
SMALLEST = 512
#: keeps the index of the log in memory, and all other processes out meanwhile
_ALONE = "unix-excl"

_UNMARKED = "its head mark is missing, so nothing tells how far it had come"

#: seconds between two looks at a lock that another program holds
LONGEST_PAUSE = 0.1
#: seconds that it is waited for without a word
SILENCE = 1.0

log = logging.getLogger("chargehand.journal")


class LockWait:
    """Waits for a lock that another program holds, in the thread that needs it."""

    def __init__(self, path: Path, patience: timedelta) -> None:
        self._path = path
        self._patience = patience.total_seconds()
        self._began = 0.0
        self._is_said = False

    def __call__(self, tries: int) -> bool:
        """Wait a little; False once that was long enough. SQLite counts the tries, from 0."""
        now = time.monotonic()
        if tries == 0:
            self._began, self._is_said = now, False
        waited = now - self._began
        if waited >= SILENCE and not self._is_said:
            self._is_said = True
            log.warning(
                "journal_waits path=%s seconds=%.0f for='a lock that another program holds'; end the wait with: "
                "close that program",
                *(self._path, self._patience),
            )
        if waited >= self._patience:
            return False
        time.sleep(min(0.001 * 2 ** min(tries, 10), LONGEST_PAUSE, self._patience - waited))
        return True


class JournalFile:
    """One journal's file and the way it is opened."""

    def __init__(self, path: Path, *, durability: str, patience: timedelta, vfs: str) -> None:
        self.path = path
        self.durability = durability
        self.mark = HeadMark(path)
        self._patience = patience
        self._vfs = vfs or None
        self._names = (str(path), f"{path}-wal", f"{path}-shm")
        self._opened: dict[str, tuple[int, int] | None] = {}
        #: whether it is read with the index of its log in memory, since there is no room for one on the disk
        self._is_read_alone = False

    @property
    def is_writable(self) -> bool:
        """Whether this user may write the file and its folder; True if there is no file yet."""
        places = (self.path, self.path.parent)
        return not self.path.exists() or all(os.access(place, os.W_OK) for place in places)

    def open_read_only(self) -> apsw.Connection:
        """A connection that cannot write, to a file that is whole: for a user who may only read it, or on a full disk."""
        refuse_network(self.path)
        connection, faults = self.open_to_check()
        if faults:
            connection.close()
            raise faults[0]
        return connection

    def open(self, *, accept_damage: bool) -> apsw.Connection:
        """The connection that writes, to a file that is whole, or whose damage is accepted."""
        check_sqlite()
        prepare(self.path)
        self._refuse_foreign()
        known = self._read_mark(accept_damage=accept_damage)  # first: the file may only be further
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        with self._closed_on_error(connection):
            # Between two looks, a journal that another process makes would seem to be of another program.
            with _snapshot(connection):
                is_new = self._is_new(connection)
            if is_new:
                self._make(connection)
            self._set_up(connection)
            self._check(connection, known, accept_damage=accept_damage)
            self._opened = {name: _identity(name) for name in self._names}
        return connection

    def open_to_check(self) -> tuple[apsw.Connection, list[JournalDamaged]]:
        """A connection that cannot write, and what is wrong with the file as a whole.

        The file and its mark stay as they are: what is refused before is refused afterwards, too.
        """
        check_sqlite()
        refuse_special_file(self.path, "name the file of a journal")
        refuse_unreadable(self.path, self.mark.path)
        self._refuse_foreign()
        try:
            return self._looked_at()
        except JournalFull as error:
            if self._vfs or _ALONE not in apsw.vfs_names() or not self.is_writable:
                raise
            self._is_read_alone = True
            try:
                looked_at = self._looked_at()
            except JournalBusy:
                raise error from None
            log.info("journal_read_alone path=%s reason='%s'", self.path, error)
            return looked_at

    def _looked_at(self) -> tuple[apsw.Connection, list[JournalDamaged]]:
        faults: list[JournalDamaged] = []
        known: Mark | None = None
        try:
            known = self._read_mark(accept_damage=False)
        except JournalDamaged as error:
            faults.append(error)
        connection = self._connect_to_read()
        with self._closed_on_error(connection):
            self._set_up_reading(connection)
            found = self._found(connection, known, is_marked=known is not None or bool(faults))
            if found and known is None and not faults:  # as in `_check`: it may be there by now
                known = self._read_mark(accept_damage=False)
                found = self._found(connection, known, is_marked=known is not None)
        return connection, faults + found

    def tidy(self) -> None:
        """Let SQLite remove the empty log that a connection which cannot write has left behind."""
        with contextlib.suppress(apsw.Error, JournalError):
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.execute(SQL["count_tables"]).fetchall()
            finally:
                connection.close()

    @property
    def has_log(self) -> bool:
        """Whether a write-ahead log lies beside the file."""
        return _identity(self._names[1]) is not None

    @contextlib.contextmanager
    def _closed_on_error(self, connection: apsw.Connection) -> Iterator[None]:
        """What goes wrong while the file is opened, in the journal's words."""
        try:
            yield
        except apsw.Error as error:
            told = refusal(error, self.path, connection.system_errno)
            connection.close()
            if isinstance(error, apsw.NotADBError) and not self._was_journal:
                told = not_a_journal(self.path)
            raise told from error
        except NONSENSE as error:
            connection.close()
            raise damaged(self.path, f"a value in it makes no sense ({error})") from error
        except OSError as error:
            connection.close()
            raise refusal(error, self.mark.path) from error
        except BaseException:
            connection.close()
            raise

    def check_in_place(self) -> None:
        """Raise `JournalFailed` if the file, its log or its index is no longer the one that was opened.

        SQLite would go on writing to a file that has no name any more and is gone when we end.
        """
        for name, opened in self._opened.items():
            if _identity(name) != opened:
                what = "the file" if name == self._names[0] else f"its file {Path(name).name}"
                raise failed(self.path, f"{what} was moved or deleted while it was in use")

    def open_to_read(self) -> apsw.Connection:
        """A second connection, which cannot write."""
        connection = self._connect_to_read()
        self._set_up_reading(connection)
        return connection

    @staticmethod
    def _set_up_reading(connection: apsw.Connection) -> None:
        connection.pragma("cache_size", -16_000)  # kB: queries of a large board look all over
        connection.pragma("cell_size_check", True)
        connection.pragma("trusted_schema", False)

    def _refuse_foreign(self) -> None:
        """Raise `JournalError` for a file too small to be of SQLite, which would take it for an empty one."""
        # Not by reading it: to close a file ends the locks that other connections of this process have on it.
        is_small = self.path.exists() and 0 < self.path.stat().st_size < SMALLEST
        if is_small and not self._was_journal:
            raise not_a_journal(self.path)

    @property
    def _was_journal(self) -> bool:
        """Whether what lies beside the file says that it was a database, whatever it is now."""
        beside = (*self._names[1:], f"{self.path}-journal", str(self.mark.path))
        return any(map(_identity, beside))

    def _connect_to_read(self) -> apsw.Connection:
        if self._is_read_alone:
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE, vfs=_ALONE)
            connection.pragma("query_only", True)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return connection
        # To read beside others, SQLite makes a log, which those who may write could not use if it were ours.
        # Where there is none, nobody writes at the moment.
        if self.has_log or self.is_writable:
            return self._connect(apsw.SQLITE_OPEN_READONLY)
        uri = f"{self.path.as_uri()}?immutable=1"
        return self._connect(apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, uri)

    def _connect(self, flags: int, name: str = "", vfs: str | None = None) -> apsw.Connection:
        try:
            connection = apsw.Connection(name or str(self.path), flags, vfs or self._vfs)
        except apsw.Error as error:
            raise refusal(error, self.path) from error
        connection.set_busy_handler(LockWait(self.path, self._patience))
        return connection

    def _is_new(self, connection: apsw.Connection) -> bool:
        """Whether there is nothing in the file yet. What is not ours is refused and not touched."""
        application = connection.pragma("application_id")
        if application == 0 and not connection.execute(SQL["count_tables"]).get:
            return True
        if application != APPLICATION:
            raise JournalError(
                f"{self.path} is an SQLite file but not a chargehand journal; choose another path"
            )
        version = connection.pragma("user_version")
        if version not in (FORMAT, SERVED_FORMAT):
            raise JournalVersion(
                f"{self.path} has format {version}, and this chargehand knows up to format {SERVED_FORMAT}; "
                "upgrade chargehand to the version that wrote it"
            )
        return False

    def _make(self, connection: apsw.Connection) -> None:
        # Before anything is in the file: then retention can give space back to the disk, bit by bit.
        connection.pragma("auto_vacuum", 2)
        self._use_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        if self._is_new(connection):  # still: another process may have been faster
            connection.execute(SQL["schema"])
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", FORMAT)
        connection.execute("COMMIT")

    def _use_log(self, connection: apsw.Connection) -> None:
        # Changing the mode needs the file for itself, and SQLite does not wait for that by itself.
        wait, tries = LockWait(self.path, self._patience), 0
        while True:
            try:
                mode = connection.pragma("journal_mode", "wal")
                break
            except apsw.BusyError:
                if not wait(tries):
                    raise
                tries += 1
        if mode != "wal":
            raise JournalUnfit(f"{self.path} cannot have a write-ahead log here; use a local disk")

    def _set_up(self, connection: apsw.Connection) -> None:
        self._use_log(connection)
        is_strict = self.durability == "strict"
        connection.pragma("synchronous", "full" if is_strict else "normal")
        if sys.platform == "darwin" and is_strict:
            # There, a plain fsync leaves the bytes in the cache of the drive.
            connection.pragma("fullfsync", 1)
            connection.pragma("checkpoint_fullfsync", 1)
        connection.pragma("cache_size", -16_000)  # kB: the inner pages of a few million entries
        connection.pragma("journal_size_limit", 64 << 20)
        connection.pragma("cell_size_check", True)
        connection.pragma("trusted_schema", False)

    def _check(
        self, connection: apsw.Connection, known: Mark | None, *, accept_damage: bool
    ) -> None:
        try:
            with _snapshot(connection):
                self._check_snapshot(connection, known, accept_damage=accept_damage)
        except JournalDamaged:
            # The mark is read first. If there was none, another process may have made the journal
            # and its mark since: with that mark, the second look decides.
            since = self._read_mark(accept_damage=accept_damage) if known is None else None
            if since is None:
                raise
            with _snapshot(connection):
                self._check_snapshot(connection, since, accept_damage=accept_damage)

    def _check_snapshot(
        self, connection: apsw.Connection, known: Mark | None, *, accept_damage: bool
    ) -> None:
        for found in self._damage(connection):
            if not accept_damage:
                raise found
            log.warning("journal_damage_accepted path=%s damage=%s", self.path, found)
        number, digest = self._last_commit(connection) or (0, GENESIS)
        mark = Mark(number, digest.hex(), self.durability)
        if known is not None and (lost := self._lost(connection, known, number)):
            is_relaxed = "relaxed" in (self.durability, known.durability)
            if not accept_damage and not (is_relaxed and known.commit > number):
                raise self._mark_damage(lost)
            log.warning("journal_damage_accepted path=%s damage=%s", self.path, lost)
            self.mark.replace(mark)
        elif known is None:
            if number:
                self._accept_unmarked(connection, number, accept_damage=accept_damage)
            self.mark.write(mark)  # before the first commit: no journal is ever without one

    def _found(
        self, connection: apsw.Connection, known: Mark | None, *, is_marked: bool
    ) -> list[JournalDamaged]:
        """What is wrong with the file as a whole, for a check, which accepts nothing."""
        with _snapshot(connection):
            if self._is_new(connection):
                if is_marked:
                    raise self._mark_damage("it is empty, and it was not")
                raise JournalError(
                    f"{self.path} is empty, so there is nothing to check; the first run makes it a journal"
                )
            found = list(self._damage(connection))
            number, _ = self._last_commit(connection) or (0, GENESIS)
            if known is not None:
                lost = self._lost(connection, known, number)
                if lost and not (known.durability == "relaxed" and known.commit > number):
                    found.append(self._mark_damage(lost))
            elif number and not is_marked and connection.execute(SQL["meta"], ("marked",)).get:
                found.append(self._mark_damage(_UNMARKED))
        return found

    def _accept_unmarked(
        self, connection: apsw.Connection, number: int, *, accept_damage: bool
    ) -> None:
        # Earlier versions marked a journal after its first commit, and may have died in between. Until
        # it says that it has a mark, that is what happened.
        if not accept_damage and connection.execute(SQL["meta"], ("marked",)).get:
            raise self._mark_damage(_UNMARKED)
        log.warning("journal_mark_missing path=%s commit=%d", self.path, number)

    def _last_commit(self, connection: apsw.Connection) -> tuple[int, bytes] | None:
        """The newest commit; None if its bytes have become something else."""
        number, digest = connection.execute(SQL["last_commit"]).fetchone() or (0, GENESIS)
        is_sound = isinstance(number, int) and isinstance(digest, bytes)
        return (number, digest) if is_sound else None

    def _damage(self, connection: apsw.Connection) -> Iterator[JournalDamaged]:
        if self._last_commit(connection) is None:
            yield damaged(self.path, "its newest commit was changed")
        served = ("serving",) if connection.pragma("user_version") >= SERVED_FORMAT else ()
        sound = (_tables(*served, *boards) for boards in ((), ("boards",), ("boards", "fresh")))
        if connection.execute(SQL["tables"]).fetchall() not in list(sound):
            yield damaged(self.path, "its tables are not those of a journal")
        made = connection.execute(SQL["meta"], ("streams",)).get
        there = connection.execute(SQL["count_streams"]).get
        if made != there:
            yield damaged(self.path, f"{made} streams were made and {there} are there")
        for row in connection.execute(SQL["all_heads"]):
            try:
                head_of(row, self.path)
            except JournalDamaged as error:
                yield error
        for *fields, kept in connection.execute(SQL["all_keys"]):
            if seal(*fields) != kept:
                yield damaged(self.path, f"the idempotency key {fields[1]!r} was changed")

    def _lost(self, connection: apsw.Connection, known: Mark, number: int) -> str:
        """What the mark says was there and is not; empty if all is."""
        if known.commit > number:
            count = known.commit - number
            return (
                f"its last {count} commits are missing: it had come to commit {known.commit} and "
                f"holds {number}"
            )
        found = connection.execute(SQL["commit_hash"], (known.commit,)).get
        if found is None:
            is_pruned = known.commit <= number - KEPT_COMMITS
            return "" if is_pruned or not known.commit else f"commit {known.commit} is missing"
        if not isinstance(found, bytes) or found.hex() != known.hash:
            return f"commit {known.commit} is not the one that was made"
        return ""

    def _read_mark(self, *, accept_damage: bool) -> Mark | None:
        try:
            return self.mark.read()
        except JournalDamaged as error:
            if not accept_damage:
                raise
            log.warning("journal_damage_accepted path=%s damage=%s", self.path, error)
            return None
        except OSError as error:
            raise refusal(error, self.mark.path) from error

    def _mark_damage(self, lost: str) -> JournalDamaged:
        return JournalDamaged(
            f"{self.path} is damaged: {lost} (by the head mark {self.mark.path.name}); restore both "
            f"from a backup, or go on without what is missing with {accept_words(self.path)}"
        )


@contextlib.contextmanager
def _snapshot(connection: apsw.Connection) -> Iterator[None]:
    """One read transaction: of what another process commits meanwhile, all is seen or nothing."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        roll_back(connection)


def roll_back(connection: apsw.Connection) -> None:
    """End a transaction if there is still one: after errors such as that of a full disk, SQLite has done it."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - after every commit: no path is made of it
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _tables(*more: str) -> list[tuple[Any, ...]]:
    """How the tables of a sound journal were made; those of boards and servers come when they are used."""
    connection = apsw.Connection(":memory:")
    try:
        for part in ("schema", *more):
            connection.execute(SQL[part])
        return connection.execute(SQL["tables"]).fetchall()
    finally:
        connection.close()
