"""A journal in a real PostgreSQL: servers that restart, connections that break, databases that will not do."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import chargehand as ch
from chargehand.errors import (
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalReadOnly,
    JournalUnfit,
    JournalVersion,
    NotLeading,
    UsageError,
)
from chargehand.facts.events import Event, ProgressNoted
from chargehand.journal.base import Tail
from chargehand.journal.postgres import PostgresJournal
from chargehand.journal.postgres_address import (
    place_of,
    refuse_bad_port,
    split_namespace,
    with_namespace,
)
from chargehand.journal.prune import Pruner
from tests.contracts.test_journal import NOON, entries_of, notes, texts_of
from tests.postgres_server import PostgresServer, programs, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("needs PostgreSQL; get it with: apt-get install postgresql")
    with running_server() as started:
        yield started


@pytest.fixture
def open_one(server: PostgresServer) -> Callable[..., PostgresJournal]:
    namespace = secrets.token_hex(8)

    def opened(**options: object) -> PostgresJournal:
        given = {"namespace": namespace, "patience": 20, "dsn": server.dsn, **options}
        return PostgresJournal(**given)  # type: ignore[arg-type]  # options of a journal

    return opened


def database(server: PostgresServer) -> str:
    """A new and empty database; returns its DSN."""
    name = f"d{secrets.token_hex(6)}"
    server.sql(f"CREATE DATABASE {name}")
    return server.dsn.replace("/postgres?", f"/{name}?")


# Servers that go away


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
async def test_a_server_that_goes_down_under_load_loses_and_doubles_nothing(
    server: PostgresServer, open_one: Callable[..., PostgresJournal], how: signal.Signals
) -> None:
    async with open_one() as journal:
        epoch = await journal.leases.lead("run")
        stored: list[str] = []

        async def write(name: str) -> None:
            for number in range(150):
                await journal.append("run", notes(f"{name}{number}"), epoch=epoch)
                stored.append(f"{name}{number}")

        writing = asyncio.gather(*(write(name) for name in "abcd"))
        while len(stored) < 50:
            await asyncio.sleep(0)
        await asyncio.to_thread(server.stop, how)
        acknowledged = set(stored)
        await asyncio.to_thread(server.start)
        await writing
        kept = await texts_of(journal)
    assert acknowledged <= set(kept)
    assert sorted(kept) == sorted(f"{name}{number}" for name in "abcd" for number in range(150))


class CuttingProxy:
    """Stands between a journal and its server, and cuts the connection around a COMMIT."""

    def __init__(self, server: Path, folder: Path, *, is_passed_on: bool) -> None:
        self._server = str(server / ".s.PGSQL.5432")
        self.path = folder / ".s.PGSQL.5432"
        self._is_passed_on = is_passed_on
        #: commits that are let through before the cut
        self.commits_left = 10**9
        self.cuts = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._serve, self.path):
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        back = asyncio.create_task(self._copy(up_reader, writer))
        try:
            while data := await reader.read(65536):
                is_cut = b"COMMIT" in data and self._is_due()
                if is_cut and not self._is_passed_on:
                    break
                up_writer.write(data)
                await up_writer.drain()
                if is_cut:
                    back.cancel()  # the answer never comes
                    break
        finally:
            back.cancel()
            up_writer.close()
            writer.close()

    def _is_due(self) -> bool:
        self.commits_left -= 1
        if self.commits_left >= 0:
            return False
        self.commits_left = 10**9
        self.cuts += 1
        return True

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)


@pytest.mark.parametrize("is_passed_on", [True, False], ids=["after", "before"])
async def test_a_connection_cut_at_its_commit_stores_exactly_once(
    server: PostgresServer,
    open_one: Callable[..., PostgresJournal],
    tmp_path: Path,
    *,
    is_passed_on: bool,
) -> None:
    proxy = CuttingProxy(server.folder, tmp_path, is_passed_on=is_passed_on)
    async with proxy.running():
        dsn = f"postgresql://test@/postgres?host={tmp_path}"
        journal = await asyncio.to_thread(open_one, dsn=dsn)
        for number in range(5):
            proxy.commits_left = number % 2
            await journal.append("run", notes(f"a{number}"))
            await journal.append("run", notes(f"b{number}"))
        assert proxy.cuts >= 3
        assert await texts_of(journal) == [f"{x}{n}" for n in range(5) for x in "ab"]
        await journal.close()


async def test_a_decision_whose_connection_breaks_is_undone_and_can_be_made_again(
    server: PostgresServer, open_one: Callable[..., PostgresJournal], tmp_path: Path
) -> None:
    proxy = CuttingProxy(server.folder, tmp_path, is_passed_on=False)
    undone: list[str] = []
    async with proxy.running():
        dsn = f"postgresql://test@/postgres?host={tmp_path}"
        journal = await asyncio.to_thread(open_one, dsn=dsn)
        await journal.append("run", notes("a"))
        proxy.commits_left = 0
        with pytest.raises(JournalBusy, match="try again"):
            await journal.decide("run", lambda _: notes("b"), undo=lambda: undone.append("b"))
        assert undone == ["b"]
        await journal.decide("run", lambda _: notes("c"))
        assert await texts_of(journal) == ["a", "c"]
        await journal.close()


async def test_a_process_that_froze_past_its_lease_appends_nothing_more(
    open_one: Callable[..., PostgresJournal],
) -> None:
    frozen, other = open_one(lease=0.3), open_one(lease=0.3)
    epoch = await frozen.leases.lead("run")
    waking = threading.Event()
    frozen._thread.loop.call_soon_threadsafe(waking.wait)  # as SIGSTOP would do it to its thread
    later = await _led_at_last(other)
    waking.set()
    with pytest.raises(NotLeading):
        await frozen.append("run", notes("late"), epoch=epoch)
    await other.append("run", notes("mine"), epoch=later)
    assert await texts_of(other) == ["mine"]
    assert not frozen.leases.is_valid() or await frozen.leases.lead("another")
    await frozen.close()
    await other.close()


async def _led_at_last(journal: PostgresJournal) -> int:
    until = time.monotonic() + 10
    while True:
        try:
            return await journal.leases.lead("run")
        except NotLeading:
            assert time.monotonic() < until


@pytest.mark.parametrize("end", [OSError, asyncio.CancelledError])
async def test_a_connection_that_cannot_listen_is_closed(
    open_one: Callable[..., PostgresJournal],
    monkeypatch: pytest.MonkeyPatch,
    end: type[BaseException],
) -> None:
    tried: list[Any] = []
    is_tried = threading.Event()

    async def listen(_: object, connection: Any, __: object) -> None:
        tried.append(connection)
        is_tried.set()
        raise end

    monkeypatch.setattr("chargehand.journal.postgres_connection.PostgresServer.listen", listen)
    async with open_one() as journal:
        waiting = asyncio.create_task(journal.mail.wait_changed())
        assert await asyncio.to_thread(is_tried.wait, 10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert all(connection.is_closed() for connection in tried)


async def test_a_server_that_stays_away_is_said_and_a_lease_is_not_valid_without_it(
    server: PostgresServer,
    open_one: Callable[..., PostgresJournal],
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = open_one(lease=0.3, patience=0.5)
    await journal.leases.lead("run")
    await asyncio.to_thread(server.stop)
    try:
        with pytest.raises(JournalBusy, match=r"cannot be used just now.*try again"):
            await journal.append("run", notes("a"))
        assert "journal_waits" in caplog.text
        assert not journal.leases.is_valid()
    finally:
        await asyncio.to_thread(server.start)
    await journal.append("run", notes("b"))
    assert await texts_of(journal) == ["b"]
    await journal.close()


# Databases that will not do


async def test_processes_that_make_the_tables_at_once_make_one_journal(
    server: PostgresServer,
) -> None:
    dsn = database(server)
    journals = await asyncio.gather(*(asyncio.to_thread(PostgresJournal, dsn) for _ in range(6)))
    await asyncio.gather(*(each.append("run", notes("a")) for each in journals))
    assert len(await entries_of(journals[0])) == 6
    for journal in journals:
        await journal.close()


def test_a_server_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    dsn = f"postgresql://ann:hunter2@/postgres?host={tmp_path}"
    with pytest.raises(JournalBusy, match=r"does not answer.*check that the server runs") as caught:
        PostgresJournal(dsn)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "h:99999999/db",
        "h:65536/db",
        "h:0/db",
        "a:1,h:70000/db",
        "[::1]:70000/db",
        "h:x/db",
        "/db?host=h&port=70000",
    ],
)
def test_a_port_that_no_server_has_is_refused_and_no_other_is_tried(place: str) -> None:
    with pytest.raises(UsageError, match="must be a number from 1 to 65,535") as caught:
        PostgresJournal(f"postgresql://ann:hunter2@{place}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("place", ["h/db", "h:5432/db", "a:1,[::1]:2/db?port=3,4", "/db?host=/a:b"])
def test_a_port_that_a_server_can_have_is_none_to_refuse(place: str) -> None:
    refuse_bad_port(f"postgresql://ann:hunter2@{place}")
    refuse_bad_port(f"postgresql://{place}")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://h/db?user=ann&password=hunter2",
        "postgresql://ann:hunter2/x@h/db",
        "postgresql://ann:hunter2#x@h/db",
        "postgresql://ann:hunter2?x@h/db",
        "postgresql:/ann:hunter2@h/db",
        "postgresql:ann:hunter2@h/db",
        "postgresql://h/db?passwrd=hunter2",
    ],
)
def test_a_password_is_never_shown_however_it_is_written(dsn: str) -> None:
    assert "hunter2" not in place_of(dsn)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ann:hunter2/x@127.0.0.1:1/db",
        "postgresql://ann:hunter2@127.0.0.1:99999/db",
        "postgresql://ann:hunter2@[::1/db",
        "Postgresql://ann:hunter2@h/db",
        "postgres//ann:hunter2@h/db",
        "postgresqll://ann:hunter2@h/db",
        "postgresql+psycopg://ann:hunter2@h/db",
        " postgresql://ann:hunter2@h/db",
        "host=h password=hunter2",
        "host=h port=1 dbname=runs user=hunter2",
    ],
)
def test_what_is_no_dsn_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises((JournalError, UsageError)) as caught:
        ch.open_journal(dsn, patience=0)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("namespace", [None, 5])
def test_a_namespace_is_a_text(namespace: object) -> None:
    with pytest.raises(UsageError, match=f"namespace={namespace} must be a text"):
        ch.open_journal("postgresql://h/db", namespace=namespace)  # type: ignore[arg-type]  # as one may write it


@pytest.mark.parametrize(
    ("dsn", "bare", "namespace"),
    [
        ("postgresql://ann@h/db?namespace=team-a", "postgresql://ann@h/db", "team-a"),
        ("postgresql://h/db?host=/x&namespace=a%26b", "postgresql://h/db?host=/x", "a&b"),
        ("postgresql://h/db?namespace=a&port=1", "postgresql://h/db?port=1", "a"),
        ("postgresql://ann:a?namespace=b@h/db", "postgresql://ann:a?namespace=b@h/db", ""),
    ],
)
def test_an_address_may_name_the_namespace(dsn: str, bare: str, namespace: str) -> None:
    assert split_namespace(dsn) == (bare, namespace)
    again = with_namespace(bare, namespace)
    assert split_namespace(again) == (bare, namespace)
    assert split_namespace(place_of(again))[1] == namespace


def test_two_namespaces_for_one_journal_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="contradicts the address"):
        ch.open_journal("postgresql://ann@h/db?namespace=a", namespace="b")


@pytest.mark.parametrize("dsn", ["postgresql:runs", "postgresql:/runs", "postgresql:///runs"])
def test_a_database_is_not_shown_as_a_host(dsn: str) -> None:
    assert place_of(dsn) == "postgresql:///runs"


def test_a_file_has_no_namespaces(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PostgreSQL"):
        ch.open_journal(tmp_path / "runs.db", namespace="a")


def test_files_of_any_name_are_still_files(tmp_path: Path) -> None:
    for name in ("postgres.db", "my-postgres/runs.db", "password.db", "a:b.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        asyncio.run(ch.open_journal(tmp_path / name).close())


def test_a_database_that_is_not_there_is_named(server: PostgresServer) -> None:
    with pytest.raises(JournalUnfit, match=r"nowhere.*createdb"):
        PostgresJournal(server.dsn.replace("/postgres?", "/nowhere?"))


def test_a_journal_of_format_1_is_upgraded_by_whoever_opens_it_first(
    server: PostgresServer,
) -> None:
    dsn = database(server)
    name = urlsplit(dsn).path[1:]
    asyncio.run(PostgresJournal(dsn).close())
    server.sql("DROP TABLE chargehand_serving", name)
    server.sql("UPDATE chargehand_meta SET value = '1' WHERE name = 'format'", name)
    with ThreadPoolExecutor() as threads:
        journals = list(threads.map(PostgresJournal, [dsn] * 4))

    async def serve() -> None:
        await journals[0].processes.serve("a crew")
        offers = [each.offer for each in await journals[1].processes.alive()]
        assert offers == ["a crew"]
        for journal in journals:
            await journal.close()

    asyncio.run(serve())


def test_a_newer_format_is_refused(server: PostgresServer) -> None:
    dsn = database(server)
    name = urlsplit(dsn).path[1:]
    journal = PostgresJournal(dsn)
    asyncio.run(journal.close())
    server.sql("UPDATE chargehand_meta SET value = '99' WHERE name = 'format'", name)
    with pytest.raises(JournalVersion, match="format 99"):
        PostgresJournal(dsn)


def test_a_table_of_another_product_is_refused(server: PostgresServer) -> None:
    dsn = database(server)
    name = urlsplit(dsn).path[1:]
    server.sql("CREATE TABLE chargehand_meta (name text, value text)", name)
    with pytest.raises(JournalUnfit, match="not ours"):
        PostgresJournal(dsn)


def test_a_user_without_rights_is_told_which(server: PostgresServer) -> None:
    dsn = database(server)
    server.sql("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN")
    with pytest.raises(JournalReadOnly, match=r"grant this user CREATE"):
        PostgresJournal(dsn.replace("//test@", "//poor@"))


async def test_a_user_who_may_only_read_is_told_so_once(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = database(server)
    await PostgresJournal(dsn).close()
    name = urlsplit(dsn).path[1:]
    server.sql("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
    server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name)
    async with PostgresJournal(dsn.replace("//test@", "//reader@")) as journal:
        with pytest.raises(JournalReadOnly, match="permission denied"):
            await journal.append("run", notes("a"))
    server.sql("DROP OWNED BY reader", name)
    assert "journal_left_late" not in caplog.text


def test_a_server_without_ssl_is_not_said_to_be_silent() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"N")  # what a server without SSL answers
        await writer.drain()
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1") as listening:
            port = listening.sockets[0].getsockname()[1]
            dsn = f"postgresql://ann@127.0.0.1:{port}/db?sslmode=require"
            with pytest.raises(JournalUnfit, match=r"has no SSL.*sslmode="):
                await asyncio.to_thread(PostgresJournal, dsn, patience=0)

    asyncio.run(ask())


def test_a_database_that_can_only_be_read_is_refused(server: PostgresServer) -> None:
    dsn = database(server)
    name = urlsplit(dsn).path[1:]
    server.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(
        JournalReadOnly, match="default_transaction_read_only=off there, or name the primary"
    ):
        PostgresJournal(dsn)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(
    server: PostgresServer, setting: str
) -> None:
    server.sql(f"ALTER SYSTEM SET {setting} = off")
    server.sql("SELECT pg_reload_conf()")
    try:
        until = time.monotonic() + 10
        while server.sql(f"SHOW {setting}") != "off":
            assert time.monotonic() < until
        with pytest.raises(JournalUnfit, match=f"{setting}=on"):
            PostgresJournal(server.dsn)
    finally:
        server.sql(f"ALTER SYSTEM RESET {setting}")
        server.sql("SELECT pg_reload_conf()")
        while server.sql(f"SHOW {setting}") != "on":
            pass


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
async def test_names_that_the_database_cannot_hold_are_refused_alone(
    open_one: Callable[..., PostgresJournal], name: str
) -> None:
    async with open_one() as journal:
        refused, kept = await asyncio.gather(
            journal.append(name, notes("a")),
            journal.append("run", notes("b")),
            return_exceptions=True,
        )
        assert isinstance(refused, UsageError)
        assert not isinstance(kept, BaseException)


async def test_an_event_that_was_changed_in_the_database_is_found(
    server: PostgresServer, open_one: Callable[..., PostgresJournal]
) -> None:
    async with open_one() as journal:
        await journal.append("changed", notes("a", "b", "c"))
        server.sql(
            "UPDATE chargehand_entries SET payload = replace(encode(payload, 'escape'), '\"b\"', '\"x\"')"
            "::bytea WHERE seq = 2 AND stream = (SELECT id FROM chargehand_streams WHERE name = 'changed')"
        )
        with pytest.raises(JournalDamaged, match=r"event 2 .*changed"):
            await entries_of(journal, "changed")


async def test_retention_keeps_a_run_that_was_changed_in_the_database(
    server: PostgresServer, open_one: Callable[..., PostgresJournal]
) -> None:
    plan = ch.Plan(goal="add", tasks=[ch.Task(id="t", description="Add", worker="adder")])
    async with open_one() as journal:
        run = (await ch.Supervisor([adder], journal=journal).run(plan)).id
        server.sql(
            "DELETE FROM chargehand_entries WHERE (stream, seq) = "
            f"(SELECT id, seq FROM chargehand_streams WHERE name = '{run}')"
        )
        pruner = Pruner(journal, ch.Retention(keep=0))
        assert [each async for each in pruner.prune(datetime.now(UTC))] == []
        assert "is damaged" in pruner.damaged[run]


async def test_namespaces_do_not_see_each_other(
    server: PostgresServer, open_one: Callable[..., PostgresJournal]
) -> None:
    async with open_one() as one, open_one(namespace="other") as other:
        await one.append("run", notes("a"))
        await other.append("run", notes("b"))
        assert await texts_of(one) == ["a"]
        assert await texts_of(other) == ["b"]
        assert [head.seq for head in await one.heads()] == [1]


async def test_the_commands_printed_for_a_namespace_reach_it(server: PostgresServer) -> None:
    namespace = f"team {secrets.token_hex(4)} @&"
    async with PostgresJournal(server.dsn, namespace=namespace) as journal:
        await journal.append("run", notes("a"))
        shown = journal.path
    async with PostgresJournal(shown) as again:
        assert (await texts_of(again), again.path) == (["a"], shown)


async def test_a_decision_that_reads_a_damaged_stream_says_so(
    server: PostgresServer, open_one: Callable[..., PostgresJournal]
) -> None:
    async with open_one() as journal:
        await journal.append("torn", notes("a", "b"))
        server.sql(
            "DELETE FROM chargehand_entries WHERE seq = 1 AND stream = "
            "(SELECT id FROM chargehand_streams WHERE name = 'torn')"
        )

        def look(tail: Tail) -> list[Event]:
            return [ProgressNoted(at=NOON, task="t", attempt=1, text=str(len(tail.read(0))))]

        with pytest.raises(JournalError):
            await journal.decide("torn", look)


# A supervisor on it

CREW = """
import chargehand as ch

