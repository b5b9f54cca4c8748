"""The tasks of a run as a graph: dependencies, urgency, longest remaining paths."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from chargehand.facts.failure_policy import Recourse
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import ErrorClass, Failed, Question
from chargehand.facts.plan import Task, item_id

K = TypeVar("K", bound=Hashable)


class TaskState(StrEnum):
    """The state of a task. `schedule.TRANSITIONS` lists which state leads to which."""

    # Where such a task is found: waiting, `TaskNode.unmet` counts what it needs; ready, in the queue of `Dispatch`;
    # running, by `TaskNode.worker`; retrying, until `TaskNode.due_at`; asking, `TaskNode.question`; failed and
    # skipped, `TaskNode.cause` and `TaskNode.why` say why.

    WAITING = "waiting"  #: a task that it needs has not ended yet
    READY = "ready"  #: its needs are met; it is waiting for a slot
    RUNNING = "running"  #: an attempt at it is in progress
    RETRYING = "retrying"  #: its last attempt ended without a result; it is waiting for the next one and holds no slot
    ASKING = "asking"  #: it is waiting for a person's answer and holds no slot
    DONE = "done"  #: it has a result
    FAILED = "failed"  #: it has failed for good and will not be retried
    SKIPPED = (
        "skipped"  #: it will not run: a required need failed or was skipped, or the run was stopped
    )
    CANCELLED = "cancelled"  #: the run was cancelled, or the task was removed from the plan

    #: whether this can no longer change
    is_settled: bool
    #: whether the run moves on by itself through this task: no person is waited for
    is_live: bool
    #: a bit of its own
    bit: int
    #: the bits of the states that may follow
    next_bits: int

    def __init__(self, value: str) -> None:
        self.is_settled = value in ("done", "failed", "skipped", "cancelled")
        self.is_live = value in ("ready", "running", "retrying")
        self.bit = 1 << len(type(self).__members__)
        self.next_bits = 0


class Membership(StrEnum):
    """Whether a task still counts as part of the plan."""

    PLANNED = "planned"
    REMOVED = "removed"  #: removed by an amendment
    REPLACED = "replaced"  #: failed or was skipped, and later tasks replace it
    ITEM = "item"  #: one item of a task with `for_each`, which counts for all its items


class TaskNode(Struct, eq=False, gc=False):
    """A task and everything that the schedule knows about it."""

    # Not tracked by the garbage collector: nodes point forward only, so they form no cycles, and
    # collections that walk a hundred thousand nodes took a third of all CPU time.
    task: Task
    order: int
    state: TaskState = TaskState.WAITING
    #: needs that are not settled yet
    unmet: int = 0
    dependents: "list[TaskNode] | tuple[()]" = ()
    optional_needs: tuple[str, ...] = ()
    #: seconds of the longest remaining path, this task included
    path: float = 0.0
    #: its priority, or a higher one of a task that waits for it
    urgency: int = 0
    #: its deadline, or an earlier one of a task that waits for it; in seconds since the Unix epoch
    deadline: float = math.inf
    #: number of the last attempt
    attempt: int = 0
    #: failures that count as tries
    tries: int = 0
    #: lost workers and preemptions since its last finished step
    losses: int = 0
    lineage: int = 1
    worker: str = ""
    avoid: tuple[str, ...] = ()
    started_at: datetime | None = None
    #: since when it waits for what it waits for now
    since_at: datetime | None = None
    due_at: datetime | None = None
    question: Question | None = None
    cause: Failed | None = None
    #: for a task that is or will be skipped: the task that failed first
    why: str = ""
    #: for a task that did not run because the run stopped: why the run stopped
    stopped: str = ""
    #: why it was parked last
    waits_for: str = ""
    #: how often it was parked; these attempts count neither as tries nor as losses
    parks: int = 0
    membership: Membership = Membership.PLANNED
    #: for a failed task: what happens to the tasks that need it
    recourse: Recourse | None = None
    #: error classes of the failures that count as tries
    failures: tuple[ErrorClass, ...] = ()
    #: the worker that failed first; its policy stays in force if the task gets another worker
    failed_first: str = ""
    #: tries beyond the first that its failure policy, or a person, granted
    granted: int = 0
    last_failure: Failed | None = None
    #: untrusted sources that its description derives from
    taint: tuple[str, ...] = ()
    #: for a task with a partial result: what is missing
    gaps: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether an attempt at it is in progress."""
        return self.state is TaskState.RUNNING

    @property
    def is_doomed(self) -> bool:
        """Whether it will be skipped, because a task that it needs has no result."""
        return bool(self.why)

    @property
    def is_waived(self) -> bool:
        """Whether it failed and the tasks that need it run without its result."""
        return self.recourse is Recourse.WITHOUT

    def __repr__(self) -> str:
        return f"<{self.task.id} {self.state.value} attempt {self.attempt}>"


