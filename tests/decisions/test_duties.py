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
from tests.decisions.office import Office, desk_of, seconds, tasks_of

PLANNED = {"approach": Approach.WHOLE}
ANSWERED = {"answers": True}
REFINED = {"refines": True}


def planned(arrows: str, approach: Approach = Approach.WHOLE, **limits: Any) -> Office:
    """A run whose planner has just written this plan."""
    desk = desk_of("", asked={"approach": approach}, **limits)
    desk.adopt(arrows)
    desk.finish("@plan")
    return desk


def ended(desk: Office) -> RunFinished:
    last = desk.journal[-1]
    assert isinstance(last, RunFinished)
    return last


# planning


def test_a_request_without_a_plan_begins_with_planning() -> None:
    desk = desk_of("", asked=PLANNED)
    assert desk.started() == ["@plan#1"]
    assert desk.schedule.state == "planning"


def test_planning_takes_no_place_in_the_pool() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM}, pool=1)
    desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=tasks_of("a")[0], at=desk.now))
    assert desk.started() == ["@plan#1", "a#1"]


def test_tasks_of_an_open_plan_start_while_it_is_written() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM})
    a, b = tasks_of("a -> b")
    desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=a, at=desk.now))
    desk.finish("a")
    assert desk.status == ""
    desk.tell(TaskAdded(task=b, at=desk.now), PlanSealed(at=desk.now))
    desk.finish("@plan")
    desk.finish("b")
    assert desk.status == "succeeded"


@pytest.mark.parametrize(
    "arrows", ["a", "zero -> b"], ids=["an id that is there", "a need that is not"]
)
def test_a_task_that_cannot_be_added_is_refused(arrows: str) -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM})
    desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=tasks_of("a")[0], at=desk.now))
    assert desk.tell(TaskAdded(task=tasks_of(arrows)[-1], at=desk.now)) == []


def test_a_sealed_plan_takes_no_more_tasks() -> None:
    desk = planned("a")
    assert desk.tell(TaskAdded(task=tasks_of("b")[0], at=desk.now)) == []


def test_without_a_plan_the_run_has_failed_and_says_so() -> None:
    desk = desk_of("", asked=PLANNED)
    desk.fail("@plan", "logic")
    assert desk.status == "failed"
    assert ended(desk).missing == ("@plan",)


def test_a_planner_that_talks_nonsense_is_not_asked_all_over_again() -> None:
    desk = desk_of("", asked=PLANNED)
    desk.fail("@plan", "logic")
    assert desk.started() == ["@plan#1"]


def test_a_planner_that_was_not_reached_is_tried_again() -> None:
    desk = desk_of("", asked=PLANNED)
    desk.fail("@plan", "network")
    desk.wait(2)
    assert desk.started() == ["@plan#1", "@plan#2"]


def test_a_planner_that_gives_up_half_way_leaves_a_partial_run() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM}, replans=0)
    desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=tasks_of("a")[0], at=desk.now))
    desk.finish("a")
    desk.fail("@plan", "logic")
    assert desk.status == "partial"


def test_planning_goes_on_after_a_crash() -> None:
    desk = desk_of("", asked=PLANNED)
    desk.crash()
    assert desk.started() == ["@plan#1", "@plan#2"]


# planning again


def test_a_task_that_fails_for_good_is_planned_around() -> None:
    desk = planned("a -> b, c", attempts=1)
    desk.fail("a", "denied")
    assert desk.started()[-1] == "@plan:2#1"
    assert desk.state("b") == "skipped"
    desk.amend(tasks_of("d -> e"), replaced=("a", "b"))
    desk.finish("@plan:2")
    for task in ("c", "d", "e"):
        desk.finish(task)
    assert desk.status == "succeeded"


def test_the_run_waits_for_the_new_plan() -> None:
    desk = planned("a", attempts=1)
    desk.fail("a", "denied")
    assert desk.status == ""
    desk.finish("@plan:2")  # there is no other way
    assert desk.status == "failed"
    assert ended(desk).missing == ("a",)


