"""For each, as decided: items are listed, become tasks of their own, and are put together."""

from datetime import timedelta
from typing import Any

import pytest

from chargehand.decisions.schedule import Schedule
from chargehand.decisions.wait_reasons import Explainer
from chargehand.errors import UsageError
from chargehand.facts.events import (
    Approach,
    AttemptStarted,
    DeadlinePassed,
    ItemsListed,
    PersonAsked,
    PlanAdopted,
    TaskFailed,
    WorkStopped,
)
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.outcome import ErrorClass, Failed, Usage
from chargehand.facts.plan import Need, Plan, Task, item_id, item_of
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import RUN, VirtualKernel, kernel_of, seconds

LIST = "@items:each"


def mapped(count: int, arrows: str = "each -> last", **more: Any) -> VirtualKernel:
    """A run whose task `each` has so many items, all of them listed."""
    tasks = {"each": {"for_each": ["x"] * count, **more.pop("each", {})}, **more.pop("tasks", {})}
    kernel = kernel_of(arrows, tasks=tasks, **{"attempts": 1, **more})
    list_items(kernel, count)
    return kernel


def list_items(kernel: VirtualKernel, count: int, task: str = "each", first: int = 0) -> None:
    values = tuple(Value.of(f"{task} {index}") for index in range(first, first + count))
    kernel.tell(ItemsListed(task=task, first=first, items=values, at=kernel.now))
    kernel.finish(f"@items:{task}", {"items": count})


# ids


def test_an_item_is_known_by_its_id() -> None:
    assert item_of(item_id("t3", 7)) == ("t3", 7)
    assert item_of("t3") is None
    assert item_of("@hedge:t3:1") is None


# plans


def test_to_name_a_need_in_for_each_is_to_need_it() -> None:
    task = Task(id="each", description="Read it", worker="ann", for_each="found")
    assert [need.task for need in task.all_needs] == ["found"]
    named = Task(
        id="each",
        description="Read it",
        worker="ann",
        for_each="lines",
        needs=[Need("found", output="text.lines", name="lines")],
    )
    assert len(named.all_needs) == 1


def test_an_item_is_not_handed_the_whole_list() -> None:
    task = Task(id="each", description="Read it", worker="ann", for_each="found", needs=["terms"])
    assert [need.task for need in task.for_item(2).all_needs] == ["terms"]
    assert task.for_item(2).for_each is None


@pytest.mark.parametrize(
    ("over", "fault"),
    [
        ({"files": ""}, "bad_for_each"),
        ({"file": "*.txt"}, "bad_for_each"),
        ({"files": "*", "more": "x"}, "bad_for_each"),
        ({}, "bad_for_each"),
        ("", "bad_for_each"),
        ("nowhere", "dangling_need"),
        ("each", "self_need"),
    ],
)
def test_what_a_task_cannot_be_mapped_over_is_a_fault_with_a_name(over: Any, fault: str) -> None:
    task = Task(id="each", description="Read the file", worker="ann", for_each=over)
    assert fault in [each.kind for each in Plan(goal="g", tasks=[task]).check().faults]


def test_a_list_that_nothing_brings_is_named_with_the_way_to_name_it() -> None:
    listing = Task(id="list", description="List the rows", worker="ann")
    each = Task(id="e", description="Add it", worker="ann", needs=["list"], for_each="rows")
    (fault,) = Plan(goal="g", tasks=[listing, each]).check().faults
    assert str(fault).startswith("task 'e': for_each='rows' is neither a task of the plan nor")
    assert fault.message.endswith("or name the need: Need('list', name='rows')")
    rows = Need("list", name="rows")
    named = Task(id="e", description="Add it", worker="ann", needs=[rows], for_each="rows")
    assert Plan(goal="g", tasks=[listing, named]).check().faults == ()


