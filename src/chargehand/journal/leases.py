"""Which process leads what: heads of streams, nodes, their leases, and how a dead node is told from a silent one."""

import contextlib
import glob
import os
import secrets
import socket
import subprocess
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import apsw
from msgspec import Struct

from chargehand.errors import NotLeading, UnknownRun
from chargehand.facts.events import RunFinished
from chargehand.journal.base import BEATS, FORGOTTEN, GENESIS, Head, Process, StoredRow
from chargehand.journal.hash_chain import instant, seal
from chargehand.journal.local_stream_owners import (
    StreamOwner,
    StreamOwners,
    refuse_second_owner,
)
from chargehand.journal.sql_queries import SQL
from chargehand.journal.sqlite_errors import damaged

if sys.platform != "win32":
    import fcntl


#: of a journal that somebody has served: format 1 with the table `serving`
SERVED_FORMAT = 2
_ENDING = RunFinished.__name__


def steady() -> int:
    """Microseconds since the boot, the same for all processes; counts time asleep where it can."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    return time.monotonic_ns() // 1000


def boot_id() -> str:
    """The name of this run of the machine; a lease from another one is void."""
    with contextlib.suppress(OSError):
        if sys.platform == "linux":
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        if sys.platform == "darwin":
            told = subprocess.run(
                ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"],
                capture_output=True,
                text=True,
                check=False,
            )
            return told.stdout.strip()
    return ""


class NodeFile:
    """A locked file beside the journal: the kernel lets go of it when its process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def hold(self) -> None:
        """Make and lock the file. Without file locks (Windows), leases end by time alone."""
        if sys.platform == "win32":
            return
        while self._handle is None:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Somebody may have cleared the file away between its making and its locking.
            if self.path.exists() and os.path.samestat(os.fstat(handle), self.path.stat()):
                self._handle = handle
            else:
                os.close(handle)

    def is_free(self) -> bool:
        """Whether its process is certainly gone.

        A file that is missing proves nothing: somebody may have tidied up by hand.
        """
        return self._if_free(lambda: None)

    def clear(self) -> None:
        """Remove the file if its process is gone.

        Only once the row of the node is gone for good: a row without a file holds until its lease ends.
        """
        # While locked, so that nobody else can hold it.
        self._if_free(lambda: self.path.unlink(missing_ok=True))

    def _if_free(self, work: Callable[[], None]) -> bool:
        if sys.platform == "win32":
            return False
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            work()
            return True
        except OSError:
            return False
        finally:
            os.close(handle)

    def drop(self) -> None:
        """Remove the file and let go."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            self.abandon()

    def abandon(self) -> None:
        """Close the handle and leave the file; in a forked child, the parent's lock stays."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class HeadRow(Struct):
    """A row of `streams`, in the order of its columns."""

    name: str
    id: int
    seq: int = 0
    hash: bytes = GENESIS
    epoch: int = 0
    owner: str = ""
    ended: int = 0
    began_at: int | None = None
    changed_at: int | None = None
    forgotten: int = 0

    def told(self) -> Head:
        """The head as callers see it."""
        return Head(
            stream=self.name,
            seq=self.seq,
            epoch=self.epoch,
            owner=self.owner,
            is_ended=bool(self.ended),
            began_at=None if self.began_at is None else instant(self.began_at),
            changed_at=None if self.changed_at is None else instant(self.changed_at),
            is_forgotten=bool(self.forgotten),
        )

    def restart(self) -> None:
        """Make it the head of a stream that retention deleted and that is kept again from its first event."""
        self.seq, self.hash, self.ended, self.began_at, self.forgotten = 0, GENESIS, 0, None, 0


def advance(head: HeadRow, rows: Sequence[StoredRow]) -> None:
    """Bring a head up to date with rows that were added to its stream."""
    last = rows[-1]
    head.began_at = rows[0].at if head.began_at is None else head.began_at
    head.seq, head.hash, head.changed_at = last.seq, last.hash, last.at
    head.epoch = max(head.epoch, last.epoch)
    if any(row.kind == _ENDING for row in rows):
        head.ended, head.owner = 1, ""


def head_of(row: Sequence[object], path: Path) -> HeadRow:
    """The head in this row, if its seal is whole."""
    *fields, kept = row
    if seal(*fields) != kept:
        raise damaged(path, f"the head of stream {fields[0]!r} was changed")
    return HeadRow(*fields)  # type: ignore[arg-type]  # what was sealed had the right types


def check_leads(head: HeadRow | None, node: str, stream: str, epoch: int) -> None:
    """Raise `NotLeading` unless this node leads the stream of this head in this epoch."""
    if head is None:
        raise NotLeading(f"run {stream!r} is led by nobody; lead it before appending to it")
    if head.epoch != epoch or head.owner != node:
        holder = f"node {head.owner}" if head.owner else "nobody"
        raise NotLeading(
            f"run {stream!r} is led by {holder} in epoch {head.epoch}, and no longer in epoch "
            f"{epoch}; stop working on it here, or lead it again"
        )


