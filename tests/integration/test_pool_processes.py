"""Threads of several processes share one journal file: each task is done once, whoever dies."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import pool as benchmark
from click.testing import CliRunner

import chargehand as ch
from chargehand.cli import main
from chargehand.journal.sqlite import SqliteJournal
from chargehand.past_runs import fold
from chargehand.patterns.pool import SharedMemoryPool, SupervisorAgent, WorkerAgent
from chargehand.sync_async_bridge import run_in_background

AT_WORK = Path(__file__).with_name("pool_at_work.py")
PROCESSES, THREADS = 4, 8
TASKS, RACING, WRITES = 400, 40, 384


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[SharedMemoryPool]:
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        yield pool


def begin(
    pool: SharedMemoryPool, request: str, process: int, threads: int, writes: object, racing: int
) -> "subprocess.Popen[str]":
    journal = pool.journal
    assert isinstance(journal, SqliteJournal)
    given = [str(each) for each in (journal.path, request, process, threads, writes, racing)]
    command = [sys.executable, str(AT_WORK), *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told_by(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    told: dict[str, Any] = json.loads(output.splitlines()[-1])
    return told


def tasks_of(plain: int, racing: int) -> list[ch.Task]:
    tasks = [ch.Task(id=f"t{n}", description=f"Count to {n}") for n in range(plain)]
    return tasks + [
        ch.Task(id=f"r{n}", description=f"Race for {n}", worker="anybody") for n in range(racing)
    ]


def test_four_processes_of_eight_threads_do_every_task_once(pool: SharedMemoryPool) -> None:
    """And the versions of a block that all of them write have no gap."""
    supervisor = SupervisorAgent(None, pool)
    names = [f"worker_{p}_{t}" for p in range(PROCESSES) for t in range(THREADS)]
    tasks = tasks_of(TASKS - RACING, RACING)
    request = supervisor.delegate("Count", names, tasks=tasks)[0]["request_id"]
    share = WRITES // len(names)
    crowd = [begin(pool, request, n, THREADS, share, RACING) for n in range(PROCESSES)]
    told = [told_by(process) for process in crowd]

    done = Counter(task for each in told for task in each["done"])
    assert done == Counter(task.id for task in tasks)
    assert supervisor.aggregate_results(request)["status"] == "succeeded"
    versions = sorted(version for each in told for version in each["versions"])
    assert versions == list(range(1, WRITES + 1))
    assert pool.read_block("seen")["version"] == WRITES
    run_in_background(fold(pool.journal, request, None)).result().schedule.check()


@pytest.mark.skipif(sys.platform == "win32", reason="a kill is told by its file lock")
def test_what_a_killed_process_had_begun_is_done_by_another(
    pool: SharedMemoryPool, tmp_path: Path
) -> None:
    supervisor = SupervisorAgent(None, pool)
    tasks = supervisor.delegate("Count", ["worker_0_0"], tasks=["Count to 1", "Count to 2"])
    request = tasks[0]["request_id"]
    dying = begin(pool, request, 0, 1, "hang", 0)
    assert dying.stdout is not None
    held = json.loads(dying.stdout.readline())
    rescuer = WorkerAgent(None, pool, "rescuer", work=lambda brief: brief.task.id)
    assert rescuer.get_assigned_tasks(request, lost=True) == []

    os.kill(dying.pid, signal.SIGKILL)
    dying.communicate()
    (lost,) = rescuer.get_assigned_tasks(request, lost=True)
    assert lost["task_id"] == held
    gap = next(g for g in supervisor.aggregate_results(request)["gaps"] if g["task_id"] == held)
    assert gap["why"] == "worker 'worker_0_0' had started it, but its process was closed or is gone"
    place = str(tmp_path / "runs.db")
    shown = CliRunner().invoke(main, ["status", "--journal", place]).stdout
    again = "worker_0_0 of its pool to take it again: the process that had it was closed or is gone"
    assert f"{held} waits for {again}" in shown
    assert "waits for worker_0_0 of its pool to take it, " in shown
    assert rescuer.execute_task(lost)["result"] == held
    heir = WorkerAgent(None, pool, "worker_0_0", work=lambda brief: brief.task.id)
    for task in heir.get_assigned_tasks(request):
        heir.execute_task(task)
    assert supervisor.check_all_tasks_completed(request)
    assert supervisor.aggregate_results(request)["status"] == "succeeded"


def test_the_benchmark_of_the_pool_tells_what_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--tasks", "12", "--racing", "4", "--writes", "9", "--processes", "2", "--threads", "2"]
    assert benchmark.main(["--json", *few]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert [figure["value"] for figure in figures[1:4]] == [0, 0, 0]
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
