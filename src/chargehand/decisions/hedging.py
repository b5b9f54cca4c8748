"""Hedging: a second attempt next to one that takes far too long; the first result counts.

A hedge is a system task, `@hedge:TASK:ATTEMPT`: a copy of the slow task that gets a slot of the pool only
if no other task wants it. The first of the two results becomes the task's result, and the other attempt is
stopped. A hedge must not change anything twice: it may only start pure and idempotent steps. If it fails,
is lost or needs a person, it is cancelled, without any effect on its task.
"""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from chargehand.decisions.duration_estimates import WorkTimes
from chargehand.decisions.system_tasks import HEDGE, is_hedge
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import Effect, HedgeDue, Pace, StepStarted
from chargehand.facts.plan import Task
from chargehand.facts.scheduler_commands import Command, SetTimer

#: an attempt is slow if it takes this many times the usual duration
FACTOR = 2
#: shorter attempts are never hedged
LEAST = timedelta(seconds=1)
#: the urgency of hedges: all other tasks go first
LAST = 1_000_000


def hedge_of(task: Task, attempt: int) -> Task:
    """The hedge of this attempt at a task."""
    id_ = f"{HEDGE}:{task.id}:{attempt}"
    return replace(task, id=id_, hedge=False, optional=True, deadline=None, on_failure=None)


def patience_with(
    task: Task, worker: str, seen: WorkTimes, known: Mapping[str, Pace]
) -> timedelta | None:
    """How long an attempt may take before it is hedged; None if no usual duration is known.

    The task's `expect` counts most, then the attempts `seen` in this run, then the pace `known` from past runs.
    """
    usual = seen.mean(worker) if task.expect is None else task.expect
    if usual is None and worker in known:
        usual = known[worker].mean
    return None if usual is None else max(FACTOR * usual, LEAST)


class Hedges(Struct):
    """Which open attempts are watched, and which tasks have a hedge."""

    #: whether any task of the run may be hedged
    are_wanted: bool = False
    #: tasks whose open attempt has a timer
    watched: set[str] = field(default_factory=set)
    #: by task: the hedge of its open attempt
    beside: dict[str, str] = field(default_factory=dict)

    def watch(self, node: TaskNode, seen: WorkTimes, known: Mapping[str, Pace]) -> list[Command]:
        """The timer for when an open attempt takes too long; none while no usual duration is known."""
        task, started_at = node.task, node.started_at
        if not task.hedge or task.id in self.watched or started_at is None:
            return []
        wait = patience_with(task, node.worker, seen, known)
        if wait is None:
            return []
        self.watched.add(task.id)
        due_at = started_at + wait
        return [SetTimer(due_at, HedgeDue(task=task.id, attempt=node.attempt, at=due_at))]

    def begin(self, node: TaskNode) -> Task:
        """Create the hedge of an open attempt."""
        hedge = hedge_of(node.task, node.attempt)
        self.beside[node.task.id] = hedge.id
        return hedge

    def part(self, task: str) -> str:
        """Forget the hedge of this task; returns its id, empty if there is none."""
        return self.beside.pop(task, "")


def may_begin(event: StepStarted) -> bool:
    """Whether this step may start: a hedge may only start pure and idempotent steps."""
    return not is_hedge(event.task) or event.effect in (Effect.PURE, Effect.IDEMPOTENT)
