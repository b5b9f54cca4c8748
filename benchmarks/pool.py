"""How many tasks threads of several processes get done out of one journal file, and whether each is done once.

Every thread is a worker of one pool. Most tasks are meant for one of them; a part of them for nobody in
particular, so that all threads of all processes race for each. Then all of them write one block.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, folder_on_disk, options_for, report

import chargehand as ch
from chargehand.errors import TaskTaken
from chargehand.patterns.pool import SharedMemoryPool, SupervisorAgent, WorkerAgent

BAR = 180.0
ANYBODY = "anybody"
LABEL = "board of all"


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is to be done, and by how many."""

    tasks: int
    #: tasks of those that all race for
    racing: int
    writes: int
    processes: int
    #: of each process
    threads: int

    @property
    def names(self) -> list[str]:
        return [name for process in range(self.processes) for name in self.crew(process)]

    def writes_of(self, name: str) -> int:
        share, rest = divmod(self.writes, len(self.names))
        return share + (self.names.index(name) < rest)

    def crew(self, process: int) -> list[str]:
        return [f"worker_{process}_{thread}" for thread in range(self.threads)]


@dataclass
class Told:
    """What the threads of a process tell of what they did."""

    #: tasks that were really done, in the order in which that was; twice if twice
    done: list[str] = field(default_factory=list)
    #: of the block, that they have written
    versions: list[int] = field(default_factory=list)
    #: claims that came too late
    taken: int = 0


def work_in(path: str, request: str, load: Load, process: int) -> Told:
    """All that one process does, in its threads."""
    told = Told()
    with SharedMemoryPool(path) as pool:
        crew = [WorkerAgent(None, pool, name, work=_noting(told)) for name in load.crew(process)]
        jobs = [(worker, request, load, told) for worker in crew]
        threads = [threading.Thread(target=_work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return told


def _noting(told: Told) -> Any:
    def work(brief: ch.Brief) -> str:
        told.done.append(brief.task.id)
        return brief.task.id

    return work


def _work(worker: WorkerAgent, request: str, load: Load, told: Told) -> None:
    own = worker.get_assigned_tasks(request)
    racing = [{"request_id": request, "task_id": f"r{n}"} for n in range(load.racing)]
    random.Random(worker.agent_id).shuffle(racing)
    for task in [*own, *racing]:
        try:
            worker.execute_task(task)
        except TaskTaken:
            told.taken += 1
    for _ in range(load.writes_of(worker.agent_id)):
        block = worker.pool.write_block(LABEL, worker.agent_id, agent_id=worker.agent_id)
        told.versions.append(block["version"])


def tasks_for(load: Load) -> list[ch.Task]:
    plain = [
        ch.Task(id=f"t{n}", description=f"Count to {n}") for n in range(load.tasks - load.racing)
    ]
    racing = [
        ch.Task(id=f"r{n}", description=f"Race for {n}", worker=ANYBODY) for n in range(load.racing)
    ]
    return [*plain, *racing]


def measure(load: Load, folder: Path) -> list[Figure]:
    path = str(folder / "runs.db")
    with SharedMemoryPool(path) as pool:
        supervisor = SupervisorAgent(None, pool)
        made = supervisor.delegate("Count", load.names, tasks=tasks_for(load))
        request = made[0]["request_id"]
        start = time.perf_counter()
        told = _in_processes(path, request, load)
        wall = time.perf_counter() - start
        done = {t["task_id"] for t in supervisor.get_tasks(request) if t["status"] == "completed"}
        is_ended = supervisor.aggregate_results(request)["status"] == "succeeded"
        last = pool.read_block(LABEL)["version"] if load.writes else 0
    counts = Counter(task for each in told for task in each["done"])
    versions = sorted(version for each in told for version in each["versions"])
    crowd = f"{load.processes} processes of {load.threads} threads"
    lost = load.tasks - len(done) + (not is_ended)
    twice = sum(count > 1 for count in counts.values())
    gaps = abs(last - len(versions)) + (versions != list(range(1, len(versions) + 1)))
    what = f"{load.tasks:,} tasks and {load.writes:,} writes, {crowd}"
    return [
        Figure(name=what, value=wall, unit="s", bar=BAR),
        Figure(name="tasks lost", value=lost, bar=0),
        Figure(name="tasks done twice", value=twice, bar=0),
        Figure(name="gaps in the versions of the block", value=gaps, bar=0),
        Figure(name="claims that came too late", value=sum(each["taken"] for each in told)),
    ]


def _in_processes(path: str, request: str, load: Load) -> list[dict[str, Any]]:
    """What each process tells, when all have ended."""
    command = [sys.executable, str(Path(__file__).resolve())]
    tellings = [
        json.dumps({"path": path, "request": request, "process": process, "load": load.__dict__})
        for process in range(load.processes)
    ]
    running = [
        subprocess.Popen([*command, "--member", telling], stdout=subprocess.PIPE, text=True)
        for telling in tellings
    ]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a process failed; see above")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--tasks", type=int, default=10_000, metavar="N")
        parser.add_argument("--racing", type=int, default=500, metavar="N")
        parser.add_argument("--writes", type=int, default=10_000, metavar="N")
        parser.add_argument("--processes", type=int, default=4, metavar="N")
        parser.add_argument("--threads", type=int, default=8, metavar="N")
        parser.add_argument("--member", help=argparse.SUPPRESS)

    options = options_for(__doc__, argv, add)
    if options.member:
        given = json.loads(options.member)
        load = Load(**given["load"])
        told = work_in(given["path"], given["request"], load, given["process"])
        print(json.dumps(told.__dict__))
        return 0
    load = Load(
        tasks=options.tasks,
        racing=min(options.racing, options.tasks),
        writes=options.writes,
        processes=options.processes,
        threads=options.threads,
    )
    with folder_on_disk() as folder:
        return report(measure(load, folder.resolve()), options)


if __name__ == "__main__":
    sys.exit(main())
