"""J12: file descriptors, threads or memory run short for a while, and work goes on afterwards."""

import asyncio
import errno
import inspect
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from chargehand import sync_async_bridge
from chargehand.cli import main as cli
from chargehand.engines import local_engine as local
from chargehand.engines.base import Job
from chargehand.engines.brief import Brief
from chargehand.engines.local_engine import Threads
from chargehand.errors import JournalBusy, JournalFailed, OutOfThreads
from chargehand.facts.outcome import SHORTAGE, ErrorClass, classify
from chargehand.facts.plan import Task
from chargehand.journal.base import PATIENCE
from chargehand.journal.head_mark import HeadMark
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_errors import refusal
from chargehand.testing import run_virtual
from tests.integration.sqlite_at_hand import mark_of, notes, until

HERE = Path("runs.db")
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of Linux are set")
@pytest.mark.parametrize("what", ["files", "threads"])
def test_j12_a_run_goes_on_after_a_shortage(what: str) -> None:
    """In a process of its own, really short of them: RLIMIT_NOFILE, RLIMIT_NPROC."""
    command = [sys.executable, "-m", "tests.integration.shortage_at_work", what]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line.startswith("succeeded"), done.stdout
    assert done.stdout


@pytest.mark.parametrize("number", sorted(SHORTAGE))
def test_j12_a_shortage_is_no_broken_disk(number: int) -> None:
    assert isinstance(refusal(OSError(number, "short"), HERE), JournalBusy)
    for error in (apsw.IOError("disk I/O error"), apsw.CantOpenError("unable to open")):
        is_stale = number == errno.EAGAIN  # left from a lock that SQLite asked for twice
        assert isinstance(refusal(error, HERE, number), JournalBusy) is not is_stale
    assert classify(OSError(number, "short")) is ErrorClass.RESOURCE
    assert classify(JournalBusy("short")) is ErrorClass.RESOURCE


def test_j12_no_memory_is_no_broken_disk() -> None:
    for error in (MemoryError(), apsw.NoMemError("out of memory")):
        assert isinstance(refusal(error, HERE), JournalBusy)


@pytest.mark.parametrize("code", [apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC])
def test_a9_a_sync_that_failed_is_fatal_whatever_it_failed_for(code: int) -> None:
    error = apsw.IOError("disk I/O error")
    error.extendedresult = code  # type: ignore[attr-defined]  # set by SQLite; the stubs do not say so
    assert isinstance(refusal(error, HERE, errno.ENOMEM), JournalFailed)
    assert isinstance(refusal(OSError(errno.EIO, "broken"), HERE), JournalFailed)


async def test_j12_a_head_mark_that_cannot_be_written_now_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    refusals = [OSError(errno.EMFILE, "Too many open files")] * 2
    write = HeadMark.write

    def refuse_first(self: HeadMark, mark: Any) -> None:
        if refusals:
            raise refusals.pop()
        write(self, mark)

    monkeypatch.setattr("chargehand.journal.sqlite_writer.INTERVAL", 0.01)
    async with SqliteJournal(path) as journal:
        monkeypatch.setattr(HeadMark, "write", refuse_first)
        await journal.append("run", notes("one"))
        await until(lambda: b'"commit":1,' in mark_of(path))
        await journal.append("run", notes("two"))
    assert not refusals


