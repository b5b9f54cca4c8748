"""How urgent each task is, and how much hangs on it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.duration_estimates import Estimates, learn
from chargehand.decisions.task_graph import TaskGraph
from chargehand.facts.events import Pace
from chargehand.facts.plan import Task
from tests.decisions.virtual_kernel import seconds, tasks_of


def graph_of(tasks: list[Task]) -> TaskGraph:
    graph = TaskGraph(lambda _: 1.0, lambda task: _seconds_of(task))
    graph.add(tasks)
    return graph


def _seconds_of(task: Task) -> float:
    return math.inf if task.deadline is None else task.deadline.total_seconds()


@st.composite
def plans(draw: st.DrawFn) -> list[Task]:
    """Sound plans in any order, some with priorities and deadlines."""
    size = draw(st.integers(1, 9))
    tasks = []
    for place in range(size):
        needs = draw(st.lists(st.integers(0, place - 1), unique=True, max_size=3)) if place else []
        deadline = draw(st.one_of(st.none(), st.integers(1, 99)))
        tasks.append(
            Task(
                id=f"t{place}",
                description="d",
                worker="w",
                needs=[f"t{need}" for need in needs],
                priority=draw(st.integers(-2, 2)),
                deadline=None if deadline is None else seconds(deadline),
            )
        )
    return draw(st.permutations(tasks))


def behind(tasks: list[Task], start: str) -> list[Task]:
    """The task and everything that waits for it, found the slow way."""
    found = [task for task in tasks if task.id == start]
    for task in found:
        found += [
            other
            for other in tasks
            if other not in found and any(need.task == task.id for need in other.all_needs)
        ]
    return found


def longest(tasks: list[Task], start: str) -> int:
    next_ones = [t for t in tasks if any(need.task == start for need in t.all_needs)]
    return 1 + max((longest(tasks, task.id) for task in next_ones), default=0)


@given(tasks=plans())
def test_a_task_inherits_from_all_that_wait_for_it(tasks: list[Task]) -> None:
    for id_, node in graph_of(tasks).nodes.items():
        waiting = behind(tasks, id_)
        assert node.urgency == max(task.priority for task in waiting)
        assert node.deadline == min(_seconds_of(task) for task in waiting)
        assert node.path == longest(tasks, id_)


@given(tasks=plans(), data=st.data())
def test_adding_tasks_later_gives_the_same_graph(tasks: list[Task], data: st.DataObject) -> None:
    in_order = sorted(tasks, key=lambda task: int(task.id[1:]))
    cut = data.draw(st.integers(0, len(in_order)))
    piecewise = graph_of(in_order[:cut])
    for task in in_order[cut:]:
        piecewise.add([task])
    whole = graph_of(in_order)
    for id_, node in whole.nodes.items():
        other = piecewise.nodes[id_]
        assert (node.urgency, node.deadline, node.path, node.unmet) == (
            other.urgency,
            other.deadline,
            other.path,
            other.unmet,
        )


def test_a_long_chain_is_no_trouble() -> None:
    size = 3000
    tasks = tasks_of(" -> ".join(f"t{place}" for place in range(size)))
    assert graph_of(tasks[::-1]).nodes["t0"].path == size


# estimates


def test_without_knowledge_every_task_counts_one_hop() -> None:
    assert Estimates({}).seconds(Task(id="a", description="d", worker="w")) == 1.0


def test_an_unknown_worker_is_taken_for_an_average_one() -> None:
    known = Estimates({"x": Pace(1, seconds(2)), "y": Pace(1, seconds(4))})
    assert known.seconds(Task(id="a", description="d", worker="x")) == 2
    assert known.seconds(Task(id="a", description="d", worker="new")) == 3


def test_what_a_task_says_itself_counts_more_than_what_is_known() -> None:
    task = Task(id="a", description="d", worker="x", expect=seconds(9))
    assert Estimates({"x": Pace(1, seconds(2))}).seconds(task) == 9


def test_paces_are_weighed_by_how_many_attempts_they_rest_on() -> None:
    learnt = learn({"x": Pace(3, seconds(2))}, [("x", Pace(1, seconds(6)))])
    assert learnt["x"] == Pace(4, seconds(3))
