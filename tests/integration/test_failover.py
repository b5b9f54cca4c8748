"""Serving supervisors: a standby takes up what a dead or frozen leader left, by itself and once."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.errors import JournalDamaged, UsageError
from chargehand.facts.events import Event, RunFinished, RunLed, RunReleased
from chargehand.journal.base import Journal, Mail
from chargehand.journal.memory import MemoryJournal
from tests.guide.conftest import make_plan, make_task
from tests.postgres_server import PostgresServer, programs, running_server

#: serves a journal; its worker writes a line, waits for a file, and writes another line
SERVER = """
import asyncio, os, signal, sys
import chargehand as ch

place, namespace, folder = sys.argv[1:4]

def line(name):
    with open(os.path.join(folder, "lines"), "a") as file:
        file.write(name + "\\n")

@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    await brief.step("first", line, brief.task.id + " first", effect="once")
    while not os.path.exists(os.path.join(folder, "go")):
        await asyncio.sleep(0.02)
    await brief.step("second", line, brief.task.id + " second", effect="once")
    return brief.task.id

async def main():
    journal = ch.open_journal(place, lease=1.0, namespace=namespace)
    boss = ch.Supervisor([clerk], journal=journal, limits=ch.Limits(parallel=500))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(boss.stop(0)))
    print(journal.leases.node, flush=True)
    await boss.serve()
    await journal.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("needs PostgreSQL; get it with: apt-get install postgresql")
    with running_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where the journal is, and its namespace."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.db"), ""
    started: PostgresServer = request.getfixturevalue("server")
    return started.dsn, secrets.token_hex(8)


