"""A run that is paused starts nothing new, keeps its time, and goes on where it was."""

from typing import Any

import pytest

from chargehand.decisions.dispatch import Place
from chargehand.decisions.kernel import RunMessage
from chargehand.decisions.past_run_simulation import retrace
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.trace import trace_of
from chargehand.facts.events import (
    Approach,
    AttemptPreempted,
    BudgetChanged,
    DeadlinePassed,
    Event,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    RunLed,
    RunPaused,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import PreemptAttempt
from tests.decisions.virtual_kernel import VirtualKernel, kernel_of, requested, seconds, tasks_of

PLANNED = {"approach": Approach.WHOLE, "answers": True}


def pause(kernel: VirtualKernel) -> list[Event]:
    return kernel.tell(RunPaused(by="eva", at=kernel.now))


def unpause(kernel: VirtualKernel) -> list[Event]:
    return kernel.tell(RunUnpaused(by="eva", at=kernel.now))


def steer(kernel: VirtualKernel, note: str = "also the Danube") -> list[Event]:
    return kernel.tell(RunSteered(note=note, by="eva", at=kernel.now))


def preempt(kernel: VirtualKernel, task: str) -> list[Event]:
    number = kernel.schedule.nodes[task].attempt
    kernel.kernel.free_place("r", task, number)
    return kernel.tell(AttemptPreempted(task=task, attempt=number, at=kernel.now))


def planned(arrows: str, approach: Approach = Approach.WHOLE, **limits: Any) -> VirtualKernel:
    kernel = kernel_of("", asked={**PLANNED, "approach": approach}, **limits)
    kernel.tell(PlanAdopted(plan=Plan(goal="g", tasks=tasks_of(arrows)), at=kernel.now))
    kernel.finish("@plan")
    return kernel


# pausing


def test_a_paused_run_starts_nothing_new() -> None:
    kernel = kernel_of("a -> b, c", pool=1)
    pause(kernel)
    kernel.finish("a")
    assert kernel.schedule.state == "paused"
    assert kernel.started() == ["a#1"]
    assert kernel.states() == {"a": "done", "b": "ready", "c": "ready"}


def test_a_run_that_goes_on_starts_all_that_became_ready() -> None:
    kernel = kernel_of("a -> b, c", pool=1)
    pause(kernel)
    kernel.finish("a")
    unpause(kernel)
    kernel.finish("b" if "b#1" in kernel.started() else "c")
    assert sorted(kernel.started()) == ["a#1", "b#1", "c#1"]


def test_what_runs_is_stopped_at_its_next_safe_point() -> None:
    kernel = kernel_of("a, b")
    pause(kernel)
    stopped = [act.task for act in kernel.acts if isinstance(act, PreemptAttempt)]
    assert stopped == ["a", "b"]
    preempt(kernel, "a")
    assert kernel.state("a") == "ready"
    unpause(kernel)
    assert kernel.started() == ["a#1", "b#1", "a#2"]


def test_the_supervisor_does_nothing_itself_either() -> None:
    kernel = planned("a")
    pause(kernel)
    kernel.finish("a")
    assert "@answer#1" not in kernel.started()
    unpause(kernel)
    assert kernel.started()[-1] == "@answer#1"


def test_other_runs_go_on() -> None:
    kernel = kernel_of("a")
    pause(kernel)
    kernel.kernel.open("other")
    begun: list[Event] = [
        requested(run="other"),
        RunLed(node="n", epoch=1, at=kernel.now),
        PlanAdopted(plan=Plan(goal="g", tasks=tasks_of("b")), at=kernel.now),
    ]
    batch = kernel.kernel.decide([RunMessage("other", event) for event in begun], kernel.now)
    assert [act.task for act in batch.acts] == ["b"]


def test_pausing_twice_and_going_on_twice_say_nothing_new() -> None:
    kernel = kernel_of("a -> b")
    assert len(pause(kernel)) == 1
    assert pause(kernel) == []
    assert len(unpause(kernel)) == 1
    assert unpause(kernel) == []
    assert len(pause(kernel)) == 1


def test_to_be_paused_time_and_again_is_not_held_against_a_task() -> None:
    kernel = kernel_of("a", losses=1)
    for _ in range(5):
        pause(kernel)
        preempt(kernel, "a")
        unpause(kernel)
    assert kernel.state("a") == "running"


def test_a_retry_that_falls_due_waits_until_the_run_goes_on() -> None:
    kernel = kernel_of("a")
    kernel.fail("a")
    pause(kernel)
    kernel.wait(60)
    assert (kernel.state("a"), kernel.started()) == ("ready", ["a#1"])
    unpause(kernel)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_paused_run_is_paused_after_a_crash_and_goes_on_then() -> None:
    kernel = kernel_of("a -> b")
    pause(kernel)
    kernel.crash()
    assert kernel.schedule.state == "paused"
    assert kernel.started() == ["a#1"]
    unpause(kernel)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_paused_run_whose_last_task_ends_has_ended() -> None:
    kernel = kernel_of("a")
    pause(kernel)
    kernel.finish("a")
    assert kernel.status == "succeeded"


def test_an_answer_to_a_question_is_kept_until_the_run_goes_on() -> None:
    kernel = kernel_of("a")
    kernel.ask("a")
    pause(kernel)
    kernel.answer("a", "red")
    assert (kernel.state("a"), kernel.started()) == ("ready", ["a#1"])
    unpause(kernel)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_plan_may_be_changed_while_the_run_is_paused() -> None:
    kernel = kernel_of("a -> b")
    pause(kernel)
    kernel.amend(tasks_of("c"))
    assert kernel.started() == ["a#1"]
    unpause(kernel)
    assert kernel.started() == ["a#1", "c#1"]


# time


def test_active_time_stands_still_while_a_run_is_paused() -> None:
    kernel = kernel_of("a -> b", active=seconds(100))
    kernel.wait(60)
    pause(kernel)
    preempt(kernel, "a")
    kernel.wait(1000)
    assert kernel.status == ""
    unpause(kernel)
    kernel.wait(30)
    assert kernel.schedule.state == "running"
    kernel.wait(20)
    assert any(isinstance(event, DeadlinePassed) for event in kernel.journal)


def test_active_time_does_not_go_on_because_a_paused_run_was_answered() -> None:
    kernel = kernel_of("a", active=seconds(100))
    kernel.ask("a")
    pause(kernel)
    kernel.answer("a", "red")
    kernel.wait(1000)
    unpause(kernel)
    kernel.wait(90)
    assert kernel.status == ""


def test_a_deadline_passes_while_the_run_is_paused() -> None:
    kernel = kernel_of("a -> b", deadline=seconds(100))
    pause(kernel)
    preempt(kernel, "a")
    kernel.wait(101)
    assert kernel.status == "failed"


def test_a_deadline_leaves_a_paused_run_its_answer() -> None:
    kernel = kernel_of("", asked=PLANNED, deadline=seconds(100))
    kernel.adopt("a -> b")
    kernel.finish("@plan")
    kernel.finish("a")
    pause(kernel)
    preempt(kernel, "b")
    kernel.wait(95)
    assert kernel.started()[-1] == "@answer#1"
    kernel.finish("@answer", {"text": "as far as it goes"})
    assert kernel.status == "partial"


@pytest.mark.parametrize("stop", ["cancel", "answer now"])
def test_a_paused_run_can_be_stopped(stop: str) -> None:
    kernel = planned("a -> b")
    kernel.finish("a")
    pause(kernel)
    preempt(kernel, "b")
    if stop == "cancel":
        kernel.cancel()
        assert kernel.status == "cancelled"
        return
    kernel.tell(WorkStopped(reason="answer now", at=kernel.now))
    assert kernel.started()[-1] == "@answer#1"


def test_a_run_that_is_stopping_cannot_be_paused() -> None:
    kernel = kernel_of("a")
    kernel.cancel()
    assert pause(kernel) == []


# what is told of it


def test_the_trace_tells_every_pause_and_every_note() -> None:
    kernel = planned("a -> b")
    kernel.tell(RunPaused(by="eva", reason="lunch", at=kernel.now))
    steer(kernel, "in metres")
    kernel.wait(60)
    kernel.tell(RunUnpaused(by="ada", at=kernel.now))
    pause(kernel)
    trace = trace_of(kernel.journal)
    first, second = trace.pauses
    assert (first.by, first.reason, first.ended_by) == ("eva", "lunch", "ada")
    assert first.ended_at == first.at + seconds(60)
    assert second.ended_at is None
    assert [(each.text, each.by) for each in trace.steers] == [("in metres", "eva")]
    bare = trace.to_json(content=False)
    assert "lunch" not in bare
    assert "in metres" not in bare


def test_a_run_that_was_paused_is_retraced_with_its_pauses() -> None:
    kernel = kernel_of("a -> b")
    kernel.wait(2)
    pause(kernel)
    kernel.wait(1)
    preempt(kernel, "a")
    kernel.wait(30)
    unpause(kernel)
    kernel.wait(3)
    kernel.finish("a")
    kernel.wait(4)
    kernel.finish("b")
    retraced = retrace([kernel.journal], [Place(worker="ann")], parallel=10)
    assert retraced.happened == seconds(40)
    assert retraced.ratio == pytest.approx(1, abs=0.01)


# steering


def test_a_note_leads_to_planning() -> None:
    kernel = planned("a -> b")
    steer(kernel)
    assert kernel.started()[-1] == "@plan:2#1"
    assert kernel.schedule.nodes["@plan:2"].task.args == {"because": "steer"}
    assert kernel.kernel.runs["r"].results.notes == ["also the Danube"]


def test_a_given_plan_that_a_model_answers_is_changed_like_any_other() -> None:
    kernel = kernel_of("a", asked={"answers": True})
    steer(kernel)
    assert kernel.started() == ["a#1", "@plan:2#1"]


def test_a_note_that_comes_while_there_is_planning_is_planned_after_it() -> None:
    kernel = kernel_of("", asked=PLANNED)
    steer(kernel)
    kernel.adopt("a")
    assert kernel.started() == ["@plan#1", "a#1"]
    kernel.finish("@plan")
    assert kernel.started()[-1] == "@plan:2#1"


def test_notes_are_not_counted_as_planning_again() -> None:
    kernel = planned("a, b", replans=1, attempts=1)
    for number in (2, 3, 4):
        steer(kernel, f"note {number}")
        assert kernel.amend(tasks_of(f"n{number}"), is_steered=True) != []
        kernel.finish(f"@plan:{number}")
    kernel.fail("a", "denied")
    assert kernel.started()[-1] == "@plan:5#1"
    assert kernel.amend(tasks_of("d"), replaced=("a",)) != []
    kernel.finish("@plan:5")
    kernel.fail("b", "denied")
    assert "@plan:6#1" not in kernel.started()


def test_a_note_may_take_out_what_runs_and_what_waits() -> None:
    kernel = planned("a -> b, c")
    steer(kernel)
    kernel.amend(tasks_of("d"), removed=("a", "b"), is_steered=True)
    kernel.finish("@plan:2")
    assert kernel.stopped() == ["a#1"]
    assert kernel.state("b") == "cancelled"


def test_a_note_that_changes_nothing_does_not_end_a_run_of_steps() -> None:
    kernel = planned("a", Approach.STEPS)
    steer(kernel)
    kernel.finish("@plan:2")
    kernel.finish("a")
    assert kernel.started()[-1] == "@plan:3#1"
    assert kernel.schedule.nodes["@plan:3"].task.args == {"because": "step"}


def test_planning_that_fails_because_of_a_note_leaves_the_run_a_success() -> None:
    kernel = planned("a", attempts=1)
    steer(kernel)
    kernel.fail("@plan:2", "denied")
    kernel.finish("a")
    kernel.finish("@answer", {"text": "done"})
    assert kernel.status == "succeeded"


def test_a_note_is_kept_for_when_a_paused_run_goes_on() -> None:
    kernel = planned("a -> b")
    pause(kernel)
    steer(kernel)
    assert "@plan:2#1" not in kernel.started()
    kernel.crash()
    unpause(kernel)
    assert "@plan:2#1" in kernel.started()


def test_a_given_plan_whose_answer_no_model_composes_takes_notes() -> None:
    kernel = kernel_of("a -> b")
    steer(kernel)
    assert "@plan:2#1" in kernel.started()
    kernel.finish("@plan:2")
    kernel.finish("a")
    kernel.finish("b")
    assert kernel.status == "succeeded"


def test_a_plan_of_a_pool_takes_no_notes() -> None:
    kernel = kernel_of("a", asked={"approach": Approach.POOL})
    assert steer(kernel) == []
    assert "belongs to a pool" in kernel.schedule.why_not_steered()


def test_a_run_that_has_ended_takes_no_notes_and_says_so() -> None:
    kernel = kernel_of("a")
    kernel.finish("a")
    assert steer(kernel) == []
    assert kernel.schedule.why_not_steered() == "it has ended (succeeded)"


def test_no_note_is_taken_once_the_answer_is_being_composed() -> None:
    kernel = planned("a")
    kernel.finish("a")
    assert steer(kernel) == []
    assert "composed" in kernel.schedule.why_not_steered()


def test_an_answer_that_a_pause_held_back_is_composed_when_the_work_is_stopped() -> None:
    kernel = kernel_of("a", asked={"answers": True})
    pause(kernel)
    kernel.finish("a")
    assert kernel.started() == ["a#1"]
    kernel.tell(WorkStopped(reason="answer now", by="eva", at=kernel.now))
    assert kernel.started() == ["a#1", "@answer#1"]


def short(kernel: VirtualKernel) -> list[Event]:
    question = Question(id="r:@budget:1:more", text="More?", about="budget")
    return kernel.tell(PersonAsked(task="@budget:1", attempt=0, question=question, at=kernel.now))


def more(kernel: VirtualKernel) -> list[Event]:
    return kernel.tell(BudgetChanged(calls=2, by="eva", at=kernel.now))


def test_a_pause_that_a_person_wanted_outlasts_the_want_of_money() -> None:
    """It ran short after it was paused: with more to spend it does not go on by itself."""
    kernel = kernel_of("a, b", pool=1, calls=1)
    pause(kernel)
    assert [type(event) for event in short(kernel)] == [PersonAsked]
    assert [type(event) for event in more(kernel)] == [BudgetChanged]
    assert kernel.schedule.is_paused
    assert [type(event) for event in unpause(kernel)] == [RunUnpaused]
    assert not kernel.schedule.is_paused


def test_a_run_that_a_person_wants_to_go_on_does_so_once_it_may_spend_more() -> None:
    kernel = kernel_of("a, b", pool=1, calls=1)
    assert [type(event) for event in short(kernel)] == [PersonAsked, RunPaused]
    assert unpause(kernel) == [], "no person has paused it"
    assert [type(event) for event in pause(kernel)] == [RunPaused]
    assert pause(kernel) == []
    assert [type(event) for event in unpause(kernel)] == [RunUnpaused]
    assert kernel.schedule.is_paused
    assert [type(event) for event in more(kernel)] == [BudgetChanged, RunUnpaused]
    assert not kernel.schedule.is_paused


def test_a_task_that_was_removed_while_paused_is_not_rewritten_afterwards() -> None:
    """Rewriting it would pay for a model call that nobody needs."""
    kernel = kernel_of("a, b", asked={"refines": True})
    pause(kernel)
    kernel.fail("a", "logic")
    kernel.tell(PlanAmended(version=2, removed=("a",), at=kernel.now))
    unpause(kernel)
    assert kernel.started() == ["a#1", "b#1"]
    assert kernel.schedule.nodes["@refine:a:1"].state is TaskState.CANCELLED
    kernel.finish("b")
    assert kernel.status == "succeeded"