def test_a_second_failure_waits_for_the_planning_under_way() -> None:
    desk = planned("a, b", attempts=1)
    desk.fail("a", "denied")
    desk.fail("b", "denied")
    assert "@plan:3#1" not in desk.started()
    desk.finish("@plan:2")
    assert "@plan:3#1" in desk.started()


def test_planning_again_has_a_cap() -> None:
    desk = planned("a, b", attempts=1, replans=1)
    desk.fail("a", "denied")
    desk.finish("@plan:2")
    desk.fail("b", "denied")
    assert desk.status == "failed"


def test_no_planning_again_for_what_may_fail() -> None:
    desk = desk_of("", asked=PLANNED, attempts=1)
    desk.adopt("a, b")
    desk.finish("@plan")
    desk.finish("a")
    desk.amend([tasks_of("c", c={"optional": True})[0]])
    desk.fail("c", "denied")
    assert "@plan:2#1" not in desk.started()


def test_a_plan_that_a_person_wrote_is_not_changed_unasked() -> None:
    desk = desk_of("a", attempts=1)
    desk.fail("a", "denied")
    assert desk.status == "failed"


def test_what_failed_cannot_be_planned_again_word_for_word() -> None:
    desk = planned("a", attempts=1)
    desk.fail("a", "denied")
    again = tasks_of("z", z={"description": "Bring  forth a"})
    assert desk.amend(again, replaced=("a",)) == []


def test_only_what_came_to_nothing_can_be_made_up_for() -> None:
    desk = planned("a, b", attempts=1)
    desk.fail("a", "denied")
    assert desk.amend(tasks_of("c"), replaced=("b",)) == []


def test_planning_again_survives_a_crash() -> None:
    desk = planned("a", attempts=1)
    desk.fail("a", "denied")
    desk.crash()
    desk.amend(tasks_of("d"), replaced=("a",))
    desk.finish("@plan:2")
    desk.finish("d")
    assert desk.status == "succeeded"


# step by step


def test_step_by_step_the_next_choice_comes_after_each_result() -> None:
    desk = planned("a", Approach.STEPS)
    desk.finish("a")
    assert desk.started()[-1] == "@plan:2#1"
    desk.amend(tasks_of("b"), is_step=True)
    desk.finish("@plan:2")
    desk.finish("b")
    desk.finish("@plan:3")  # chooses nothing: it is done
    assert desk.status == "succeeded"


def test_steps_are_no_replans() -> None:
    desk = planned("a", Approach.STEPS, replans=0)
    desk.finish("a")
    assert desk.amend(tasks_of("b"), is_step=True) != []


def test_a_failed_step_is_seen_by_the_next_choice_and_not_planned_around() -> None:
    desk = planned("a", Approach.STEPS, attempts=1)
    desk.fail("a", "denied")
    assert desk.started()[-1] == "@plan:2#1"
    assert desk.schedule.nodes["@plan:2"].task.args == {"because": "step"}


def test_step_by_step_survives_a_crash_at_every_point() -> None:
    desk = planned("a", Approach.STEPS)
    desk.crash()
    desk.finish("a")
    desk.crash()
    desk.amend(tasks_of("b"), is_step=True)
    desk.crash()
    desk.finish("@plan:2")
    desk.crash()
    desk.finish("b")
    desk.crash()
    desk.finish("@plan:3")
    assert desk.status == "succeeded"


# rewriting


def test_a_task_that_failed_for_what_it_says_is_rewritten_first() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    assert desk.started() == ["a#1", "@refine:a:1#1"]
    desk.tell(TaskRewritten(task="a", description="bring it forth better", attempt=1, at=desk.now))
    desk.finish("@refine:a:1")
    assert desk.started()[-1] == "a#2"
    assert desk.schedule.nodes["a"].task.description == "bring it forth better"


def test_the_refiner_sees_why_it_failed() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    failure = desk.schedule.nodes["a"].last_failure
    assert failure is not None
    assert failure.message == "it broke"


def test_without_new_words_it_is_tried_with_the_old_ones() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    desk.fail("@refine:a:1", "logic")
    assert desk.started()[-1] == "a#2"


