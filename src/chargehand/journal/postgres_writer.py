"""Writes to a journal in PostgreSQL: what many callers ask for at once becomes one transaction."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from chargehand.errors import ChargehandError, JournalBusy, JournalFailed
from chargehand.journal.change_signal import Changes
from chargehand.journal.leases import JournalNode, led_elsewhere, steady
from chargehand.journal.postgres_connection import PostgresServer
from chargehand.journal.postgres_transaction import POSTGRES, Needs, PostgresTransaction

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

    def _put(self, sheet: PostgresTransaction, now: int) -> None:  # noqa: ARG002 - the database has the clock
        sheet.is_renewal = True

    def _refuse_living(self, sheet: PostgresTransaction, stream: str, owner: str) -> None:
        if (living := sheet.nodes.get(owner)) is not None:
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
