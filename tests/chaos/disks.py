"""A7, A8, A9, A10, A14: disks that are full, failing, slow or locked."""

import asyncio
import contextlib
import logging
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import chargehand as ch
from chargehand.errors import JournalFailed, JournalReadOnly
from chargehand.facts.events import RunFinished
from chargehand.journal.base import Journal

from . import client
from .kills import Lives, live
from .needs import Needs, require
from .oracle import Verdict, check_ended, compare, read_copy, read_journal, verify
from .powercut import Disk, NotingFile, NotingVFS, Recorder, Telling, told


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of its own, in memory, of this size."""
    folder.mkdir(parents=True)
    options = f"size={size},mode=0700"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "chargehand-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        raise Needs("needs the right to mount a small disk (root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def fill(folder: Path) -> Path:
    """Take all the room that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


class MachineDelay:
    """How late this process is woken while it only sleeps: the share of the machine in what a client measures."""

    def __init__(self) -> None:
        self._lates: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def __enter__(self) -> "MachineDelay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _tick(self) -> None:
        while not self._is_over.is_set():
            before = time.monotonic()
            time.sleep(0.005)
            self._lates.append(time.monotonic() - before - 0.005)

    @property
    def p99(self) -> float:
        return client.p99_of(self._lates)


class Heard(logging.Handler):
    """What was logged, as a test can wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())

    def has(self, word: str) -> bool:
        return any(word in words for words in self.words)


@contextlib.contextmanager
def hearing() -> Iterator[Heard]:
    heard = Heard()
    logger = logging.getLogger("chargehand")
    logger.addHandler(heard)
    try:
        yield heard
    finally:
        logger.removeHandler(heard)


async def until(is_so: Callable[[], bool], patience: float = 20.0) -> bool:
    """Wait for something another thread or process does; False if it never comes."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def here(shape: str, **options: object) -> client.MemoryLog:
    """Be a client in this process: the log that it writes to."""
    log = client.MemoryLog()
    client.log = log
    client.options = client.Options(shape=shape, **options)  # type: ignore[arg-type]
    return log


def a7_trial(seed: int, folder: Path) -> Verdict:
    """The journal's disk is full in the middle of a run, and then it is not."""
    rng = random.Random(f"A7 {seed}")
    verdict = Verdict()
    log = here("small", pause=0.01)

    async def run(disk: Path) -> None:
        journal = ch.open_journal(disk / "runs.db", blob_dir=folder / "blobs")
        async with client.supervisor_on(journal, log) as boss:
            leading = asyncio.ensure_future(client.lead(boss, "chaos"))
            wanted = rng.randint(8, 60)
            await until(lambda: len(log.kept) >= wanted)
            ballast = fill(disk)
            with hearing() as heard:
                is_full = await until(lambda: heard.has("journal_not_writable") or leading.done())
            verdict.fired += is_full and not leading.done()
            if not leading.done():
                await _read_while_full(boss, journal, log, verdict)
            ballast.unlink()
            await leading
        await journal.close()

    with small_disk(folder / "disk", "1m") as disk:
        asyncio.run(run(disk))
        runs = read_journal(disk / "runs.db", blob_dir=folder / "blobs")
    verdict.add(verify(runs, log.lines()))
    check_ended(runs, verdict)
    return verdict


async def _read_while_full(
    boss: ch.Supervisor, journal: Journal, log: client.MemoryLog, verdict: Verdict
) -> None:
    run = next(line["run"] for line in log.kept if "ack" in line)
    await asyncio.sleep(
        0.05
    )  # what was acknowledged before the disk was full has been heard by now
    told_before = sum("ack" in line for line in log.kept)
    times: list[float] = []
    for _ in range(20):
        before = time.monotonic()
        await boss.look(run)
        entries = [entry async for entry in journal.read(run)]
        times.append(time.monotonic() - before)
        verdict.must(len(entries) >= told_before, "a read while full is short of what was told")
    verdict.figures["read_ms"] = sorted(times)[18] * 1000
    verdict.must(sorted(times)[18] < 0.2, f"reading while full takes {sorted(times)[18]:.3f} s")
    told_after = sum("ack" in line for line in log.kept)
    verdict.must(told_before == told_after, "something was acknowledged while the disk was full")