def test_after_three_tries_it_is_given_up() -> None:
    desk = desk_of("a", asked=REFINED)
    for attempt in (1, 2):
        desk.fail("a", "logic")
        desk.finish(f"@refine:a:{attempt}")
    desk.fail("a", "logic")
    assert desk.status == "failed"


def test_a_network_that_failed_needs_no_better_words() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "network")
    desk.wait(2)
    assert desk.started() == ["a#1", "a#2"]


def test_words_for_another_attempt_are_refused() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    assert desk.tell(TaskRewritten(task="a", description="x", attempt=2, at=desk.now)) == []


def test_a_rewritten_task_keeps_its_words_after_a_crash() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    desk.tell(TaskRewritten(task="a", description="better", attempt=1, at=desk.now))
    desk.crash()
    desk.finish("@refine:a:1")
    assert desk.schedule.nodes["a"].task.description == "better"
    assert desk.started()[-1] == "a#2"


# answering


def test_the_answer_is_composed_when_all_is_done() -> None:
    desk = desk_of("a, b", asked=ANSWERED)
    desk.finish("a")
    assert "@answer#1" not in desk.started()
    desk.finish("b")
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer")
    assert desk.status == "succeeded"


def test_of_nothing_no_answer_is_composed() -> None:
    desk = desk_of("a", asked=ANSWERED, attempts=1)
    desk.fail("a")
    assert desk.status == "failed"


def test_a_run_with_gaps_is_answered_too() -> None:
    desk = desk_of("a, b", asked=ANSWERED, attempts=1)
    desk.fail("a")
    desk.finish("b")
    desk.finish("@answer")
    assert desk.status == "partial"


def test_an_answer_that_no_model_composed_is_put_together_by_rule() -> None:
    desk = desk_of("a", asked=ANSWERED)
    desk.finish("a")
    desk.fail("@answer", "logic")
    assert desk.status == ""  # tried again
    desk.fail("@answer", "logic")
    assert desk.status == "partial"


def test_an_answer_that_was_to_have_a_shape_is_missing_without_it() -> None:
    desk = desk_of("a", asked={"answers": True, "shape": {"type": "object"}})
    desk.finish("a")
    desk.fail("@answer", "logic")
    desk.fail("@answer", "logic")
    assert desk.status == "partial"
    assert ended(desk).missing == ("@answer",)


def test_answering_goes_on_after_a_crash() -> None:
    desk = desk_of("a", asked=ANSWERED)
    desk.finish("a")
    desk.crash()
    assert desk.started()[-1] == "@answer#2"


def test_a_task_done_in_part_leaves_the_run_partial() -> None:
    desk = desk_of("a")
    desk.end("a", Done(gaps=("below › x: it broke",)))
    assert desk.status == "partial"
    assert ended(desk).missing == ("a",)


# drafts


DRAFTED = {"answers": True, "drafts": True}


def test_a_straggler_does_not_hold_up_the_draft() -> None:
    desk = desk_of("a, b, c -> d", asked=DRAFTED)
    desk.finish("a")
    assert "@draft:1#1" not in desk.started(), "that is not half of it"
    desk.finish("b")
    assert desk.started()[-1] == "@draft:1#1"
    assert desk.schedule.nodes["@draft:1"].task.args == {"of": ["a", "b"]}
    desk.finish("@draft:1")
    desk.finish("c")
    desk.finish("d")
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer")
    assert desk.status == "succeeded"


def test_a_draft_is_made_again_when_more_is_done() -> None:
    desk = desk_of("a, b, c, d", asked=DRAFTED)
    desk.finish("a")
    desk.finish("b")
    desk.finish("c")
    assert "@draft:2#1" not in desk.started(), "one at a time"
    desk.finish("@draft:1")
    assert desk.started()[-1] == "@draft:2#1"
    desk.finish("@draft:2")
    assert "@draft:3#1" not in desk.started(), "nothing is new"


def test_while_there_is_more_to_start_nothing_is_drafted() -> None:
    desk = desk_of("a, b, c", asked=DRAFTED, pool=1)
    desk.finish("a")
    assert "@draft:1#1" not in desk.started()


