"""What speaks against a change of plan. Finished tasks are never touched, ids never used again."""

from collections.abc import Collection, Iterator, Mapping

from chargehand.decisions.graph import Node, TaskState
from chargehand.errors import Fault
from chargehand.facts.events import PlanAmended
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Task, find_cycle


def amendment_faults(
    nodes: Mapping[str, Node],
    change: PlanAmended,
    version: int,
    limits: Limits,
    earlier: Collection[frozenset[str]],
) -> Iterator[Fault]:
    """Every fault of a change to the plan at `version`; `earlier` are the unfinished parts it has had."""
    if change.version != version + 1:
        message = f"the plan is at version {version}, so the next is not {change.version}"
        yield Fault("version", "", message)
    if version > limits.replans:
        message = (
            f"the plan was changed {version - 1} times, which is the cap; raise Limits(replans=…)"
        )
        yield Fault("too_many_replans", "", message)
    total = len(nodes) + len(change.added)
    if total > limits.tasks:
        message = f"{total} tasks are more than the cap of {limits.tasks}; raise Limits(tasks=…)"
        yield Fault("too_many_tasks", "", message)
    removed, added = set(change.removed), {task.id for task in change.added}
    if len(added) < len(change.added):
        yield Fault("duplicate_id", "", "two of the new tasks have one id; ids must be unique")
    for id_ in change.removed:
        yield from _faults_of_removal(id_, nodes, removed)
    for task in change.added:
        yield from _faults_of_addition(task, nodes, added, removed)
    left = [id_ for id_, node in nodes.items() if not node.is_removed and id_ not in removed]
    if not left and not change.added:
        yield Fault("no_tasks", "", "nothing of the plan would be left; cancel the run instead")
    cycle = find_cycle(change.added)
    if cycle:
        yield Fault("cycle", cycle[0], f"tasks need each other in a circle: {' → '.join(cycle)}")
    if (unfinished(nodes) - removed) | added in earlier:
        yield Fault(
            "repeated", "", "this repeats an earlier plan, which would end as it did before"
        )


def unfinished(nodes: Mapping[str, Node]) -> frozenset[str]:
    """The part of the plan that a change may touch."""
    return frozenset(id_ for id_, node in nodes.items() if not node.state.is_settled)


def _faults_of_removal(id_: str, nodes: Mapping[str, Node], removed: set[str]) -> Iterator[Fault]:
    node = nodes.get(id_)
    if node is None:
        yield Fault("dangling_need", id_, "there is no such task to remove")
        return
    if node.state.is_settled:
        yield Fault("settled", id_, f"it is {node.state.value} and cannot be removed")
        return
    for dependent in node.dependents:
        if dependent.task.id not in removed and not dependent.state.is_settled:
            message = f"it needs {id_}, which is to be removed"
            yield Fault("dangling_need", dependent.task.id, message)


def _faults_of_addition(
    task: Task, nodes: Mapping[str, Node], added: set[str], removed: set[str]
) -> Iterator[Fault]:
    if task.id in nodes:
        yield Fault("duplicate_id", task.id, "ids are never used again; choose a new one")
    if not task.description.strip():
        yield Fault(
            "empty_description", task.id, "the description is empty; say what is to be done"
        )
    for need in task.all_needs:
        if need.task == task.id:
            yield Fault("self_need", task.id, "it needs itself; drop this need")
        node = nodes.get(need.task)
        is_gone = node is not None and node.is_removed
        if need.task in removed or is_gone or (node is None and need.task not in added):
            yield Fault("dangling_need", task.id, f"it needs {need.task}, which is not in the plan")
        elif node is not None and not need.optional and _came_to_nothing(node):
            yield Fault("dangling_need", task.id, f"it needs {need.task}, which came to nothing")


def _came_to_nothing(node: Node) -> bool:
    return node.state.is_settled and node.state is not TaskState.DONE
