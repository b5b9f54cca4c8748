"""Many requests on one pool: how soon they end on average, and how many keep their deadlines.

The real kernel leads each request as a run of its own on a virtual clock. Beside it stands first come,
first served (FIFO). The cases and the figures are defined in the README of the workloads, which are
not part of this repository; the bars are those for known durations.
"""

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.makespan import DAGS, geometric_mean
from benchmarks.measure import Figure, report, workload_options, workloads_or_skip

from chargehand.decisions.dispatch import Place, Starts
from chargehand.decisions.plan_simulation import Arrival, Simulation, simulate
from chargehand.facts.events import Pace, RunStatus
from chargehand.facts.plan import Plan, Task

SLOTS = (4, 8, 16)
#: requests, from which on a workload counts
MANY = 16
#: with the least share of deadlines to be kept, in percent
DUE_SLOTS = {8: 88, 4: 66}
DUE_IN = "trail-batch-32"
RATE_IN, RATE_SLOTS, RATE = "agentic-24", 16, Starts(a_minute=60, burst=1)
KINDS = ("known", "learned", "unknown")


@dataclass(frozen=True)
class Job:
    """A task of a workload, as it was recorded."""

    id: str
    worker: str
    seconds: float
    deps: tuple[str, ...]
    request: str


@dataclass(frozen=True)
class Crowd:
    """All requests of one workload."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def requests(self) -> list[str]:
        """In file order."""
        return list(dict.fromkeys(job.request for job in self.jobs))

    @property
    def as_one(self) -> "Crowd":
        return replace(self, jobs=tuple(replace(job, request="all") for job in self.jobs))


@dataclass(frozen=True)
class Ends:
    """When each request ended, in seconds from the start."""

    of: Mapping[str, float]

    @property
    def mean(self) -> float:
        return sum(self.of.values()) / len(self.of)

    @property
    def last(self) -> float:
        return max(self.of.values())


def live_run(
    crowd: Crowd,
    slots: int,
    kind: str,
    dues: Mapping[str, float] | None = None,
    starts: Starts | None = None,
) -> Simulation:
    """All requests led by the real kernel, each a run of its own that arrives at 0."""
    seconds = {job.id: job.seconds for job in crowd.jobs}
    arrivals = [
        Arrival(
            plan=Plan(goal=request, tasks=list(_tasks(crowd, request, are_known=kind == "known"))),
            deadline=None if dues is None else timedelta(seconds=dues[request]),
            name=request,
        )
        for request in crowd.requests
    ]
    return simulate(
        arrivals,
        [Place(worker=worker) for worker in sorted({job.worker for job in crowd.jobs})],
        parallel=slots,
        seconds=lambda task: seconds[task.id],
        paces=_paces(crowd) if kind == "learned" else {},
        starts=starts,
    )


def ends_of(simulation: Simulation) -> Ends:
    return Ends({name: end.ended.total_seconds() for name, end in simulation.runs.items()})


@cache
def first_come_first_served(crowd: Crowd, slots: int) -> Ends:
    """What became ready first starts first, then file order."""
    jobs = {job.id: (order, job) for order, job in enumerate(crowd.jobs)}
    unmet = {job.id: len(job.deps) for job in crowd.jobs}
    dependents: dict[str, list[Job]] = {job.id: [] for job in crowd.jobs}
    for job in crowd.jobs:
        for dep in job.deps:
            dependents[dep].append(job)
    ready = [(0.0, order, job) for order, job in jobs.values() if not job.deps]
    running: list[tuple[float, int, Job]] = []
    ends: dict[str, float] = {}
    now = 0.0
    heapify(ready)
    while ready or running:
        while ready and len(running) < slots:
            _, order, job = heappop(ready)
            heappush(running, (now + job.seconds, order, job))
        now, _, ended = heappop(running)
        ends[ended.request] = now
        for job in dependents[ended.id]:
            unmet[job.id] -= 1
            if not unmet[job.id]:
                heappush(ready, (now, jobs[job.id][0], job))
    return Ends(ends)


def dues_of(crowd: Crowd) -> dict[str, float]:
    """When each request is due: a multiple of its critical path, drawn by the workloads' rule."""
    draw = random.Random("deadlines-1")
    paths = _critical_paths(crowd)
    return {request: paths[request] * draw.choice((1.5, 3.0, 6.0)) for request in sorted(paths)}


