"""How soon a run that was killed works again: from the call of `resume` to the first new attempt.

A child process leads the run up to its last task and is killed there with SIGKILL; this process
takes the run over. Two events a task: 5,000 tasks are 10,000 events.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import fan_in, noop, warm_up
from benchmarks.measure import Figure, folder_on_disk, options_for, report

import chargehand as ch

BAR = 2.0

#: when the gate was passed in this process
_opened: list[float] = []


@ch.worker("gate", "Says that it was reached and stays there; when tried again, lets pass")
async def gate(brief: ch.Brief) -> None:
    if brief.attempt > 1:
        _opened.append(time.perf_counter())
        return
    print(json.dumps({"run": brief.run}), flush=True)
    await asyncio.Event().wait()


def supervisor(journal: Path, tasks: int) -> ch.Supervisor:
    limits = ch.Limits(tasks=tasks + 1, parallel=1_000)
    return ch.Supervisor([noop, gate], journal=journal, limits=limits, parallel=1_000)


async def lead_up_to_the_gate(journal: Path, tasks: int) -> None:
    """What the child does until it is killed."""
    async with supervisor(journal, tasks) as boss:
        await boss.run(fan_in(tasks, last="gate"))


async def take_over(journal: Path, tasks: int, run: str) -> float:
    """Seconds from the call of `resume` until the gate is reached again."""
    _opened.clear()
    async with supervisor(journal, tasks) as boss:
        start = time.perf_counter()
        result = await boss.resume(run)
    assert result.status == "succeeded", result.status
    assert len(_opened) == 1, "only what was open at the kill is done again"
    return _opened[0] - start


def kill_a_leader(journal: Path, tasks: int) -> str:
    """Start a child that leads a run, kill it at the gate, and return the run's id."""
    command = [sys.executable, __file__, "--lead", str(journal), "--tasks", str(tasks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            return str(json.loads(child.stdout.readline())["run"])
        finally:
            child.kill()


def measure(tasks: int, repeats: int) -> list[Figure]:
    asyncio.run(warm_up())
    taken = []
    for _ in range(repeats):
        with folder_on_disk() as folder:
            journal = folder / "runs.db"
            run = kill_a_leader(journal, tasks)
            taken.append(asyncio.run(take_over(journal, tasks, run)))
    return [
        Figure(
            name="from resume to the first attempt",
            value=median(taken),
            unit="s",
            bar=BAR,
            note=f"a run of {2 * tasks:,} events whose leader was killed",
        )
    ]


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--tasks", type=int, default=5_000, metavar="N")
        parser.add_argument("--repeats", type=int, default=3)
        parser.add_argument("--lead", type=Path, help=argparse.SUPPRESS)

    options = options_for(__doc__, argv, add)
    if options.lead:
        asyncio.run(lead_up_to_the_gate(options.lead, options.tasks))
        return 0
    return report(measure(options.tasks, options.repeats), options)


if __name__ == "__main__":
    sys.exit(main())
