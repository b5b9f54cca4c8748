"""What the supervisor does itself for a run: planning, rewriting, answering; and that none of it is lost."""

from typing import Any

import pytest

from chargehand.decisions.dispatch import Place
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    CancelRequested,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    RunFinished,
    TaskAdded,
    TaskRewritten,
    WorkStopped,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Plan
from tests.decisions.virtual_kernel import VirtualKernel, kernel_of, seconds, tasks_of

PLANNED = {"approach": Approach.WHOLE}
ANSWERED = {"answers": True}
REFINED = {"refines": True}


def planned(arrows: str, approach: Approach = Approach.WHOLE, **limits: Any) -> VirtualKernel:
    """A run whose planner has just written this plan."""
    kernel = kernel_of("", asked={"approach": approach}, **limits)
    kernel.adopt(arrows)
    kernel.finish("@plan")
    return kernel


def ended(kernel: VirtualKernel) -> RunFinished:
    last = kernel.journal[-1]
    assert isinstance(last, RunFinished)
    return last


# planning


def test_a_request_without_a_plan_begins_with_planning() -> None:
    kernel = kernel_of("", asked=PLANNED)
    assert kernel.started() == ["@plan#1"]
    assert kernel.schedule.state == "planning"


def test_planning_takes_no_place_in_the_pool() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM}, pool=1)
    kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=tasks_of("a")[0], at=kernel.now))
    assert kernel.started() == ["@plan#1", "a#1"]


def test_tasks_of_an_open_plan_start_while_it_is_written() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM})
    a, b = tasks_of("a -> b")
    kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=a, at=kernel.now))
    kernel.finish("a")
    assert kernel.status == ""
    kernel.tell(TaskAdded(task=b, at=kernel.now), PlanSealed(at=kernel.now))
    kernel.finish("@plan")
    kernel.finish("b")
    assert kernel.status == "succeeded"


@pytest.mark.parametrize(
    "arrows", ["a", "zero -> b"], ids=["an id that is there", "a need that is not"]
)
def test_a_task_that_cannot_be_added_is_refused(arrows: str) -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM})
    kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=tasks_of("a")[0], at=kernel.now))
    assert kernel.tell(TaskAdded(task=tasks_of(arrows)[-1], at=kernel.now)) == []


def test_a_sealed_plan_takes_no_more_tasks() -> None:
    kernel = planned("a")
    assert kernel.tell(TaskAdded(task=tasks_of("b")[0], at=kernel.now)) == []


def test_without_a_plan_the_run_has_failed_and_says_so() -> None:
    kernel = kernel_of("", asked=PLANNED)
    kernel.fail("@plan", "logic")
    assert kernel.status == "failed"
    assert ended(kernel).missing == ("@plan",)


def test_a_planner_that_talks_nonsense_is_not_asked_all_over_again() -> None:
    kernel = kernel_of("", asked=PLANNED)
    kernel.fail("@plan", "logic")
    assert kernel.started() == ["@plan#1"]


def test_a_planner_that_was_not_reached_is_tried_again() -> None:
    kernel = kernel_of("", asked=PLANNED)
    kernel.fail("@plan", "network")
    kernel.wait(2)
    assert kernel.started() == ["@plan#1", "@plan#2"]


def test_a_planner_that_gives_up_half_way_leaves_a_partial_run() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM}, replans=0)
    kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=tasks_of("a")[0], at=kernel.now))
    kernel.finish("a")
    kernel.fail("@plan", "logic")
    assert kernel.status == "partial"


def test_planning_goes_on_after_a_crash() -> None:
    kernel = kernel_of("", asked=PLANNED)
    kernel.crash()
    assert kernel.started() == ["@plan#1", "@plan#2"]


# planning again


def test_a_task_that_fails_for_good_is_planned_around() -> None:
    kernel = planned("a -> b, c", attempts=1)
    kernel.fail("a", "denied")
    assert kernel.started()[-1] == "@plan:2#1"
    assert kernel.state("b") == "skipped"
    kernel.amend(tasks_of("d -> e"), replaced=("a", "b"))
    kernel.finish("@plan:2")
    for task in ("c", "d", "e"):
        kernel.finish(task)
    assert kernel.status == "succeeded"


