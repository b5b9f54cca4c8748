"""Writes to a journal in PostgreSQL: what many callers ask for at once becomes one transaction."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from chargehand.errors import ChargehandError, JournalBusy, JournalFailed, NotLeading, UnknownRun
from chargehand.journal.change_signal import Changes
from chargehand.journal.leases import steady
from chargehand.journal.postgres_connection import PostgresServer
from chargehand.journal.postgres_transaction import POSTGRES, Needs, PostgresTransaction
from chargehand.journal.stream_owners import StreamOwner, StreamOwners
from chargehand.journal.transaction import FORGOTTEN

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

#: requests of one transaction, at most
MOST = 1_000
#: seconds between two looks for changes of other processes, while somebody waits for them
POLL = 0.1

log = logging.getLogger("chargehand.journal")

Work = Callable[[PostgresTransaction], Awaitable[T]]


class WriteRequest(Struct, frozen=True):
    """Something to be entered into the next transaction, and who waits for it."""

    needs: Needs
    work: Work[Any]
    future: "asyncio.Future[Any]"
    #: it can be entered only once: if its transaction is lost, so is it
    undo: Callable[[], None] | None = None


Answer = tuple[WriteRequest, Any, BaseException | None]


class NodeLease:
    """This process among the nodes of one journal, and its lease on the clock of the database."""

    def __init__(self, lease: timedelta) -> None:
        self.id = f"n-{secrets.token_hex(6)}"
        self.length = lease
        self._microseconds = lease // timedelta(microseconds=1)
        self._led = StreamOwners()
        self._stays = False  # though it may lead nothing
        self._renewed: int | None = None  # just before the last renewal that was committed
        self._tried = 0

    def is_valid(self) -> bool:
        """Whether the lease surely holds. It ends here a fifth earlier than it does for others."""
        renewed = self._renewed
        return renewed is not None and steady() < renewed + self._microseconds * 4 // 5

    @property
    def due(self) -> int | None:
        """When the lease is to be renewed next; None while there is no need of one."""
        return self._tried + self._microseconds // 3 if self._led or self._stays else None

    @property
    def is_due(self) -> bool:
        return self.due is not None and steady() >= self.due

    def renew(self, transaction: PostgresTransaction) -> None:
        """The transaction puts this node's row with a new expiry."""
        now = self._tried = steady()
        transaction.is_renewal = True
        transaction.once_committed(lambda: self._set_renewed(now))

    def _set_renewed(self, at: int) -> None:
        self._renewed = at

    def stay(self, transaction: PostgresTransaction) -> None:
        """Hold a lease from now on until the end, whatever is led: others rely on our being here."""
        if not self._stays:
            self.renew(transaction)
            transaction.once_committed(self._settle_in)

    def _settle_in(self) -> None:
        self._stays = True

    def lead(
        self, transaction: PostgresTransaction, stream: str, holder: StreamOwner | None
    ) -> int:
        """Give this node the stream, in a new epoch."""
        head = transaction.head(stream)
        if head is not None and head.forgotten:
            raise UnknownRun(stream, FORGOTTEN)
        if head is not None and head.owner == self.id:
            self._led.check(stream, holder)
        elif head is not None and (living := transaction.nodes.get(head.owner)) is not None:
            raise NotLeading(
                f"run {stream!r} is led by node {head.owner} (process {living.pid} on {living.host}), whose "
                f"lease lasts another {living.seconds_left:.1f} s if it is not renewed; stop that process, "
                "or wait for it"
            )
        head = head or transaction.new_head(stream)
        head.epoch += 1
        head.owner = self.id
        transaction.change(head)
        self.renew(transaction)
        # At once, not when it is committed: the next request of this very group may be for it, too.
        self._led.add(stream, holder)
        transaction.unless_committed(lambda: self._led.drop(stream))
        return head.epoch

    def release(self, transaction: PostgresTransaction, stream: str, epoch: int) -> None:
        """Let go of the stream, if it is still held in this epoch."""
        head = transaction.head(stream)
        if head is not None and head.epoch == epoch and head.owner == self.id:
            head.owner = ""
            transaction.change(head)
            transaction.once_committed(lambda: self._led.drop(stream))

    def let_go(self, streams: list[str]) -> None:
        """These have ended, so that nobody need lead them."""
        for stream in streams:
            self._led.drop(stream)

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
        node: NodeLease,
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
                if self._server.is_lost(error):
                    group = attempt.repeatable()
                    continue
                self._refuse(group, error)
                return
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
            if self._count and not self._failure:
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
                fail(request, JournalBusy("the connection broke while this was decided; try again"))
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
