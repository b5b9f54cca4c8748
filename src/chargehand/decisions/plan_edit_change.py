"""Turns a plan that a person has edited into a change of the run's plan."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.system_tasks import is_planned
from chargehand.decisions.task_graph import Membership, TaskNode
from chargehand.errors import Fault
from chargehand.facts.events import PlanAmended
from chargehand.facts.plan import Plan, Task, item_id


class PlanEdit(Struct, frozen=True):
    """The change that an edited plan makes."""

    change: PlanAmended
    #: by old id: the new id. Ids are never used again, so a changed task gets a new id
    renamed: dict[str, str]
    #: tasks that can no longer be changed
    faults: tuple[Fault, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.change.added or self.change.removed)


def is_editable(nodes: Mapping[str, TaskNode], id_: str) -> bool:
    """Whether a task may still be changed: neither the task nor any of its items was started."""
    node = nodes[id_]
    return (
        is_planned(id_)
        and node.membership is Membership.PLANNED
        and not node.attempt
        and not node.state.is_settled
        and item_id(id_, 0) not in nodes
    )


def plan_edit(
    nodes: Mapping[str, TaskNode], wanted: Plan, version: int, *, reason: str, at: datetime
) -> PlanEdit:
    """The change that turns the plan at `version` into the `wanted` plan."""
    current = {
        id_: node
        for id_, node in nodes.items()
        if is_planned(id_) and node.membership is Membership.PLANNED
    }
    renamed = _renamed(nodes, current, wanted)
    kept = {task.id for task in wanted.tasks}
    gone = [id_ for id_ in current if id_ not in kept]
    removed = [id_ for id_ in current if id_ in renamed or id_ in gone]
    faults = tuple(
        Fault("started", id_, "it was started, so it can be neither changed nor removed")
        for id_ in removed
        if not is_editable(nodes, id_)
    )
    taint = dict.fromkeys(source for id_ in removed for source in current[id_].taint)
    added = [
        _moved(task, renamed) for task in wanted.tasks if task.id in renamed or task.id not in nodes
    ]
    change = PlanAmended(
        version=version + 1,
        added=tuple(added),
        removed=tuple(removed),
        reason=reason,
        is_steered=True,
        taint=tuple(taint),
        at=at,
    )
    return PlanEdit(change, renamed, faults)


def _renamed(
    nodes: Mapping[str, TaskNode], current: Mapping[str, TaskNode], wanted: Plan
) -> dict[str, str]:
    """By old id: new ids of the changed tasks and of all tasks that need them."""
    taken = {*nodes, *(task.id for task in wanted.tasks)}
    renamed: dict[str, str] = {}

    def rename(id_: str) -> None:
        number = 2
        while f"{id_}.{number}" in taken:
            number += 1
        renamed[id_] = f"{id_}.{number}"
        taken.add(renamed[id_])

    for task in wanted.tasks:
        is_known = task.id in nodes
        if is_known and (task.id not in current or task != current[task.id].task):
            rename(task.id)
    is_growing = bool(renamed)
    while is_growing:
        is_growing = False
        for task in wanted.tasks:
            is_hit = any(need.task in renamed for need in task.all_needs)
            if is_hit and task.id in nodes and task.id not in renamed:
                rename(task.id)
                is_growing = True
    return renamed


def _moved(task: Task, renamed: Mapping[str, str]) -> Task:
    """A task with its new id and the new ids of its needs; inputs keep their names."""
    needs = tuple(
        replace(need, task=renamed[need.task], name=need.key) if need.task in renamed else need
        for need in task.all_needs
    )
    return replace(task, id=renamed.get(task.id, task.id), needs=needs)