class Serving:
    """A process that serves."""

    def __init__(self, place: tuple[str, str], folder: Path) -> None:
        command = [sys.executable, "-c", SERVER, *place, str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.node = self.process.stdout.readline().strip()

    def send(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)


@contextmanager
def serving(place: tuple[str, str], folder: Path) -> Iterator[Callable[[], Serving]]:
    started: list[Serving] = []

    def start() -> Serving:
        started.append(Serving(place, folder))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            if each.process.poll() is None:
                each.send(signal.SIGCONT)
                each.process.kill()
            each.process.wait(10)
            assert each.process.stdout is not None
            each.process.stdout.close()


def lines_in(folder: Path) -> list[str]:
    file = folder / "lines"
    return file.read_text().splitlines() if file.exists() else []


async def until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    return ""


def journal_at(place: tuple[str, str]) -> Journal:
    return ch.open_journal(place[0], namespace=place[1])


async def leaders_of(journal: Journal, run: str) -> list[str]:
    entries = [entry.event async for entry in journal.read(run)]
    return [event.node for event in entries if isinstance(event, RunLed)]


async def test_the_runs_of_a_server_that_stops_are_taken_over(
    place: tuple[str, str], tmp_path: Path
) -> None:
    plan = make_plan(make_task("t0", worker="clerk"))
    with serving(place, tmp_path) as start:
        first = start()
        journal = journal_at(place)
        boss = ch.Supervisor([clerk], journal=journal)
        run = await boss.post(plan)
        await until(lambda: len(lines_in(tmp_path)) == 1)
        second = start()
        first.send(signal.SIGTERM)
        await asyncio.to_thread(first.process.wait, 20)
        assert first.process.returncode == 0
        (tmp_path / "go").touch()
        events = [event async for event in boss.watch(run)]
        assert await leaders_of(journal, run) == [first.node, second.node]
        await journal.close()
    assert isinstance(events[-1], RunFinished)
    assert lines_in(tmp_path) == ["t0 first", "t0 second"]


async def test_a_run_that_was_released_waits_until_it_is_resumed(
    place: tuple[str, str], tmp_path: Path
) -> None:
    entered = asyncio.Event()

    @ch.worker("clerk", "Writes lines")
    async def slow(brief: ch.Brief) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    first = journal_at(place)
    boss = ch.Supervisor([slow], journal=first)
    run = await boss.submit(make_plan(make_task("t0", worker="clerk")))
    await entered.wait()
    await boss.stop(0)
    await first.close()
    with serving(place, tmp_path) as start:
        start()
        journal = journal_at(place)
        await ch.Supervisor([clerk], journal=journal).post(
            make_plan(make_task("t0", worker="clerk"))
        )
        await until(lambda: len(lines_in(tmp_path)) == 1)  # it works, and has left the first alone
        assert await journal.leases.abandoned() == []
        assert len(await leaders_of(journal, run.id)) == 1
        await journal.close()


async def test_a_run_that_needs_other_workers_is_left_alone_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @ch.worker("smith", "Forges")
    async def smith(brief: ch.Brief) -> str:
        return ""

    file = str(tmp_path / "runs.db")
    gone = ch.open_journal(file)
    boss = ch.Supervisor([clerk], journal=gone)
    run = await boss.submit(make_plan(make_task("t0", worker="clerk")))
    await run.wait()
    epoch = await gone.leases.lead("left")
    requested = [entry.event async for entry in gone.read(run.id)][:3]
    await gone.append("left", [_of("left", event) for event in requested], epoch=epoch)
    await gone.close()
    other = ch.Supervisor([smith], journal=file)
    serving = asyncio.create_task(other.serve())
    await until(lambda: "run_not_taken_over run=left" in caplog.text)
    await other.stop(0)
    await serving
    assert "clerk" in caplog.text
    assert await other.journal.leases.abandoned() == ["left"]  # to those who have its workers
    await other.close()


async def test_a_second_stop_ends_a_server_at_once(tmp_path: Path) -> None:
    entered, forever = asyncio.Event(), asyncio.Event()

    @ch.worker("clerk", "Writes lines")
    async def slow(brief: ch.Brief) -> str:
        entered.set()
        await forever.wait()
        return ""

    boss = ch.Supervisor([slow], journal=str(tmp_path / "runs.db"))
    await boss.post(make_plan(make_task("t0", worker="clerk")))
    serving = asyncio.create_task(boss.serve())
    await entered.wait()
    gently = asyncio.create_task(boss.stop(3600))
    await asyncio.sleep(0)
    await boss.stop(0)
    await asyncio.wait_for(serving, 20)
    gently.cancel()
    await boss.close()


def _of(run: str, event: Event) -> Event:
    return replace(event, run=run) if hasattr(event, "run") else event


async def test_a_run_whose_leaders_die_without_progress_is_parked_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = str(tmp_path / "runs.db")
    boss = ch.Supervisor([clerk], journal=file)
    done = await boss.run(make_plan(make_task("t0", worker="clerk")))
    first = [entry.event async for entry in boss.journal.read(done.id)][:3]
    await boss.close()
    for _ in range(2):
        dead = ch.open_journal(file)
        epoch = await dead.leases.lead("deadly")
        led = next(each for each in first if isinstance(each, RunLed))
        events = [_of("deadly", each) for each in first] if epoch == 1 else [led]
        await dead.append("deadly", events, epoch=epoch)
        await dead.close()
    boss = ch.Supervisor([clerk], journal=file)
    serving = asyncio.create_task(boss.serve())
    await until(lambda: "run_parked run=deadly" in caplog.text)
    last = [entry.event async for entry in boss.journal.read("deadly")][-1]
    assert isinstance(last, RunReleased)
    assert last.is_parked
    assert await boss.journal.leases.abandoned() == []
    await boss.stop(0)
    await serving
    await boss.close()


async def test_a_journal_in_memory_cannot_be_served() -> None:
    with pytest.raises(UsageError, match="journal="):
        await ch.Supervisor([clerk]).serve()


async def test_watching_a_run_that_nobody_has_taken_up_waits_for_it(tmp_path: Path) -> None:
    boss = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db"))
    run = await boss.post(make_plan(make_task("t0", worker="clerk")))

    async def kinds() -> list[str]:
        return [type(event).__name__ async for event in boss.watch(run)]

    watching = asyncio.create_task(kinds())
    await asyncio.sleep(0)
    async with boss:
        seen = await watching
    assert (seen[0], seen[-1]) == ("RunRequested", "RunFinished")
    with pytest.raises(UsageError, match="nowhere"):
        [event async for event in ch.Supervisor([clerk]).watch("nowhere")]


async def test_a_run_that_was_posted_is_submitted_until_a_process_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chargehand.supervisor.run_control.UNSTARTED", timedelta(0))
    boss = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db"))
    run = await boss.post(make_plan(make_task("t0", worker="clerk")))
    seen = await boss.look(run)
    assert (seen.status, seen.is_interrupted, seen.leader) == ("submitted", False, None)
    assert "t0 waits for a process that starts its run" in str(seen.tasks["t0"].waits_for)
    watching = asyncio.create_task(_ending(boss, run))
    await until(lambda: f"submission_waits run={run}; no process has started it" in caplog.text)
    async with boss:
        assert isinstance(await watching, RunFinished)
        assert (await boss.look(run)).status == "succeeded"


async def _ending(boss: ch.Supervisor, run: str) -> Event:
    return [event async for event in boss.watch(run)][-1]


async def test_a_run_is_not_posted_to_a_journal_in_memory_that_nobody_reads() -> None:
    plan = make_plan(make_task("t0", worker="clerk"))
    boss = ch.Supervisor([clerk])
    with pytest.raises(UsageError, match=r"journal in memory; give journal='runs\.db'"):
        await boss.post(plan)
    async with boss:  # it takes the run itself
        run = await boss.post(plan)
        assert isinstance(await _ending(boss, run), RunFinished)
    shared = MemoryJournal()
    other = ch.Supervisor([clerk], journal=shared)
    assert await other.post(plan)  # a second supervisor of this program may have the journal


CREW = """
import chargehand as ch

@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    return "done: " + brief.task.description

boss = ch.Supervisor([clerk])
"""


def test_submitted_at_the_command_line_served_and_watched_in_others(tmp_path: Path) -> None:
    (tmp_path / "crew.py").write_text(CREW)
    plan = {"goal": "g", "tasks": [{"id": "t0", "description": "Write a line", "worker": "clerk"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    program = [sys.executable, "-m", "chargehand"]
    crew = ["--crew", "crew.py:boss", "--journal", "runs.db"]

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*program, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    submitted = command("submit", "--plan", "plan.json", *crew)
    assert submitted.returncode == 0, submitted.stderr
    run = submitted.stdout.strip()
    assert f"chargehand watch {run}" in submitted.stderr
    server = subprocess.Popen(
        [*program, "serve", *crew], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        watched = command("watch", run, "--journal", "runs.db")
        assert watched.returncode == 0, watched.stderr
        assert "done: Write a line" in watched.stdout
    finally:
        server.terminate()
        _, said = server.communicate(timeout=40)
    assert server.returncode == 0, said
    assert f"{run} is led here" in said
    assert f"{run} ended: succeeded" in said


async def test_a_server_whose_journal_is_damaged_ends_with_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db"))

    async def unread(*_: object) -> list[Mail]:
        raise JournalDamaged("a letter cannot be read")

    monkeypatch.setattr(type(boss.journal.mail), "unread", unread)
    with pytest.raises(JournalDamaged):
        async with asyncio.timeout(20):
            await boss.serve()
