"""A plan as an SVG graph, left to right."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from chargehand.decisions.task_and_state_words import counted
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan, Task, each_words
from chargehand.presentation.display_text import one_line
from chargehand.presentation.graph_layout import GraphLayout, Vertex, lay_out, stacks_of
from chargehand.presentation.svg_style import (
    BOXES,
    box,
    escaped,
    fitted,
    icon,
    number,
    svg,
    text,
    text_width,
)

WIDTH, HEIGHT, STACK_HEIGHT, GAP, MARGIN = 184, 44, 56, 56, 16
#: larger pictures are unwieldy in a notebook; the dashboard shows all tasks
MOST_BOXES = 300
#: most urgent first: a stack has the state of its most urgent task
_URGENCY = (
    "needs you",
    "failed",
    "retrying",
    "running",
    "ready",
    "waiting",
    "done",
    "skipped",
    "cancelled",
)

_NUMBER = re.compile(r"[A-Za-z]{0,3}[-_.]?\d+")


class _Box(NamedTuple):
    """One rectangle: a task, or a stack of tasks."""

    tasks: list[Task]
    state: str
    counts: Mapping[str, int]
    is_critical: bool

    @property
    def is_stack(self) -> bool:
        return len(self.tasks) > 1


def plan_svg(
    plan: Plan, states: Mapping[str, str] | None = None, critical_path: Sequence[str] = ()
) -> str:
    """Draw the plan as a self-contained SVG. Fan-outs of a large plan are drawn as stacks.

    `states` maps task ids to `TaskState` values; the default is waiting. The critical path is drawn bold.
    """
    known = {task: _state(state) for task, state in (states or {}).items()}
    on_path = set(critical_path)
    boxes = [_box(stack, known, on_path) for stack in stacks_of(plan.tasks)]
    shown, hidden = boxes[:MOST_BOXES], boxes[MOST_BOXES:]
    place = {task.id: at for at, each in enumerate(shown) for task in each.tasks}
    needs = {
        at: list(
            dict.fromkeys(
                place[need.task]
                for task in each.tasks
                for need in task.all_needs
                if need.task in place and place[need.task] != at
            )
        )
        for at, each in enumerate(shown)
    }
    heights = {at: STACK_HEIGHT if each.is_stack else HEIGHT for at, each in enumerate(shown)}
    layout = lay_out(needs, heights)
    path = {
        (place.get(before, -1), place.get(after, -1)) for before, after in pairwise(critical_path)
    }
    foot = 22 if hidden else 0
    columns = max((vertex.rank for vertex in layout.boxes.values()), default=0) + 1
    label = f"Plan: {one_line(plan.goal, 200)}. {counted(len(plan.tasks), 'task')}"
    return svg(
        2 * MARGIN + columns * (WIDTH + GAP) - GAP,
        2 * MARGIN + layout.height + foot,
        label,
        _parts(shown, layout, path, sum(len(each.tasks) for each in hidden)),
    )


def _state(state: str) -> str:
    word = {"asking": "needs you", "needs": "needs you"}.get(str(state), str(state))
    if word not in BOXES:
        raise UsageError(
            f"states: {state!r} is not a state of a task; use one of {', '.join(BOXES)}"
        )
    return word


def _box(tasks: list[Task], states: Mapping[str, str], on_path: set[str]) -> _Box:
    counts = Counter(states.get(task.id, "waiting") for task in tasks)
    state = next(each for each in _URGENCY if counts[each])
    return _Box(tasks, state, counts, any(task.id in on_path for task in tasks))


def _parts(
    boxes: Sequence[_Box], layout: GraphLayout[int], path: set[tuple[int, int]], hidden: int
) -> Iterator[str]:
    usual = [route for ends, route in layout.lines.items() if ends not in path]
    bold = [route for ends, route in layout.lines.items() if ends in path]
    for routes, style in (
        (usual, "ready);stroke-width:1.25;opacity:.7"),
        (bold, "ink);stroke-width:2"),
    ):
        yield f'<path d="{_ways(routes)}" style="fill:none;stroke:var(--{style}"/>'
    for at, each in enumerate(boxes):
        vertex = layout.boxes[at]
        x, y = _left(vertex), MARGIN + vertex.y - vertex.height / 2
        yield f"<g><title>{escaped(_title(each))}</title>"
        yield from (_stack if each.is_stack else _single)(each, x, y)
        yield "</g>"
    if hidden:
        words = f"… and {counted(hidden, 'task')} more: the dashboard shows all"
        yield text(MARGIN, MARGIN + layout.height + 20, words, "ink2", size=12)


def _left(vertex: Vertex) -> float:
    return MARGIN + vertex.rank * (WIDTH + GAP)


def _ways(routes: Iterable[Sequence[Vertex]]) -> str:
    """The path data of lines: straight across columns, curved between them. Shared segments are drawn once."""
    ways: dict[tuple[int, int], str] = {}
    for route in routes:
        for before, vertex in pairwise(route):
            x0, x1 = _left(before) + WIDTH, _left(vertex)
            y0, y1 = number(MARGIN + before.y), number(MARGIN + vertex.y)
            middle = number((x0 + x1) / 2)
            across = f"H{number(x1 + WIDTH)}" if vertex.is_bend else ""
            way = f"M{number(x0)} {y0}C{middle} {y0} {middle} {y1} {number(x1)} {y1}{across}"
            ways[id(before), id(vertex)] = way
    return "".join(ways.values())


def _title(each: _Box) -> str:
    first = each.tasks[0]
    if each.is_stack:
        return f"{counted(len(each.tasks), 'task')}: {first.id} … {each.tasks[-1].id}"
    return f"{first.id}: {one_line(first.description, 300)}"


def _single(each: _Box, x: float, y: float) -> Iterator[str]:
    task = each.tasks[0]
    ink = BOXES[each.state][2]
    yield box(x, y, WIDTH, HEIGHT, each.state, is_critical=each.is_critical)
    yield icon(x + 16, y + 16, each.state, ink)
    room = WIDTH - 38
    yield text(
        x + 28,
        y + 20,
        fitted(_name(task), room, 12.5, is_bold=each.is_critical),
        ink,
        size=12.5,
        is_bold=each.is_critical,
    )
    words = f"{each.state} · {each_words(task)}" if task.for_each is not None else each.state
    yield text(x + 28, y + 35, fitted(words, room), ink)
    left = room - text_width(words) - 18
    if left > 40 and (worker := fitted(task.worker or task.skill, left)):
        yield text(x + WIDTH - 10, y + 35, worker, ink, anchor="end")


def _stack(each: _Box, x: float, y: float) -> Iterator[str]:
    is_done = each.state == "done"
    for back in (2, 1):
        yield box(
            x + 3 * back, y + 22 + 3 * back, WIDTH - 6 * back, 28, "done" if is_done else "ready"
        )
    front = "done" if is_done else "waiting" if each.state == "waiting" else "ready"
    ink = BOXES[front][2]
    yield box(x, y, WIDTH, STACK_HEIGHT - 6, front, is_critical=each.is_critical)
    colour = "needs" if each.state == "needs you" else each.state
    is_urgent = each.state in ("needs you", "failed", "running", "retrying")
    yield icon(x + 16, y + 14, each.state, colour if is_urgent else ink)
    count = f"×{len(each.tasks)}"
    yield text(x + WIDTH - 10, y + 18, count, ink, size=12.5, anchor="end")
    name = fitted(
        _stack_name(each.tasks),
        WIDTH - 50 - text_width(count, 12.5),
        12.5,
        is_bold=each.is_critical,
    )
    yield text(x + 28, y + 18, name, ink, size=12.5, is_bold=each.is_critical)
    words = " · ".join(f"{each.counts[state]} {state}" for state in _URGENCY if each.counts[state])
    yield text(x + 28, y + 32, fitted(words, WIDTH - 38), ink)
    yield from _bar(each, x + 10, y + 39, WIDTH - 20)


def _bar(each: _Box, x: float, y: float, width: float) -> Iterator[str]:
    """A bar with the share of each state."""
    yield f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="5" style="fill:var(--line)"/>'
    for state in ("done", "failed", "running", "retrying", "needs you", "ready"):
        share = width * each.counts.get(state, 0) / len(each.tasks)
        if share:
            colour = "needs" if state == "needs you" else state
            yield (
                f'<rect x="{number(x)}" y="{number(y)}" width="{number(share)}" height="5" '
                f'style="fill:var(--{colour})"/>'
            )
            x += share


def _name(task: Task) -> str:
    """The id of a task; if the id is only a number, with the description."""
    return f"{task.id}  {task.description}" if _NUMBER.fullmatch(task.id) else task.id


def _stack_name(tasks: Sequence[Task]) -> str:
    """The common prefix of the ids, if it is long enough; otherwise the worker."""
    common = tasks[0].id
    for task in tasks:
        while not task.id.startswith(common):
            common = common[:-1]
    name = common.rstrip("0123456789._:-")
    return name if len(name) > 2 else tasks[0].worker or tasks[0].skill or tasks[0].id
