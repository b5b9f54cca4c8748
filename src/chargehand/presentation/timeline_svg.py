"""The timeline of a run as an SVG: the number of parallel attempts, and a lane per worker."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from chargehand.decisions.task_and_state_words import counted
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import AttemptSpan, StepKind
from chargehand.presentation.display_text import one_line
from chargehand.presentation.svg_style import (
    BOXES,
    box,
    duration_words,
    escaped,
    fitted,
    icon,
    number,
    svg,
    text,
)

WIDTH, GUTTER, RIGHT, AXIS, STRIP, ROW, BAR, LANE_GAP = 920, 132, 16, 24, 36, 22, 17, 7
TOP = AXIS + STRIP + 8
#: larger pictures are unwieldy in a notebook; the dashboard shows all rows
MOST_ROWS = 60
#: idle stretches longer than this share of a run are collapsed, each to this many pixels
_IDLE_SHARE, _IDLE_WIDTH = 0.1, 28
_STATES = {
    "done": "done",
    "failed": "failed",
    "lost": "failed",
    "needs_input": "needs you",
    "": "running",
}
_SECONDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
    7200, 10800, 21600, 43200, 86400,
)  # fmt: skip


def timeline_svg(trace: Trace) -> str:
    """Draw a trace as a self-contained SVG, with a lane per worker.

    A thin line is the wait for a worker, a notch is a tool call, and a bold outline marks the critical path. Long idle
    stretches are collapsed.
    """
    attempts = sorted(trace.attempts, key=lambda each: each.began_at)
    if not attempts:
        words = "Nothing has been started yet." if not trace.status else "Nothing was started."
        return svg(WIDTH, 48, words, [text(16, 28, words, "ink2", size=12)])
    axis = _TimeAxis(trace, attempts)
    lanes = [(name, _rows(spans, axis)) for name, spans in _by_worker(attempts).items()]
    shown, hidden = _cut(lanes)
    height = TOP + sum(len(rows) * ROW + LANE_GAP for _, rows in shown) + (22 if hidden else 0)
    parts = [*axis.ticks(height), *_strip(attempts, axis)]
    at = float(TOP)
    for name, rows in shown:
        parts += _lane(name, rows, at, axis, set(trace.critical_path))
        at += len(rows) * ROW + LANE_GAP
    parts += axis.collapsed(height)
    if hidden:
        words = f"… and {counted(hidden, 'row')} more: the dashboard shows all"
        parts.append(text(16, at + 14, words, "ink2", size=12))
    label = (
        f"Timeline: {counted(len(attempts), 'attempt')} in {duration_words(axis.end - axis.begin)}"
    )
    return svg(WIDTH, height, label, parts)


class _TimeAxis:
    """Maps time to pixels, with idle stretches collapsed."""

    def __init__(self, trace: Trace, attempts: Sequence[AttemptSpan]) -> None:
        known = [each.ended_at or each.began_at for each in attempts]
        known += [step.ended_at or step.began_at for each in attempts for step in each.steps]
        self.begin = min(trace.began_at or attempts[0].began_at, attempts[0].began_at)
        self.end = max(trace.ended_at or max(known), max(known))
        self.end = max(self.end, self.begin + timedelta(milliseconds=1))
        self.gaps = self._idle(attempts)
        idle = sum((to - since for since, to in self.gaps), timedelta(0))
        room = WIDTH - GUTTER - RIGHT - _IDLE_WIDTH * len(self.gaps)
        self._scale = room / max((self.end - self.begin - idle).total_seconds(), 1e-6)

    def _idle(self, attempts: Sequence[AttemptSpan]) -> list[tuple[datetime, datetime]]:
        found: list[tuple[datetime, datetime]] = []
        reached = self.begin
        for start, end in [
            *((a.began_at, a.ended_at or self.end) for a in attempts),
            (self.end, self.end),
        ]:
            if start - reached > (self.end - self.begin) * _IDLE_SHARE:
                found.append((reached, start))
            reached = max(reached, end)
        return found

    def x(self, at: datetime) -> float:
        passed = (at - self.begin).total_seconds()
        x = float(GUTTER)
        for since, to in self.gaps:
            if at <= since:
                break
            share = min(1.0, (at - since) / (to - since))
            x += _IDLE_WIDTH * share
            passed -= (min(at, to) - since).total_seconds()
        return x + passed * self._scale

    def ticks(self, height: float) -> Iterator[str]:
        least = 76 / self._scale
        step = next((each for each in _SECONDS if each >= least), least)
        seconds, last = 0.0, -99.0
        while (at := self.begin + timedelta(seconds=seconds)) <= self.end:
            inside = [to for since, to in self.gaps if since < at < to]
            if inside:
                passed = (inside[0] - self.begin).total_seconds()
                seconds = step * -(-passed // step)
                continue
            x = self.x(at)
            if x - last > 60 and x < WIDTH - 40:
                yield f'<path d="M{number(x)} 18V{number(height)}" style="stroke:var(--line)"/>'
                yield text(x + 4, 15, _tick_words(seconds), "ink3")
                last = x
            seconds += step

    def collapsed(self, height: float) -> Iterator[str]:
        for since, to in self.gaps:
            x = self.x(since)
            words = f"{duration_words(to - since)} idle"
            yield (
                f'<rect x="{number(x + 1)}" y="{AXIS}" width="{_IDLE_WIDTH - 2}" height="{number(height - AXIS)}" '
                f'style="fill:var(--line);opacity:.5"/><title>{escaped(words)}</title>'
                f'<g transform="translate({number(x + _IDLE_WIDTH / 2 - 4)} {AXIS + 4}) rotate(90)">'
            )
            yield text(0, 0, words, "ink2")
            yield "</g>"


def _tick_words(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0"
    if seconds < 120:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def _by_worker(attempts: Sequence[AttemptSpan]) -> dict[str, list[AttemptSpan]]:
    """Attempts by worker: system tasks first, then workers in the order of their first attempt."""
    lanes: dict[str, list[AttemptSpan]] = {"": []}
    for each in attempts:
        lanes.setdefault("" if each.is_system_task else each.worker, []).append(each)
    return {name: spans for name, spans in lanes.items() if spans}


def _rows(spans: Sequence[AttemptSpan], axis: _TimeAxis) -> list[list[AttemptSpan]]:
    """Place attempts in as few rows as possible without overlaps."""
    rows: list[list[AttemptSpan]] = []
    for each in spans:
        for row in rows:
            if (row[-1].ended_at or axis.end) <= each.began_at:
                row.append(each)
                break
        else:
            rows.append([each])
    return rows


def _cut(
    lanes: list[tuple[str, list[list[AttemptSpan]]]],
) -> tuple[list[tuple[str, list[list[AttemptSpan]]]], int]:
    """The lanes, with at most `MOST_ROWS` rows in total, and the number of rows left out."""
    shown: list[tuple[str, list[list[AttemptSpan]]]] = []
    room = MOST_ROWS
    for name, rows in lanes:
        if room:
            shown.append((name, rows[:room]))
        room -= min(room, len(rows))
    total = sum(len(rows) for _, rows in lanes)
    return shown, total - sum(len(rows) for _, rows in shown)


def _strip(attempts: Sequence[AttemptSpan], axis: _TimeAxis) -> Iterator[str]:
    """The number of parallel attempts over time, as a filled step line."""
    changes = sorted(
        change
        for each in attempts
        if not each.is_system_task
        for change in ((each.began_at, 1), (each.ended_at or axis.end, -1))
    )
    heights: list[tuple[float, int]] = []
    working = 0
    for at, change in changes:
        working += change
        x = axis.x(at)
        if heights and x - heights[-1][0] < 0.3:
            heights[-1] = (heights[-1][0], max(working, 0))
        else:
            heights.append((x, working))
    most = max((count for _, count in heights), default=0)
    bottom = AXIS + STRIP
    yield text(12, AXIS + 14, "in parallel", "ink2")
    yield text(12, AXIS + 28, f"{most} at most", "ink3")
    if most:
        way = f"M{number(heights[0][0])} {bottom}"
        for x, count in heights:
            way += f"H{number(x)}V{number(bottom - count / most * (STRIP - 6))}"
        yield f'<path d="{way}V{bottom}Z" style="fill:var(--running);fill-opacity:.22;stroke:var(--running)"/>'
    yield f'<path d="M0 {bottom + 0.5}H{WIDTH}" style="stroke:var(--line)"/>'


def _lane(
    name: str, rows: list[list[AttemptSpan]], top: float, axis: _TimeAxis, on_path: set[str]
) -> Iterator[str]:
    yield text(12, top + 15, fitted(name or "supervisor", GUTTER - 22, 12), "ink2", size=12)
    for at, row in enumerate(rows):
        last = -1.0
        for each in row:
            x, end = axis.x(each.began_at), axis.x(each.ended_at or axis.end)
            # Bars on the same pixel are drawn once, except attempts that did not end as done.
            if end - last < 0.8 and each.ending == "done":
                continue
            last = max(end, x + 1.5)
            yield from _bar(each, x, max(end - x, 1.5), top + at * ROW, axis, on_path)
    bottom = top + len(rows) * ROW + LANE_GAP / 2
    yield f'<path d="M0 {number(bottom)}H{WIDTH}" style="stroke:var(--line)"/>'


def _bar(
    each: AttemptSpan, x: float, width: float, y: float, axis: _TimeAxis, on_path: set[str]
) -> Iterator[str]:
    state = _STATES.get(each.ending, "cancelled")
    words = f"{each.task}: {each.ending or 'running'}, {duration_words((each.ended_at or axis.end) - each.began_at)}"
    if each.attempt > 1:
        words += f", attempt {each.attempt}"
    if each.waited > 0:
        words += f", waited {duration_words(each.waited)}"
    if each.error:
        words += f"; {one_line(each.error, 200)}"
    yield f"<g><title>{escaped(words)}</title>"
    ready = axis.x(max(each.ready_at, axis.begin))
    if each.waited > 0 and x - ready > 2:
        low = number(y + BAR + 3)
        yield (
            f'<path d="M{number(ready)} {number(y + BAR)}V{low}H{number(x)}V{number(y + BAR)}" '
            'style="fill:none;stroke:var(--ready)"/>'
        )
    ink = BOXES[state][2]
    yield box(
        x,
        y + 1,
        width - (1 if width > 6 else 0),
        BAR,
        state,
        is_critical=each.task in on_path and width > 5,
    )
    for step in each.steps if width > 24 else ():
        if step.kind is StepKind.TOOL and step.ended_at is not None:
            since, until = axis.x(step.began_at), axis.x(step.ended_at)
            yield (
                f'<rect x="{number(since)}" y="{number(y + BAR - 3)}" width="{number(max(1, until - since))}" '
                f'height="4" style="fill:var(--{ink});opacity:.5"/>'
            )
    if width > 24:
        is_marked = state != "done"
        if is_marked:
            yield icon(x + 10, y + 9.5, state, ink, 0.8)
        left = x + (19 if is_marked else 6)
        yield text(left, y + 13.5, fitted(each.task, x + width - left - 5), ink)
    yield "</g>"