def test_the_run_waits_for_the_new_plan() -> None:
    kernel = planned("a", attempts=1)
    kernel.fail("a", "denied")
    assert kernel.status == ""
    kernel.finish("@plan:2")  # there is no other way
    assert kernel.status == "failed"
    assert ended(kernel).missing == ("a",)


def test_a_second_failure_waits_for_the_planning_under_way() -> None:
    kernel = planned("a, b", attempts=1)
    kernel.fail("a", "denied")
    kernel.fail("b", "denied")
    assert "@plan:3#1" not in kernel.started()
    kernel.finish("@plan:2")
    assert "@plan:3#1" in kernel.started()


def test_planning_again_has_a_cap() -> None:
    kernel = planned("a, b", attempts=1, replans=1)
    kernel.fail("a", "denied")
    kernel.finish("@plan:2")
    kernel.fail("b", "denied")
    assert kernel.status == "failed"


def test_no_planning_again_for_what_may_fail() -> None:
    kernel = kernel_of("", asked=PLANNED, attempts=1)
    kernel.adopt("a, b")
    kernel.finish("@plan")
    kernel.finish("a")
    kernel.amend([tasks_of("c", c={"optional": True})[0]])
    kernel.fail("c", "denied")
    assert "@plan:2#1" not in kernel.started()


def test_a_plan_that_a_person_wrote_is_not_changed_unasked() -> None:
    kernel = kernel_of("a", attempts=1)
    kernel.fail("a", "denied")
    assert kernel.status == "failed"


def test_what_failed_cannot_be_planned_again_word_for_word() -> None:
    kernel = planned("a", attempts=1)
    kernel.fail("a", "denied")
    again = tasks_of("z", z={"description": "Bring  forth a"})
    assert kernel.amend(again, replaced=("a",)) == []


def test_only_what_came_to_nothing_can_be_made_up_for() -> None:
    kernel = planned("a, b", attempts=1)
    kernel.fail("a", "denied")
    assert kernel.amend(tasks_of("c"), replaced=("b",)) == []


def test_planning_again_survives_a_crash() -> None:
    kernel = planned("a", attempts=1)
    kernel.fail("a", "denied")
    kernel.crash()
    kernel.amend(tasks_of("d"), replaced=("a",))
    kernel.finish("@plan:2")
    kernel.finish("d")
    assert kernel.status == "succeeded"


# step by step


def test_step_by_step_the_next_choice_comes_after_each_result() -> None:
    kernel = planned("a", Approach.STEPS)
    kernel.finish("a")
    assert kernel.started()[-1] == "@plan:2#1"
    kernel.amend(tasks_of("b"), is_step=True)
    kernel.finish("@plan:2")
    kernel.finish("b")
    kernel.finish("@plan:3")  # chooses nothing: it is done
    assert kernel.status == "succeeded"


def test_steps_are_no_replans() -> None:
    kernel = planned("a", Approach.STEPS, replans=0)
    kernel.finish("a")
    assert kernel.amend(tasks_of("b"), is_step=True) != []


def test_a_failed_step_is_seen_by_the_next_choice_and_not_planned_around() -> None:
    kernel = planned("a", Approach.STEPS, attempts=1)
    kernel.fail("a", "denied")
    assert kernel.started()[-1] == "@plan:2#1"
    assert kernel.schedule.nodes["@plan:2"].task.args == {"because": "step"}


def test_step_by_step_survives_a_crash_at_every_point() -> None:
    kernel = planned("a", Approach.STEPS)
    kernel.crash()
    kernel.finish("a")
    kernel.crash()
    kernel.amend(tasks_of("b"), is_step=True)
    kernel.crash()
    kernel.finish("@plan:2")
    kernel.crash()
    kernel.finish("b")
    kernel.crash()
    kernel.finish("@plan:3")
    assert kernel.status == "succeeded"


# rewriting


def test_a_task_that_failed_for_what_it_says_is_rewritten_first() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    assert kernel.started() == ["a#1", "@refine:a:1#1"]
    kernel.tell(
        TaskRewritten(task="a", description="bring it forth better", attempt=1, at=kernel.now)
    )
    kernel.finish("@refine:a:1")
    assert kernel.started()[-1] == "a#2"
    assert kernel.schedule.nodes["a"].task.description == "bring it forth better"