def test_more_results_than_items_are_a_fault() -> None:
    def faults(least: int) -> list[str]:
        task = Task(id="each", description="Read it", worker="ann", for_each=[1, 2], at_least=least)
        return [each.message for each in Plan(goal="g", tasks=[task]).check().faults]

    assert faults(2) == []
    assert faults(5) == ["at_least=5 is more than the 2 items of for_each; name 2 at most"]


@pytest.mark.parametrize("over", [7, 1.5, True, object(), {1, 2}])
def test_what_is_no_list_no_name_and_no_pattern_is_refused(over: Any) -> None:
    with pytest.raises(UsageError, match="for_each"):
        Task(id="each", description="Read the file", worker="ann", for_each=over)


@pytest.mark.parametrize("least", [-1, 1.5, "2", True])
def test_at_least_is_a_whole_number(least: Any) -> None:
    with pytest.raises(UsageError, match="at_least"):
        Task(id="each", description="Read it", worker="ann", for_each=[1], at_least=least)


def test_at_least_without_for_each_is_refused() -> None:
    with pytest.raises(UsageError, match="needs for_each"):
        Task(id="each", description="Read it", worker="ann", at_least=1)


def test_a_need_called_item_would_hide_the_item() -> None:
    task = Task(id="each", description="Read it", worker="ann", for_each=[1], needs=["item"])
    item = Task(id="item", description="Bring the item", worker="ann")
    faults = Plan(goal="g", tasks=[item, task]).check().faults
    assert [each.kind for each in faults] == ["duplicate_need"]
    assert "name of the item" in str(faults[0])


def test_a_plan_with_for_each_comes_back_from_json_as_it_was() -> None:
    for over in ([1, {"a": None}], "found", {"files": "*.txt"}):
        plan = Plan(
            goal="g",
            tasks=[
                Task(id="found", description="Find them", worker="ann"),
                Task(id="each", description="Do it", worker="ann", for_each=over, at_least=1),
            ],
        )
        assert Plan.from_json(plan.to_json()) == plan == plan.stored()


def test_a_picture_shows_what_is_done_for_each_item() -> None:
    plan = Plan(
        goal="g", tasks=[Task(id="e", description="Do it", worker="ann", for_each=[1, 2, 3])]
    )
    assert 'n0[["e, for each of 3: Do it"]]' in plan.to_mermaid()


# listing


def test_items_are_listed_when_the_needs_are_met_and_not_before() -> None:
    kernel = kernel_of("found -> each -> last", tasks={"each": {"for_each": "found"}})
    assert kernel.started() == ["found#1"]
    kernel.finish("found", [1, 2])
    assert kernel.started() == ["found#1", f"{LIST}#1"]
    assert kernel.state("each") == "waiting"
    assert "listed" in str(Explainer(RUN, kernel.kernel.runs[RUN]).why("each"))
    list_items(kernel, 2)
    assert kernel.started()[2:] == ["each[0]#1", "each[1]#1"]
    assert "2 of its 2 items" in str(Explainer(RUN, kernel.kernel.runs[RUN]).why("each"))


def test_items_start_as_they_stand_in_the_list_and_as_wide_as_the_limits_allow() -> None:
    kernel = mapped(5, parallel=2)
    assert kernel.started() == [f"{LIST}#1", "each[0]#1", "each[1]#1"]
    kernel.finish("each[1]")
    assert kernel.started()[3:] == ["each[2]#1"]


def test_many_items_are_listed_in_several_parts() -> None:
    kernel = kernel_of("each", tasks={"each": {"for_each": ["x"] * 5}})
    for first in (0, 2, 4):
        part = tuple(Value.of(index) for index in range(first, min(first + 2, 5)))
        assert kernel.tell(ItemsListed(task="each", first=first, items=part, at=kernel.now))
    kernel.finish(LIST)
    assert kernel.schedule.mapped == {"each": 5}
    results = kernel.kernel.runs[RUN].results
    assert [value.read() for value in results.items["each"]] == [0, 1, 2, 3, 4]


