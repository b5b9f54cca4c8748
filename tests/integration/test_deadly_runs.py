"""Of the runs that died with their leader, only the one that ended it is parked; the others go on."""

import asyncio
import subprocess
import sys
from pathlib import Path

import chargehand as ch
from chargehand.facts.events import Event, RunLed, RunReleased, RunStatus
from chargehand.journal.base import Journal
from tests.guide.conftest import make_plan, make_task

#: serves until every run has ended or is parked; `killer` ends the process once all others run
SERVER = """
import asyncio, os, sys
import chargehand as ch
from chargehand.decisions.schedule import Schedule
from chargehand.runtime.command_inbox import submissions

folder, beside = sys.argv[1], int(sys.argv[2])
running = set()
apply = Schedule.apply

def poisoned(self, event):
    if getattr(event, "request", "") == "Poison":
        os._exit(9)
    return apply(self, event)

Schedule.apply = poisoned

@ch.worker("clerk", "Waits for a file")
async def clerk(brief: ch.Brief) -> str:
    running.add(brief.run)
    while not os.path.exists(os.path.join(folder, "go")):
        await asyncio.sleep(0.01)
    return "done"

@ch.worker("killer", "Ends its process")
async def killer(brief: ch.Brief) -> str:
    while len(running) < beside and not os.path.exists(os.path.join(folder, "go")):
        await asyncio.sleep(0.01)
    os._exit(9)

async def main():
    boss = ch.Supervisor([clerk, killer], journal=os.path.join(folder, "runs.db"), parallel=50)
    serving = asyncio.create_task(boss.serve())
    while await submissions(boss.journal.mail) or any(
        head.owner for head in await boss.journal.heads() if not head.is_ended
    ):
        await asyncio.sleep(0.05)
    await boss.stop()
    await serving
    await boss.close()

asyncio.run(main())
"""


@ch.worker("clerk", "Waits for a file")
async def clerk(brief: ch.Brief) -> str:
    return ""


@ch.worker("killer", "Ends its process")
async def killer(brief: ch.Brief) -> str:
    return ""


async def post(folder: Path, *runs: tuple[str, str]) -> list[str]:
    """Post runs of one task, each for a worker, with a goal."""
    boss = ch.Supervisor([clerk, killer], journal=folder / "runs.db")
    posted = [
        await boss.post(make_plan(make_task("t", worker), goal=goal)) for worker, goal in runs
    ]
    await boss.close()
    return posted


def command(folder: Path, beside: int) -> list[str]:
    return [sys.executable, "-c", SERVER, str(folder), str(beside)]


def serve(folder: Path, beside: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(folder, beside), capture_output=True, text=True, check=False, timeout=60
    )


async def histories(folder: Path) -> dict[str, list[Event]]:
    journal: Journal = ch.open_journal(folder / "runs.db")
    found = {
        head.stream: [entry.event async for entry in journal.read(head.stream)]
        for head in await journal.heads()
    }
    await journal.close()
    return found


def is_parked(history: list[Event]) -> bool:
    return any(isinstance(event, RunReleased) and event.is_parked for event in history)


def test_j4_runs_led_beside_one_that_ends_its_process_are_not_parked_with_it(
    tmp_path: Path,
) -> None:
    """All die twice with it and come no further; then they are tried one at a time."""
    first, deadly, second, third = asyncio.run(
        post(tmp_path, ("clerk", "a"), ("killer", "k"), ("clerk", "b"), ("clerk", "c"))
    )
    assert [serve(tmp_path, 3).returncode for _ in range(2)] == [9, 9]
    seen = asyncio.run(histories(tmp_path))
    assert [sum(isinstance(each, RunLed) for each in seen[run]) for run in seen] == [2] * 4
    with subprocess.Popen(command(tmp_path, 0), stderr=subprocess.PIPE, text=True) as third_process:
        assert third_process.stderr is not None
        assert (
            f"run_taken_over run={first}; its leader is gone; led alone"
            in third_process.stderr.readline()
        )
        # The oldest is tried, and waits for the file; the next is taken up only when it has ended.
        (fresh,) = asyncio.run(post(tmp_path, ("clerk", "d")))
        while not (seen := asyncio.run(histories(tmp_path))).get(fresh):
            assert third_process.poll() is None
        assert sum(isinstance(each, RunLed) for each in seen[deadly]) == 2
        (tmp_path / "go").touch()
        assert f"run_taken_over run={deadly}" in third_process.stderr.readline()
        assert third_process.wait(30) == 9
    end = serve(tmp_path, 0)
    assert end.returncode == 0, end.stderr
    assert f"run_parked run={deadly}" in end.stderr
    seen = asyncio.run(histories(tmp_path))
    for run in (first, second, third):
        assert getattr(seen[run][-1], "status", None) is RunStatus.SUCCEEDED, run
        assert not is_parked(seen[run])
    assert is_parked(seen[deadly])


def test_j4_a_run_that_was_alone_in_both_deaths_is_parked_before_a_third(tmp_path: Path) -> None:
    """One that came later, or came further, is not suspected with it."""
    (deadly,) = asyncio.run(post(tmp_path, ("killer", "k")))
    assert serve(tmp_path, 0).returncode == 9
    (late,) = asyncio.run(post(tmp_path, ("clerk", "late")))
    assert serve(tmp_path, 1).returncode == 9
    (tmp_path / "go").touch()
    end = serve(tmp_path, 0)
    assert end.returncode == 0, end.stderr
    assert f"run_parked run={deadly}" in end.stderr
    seen = asyncio.run(histories(tmp_path))
    assert not is_parked(seen[late])
    assert getattr(seen[late][-1], "status", None) is RunStatus.SUCCEEDED


def test_j4_runs_submitted_beside_one_whose_first_decision_kills_are_begun(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    runs = [("clerk", "Poison" if n == 5 else f"goal {n}") for n in range(12)]
    posted = asyncio.run(post(tmp_path, *runs))
    ends = [serve(tmp_path, 0) for _ in range(3)]
    assert [end.returncode for end in ends] == [9, 9, 0], ends[-1].stderr
    seen = asyncio.run(histories(tmp_path))
    assert [run for run in posted if is_parked(seen[run])] == [posted[5]]
    done = [run for run in posted if getattr(seen[run][-1], "status", None) is RunStatus.SUCCEEDED]
    assert len(done) == 11
