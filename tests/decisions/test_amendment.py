"""Changes of plan: what they may touch, and what becomes of the rest."""

import pytest

from chargehand.facts.events import AttemptStarted, PlanAdopted, PlanAmended
from chargehand.facts.outcome import Cancelled
from chargehand.facts.plan import Plan
from tests.decisions.office import START, Office, desk_of, tasks_of


def faults(desk: Office, added: str = "", removed: tuple[str, ...] = (), version: int = 2) -> str:
    """The kinds of fault that speak against this change."""
    tasks = tuple(tasks_of(added)) if added else ()
    change = PlanAmended(version=version, added=tasks, removed=removed, at=desk.now)
    return " ".join(fault.kind for fault in desk.schedule.check_amendment(change))


def test_added_tasks_run_and_removed_ones_do_not() -> None:
    desk = desk_of("a -> b")
    desk.amend(added=tasks_of("c"), removed=["b"])
    desk.finish("a")
    desk.finish("c")
    assert desk.started() == ["a#1", "c#1"]
    assert desk.status == "succeeded"


def test_a_removed_task_that_runs_is_told_to_stop() -> None:
    desk = desk_of("a, b")
    desk.amend(removed=["a"])
    assert desk.stopped() == ["a#1"]
    desk.end("a", Cancelled())
    assert desk.state("a") == "cancelled"
    desk.finish("b")
    assert desk.status == "succeeded"


def test_a_removed_task_stays_removed_when_its_need_is_done() -> None:
    desk = desk_of("a -> b, c")
    desk.amend(removed=["b"])
    desk.finish("a")
    assert desk.started() == ["a#1", "c#1"]


def test_what_stands_behind_a_removed_running_task_stays_removed_when_it_still_succeeds() -> None:
    desk = desk_of("a -> b, c")
    desk.amend(removed=["a", "b"])
    desk.finish("a")
    assert desk.state("b") == "cancelled"


def test_an_added_task_may_need_what_is_done() -> None:
    desk = desk_of("a, x")
    desk.finish("a")
    (task,) = (task for task in tasks_of("a -> c") if task.id == "c")
    desk.amend(added=[task])
    assert desk.state("c") == "running"


def test_priority_is_inherited_by_a_task_that_waits_in_the_queue_already() -> None:
    """`a` and `b` wait for a place; then something urgent comes to need `b`."""
    desk = desk_of("busy, a, b", pool=1)
    (urgent,) = tasks_of("b -> urgent", urgent={"priority": 9})[1:]
    desk.amend(added=[urgent])
    desk.finish("busy")
    starts = [event.task for event in desk.journal if isinstance(event, AttemptStarted)]
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
    desk = desk_of("done, b -> c")
    desk.finish("done")
    assert kind in faults(desk, added, removed, version).split()


def test_two_new_tasks_of_one_id_are_refused() -> None:
    desk = desk_of("a")
    assert desk.amend(added=tasks_of("b") * 2) == []


def test_a_need_that_came_to_nothing_cannot_be_needed() -> None:
    desk = desk_of("a, b")
    desk.fail("a", "denied")
    (task,) = tasks_of("a -> c")[1:]
    change = PlanAmended(version=2, added=(task,), at=desk.now)
    assert [fault.kind for fault in desk.schedule.check_amendment(change)] == ["dangling_need"]


def test_a_plan_is_changed_so_often_and_no_more() -> None:
    desk = desk_of("a", replans=1)
    desk.amend(added=tasks_of("b"))
    assert desk.amend(added=tasks_of("c")) == []


def test_the_same_unfinished_part_again_is_refused() -> None:
    """Going round in circles: the plan would be again what it was before."""
    desk = desk_of("a, b")
    desk.amend(added=tasks_of("c"))
    assert faults(desk, removed=("c",), version=3) == "repeated"


def test_a_stopping_run_cannot_be_changed() -> None:
    desk = desk_of("a")
    desk.cancel()
    assert faults(desk, "b") == "ended"


def test_a_plan_is_adopted_once() -> None:
    desk = desk_of("a -> b")
    assert desk.tell(PlanAdopted(plan=Plan(goal="again", tasks=tasks_of("a -> b")), at=START)) == []
    desk.desk.check()


def test_an_amendment_that_leaves_nothing_is_refused() -> None:
    desk = desk_of("a")
    assert desk.amend(removed=["a"]) == []
    assert desk.state("a") == "running"


def test_nothing_can_need_what_was_removed_and_still_runs() -> None:
    desk = desk_of("a, b")
    assert desk.amend(removed=["a"])
    assert desk.amend(added=tasks_of("a -> c")[1:]) == []