#: states in which a task that waits for its items is shown: the first of them that any item has
_SHOWN_OF_ITEMS = (TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING, TaskState.READY)


def shown_state(node: TaskNode, nodes: Mapping[str, TaskNode]) -> TaskState:
    """The state of a task as people see it: a task that waits for its items is shown in their state."""
    if node.state is not TaskState.WAITING or node.task.for_each is None:
        return node.state
    items = {item.state for item in items_of(node, nodes)}
    return next((state for state in _SHOWN_OF_ITEMS if state in items), node.state)


def items_of(node: TaskNode, nodes: Mapping[str, TaskNode]) -> Iterator[TaskNode]:
    """The items of a task with `for_each`, in order; none before they are listed."""
    for index in itertools.count():
        item = nodes.get(item_id(node.task.id, index))
        if item is None:
            return
        yield item


class TaskGraph:
    """All nodes, in plan order. Tasks can be added but not removed."""

    def __init__(self, seconds: Callable[[Task], float], deadline: Callable[[Task], float]) -> None:
        self.nodes: dict[str, TaskNode] = {}
        #: older nodes whose rank rose because of the newest nodes
        self.lifted: list[TaskNode] = []
        self.deadline_of = deadline
        self._seconds = seconds

    def add(self, tasks: Iterable[Task]) -> list[TaskNode]:
        """Add tasks that may need each other and earlier ones; returns their nodes."""
        fresh: list[TaskNode] = []
        nodes = self.nodes
        for task in tasks:
            node = TaskNode(task, len(nodes), urgency=task.priority)
            nodes[task.id] = node
            fresh.append(node)
        is_in_order = True
        for node in fresh:
            if not node.task.needs:
                continue
            required = {need.task for need in node.task.all_needs if not need.optional}
            for need in node.task.all_needs:
                upstream = nodes[need.task]
                is_in_order = is_in_order and upstream.order < node.order
                if need.optional and need.task not in required:
                    node.optional_needs += (need.task,)
                if not upstream.state.is_settled:
                    node.unmet += 1
                if upstream.dependents:
                    upstream.dependents.append(node)
                else:
                    upstream.dependents = [node]
        for node in reversed(fresh if is_in_order else _in_order(fresh)):
            self._weigh(node)
        self._lift(fresh)
        return fresh

    def add_items(self, tasks: Iterable[Task], mapped: TaskNode) -> list[TaskNode]:
        """Add the items of a task with `for_each`; they are as urgent as the task."""
        fresh: list[TaskNode] = []
        for task in tasks:
            node = TaskNode(task, len(self.nodes), membership=Membership.ITEM, taint=mapped.taint)
            self.nodes[task.id] = node
            fresh.append(node)
        self.weigh_items(fresh, mapped)
        return fresh

    def weigh_items(self, items: Iterable[TaskNode], mapped: TaskNode) -> None:
        """Give the items the path, urgency and deadline of their task."""
        for node in items:
            node.path, node.urgency, node.deadline = mapped.path, mapped.urgency, mapped.deadline

    def _weigh(self, node: TaskNode) -> None:
        """Set path, urgency and deadline of a node from its own task and its dependents."""
        longest, urgency, deadline = 0.0, node.task.priority, self.deadline_of(node.task)
        for dependent in node.dependents:
            if dependent.path > longest:
                longest = dependent.path
            if dependent.urgency > urgency and not dependent.state.is_settled:
                urgency = dependent.urgency
            if dependent.deadline < deadline:
                deadline = dependent.deadline
        node.path = longest + self._seconds(node.task)
        node.urgency = urgency
        node.deadline = deadline

    def _lift(self, fresh: list[TaskNode]) -> None:
        """Update path, urgency and deadline of the older nodes that the new nodes need, directly or not."""
        self.lifted = []
        if len(fresh) == len(self.nodes):
            return
        oldest_fresh = fresh[0].order if fresh else 0
        above: dict[str, TaskNode] = {}
        rising = list(fresh)
        while rising:
            for need in rising.pop().task.all_needs:
                upstream = self.nodes[need.task]
                if upstream.state.is_settled:
                    continue  # no task waits for it any more, nor through it for others
                if upstream.order < oldest_fresh and need.task not in above:
                    above[need.task] = upstream
                    rising.append(upstream)
        # Each node once, after all nodes that wait for it. In the order found, a long path that is found
        # after a short one would double the work at every fork.
        for node in reversed(_in_order(list(above.values()))):
            before = (node.path, node.urgency, node.deadline)
            self._weigh(node)
            if before != (node.path, node.urgency, node.deadline):
                self.lifted.append(node)


