"""Several real processes on one journal: some live, some are killed, some only fall silent."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from chargehand.errors import JournalError, NotLeading
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_file import JournalFile
from tests.integration.sqlite_at_hand import (
    entries_of,
    mark_of,
    notes,
    texts_of,
    until,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    async with SqliteJournal(path) as opened:
        yield opened


CHILD = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
from chargehand.errors import NotLeading
from chargehand.facts.events import ProgressNoted
from chargehand.journal.open_journal import open_journal

def note(text):
    return [ProgressNoted(at=datetime.now(UTC), task="t1", attempt=1, text=text)]

async def hear():
    return (await asyncio.to_thread(sys.stdin.readline)).strip()

def say(text):
    print(text, flush=True)

async def write_many(journal):
    for number in range(100):
        await journal.append("board", note(str(number)))
    say("done")

async def lead_all(journal):
    for number in range(20):
        stream = f"run {number}"
        try:
            epoch = await journal.leases.lead(stream)
        except NotLeading:
            continue
        await journal.append(stream, note(journal.leases.node), epoch=epoch)
        say(f"led {stream}")
    say("done")
    await hear()

async def lead(journal):
    epoch = await journal.leases.lead("run")
    await journal.append("run", note("mine"), epoch=epoch)
    say(journal.leases.node)
    while await hear():
        try:
            await journal.append("run", note("still mine"), epoch=epoch)
            say("stored")
        except NotLeading:
            say("refused" if not journal.leases.is_valid() else "refused though valid")

async def post(journal):
    from chargehand.journal.base import Mail
    await journal.mail.post(Mail(key="k", stream="run", subject="cancel", body=b"{}"))
    say("posted")

async def forget_to_close(journal):
    await journal.append("run", note("a"))
    say("stored")

async def main():
    lease = timedelta(seconds=float(sys.argv[3]))
    await globals()[sys.argv[2]](open_journal(sys.argv[1], lease=lease))

asyncio.run(main())
"""


class Child:
    """Another process at work on the journal."""

    def __init__(self, path: Path, doing: str, lease: float = 10) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), doing, str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def child(path: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(doing: str, lease: float = 10) -> Child:
        children.append(Child(path, doing, lease))
        return children[-1]

    yield start
    for one in children:
        one.end()


async def lead_when_free(journal: SqliteJournal, stream: str) -> int:
    deadline = time.monotonic() + 30
    while True:
        try:
            return await journal.leases.lead(stream)
        except NotLeading:
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.02)


async def test_two_processes_append_to_one_stream_without_gaps(
    journal: SqliteJournal, child: Callable[..., Child]
) -> None:
    children = [child("write_many"), child("write_many")]
    for number in range(50):
        await journal.append("board", notes(str(number)))
    for one in children:
        assert await asyncio.to_thread(one.hear) == "done"
        assert one.process.wait(30) == 0
    entries = await entries_of(journal, "board")
    assert [entry.seq for entry in entries] == list(range(1, 251))
    assert len({entry.author for entry in entries}) == 3


async def test_a16_two_processes_never_lead_one_run(
    journal: SqliteJournal, child: Callable[..., Child]
) -> None:
    children = [child("lead_all"), child("lead_all")]
    live_run: list[str] = []
    for one in children:
        while (said := await asyncio.to_thread(one.hear)) != "done":
            assert said, "the other process has ended"
            live_run.append(said)
    assert sorted(live_run) == sorted(f"led run {number}" for number in range(20))
    for head in await journal.heads():
        [entry] = await entries_of(journal, head.stream)
        assert (entry.epoch, entry.author) == (1, head.owner)


async def test_opening_while_others_make_streams_sees_no_damage(
    journal: SqliteJournal, path: Path
) -> None:
    """What a commit changes in several tables is seen as one, or not at all."""
    is_over = threading.Event()
    faults: list[Exception] = []

    def open_again_and_again() -> None:
        while not is_over.is_set():
            try:
                other = SqliteJournal(path)
            except JournalError as error:
                faults.append(error)
                return
            asyncio.run(other.close())

    opening = asyncio.create_task(asyncio.to_thread(open_again_and_again))
    for number in range(300):
        await journal.append(f"board {number}", notes("a"))
    is_over.set()
    await opening
    assert faults == []


async def test_a_run_of_a_killed_process_can_be_led_at_once(
    journal: SqliteJournal, child: Callable[..., Child], path: Path
) -> None:
    """Its lease would last for another hour."""
    holder = child("lead", lease=3600)
    node = await asyncio.to_thread(holder.hear)
    with pytest.raises(NotLeading, match=f"{node}.*process {holder.process.pid}.*lease lasts"):
        await journal.leases.lead("run")
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait(30)
    assert await journal.leases.lead("run") == 2
    assert not Path(f"{path}-node-{node}").exists()


async def test_what_dead_processes_leave_behind_is_cleared_away(
    journal: SqliteJournal, child: Callable[..., Child], path: Path
) -> None:
    holder = child("lead")
    node = await asyncio.to_thread(holder.hear)
    holder.end()
    assert Path(f"{path}-node-{node}").exists()
    await journal.leases.lead("something else")
    assert not Path(f"{path}-node-{node}").exists()


