"""Draws the pictures of docs/scheduling.md between their markers, by simulation.

`python docs/draw_scheduling.py` draws them; `--check` only reports whether they are up to date.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from chargehand.decisions.dispatch import Place, Starts
from chargehand.decisions.plan_simulation import Arrival, Simulation, simulate
from chargehand.decisions.simulation_loop import Span
from chargehand.facts.plan import Plan, Task

PAGE = Path(__file__).parent / "scheduling.md"
PICTURE = re.compile(r"(<!-- picture: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
ANY_WORKER = [Place(worker="any")]
WORKED, WAITED, DUE = "█", "·", "|"


def task(id_: str, seconds: float, *needs: str, priority: int = 0) -> Task:
    return Task(
        id=id_,
        description="As long as it takes",
        worker="any",
        needs=needs,
        priority=priority,
        args={"seconds": seconds},
        expect=timedelta(seconds=seconds),
    )


def plan(*tasks: Task) -> Plan:
    return Plan(goal="Be drawn", tasks=tasks)


def taken(task: Task) -> float:
    return float(task.args["seconds"])


def live_run(plan: Plan, parallel: int, starts: Starts | None = None) -> Simulation:
    return simulate(plan, ANY_WORKER, parallel=parallel, seconds=taken, starts=starts)


def together(*arrivals: Arrival, parallel: int) -> Simulation:
    return simulate(arrivals, ANY_WORKER, parallel=parallel, seconds=taken)


def row(label: str, bars: Sequence[tuple[float, float]], since: float = 0, due: float = 0) -> str:
    """One row: dots while it waits from `since` on, blocks while it works, a stroke at the deadline."""
    last = max([end for _, end in bars] + [due])
    cells = [" "] * (round(last) + 1)
    cells[round(since) : round(bars[0][0])] = WAITED * (round(bars[0][0]) - round(since))
    for start, end in bars:
        cells[round(start) : round(end)] = WORKED * (round(end) - round(start))
    if due:
        cells[round(due)] = DUE
    return f"  {label:<10}{''.join(cells)}".rstrip()


def rows(simulation: Simulation, plan: Plan, scale: float = 1) -> Iterator[str]:
    """One row per task, in plan order, with the time it was ready and waited."""
    spans = {span.task: span for span in simulation.spans}
    for each in plan.tasks:
        ready = max((_seconds(spans[need.task].end) for need in each.all_needs), default=0.0)
        span = spans[each.id]
        bar = (_seconds(span.start) / scale, _seconds(span.end) / scale)
        yield row(each.id, [bar], ready / scale)


def row_of_run(simulation: Simulation, name: str, due: float = 0, scale: float = 1) -> str:
    """All work of a run in one row."""
    spans: list[Span] = [span for span in simulation.spans if span.run == name]
    bars = [(_seconds(span.start) / scale, _seconds(span.end) / scale) for span in spans]
    return row(name, bars, _seconds(simulation.runs[name].arrived) / scale, due / scale)


def _seconds(length: timedelta) -> float:
    return length.total_seconds()


# The pictures


def barrier() -> Iterator[str]:
    free = plan(
        task("a1", 24), task("b1", 6), task("c1", 6), task("a2", 6, "a1"), task("b2", 24, "b1"),
        task("c2", 6, "c1"),
    )  # fmt: skip
    firsts = [each.id for each in free.tasks if not each.needs]
    held = plan(*(task(e.id, taken(e), *(firsts if e.needs else ())) for e in free.tasks))
    for words, shape in (("with a barrier between layers", held), ("no barrier", free)):
        simulation = live_run(shape, 3)
        yield f"{words}: {_seconds(simulation.makespan):.0f} s"
        yield from rows(simulation, shape)


def path() -> Iterator[str]:
    shape = plan(
        task("short1", 8), task("short2", 8), task("root", 8), task("middle", 16, "root"),
        task("end", 16, "middle"),
    )  # fmt: skip
    simulation = live_run(shape, 1 + 1)
    yield f"longest remaining path first, two slots: {_seconds(simulation.makespan):.0f} s"
    yield from rows(simulation, shape)


def inherited() -> Iterator[str]:
    shape = plan(
        task("first", 10), task("second", 10), task("source", 10),
        task("urgent", 10, "source", priority=5),
    )  # fmt: skip
    yield "one slot; only `urgent` has a priority"
    yield from rows(live_run(shape, 1), shape)


def runs() -> Iterator[str]:
    chain = plan(task("a", 10), task("b", 10, "a"))
    simulation = together(*(Arrival(plan=chain, name=f"run{n}") for n in (1, 2, 3)), parallel=1)
    yield "one slot; three equal runs of two tasks that arrived together"
    yield from (row_of_run(simulation, f"run{n}") for n in (1, 2, 3))


def deadlines() -> Iterator[str]:
    dues = {"calm": 60, "tight": 22, "hopeless": 15}
    simulation = together(
        *(
            Arrival(plan=plan(task("only", 20)), deadline=timedelta(seconds=due), name=name)
            for name, due in dues.items()
        ),
        Arrival(plan=plan(task("only", 10)), name="no_hurry"),
        parallel=1,
    )
    yield "one slot; | is the deadline"
    yield from (
        row_of_run(simulation, name, due) for name, due in dues.items() if name != "hopeless"
    )
    yield f"  hopeless  {WAITED * 15}{DUE}  20 s of work do not fit, so it does not start"
    yield row_of_run(simulation, "no_hurry")


def ageing() -> Iterator[str]:
    crowd = [
        Arrival(
            plan=plan(task("only", 100)), priority=2, at=timedelta(seconds=100 * n), name=f"new{n}"
        )
        for n in range(9)
    ]
    old = Arrival(plan=plan(task("only", 100)), name="old")
    simulation = together(*crowd[:1], old, *crowd[1:], parallel=1)
    began = next(_seconds(span.start) for span in simulation.spans if span.run == "old")
    yield "one slot; every 100 s a run of priority 2 arrives; `old` has priority 0"
    yield row("old", [(began / 25, began / 25 + 4)])
    for number in range(8):
        yield row_of_run(simulation, f"new{number}", scale=25)


def rate() -> Iterator[str]:
    shape = plan(*(task(f"t{n}", 12) for n in range(4)))
    yield "four slots, but one start per 5 s"
    yield from rows(live_run(shape, 4, Starts(a_minute=12)), shape)


PICTURES: dict[str, Callable[[], Iterator[str]]] = {
    "barrier": barrier,
    "path": path,
    "inherited": inherited,
    "runs": runs,
    "deadlines": deadlines,
    "ageing": ageing,
    "rate": rate,
}


def page(text: str) -> str:
    """The page with every picture as the scheduler draws it today."""

    def drawn(mark: re.Match[str]) -> str:
        picture = "\n".join(line.rstrip() for line in PICTURES[mark["name"]]())
        return f"{mark[1]}```text\n{picture}\n```\n{mark[3]}"

    return PICTURE.sub(drawn, text)


def main(arguments: list[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    fresh = page(text)
    if "--check" not in arguments:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        print("docs/scheduling.md is out of date; run python docs/draw_scheduling.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