class HeadChanges(Protocol):
    """What a transaction of any journal lets a node do with the heads of streams."""

    def head(self, stream: str) -> HeadRow | None: ...

    def new_head(self, stream: str) -> HeadRow: ...

    def change(self, head: HeadRow) -> None: ...

    def once_committed(self, callback: Callable[[], None]) -> None: ...

    def unless_committed(self, callback: Callable[[], None]) -> None: ...


class SqliteChanges(HeadChanges, Protocol):
    """The same of a journal in a file, where a node also reads and writes its own tables."""

    @property
    def connection(self) -> apsw.Connection: ...


TransactionT = TypeVar("TransactionT", bound=HeadChanges)


class JournalNode(ABC, Generic[TransactionT]):
    """This process among the nodes of one journal, and its lease.

    All but `is_valid` is called by the writer, inside its transactions.
    """

    def __init__(self, lease: timedelta) -> None:
        self.id = f"n-{secrets.token_hex(6)}"
        self.length = lease
        self._microseconds = lease // timedelta(microseconds=1)
        self._led: StreamOwners = {}
        self._stays = False  # though it may lead nothing
        self._renewed: int | None = None  # just before the last renewal that was committed
        self._tried = 0

    @abstractmethod
    def _put(self, transaction: TransactionT, now: int) -> None:
        """Put this node's row with a new expiry; the first time, join."""

    @abstractmethod
    def _refuse_living(self, transaction: TransactionT, stream: str, owner: str) -> None:
        """Raise `NotLeading` if the owner of this stream may still be at work."""

    def is_valid(self) -> bool:
        """Whether the lease surely holds. It ends here a fifth earlier than it does for others."""
        renewed = self._renewed
        return renewed is not None and steady() < renewed + self._microseconds * 4 // 5

    @property
    def beat(self) -> float:
        """Seconds between two renewals of the lease."""
        return self._microseconds / BEATS / 1e6

    @property
    def due(self) -> int | None:
        """When the lease is to be renewed next; None while there is no need of one."""
        return self._tried + self._microseconds // BEATS if self._led or self._stays else None

    @property
    def is_due(self) -> bool:
        return self.due is not None and steady() >= self.due

    def renew(self, transaction: TransactionT) -> None:
        """Renew the lease with this transaction."""
        now = self._tried = steady()
        self._put(transaction, now)
        transaction.once_committed(lambda: self.set_renewed(now))

    def set_renewed(self, at: int) -> None:
        """The lease was renewed by what began at this moment."""
        self._renewed = at if self._renewed is None else max(at, self._renewed)

    def lead(
        self, transaction: TransactionT, stream: str, holder: StreamOwner | None = None
    ) -> int:
        """Give this node the stream, in a new epoch."""
        head = transaction.head(stream)
        if head is not None and head.forgotten:
            raise UnknownRun(stream, FORGOTTEN)
        if head is not None and head.owner not in ("", self.id):
            self._refuse_living(transaction, stream, head.owner)
        elif head is not None and head.owner:
            refuse_second_owner(self._led, stream, holder)
        head = head or transaction.new_head(stream)
        head.epoch += 1
        head.owner = self.id
        transaction.change(head)
        self.renew(transaction)
        # At once, not when it is committed: the next request of this very group may be for it, too.
        self._led[stream] = None if holder is None else weakref.ref(holder)
        transaction.unless_committed(lambda: self.let_go([stream]))
        return head.epoch

    def stay(self, transaction: TransactionT) -> None:
        """Hold a lease from now on until the end, whatever is led: others rely on our being here."""
        if not self._stays:
            self.renew(transaction)
            transaction.once_committed(self._settle_in)

    def _settle_in(self) -> None:
        self._stays = True

    def release(self, transaction: TransactionT, stream: str, epoch: int) -> None:
        """Let go of the stream, if it is still held in this epoch."""
        head = transaction.head(stream)
        if head is not None and head.epoch == epoch and head.owner == self.id:
            head.owner = ""
            transaction.change(head)
            transaction.once_committed(lambda: self.let_go([stream]))

    def let_go(self, streams: Iterable[str]) -> None:
        """These have ended, so that nobody need lead them."""
        for stream in streams:
            self._led.pop(stream, None)


def led_elsewhere(stream: str, owner: str, process: str, seconds: float) -> NotLeading:
    """Why a stream cannot be led here: the lease of its owner lasts."""
    return NotLeading(
        f"run {stream!r} is led by node {owner} ({process}), whose lease lasts another {seconds:.1f} s "
        "if it is not renewed; stop that process, or wait for it"
    )


