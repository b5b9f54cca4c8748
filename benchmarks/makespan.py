"""How close the schedule comes to the shortest possible one, over recorded workloads.

The real kernel leads each plan on a virtual clock. Beside it, in the same run, stand two usual ways
to schedule: first come, first served (FIFO), and one layer after the other (barrier). The cases
and the figures are defined in the README of the workloads, which are not part of this repository.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, print_table, report, workload_options, workloads_or_skip

from chargehand.decisions.dispatch import Place
from chargehand.decisions.plan_simulation import simulate
from chargehand.facts.events import Pace, RunStatus
from chargehand.facts.plan import Plan, Task

DAGS = Path("dags")
SLOTS = (2, 4, 8, 16)
BARS = {"known": 1.035, "learned": 1.07, "unknown": 1.09}


@dataclass(frozen=True)
class Job:
    """A task of a workload, as it was recorded."""

    id: str
    worker: str
    seconds: float
    deps: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A workload on so many equal slots."""

    name: str
    slots: int
    jobs: tuple[Job, ...]
    #: no schedule is shorter than this
    bound: float

    def __str__(self) -> str:
        return f"{self.name} on {self.slots}"


# What is compared: each takes a case and returns its makespan


def with_known_seconds(case: Case) -> float:
    return _simulated(case, {}, are_known=True)


def with_learned_paces(case: Case) -> float:
    lengths: dict[str, list[float]] = {}
    for job in case.jobs:
        lengths.setdefault(job.worker, []).append(job.seconds)
    paces = {
        worker: Pace(len(each), timedelta(seconds=sum(each) / len(each)))
        for worker, each in lengths.items()
    }
    return _simulated(case, paces, are_known=False)


def with_nothing_known(case: Case) -> float:
    return _simulated(case, {}, are_known=False)


def first_come_first_served(case: Case) -> float:
    """What became ready first starts first, then plan order."""
    jobs = {job.id: job for job in case.jobs}
    order = {job.id: number for number, job in enumerate(case.jobs)}
    unmet = {job.id: len(job.deps) for job in case.jobs}
    dependents: dict[str, list[str]] = {job.id: [] for job in case.jobs}
    for job in case.jobs:
        for dep in job.deps:
            dependents[dep].append(job.id)
    ready = [(0.0, order[id_], id_) for id_, count in unmet.items() if not count]
    running: list[tuple[float, int, str]] = []
    now = 0.0
    heapify(ready)
    while ready or running:
        while ready and len(running) < case.slots:
            _, place, id_ = heappop(ready)
            heappush(running, (now + jobs[id_].seconds, place, id_))
        now, _, ended = heappop(running)
        for dependent in dependents[ended]:
            unmet[dependent] -= 1
            if not unmet[dependent]:
                heappush(ready, (now, order[dependent], dependent))
    return now


def layer_after_layer(case: Case) -> float:
    """No task of a layer starts before all of the layer before have ended."""
    layer_of: dict[str, int] = {}
    for job in _in_order(case.jobs):
        layer_of[job.id] = 1 + max((layer_of[dep] for dep in job.deps), default=-1)
    layers: dict[int, list[Job]] = {}
    for job in case.jobs:
        layers.setdefault(layer_of[job.id], []).append(job)
    return sum(_packed(layer, case.slots) for layer in layers.values())


METHODS: dict[str, Callable[[Case], float]] = {
    "known": with_known_seconds,
    "learned": with_learned_paces,
    "unknown": with_nothing_known,
    "fifo": first_come_first_served,
    "barrier": layer_after_layer,
}


def _simulated(case: Case, paces: Mapping[str, Pace], *, are_known: bool) -> float:
    seconds = {job.id: job.seconds for job in case.jobs}
    tasks = [
        Task(
            id=job.id,
            description=job.id,
            worker=job.worker,
            needs=job.deps,
            expect=timedelta(seconds=job.seconds) if are_known else None,
        )
        for job in case.jobs
    ]
    simulation = simulate(
        Plan(goal=case.name, tasks=tasks),
        [Place(worker=worker) for worker in sorted({job.worker for job in case.jobs})],
        parallel=case.slots,
        seconds=lambda task: seconds[task.id],
        paces=paces,
    )
    assert all(end.status is RunStatus.SUCCEEDED for end in simulation.runs.values())
    return simulation.makespan.total_seconds()


