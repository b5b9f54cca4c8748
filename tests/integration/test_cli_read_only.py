"""Journals that this user may only read: commands that look at runs work, and change nothing beside them."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.errors import JournalFull, JournalReadOnly
from chargehand.journal.sqlite import SqliteJournal
from tests.chaos.disks import fill, small_disk
from tests.chaos.needs import Needs
from tests.guide.conftest import make_plan, make_task


@ch.worker("clerk", "Is done at once")
async def clerk(brief: ch.Brief) -> str:
    return "filed"


@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


Forbid = Callable[..., None]


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A journal with a run that is done and one that asks."""
    place = str(tmp_path / "runs.db")

    async def work() -> None:
        async with ch.Supervisor([clerk, asker], journal=place, on_question="return") as boss:
            await boss.run(make_plan(make_task("a", "clerk")))
            await boss.run(make_plan(make_task("b", "asker")))

    asyncio.run(work())
    return place


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Forbid:
    """Take rights away from this user, who may be root and then has all of them."""

    def taken(kind: int, *paths: str) -> None:
        allowed = os.access
        monkeypatch.setattr(
            os,
            "access",
            lambda path, mode, **more: (
                not (mode == kind and str(path) in paths) and allowed(path, mode, **more)
            ),
        )

    return taken


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_commands_that_look_at_runs_read_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid, tmp_path: Path, locked: str
) -> None:
    before = files_in(tmp_path)
    forbid(os.W_OK, journal if locked == "file" else str(tmp_path))
    for words in (
        ["runs"],
        ["status"],
        ["show", "last"],
        ["trace", "last"],
        ["notes", "last", "--all"],
        ["blocks", "last"],
        ["talk", "last"],
        ["verify"],
    ):
        told = chargehand(*words, "--journal", journal)
        assert told.exit_code == 0, (words, told.output)
    assert "Which colour?" in chargehand("show", "last", "--journal", journal).stdout
    assert files_in(tmp_path) == before


def test_a_command_that_would_write_is_refused_by_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid
) -> None:
    forbid(os.W_OK, journal)
    for words in (["answer", "last", "red"], ["cancel", "last"], ["steer", "last", "Hurry"]):
        told = chargehand(*words, "--journal", journal)
        assert (told.exit_code, "cannot be written" in told.stderr) == (2, True), told.output


def test_a_supervisor_with_workers_refuses_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid
) -> None:
    forbid(os.W_OK, journal)
    with pytest.raises(JournalReadOnly):
        ch.Supervisor([clerk], journal=journal)


@pytest.mark.parametrize("part", ["", "-head"])
@pytest.mark.parametrize("command", ["runs", "status", "verify"])
def test_a_journal_that_cannot_even_be_read_is_told_as_that(
    journal: str, forbid: Forbid, part: str, command: str
) -> None:
    forbid(os.R_OK, journal + part)
    forbid(os.W_OK, journal)
    told = chargehand(command, "--journal", journal)
    assert told.exit_code == 2
    assert f"{journal}{part} cannot be read" in told.stderr


def test_a_log_that_another_process_writes_is_read_too(journal: str, forbid: Forbid) -> None:
    async def watched() -> Result:
        async with ch.Supervisor([clerk], journal=journal) as boss:
            await boss.run(make_plan(make_task("fresh", "clerk")))
            forbid(os.W_OK, journal)
            return await asyncio.to_thread(chargehand, "show", "last", "--journal", journal)

    assert "fresh" in asyncio.run(watched()).stdout


# A7: the disk of the journal is full


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small disk, in memory, of its own."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(small_disk(tmp_path / "disk", "900k"))
        except Needs as error:
            pytest.skip(str(error))


def killed_at_work(journal: str) -> None:
    """Leave the log of a process that died."""
    done = subprocess.run([sys.executable, "-c", KILLED, journal], check=False)
    assert done.returncode == -signal.SIGKILL


KILLED = """
import os, signal, sys
import chargehand as ch

@ch.worker("w", "Dies at work")
async def w(brief: ch.Brief) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

plan = ch.Plan(goal="Die", tasks=[ch.Task(id="t", description="Die", worker="w")])
ch.Supervisor([w], journal=sys.argv[1]).run_sync(plan)
"""
LOOKING = (["runs"], ["status"], ["show", "last"], ["trace", "last"], ["verify"])