class SqliteNode(JournalNode[SqliteChanges]):
    """A node whose row has an expiry on the steady clock of this machine, and a locked file beside the journal."""

    def __init__(self, database: Path, lease: timedelta) -> None:
        super().__init__(lease)
        self._database = database
        self._boot = boot_id()
        self._file = self._file_of(self.id)

    def try_renewal(self) -> None:
        """A renewal is being tried; if it fails, the next try has to wait like any other."""
        self._tried = steady()

    def _put(self, transaction: SqliteChanges, now: int) -> None:
        if self._renewed is None:
            self._file.hold()
            self._clear_away(transaction)
        expires = now + self._microseconds
        row = (self.id, self._boot, expires, os.getpid(), socket.gethostname())
        transaction.connection.execute(SQL["put_node"], row)

    def is_alive(self, transaction: SqliteChanges, node: str) -> bool:
        """Whether this node may still be at work."""
        return node == self.id or self._living(transaction, node) is not None

    def abandoned(self, transaction: SqliteChanges) -> list[str]:
        """Streams whose leader has not released them and is not alive any more."""
        rows = transaction.connection.execute(SQL["led_streams"]).fetchall()
        owners = {str(stream): str(owner) for stream, owner in rows}
        alive = {owner: self.is_alive(transaction, owner) for owner in set(owners.values())}
        return [stream for stream, owner in owners.items() if not alive[owner]]

    def serve(self, transaction: SqliteChanges, offer: str) -> None:
        """Publish what this process serves. The first to do so in a journal brings it to format 2."""
        execute = transaction.connection.execute
        if transaction.connection.pragma("user_version") < SERVED_FORMAT:
            execute(SQL["serving"])
            transaction.connection.pragma("user_version", SERVED_FORMAT)
        execute(SQL["drop_old_offers"])
        execute(SQL["put_offer"], (self.id, offer))
        transaction.once_committed(_nothing_more)
        self.stay(transaction)

    def withdraw(self, transaction: SqliteChanges) -> None:
        """Serve no longer."""
        if transaction.connection.pragma("user_version") >= SERVED_FORMAT:
            transaction.connection.execute(SQL["drop_offer"], (self.id,))
            transaction.once_committed(_nothing_more)

    def known(self, connection: apsw.Connection) -> list[Process]:
        """The processes that have not left, and what they serve. It only reads."""
        is_served = connection.pragma("user_version") >= SERVED_FORMAT
        offers: dict[Any, Any] = dict(connection.execute(SQL["offers"])) if is_served else {}
        now = steady()
        rows: list[tuple[Any, ...]] = connection.execute(SQL["nodes"], (self._boot,)).fetchall()
        return [
            Process(
                *(node, pid, host, offers.get(node, "")),
                lease_left=(expires - now) / 1e6,
                is_dead=self._file_of(node).is_free(),
            )
            for node, expires, pid, host in rows
        ]

    def _living(self, transaction: SqliteChanges, node: str) -> tuple[int, int, str] | None:
        """Microseconds that its lease lasts, its process and host; None if it is surely gone."""
        row = transaction.connection.execute(SQL["node"], (node,)).fetchone()
        if row is None:
            return None
        boot, expires, pid, host = row
        left = expires - steady()
        if boot != self._boot or left <= 0:
            return None
        file = self._file_of(node)
        if file.is_free():
            transaction.connection.execute(SQL["drop_node"], (node,))
            transaction.once_committed(file.clear)
            return None
        return left, pid, host

    def _refuse_living(self, transaction: SqliteChanges, stream: str, owner: str) -> None:
        if (living := self._living(transaction, owner)) is not None:
            left, pid, host = living
            raise led_elsewhere(stream, owner, f"process {pid} on {host}", left / 1e6)

    def _clear_away(self, transaction: SqliteChanges) -> None:
        """Remove the rows and files of dead nodes that led nothing anybody wants."""
        start = f"{self._database.name}-node-"
        for path in self._database.parent.glob(f"{glob.escape(start)}n-*"):
            node, file = path.name.removeprefix(start), NodeFile(path)
            if node != self.id and file.is_free():
                transaction.connection.execute(SQL["drop_node"], (node,))
                transaction.once_committed(file.clear)
        transaction.connection.execute(SQL["drop_old_nodes"], (self._boot,))

    def leave(self, connection: apsw.Connection | None) -> None:
        """Give up the lease, so that others need not wait for its end."""
        if connection is None:
            # The row cannot be dropped any more. The file that nobody holds says that we are gone.
            self._file.abandon()
            return
        if self._renewed is not None:
            self._renewed = None
            connection.execute(SQL["drop_node"], (self.id,))
        self._file.drop()

    def abandon(self) -> None:
        """This is a forked child: the node is the parent's alone."""
        self._renewed = None
        self._file.abandon()

    def _file_of(self, node: str) -> NodeFile:
        return NodeFile(self._database.with_name(f"{self._database.name}-node-{node}"))


def _nothing_more() -> None:
    """Does nothing; it only makes the transaction count as one that changes something."""