def _in_order(jobs: Sequence[Job]) -> Iterator[Job]:
    given: set[str] = set()
    left = list(jobs)
    while left:
        later = []
        for job in left:
            if given.issuperset(job.deps):
                given.add(job.id)
                yield job
            else:
                later.append(job)
        left = later


def _packed(layer: Sequence[Job], slots: int) -> float:
    ends = [0.0] * slots
    for job in layer:
        heapreplace(ends, ends[0] + job.seconds)
    return max(ends)


# The workloads


def contended_cases(folder: Path) -> list[Case]:
    """The cases in which the order matters: more work than half the critical path fills."""
    cases = []
    for path in sorted((folder / DAGS).glob("*.json")):
        workload = json.loads(path.read_text(encoding="utf-8"))
        jobs = _jobs(workload["tasks"])
        for slots in SLOTS:
            shared = workload["work"] / slots
            if shared > workload["critical_path"] / 2 and slots < len(jobs):
                bound = workload["known"][str(slots)]["bound"]
                least = max(workload["critical_path"], shared, bound)
                cases.append(Case(path.stem, slots, jobs, least))
    return cases


def share_at_least_time(folder: Path) -> float:
    """How many of the everyday plans take no longer than was published, in percent."""
    text = (folder / "plans" / "asynchow.json").read_text(encoding="utf-8")
    plans = json.loads(text)["items"]
    met = 0
    for plan in plans:
        jobs = _jobs(plan["tasks"])
        case = Case(plan["id"], len(jobs), jobs, plan["optimum_unlimited"])
        met += with_nothing_known(case) <= case.bound + 1e-6
    return 100 * met / len(plans)


def _jobs(tasks: Sequence[Mapping[str, Any]]) -> tuple[Job, ...]:
    return tuple(Job(t["id"], t["worker"], t["seconds"], tuple(t["deps"])) for t in tasks)


# The report


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratios_of(cases: Sequence[Case]) -> dict[str, list[float]]:
    """By method, each case's makespan ÷ its lower bound."""
    return {name: [method(case) / case.bound for case in cases] for name, method in METHODS.items()}


def _figures(cases: Sequence[Case], ratios: Mapping[str, Sequence[float]]) -> list[Figure]:
    words = {
        "known": "durations known",
        "learned": "durations learned",
        "unknown": "durations unknown",
        "fifo": "FIFO",
        "barrier": "layer barrier",
    }
    return [
        Figure(
            name=f"makespan ÷ bound, {words[name]}",
            value=geometric_mean(ratios[name]),
            bar=BARS.get(name),
            note=f"geometric mean of {len(cases)} cases",
        )
        for name in METHODS
    ]


def _print_worst(cases: Sequence[Case], ratios: Mapping[str, Sequence[float]], kind: str) -> None:
    worst = sorted(range(len(cases)), key=lambda n: -ratios[kind][n])[:5]
    print(f"\nworst five, durations {kind}:")
    rows = [[str(cases[n]), *(f"{ratios[name][n]:.3f}" for name in METHODS)] for n in worst]
    print_table(["case", *METHODS], rows)


def main(argv: Sequence[str] | None = None) -> int:
    options = workload_options(__doc__, argv)
    folder = workloads_or_skip(options, DAGS)
    if folder is None:
        return 0
    cases = contended_cases(folder)
    ratios = ratios_of(cases)
    figures = _figures(cases, ratios)
    figures.append(
        Figure(
            name="AsyncHow plans at the published least time",
            value=share_at_least_time(folder),
            unit="%",
            bar=100,
            is_floor=True,
            note="with as many helpers as tasks",
        )
    )
    by_case = {str(case): {m: ratios[m][n] for m in METHODS} for n, case in enumerate(cases)}
    status = report(figures, options, cases=by_case)
    if not options.json:
        for kind in BARS:
            _print_worst(cases, ratios, kind)
    return status


if __name__ == "__main__":
    sys.exit(main())
