"""Where the journals of trials are: a file, or a PostgreSQL server of this process."""

import asyncio
import atexit
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

import chargehand as ch
from chargehand.journal.base import Journal
from tests.postgres_server import (
    Pooler,
    PostgresServer,
    pooler_program,
    programs,
    running_server,
)

from .needs import Needs
from .oracle import Runs, read_all

#: all but the name and the format of the journal
TABLES = "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE tablename LIKE 'chargehand\\_%' AND tablename <> 'chargehand_meta'"


class Database(msgspec.Struct, frozen=True):
    """The journal of one trial."""

    place: str
    namespace: str = ""

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        journal = ch.open_journal(self.place, namespace=self.namespace)
        try:
            yield journal
        finally:
            await journal.close()

    def read(self) -> Runs:
        """All runs, through the journal's own checks, so that a broken chain raises here."""

        async def read() -> Runs:
            async with self.opened() as journal:
                return await read_all(journal)

        return asyncio.run(read())


@functools.cache
def shared_server() -> PostgresServer:
    """The server of this process; started when it is needed first."""
    if programs() is None:
        raise Needs("needs PostgreSQL; get it with: apt-get install postgresql")
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_server())


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[Database]:
    """A new journal; `kind` is "sqlite", "postgres" or "pooled", which is behind a transaction pooler."""
    if kind == "sqlite":
        yield Database(str(folder / "runs.db"))
        return
    server = shared_server()
    with contextlib.ExitStack() as stack:
        stack.callback(clear, server)
        dsn = server.dsn
        if kind == "pooled":
            if not pooler_program():
                raise Needs("needs pgbouncer; get it with: apt-get install pgbouncer")
            pooler = Pooler(server)
            stack.callback(pooler.stop)
            dsn = pooler.dsn
        yield Database(dsn, secrets.token_hex(8))


def clear(server: PostgresServer) -> None:
    """Throw all runs away; otherwise the server's disk grows with every trial."""
    if tables := server.sql(TABLES):
        server.sql(f"TRUNCATE {tables}")
