"""Renews the lease of a node in PostgreSQL over a connection of its own, while its writer is held up."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from chargehand.journal.leases import steady
from chargehand.journal.postgres_connection import POSTGRES, PostgresServer
from chargehand.journal.postgres_writer import PostgresNode

if TYPE_CHECKING:
    from asyncpg import Connection

log = logging.getLogger("chargehand.journal")


class LeaseRenewal:
    """Keeps a lease that the writer does not get to renew in time.

    The writer renews it with its transactions. One that waits for a row which somebody else has locked
    would lose all runs of this process to another one. The connection is opened when the node first
    leads something, because later there may be none left.
    """

    def __init__(self, server: PostgresServer, namespace: str, node: PostgresNode) -> None:
        self._server = server
        self._namespace = namespace
        self._node = node
        #: seconds from one look to the next; also how late the writer may be
        self._interval = node.length.total_seconds() / 6
        self._connection: Connection[Any] | None = None

    async def run(self) -> None:
        """Look after the lease until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._interval)
                try:
                    await self._look()
                except Exception as error:  # noqa: BLE001 - the next look may find the server well again
                    log.debug("lease_not_renewed path=%s error=%r", self._server.place, error)
                    self._disconnect()
        finally:
            self._disconnect()

    async def _look(self) -> None:
        due = self._node.due
        if due is None:
            return
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._server.connect()
        now = steady()
        if now < due + self._interval * 1e6:
            return
        row = (self._namespace, self._node.id, self._node.length)
        told = await self._connection.execute(
            POSTGRES["renew_node"], *row, timeout=2 * self._interval
        )
        if told == "UPDATE 1":
            self._node.set_renewed(now)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