def test_a_draft_that_fails_changes_nothing() -> None:
    desk = desk_of("a, b", asked=DRAFTED)
    desk.finish("a")
    desk.fail("@draft:1", "logic")
    desk.finish("b")
    desk.finish("@answer")
    assert desk.status == "succeeded"


def test_a_draft_survives_a_crash() -> None:
    desk = desk_of("a, b", asked=DRAFTED)
    desk.finish("a")
    desk.crash()
    assert "@draft:1#2" in desk.started()


# the answer in time


def test_work_stops_in_time_for_an_answer() -> None:
    desk = desk_of("a, b", asked=ANSWERED, deadline=seconds(10))
    desk.finish("a")
    desk.wait(8.9)
    assert desk.stopped() == []
    desk.wait(0.1)
    assert desk.stopped() == ["b#1"]
    desk.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer")
    assert desk.status == "partial"


def test_an_answer_that_takes_too_long_is_stopped_at_the_deadline() -> None:
    desk = desk_of("a, b", asked=ANSWERED, deadline=seconds(10))
    desk.finish("a")
    desk.wait(9)
    desk.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    desk.wait(1)
    assert desk.stopped() == ["b#1", "@answer#1"]
    desk.wait(0.5)
    assert desk.status == "partial"


def test_attempts_that_do_not_stop_leave_no_time_for_an_answer() -> None:
    desk = desk_of("a, b", asked=ANSWERED, deadline=seconds(1))
    desk.finish("a")
    desk.wait(1.4)
    assert desk.status == "partial"
    assert "@answer#1" not in desk.started()


def test_when_active_time_runs_out_there_is_a_minute_for_the_answer() -> None:
    desk = desk_of("a, b", asked=ANSWERED, active=seconds(100))
    desk.finish("a")
    desk.wait(100)
    desk.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    assert desk.started()[-1] == "@answer#1"
    desk.wait(59)
    assert desk.stopped() == ["b#1"]
    desk.wait(1)
    assert desk.stopped() == ["b#1", "@answer#1"]


def test_an_answer_on_demand_is_made_of_what_there_is() -> None:
    desk = desk_of("a, b -> c", asked=ANSWERED)
    desk.finish("a")
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    assert desk.states()["c"] == "skipped"
    desk.wait(0.5)
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer")
    assert desk.status == "partial"
    assert ended(desk).reason == "answer now"


def test_stopping_twice_is_stopping_once() -> None:
    desk = desk_of("a", asked=ANSWERED)
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    assert desk.tell(WorkStopped(reason="answer now", at=desk.now)) == []


def test_a_cancel_beats_the_answer() -> None:
    desk = desk_of("a", asked=ANSWERED)
    desk.finish("a")
    desk.cancel()
    assert desk.stopped() == ["@answer#1"]
    desk.wait(0.5)
    assert desk.status == "cancelled"


def test_the_time_for_the_answer_is_remembered_after_a_crash() -> None:
    desk = desk_of("a, b", asked=ANSWERED)
    desk.finish("a")
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    desk.crash()
    desk.wait(59)
    assert desk.status == ""
    desk.wait(1.5)
    assert desk.status == "partial"


def test_planning_that_is_stopped_early_leaves_what_was_done() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM, "answers": True})
    desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=tasks_of("a")[0], at=desk.now))
    desk.finish("a")
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    desk.wait(0.5)
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer")
    assert desk.status == "partial"


def test_duties_need_no_worker_of_the_pool() -> None:
    desk = desk_of("", asked=PLANNED, places=(Place(worker="bob"),))
    assert desk.started() == ["@plan#1"]


# at odd moments


def test_a_plan_cannot_be_changed_while_the_answer_is_made_of_it() -> None:
    desk = desk_of("a", asked=ANSWERED)
    desk.finish("a")
    assert desk.amend(tasks_of("b")) == []
    assert desk.schedule.check_amendment(amended(desk, "b"))[0].message == (
        "the answer is being composed from what there is"
    )