def test_the_refiner_sees_why_it_failed() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    failure = kernel.schedule.nodes["a"].last_failure
    assert failure is not None
    assert failure.message == "it broke"


def test_without_new_words_it_is_tried_with_the_old_ones() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    kernel.fail("@refine:a:1", "logic")
    assert kernel.started()[-1] == "a#2"


def test_after_three_tries_it_is_given_up() -> None:
    kernel = kernel_of("a", asked=REFINED)
    for attempt in (1, 2):
        kernel.fail("a", "logic")
        kernel.finish(f"@refine:a:{attempt}")
    kernel.fail("a", "logic")
    assert kernel.status == "failed"


def test_a_network_that_failed_needs_no_better_words() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "network")
    kernel.wait(2)
    assert kernel.started() == ["a#1", "a#2"]


def test_words_for_another_attempt_are_refused() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    assert kernel.tell(TaskRewritten(task="a", description="x", attempt=2, at=kernel.now)) == []


def test_a_rewritten_task_keeps_its_words_after_a_crash() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    kernel.tell(TaskRewritten(task="a", description="better", attempt=1, at=kernel.now))
    kernel.crash()
    kernel.finish("@refine:a:1")
    assert kernel.schedule.nodes["a"].task.description == "better"
    assert kernel.started()[-1] == "a#2"


# answering


def test_the_answer_is_composed_when_all_is_done() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED)
    kernel.finish("a")
    assert "@answer#1" not in kernel.started()
    kernel.finish("b")
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer")
    assert kernel.status == "succeeded"


def test_of_nothing_no_answer_is_composed() -> None:
    kernel = kernel_of("a", asked=ANSWERED, attempts=1)
    kernel.fail("a")
    assert kernel.status == "failed"


def test_a_run_with_gaps_is_answered_too() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, attempts=1)
    kernel.fail("a")
    kernel.finish("b")
    kernel.finish("@answer")
    assert kernel.status == "partial"


def test_an_answer_that_no_model_composed_is_put_together_by_rule() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    kernel.finish("a")
    kernel.fail("@answer", "logic")
    assert kernel.status == ""  # tried again
    kernel.fail("@answer", "logic")
    assert kernel.status == "partial"


def test_an_answer_that_was_to_have_a_shape_is_missing_without_it() -> None:
    kernel = kernel_of("a", asked={"answers": True, "shape": {"type": "object"}})
    kernel.finish("a")
    kernel.fail("@answer", "logic")
    kernel.fail("@answer", "logic")
    assert kernel.status == "partial"
    assert ended(kernel).missing == ("@answer",)


def test_answering_goes_on_after_a_crash() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    kernel.finish("a")
    kernel.crash()
    assert kernel.started()[-1] == "@answer#2"


def test_a_task_done_in_part_leaves_the_run_partial() -> None:
    kernel = kernel_of("a")
    kernel.end("a", Done(gaps=("below › x: it broke",)))
    assert kernel.status == "partial"
    assert ended(kernel).missing == ("a",)


# drafts


DRAFTED = {"answers": True, "drafts": True}


def test_a_straggler_does_not_hold_up_the_draft() -> None:
    kernel = kernel_of("a, b, c -> d", asked=DRAFTED)
    kernel.finish("a")
    assert "@draft:1#1" not in kernel.started(), "that is not half of it"
    kernel.finish("b")
    assert kernel.started()[-1] == "@draft:1#1"
    assert kernel.schedule.nodes["@draft:1"].task.args == {"of": ["a", "b"]}
    kernel.finish("@draft:1")
    kernel.finish("c")
    kernel.finish("d")
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer")
    assert kernel.status == "succeeded"


def test_a_draft_is_made_again_when_more_is_done() -> None:
    kernel = kernel_of("a, b, c, d", asked=DRAFTED)
    kernel.finish("a")
    kernel.finish("b")
    kernel.finish("c")
    assert "@draft:2#1" not in kernel.started(), "one at a time"
    kernel.finish("@draft:1")
    assert kernel.started()[-1] == "@draft:2#1"
    kernel.finish("@draft:2")
    assert "@draft:3#1" not in kernel.started(), "nothing is new"


