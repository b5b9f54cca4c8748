"""Rows G of the faults that need no event loop: deadlines in every state, races, inherited priority."""

from collections.abc import Callable
from typing import Any

import pytest

from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.duration_estimates import learn
from chargehand.decisions.kernel import Kernel, RunMessage
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptPreempted,
    CancelRequested,
    Pace,
    PlanAdopted,
    RunFinished,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import StartAttempt
from tests.decisions.virtual_kernel import (
    START,
    VirtualKernel,
    kernel_of,
    requested,
    seconds,
    tasks_of,
)


def test_g3_what_an_urgent_task_waits_for_is_as_urgent() -> None:
    kernel = Kernel(Dispatch(1))
    kernel.dispatch.join(Place(worker="ann"))
    started: list[str] = []

    def tell(*messages: RunMessage) -> None:
        batch = kernel.decide(messages, START)
        started.extend(f"{a.run}.{a.task}" for a in batch.acts if isinstance(a, StartAttempt))

    for run, arrows, priority in (("busy", "z", 9), ("mid", "m", 1), ("mixed", "low -> high", 0)):
        changes = {"high": {"priority": 5}} if run == "mixed" else {}
        plan = Plan(goal=run, tasks=tasks_of(arrows, **changes))
        kernel.open(run)
        tell(
            RunMessage(run, requested(run=run, priority=priority)),
            RunMessage(run, PlanAdopted(plan=plan, at=START)),
        )
    kernel.free_place("busy", "z", 1)
    tell(RunMessage("busy", AttemptFinished(task="z", attempt=1, outcome=Done(), at=START)))
    assert started == ["busy.z", "mixed.low"]


def waiting(kernel: VirtualKernel) -> None:
    """`b` waits for `a`."""


def retrying(kernel: VirtualKernel) -> None:
    kernel.fail("a", "network", retry_after=seconds(5))


def asking(kernel: VirtualKernel) -> None:
    kernel.ask("a")


STATES: list[tuple[str, Callable[[VirtualKernel], None]]] = [
    ("running", waiting),
    ("retrying", retrying),
    ("asking", asking),
]


@pytest.mark.parametrize(("state", "bring_about"), STATES, ids=[state for state, _ in STATES])
def test_g8_a_deadline_ends_a_run_whatever_state_it_finds_it_in(
    state: str, bring_about: Callable[[VirtualKernel], None]
) -> None:
    kernel = kernel_of("a -> b, c", deadline=seconds(10))
    bring_about(kernel)
    assert kernel.state("a") == state
    kernel.finish("c")
    kernel.wait(11)
    last = kernel.journal[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.reason) == ("partial", "out of time")
    assert set(last.missing) == {"a", "b"}


def test_g8_a_deadline_ends_what_waits_for_a_place() -> None:
    kernel = kernel_of("a, b", pool=1, deadline=seconds(10))
    assert kernel.state("b") == "ready"
    kernel.wait(11)
    assert kernel.status == "failed"
    assert kernel.started() == ["a#1"]


@pytest.mark.parametrize("approach", [Approach.WHOLE, Approach.STREAM, Approach.STEPS])
def test_g8_a_deadline_ends_planning(approach: Approach) -> None:
    kernel = kernel_of("", asked={"approach": approach}, deadline=seconds(10))
    kernel.wait(11)
    assert kernel.status == "failed"


def test_g8_a_deadline_beats_a_retry() -> None:
    kernel = kernel_of("a", deadline=seconds(10))
    kernel.wait(9.9)
    kernel.fail("a", "network")
    assert kernel.status == "failed"
    assert kernel.started() == ["a#1"]


@pytest.mark.parametrize("first", ["cancel", "end"])
@pytest.mark.parametrize("kind", ["done", "network", "logic"])
def test_g5_a_cancel_that_races_the_end_of_an_attempt_leaves_one_end(first: str, kind: str) -> None:
    """Completion, a retry in the making, or planning again: whichever it is, the run ends once."""
    kernel = kernel_of("", asked={"approach": Approach.WHOLE}, attempts=1 if kind == "logic" else 3)
    kernel.adopt("a")
    kernel.finish("@plan")
    outcome = Done() if kind == "done" else Failed(kind=ErrorClass(kind), message="it broke")
    end = AttemptFinished(task="a", attempt=1, outcome=outcome, at=kernel.now)
    cancel = CancelRequested(at=kernel.now)
    kernel.kernel.free_place("r", "a", 1)
    kernel.tell(*((cancel, end) if first == "cancel" else (end, cancel)))
    kernel.wait(60)
    ends = [event for event in kernel.journal if isinstance(event, RunFinished)]
    assert len(ends) == 1
    won = kind == "done" and first == "end"
    assert ends[0].status == ("succeeded" if won else "cancelled")
    assert kernel.tell(end) == [], "whatever comes late changes nothing"


def test_g8_a_task_that_cannot_be_in_time_any_more_is_not_started() -> None:
    """`b` takes at least 6 s; when the place is free, 5 s are left."""
    tasks: dict[str, dict[str, Any]] = {"a": {"priority": 1}, "b": {"expect": seconds(6)}}
    kernel = kernel_of("a, b, c", pool=1, tasks=tasks, deadline=seconds(10))
    kernel.wait(5)
    kernel.finish("a")
    assert kernel.started() == ["a#1", "c#1"]
    assert kernel.state("b") == "failed"
    assert "it was not started" in str(kernel.schedule.nodes["b"].cause)
    kernel.finish("c")
    assert kernel.status == "partial"


def test_g8_nobody_waits_for_a_start_that_comes_too_late() -> None:
    """It is given up the moment it is hopeless, not when a place is free or the deadline has passed."""
    tasks: dict[str, dict[str, Any]] = {
        "a": {"priority": 1},
        "b": {"expect": seconds(6), "deadline": seconds(9)},
    }
    kernel = kernel_of("a, b -> d", pool=1, tasks=tasks)
    kernel.wait(2)
    assert kernel.state("b") == "ready"
    kernel.wait(1.5)
    assert (kernel.state("a"), kernel.state("b"), kernel.state("d")) == (
        "running",
        "failed",
        "skipped",
    )


@pytest.mark.parametrize(("count", "is_started"), [(9, True), (10, False)])
def test_g8_what_past_runs_taught_counts_once_it_is_enough(count: int, is_started: bool) -> None:
    paces = {"ann": Pace(count, seconds(20), seconds(12))}
    kernel = kernel_of("a", deadline=seconds(10), asked={"paces": paces})
    assert (kernel.started() == ["a#1"]) is is_started


def test_g8_what_was_preempted_half_way_may_take_less_and_is_started_again() -> None:
    kernel = kernel_of("a", deadline=seconds(10), tasks={"a": {"expect": seconds(6)}})
    kernel.wait(5)
    kernel.kernel.free_place("r", "a", 1)
    kernel.tell(AttemptPreempted(task="a", attempt=1, at=kernel.now))
    assert kernel.started() == ["a#1", "a#2"]


def test_the_fastest_attempt_of_a_worker_is_remembered_over_runs() -> None:
    kernel = kernel_of("a, b", pool=2)
    kernel.wait(2)
    kernel.finish("a")
    kernel.wait(2)
    kernel.finish("b")
    finished = kernel.journal[-1]
    assert isinstance(finished, RunFinished)
    assert finished.paces == {"ann": Pace(2, seconds(3), seconds(2))}
    again = learn({"ann": Pace(1, seconds(9), seconds(1))}, finished.paces.items())
    assert again == {"ann": Pace(3, seconds(5), seconds(1))}