def a8_trial(seed: int, folder: Path) -> Verdict:
    """Only the blobs' disk is full: what needs it fails by its name, the rest and the journal do not."""
    verdict = Verdict()
    log = here("wide")

    async def run(disk: Path) -> ch.RunResult:
        journal = ch.open_journal(folder / "runs.db", blob_dir=disk)
        async with client.supervisor_on(journal, log) as boss:
            result = await client.lead(boss, "chaos")
        await journal.close()
        return result

    with small_disk(folder / "blobs", f"{64 + seed % 4 * 64}k") as disk:
        fill(disk)
        result = asyncio.run(run(disk))
        for id_, task in result.tasks.items():
            if task.task.worker != "large":
                continue
            kind = None if task.error is None else (task.error.kind, task.error.error)
            is_typed = kind == (ch.ErrorClass.RESOURCE, "JournalFull") or task.state.value in (
                "skipped",
                "cancelled",
            )
            verdict.fired += kind is not None
            verdict.must(is_typed, f"{id_} is {task.state.value} by {kind}")
        runs = read_journal(folder / "runs.db", blob_dir=disk)
    verdict.add(verify(runs, log.lines()))
    check_ended(runs, verdict, "partial")
    return verdict


class FailingFile(NotingFile):
    """Its n-th sync since the run began fails."""

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        recorder = self._recorder
        assert isinstance(recorder, FailingRecorder)
        recorder.left -= 1
        if recorder.left == 0:
            recorder.note("failed", self.name)
            raise apsw.IOError("the disk says no")
        super().xSync(flags)


class FailingRecorder(Recorder):
    #: syncs until the one that fails
    left = -1


class FailingVFS(NotingVFS):
    file_type = FailingFile


def a9_exact_trial(seed: int, folder: Path) -> Verdict:
    """A sync fails once: nothing is acknowledged then that was not on disk before."""
    rng = random.Random(f"A9 {seed}")
    folder.mkdir(parents=True)
    verdict = Verdict()
    recorder = FailingRecorder(folder)
    name = f"failing {folder}"
    vfs = FailingVFS(recorder, name)
    client.log = Telling("failing", recorder)
    client.options = client.Options(shape="small")

    async def run() -> str:
        journal = ch.open_journal(folder / "runs.db", vfs=name)
        recorder.left = rng.randint(2, 40)
        try:
            async with client.supervisor_on(journal, client.log) as boss:
                await client.lead(boss, "chaos")
        except JournalFailed as error:
            verdict.must("open the journal again" in str(error), f"it said {error}")
            return "failed"
        finally:
            await journal.close()
        return "ended"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", recorder.fsync)
        ended = asyncio.run(run())
    vfs.unregister()
    failures = [place for place, op in enumerate(recorder.ops) if op.kind == "failed"]
    verdict.fired += len(failures)
    if not failures:
        return verdict  # the run was over before
    was_over = any(
        line["ack"]["kind"] == RunFinished.__name__
        for line in told(recorder.ops[: failures[0]])
        if "ack" in line
    )
    verdict.must(was_over or ended == "failed", "the run ended as if its disk were sound")
    # The strictest reading: only what had been synced when the sync failed may ever be told.
    disk = Disk()
    for op in recorder.ops[: failures[0]]:
        disk.do(op)
    before = folder.with_name(f"{folder.name}.before")
    disk.rebuild(before, luck=0.0)
    compare(read_journal(before / "runs.db"), told(recorder.ops), verdict)
    shutil.rmtree(before)
    return verdict