def test_while_there_is_more_to_start_nothing_is_drafted() -> None:
    kernel = kernel_of("a, b, c", asked=DRAFTED, pool=1)
    kernel.finish("a")
    assert "@draft:1#1" not in kernel.started()


def test_a_draft_that_fails_changes_nothing() -> None:
    kernel = kernel_of("a, b", asked=DRAFTED)
    kernel.finish("a")
    kernel.fail("@draft:1", "logic")
    kernel.finish("b")
    kernel.finish("@answer")
    assert kernel.status == "succeeded"


def test_a_draft_survives_a_crash() -> None:
    kernel = kernel_of("a, b", asked=DRAFTED)
    kernel.finish("a")
    kernel.crash()
    assert "@draft:1#2" in kernel.started()


# the answer in time


def test_work_stops_in_time_for_an_answer() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, deadline=seconds(10))
    kernel.finish("a")
    kernel.wait(8.9)
    assert kernel.stopped() == []
    kernel.wait(0.1)
    assert kernel.stopped() == ["b#1"]
    kernel.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer")
    assert kernel.status == "partial"


def test_an_answer_that_takes_too_long_is_stopped_at_the_deadline() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, deadline=seconds(10))
    kernel.finish("a")
    kernel.wait(9)
    kernel.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    kernel.wait(1)
    assert kernel.stopped() == ["b#1", "@answer#1"]
    kernel.wait(0.5)
    assert kernel.status == "partial"


def test_attempts_that_do_not_stop_leave_no_time_for_an_answer() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, deadline=seconds(1))
    kernel.finish("a")
    kernel.wait(1.4)
    assert kernel.status == "partial"
    assert "@answer#1" not in kernel.started()


def test_when_active_time_runs_out_there_is_a_minute_for_the_answer() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, active=seconds(100))
    kernel.finish("a")
    kernel.wait(100)
    kernel.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    assert kernel.started()[-1] == "@answer#1"
    kernel.wait(59)
    assert kernel.stopped() == ["b#1"]
    kernel.wait(1)
    assert kernel.stopped() == ["b#1", "@answer#1"]


def test_an_answer_on_demand_is_made_of_what_there_is() -> None:
    kernel = kernel_of("a, b -> c", asked=ANSWERED)
    kernel.finish("a")
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    assert kernel.states()["c"] == "skipped"
    kernel.wait(0.5)
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer")
    assert kernel.status == "partial"
    assert ended(kernel).reason == "answer now"


def test_stopping_twice_is_stopping_once() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    assert kernel.tell(WorkStopped(reason="answer now", at=kernel.now)) == []


def test_a_cancel_beats_the_answer() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    kernel.finish("a")
    kernel.cancel()
    assert kernel.stopped() == ["@answer#1"]
    kernel.wait(0.5)
    assert kernel.status == "cancelled"


def test_the_time_for_the_answer_is_remembered_after_a_crash() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED)
    kernel.finish("a")
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    kernel.crash()
    kernel.wait(59)
    assert kernel.status == ""
    kernel.wait(1.5)
    assert kernel.status == "partial"


def test_planning_that_is_stopped_early_leaves_what_was_done() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM, "answers": True})
    kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=tasks_of("a")[0], at=kernel.now))
    kernel.finish("a")
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    kernel.wait(0.5)
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer")
    assert kernel.status == "partial"


def test_duties_need_no_worker_of_the_pool() -> None:
    kernel = kernel_of("", asked=PLANNED, places=(Place(worker="bob"),))
    assert kernel.started() == ["@plan#1"]


# at odd moments


def test_a_plan_cannot_be_changed_while_the_answer_is_made_of_it() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    kernel.finish("a")
    assert kernel.amend(tasks_of("b")) == []
    assert kernel.schedule.check_amendment(amended(kernel, "b"))[0].message == (
        "the answer is being composed from what there is"
    )