@pytest.mark.parametrize("left", ["nothing", "log", "log and index"])
def test_a7_commands_that_look_at_runs_read_a_journal_on_a_full_disk(
    full_disk: Path, left: str
) -> None:
    """Also where a process died: then its log is read, and there is no room for SQLite's index of it."""
    place = str(full_disk / "runs.db")

    async def work() -> None:
        async with ch.Supervisor([clerk], journal=place) as boss:
            await boss.run(make_plan(make_task("a", "clerk")))

    asyncio.run(work())
    if left != "nothing":
        killed_at_work(place)
    if left == "log":
        Path(f"{place}-shm").unlink()
    for words in LOOKING:
        ballast = fill(full_disk).rename(full_disk / f"ballast-{words[0]}")
        told = chargehand(*words, "--journal", place)
        assert (told.exit_code, "damaged" in told.output) == (0, False), (words, told.output)
    for words in (["prune", "--keep", "0"], ["cancel", "last"]) if left != "nothing" else ():
        told = chargehand(*words, "--journal", place)
        assert (told.exit_code, "its disk is full" in told.stderr) == (2, True), told.output
    with pytest.raises(JournalFull):
        ch.Supervisor([clerk], journal=place)
    for ballast in full_disk.glob("ballast-*"):
        ballast.unlink()
    told = chargehand("verify", "--journal", place)
    assert "no damage found" in told.output
    assert len(chargehand("runs", "--journal", place).stdout.splitlines()) == (
        2 if left == "nothing" else 3
    )


def test_a_limit_on_the_size_of_files_is_named(journal: str) -> None:
    """`runs` reads the journal all the same; what would write names the limit."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_240, limits[1]))
    try:
        assert chargehand("runs", "--journal", journal).exit_code == 0
        told = chargehand("prune", "--keep", "0", "--journal", journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (told.exit_code, "ulimit -f" in told.stderr) == (2, True), told.output


def test_status_tells_of_an_interrupted_run_that_this_user_may_only_read(
    tmp_path: Path, forbid: Forbid
) -> None:
    place = str(tmp_path / "left.db")
    killed_at_work(place)
    forbid(os.W_OK, place)
    told = chargehand("status", "--journal", place)
    assert (told.exit_code, "interrupted" in told.stdout) == (0, True), told.output


# Files that are no journal


@pytest.mark.parametrize("content", [b"x", b"The notes of a person\n", bytes(8192)])
@pytest.mark.parametrize("command", ["runs", "status", "verify", "run"])
def test_a_file_that_is_no_journal_is_told_as_that_and_left_as_it_is(
    tmp_path: Path, content: bytes, command: str
) -> None:
    place = tmp_path / "notes.db"
    place.write_bytes(content)
    more = ["Hello", "--model", "offline"] if command == "run" else []
    told = chargehand(command, *more, "--journal", str(place))
    assert told.exit_code == 2
    assert "is not a chargehand journal" in told.stderr
    assert "damaged" not in told.output
    assert files_in(tmp_path) == {"notes.db": content}


@pytest.mark.parametrize("content", [b"x", bytes(8192)])
def test_a_journal_that_lost_its_header_is_damaged(journal: str, content: bytes) -> None:
    """Its head mark says that it was one."""
    Path(journal).write_bytes(content)
    told = chargehand("runs", "--journal", journal)
    assert (told.exit_code, "damaged" in told.stderr) == (2, True)


TAKE_LOCK = """
import fcntl, sys

with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
"""


async def test_a_check_of_a_journal_leaves_the_locks_of_this_process(journal: str) -> None:
    """To open and close the file by other means than SQLite would end them, and with them the log in use."""
    async with SqliteJournal(Path(journal)) as opened:
        before = await opened.heads()
        again = SqliteJournal(Path(journal))
        await again.close()
        taken = [sys.executable, "-c", TAKE_LOCK, journal]
        done = subprocess.run(taken, check=False, capture_output=True, text=True)
        assert "BlockingIOError" in done.stderr, "another program could take the file for its own"
        assert await opened.heads() == before