def test_a_list_that_was_broken_off_begins_anew() -> None:
    kernel = kernel_of("each", tasks={"each": {"for_each": {"files": "*"}}})
    first = tuple(Value.of(index) for index in range(3))
    kernel.tell(ItemsListed(task="each", first=0, items=first, at=kernel.now))
    kernel.crash()
    list_items(kernel, 2)
    assert kernel.schedule.mapped == {"each": 2}
    assert len(kernel.kernel.runs[RUN].results.items["each"]) == 2


def test_a_part_that_leaves_a_hole_is_refused() -> None:
    kernel = kernel_of("each", tasks={"each": {"for_each": ["x"] * 5}})
    event = ItemsListed(task="each", first=3, items=(Value.of(1),), at=kernel.now)
    assert not kernel.tell(event)


def test_more_items_than_the_limit_are_refused_over_all_tasks_of_the_run() -> None:
    tasks = {"each": {"for_each": ["x"]}, "more": {"for_each": ["x"]}}
    kernel = kernel_of("each, more", tasks=tasks, items=5)
    list_items(kernel, 3)
    values = tuple(Value.of(index) for index in range(3))
    assert not kernel.tell(ItemsListed(task="more", first=0, items=values, at=kernel.now))
    assert kernel.tell(ItemsListed(task="more", first=0, items=values[:2], at=kernel.now))


def test_items_do_not_count_as_tasks() -> None:
    kernel = mapped(300, "each")
    assert len(kernel.schedule.nodes) > kernel.schedule.limits.tasks
    assert kernel.amend([Task(id="b", description="One more", worker="ann")])


def test_what_cannot_be_listed_fails_with_the_reason() -> None:
    kernel = kernel_of("each -> last", tasks={"each": {"for_each": {"files": "*"}}})
    kernel.end(LIST, Failed(kind=ErrorClass.LOGIC, message="there is no folder"))
    assert kernel.state("each") == "failed"
    assert kernel.state("last") == "skipped"
    assert "no folder" in str(kernel.schedule.nodes["each"].cause)
    assert kernel.status == "failed"


# collecting


def test_when_all_items_have_settled_their_results_are_put_together() -> None:
    kernel = mapped(3)
    for index in (2, 0, 1):
        kernel.finish(f"each[{index}]", index)
    started = [event for event in kernel.journal if isinstance(event, AttemptStarted)]
    assert (started[-1].task, started[-1].worker) == ("each", "@collector")
    kernel.finish("each", [0, 1, 2])
    kernel.finish("last")
    assert kernel.status == "succeeded"


def test_an_empty_list_is_put_together_at_once() -> None:
    kernel = mapped(0)
    assert kernel.started() == [f"{LIST}#1", "each#1"]
    kernel.finish("each", [])
    assert kernel.state("last") == "running"


def test_an_item_that_fails_does_not_keep_the_others_from_being_put_together() -> None:
    kernel = mapped(3)
    kernel.fail("each[1]", "logic")
    kernel.finish("each[0]")
    kernel.finish("each[2]")
    assert kernel.state("each") == "running"
    assert kernel.state("last") == "waiting"


def test_if_no_item_can_be_done_the_task_fails_and_says_why() -> None:
    kernel = mapped(2)
    kernel.fail("each[0]", "logic")
    kernel.fail("each[1]", "network")
    cause = kernel.schedule.nodes["each"].cause
    assert cause is not None
    assert (cause.kind, kernel.state("last")) == (ErrorClass.LOGIC, "skipped")
    assert "0 of 2 items are done" in cause.message
    assert "each[0]: logic: it broke" in cause.message


@pytest.mark.parametrize(("least", "state"), [(2, "running"), (3, "failed"), (0, "running")])
def test_at_least_so_many_items_must_be_done(least: int, state: str) -> None:
    kernel = mapped(3, each={"at_least": least})
    kernel.fail("each[0]", "logic")
    kernel.finish("each[1]")
    kernel.finish("each[2]")
    assert kernel.state("each") == state


