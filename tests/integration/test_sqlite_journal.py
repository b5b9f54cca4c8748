"""The SQLite journal: how it is opened, how it commits, and what it does when a disk says no."""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from chargehand.errors import (
    ChargehandError,
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalReadOnly,
    JournalUnfit,
    JournalVersion,
    NotJSON,
    NotLeading,
    UsageError,
)
from chargehand.facts.events import AttemptFinished, ProgressNoted, RunFinished, RunStatus
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value
from chargehand.journal import blob_store as blobs
from chargehand.journal.base import Key, Mail
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_errors import refusal
from chargehand.journal.storage_check import check_sqlite, file_system_in, file_system_told
from tests.integration.sqlite_at_hand import (
    NOON,
    QUICK,
    commits_in,
    copied,
    entries_of,
    meddle,
    notes,
    texts_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def open_here(path: Path) -> AsyncIterator[Callable[..., SqliteJournal]]:
    """Opens the journal at `path`; all are closed at the end."""
    journals: list[SqliteJournal] = []

    def open_one(**options: Any) -> SqliteJournal:
        journals.append(SqliteJournal(path, **options))
        return journals[-1]

    yield open_one
    for journal in reversed(journals):
        await journal.close()


@pytest.fixture
def journal(open_here: Callable[..., SqliteJournal]) -> SqliteJournal:
    return open_here()


# Opening


def test_no_path_is_a_journal_in_memory_and_a_journal_is_itself() -> None:
    memory = open_journal(None)
    assert isinstance(memory, MemoryJournal)
    assert open_journal(memory) is memory


async def test_a_path_is_a_journal_in_a_file_whose_folder_is_made(tmp_path: Path) -> None:
    for where in (tmp_path / "new" / "deep" / "runs.db", f"sqlite:{tmp_path}/other.db"):
        journal = open_journal(where)
        await journal.append("run", notes("a"))
        await journal.close()
    assert (tmp_path / "new" / "deep" / "runs.db").is_file()
    assert (tmp_path / "other.db").is_file()


def test_places_that_cannot_be_a_journal_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder"):
        open_journal(tmp_path)
    with pytest.raises(UsageError, match="empty"):
        open_journal("")
    with pytest.raises(UsageError, match="strict"):
        open_journal(tmp_path / "runs.db", durability="sloppy")  # type: ignore[arg-type]  # the point
    with pytest.raises(UsageError, match="not a journal"):
        open_journal(5)  # type: ignore[arg-type]  # the point
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        open_journal(tmp_path / "file" / "runs.db")


def test_opening_in_memory_does_not_load_sqlite() -> None:
    code = (
        "import sys; from chargehand.journal.open_journal import open_journal; open_journal(None); "
        "sys.exit('apsw' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_what_was_stored_is_there_after_closing_and_opening(
    open_here: Callable[..., SqliteJournal], path: Path
) -> None:
    first = open_here()
    epoch = await first.leases.lead("run")
    await first.append("run", notes("a", "b"), epoch=epoch, key=Key("s", "k", "d"))
    await first.mail.post(Mail(key="m", stream="run", subject="cancel", body=b"{}"))
    before = await entries_of(first)
    await first.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["runs.db", "runs.db-head"]
    second = open_here()
    assert await entries_of(second) == before
    assert [mail.key for mail in await second.mail.unread()] == ["m"]
    assert not (await second.append("run", notes("a"), key=Key("s", "k", "d"))).is_new
    assert await second.leases.lead("run") == epoch + 1


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("these are my notes, not a journal\n" * 100)
    with pytest.raises(JournalError, match=r"runs\.db"):
        open_journal(path)
    assert path.read_text() == "these are my notes, not a journal\n" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    meddle(path, "CREATE TABLE customers (name)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="not a chargehand journal"):
        open_journal(path)
    assert path.read_bytes() == before


async def test_a19_a_journal_of_a_newer_format_is_refused_with_the_way_out(path: Path) -> None:
    await SqliteJournal(path).close()
    meddle(path, "PRAGMA user_version = 99")
    with pytest.raises(JournalVersion, match=r"format 99.*upgrade chargehand"):
        open_journal(path)


async def test_a18_the_first_that_serves_a_journal_brings_it_to_format_2(path: Path) -> None:
    """A journal that nobody serves stays as older versions know it."""
    for serves in (False, True, True):
        journal = SqliteJournal(path)
        await journal.append("run", [])
        if serves:
            await journal.processes.serve("a crew")
        await journal.close()
        connection = apsw.Connection(str(path))
        assert connection.pragma("user_version") == (2 if serves else 1)
        connection.close()
    meddle(path, "DROP TABLE serving")
    with pytest.raises(JournalDamaged, match="its tables are not those of a journal"):
        open_journal(path)


def test_a17_an_sqlite_with_the_log_fault_is_refused() -> None:
    for version in ("3.7.0", "3.45.1", "3.51.2"):
        with pytest.raises(JournalUnfit, match="upgrade apsw"):
            check_sqlite(version)
    for version in ("3.51.3", "3.52.0", "4.0.0"):
        check_sqlite(version)
    check_sqlite()


async def test_a17_only_one_thread_writes(open_here: Callable[..., SqliteJournal]) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    journal = open_here()
    await asyncio.gather(*(journal.append("run", notes("a")) for _ in range(20)))
    names = [thread.name for thread in threading.enumerate() if thread.ident not in before]
    assert names.count("chargehand-journal-writer") == 1


def test_network_file_systems_are_known_by_their_mounts() -> None:
    mounts = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "30 22 0:40 / /srv/team/far\\040away rw - nfs4 server:/x rw\n"
        "31 22 0:41 / /srv/team/shell rw shared:9 master:1 - fuse.sshfs me@host: rw\n"
    )
    assert file_system_in(mounts, Path("/srv/team/runs.db")) == "ext4"
    assert file_system_in(mounts, Path("/srv/team/far away/runs.db")) == "nfs4"
    assert file_system_in(mounts, Path("/srv/team/shell/a/runs.db")) == "fuse.sshfs"
    told = "/dev/disk1 on / (apfs, local)\n//me@nas/x on /Volumes/x (smbfs, nodev)\n"
    assert file_system_told(told, Path("/srv/runs.db")) == "apfs"
    assert file_system_told(told, Path("/Volumes/x/runs.db")) == "smbfs"


async def test_a_journal_on_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.journal.storage_check._file_system_of", lambda _: "fuse.sshfs")
    with pytest.raises(JournalUnfit, match="local disk"):
        open_journal(path)


# Group commit


async def test_appends_at_once_share_commits(journal: SqliteJournal, path: Path) -> None:
    await journal.append("run", notes("first"))
    before = commits_in(path)
    await asyncio.gather(*(journal.append("run", notes(str(n))) for n in range(500)))
    assert commits_in(path) - before <= 50
    assert len(await entries_of(journal)) == 501


async def test_appends_one_after_the_other_are_one_commit_each(
    journal: SqliteJournal, path: Path
) -> None:
    for number in range(5):
        await journal.append("run", notes(str(number)))
    assert commits_in(path) == 5


async def test_an_append_is_in_the_file_when_it_returns(
    journal: SqliteJournal, path: Path, tmp_path: Path
) -> None:
    """The file as it lies there, with its log, is what a killed process would leave."""
    await journal.append("run", notes("a", "b"))
    copy = copied(path, tmp_path / "copy")
    other = SqliteJournal(copy)
    assert await texts_of(other) == ["a", "b"]
    await other.close()


async def test_a_request_that_is_refused_makes_no_commit(
    journal: SqliteJournal, path: Path
) -> None:
    await journal.append("run", notes("a"))
    with pytest.raises(NotLeading):
        await journal.append("run", notes("b"), epoch=7)
    assert commits_in(path) == 1


async def test_a_log_past_its_limit_is_copied_into_the_database(
    journal: SqliteJournal, path: Path
) -> None:
    for _ in range(6):
        await journal.append("run", notes("x" * 4_000_000))
    await journal.append("run", notes("small"))
    assert path.stat().st_size > 16_000_000


async def test_text_that_is_no_unicode_is_refused_before_anything_is_stored(
    journal: SqliteJournal,
) -> None:
    with pytest.raises(NotJSON):
        await journal.append("run", notes("fine", "\ud800"))
    with pytest.raises(UsageError):
        await journal.append("\ud800", notes("fine"))
    await journal.append("run", notes("after"))
    assert await texts_of(journal) == ["after"]


# Disks that say no


class Trouble:
    """What the disk below `vfs` does next."""

    full = False
    sync_fails = False


class TroubledFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - as SQLite calls it
        if Trouble.full:
            raise apsw.FullError("no room")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - as SQLite calls it
        if Trouble.sync_fails:
            raise apsw.IOError("the cable is out")
        super().xSync(flags)


class TroubledDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("troubled", "")

    def xOpen(self, name: Any, flags: Any) -> TroubledFile:  # noqa: N802 - as SQLite calls it
        return TroubledFile(name, flags)


@pytest.fixture
def disk() -> Iterator[type[Trouble]]:
    vfs = TroubledDisk()
    yield Trouble
    Trouble.full = Trouble.sync_fails = False
    vfs.unregister()


async def test_a7_a_full_disk_refuses_appends_until_there_is_room(
    path: Path, disk: type[Trouble]
) -> None:
    journal = SqliteJournal(path, vfs="troubled")
    await journal.append("run", notes("before"))
    disk.full = True
    for _ in range(2):
        with pytest.raises(JournalFull, match="make room"):
            await journal.append("run", notes("lost"))
    assert await texts_of(journal) == ["before"]
    disk.full = False
    await journal.append("run", notes("after"))
    assert await texts_of(journal) == ["before", "after"]
    await journal.close()


async def test_a9_after_a_failed_sync_nothing_is_acknowledged_until_reopened(
    path: Path, disk: type[Trouble]
) -> None:
    journal = SqliteJournal(path, vfs="troubled")
    epoch = await journal.leases.lead("run")
    await journal.append("run", notes("before"), epoch=epoch)
    disk.sync_fails = True
    answers = await asyncio.gather(
        *(journal.append("run", notes("lost")) for _ in range(5)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [JournalFailed] * 5
    disk.sync_fails = False  # a second sync would say that all is well, and it would be a lie
    with pytest.raises(JournalFailed, match="open the journal again"):
        await journal.append("run", notes("lost"))
    with pytest.raises(JournalFailed):
        await journal.leases.lead("run")
    assert not journal.leases.is_valid()
    assert await texts_of(journal) == ["before"]
    await journal.close()
    again = SqliteJournal(path)
    assert (await texts_of(again))[0] == "before"
    await again.append("run", notes("after"))
    await again.close()


async def test_a_file_that_was_deleted_under_a_journal_at_work_is_told(
    journal: SqliteJournal, path: Path
) -> None:
    await journal.append("run", notes("a"))
    path.unlink()

    async def go_on() -> None:
        while True:
            await journal.append("run", notes("into nowhere"))

    with pytest.raises(JournalFailed, match="deleted while it was in use"):
        await asyncio.wait_for(go_on(), 20)


async def test_a_lock_held_too_long_is_told_and_then_forgotten(
    open_here: Callable[..., SqliteJournal], path: Path
) -> None:
    journal = open_here(patience=QUICK)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalBusy, match="another program"):
        await journal.append("run", notes("a"))
    other.execute("ROLLBACK")
    other.close()
    await journal.append("run", notes("b"))
    assert await texts_of(journal) == ["b"]


async def test_a_file_locked_by_another_program_cannot_be_opened(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE; CREATE TABLE t (a)")
    with pytest.raises(JournalBusy):
        open_journal(path, patience=QUICK)
    other.close()


READ_ONLY = """
import asyncio, os, sys
from pathlib import Path
from chargehand.errors import JournalReadOnly
from chargehand.journal.open_journal import open_journal
import chargehand.journal.sqlite
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    open_journal(sys.argv[1])
except JournalReadOnly as error:
    sys.exit(0 if "right to write" in str(error) else 3)
sys.exit(4)
"""


@pytest.mark.parametrize("locked", ["folder", "file", "missing"])
def test_a14_a_place_without_the_right_to_write_is_refused_at_the_start(locked: str) -> None:
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    path = folder / "runs.db"
    try:
        asyncio.run(SqliteJournal(path).close())
        folder.chmod(0o755 if locked == "file" else 0o555)
        path.chmod(0o444)
        where = folder / "sub" / "runs.db" if locked == "missing" else path
        run = [sys.executable, "-c", READ_ONLY, str(where)]
        assert subprocess.run(run, timeout=60, check=False).returncode == 0
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_every_refusal_is_an_error_of_ours() -> None:
    path = Path("runs.db")
    expected: list[tuple[Exception, int, type[ChargehandError]]] = [
        (apsw.FullError(""), 0, JournalFull),
        (apsw.IOError(""), errno.ENOSPC, JournalFull),
        (apsw.IOError(""), errno.EIO, JournalFailed),
        (apsw.ReadOnlyError(""), 0, JournalReadOnly),
        (apsw.CantOpenError(""), errno.EACCES, JournalReadOnly),
        (apsw.CantOpenError(""), 0, JournalError),
        (apsw.BusyError(""), 0, JournalBusy),
        (apsw.CorruptError(""), 0, JournalDamaged),
        (apsw.NotADBError(""), 0, JournalDamaged),
        (apsw.SQLError(""), 0, JournalError),
        (apsw.IOError(""), errno.EFBIG, JournalFull),
        (OSError(errno.EFBIG, ""), 0, JournalFull),
        (OSError(errno.EROFS, ""), 0, JournalReadOnly),
        (OSError(errno.EIO, ""), 0, JournalFailed),
    ]
    for error, number, kind in expected:
        assert type(refusal(error, path, number)) is kind


# Blobs


async def test_a_blob_lies_beside_the_journal_and_is_written_once(
    journal: SqliteJournal, path: Path
) -> None:
    digest = await journal.blobs.put(b"data")
    file = Path(f"{path}-blobs") / digest[:2] / digest
    first = file.stat()
    await journal.blobs.put(b"data")
    assert file.stat().st_ino == first.st_ino
    assert [entry.name for entry in file.parent.iterdir()] == [digest]


async def test_a_changed_blob_is_damage(journal: SqliteJournal, path: Path) -> None:
    digest = await journal.blobs.put(b"data")
    (Path(f"{path}-blobs") / digest[:2] / digest).write_bytes(b"date")
    with pytest.raises(JournalDamaged, match=digest):
        await journal.blobs.get(digest)


async def test_a_blob_is_named_by_a_digest_and_by_no_path(journal: SqliteJournal) -> None:
    for name in ("../../etc/passwd", "", "AB" * 16):
        with pytest.raises(UsageError):
            await journal.blobs.get(name)


async def test_a8_a_full_blob_store_leaves_the_journal_at_work(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(blobs, "write_whole", write)
    with pytest.raises(JournalFull, match="blob store"):
        await journal.blobs.put(b"data")
    await journal.append("run", notes("goes on"))


async def test_blobs_may_lie_elsewhere(
    open_here: Callable[..., SqliteJournal], tmp_path: Path
) -> None:
    journal = open_here(blob_dir=tmp_path / "far")
    digest = await journal.blobs.put(b"data")
    assert (tmp_path / "far" / digest[:2] / digest).read_bytes() == b"data"


async def forget(journal: SqliteJournal, run: str) -> None:
    await journal.storage.forget([run], known=["living"])
    async for _ in journal.storage.sweep():
        pass


async def test_forgetting_deletes_old_blobs_that_no_event_names_any_more(
    journal: SqliteJournal, path: Path
) -> None:
    shared, own, fresh = [await journal.blobs.put(name) for name in (b"shared", b"own", b"fresh")]
    for digest in (shared, own):
        file = Path(f"{path}-blobs") / digest[:2] / digest
        os.utime(file, (time.time() - 86_400,) * 2)
    ended = RunFinished(at=NOON, status=RunStatus.SUCCEEDED)
    await journal.append("old", [names(shared), names(own), names(fresh), ended])
    await journal.append("living", [names(shared)])
    await forget(journal, "old")
    assert await journal.blobs.get(shared) == b"shared"
    assert await journal.blobs.get(fresh) == b"fresh"
    with pytest.raises(JournalDamaged):
        await journal.blobs.get(own)
    # What was too fresh then goes with a later forgetting.
    os.utime(Path(f"{path}-blobs") / fresh[:2] / fresh, (time.time() - 86_400,) * 2)
    await forget(journal, "old")
    with pytest.raises(JournalDamaged):
        await journal.blobs.get(fresh)


async def test_a_blob_that_no_event_ever_named_goes_after_a_day(
    journal: SqliteJournal, path: Path
) -> None:
    """Its process died after it had put the blob, and before it could name it."""
    old, fresh = [await journal.blobs.put(name) for name in (b"old", b"fresh")]
    for digest, age in ((old, 90_000), (fresh, 80_000)):
        os.utime(Path(f"{path}-blobs") / digest[:2] / digest, (time.time() - age,) * 2)
    await forget(journal, "nothing")
    assert await journal.blobs.get(fresh) == b"fresh"
    with pytest.raises(JournalDamaged):
        await journal.blobs.get(old)


async def test_the_file_shrinks_when_runs_are_forgotten(journal: SqliteJournal, path: Path) -> None:
    ended = RunFinished(at=NOON, status=RunStatus.SUCCEEDED)
    words = [ProgressNoted(at=NOON, task="t1", attempt=1, text="x" * 3_000) for _ in range(1_000)]
    await journal.append("old", [*words, ended])
    await journal.append("living", [ended])
    await forget(journal, "old")
    await journal.close()
    assert path.stat().st_size < 500_000


def names(digest: str) -> AttemptFinished:
    value = Value(blob=digest, size=6)
    return AttemptFinished(at=NOON, task="t1", attempt=1, outcome=Done(value))
