"""A trace as lines of text: a timeline of its tasks, and a tree of everything that happened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.measured_critical_path import served_by
from chargehand.decisions.system_tasks import ITEMS, PLAN, is_system_task
from chargehand.decisions.task_and_state_words import SUPERVISOR, asker_name, counted, task_name
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import AttemptSpan, StepKind, StepSpan
from chargehand.facts.durations import shown_length
from chargehand.facts.outcome import Usage
from chargehand.facts.plan import item_of
from chargehand.presentation.display_text import cell_width, clean, cut_to, money_words, one_line
from chargehand.presentation.live_frame import Line, StyledText

#: most rows of a timeline: first the tasks on the critical path, then the longest
MOST_ROWS = 40
#: most attempts at items that are shown per task; failed ones are always shown
MOST_ITEMS = 5
#: shorter waits are not shown; in seconds
LEAST_WAIT = 0.1
ON_PATH, WORKED, WAITED = "█", "▒", "·"

_ENDINGS = {
    "done": ("✓", "done"),
    "failed": ("✗", "failed"),
    "lost": ("✗", "failed"),
    "cancelled": ("⊘", "waiting"),
    "preempted": ("↻", "retrying"),
    "parked": ("↻", "retrying"),
    "needs_input": ("▲", "needs"),
    "": ("◐", "running"),
}


class _Row(Struct):
    """A task on the timeline, with all its attempts and items."""

    task: str
    worker: str
    stretches: list[tuple[datetime, datetime]]
    #: when the task became ready
    ready_at: datetime
    usage: Usage
    ending: str

    @property
    def length(self) -> timedelta:
        return max(end for _, end in self.stretches) - self.stretches[0][0]


def timeline_lines(
    trace: Trace, width: int, marks: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> list[Line]:
    """One row per task: when it waited for a slot, when it was running, and how long it took.

    `marks` are icons and styles by task; the default is the icon of the last attempt's outcome.
    """
    if trace.began_at is None or not trace.attempts:
        return []
    end = trace.ended_at or max(span.ended_at or span.began_at for span in trace.attempts)
    rows = _rows(trace, end)
    critical = {_row_of(served_by(task)) for task in trace.critical_path}
    shown = rows
    if len(rows) > MOST_ROWS:
        by_weight = sorted(rows, key=lambda row: (row.task not in critical, -row.length))
        kept = {row.task for row in by_weight[:MOST_ROWS]}
        shown = [row for row in rows if row.task in kept]
    names = [one_line(task_name(row.task), 40) for row in shown]
    room = min(max(map(cell_width, names)), width // 3)
    columns = max(width - room - 14, 10)
    whole = max(end - trace.began_at, timedelta(milliseconds=1))
    lines: list[Line] = []
    for row, name in zip(shown, names, strict=True):
        icon, style = marks.get(row.task) or _ENDINGS.get(row.ending, ("·", "dim"))
        name = cut_to(name, room)
        bar = _bar(row, trace.began_at, whole, columns, is_critical=row.task in critical)
        length = shown_length(row.length)
        lines.append(
            (
                StyledText(f"  {icon} ", style),
                StyledText(name + " " * (room - cell_width(name) + 1)),
                StyledText(bar, style),
                StyledText(f" {length:>6}", "dim"),
            )
        )
    if len(shown) < len(rows):
        lines.append(
            (StyledText(f"    {len(rows) - len(shown):,} shorter tasks are not shown", "dim"),)
        )
    legend = f"{ON_PATH} the end waited for it   {WORKED} work   {WAITED} ready, no slot free"
    lines.append((StyledText(f"    {legend}", "dim"),))
    return lines


def _rows(trace: Trace, end: datetime) -> list[_Row]:
    rows: dict[str, _Row] = {}
    for span in trace.attempts:
        task = _row_of(span.task)
        stretch = (span.began_at, span.ended_at or end)
        row = rows.get(task)
        if row is None:
            rows[task] = _Row(task, span.worker, [stretch], span.ready_at, span.usage, span.ending)
        else:
            row.stretches.append(stretch)
            row.usage += span.usage
            row.ending = span.ending
    return list(rows.values())


def _row_of(task: str) -> str:
    """The task whose row shows an attempt: items and their listing belong to their task; all planning has one row."""
    if task.startswith(f"{ITEMS}:"):
        return task.removeprefix(f"{ITEMS}:")
    if task.startswith(f"{PLAN}:"):
        return PLAN  # a group plans each turn
    item = item_of(task)
    return item[0] if item is not None and not is_system_task(task) else task


def _bar(row: _Row, began: datetime, whole: timedelta, columns: int, *, is_critical: bool) -> str:
    def column(at: datetime) -> int:
        return min(max(int((at - began) / whole * columns), 0), columns - 1)

    cells = [" "] * columns
    first = column(row.stretches[0][0])
    cells[column(row.ready_at) : first] = WAITED * (first - column(row.ready_at))
    for start, end in row.stretches:
        left, right = column(start), column(end)
        cells[left : right + 1] = (ON_PATH if is_critical else WORKED) * (right + 1 - left)
    return "".join(cells)


# the tree


def tree_lines(trace: Trace, *, content: bool = True) -> Iterator[Line]:
    """The run as a tree: attempts in the order of their starts, with their steps and nested runs."""
    status = trace.status or "not ended"
    style = "done" if status == "succeeded" else "running" if not trace.status else "failed"
    request = f": {one_line(trace.request, 300)}" if content else ""
    yield (
        StyledText(f"run {clean(trace.run)}  ", "bold"),
        StyledText(status, style),
        StyledText(f" in {shown_length(trace.wall)}{_spent(trace.usage)}", "dim"),
        StyledText(_failures(trace), "failed"),
        StyledText(request),
    )
    nodes = list(_nodes(trace, content=content))
    for place, (head, below) in enumerate(nodes):
        is_last = place == len(nodes) - 1
        yield (StyledText("└─ " if is_last else "├─ ", "dim"), *head)
        for line in below:
            yield (StyledText("   " if is_last else "│  ", "dim"), *line)


def _failures(trace: Trace) -> str:
    count = trace.failed_attempts
    return f"  {counted(count, 'failed attempt')}" if count else ""


def _nodes(trace: Trace, *, content: bool) -> Iterator[tuple[Line, list[Line]]]:
    """The branches below a run, each with its lines: attempts, questions, plan changes, skipped tasks."""
    children = {child.task: child for child in trace.children}
    events: list[tuple[datetime, int, Line, list[Line]]] = []
    for span in _chosen(trace.attempts):
        child = children.pop(span.task, None) if span.ending == "done" else None
        below = list(_steps(span, content=content))
        below += [] if child is None else list(tree_lines(child, content=content))
        events.append((span.began_at, len(events), _attempt(span, content=content), below))
    events += [
        (version.at, len(events), _changed(version.version, version.reason, content=content), [])
        for version in trace.plans
        if version.version > 1
    ]
    for question in trace.questions:
        text = f"asks: {one_line(question.text, 200)}" if content else "asks"
        answer = (
            f"{one_line(question.answer, 120)} (by {clean(question.by)})" if question.by else "open"
        )
        asks: Line = (
            StyledText("▲ ", "needs"),
            StyledText(f"{clean(asker_name(question.task))} {text}"),
        )
        events.append(
            (question.asked_at, len(events), (*asks, StyledText(f"  → {answer}", "dim")), [])
        )
    events += _left_out(trace.attempts, len(events))
    for _, _, head, below in sorted(events, key=lambda event: event[:2]):
        yield head, below
    for task, why in trace.skipped.items():
        if is_system_task(task):
            continue
        reason = f"  {one_line(why, 200)}" if content else ""
        yield (
            (
                StyledText("– ", "waiting"),
                StyledText(clean(task)),
                StyledText(f"  skipped{reason}", "dim"),
            ),
            [],
        )


def _changed(version: int, reason: str, *, content: bool) -> Line:
    why = f": {one_line(reason, 200)}" if reason and content else ""
    return (StyledText("· ", "dim"), StyledText(f"the plan is changed (version {version}){why}"))


def _chosen(attempts: Sequence[AttemptSpan]) -> Iterator[AttemptSpan]:
    """The attempts to show: of the items of a task, the first few and those that did not succeed."""
    seen: dict[str, int] = {}
    for span in attempts:
        item = item_of(span.task)
        if item is None:
            yield span
            continue
        count = seen[item[0]] = seen.get(item[0], 0) + 1
        if count <= MOST_ITEMS or span.ending not in ("done", ""):
            yield span


def _left_out(
    attempts: Sequence[AttemptSpan], place: int
) -> Iterator[tuple[datetime, int, Line, list[Line]]]:
    """A line per task with `for_each` that counts its hidden attempts, placed after the shown ones."""
    count: dict[str, int] = {}
    began: dict[str, datetime] = {}
    for sign, spans in ((1, attempts), (-1, _chosen(attempts))):
        for span in spans:
            if (item := item_of(span.task)) is not None:
                count[item[0]] = count.get(item[0], 0) + sign
                if sign < 0:
                    began[item[0]] = max(began.get(item[0], span.began_at), span.began_at)
    for task, hidden in count.items():
        if hidden:
            words = f"… {counted(hidden, 'more item')} of {clean(task)}; --json has them all"
            yield began[task], place, (StyledText(words, "dim"),), []


def _attempt(span: AttemptSpan, *, content: bool) -> Line:
    icon, style = _ENDINGS.get(span.ending, ("·", "dim"))
    again = f", attempt {span.attempt}" if span.attempt > 1 else ""
    waited = (
        f", waited {shown_length(timedelta(seconds=span.waited))}"
        if span.waited >= LEAST_WAIT
        else ""
    )
    took = shown_length(span.length) if span.ended_at else "running"
    facts = f"  {_worker(span)}{again}  {took}{waited}{_spent(span.usage)}"
    error = ""
    if span.error:
        error = f"  {span.ending}: {one_line(span.error, 300)}" if content else f"  {span.ending}"
    elif content and span.ending == "done" and not span.is_system_task:
        error = f"  → {_shown(span.value, span.blob, span.size)}"
    return (
        StyledText(f"{icon} ", style),
        StyledText(one_line(task_name(span.task), 80), "bold"),
        StyledText(facts, "dim"),
        StyledText(error, "failed" if span.error else "ink"),
    )


def _worker(span: AttemptSpan) -> str:
    """The worker of an attempt; for an attempt that combines the results of items, what the supervisor does."""
    if not is_system_task(span.worker):
        return one_line(span.worker, 40)
    return SUPERVISOR if span.is_system_task else "puts the results of its items together"


def _steps(span: AttemptSpan, *, content: bool) -> Iterator[Line]:
    for place, step in enumerate(span.steps):
        edge = "└─ " if place == len(span.steps) - 1 else "├─ "
        yield (StyledText(edge, "dim"), *_step(step, content=content))


def _step(step: StepSpan, *, content: bool) -> Iterable[StyledText]:
    took = step_time(step)
    name = step.name.removeprefix("tool ") if step.kind is StepKind.TOOL else step.name
    named = f"{step.kind} {step.model}" if step.model else f"{step.kind} {one_line(name, 60)}"
    source = f" ({step.source})" if step.source not in ("", "call") else ""
    yield StyledText(clean(named))
    yield StyledText(f"{source}  {took}{_spent(step.usage, calls=False)}", "dim")
    if step.error:
        yield StyledText(f"  {one_line(step.error, 200) if content else 'failed'}", "failed")
    elif content and step.kind is not StepKind.RUN:
        yield StyledText(f"  {_exchange(step)}", "ink")


def step_time(step: StepSpan) -> str:
    """The duration of a call without its wait for the provider, that wait, and how often the call was sent."""
    if step.ended_at is None:
        return "no end"
    length, waited = step.ended_at - step.began_at, timedelta(seconds=step.waited)
    if step.waited < LEAST_WAIT:
        waited = timedelta(0)
    words = shown_length(max(length - waited, timedelta(0)))
    words += f", waited {shown_length(waited)}" if waited else ""
    return words + (f", sent {step.sends} times" if step.sends > 1 else "")


def _exchange(step: StepSpan) -> str:
    """The input and output of a call, shortened."""
    back = step.value
    if step.kind is StepKind.MODEL and isinstance(back, dict):
        parts = back.get("parts") or []
        said = [
            part.get("text") or part.get("name") or "" for part in parts if isinstance(part, dict)
        ]
        return f"→ {one_line(' '.join(said), 100)}"
    given = step.given
    if step.kind is StepKind.TOOL and isinstance(given, dict):
        given = given.get("arguments", given)
        back = back.get("text", back) if isinstance(back, dict) else back
    return f"{_shown(given)} → {_shown(back, step.blob, step.size)}"


def _shown(value: Any, blob: str = "", size: int = 0) -> str:
    if blob:
        return f"{size:,} bytes"
    words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return one_line(words, 80)


def _spent(usage: Usage, *, calls: bool = True) -> str:
    parts = [counted(usage.calls, "call")] if calls and usage.calls else []
    if usage.tokens_in or usage.tokens_out:
        parts.append(f"{usage.tokens_in:,} → {usage.tokens_out:,} tokens")
    if usage.money:
        parts.append(money_words(usage.money))
    return f"  {', '.join(parts)}" if parts else ""
