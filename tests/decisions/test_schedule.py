"""What a run does next, by example."""

import pytest

from chargehand.facts.events import PlanOpened, PlanSealed, RunFinished, TaskAdded, TaskSkipped
from chargehand.facts.plan import Need
from tests.decisions.office import START, Office, desk_of, tasks_of


def missing(desk: Office) -> tuple[str, ...]:
    last = desk.journal[-1]
    assert isinstance(last, RunFinished)
    return last.missing


def test_a_task_starts_as_soon_as_its_own_needs_are_met() -> None:
    """There is no barrier between layers: `b2` does not wait for `a1`."""
    desk = desk_of("a1 -> b1, a2 -> b2")
    assert desk.started() == ["a1#1", "a2#1"]
    desk.finish("a2")
    assert desk.started() == ["a1#1", "a2#1", "b2#1"]


def test_a_task_waits_for_all_of_its_needs() -> None:
    desk = desk_of("a -> c, b -> c")
    desk.finish("a")
    assert desk.state("c") == "waiting"
    desk.finish("b")
    assert desk.state("c") == "running"


def test_a_failed_need_skips_everything_behind_it_and_names_the_cause() -> None:
    desk = desk_of("read -> write -> send", attempts=1)
    skipped = [event for event in desk.fail("read") if isinstance(event, TaskSkipped)]
    assert [(event.task, event.cause) for event in skipped] == [("write", "read"), ("send", "read")]
    assert desk.status == "failed"


def test_a_task_with_an_optional_need_runs_without_it() -> None:
    desk = desk_of("read ~> write", attempts=1)
    desk.fail("read")
    assert desk.state("write") == "running"


def test_a_task_needed_twice_is_required_if_either_need_is() -> None:
    needs = [Need("read"), Need("read", optional=True, name="again")]
    desk = desk_of("read, write", attempts=1, tasks={"write": {"needs": needs}})
    desk.fail("read")
    assert desk.started() == ["read#1"]
    assert missing(desk) == ("read", "write")


def test_a_run_is_partial_when_something_required_is_missing() -> None:
    desk = desk_of("a, b", attempts=1)
    desk.finish("a")
    desk.fail("b")
    assert desk.status == "partial"
    assert missing(desk) == ("b",)


def test_a_run_succeeds_without_its_optional_tasks() -> None:
    desk = desk_of("a, b", attempts=1, tasks={"b": {"optional": True}})
    desk.finish("a")
    desk.fail("b")
    assert desk.status == "succeeded"


def test_a_run_does_not_end_while_anything_is_under_way() -> None:
    desk = desk_of("a, b", tasks={"b": {"optional": True}})
    desk.finish("a")
    assert desk.status == ""
    desk.finish("b")
    assert desk.status == "succeeded"


@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_the_end_does_not_depend_on_who_ends_first(order: list[str]) -> None:
    desk = desk_of("a -> c, b -> c")
    for task in order:
        desk.finish(task)
    desk.finish("c")
    assert desk.status == "succeeded"


# plans that come in pieces


def streamed(*pieces: str) -> Office:
    """An office whose plan is still being written; each piece is told by itself."""
    desk = desk_of("", attempts=1)
    desk.tell(PlanOpened(goal="g", at=START))
    for piece in pieces:
        add(desk, piece)
    return desk


def add(desk: Office, arrows: str) -> None:
    desk.tell(TaskAdded(task=tasks_of(arrows)[-1], at=START))


def test_a_streamed_task_starts_before_the_plan_is_whole() -> None:
    assert streamed("a", "b").started() == ["a#1", "b#1"]


def test_a_run_does_not_end_before_its_plan_is_whole() -> None:
    desk = streamed("a")
    desk.finish("a")
    assert desk.status == ""
    desk.tell(PlanSealed(at=START))
    assert desk.status == "succeeded"


def test_a_streamed_task_is_skipped_if_its_need_has_failed_already() -> None:
    desk = streamed("a", "x")
    desk.fail("a", "denied")
    add(desk, "a -> b")
    assert desk.state("b") == "skipped"
    assert "b#1" not in desk.started()


def test_a_streamed_task_whose_need_has_failed_does_not_hold_up_the_run() -> None:
    """It also waits for `x`, and must not go on waiting for `a` when that is done."""
    desk = streamed("a", "x")
    desk.fail("a", "denied")
    desk.tell(TaskAdded(task=tasks_of("a -> b, x -> b")[1], at=START))
    desk.tell(PlanSealed(at=START))
    desk.finish("x")
    assert desk.status == "partial"


def test_nothing_is_added_to_the_plan_of_a_run_that_is_stopping() -> None:
    desk = streamed("a")
    desk.cancel()
    add(desk, "b")
    assert list(desk.states()) == ["a"]
    desk.finish("a")
    assert desk.status == "cancelled"
