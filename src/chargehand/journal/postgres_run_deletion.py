"""Deletes runs from a journal in PostgreSQL: marks them in one transaction, clears them away in many small ones."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from chargehand.errors import JournalBusy, JournalDamaged, JournalVersion
from chargehand.facts.board import BOARD, board_of_run, stream_of
from chargehand.facts.events import RunRequested, decode
from chargehand.journal.base import BLOB_GRACE, UNNAMED_GRACE
from chargehand.journal.leases import HeadRow
from chargehand.journal.postgres_connection import POSTGRES
from chargehand.journal.postgres_writer import Needs, PostgresTransaction
from chargehand.journal.sqlite_run_deletion import PIECE, ROW

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")


class Reading(Protocol):
    """Runs a function over a connection of the journal, in a transaction of its own."""

    async def __call__(self, work: "Callable[[Connection[Any]], Awaitable[T]]") -> T: ...


class Writing(Protocol):
    """Enters a function into the next transaction of the writer."""

    async def __call__(
        self, needs: Needs, work: Callable[[PostgresTransaction], Awaitable[T]]
    ) -> T: ...


class PostgresStorage:
    """What a journal in PostgreSQL takes up, and how runs are deleted from it.

    The space of deleted rows is the server's to reuse: autovacuum does that.
    """

    def __init__(self, namespace: str, reading: Reading, writing: Writing) -> None:
        self._namespace = namespace
        self._read = reading
        self._write = writing

    async def used(self) -> int:
        """Bytes of all events and of the blobs that they name."""
        return int(
            await self._read(partial(_fetch_one, query="used", values=(self._namespace, ROW)))
        )

    async def sizes(self, runs: Sequence[str]) -> dict[str, int]:
        """About how many bytes these runs take up. A blob that several name counts for each in part."""
        names = {name: run for run in runs for name in _streams_of(run)}
        values = (self._namespace, list(names), ROW)
        sizes = dict.fromkeys(runs, 0)
        for name, size in await self._read(partial(_fetch, query="sizes", values=values)):
            sizes[names[name]] += int(size)
        return sizes

    async def requests(self, runs: Sequence[str]) -> dict[str, RunRequested]:
        """The first event of each of these runs that has a sound one."""
        return await self._read(partial(_requests, namespace=self._namespace, runs=runs))

    async def forget(self, runs: Sequence[str], *, known: Collection[str]) -> bool:
        """Delete these runs and their boards, all in one moment."""

        async def mark(transaction: PostgresTransaction) -> bool:
            nodes, connection = transaction.nodes, transaction.connection
            rows = await connection.fetch(POSTGRES["open_streams"], transaction.namespace)
            new = [row for row in rows if row[0] not in known and not row[0].startswith(BOARD)]
            if any(not seq and owner in nodes for _, seq, owner in new):
                return False  # it has begun, and has not said yet what it needs
            requests = await _requests(connection, self._namespace, [row[0] for row in new])
            if any(request.reuses in runs for request in requests.values()):
                return False
            heads = [transaction.head(run) for run in runs]
            kept = [head for head in heads if head is not None and not head.forgotten]
            if len(kept) < len(heads) or not kept[0].ended:
                return False
            if any(head.owner in nodes for head in kept):
                return False
            boards = [transaction.head(stream_of(board_of_run(run))) for run in runs]
            for head in (*kept, *(board for board in boards if board is not None)):
                # A nested run without an end of its own has one now: no one will look for its leader.
                head.owner, head.ended, head.forgotten = "", 1, 1
                transaction.change(head)
            return True

        streams = tuple(name for run in runs for name in _streams_of(run))
        return await self._write(Needs(streams=streams, nodes=True), mark)

    async def sweep(self) -> AsyncIterator[int]:
        """Clear away events, then blobs; yields how much each piece was."""
        values = (self._namespace,)
        for name, stream in await self._read(partial(_fetch, query="leftovers", values=values)):
            while swept := await self._write(Needs(), partial(_drop, name=name, stream=stream)):
                yield swept
        while dropped := await self._write(Needs(), _drop_unnamed):
            yield dropped


async def _drop(transaction: PostgresTransaction, name: str, stream: int) -> int:
    """Delete the first events that a forgotten stream still has; returns how many."""
    run, space = transaction.connection.execute, transaction.namespace
    if not await transaction.connection.fetchval(POSTGRES["one_sweep"]):
        return 0  # another process is at it
    transaction.once_committed(_nothing_more)
    swept = _count(await run(POSTGRES["drop_entries"], stream, PIECE))
    if swept == PIECE:
        return swept
    refs = await transaction.connection.fetch(POSTGRES["drop_blob_refs"], stream)
    if refs:
        await run(POSTGRES["drop_orphans"], space, [row[0] for row in refs], BLOB_GRACE)
    await run(POSTGRES["drop_mail"], space, name)
    await run(POSTGRES["drop_keys_of"], space, name)
    if name.startswith(BOARD):
        await run(POSTGRES["drop_board"], stream)
    return swept


async def clear_deleted(transaction: PostgresTransaction, head: HeadRow) -> None:
    """Clear away what is left of a deleted stream, so that its events can be kept again."""
    if not await transaction.connection.fetchval(POSTGRES["one_sweep"]):
        raise JournalBusy(
            f"run {head.name!r} cannot be restored while another process clears deleted runs away; "
            "try again in a moment"
        )
    while await _drop(transaction, head.name, head.id):
        pass


async def _drop_unnamed(transaction: PostgresTransaction) -> int:
    if not await transaction.connection.fetchval(POSTGRES["one_sweep"]):
        return 0
    transaction.once_committed(_nothing_more)
    values = (transaction.namespace, UNNAMED_GRACE, PIECE)
    return _count(await transaction.connection.execute(POSTGRES["drop_unnamed"], *values))


def _nothing_more() -> None:
    """A transaction with a callback is committed, even if it adds nothing to the journal."""


def _streams_of(run: str) -> tuple[str, str]:
    return run, stream_of(board_of_run(run))


async def _requests(
    connection: "Connection[Any]", namespace: str, runs: Sequence[str]
) -> dict[str, RunRequested]:
    found: dict[str, RunRequested] = {}
    for run, *row in await _fetch(connection, "requests", (namespace, list(runs))):
        try:
            event = decode(*row)
        except (JournalDamaged, JournalVersion):
            continue  # `verify` names it
        if isinstance(event, RunRequested):
            found[run] = event
    return found


async def _fetch(
    connection: "Connection[Any]", query: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await connection.fetch(POSTGRES[query], *values)]


async def _fetch_one(connection: "Connection[Any]", query: str, values: Sequence[object]) -> Any:
    return await connection.fetchval(POSTGRES[query], *values)


def _count(tag: str) -> int:
    """How many rows a statement says that it has changed."""
    return int(tag.rpartition(" ")[2])