def test_no_task_of_a_plan_needs_what_the_supervisor_does_itself() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM})
    early = tasks_of("a", a={"needs": ["@plan"]})[0]
    assert desk.tell(PlanOpened(goal="", at=desk.now), TaskAdded(task=early, at=desk.now))[1:] == []
    desk.tell(TaskAdded(task=tasks_of("b")[0], at=desk.now), PlanSealed(at=desk.now))
    assert desk.amend([early]) == []


def test_a_streamed_task_cannot_pass_itself_off_as_the_supervisors_own() -> None:
    desk = desk_of("", asked={"approach": Approach.STREAM})
    desk.tell(PlanOpened(goal="", at=desk.now))
    assert desk.tell(TaskAdded(task=tasks_of("@answer")[0], at=desk.now)) == []


def test_a_task_that_has_ended_is_not_rewritten() -> None:
    desk = desk_of("a", asked=REFINED)
    desk.fail("a", "logic")
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    assert desk.tell(TaskRewritten(task="a", description="x", attempt=1, at=desk.now)) == []


def test_what_is_called_for_and_called_off_at_once_is_not_begun() -> None:
    desk = desk_of("a", asked=ANSWERED)
    done = AttemptFinished(task="a", attempt=1, outcome=Done(), at=desk.now)
    desk.tell(done, CancelRequested(at=desk.now))
    assert desk.started() == ["a#1"]
    assert desk.status == "cancelled"


def test_what_fails_at_once_is_planned_around_at_once() -> None:
    """The planner begins after both failures and sees both; it is not called twice for them."""
    desk = planned("a, b, c", attempts=1)
    denied = Failed(kind=ErrorClass.DENIED, message="no")
    desk.tell(*(AttemptFinished(task=t, attempt=1, outcome=denied, at=desk.now) for t in "ab"))
    desk.finish("@plan:2")
    assert desk.started()[-1] == "@plan:2#1"


def test_what_never_got_to_run_in_time_is_not_planned_around() -> None:
    desk = desk_of("", asked=PLANNED)
    late = tasks_of("a -> b", b={"deadline": seconds(1)})
    desk.tell(PlanAdopted(plan=Plan(goal="", tasks=late), at=desk.now))
    desk.finish("@plan")
    desk.wait(1)
    assert desk.state("b") == "failed"
    desk.finish("a")
    assert desk.status == "partial"


def test_a_shaped_answer_that_there_was_no_time_for_is_missing() -> None:
    asked = {"answers": True, "shape": {"type": "object"}}
    desk = desk_of("a", asked=asked, deadline=seconds(1))
    desk.wait(1)
    desk.finish("a")  # within its grace
    assert desk.status == "partial"
    assert ended(desk).missing == ("@answer",)


def test_no_retry_is_put_into_the_time_for_the_answer() -> None:
    desk = desk_of("a, b", asked=ANSWERED, deadline=seconds(100))
    desk.finish("a")
    desk.fail("b", retry_after=seconds(95))
    assert desk.state("b") == "failed"
    assert desk.started()[-1] == "@answer#1"


def test_the_answer_is_not_tried_again_after_its_time() -> None:
    desk = desk_of("a, b", asked=ANSWERED)
    desk.finish("a")
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    desk.end("b", Failed(kind=ErrorClass.CANCELLED, message=""))
    desk.fail("@answer", retry_after=seconds(61))
    assert desk.status == "partial"


def test_after_many_steps_a_person_may_still_change_the_plan() -> None:
    desk = planned("a", Approach.STEPS, replans=1)
    desk.finish("a")
    desk.amend(tasks_of("b"), is_step=True)
    assert desk.amend(tasks_of("c")) != []
    assert desk.amend(tasks_of("d")) == []


def test_no_other_task_makes_up_for_a_plan_that_was_not_written() -> None:
    desk = desk_of("", asked=PLANNED)
    desk.adopt("a")
    desk.fail("@plan", "logic")
    assert desk.amend(tasks_of("b"), replaced=("@plan",)) == []


def amended(desk: Office, arrows: str) -> PlanAmended:
    return PlanAmended(
        version=desk.schedule.version + 1, added=tuple(tasks_of(arrows)), at=desk.now
    )
