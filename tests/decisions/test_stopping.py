"""Deadlines, cancelling, active time: how a run is stopped, and that it really is."""

from chargehand.facts.events import AttemptLost, DeadlinePassed, PlanSealed
from chargehand.facts.outcome import Cancelled, Done
from tests.decisions.office import START, desk_of, seconds, tasks_of


def test_cancel_tells_running_attempts_to_stop_and_starts_nothing_more() -> None:
    desk = desk_of("a -> b, c")
    desk.cancel()
    assert desk.stopped() == ["a#1", "c#1"]
    assert desk.state("b") == "cancelled"
    desk.end("a", Cancelled())
    desk.end("c", Cancelled())
    assert desk.status == "cancelled"
    assert desk.started() == ["a#1", "c#1"]


def test_cancelling_twice_is_cancelling_once() -> None:
    desk = desk_of("a")
    desk.cancel()
    assert desk.cancel() == []


def test_an_attempt_that_does_not_stop_is_given_up_after_its_grace() -> None:
    desk = desk_of("a", grace=seconds(2))
    desk.cancel()
    desk.wait(1.9)
    assert desk.status == ""
    (lost, _) = desk.wait(0.1)
    assert isinstance(lost, AttemptLost)
    assert desk.status == "cancelled"


def test_a_result_that_races_the_cancel_is_kept_but_the_run_is_cancelled() -> None:
    desk = desk_of("a -> b")
    desk.cancel()
    desk.finish("a")
    assert desk.status == "cancelled"
    assert desk.started() == ["a#1"]


def test_no_step_begins_after_a_cancel() -> None:
    desk = desk_of("a")
    desk.cancel()
    assert desk.begin_step("a") == []


def test_a_step_that_was_refused_its_beginning_cannot_end() -> None:
    """A worker that does not wait for the intent of a pure step may try."""
    desk = desk_of("a")
    desk.cancel()
    desk.begin_step("a", effect="pure")
    assert desk.end_step("a", Done()) == []


def test_a_step_under_way_may_end_after_the_cancel() -> None:
    desk = desk_of("a")
    desk.begin_step("a")
    desk.cancel()
    assert len(desk.end_step("a", Done())) == 1


def test_the_deadline_of_a_run_ends_it_with_what_there_is() -> None:
    desk = desk_of("a -> b", deadline=seconds(10))
    desk.finish("a")
    desk.wait(10)
    assert desk.stopped() == ["b#1"]
    desk.end("b", Cancelled())
    assert desk.status == "partial"


def test_the_deadline_of_a_task_fails_it_and_leaves_the_rest() -> None:
    desk = desk_of("a, b", tasks={"a": {"deadline": seconds(10)}})
    desk.wait(10)
    desk.end("a", Cancelled())
    assert desk.states() == {"a": "failed", "b": "running"}


def test_a_task_whose_deadline_passed_while_it_waited_never_starts() -> None:
    """Not even when the need that it waited for is done later."""
    desk = desk_of("a -> b, c", tasks={"b": {"deadline": seconds(5)}})
    desk.wait(6)
    assert desk.state("b") == "failed"
    desk.finish("a")
    assert desk.state("b") == "failed"
    assert desk.started() == ["a#1", "c#1"]


def test_a_task_in_the_queue_is_withdrawn_at_its_deadline() -> None:
    desk = desk_of("a, b", pool=1, tasks={"a": {"priority": 1}, "b": {"deadline": seconds(5)}})
    desk.wait(6)
    desk.finish("a")
    assert desk.started() == ["a#1"]


def test_a_deadline_that_passed_during_a_crash_is_noticed_at_the_restart() -> None:
    desk = desk_of("a -> b", deadline=seconds(10))
    desk.finish("a")
    desk.now += seconds(3600)
    desk.crash()
    assert desk.status == "partial"
    assert desk.started() == ["a#1", "b#1"]


def test_a_task_deadline_outlives_a_restart() -> None:
    desk = desk_of("a, b", tasks={"a": {"deadline": seconds(10)}})
    desk.crash()
    desk.wait(10)
    assert desk.stopped() == ["a#2"]


def test_a_run_ends_when_its_active_time_is_over() -> None:
    desk = desk_of("a", active=seconds(60))
    desk.wait(59)
    assert desk.status == ""
    desk.wait(2)
    assert desk.status == "failed"


def test_waiting_for_a_person_is_no_active_time() -> None:
    desk = desk_of("a", active=seconds(60))
    desk.wait(10)
    desk.ask("a")
    desk.wait(1000)
    desk.answer("a", "this")
    desk.wait(49)
    assert desk.status == ""
    desk.wait(2)
    assert desk.status == "failed"


def test_waiting_for_a_person_is_no_active_time_after_a_restart_either() -> None:
    desk = desk_of("a", active=seconds(60))
    desk.ask("a")
    desk.wait(1000)
    desk.crash()
    desk.wait(1000)
    desk.answer("a", "this")
    desk.wait(59)
    assert desk.status == ""
    desk.wait(2)
    assert desk.status == "failed"


def test_a_run_is_not_idle_because_a_cascade_passes_through_a_standstill() -> None:
    """`a` fails, `b` is skipped, and only then `c` can go on; active time runs on throughout."""
    desk = desk_of("a -> b, b ~> c", active=seconds(60))
    desk.wait(10)
    desk.fail("a", "denied")
    assert desk.state("c") == "running"
    desk.wait(51)
    assert "DeadlinePassed" in desk.kinds()


def test_a_run_goes_on_counting_when_its_plan_is_changed_while_it_waits() -> None:
    desk = desk_of("a", active=seconds(60))
    desk.ask("a")
    desk.wait(1000)
    desk.amend(added=tasks_of("b"))
    desk.wait(61)
    assert "DeadlinePassed" in desk.kinds()


def test_a_run_whose_time_was_over_before_it_began_to_wait_is_over() -> None:
    desk = desk_of("a", active=seconds(60))
    desk.now += seconds(70)  # nothing was decided meanwhile: the process was stopped
    desk.ask("a")
    assert desk.status == "failed"


def test_a_run_without_a_plan_can_be_cancelled() -> None:
    desk = desk_of("")
    desk.cancel()
    assert desk.status == "cancelled"


def test_an_early_timer_says_nothing() -> None:
    desk = desk_of("a", deadline=seconds(10))
    assert desk.tell(DeadlinePassed(at=START)) == []


def test_sealing_twice_does_no_harm_to_a_run_that_ended() -> None:
    desk = desk_of("a")
    desk.finish("a")
    assert desk.tell(PlanSealed(at=START)) == []
