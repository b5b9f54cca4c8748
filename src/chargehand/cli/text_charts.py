"""Text charts of a simulation: when each task would run, and the time by number of slots."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from msgspec.structs import replace

from chargehand.decisions.plan_forecast import Level, planned_as
from chargehand.decisions.plan_simulation import Simulation
from chargehand.decisions.simulation_loop import Span
from chargehand.facts.durations import shown_length
from chargehand.facts.plan import Plan
from chargehand.presentation.display_text import clean, one_line

MOST_ROWS = 30
ON_PATH, WORKED, WAITED = "█", "▒", "·"


def gantt(simulation: Simulation, plan: Plan, width: int) -> Iterator[str]:
    """One row per task, in the order of their starts; of a large plan, only the most important tasks."""
    critical = {planned_as(link.task) for link in simulation.path}
    spans = _by_task(simulation.spans)
    rows = _chosen(spans, critical)
    names = [one_line(clean(f"{span.task}  {span.worker}"), max(width // 3, 12)) for span in rows]
    room = max(map(len, names), default=0)
    columns = max(width - room - 2, 10)
    ready = _ready(spans, plan)
    for span, name in zip(rows, names, strict=True):
        mark = ON_PATH if span.task in critical else WORKED
        bar = _bar(span, ready[span.task], simulation.makespan, columns, mark)
        yield f"{name.ljust(room)}  {bar}".rstrip()
    yield f"{' ' * room}  {_axis(simulation.makespan, columns)}"
    left = len(spans) - len(rows)
    if left:
        yield f"{left} shorter tasks are not shown"
    yield f"{ON_PATH} critical path   {WORKED} other work   {WAITED} ready, no free slot"


def bars(levels: Sequence[Level], best: int, width: int) -> Iterator[str]:
    """One row per pool size: its p50 as a bar and in words."""
    longest = max(level.p50 for level in levels)
    words = [
        f"{shown_length(level.p50)} (p95 {shown_length(level.p95)}), "
        f"{level.utilisation:.0%} busy{'  best' if level.parallel == best else ''}"
        for level in levels
    ]
    room = len(str(levels[-1].parallel))
    columns = max(width - room - max(map(len, words)) - 4, 10)
    for level, said in zip(levels, words, strict=True):
        share = level.p50 / longest if longest else 0.0
        bar = ON_PATH * max(round(share * columns), 1)
        yield f"{level.parallel:>{room}}  {bar.ljust(columns)}  {said}"


def _chosen(spans: Sequence[Span], critical: set[str]) -> list[Span]:
    """At most `MOST_ROWS` spans: first those on the critical path, then the longest."""
    by_weight = sorted(spans, key=lambda span: (span.task not in critical, -span.length))
    kept = {id(span) for span in by_weight[:MOST_ROWS]}
    return [span for span in spans if id(span) in kept]


def _by_task(spans: Sequence[Span]) -> list[Span]:
    """The spans by task. The items of a task become one span, from the first start to the last end."""
    rows: dict[str, Span] = {}
    for span in spans:
        id_ = planned_as(span.task)
        known = rows.get(id_)
        end = span.end if known is None else max(known.end, span.end)
        rows[id_] = replace(known or span, task=id_, end=end)
    return list(rows.values())


def _ready(spans: Sequence[Span], plan: Plan) -> dict[str, timedelta]:
    """The time when the needs of each task were met."""
    ends = {span.task: span.end for span in spans}
    return {
        task.id: max((ends.get(need.task, timedelta(0)) for need in task.all_needs), default=_ZERO)
        for task in plan.tasks
    }


def _bar(span: Span, ready: timedelta, whole: timedelta, columns: int, mark: str) -> str:
    def column(at: timedelta) -> int:
        return round(at / whole * columns) if whole else 0

    start, end = min(column(span.start), columns - 1), column(span.end)
    wait = max(start - column(ready), 0)
    return " " * (start - wait) + WAITED * wait + mark * max(end - start, 1)


def _axis(whole: timedelta, columns: int) -> str:
    last = shown_length(whole)
    middle = shown_length(whole / 2)
    if columns < 4 * len(last):
        return f"0{last.rjust(columns - 1)}"
    half = columns // 2
    return f"0{middle.rjust(half - 1)}{last.rjust(columns - half)}"


_ZERO = timedelta(0)