async def test_a_run_of_a_stopped_process_can_be_led_after_its_lease_and_it_is_fenced(
    journal: SqliteJournal, child: Callable[..., Child]
) -> None:
    holder = child("lead", lease=2)
    await asyncio.to_thread(holder.hear)
    holder.say("go on")
    assert await asyncio.to_thread(holder.hear) == "stored"
    holder.process.send_signal(signal.SIGSTOP)
    with pytest.raises(NotLeading):
        await journal.leases.lead("run")
    epoch = await lead_when_free(journal, "run")
    await journal.append("run", notes("taken over"), epoch=epoch)
    holder.process.send_signal(signal.SIGCONT)
    holder.say("go on")
    assert (await asyncio.to_thread(holder.hear)).startswith("refused")
    assert (await texts_of(journal))[-1] == "taken over"


async def test_a_lease_is_renewed_for_as_long_as_something_is_led(
    journal: SqliteJournal, child: Callable[..., Child], path: Path
) -> None:
    holder = child("lead", lease=1)
    node = await asyncio.to_thread(holder.hear)
    first = expiry_of(path, node)
    await until(lambda: expiry_of(path, node) > first + 1_000_000)
    with pytest.raises(NotLeading):
        await journal.leases.lead("run")
    holder.say("go on")
    assert await asyncio.to_thread(holder.hear) == "stored"


def expiry_of(path: Path, node: str) -> int:
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    try:
        return int(connection.execute("SELECT expires FROM nodes WHERE id = ?", (node,)).get)
    finally:
        connection.close()


async def test_a_lease_that_is_not_renewed_ends_here_a_fifth_before_it_ends_elsewhere(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minute = 60_000_000
    async with SqliteJournal(path, lease=timedelta(hours=1)) as journal:
        await journal.leases.lead("run")
        expires = expiry_of(path, journal.leases.node)
        for left, is_valid in [(13 * minute, True), (11 * minute, False), (-minute, False)]:
            monkeypatch.setattr(
                "chargehand.journal.leases.steady", lambda left=left: expires - left
            )
            assert journal.leases.is_valid() is is_valid


async def test_mail_of_another_process_wakes_who_waits(
    journal: SqliteJournal, child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chargehand.journal.change_signal.PATIENCE", 600
    )  # no help from waking in vain
    one = child("post")
    async with asyncio.timeout(30):
        while not await journal.mail.unread():
            await journal.mail.wait_changed()
    assert one.process.wait(30) == 0


async def test_own_appends_wake_nobody_who_waits_for_changes(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.journal.change_signal.PATIENCE", 600)
    waiting = asyncio.create_task(journal.mail.wait_changed())
    await asyncio.sleep(0)
    for number in range(20):
        await journal.append("run", notes(str(number)))
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_journal_left_open_does_not_keep_the_program_alive(
    child: Callable[..., Child], path: Path
) -> None:
    one = child("forget_to_close")
    assert await asyncio.to_thread(one.hear) == "stored"
    assert one.process.wait(30) == 0
    assert b'"commit":1,' in mark_of(path)
    journal = SqliteJournal(path)
    assert await texts_of(journal) == ["a"]
    await journal.close()


FORK = """
import asyncio, os, sys, warnings
from chargehand.errors import UsageError
from chargehand.journal.open_journal import open_journal
warnings.simplefilter("ignore", DeprecationWarning)

async def refused(use):
    try:
        await use
    except UsageError as error:
        return "forked" in str(error)
    return False

async def in_child(journal):
    uses = [journal.append("run", []), journal.heads(), journal.blobs.put(b""), journal.leases.lead("x")]
    return all([await refused(use) for use in uses]) and not journal.leases.is_valid()

journal = open_journal(sys.argv[1])
asyncio.run(journal.leases.lead("run"))
if os.fork() == 0:
    fine = asyncio.run(in_child(journal))
    asyncio.run(journal.close())
    sys.exit(0 if fine else 3)
_, status = os.wait()
asyncio.run(journal.append("run", [], epoch=1))
asyncio.run(journal.close())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_journal_opened_before_a_fork_is_refused_in_the_child(path: Path) -> None:
    run = [sys.executable, "-c", FORK, str(path)]
    assert subprocess.run(run, timeout=60, check=False).returncode == 0


async def test_many_processes_may_make_the_journal_at_once(
    child: Callable[..., Child], path: Path
) -> None:
    children = [child("post") for _ in range(3)]
    for one in children:
        assert await asyncio.to_thread(one.hear) == "posted"
    journal = SqliteJournal(path)
    assert len(await journal.mail.unread()) == 1
    await journal.close()


def test_a_journal_that_another_makes_between_two_looks_is_no_stranger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look finds an empty file, the second the tables of whoever was faster."""
    connect = JournalFile._connect
    others: list[threading.Thread] = []

    class Slow:
        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def pragma(self, name: str, *value: Any) -> object:
            found = self._connection.pragma(name, *value)
            if name == "application_id" and not others:
                monkeypatch.setattr(JournalFile, "_connect", connect)
                others.append(threading.Thread(target=make))
                others[0].start()
                others[0].join(0.5)
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    def make() -> None:
        file = JournalFile(path, durability="strict", patience=timedelta(seconds=30), vfs="")
        file.open(accept_damage=False).close()

    monkeypatch.setattr(JournalFile, "_connect", lambda file, flags: Slow(connect(file, flags)))
    make()
    others[0].join()