def _in_order(nodes: list[TaskNode]) -> list[TaskNode]:
    """The nodes in topological order: each after those among them that it needs."""
    inside = {node.task.id: node for node in nodes}
    unmet = {node.task.id: 0 for node in nodes}
    for node in nodes:
        unmet[node.task.id] = sum(need.task in inside for need in node.task.all_needs)
    free = [node for node in nodes if not unmet[node.task.id]]
    for node in free:  # grows while it is walked
        for dependent in node.dependents:
            id_ = dependent.task.id
            if id_ in unmet:
                unmet[id_] -= 1
                if not unmet[id_]:
                    free.append(dependent)
    return free


def check_nodes(
    nodes: Iterable[TaskNode], limits: Limits, *, is_stopping: bool
) -> tuple[int, int, int]:
    """Check the invariants of every node; returns the numbers of live, unsettled and open nodes."""
    live = unsettled = opened = 0
    for node in nodes:
        live += node.state.is_live
        unsettled += not node.state.is_settled
        opened += node.is_open
        if node.state is TaskState.WAITING and not node.is_doomed and not is_stopping:
            assert node.unmet > 0, f"{node} waits for nothing"
        if node.state in (TaskState.RUNNING, TaskState.READY, TaskState.DONE):
            assert node.unmet == 0, f"{node} went ahead of its needs"
        assert (node.question is not None) == (node.state is TaskState.ASKING), f"{node}: question"
        most = max(node.task.limits.attempts or limits.attempts, 1 + node.granted)
        assert node.tries <= most, f"{node} was tried {node.tries} times of {most}"
        assert node.losses <= limits.losses + 1, f"{node} was lost {node.losses} times"
        for dependent in () if node.state.is_settled else node.dependents:
            is_below = node.urgency < dependent.urgency and not dependent.state.is_settled
            assert not is_below, f"{node} is less urgent than {dependent}, which waits for it"
    return live, unsettled, opened


def ranks_of(needs: Mapping[K, Iterable[K]]) -> dict[K, int]:
    """The length of the longest path to each node. Unknown needs, and needs that close a cycle, do not count."""
    ranks: dict[K, int] = {}
    entered: set[K] = set()
    for root in needs:
        stack = [root]
        while stack:
            at = stack[-1]
            if at in ranks:  # more than one needs it
                stack.pop()
                continue
            entered.add(at)
            open_needs = [need for need in needs[at] if need in needs and need not in entered]
            if open_needs:
                stack.extend(open_needs)
                continue
            stack.pop()
            ranks[at] = max((ranks[need] + 1 for need in needs[at] if need in ranks), default=0)
    return ranks
