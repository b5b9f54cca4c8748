"""A run that is paused starts nothing new, keeps its time, and goes on where it was."""

from typing import Any

import pytest

from chargehand.decisions.desk import Message
from chargehand.decisions.dispatch import Place
from chargehand.decisions.retrace import retrace
from chargehand.decisions.trace import trace_of
from chargehand.facts.commands import PreemptAttempt
from chargehand.facts.events import (
    Approach,
    AttemptPreempted,
    BudgetChanged,
    DeadlinePassed,
    Event,
    PersonAsked,
    PlanAdopted,
    RunLed,
    RunPaused,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from tests.decisions.office import Office, desk_of, requested, seconds, tasks_of

PLANNED = {"approach": Approach.WHOLE, "answers": True}


def pause(desk: Office) -> list[Event]:
    return desk.tell(RunPaused(by="eva", at=desk.now))


def unpause(desk: Office) -> list[Event]:
    return desk.tell(RunUnpaused(by="eva", at=desk.now))


def steer(desk: Office, note: str = "also the Danube") -> list[Event]:
    return desk.tell(RunSteered(note=note, by="eva", at=desk.now))


def preempt(desk: Office, task: str) -> list[Event]:
    number = desk.schedule.nodes[task].attempt
    desk.desk.free_place("r", task, number)
    return desk.tell(AttemptPreempted(task=task, attempt=number, at=desk.now))


def planned(arrows: str, approach: Approach = Approach.WHOLE, **limits: Any) -> Office:
    desk = desk_of("", asked={**PLANNED, "approach": approach}, **limits)
    desk.tell(PlanAdopted(plan=Plan(goal="g", tasks=tasks_of(arrows)), at=desk.now))
    desk.finish("@plan")
    return desk


# pausing


def test_a_paused_run_starts_nothing_new() -> None:
    desk = desk_of("a -> b, c", pool=1)
    pause(desk)
    desk.finish("a")
    assert desk.schedule.state == "paused"
    assert desk.started() == ["a#1"]
    assert desk.states() == {"a": "done", "b": "ready", "c": "ready"}


def test_a_run_that_goes_on_starts_all_that_became_ready() -> None:
    desk = desk_of("a -> b, c", pool=1)
    pause(desk)
    desk.finish("a")
    unpause(desk)
    desk.finish("b" if "b#1" in desk.started() else "c")
    assert sorted(desk.started()) == ["a#1", "b#1", "c#1"]


def test_what_runs_is_stopped_at_its_next_safe_point() -> None:
    desk = desk_of("a, b")
    pause(desk)
    stopped = [act.task for act in desk.acts if isinstance(act, PreemptAttempt)]
    assert stopped == ["a", "b"]
    preempt(desk, "a")
    assert desk.state("a") == "ready"
    unpause(desk)
    assert desk.started() == ["a#1", "b#1", "a#2"]


def test_the_supervisor_does_nothing_itself_either() -> None:
    desk = planned("a")
    pause(desk)
    desk.finish("a")
    assert "@answer#1" not in desk.started()
    unpause(desk)
    assert desk.started()[-1] == "@answer#1"


def test_other_runs_go_on() -> None:
    desk = desk_of("a")
    pause(desk)
    desk.desk.open("other")
    begun: list[Event] = [
        requested(run="other"),
        RunLed(node="n", epoch=1, at=desk.now),
        PlanAdopted(plan=Plan(goal="g", tasks=tasks_of("b")), at=desk.now),
    ]
    round_ = desk.desk.decide([Message("other", event) for event in begun], desk.now)
    assert [act.task for act in round_.acts] == ["b"]


def test_pausing_twice_and_going_on_twice_say_nothing_new() -> None:
    desk = desk_of("a -> b")
    assert len(pause(desk)) == 1
    assert pause(desk) == []
    assert len(unpause(desk)) == 1
    assert unpause(desk) == []
    assert len(pause(desk)) == 1


def test_to_be_paused_time_and_again_is_not_held_against_a_task() -> None:
    desk = desk_of("a", losses=1)
    for _ in range(5):
        pause(desk)
        preempt(desk, "a")
        unpause(desk)
    assert desk.state("a") == "running"


def test_a_retry_that_falls_due_waits_until_the_run_goes_on() -> None:
    desk = desk_of("a")
    desk.fail("a")
    pause(desk)
    desk.wait(60)
    assert (desk.state("a"), desk.started()) == ("ready", ["a#1"])
    unpause(desk)
    assert desk.started() == ["a#1", "a#2"]


def test_a_paused_run_is_paused_after_a_crash_and_goes_on_then() -> None:
    desk = desk_of("a -> b")
    pause(desk)
    desk.crash()
    assert desk.schedule.state == "paused"
    assert desk.started() == ["a#1"]
    unpause(desk)
    assert desk.started() == ["a#1", "a#2"]


def test_a_paused_run_whose_last_task_ends_has_ended() -> None:
    desk = desk_of("a")
    pause(desk)
    desk.finish("a")
    assert desk.status == "succeeded"


def test_an_answer_to_a_question_is_kept_until_the_run_goes_on() -> None:
    desk = desk_of("a")
    desk.ask("a")
    pause(desk)
    desk.answer("a", "red")
    assert (desk.state("a"), desk.started()) == ("ready", ["a#1"])
    unpause(desk)
    assert desk.started() == ["a#1", "a#2"]


def test_a_plan_may_be_changed_while_the_run_is_paused() -> None:
    desk = desk_of("a -> b")
    pause(desk)
    desk.amend(tasks_of("c"))
    assert desk.started() == ["a#1"]
    unpause(desk)
    assert desk.started() == ["a#1", "c#1"]


# time


def test_active_time_stands_still_while_a_run_is_paused() -> None:
    desk = desk_of("a -> b", active=seconds(100))
    desk.wait(60)
    pause(desk)
    preempt(desk, "a")
    desk.wait(1000)
    assert desk.status == ""
    unpause(desk)
    desk.wait(30)
    assert desk.schedule.state == "running"
    desk.wait(20)
    assert any(isinstance(event, DeadlinePassed) for event in desk.journal)


def test_active_time_does_not_go_on_because_a_paused_run_was_answered() -> None:
    desk = desk_of("a", active=seconds(100))
    desk.ask("a")
    pause(desk)
    desk.answer("a", "red")
    desk.wait(1000)
    unpause(desk)
    desk.wait(90)
    assert desk.status == ""


def test_a_deadline_passes_while_the_run_is_paused() -> None:
    desk = desk_of("a -> b", deadline=seconds(100))
    pause(desk)
    preempt(desk, "a")
    desk.wait(101)
    assert desk.status == "failed"


def test_a_deadline_leaves_a_paused_run_its_answer() -> None:
    desk = desk_of("", asked=PLANNED, deadline=seconds(100))
    desk.adopt("a -> b")
    desk.finish("@plan")
    desk.finish("a")
    pause(desk)
    preempt(desk, "b")
    desk.wait(95)
    assert desk.started()[-1] == "@answer#1"
    desk.finish("@answer", {"text": "as far as it goes"})
    assert desk.status == "partial"


@pytest.mark.parametrize("stop", ["cancel", "answer now"])
def test_a_paused_run_can_be_stopped(stop: str) -> None:
    desk = planned("a -> b")
    desk.finish("a")
    pause(desk)
    preempt(desk, "b")
    if stop == "cancel":
        desk.cancel()
        assert desk.status == "cancelled"
        return
    desk.tell(WorkStopped(reason="answer now", at=desk.now))
    assert desk.started()[-1] == "@answer#1"


def test_a_run_that_is_stopping_cannot_be_paused() -> None:
    desk = desk_of("a")
    desk.cancel()
    assert pause(desk) == []


# what is told of it


def test_the_trace_tells_every_pause_and_every_note() -> None:
    desk = planned("a -> b")
    desk.tell(RunPaused(by="eva", reason="lunch", at=desk.now))
    steer(desk, "in metres")
    desk.wait(60)
    desk.tell(RunUnpaused(by="ada", at=desk.now))
    pause(desk)
    trace = trace_of(desk.journal)
    first, second = trace.pauses
    assert (first.by, first.reason, first.ended_by) == ("eva", "lunch", "ada")
    assert first.ended_at == first.at + seconds(60)
    assert second.ended_at is None
    assert [(each.text, each.by) for each in trace.steers] == [("in metres", "eva")]
    bare = trace.to_json(content=False)
    assert "lunch" not in bare
    assert "in metres" not in bare


def test_a_run_that_was_paused_is_retraced_with_its_pauses() -> None:
    desk = desk_of("a -> b")
    desk.wait(2)
    pause(desk)
    desk.wait(1)
    preempt(desk, "a")
    desk.wait(30)
    unpause(desk)
    desk.wait(3)
    desk.finish("a")
    desk.wait(4)
    desk.finish("b")
    retraced = retrace([desk.journal], [Place(worker="ann")], parallel=10)
    assert retraced.happened == seconds(40)
    assert retraced.ratio == pytest.approx(1, abs=0.01)


# steering


def test_a_note_leads_to_planning() -> None:
    desk = planned("a -> b")
    steer(desk)
    assert desk.started()[-1] == "@plan:2#1"
    assert desk.schedule.nodes["@plan:2"].task.args == {"because": "steer"}
    assert desk.desk.runs["r"].results.notes == ["also the Danube"]


def test_a_given_plan_that_a_model_answers_is_changed_like_any_other() -> None:
    desk = desk_of("a", asked={"answers": True})
    steer(desk)
    assert desk.started() == ["a#1", "@plan:2#1"]


def test_a_note_that_comes_while_there_is_planning_is_planned_after_it() -> None:
    desk = desk_of("", asked=PLANNED)
    steer(desk)
    desk.adopt("a")
    assert desk.started() == ["@plan#1", "a#1"]
    desk.finish("@plan")
    assert desk.started()[-1] == "@plan:2#1"


def test_notes_are_not_counted_as_planning_again() -> None:
    desk = planned("a, b", replans=1, attempts=1)
    for number in (2, 3, 4):
        steer(desk, f"note {number}")
        assert desk.amend(tasks_of(f"n{number}"), is_steered=True) != []
        desk.finish(f"@plan:{number}")
    desk.fail("a", "denied")
    assert desk.started()[-1] == "@plan:5#1"
    assert desk.amend(tasks_of("d"), replaced=("a",)) != []
    desk.finish("@plan:5")
    desk.fail("b", "denied")
    assert "@plan:6#1" not in desk.started()


def test_a_note_may_take_out_what_runs_and_what_waits() -> None:
    desk = planned("a -> b, c")
    steer(desk)
    desk.amend(tasks_of("d"), removed=("a", "b"), is_steered=True)
    desk.finish("@plan:2")
    assert desk.stopped() == ["a#1"]
    assert desk.state("b") == "cancelled"


def test_a_note_that_changes_nothing_does_not_end_a_run_of_steps() -> None:
    desk = planned("a", Approach.STEPS)
    steer(desk)
    desk.finish("@plan:2")
    desk.finish("a")
    assert desk.started()[-1] == "@plan:3#1"
    assert desk.schedule.nodes["@plan:3"].task.args == {"because": "step"}


def test_planning_that_fails_because_of_a_note_leaves_the_run_a_success() -> None:
    desk = planned("a", attempts=1)
    steer(desk)
    desk.fail("@plan:2", "denied")
    desk.finish("a")
    desk.finish("@answer", {"text": "done"})
    assert desk.status == "succeeded"


def test_a_note_is_kept_for_when_a_paused_run_goes_on() -> None:
    desk = planned("a -> b")
    pause(desk)
    steer(desk)
    assert "@plan:2#1" not in desk.started()
    desk.crash()
    unpause(desk)
    assert "@plan:2#1" in desk.started()


def test_a_given_plan_without_a_model_takes_no_notes() -> None:
    desk = desk_of("a")
    assert steer(desk) == []
    assert "no model" in desk.schedule.why_not_steered()


def test_no_note_is_taken_once_the_answer_is_being_composed() -> None:
    desk = planned("a")
    desk.finish("a")
    assert steer(desk) == []
    assert "composed" in desk.schedule.why_not_steered()


def test_an_answer_that_a_pause_held_back_is_composed_when_the_work_is_stopped() -> None:
    desk = desk_of("a", asked={"answers": True})
    pause(desk)
    desk.finish("a")
    assert desk.started() == ["a#1"]
    desk.tell(WorkStopped(reason="answer now", by="eva", at=desk.now))
    assert desk.started() == ["a#1", "@answer#1"]


def short(desk: Office) -> list[Event]:
    question = Question(id="r:@budget:1:more", text="More?", about="budget")
    return desk.tell(PersonAsked(task="@budget:1", attempt=0, question=question, at=desk.now))


def more(desk: Office) -> list[Event]:
    return desk.tell(BudgetChanged(calls=2, by="eva", at=desk.now))


def test_a_pause_that_a_person_wanted_outlasts_the_want_of_money() -> None:
    """It ran short after it was paused: with more to spend it does not go on by itself."""
    desk = desk_of("a, b", pool=1, calls=1)
    pause(desk)
    assert [type(event) for event in short(desk)] == [PersonAsked]
    assert [type(event) for event in more(desk)] == [BudgetChanged]
    assert desk.schedule.is_paused
    assert [type(event) for event in unpause(desk)] == [RunUnpaused]
    assert not desk.schedule.is_paused


def test_a_run_that_a_person_wants_to_go_on_does_so_once_it_may_spend_more() -> None:
    desk = desk_of("a, b", pool=1, calls=1)
    assert [type(event) for event in short(desk)] == [PersonAsked, RunPaused]
    assert unpause(desk) == [], "no person has paused it"
    assert [type(event) for event in pause(desk)] == [RunPaused]
    assert pause(desk) == []
    assert [type(event) for event in unpause(desk)] == [RunUnpaused]
    assert desk.schedule.is_paused
    assert [type(event) for event in more(desk)] == [BudgetChanged, RunUnpaused]
    assert not desk.schedule.is_paused