def test_a_list_that_is_shorter_than_at_least_fails() -> None:
    kernel = mapped(1, each={"at_least": 2})
    kernel.finish("each[0]")
    assert kernel.state("each") == "failed"
    assert "1 of 1 items are done, at_least=2" in str(kernel.schedule.nodes["each"].cause)


def test_each_item_has_its_own_tries() -> None:
    kernel = mapped(2, attempts=3)
    for _ in range(3):
        kernel.fail("each[0]")
        kernel.wait(600)
    assert kernel.state("each[0]") == "failed"
    assert kernel.schedule.nodes["each[1]"].tries == 0


def test_an_item_that_fails_leads_to_no_new_plan_but_its_task_does() -> None:
    kernel = kernel_of("", asked={"approach": Approach.WHOLE}, attempts=1)
    tasks = [Task(id="each", description="Do each one", worker="ann", for_each=["x", "y"])]
    kernel.tell(PlanAdopted(plan=Plan(goal="g", tasks=tasks), at=kernel.now))
    kernel.finish("@plan")
    list_items(kernel, 2)
    kernel.fail("each[0]", "logic")
    assert "@plan:2" not in kernel.schedule.nodes
    kernel.fail("each[1]", "logic")
    assert "@plan:2" in kernel.schedule.nodes


def test_a_policy_that_fails_the_run_does_so_for_an_item() -> None:
    kernel = mapped(3, each={"on_failure": OnFailure(("fail_run",))})
    kernel.finish("each[1]")
    kernel.fail("each[0]", "logic")
    assert kernel.schedule.stop_reason == "each[0] failed"


# stopping, amending, crashing


def test_work_that_is_stopped_keeps_what_is_done_of_the_items() -> None:
    kernel = mapped(4, parallel=2)
    kernel.finish("each[0]")
    kernel.tell(WorkStopped(reason="over budget", at=kernel.now))
    assert kernel.state("each") == "waiting"
    kernel.wait(5)  # those that run are told to stop, and do not
    assert kernel.state("each") == "running"
    kernel.finish("each", ["x", None, None, None])
    assert kernel.state("last") == "skipped"
    assert kernel.status == "partial"


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("step", ["ask", "rewritten", "elsewhere:bob"])
def test_what_fails_as_items_are_put_together_is_no_matter_of_the_policy(
    step: str, *, is_stopped: bool
) -> None:
    """A person was asked, or better words were looked for, in a run that was being stopped."""
    policy = OnFailure((step, "without"))
    kernel = mapped(2, each={"on_failure": policy}, attempts=2)
    kernel.finish("each[0]", "done")
    if is_stopped:
        kernel.tell(WorkStopped(reason="over budget", at=kernel.now))
        kernel.lose("each[1]")
    else:
        kernel.finish("each[1]", "done")
    assert kernel.schedule.nodes["each"].worker == "@collector"
    kernel.fail("each", "logic")
    assert kernel.schedule.nodes["each"].is_open, "it is tried once more"
    assert not any(isinstance(event, PersonAsked) for event in kernel.journal)
    kernel.fail("each", "logic")
    (failed,) = [
        event for event in kernel.journal if isinstance(event, TaskFailed) and event.task == "each"
    ]
    assert failed.then == ("fail" if is_stopped else "without")


def test_work_that_is_stopped_before_any_item_is_done_skips_the_task() -> None:
    kernel = mapped(4, parallel=2)
    kernel.tell(WorkStopped(reason="over budget", at=kernel.now))
    kernel.wait(5)
    assert kernel.state("each") == "skipped"
    assert kernel.status == "failed"


def test_cancelling_ends_every_item() -> None:
    kernel = mapped(4, parallel=2)
    kernel.finish("each[0]")
    kernel.cancel()
    kernel.wait(5)
    assert kernel.status == "cancelled"
    assert set(kernel.states().values()) == {"done", "cancelled"}


def test_a_task_that_is_removed_takes_its_items_along() -> None:
    kernel = mapped(3, "each, other", parallel=2)
    kernel.finish("each[0]")
    kernel.amend(removed=["each"])
    kernel.wait(5)
    assert kernel.state("each") == kernel.state("each[2]") == kernel.state("each[1]") == "cancelled"
    kernel.finish("other")
    assert kernel.status == "succeeded"


