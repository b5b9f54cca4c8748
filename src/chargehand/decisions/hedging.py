"""Hedging: a second attempt beside one that takes far too long; the first result counts.

A hedge is a task of no plan, `@hedge:TASK:ATTEMPT`, a copy of the straggler that takes a place of the
pool only when nobody else wants it. Whichever of the two is done first makes the task's result, and the
other is stopped. A hedge changes nothing outside: it may begin pure and idempotent steps only, is asked
nothing, and whatever else becomes of it is without consequence.
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

#: an attempt that takes so many times as long as its worker usually takes is a straggler
FACTOR = 2
#: nothing shorter is worth a second attempt
LEAST = timedelta(seconds=1)
#: the urgency of hedges: everything else goes first
LAST = 1_000_000


def hedge_of(task: Task, attempt: int) -> Task:
    """The task that does the same beside this attempt."""
    id_ = f"{HEDGE}:{task.id}:{attempt}"
    return replace(task, id=id_, hedge=False, optional=True, deadline=None, on_failure=None)


def patience_with(
    task: Task, worker: str, seen: WorkTimes, known: Mapping[str, Pace]
) -> timedelta | None:
    """How long an attempt may take before it is a straggler; None if nobody knows what is usual.

    What this run has `seen` of the worker counts more than what was `known` before.
    """
    usual = seen.mean(worker) if task.expect is None else task.expect
    if usual is None and worker in known:
        usual = known[worker].mean
    return None if usual is None else max(FACTOR * usual, LEAST)


class Hedges(Struct):
    """Which open attempts are watched, and which hedge was begun beside which task."""

    #: whether any task of the run may be hedged
    are_wanted: bool = False
    #: tasks of whose open attempts it is known when they will have taken too long
    watched: set[str] = field(default_factory=set)
    #: by task: the hedge beside its open attempt
    beside: dict[str, str] = field(default_factory=dict)

    def watch(self, node: TaskNode, seen: WorkTimes, known: Mapping[str, Pace]) -> list[Command]:
        """The timer that goes off when an open attempt will have taken too long, once that is known."""
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
        """The hedge of the open attempt."""
        hedge = hedge_of(node.task, node.attempt)
        self.beside[node.task.id] = hedge.id
        return hedge

    def part(self, task: str) -> str:
        """Forget the hedge beside this task; returns its id, or nothing if there is none."""
        return self.beside.pop(task, "")


def may_begin(event: StepStarted) -> bool:
    """Whether a step may be begun by whoever wants to: a hedge must not change the world twice."""
    return not is_hedge(event.task) or event.effect in (Effect.PURE, Effect.IDEMPOTENT)