def test_no_task_of_a_plan_needs_what_the_supervisor_does_itself() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM})
    early = tasks_of("a", a={"needs": ["@plan"]})[0]
    assert (
        kernel.tell(PlanOpened(goal="", at=kernel.now), TaskAdded(task=early, at=kernel.now))[1:]
        == []
    )
    kernel.tell(TaskAdded(task=tasks_of("b")[0], at=kernel.now), PlanSealed(at=kernel.now))
    assert kernel.amend([early]) == []


def test_a_streamed_task_cannot_pass_itself_off_as_the_supervisors_own() -> None:
    kernel = kernel_of("", asked={"approach": Approach.STREAM})
    kernel.tell(PlanOpened(goal="", at=kernel.now))
    assert kernel.tell(TaskAdded(task=tasks_of("@answer")[0], at=kernel.now)) == []


def test_a_task_that_has_ended_is_not_rewritten() -> None:
    kernel = kernel_of("a", asked=REFINED)
    kernel.fail("a", "logic")
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    assert kernel.tell(TaskRewritten(task="a", description="x", attempt=1, at=kernel.now)) == []


def test_what_is_called_for_and_called_off_at_once_is_not_begun() -> None:
    kernel = kernel_of("a", asked=ANSWERED)
    done = AttemptFinished(task="a", attempt=1, outcome=Done(), at=kernel.now)
    kernel.tell(done, CancelRequested(at=kernel.now))
    assert kernel.started() == ["a#1"]
    assert kernel.status == "cancelled"


def test_what_fails_at_once_is_planned_around_at_once() -> None:
    """The planner begins after both failures and sees both; it is not called twice for them."""
    kernel = planned("a, b, c", attempts=1)
    denied = Failed(kind=ErrorClass.DENIED, message="no")
    kernel.tell(*(AttemptFinished(task=t, attempt=1, outcome=denied, at=kernel.now) for t in "ab"))
    kernel.finish("@plan:2")
    assert kernel.started()[-1] == "@plan:2#1"


def test_what_never_got_to_run_in_time_is_not_planned_around() -> None:
    kernel = kernel_of("", asked=PLANNED)
    late = tasks_of("a -> b", b={"deadline": seconds(1)})
    kernel.tell(PlanAdopted(plan=Plan(goal="", tasks=late), at=kernel.now))
    kernel.finish("@plan")
    kernel.wait(1)
    assert kernel.state("b") == "failed"
    kernel.finish("a")
    assert kernel.status == "partial"


def test_a_shaped_answer_that_there_was_no_time_for_is_missing() -> None:
    asked = {"answers": True, "shape": {"type": "object"}}
    kernel = kernel_of("a", asked=asked, deadline=seconds(1))
    kernel.wait(1)
    kernel.finish("a")  # within its grace
    assert kernel.status == "partial"
    assert ended(kernel).missing == ("@answer",)


def test_no_retry_is_put_into_the_time_for_the_answer() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED, deadline=seconds(100))
    kernel.finish("a")
    kernel.fail("b", retry_after=seconds(95))
    assert kernel.state("b") == "failed"
    assert kernel.started()[-1] == "@answer#1"


def test_the_answer_is_not_tried_again_after_its_time() -> None:
    kernel = kernel_of("a, b", asked=ANSWERED)
    kernel.finish("a")
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    kernel.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    kernel.fail("@answer", retry_after=seconds(61))
    assert kernel.status == "partial"


def test_after_many_steps_a_person_may_still_change_the_plan() -> None:
    kernel = planned("a", Approach.STEPS, replans=1)
    kernel.finish("a")
    kernel.amend(tasks_of("b"), is_step=True)
    assert kernel.amend(tasks_of("c")) != []
    assert kernel.amend(tasks_of("d")) == []


def test_no_other_task_makes_up_for_a_plan_that_was_not_written() -> None:
    kernel = kernel_of("", asked=PLANNED)
    kernel.adopt("a")
    kernel.fail("@plan", "logic")
    assert kernel.amend(tasks_of("b"), replaced=("@plan",)) == []


def amended(kernel: VirtualKernel, arrows: str) -> PlanAmended:
    return PlanAmended(
        version=kernel.schedule.version + 1, added=tuple(tasks_of(arrows)), at=kernel.now
    )