def share_in_time(crowd: Crowd, slots: int, kind: str) -> float:
    """How many requests are done when they are due, in percent."""
    dues = dues_of(crowd)
    ends = live_run(crowd, slots, kind, dues).runs
    kept = [
        end.status is RunStatus.SUCCEEDED and end.ended.total_seconds() <= dues[name] + 1e-6
        for name, end in ends.items()
    ]
    return 100 * sum(kept) / len(kept)


def _tasks(crowd: Crowd, request: str, *, are_known: bool) -> Iterator[Task]:
    for job in crowd.jobs:
        if job.request == request:
            expect = timedelta(seconds=job.seconds) if are_known else None
            yield Task(
                id=job.id, description=job.id, worker=job.worker, needs=job.deps, expect=expect
            )


def _paces(crowd: Crowd) -> dict[str, Pace]:
    lengths: dict[str, list[float]] = {}
    for job in crowd.jobs:
        lengths.setdefault(job.worker, []).append(job.seconds)
    return {
        worker: Pace(len(each), timedelta(seconds=sum(each) / len(each)))
        for worker, each in lengths.items()
    }


def _critical_paths(crowd: Crowd) -> dict[str, float]:
    jobs = {job.id: job for job in crowd.jobs}

    @cache
    def end(id_: str) -> float:
        return jobs[id_].seconds + max((end(dep) for dep in jobs[id_].deps), default=0.0)

    paths: dict[str, float] = {}
    for job in crowd.jobs:
        paths[job.request] = max(paths.get(job.request, 0.0), end(job.id))
    return paths


# The workloads


def crowds_in(folder: Path) -> list[Crowd]:
    """The workloads of many requests."""
    crowds = []
    for path in sorted((folder / DAGS).glob("*.json")):
        tasks = json.loads(path.read_text(encoding="utf-8"))["tasks"]
        crowd = Crowd(path.stem, tuple(_job(task) for task in tasks))
        if len(crowd.requests) >= MANY:
            crowds.append(crowd)
    return crowds


def _job(task: Mapping[str, Any]) -> Job:
    deps, request = tuple(task["deps"]), task.get("request", "")
    return Job(task["id"], task["worker"], task["seconds"], deps, request)


# The report


def _flow(crowds: Sequence[Crowd], kind: str) -> tuple[float, float]:
    """Mean completion and makespan, both ÷ FIFO, as geometric means over workloads and slots."""
    means, lasts = [], []
    for crowd in crowds:
        for slots in SLOTS:
            ours, usual = (
                ends_of(live_run(crowd, slots, kind)),
                first_come_first_served(crowd, slots),
            )
            means.append(ours.mean / usual.mean)
            lasts.append(ours.last / usual.last)
    return geometric_mean(means), geometric_mean(lasts)


def _figures(crowds: Sequence[Crowd]) -> Iterator[Figure]:
    by_name = {crowd.name: crowd for crowd in crowds}
    for kind in KINDS:
        is_held = kind == "known"
        mean, last = _flow(crowds, kind)
        note = f"{len(crowds)} workloads on {', '.join(map(str, SLOTS))} slots"
        words = f"durations {kind}"
        yield Figure(name=f"mean completion ÷ FIFO, {words}", value=mean, bar=0.87, note=note)
        yield Figure(name=f"makespan ÷ FIFO, {words}", value=last, bar=1.0, note=note)
        for slots, bar in DUE_SLOTS.items() if DUE_IN in by_name else ():
            yield Figure(
                name=f"deadlines kept on {slots} slots, {words}",
                value=share_in_time(by_name[DUE_IN], slots, kind),
                unit="%",
                bar=bar if is_held else None,
                is_floor=True,
                note=DUE_IN,
            )
        if RATE_IN in by_name:
            plan = live_run(by_name[RATE_IN].as_one, RATE_SLOTS, kind, starts=RATE)
            yield Figure(
                name=f"one start a second, {words}",
                value=plan.makespan.total_seconds(),
                unit="s",
                bar=123 if is_held else None,
                note=f"{RATE_IN} as one plan on {RATE_SLOTS} slots",
            )


def main(argv: Sequence[str] | None = None) -> int:
    options = workload_options(__doc__, argv)
    folder = workloads_or_skip(options, DAGS)
    return 0 if folder is None else report(list(_figures(crowds_in(folder))), options)


if __name__ == "__main__":
    sys.exit(main())
