"""What a run does next, by example."""

import pytest

from chargehand.facts.events import PlanOpened, PlanSealed, RunFinished, TaskAdded, TaskSkipped
from chargehand.facts.plan import Need
from tests.decisions.virtual_kernel import START, VirtualKernel, kernel_of, tasks_of


def missing(kernel: VirtualKernel) -> tuple[str, ...]:
    last = kernel.journal[-1]
    assert isinstance(last, RunFinished)
    return last.missing


def test_a_task_starts_as_soon_as_its_own_needs_are_met() -> None:
    """There is no barrier between layers: `b2` does not wait for `a1`."""
    kernel = kernel_of("a1 -> b1, a2 -> b2")
    assert kernel.started() == ["a1#1", "a2#1"]
    kernel.finish("a2")
    assert kernel.started() == ["a1#1", "a2#1", "b2#1"]


def test_a_task_waits_for_all_of_its_needs() -> None:
    kernel = kernel_of("a -> c, b -> c")
    kernel.finish("a")
    assert kernel.state("c") == "waiting"
    kernel.finish("b")
    assert kernel.state("c") == "running"


def test_a_failed_need_skips_everything_behind_it_and_names_the_cause() -> None:
    kernel = kernel_of("read -> write -> send", attempts=1)
    skipped = [event for event in kernel.fail("read") if isinstance(event, TaskSkipped)]
    assert [(event.task, event.cause) for event in skipped] == [("write", "read"), ("send", "read")]
    assert kernel.status == "failed"


def test_a_task_with_an_optional_need_runs_without_it() -> None:
    kernel = kernel_of("read ~> write", attempts=1)
    kernel.fail("read")
    assert kernel.state("write") == "running"


def test_a_task_needed_twice_is_required_if_either_need_is() -> None:
    needs = [Need("read"), Need("read", optional=True, name="again")]
    kernel = kernel_of("read, write", attempts=1, tasks={"write": {"needs": needs}})
    kernel.fail("read")
    assert kernel.started() == ["read#1"]
    assert missing(kernel) == ("read", "write")


def test_a_run_is_partial_when_something_required_is_missing() -> None:
    kernel = kernel_of("a, b", attempts=1)
    kernel.finish("a")
    kernel.fail("b")
    assert kernel.status == "partial"
    assert missing(kernel) == ("b",)


def test_a_run_succeeds_without_its_optional_tasks() -> None:
    kernel = kernel_of("a, b", attempts=1, tasks={"b": {"optional": True}})
    kernel.finish("a")
    kernel.fail("b")
    assert kernel.status == "succeeded"


def test_a_run_does_not_end_while_anything_is_under_way() -> None:
    kernel = kernel_of("a, b", tasks={"b": {"optional": True}})
    kernel.finish("a")
    assert kernel.status == ""
    kernel.finish("b")
    assert kernel.status == "succeeded"


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_the_end_does_not_depend_on_who_ends_first(order: list[str]) -> None:
    kernel = kernel_of("a -> c, b -> c")
    for task in order:
        kernel.finish(task)
    kernel.finish("c")
    assert kernel.status == "succeeded"


# plans that come in pieces


def streamed(*pieces: str) -> VirtualKernel:
    """An resources whose plan is still being written; each piece is told by itself."""
    kernel = kernel_of("", attempts=1)
    kernel.tell(PlanOpened(goal="g", at=START))
    for piece in pieces:
        add(kernel, piece)
    return kernel


def add(kernel: VirtualKernel, arrows: str) -> None:
    kernel.tell(TaskAdded(task=tasks_of(arrows)[-1], at=START))


def test_a_streamed_task_starts_before_the_plan_is_whole() -> None:
    assert streamed("a", "b").started() == ["a#1", "b#1"]


def test_a_run_does_not_end_before_its_plan_is_whole() -> None:
    kernel = streamed("a")
    kernel.finish("a")
    assert kernel.status == ""
    kernel.tell(PlanSealed(at=START))
    assert kernel.status == "succeeded"


def test_a_streamed_task_is_skipped_if_its_need_has_failed_already() -> None:
    kernel = streamed("a", "x")
    kernel.fail("a", "denied")
    add(kernel, "a -> b")
    assert kernel.state("b") == "skipped"
    assert "b#1" not in kernel.started()


def test_a_streamed_task_whose_need_has_failed_does_not_hold_up_the_run() -> None:
    """It also waits for `x`, and must not go on waiting for `a` when that is done."""
    kernel = streamed("a", "x")
    kernel.fail("a", "denied")
    kernel.tell(TaskAdded(task=tasks_of("a -> b, x -> b")[1], at=START))
    kernel.tell(PlanSealed(at=START))
    kernel.finish("x")
    assert kernel.status == "partial"


def test_nothing_is_added_to_the_plan_of_a_run_that_is_stopping() -> None:
    kernel = streamed("a")
    kernel.cancel()
    add(kernel, "b")
    assert list(kernel.states()) == ["a"]
    kernel.finish("a")
    assert kernel.status == "cancelled"