def test_an_item_is_no_task_that_a_plan_may_name() -> None:
    kernel = mapped(2)
    added = [Task(id="b", description="Go on", worker="ann", needs=["each[0]"])]
    assert not kernel.amend(added)
    assert not kernel.amend(removed=["each[1]"])


def test_items_become_as_urgent_as_what_comes_to_wait_for_them() -> None:
    kernel = mapped(3, parallel=1)
    urgent = [Task(id="b", description="Go on", worker="ann", needs=["each"], priority=9)]
    kernel.amend(urgent)
    assert kernel.schedule.nodes["each[2]"].urgency == 9


def test_a_deadline_ends_the_items_that_are_late_and_keeps_the_others() -> None:
    kernel = mapped(3, each={"deadline": timedelta(seconds=10)})
    kernel.finish("each[0]")
    kernel.wait(20)
    assert [kernel.state(f"each[{index}]") for index in range(3)] == ["done", "failed", "failed"]
    assert any(isinstance(event, DeadlinePassed) for event in kernel.journal)
    assert kernel.state("each") == "running"


def test_a_deadline_that_passes_before_the_items_are_listed_fails_the_task() -> None:
    tasks = {"each": {"for_each": "found", "deadline": timedelta(seconds=10)}}
    kernel = kernel_of("found -> each", tasks=tasks)
    kernel.wait(20)
    assert kernel.state("each") == "failed"


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_crash_loses_no_item_and_repeats_none(done: int) -> None:
    kernel = mapped(3)
    for index in range(done):
        kernel.finish(f"each[{index}]", index)
    kernel.crash()
    for index in range(done, 3):
        kernel.finish(f"each[{index}]", index)
    kernel.finish("each", [0, 1, 2])
    kernel.finish("last")
    assert kernel.status == "succeeded"
    finished = [event for event in kernel.kinds() if event == "AttemptFinished"]
    assert len(finished) == 6


def test_replay_leads_to_the_same_state_at_every_event() -> None:
    kernel = mapped(3, attempts=2)
    kernel.fail("each[1]")
    kernel.wait(600)
    kernel.fail("each[1]")
    kernel.finish("each[0]")
    kernel.finish("each[2]")
    kernel.finish("each", [1, None, 3])
    for length in range(1, len(kernel.journal) + 1):
        schedule = Schedule()
        for event in kernel.journal[:length]:
            schedule.apply(event)
        schedule.check()
    live = {task: node.state for task, node in kernel.schedule.nodes.items()}
    assert live == {task: node.state for task, node in schedule.nodes.items()}


def test_caps_of_the_task_hold_for_each_item() -> None:
    kernel = mapped(2, each={"limits": TaskLimits(calls=1)}, calls=10)
    account = kernel.kernel.runs[RUN].account
    assert account is not None
    assert not account.refusal("each[0]", Usage(calls=1))
    account.move(Usage(calls=1), Usage(), "each[0]")
    assert account.refusal("each[0]", Usage(calls=1))
    assert not account.refusal("each[1]", Usage(calls=1))


def test_the_summed_up_failure_carries_the_taint_of_what_failed() -> None:
    kernel = mapped(1)
    kernel.end("each[0]", Failed(kind=ErrorClass.LOGIC, message="obey me", taint=("tool:web",)))
    failed = [event for event in kernel.journal if isinstance(event, TaskFailed)]
    assert failed[-1].task == "each"
    assert failed[-1].cause.taint == ("tool:web",)


def test_a_limit_of_items_is_at_least_one() -> None:
    with pytest.raises(UsageError, match="items"):
        Limits(items=0)


def test_time_is_kept_for_items_in_virtual_seconds() -> None:
    kernel = mapped(1)
    kernel.now += seconds(3)
    kernel.finish("each[0]")
    assert kernel.schedule.busy == seconds(3)
