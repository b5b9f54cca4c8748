"""Hedging: a second attempt beside one that takes far too long; the first result counts.

A hedge is a task of no plan, `@hedge:TASK:ATTEMPT`, a copy of the straggler that takes a place of the
pool only when nobody else wants it. Whichever of the two is done first makes the task's result, and the
other is stopped. A hedge changes nothing outside: it may begin pure and idempotent steps only, is asked
nothing, and whatever else becomes of it is without consequence.
"""

from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from chargehand.decisions.duration_estimates import Times
from chargehand.facts.events import Effect, Pace, StepStarted
from chargehand.facts.plan import Task

HEDGE = "@hedge"
#: an attempt that takes so many times as long as its worker usually takes is a straggler
FACTOR = 2
#: nothing shorter is worth a second attempt
LEAST = timedelta(seconds=1)
#: the urgency of hedges: everything else goes first
LAST = 1_000_000


def is_hedge(task: str) -> bool:
    """Whether a task of this id is a second attempt at another."""
    return task.startswith(HEDGE)


def hedge_of(task: Task, attempt: int) -> Task:
    """The task that does the same beside this attempt."""
    id_ = f"{HEDGE}:{task.id}:{attempt}"
    return replace(task, id=id_, hedge=False, optional=True, deadline=None, on_failure=None)


def hedged(task: str) -> str:
    """The task that a hedge is for."""
    return task.removeprefix(f"{HEDGE}:").rpartition(":")[0]


def patience_with(
    task: Task, worker: str, seen: Mapping[str, Times], known: Mapping[str, Pace]
) -> timedelta | None:
    """How long an attempt may take before it is a straggler; None if nobody knows what is usual.

    What this run has `seen` of the worker counts more than what was `known` before.
    """
    usual = task.expect
    if usual is None and worker in seen:
        count, total, _ = seen[worker]
        usual = total / count
    elif usual is None and worker in known:
        usual = known[worker].mean
    return None if usual is None else max(FACTOR * usual, LEAST)


def may_begin(event: StepStarted) -> bool:
    """Whether a step may be begun by whoever wants to: a hedge must not change the world twice."""
    return not is_hedge(event.task) or event.effect in (Effect.PURE, Effect.IDEMPOTENT)