def a9_trial(seed: int, folder: Path) -> Verdict:
    """The same with the kernel's own word: a process whose fdatasync or fsync returns EIO once."""
    require("strace")
    rng = random.Random(f"A9 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    # Opening the journal syncs seven times in another thread, whose count is its own.
    call, nth = rng.choice([("fdatasync", rng.randint(8, 30)), ("fsync", 1)])
    trace = folder.with_name(f"{folder.name}.strace")
    ended = live(
        folder,
        ["-o", str(trace), "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when={nth}"],
        shape="plain",
        pause=0.05,
    )
    is_fired = "(INJECTED)" in trace.read_text("utf-8", "replace")
    lives.verdict.fired += is_fired
    errors = [line["error"] for line in lives.lines() if "error" in line]
    wanted = (3, ["JournalFailed"]) if is_fired else (0, [])
    lives.verdict.must((ended, errors) == wanted, f"{call} {nth}: it ended with {ended}, {errors}")
    lives.look()
    trace.unlink()
    return lives.finish(shape="plain")


def a10_trial(seed: int, folder: Path) -> Verdict:
    """Every sync takes 200 ms: what happens meanwhile is written together, and the loop runs on.

    A busy machine can hold the loop up as well. A sync that blocks it does so in each of three tries.
    """
    verdict = Verdict()
    for number in range(3):
        stall, delay = _a10_try(folder / str(number), verdict)
        if stall < 0.05 + delay:
            break
    # The last try counts: a sync that blocked the loop would hold it for 200 ms more than the busy machine does.
    verdict.figures["stall_ms"] = stall * 1000
    verdict.must(
        stall < 0.05 + delay,
        f"the event loop stood still for {stall * 1000:.0f} ms, a thread that only slept for {delay * 1000:.0f} ms",
    )
    return verdict


def _a10_try(folder: Path, verdict: Verdict) -> tuple[float, float]:
    """How long the event loop stood still, and a thread that only slept: the 99th percentiles, in seconds."""
    require("strace")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    trace = folder.with_name(f"{folder.name}.strace")
    with MachineDelay() as delay:
        ended = live(
            folder,
            [
                "-o",
                str(trace),
                "-e",
                "trace=fdatasync",
                "-e",
                "inject=fdatasync:delay_enter=200000",
            ],
            shape="flat",
        )
    verdict.must(ended == 0, f"it ended with {ended}")
    syncs = len(re.findall("DELAYED", trace.read_text("utf-8", "replace")))
    trace.unlink()
    lines = lives.lines()
    events = sum("ack" in line for line in lines)
    stall = next(line["stall_p99"] for line in lines if "stall_p99" in line)
    verdict.fired += syncs
    verdict.figures["events_per_sync"] = events / max(syncs, 1)
    verdict.must(events > 4 * syncs, f"{syncs} syncs for {events} events")
    runs = read_copy(folder)
    verdict.add(verify(runs, lines))
    check_ended(runs, verdict)
    return stall, delay.p99


def a14_trial(seed: int, folder: Path) -> Verdict:
    """A folder that cannot be written is refused at the start, in words; what is there stays."""
    verdict = Verdict()
    with small_disk(folder / "disk", "4m") as disk:
        live(disk, shape="plain")
        before = read_journal(disk / "runs.db")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for path in (disk / "runs.db", disk / "new" / "runs.db"):
            try:
                ch.Supervisor(client.WORKERS, journal=path)
                verdict.faults.append(f"{path.name} was opened on a read-only disk")
            except JournalReadOnly as error:
                verdict.fired += 1
                verdict.must(str(path) in str(error) and "right" in str(error), f"it said {error}")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        verdict.must(read_journal(disk / "runs.db") == before, "the journal has changed")
    return verdict


def a14_later_trial(seed: int, folder: Path) -> Verdict:
    """The right to write is lost in the middle of a run, for a while: the run waits and goes on."""
    require("strace")
    rng = random.Random(f"A14 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    first = rng.randint(50, 150)  # opening writes 38 times in another thread
    trace = folder.with_name(f"{folder.name}.strace")
    ended = live(
        folder,
        [
            "-o",
            str(trace),
            "-e",
            "trace=pwrite64",
            "-e",
            f"inject=pwrite64:error=EROFS:when={first}..{first + 1}",
        ],
        shape="plain",
    )
    lives.verdict.fired += "(INJECTED)" in trace.read_text("utf-8", "replace")
    trace.unlink()
    said = (folder / "stderr").read_text("utf-8", "replace")
    lives.verdict.must(ended == 0, f"it ended with {ended}: {said[-500:]}")
    lives.verdict.must("journal_not_writable" in said, "nobody was told")
    lives.look()
    return lives.finish(shape="plain")
