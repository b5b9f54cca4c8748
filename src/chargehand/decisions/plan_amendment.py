"""Checks of a plan change. Finished tasks are never changed, and ids are never used again."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from chargehand.decisions.system_tasks import is_planned, is_system_task, of_plan
from chargehand.decisions.task_graph import Membership, TaskNode, TaskState
from chargehand.errors import Fault
from chargehand.facts.events import PlanAmended
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Task, dangling_words, faults_of_output, find_cycle

#: a part of a plan, whatever the ids of its tasks: worker and description of each
Part: TypeAlias = frozenset[tuple[str, str]]


class Amendments(Struct):
    """The changes that a plan has had, and the checks of the next one."""

    #: changes that count against `Limits.replans`
    replans: int = 0
    #: what was left to do before each change
    earlier: set[Part] = field(default_factory=set)

    def apply(self, change: PlanAmended, nodes: Mapping[str, TaskNode]) -> None:
        """Count a change. Call this before the change is made."""
        self.replans += _is_counted(change)
        self.earlier.add(_part_of(nodes, (node.task for node in nodes.values())))

    def faults(
        self, change: PlanAmended, nodes: Mapping[str, TaskNode], version: int, limits: Limits
    ) -> Iterator[Fault]:
        """Every fault of a change to the plan at `version`."""
        if change.version != version + 1:
            message = f"the plan is at version {version}, so the next is not {change.version}"
            yield Fault("version", "", message)
        if self.replans >= limits.replans and _is_counted(change):
            message = f"the plan was changed {self.replans} times, the cap; raise Limits(replans=…)"
            yield Fault("too_many_replans", "", message)
        yield from _faults_of_change(change, nodes, limits)
        kept = [node.task for node in nodes.values() if node.task.id not in change.removed]
        if _part_of(nodes, (*kept, *change.added)) in self.earlier and _is_counted(change):
            yield Fault(
                "repeated", "", "this repeats an earlier plan, which would end as it did before"
            )


def _is_counted(change: PlanAmended) -> bool:
    return not (change.is_step or change.is_steered)


def _faults_of_change(
    change: PlanAmended, nodes: Mapping[str, TaskNode], limits: Limits
) -> Iterator[Fault]:
    total = len(of_plan(nodes)) + len(change.added)
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
    for id_ in change.replaced:
        if id_ not in of_plan(nodes) or not _came_to_nothing(nodes[id_]):
            yield Fault(
                "not_replaceable", id_, "only a task that failed or was skipped can be replaced"
            )
    left = [id_ for id_ in of_plan(nodes) if not _is_removed(nodes[id_]) and id_ not in removed]
    if not left and not change.added:
        yield Fault("no_tasks", "", "nothing of the plan would be left; cancel the run instead")
    cycle = find_cycle(change.added)
    if cycle:
        yield Fault("cycle", cycle[0], f"tasks need each other in a circle: {' → '.join(cycle)}")


def _part_of(nodes: Mapping[str, TaskNode], tasks: Iterable[Task]) -> Part:
    """The unfinished part of these tasks, whatever their ids: a plan under new ids is the same plan."""
    return frozenset(
        _gist(task)
        for task in tasks
        if is_planned(task.id) and not (task.id in nodes and nodes[task.id].state.is_settled)
    )


def _gist(task: Task) -> tuple[str, str]:
    return task.worker or task.skill, " ".join(task.description.split()).casefold()


def _faults_of_removal(
    id_: str, nodes: Mapping[str, TaskNode], removed: set[str]
) -> Iterator[Fault]:
    node = nodes.get(id_)
    if node is None or not is_planned(id_):
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
    task: Task, nodes: Mapping[str, TaskNode], added: set[str], removed: set[str]
) -> Iterator[Fault]:
    for id_, other in nodes.items():
        is_same = is_planned(id_) and _gist(other.task) == _gist(task)
        if is_same and other.state is TaskState.FAILED:
            message = f"it repeats {id_}, which failed; say it otherwise, or name another worker"
            yield Fault("repeated", task.id, message)
    if is_system_task(task.id):
        yield Fault("bad_id", task.id, "ids that start with @ are the supervisor's own")
    if task.id in nodes:
        yield Fault("duplicate_id", task.id, "ids are never used again; choose a new one")
    if not task.description.strip():
        yield Fault(
            "empty_description", task.id, "the description is empty; say what is to be done"
        )
    yield from faults_of_output(task)
    for need in task.all_needs:
        if need.task == task.id:
            yield Fault("self_need", task.id, "it needs itself; drop this need")
        node = nodes.get(need.task) if is_planned(need.task) else None
        is_gone = node is not None and _is_removed(node)
        if need.task in removed or is_gone or (node is None and need.task not in added):
            known = [*(id_ for id_ in nodes if is_planned(id_)), *added]
            yield Fault("dangling_need", task.id, dangling_words(task, need, known))
        elif node is not None and not need.optional and _came_to_nothing(node):
            yield Fault(
                "dangling_need", task.id, f"it needs {need.task}, which failed or was skipped"
            )


def _is_removed(node: TaskNode) -> bool:
    return node.membership is Membership.REMOVED


def _came_to_nothing(node: TaskNode) -> bool:
    return node.state.is_settled and node.state is not TaskState.DONE