@ch.worker("adder", "Adds numbers")
async def adder(brief: ch.Brief) -> int:
    return 4

boss = ch.Supervisor([adder])
"""


@ch.worker("adder", "Adds numbers")
async def adder(brief: ch.Brief) -> int:
    return 2


async def test_a_supervisor_keeps_its_runs_there(server: PostgresServer) -> None:
    dsn = database(server)
    plan = ch.Plan(
        goal="add",
        tasks=[
            ch.Task(id=f"t{n}", description=f"Add {n} and 2", worker="adder") for n in range(20)
        ],
    )
    async with ch.Supervisor([adder], journal=dsn) as boss:
        result = await boss.run(plan)
    assert result.status == "succeeded"
    async with ch.Supervisor([adder], journal=dsn) as boss:
        again = await boss.resume(result.id)
    assert again.answer == result.answer


def test_the_command_line_takes_a_dsn_and_never_shows_its_password(
    server: PostgresServer, tmp_path: Path
) -> None:
    dsn = database(server).replace("//test@", "//test:hunter2@")
    (tmp_path / "crew.py").write_text(CREW)
    plan = {"goal": "g", "tasks": [{"id": "t0", "description": "Add 2 and 2", "worker": "adder"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "chargehand", *words, "--journal", dsn],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        return done.stdout

    assert command("run", "--plan", "plan.json", "--crew", "crew.py:boss").strip() == "4"
    (row,) = command("runs", "--json").splitlines()
    run = json.loads(row)["run"]
    for words in (["show", run], ["trace", run], ["status"], ["verify"], ["watch", run]):
        command(*words)
    assert command("resume", "last").strip() == "4"
    submitted = command("submit", "--plan", "plan.json", "--crew", "crew.py:boss").strip()
    assert submitted != run
