"""Layered layout of a plan, left to right, for pictures of a few hundred boxes. The dashboard has its own layout.

The rank of a task is the length of the longest path to it; each rank is a column. A need that spans several ranks gets
a bend in each column between. Barycentre sweeps order the columns; isotonic regression sets the vertical positions.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from chargehand.decisions.task_graph import ranks_of
from chargehand.facts.plan import Task

#: in plans with more tasks, siblings are folded into stacks
FOLD_ABOVE = 80
_SMALLEST_STACK = 3
_SWEEPS = 8
K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Vertex:
    """A box, or a bend of a line that passes through a column."""

    rank: int
    height: float
    y: float = 0.0
    order: float = 0.0
    before: "list[Vertex]" = field(default_factory=list, repr=False)
    after: "list[Vertex]" = field(default_factory=list, repr=False)
    is_bend: bool = False


@dataclass(frozen=True, slots=True)
class GraphLayout(Generic[K]):
    boxes: dict[K, Vertex]
    #: for each edge: its first box, the bends, its last box
    lines: dict[tuple[K, K], list[Vertex]]
    height: float


def stacks_of(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group the tasks of a large plan: siblings with the same worker and needs form a stack, others stay single."""
    needs = {task.id: [need.task for need in task.all_needs] for task in tasks}
    ranks = ranks_of(needs)
    if len(tasks) <= FOLD_ABOVE:
        return [[task] for task in tasks]
    stack_of: dict[str, int] = {}
    stacks: list[list[Task]] = []
    by_rank: dict[int, list[Task]] = {}
    for task in tasks:
        by_rank.setdefault(ranks[task.id], []).append(task)
    for rank in sorted(by_rank):
        groups: dict[Hashable, list[Task]] = {}
        for task in by_rank[rank]:
            groups.setdefault(_signature(task, needs[task.id], stack_of, stacks), []).append(task)
        for group in groups.values():
            if len(group) < _SMALLEST_STACK:
                stacks.extend([task] for task in group)
                continue
            stack_of.update(dict.fromkeys((task.id for task in group), len(stacks)))
            stacks.append(group)
    return stacks


def _signature(
    task: Task, needs: list[str], stack_of: Mapping[str, int], stacks: list[list[Task]]
) -> Hashable:
    """Equal for tasks that fold together: same worker, same single needs, equally many needs in each stack."""
    single = frozenset(need for need in needs if stack_of.get(need, -1) < 0)
    shares: dict[int, int] = {}
    for need in needs:
        if (stack := stack_of.get(need, -1)) >= 0:
            shares[stack] = shares.get(stack, 0) + 1
    parts = frozenset(
        (at, 0 if count == len(stacks[at]) else count) for at, count in shares.items()
    )
    return (task.worker, task.skill, single, parts)


def lay_out(
    needs: Mapping[K, Sequence[K]], heights: Mapping[K, float], gap: float = 12, bend: float = 8
) -> GraphLayout[K]:
    """Place all boxes and route all lines. `heights` are the heights of the boxes, `bend` is the height of a bend."""
    ranks = ranks_of(needs)
    boxes = {key: Vertex(ranks[key], heights[key]) for key in needs}
    columns: list[list[Vertex]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for vertex in boxes.values():
        columns[vertex.rank].append(vertex)
    chains: dict[K, list[Vertex]] = {}
    lines: dict[tuple[K, K], list[Vertex]] = {}
    for key, wanted in needs.items():
        for need in dict.fromkeys(wanted):
            if need in boxes and ranks[need] < ranks[key]:
                passed = _bends(chains.setdefault(need, []), boxes[need], boxes[key], bend, columns)
                lines[need, key] = [boxes[need], *passed, boxes[key]]
    _order(columns)
    return GraphLayout(boxes, lines, _place(columns, gap))


def _bends(
    chain: list[Vertex], first: Vertex, last: Vertex, height: float, columns: list[list[Vertex]]
) -> list[Vertex]:
    """The bends of one line. All lines from the same box share their bends."""
    span = last.rank - first.rank - 1
    while len(chain) < span:
        before = chain[-1] if chain else first
        vertex = Vertex(before.rank + 1, height, is_bend=True)
        columns[vertex.rank].append(vertex)
        _join(before, vertex)
        chain.append(vertex)
    _join(chain[span - 1] if span else first, last)
    return chain[:span]


def _join(before: Vertex, after: Vertex) -> None:
    before.after.append(after)
    after.before.append(before)


def _order(columns: list[list[Vertex]]) -> None:
    for column in columns:
        _number(column)
    for sweep in range(_SWEEPS):
        is_forth = sweep % 2 == 0
        for column in columns if is_forth else reversed(columns):
            keys = {
                id(v): _mean([w.order for w in (v.before if is_forth else v.after)], v.order)
                for v in column
            }
            column.sort(key=lambda v: keys[id(v)])
            _number(column)


def _number(column: list[Vertex]) -> None:
    for at, vertex in enumerate(column):
        vertex.order = at


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _place(columns: list[list[Vertex]], gap: float) -> float:
    """Set `y` of each vertex, and return the total height."""
    for column in columns:
        at = -sum(vertex.height + gap for vertex in column) / 2
        for vertex in column:
            vertex.y = at + vertex.height / 2
            at += vertex.height + gap
    for is_forth in (True, False, True, False):
        for column in columns[1:] if is_forth else columns[-2::-1]:
            _settle(column, gap, is_forth)
    everything = [vertex for column in columns for vertex in column]
    top = min((vertex.y - vertex.height / 2 for vertex in everything), default=0.0)
    for vertex in everything:
        vertex.y = round(vertex.y - top)
    return max((vertex.y + vertex.height / 2 for vertex in everything), default=0.0)


def _settle(column: list[Vertex], gap: float, is_forth: bool) -> None:
    """Move vertices as near to the mean of their neighbours as order and spacing allow (isotonic regression)."""
    offsets: list[float] = []
    blocks: list[tuple[float, float, int]] = []
    for at, vertex in enumerate(column):
        before = column[at - 1] if at else vertex
        step = (before.height + vertex.height) / 2 + gap if at else 0.0
        offsets.append(offsets[-1] + step if at else 0.0)
        near = vertex.before if is_forth else vertex.after
        weight = (4.0 if vertex.is_bend else 1.0) * len(near) or 0.01
        block = (_mean([each.y for each in near], vertex.y) - offsets[-1], weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            value, heavy, count = blocks.pop()
            both = heavy + block[1]
            block = ((value * heavy + block[0] * block[1]) / both, both, count + block[2])
        blocks.append(block)
    places = [value for value, _, count in blocks for _ in range(count)]
    for vertex, place, offset in zip(column, places, offsets, strict=True):
        vertex.y = place + offset
