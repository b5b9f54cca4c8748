"""Shows runs in a notebook: plans, results and traces as HTML, and live progress in a cell.

Text from models and tools is escaped, and the HTML loads nothing from the network.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Unpack

from chargehand.decisions.task_and_state_words import counted
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.trace import Trace
from chargehand.errors import UsageError
from chargehand.facts.answer import Answer, AnswerPiece
from chargehand.facts.durations import shown_length
from chargehand.facts.events import RunStatus
from chargehand.facts.plan import Plan
from chargehand.presentation.display_text import clean, money_words, one_line, output_words
from chargehand.presentation.live_frame import Line, LiveFrame
from chargehand.presentation.live_state import LiveState
from chargehand.presentation.plan_svg import plan_svg
from chargehand.presentation.progress_lines import task_counts
from chargehand.presentation.svg_style import escaped
from chargehand.presentation.timeline_svg import timeline_svg
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.supervisor.requests import RunOptions

#: seconds between two updates of a cell: at least, and while nothing happens
PAUSE, TICK = 0.25, 1.0
COLUMNS, ROWS = 100, 32
#: readable on light and dark backgrounds
_COLOURS = {
    "dim": "#7c848d",
    "done": "#2f9866",
    "failed": "#e04848",
    "needs": "#e8700f",
    "ready": "#7c848d",
    "retrying": "#9d68e8",
    "running": "#3f7ff5",
    "waiting": "#7c848d",
}


def html_of(value: object) -> str:
    """A plan, a result or a trace as HTML for one cell."""
    match value:
        case Plan():
            parts = _plan_parts(value)
        case RunResult():
            parts = _result_parts(value)
        case Trace():
            parts = _trace_parts(value)
        case _:
            raise UsageError(f"{type(value).__name__} has no form for notebooks")
    return f'<div class="chargehand">{"".join(parts)}</div>'


async def run_in_notebook(
    boss: Supervisor, request: str | Plan, **terms: Unpack[RunOptions]
) -> RunResult:
    """Like `boss.run`, and show live progress in the current notebook cell.

    Interrupting the cell cancels the run. Raises `UsageError` if IPython is not installed.
    """
    cell = _Cell()
    state = LiveState()
    painting = asyncio.ensure_future(_keep_painting(cell, state))
    try:
        async with aclosing(boss.stream(request, **terms)) as heard:  # type: ignore[type-var]  # an async generator
            async for each in heard:
                if not isinstance(each, AnswerPiece):
                    state.hear(each)
                    cell.changed.set()
    finally:
        painting.cancel()
        cell.show(progress_html(state, datetime.now(UTC)))
    return await boss.control.look(state.run, terms.get("output"))


async def _keep_painting(cell: "_Cell", state: LiveState) -> None:
    while True:
        cell.changed.clear()
        cell.show(progress_html(state, datetime.now(UTC)))
        await asyncio.sleep(PAUSE)
        try:
            await asyncio.wait_for(cell.changed.wait(), TICK - PAUSE)
        except TimeoutError:
            continue  # update the clocks


class _Cell:
    """The output of a notebook cell, which each `show` replaces."""

    def __init__(self) -> None:
        try:
            display: Any = import_module("IPython.display")
        except ImportError:
            raise UsageError(
                "run_in_notebook needs IPython, which is missing here; use boss.run"
            ) from None
        self._as_html: Any = display.HTML
        self._handle: Any = display.display(self._as_html(""), display_id=True)
        self._shown = ""
        self.changed = asyncio.Event()

    def show(self, html: str) -> None:
        if html != self._shown and self._handle is not None:  # None outside a kernel
            self._shown = html
            self._handle.update(self._as_html(html))


def progress_html(state: LiveState, now: datetime) -> str:
    """The progress of a run as HTML: the lines of the live view in the terminal."""
    frame = LiveFrame(state=state, now=now, columns=COLUMNS, rows=ROWS)
    lines = frame.lines()[1:-1]  # without the horizontal rule and the keys
    if state.status is not None:
        lines = lines[:2]
    return f'<pre style="line-height:1.35">{chr(10).join(map(_line_html, lines))}</pre>'


def _line_html(line: Line) -> str:
    return "".join(
        f'<span style="{_style(part.style)}">{escaped(part.text)}</span>'
        if part.style != "ink"
        else escaped(part.text)
        for part in line
    )


def _style(name: str) -> str:
    colour = f"color:{_COLOURS[name]};" if name in _COLOURS else ""
    return f"{colour}font-weight:bold" if name in ("bold", "needs") else colour


def _plan_parts(plan: Plan) -> Iterator[str]:
    yield _head(plan.goal, f"{counted(len(plan.tasks), 'task')}, version {plan.version}")
    if plan.tasks:
        yield _wide(plan_svg(plan))


def _trace_parts(trace: Trace) -> Iterator[str]:
    words = f"{trace.status or 'not ended'} in {shown_length(trace.wall)}"
    yield _head(trace.request or trace.run, f"{words}; {_spent(trace)}")
    if trace.attempts:
        yield _wide(timeline_svg(trace))
    if trace.critical_path:
        path = " → ".join(task for task in trace.critical_path if not task.startswith("@"))
        yield _small(f"waited on {one_line(path, 300)}")


def _result_parts(result: RunResult) -> Iterator[str]:
    is_ended = isinstance(result.status, RunStatus)
    words = f"{result.status.value} after {shown_length(result.wall)}; {task_counts(result)}"
    yield _head(result.request, f"{words}; run {result.id}")
    if any(task.state is TaskState.DONE for task in result.tasks.values()):
        yield from _answer_parts(result.answer)
    for question in result.questions:
        asked = f"▲ asks: {one_line(question.text, 300)}"
        how = f'await boss.answer("{question.id}", "…")'
        yield f'<p style="color:{_COLOURS["needs"]}">{escaped(asked)}<br><code>{escaped(how)}</code></p>'
    trace = result.trace if is_ended else None
    plan = _plan_of(result)
    if plan is not None:
        states = {id_: task.state.value for id_, task in result.tasks.items()}
        path = () if trace is None else tuple(trace.critical_path)
        yield _folded("plan", plan_svg(plan, states, path))
    if trace is not None and trace.attempts:
        yield _folded("timeline", timeline_svg(trace))


def _answer_parts(answer: Answer) -> Iterator[str]:
    text = clean(output_words(answer.output))
    yield f'<div style="white-space:pre-wrap;margin:.6em 0">{escaped(text)}</div>'
    sources = [f"{one_line(claim.text, 300)} [{', '.join(claim.tasks)}]" for claim in answer.claims]
    yield from _listed("based on", sources)
    yield from _listed(
        "contradictions", [one_line(str(pair), 400) for pair in answer.contradictions]
    )
    yield from _listed("missing", [one_line(str(gap), 300) for gap in answer.gaps])


def _plan_of(result: RunResult) -> Plan | None:
    """The current plan; None if there are no tasks or a need is unknown."""
    tasks = [task.task for task in result.tasks.values()]
    known = {task.id for task in tasks}
    is_whole = all(need.task in known for task in tasks for need in task.all_needs)
    return Plan(goal=result.request or "-", tasks=tasks) if tasks and is_whole else None


def _spent(trace: Trace) -> str:
    usage = trace.usage
    if not usage.calls:
        return "no model calls"
    tokens = usage.tokens_in + usage.tokens_out
    return f"{counted(usage.calls, 'call')}, {tokens:,} tokens, {money_words(usage.money)}"


def _head(title: str, facts: str) -> str:
    name = escaped(one_line(title, 300))
    return f'<div style="font-weight:600">{name}</div>{_small(facts)}'


def _small(words: str) -> str:
    return f'<div style="color:{_COLOURS["dim"]};font-size:90%">{escaped(words)}</div>'


def _wide(svg: str) -> str:
    return f'<div style="overflow-x:auto;margin:.4em 0">{svg}</div>'


def _folded(name: str, svg: str) -> str:
    return f"<details open><summary>{escaped(name)}</summary>{_wide(svg)}</details>"


def _listed(name: str, lines: Iterable[str]) -> Iterator[str]:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    if items:
        yield f"<details><summary>{escaped(name)}</summary><ul>{items}</ul></details>"
