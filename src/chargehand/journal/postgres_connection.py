"""Connections to the PostgreSQL server of a journal: opened, checked, opened again when they break."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from chargehand.errors import (
    InternalError,
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalReadOnly,
    JournalUnfit,
    JournalVersion,
    UsageError,
)
from chargehand.journal.postgres_address import place_of, refuse_bad_port, split_namespace
from chargehand.journal.sql_queries import load

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

#: the queries of `postgres.sql`, by name
POSTGRES = load("postgres.sql")
#: version of the tables
FORMAT = 2
#: the first server version that has all we use; older ones get no more fixes from their makers
OLDEST_SERVER = 130000
#: seconds for a server to take a connection, or to answer a query that locks nothing
CONNECTING = 10.0
#: seconds between two tries to connect again, at most
LONGEST_PAUSE = 2.0
_CHANNEL = "chargehand"
#: a connection breaks when nothing was acknowledged for ten seconds, or an idle one did not answer for as long
_TCP = {"TCP_USER_TIMEOUT": 10_000, "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}

log = logging.getLogger("chargehand.journal")


class PostgresServer:
    """Opens connections to one server, and says in the journal's words what is wrong with it."""

    def __init__(self, dsn: str, *, makes_tables: bool = True) -> None:
        refuse_bad_port(dsn)
        self.place = place_of(dsn)
        self._dsn, self.namespace = split_namespace(dsn)
        self._makes_tables = makes_tables
        #: a pooler stands between us and the server, and no prepared statement outlives its transaction;
        #: None before that is known
        self.is_pooled: bool | None = None
        self._journal = ""

    async def connect(self) -> "Connection[Any]":
        """A connection to the journal that was opened first, and to no other behind the same name."""
        while True:
            connection = await self._open(keeps_statements=self.is_pooled is False)
            try:
                await self._check(connection)
                process = await connection.fetchval("SELECT pg_backend_pid()")
            except Exception as error:
                connection.terminate()
                raise self.refusal(error) from error
            except BaseException:
                connection.terminate()
                raise
            # A pooler gives out a process number of its own. A name of a statement may stand for another
            # one behind it, so statements must not be kept at all there.
            was_pooled, self.is_pooled = self.is_pooled, process != connection.get_server_pid()
            if was_pooled is self.is_pooled or (was_pooled is None and self.is_pooled):
                return connection
            connection.terminate()

    async def _open(self, *, keeps_statements: bool) -> "Connection[Any]":
        import asyncpg

        try:
            connection = await asyncpg.connect(
                self._dsn,
                timeout=CONNECTING,
                statement_cache_size=200 if keeps_statements else 0,
            )
        except Exception as error:
            raise self.refusal(error) from error
        _break_when_cut_off(connection)
        return connection

    async def _check(self, connection: "Connection[Any]") -> None:
        async with connection.transaction():
            facts = await connection.fetchrow(POSTGRES["facts"])
            if facts is None:
                raise InternalError(f"{self.place} says nothing about itself")
            self._refuse_unfit(dict(facts))
            journal = await self._prepare(connection)
        if self._journal and journal != self._journal:
            raise JournalFailed(
                f"{self.place} is another database than before: there are two behind one name; name the "
                "one that holds the runs, and start again"
            )
        self._journal = journal

    def _refuse_unfit(self, facts: dict[str, Any]) -> None:
        if facts["version"] < OLDEST_SERVER:
            raise JournalUnfit(
                f"{self.place} is PostgreSQL {facts['version'] // 10000}; version "
                f"{OLDEST_SERVER // 10000} or newer is needed"
            )
        if facts["is_replica"]:
            raise JournalReadOnly(
                f"{self.place} is a read-only replica; name the primary server instead"
            )
        for setting in ("fsync", "full_page_writes"):
            if facts[setting] != "on":
                raise JournalUnfit(
                    f"{self.place} runs with {setting}=off and may lose what it has acknowledged; "
                    f"set {setting}=on"
                )

    async def _prepare(self, connection: "Connection[Any]") -> str:
        """Make or upgrade the tables, if they are not those of today; returns the journal's name."""
        if not await connection.fetchval(POSTGRES["has_meta"]):
            if not self._makes_tables:
                raise JournalError(
                    f"{self.place} holds no journal, so there is nothing to check; the first run makes one"
                )
            await connection.execute(POSTGRES["one_migration"])
            if not await connection.fetchval(POSTGRES["has_meta"]):  # still
                await connection.execute(POSTGRES["schema_1"])
                await connection.execute(POSTGRES["put_meta"], "format", "1")
                await connection.execute(POSTGRES["put_meta"], "journal", secrets.token_hex(8))
        version = await connection.fetchval(POSTGRES["meta"], "format")
        if version == "1" and self._makes_tables:
            await connection.execute(POSTGRES["one_migration"])
            version = await connection.fetchval(POSTGRES["meta"], "format")
            if version == "1":  # still: another process may have been faster
                await connection.execute(POSTGRES["schema_2"])
                await connection.execute(POSTGRES["put_meta"], "format", "2")
                version = "2"
        if version is None:
            raise JournalUnfit(
                f"{self.place} has a table chargehand_meta that is not ours; name another database or schema"
            )
        if version != str(FORMAT):
            raise JournalVersion(
                f"{self.place} has format {version}, and this chargehand knows format {FORMAT}; upgrade "
                "chargehand to the version that wrote it"
            )
        return str(await connection.fetchval(POSTGRES["meta"], "journal"))

    async def connect_patiently(
        self, patience: float | None, is_wanted: Callable[[], bool]
    ) -> "Connection[Any]":
        """Connect, again and again while the server does not answer; without end if `patience` is None."""
        clock, tries = asyncio.get_running_loop().time, 0
        began = clock()
        while True:
            try:
                return await self.connect()
            except JournalBusy as error:
                waited = clock() - began
                if not is_wanted() or (patience is not None and waited >= patience):
                    raise
                if tries == 0:
                    log.warning("journal_waits path=%s: %s", self.place, error)
                await asyncio.sleep(min(0.05 * 2 ** min(tries, 6), LONGEST_PAUSE))
                tries += 1

    async def listen(self, connection: "Connection[Any]", heard: Callable[[str], None]) -> None:
        """Have this called with the namespace of every change that is told."""

        def hear(_: object, __: int, ___: str, payload: object) -> None:
            heard(str(payload))

        await connection.add_listener(_CHANNEL, hear)

    async def transact(
        self, connection: "Connection[Any]", work: "Callable[[Connection[Any]], Awaitable[T]]"
    ) -> T:
        """Read something; in one transaction where a pooler may give each query another connection."""
        if not self.is_pooled:
            return await work(connection)
        async with connection.transaction(readonly=True):
            return await work(connection)

    def is_lost(self, error: BaseException) -> bool:
        """Whether this error says that a connection broke, and nothing about what was asked."""
        import asyncpg

        lost = (
            OSError,
            asyncio.TimeoutError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # the server said farewell between two of our messages
            asyncpg.PostgresConnectionError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.CannotConnectNowError,
            asyncpg.IdleInTransactionSessionTimeoutError,
        )
        return isinstance(error, lost) and not isinstance(error, asyncpg.DataError)

    def is_conflict(self, error: BaseException) -> bool:
        """Whether the server gave a transaction up for the sake of another: it may succeed next time."""
        import asyncpg

        return isinstance(error, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError))

    def refusal(self, error: BaseException) -> JournalError | InternalError:
        """The journal's error for one of PostgreSQL's."""
        import asyncpg

        place = self.place
        match error:
            case JournalError() | InternalError():
                return error
            case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
                return JournalUnfit(
                    f"{place} refuses this user ({error}); check user and password of the DSN"
                )
            case asyncpg.InvalidCatalogNameError():
                return JournalUnfit(f"{place}: {error}; create the database first, with createdb")
            case asyncpg.InsufficientPrivilegeError():
                return JournalReadOnly(
                    f"{place}: {error}; grant this user CREATE and USAGE on the schema, or SELECT, INSERT, "
                    "UPDATE and DELETE on the tables chargehand_*"
                )
            case asyncpg.ReadOnlySQLTransactionError():
                return JournalReadOnly(
                    f"{place} can only be read ({error}); set default_transaction_read_only=off there, or name the "
                    "primary server if it is a replica"
                )
            case asyncpg.DiskFullError():
                return JournalFull(
                    f"{place} cannot grow: its disk is full; nothing of this request was stored: make room, "
                    "then try again"
                )
            case asyncpg.TooManyConnectionsError() | asyncpg.OutOfMemoryError():
                return self._busy(f"it is short of something: {error}")
            case asyncpg.LockNotAvailableError():
                return self._busy(str(error))
            case _ if self.is_conflict(error):
                return self._busy(str(error))
            case asyncpg.UndefinedTableError() | asyncpg.UndefinedColumnError():
                return JournalDamaged(
                    f"{place} is damaged: its tables are not those of a journal ({error}); restore it from "
                    "a backup, or name another database"
                )
            case asyncpg.IntegrityConstraintViolationError() | asyncpg.DataCorruptedError():
                return JournalDamaged(
                    f"{place} is damaged: its tables contradict each other ({error}); restore it from a backup"
                )
            case ValueError() | OverflowError() | asyncpg.ClientConfigurationError():
                # Not in its own words: they may quote a piece of the password.
                return JournalUnfit(
                    f"{place} is not a DSN of PostgreSQL that can be read; write postgresql://USER:PASSWORD@HOST:PORT/"
                    "DATABASE, with special characters of the password percent-encoded"
                )
            case asyncpg.UndefinedObjectError() | asyncpg.CantChangeRuntimeParamError():
                return JournalUnfit(f"{place} does not know an option of the DSN: {error}")
            case _ if self.is_lost(error):
                return self._unreached(error)
            case _:
                return InternalError(f"the journal {place} met {type(error).__name__}: {error}")

    def _unreached(self, error: BaseException) -> JournalError:
        if isinstance(error, ConnectionError) and "rejected SSL" in str(
            error
        ):  # asyncpg has no type for it
            return JournalUnfit(
                f"{self.place} has no SSL ({error}); turn SSL on there, or leave sslmode= out of the DSN"
            )
        return self._busy(f"it does not answer: {str(error) or type(error).__name__}")

    def _busy(self, fact: str) -> JournalBusy:
        return JournalBusy(
            f"{self.place} cannot be used just now ({fact}); nothing of this request was stored: check that the "
            "server runs and can be reached, then try again"
        )


def _break_when_cut_off(connection: "Connection[Any]") -> None:
    """Let the kernel give a connection up over which nothing comes any more; by itself it waits for hours."""
    # asyncpg has no option for it.
    transport = getattr(connection, "_transport", None)
    wire = transport.get_extra_info("socket") if transport is not None else None
    if wire is None or wire.family not in (socket.AF_INET, socket.AF_INET6):
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP.items():
        if hasattr(socket, name):  # not every system has all of them
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def refuse_text(**texts: str) -> None:
    """Raise `UsageError` for text that PostgreSQL cannot hold."""
    for what, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the journal can only hold text: {error}") from error
        if "\0" in text:
            raise UsageError(f"the {what} {text!r} holds a NUL, which PostgreSQL cannot keep")
