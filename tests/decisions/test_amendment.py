"""Changes of plan: what they may touch, and what becomes of the rest."""

import pytest

from chargehand.facts.events import AttemptStarted, PlanAdopted, PlanAmended
from chargehand.facts.outcome import Cancelled
from chargehand.facts.plan import Plan
from tests.decisions.virtual_kernel import START, VirtualKernel, kernel_of, tasks_of


def faults(
    kernel: VirtualKernel, added: str = "", removed: tuple[str, ...] = (), version: int = 2
) -> str:
    """The kinds of fault that speak against this change."""
    tasks = tuple(tasks_of(added)) if added else ()
    change = PlanAmended(version=version, added=tasks, removed=removed, at=kernel.now)
    return " ".join(fault.kind for fault in kernel.schedule.check_amendment(change))


def test_added_tasks_run_and_removed_ones_do_not() -> None:
    kernel = kernel_of("a -> b")
    kernel.amend(added=tasks_of("c"), removed=["b"])
    kernel.finish("a")
    kernel.finish("c")
    assert kernel.started() == ["a#1", "c#1"]
    assert kernel.status == "succeeded"


def test_a_removed_task_that_runs_is_told_to_stop() -> None:
    kernel = kernel_of("a, b")
    kernel.amend(removed=["a"])
    assert kernel.stopped() == ["a#1"]
    kernel.end("a", Cancelled())
    assert kernel.state("a") == "cancelled"
    kernel.finish("b")
    assert kernel.status == "succeeded"


def test_a_removed_task_stays_removed_when_its_need_is_done() -> None:
    kernel = kernel_of("a -> b, c")
    kernel.amend(removed=["b"])
    kernel.finish("a")
    assert kernel.started() == ["a#1", "c#1"]


def test_what_stands_behind_a_removed_running_task_stays_removed_when_it_still_succeeds() -> None:
    kernel = kernel_of("a -> b, c")
    kernel.amend(removed=["a", "b"])
    kernel.finish("a")
    assert kernel.state("b") == "cancelled"


def test_an_added_task_may_need_what_is_done() -> None:
    kernel = kernel_of("a, x")
    kernel.finish("a")
    (task,) = (task for task in tasks_of("a -> c") if task.id == "c")
    kernel.amend(added=[task])
    assert kernel.state("c") == "running"


def test_priority_is_inherited_by_a_task_that_waits_in_the_queue_already() -> None:
    """`a` and `b` wait for a place; then something urgent comes to need `b`."""
    kernel = kernel_of("busy, a, b", pool=1)
    (urgent,) = tasks_of("b -> urgent", urgent={"priority": 9})[1:]
    kernel.amend(added=[urgent])
    kernel.finish("busy")
    starts = [event.task for event in kernel.journal if isinstance(event, AttemptStarted)]
    assert starts == ["busy", "b"]


@pytest.mark.parametrize(
    ("added", "removed", "version", "kind"),
    [
        ("n", (), 3, "version"),
        ("b", (), 2, "duplicate_id"),
        ("n -> m", ("n",), 2, "dangling_need"),
        ("", ("nobody",), 2, "dangling_need"),
        ("", ("b",), 2, "dangling_need"),
        ("", ("done",), 2, "settled"),
        ("n -> m -> n", (), 2, "cycle"),
        ("n -> n", (), 2, "self_need"),
    ],
)
def test_an_unsound_change_is_refused(
    added: str, removed: tuple[str, ...], version: int, kind: str
) -> None:
    kernel = kernel_of("done, b -> c")
    kernel.finish("done")
    assert kind in faults(kernel, added, removed, version).split()


def test_two_new_tasks_of_one_id_are_refused() -> None:
    kernel = kernel_of("a")
    assert kernel.amend(added=tasks_of("b") * 2) == []


def test_a_need_that_came_to_nothing_cannot_be_needed() -> None:
    kernel = kernel_of("a, b")
    kernel.fail("a", "denied")
    (task,) = tasks_of("a -> c")[1:]
    change = PlanAmended(version=2, added=(task,), at=kernel.now)
    assert [fault.kind for fault in kernel.schedule.check_amendment(change)] == ["dangling_need"]


def test_a_plan_is_changed_so_often_and_no_more() -> None:
    kernel = kernel_of("a", replans=1)
    kernel.amend(added=tasks_of("b"))
    assert kernel.amend(added=tasks_of("c")) == []


def test_the_same_unfinished_part_again_is_refused() -> None:
    """Going round in circles: the plan would be again what it was before."""
    kernel = kernel_of("a, b")
    kernel.amend(added=tasks_of("c"))
    assert faults(kernel, removed=("c",), version=3) == "repeated"


def test_a_stopping_run_cannot_be_changed() -> None:
    kernel = kernel_of("a")
    kernel.cancel()
    assert faults(kernel, "b") == "ended"


def test_a_plan_is_adopted_once() -> None:
    kernel = kernel_of("a -> b")
    assert (
        kernel.tell(PlanAdopted(plan=Plan(goal="again", tasks=tasks_of("a -> b")), at=START)) == []
    )
    kernel.kernel.check()


def test_an_amendment_that_leaves_nothing_is_refused() -> None:
    kernel = kernel_of("a")
    assert kernel.amend(removed=["a"]) == []
    assert kernel.state("a") == "running"


def test_nothing_can_need_what_was_removed_and_still_runs() -> None:
    kernel = kernel_of("a, b")
    assert kernel.amend(removed=["a"])
    assert kernel.amend(added=tasks_of("a -> c")[1:]) == []