def test_j12_a_function_that_found_no_thread_runs_once_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def work(brief: Brief) -> str:
        calls.append(brief.run)
        return "done"

    async def main() -> None:
        threads = Threads(1)
        start = threading.Thread.start
        refusals = [RuntimeError("can't start new thread")] * 3

        def refuse_first(thread: threading.Thread) -> None:
            if refusals:
                raise refusals.pop()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse_first)
        # None is left over from before, and a thread of another test that ends now is not kept.
        monkeypatch.setattr(sync_async_bridge, "_idle", deque(maxlen=0))
        task = Task(id="t", description="Work in a thread", worker="w")
        brief = Brief("run", task, 1, "w", {}, None)
        began = asyncio.get_running_loop().time()
        job = Job(brief, None)  # type: ignore[arg-type]  # not run as a whole here
        assert await threads.call(work, brief, job) == "done"
        assert asyncio.get_running_loop().time() - began == 3 * local.RETRY_START
        threads.close()

    run_virtual(main())
    assert calls == ["run"]


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> list[RuntimeError]:
    """What starting a thread raises, from the last on, until there is none left; no thread is left over from before."""
    refusals: list[RuntimeError] = []
    start = threading.Thread.start

    def refuse_first(thread: threading.Thread) -> None:
        if refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_first)
    # A thread of another test that ends now is not kept for the next call.
    monkeypatch.setattr(sync_async_bridge, "_idle", deque(maxlen=0))
    return refusals


SHORT = "can't start new thread"


def test_j12_a_call_that_finds_no_thread_waits_for_one(no_thread: list[RuntimeError]) -> None:
    async def main() -> float:
        no_thread.extend(RuntimeError(SHORT) for _ in range(5))
        began = asyncio.get_running_loop().time()
        assert await sync_async_bridge.in_thread(str, 7) == "7"
        return asyncio.get_running_loop().time() - began

    assert run_virtual(main()) == pytest.approx(5 * sync_async_bridge.PAUSE)


def test_j12_a_call_that_finds_no_thread_for_long_says_so(no_thread: list[RuntimeError]) -> None:
    async def main() -> None:
        no_thread.extend(RuntimeError(SHORT) for _ in range(1000))
        with pytest.raises(OutOfThreads, match=r"ulimit -v.*raise the limit"):
            await sync_async_bridge.in_thread(str, 7)

    run_virtual(main())


async def test_j12_what_must_be_closed_is_closed_without_a_thread(
    tmp_path: Path, no_thread: list[RuntimeError]
) -> None:
    journal = SqliteJournal(tmp_path / "runs.db")
    await journal.append("run", notes("one"))
    no_thread.extend(RuntimeError(SHORT) for _ in range(1000))
    await journal.close()
    no_thread.clear()
    async with SqliteJournal(tmp_path / "runs.db") as again:
        assert [head.stream for head in await again.heads()] == ["run"]


def test_j12_a_background_loop_that_found_no_thread_is_started_by_the_next_call(
    no_thread: list[RuntimeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be taken for one that runs: the call would wait for ever."""

    async def work() -> str:
        return "done"

    monkeypatch.setattr(sync_async_bridge, "_loop", None)
    monkeypatch.setattr(sync_async_bridge, "PATIENCE", 0.0)
    no_thread.append(RuntimeError(SHORT))
    with pytest.raises(OutOfThreads):
        sync_async_bridge.wait_in_background(work())
    assert sync_async_bridge.wait_in_background(work()) == "done"


def test_j12_a_shortage_of_threads_is_told_as_that() -> None:
    for error in (RuntimeError(SHORT), OutOfThreads()):
        assert classify(error) is ErrorClass.RESOURCE
    assert classify(RuntimeError("another")) is ErrorClass.LOGIC


@pytest.mark.parametrize("raised", [RuntimeError(SHORT), MemoryError()])
def test_j12_the_command_line_names_a_shortage(
    raised: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever met it: event loops start threads of their own, too."""

    def refuse(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("chargehand.cli.runs_show_trace.heads_in", refuse)
    told = CliRunner().invoke(cli, ["runs"])
    assert told.exit_code == 1
    assert "ulimit -v" in told.stderr
    assert "try again" in told.stderr


def test_a_lock_that_another_program_holds_is_reported_within_five_seconds() -> None:
    assert PATIENCE.total_seconds() <= 5
    for opening in (open_journal, SqliteJournal):
        assert inspect.signature(opening).parameters["patience"].default == PATIENCE
