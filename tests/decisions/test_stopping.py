"""Deadlines, cancelling, active time: how a run is stopped, and that it really is."""

from chargehand.facts.events import AttemptLost, DeadlinePassed, PlanSealed
from chargehand.facts.outcome import Cancelled, Done
from tests.decisions.virtual_kernel import START, kernel_of, seconds, tasks_of


def test_cancel_tells_running_attempts_to_stop_and_starts_nothing_more() -> None:
    kernel = kernel_of("a -> b, c")
    kernel.cancel()
    assert kernel.stopped() == ["a#1", "c#1"]
    assert kernel.state("b") == "cancelled"
    kernel.end("a", Cancelled())
    kernel.end("c", Cancelled())
    assert kernel.status == "cancelled"
    assert kernel.started() == ["a#1", "c#1"]


def test_cancelling_twice_is_cancelling_once() -> None:
    kernel = kernel_of("a")
    kernel.cancel()
    assert kernel.cancel() == []


def test_an_attempt_that_does_not_stop_is_given_up_after_its_grace() -> None:
    kernel = kernel_of("a", grace=seconds(2))
    kernel.cancel()
    kernel.wait(1.9)
    assert kernel.status == ""
    (lost, _) = kernel.wait(0.1)
    assert isinstance(lost, AttemptLost)
    assert kernel.status == "cancelled"


def test_a_result_that_races_the_cancel_is_kept_but_the_run_is_cancelled() -> None:
    kernel = kernel_of("a -> b")
    kernel.cancel()
    kernel.finish("a")
    assert kernel.status == "cancelled"
    assert kernel.started() == ["a#1"]


def test_no_step_begins_after_a_cancel() -> None:
    kernel = kernel_of("a")
    kernel.cancel()
    assert kernel.begin_step("a") == []


def test_a_step_that_was_refused_its_beginning_cannot_end() -> None:
    """A worker that does not wait for the intent of a pure step may try."""
    kernel = kernel_of("a")
    kernel.cancel()
    kernel.begin_step("a", effect="pure")
    assert kernel.end_step("a", Done()) == []


def test_a_step_under_way_may_end_after_the_cancel() -> None:
    kernel = kernel_of("a")
    kernel.begin_step("a")
    kernel.cancel()
    assert len(kernel.end_step("a", Done())) == 1


def test_the_deadline_of_a_run_ends_it_with_what_there_is() -> None:
    kernel = kernel_of("a -> b", deadline=seconds(10))
    kernel.finish("a")
    kernel.wait(10)
    assert kernel.stopped() == ["b#1"]
    kernel.end("b", Cancelled())
    assert kernel.status == "partial"


def test_the_deadline_of_a_task_fails_it_and_leaves_the_rest() -> None:
    kernel = kernel_of("a, b", tasks={"a": {"deadline": seconds(10)}})
    kernel.wait(10)
    kernel.end("a", Cancelled())
    assert kernel.states() == {"a": "failed", "b": "running"}


def test_a_task_whose_deadline_passed_while_it_waited_never_starts() -> None:
    """Not even when the need that it waited for is done later."""
    kernel = kernel_of("a -> b, c", tasks={"b": {"deadline": seconds(5)}})
    kernel.wait(6)
    assert kernel.state("b") == "failed"
    kernel.finish("a")
    assert kernel.state("b") == "failed"
    assert kernel.started() == ["a#1", "c#1"]


def test_a_task_in_the_queue_is_withdrawn_at_its_deadline() -> None:
    kernel = kernel_of("a, b", pool=1, tasks={"a": {"priority": 1}, "b": {"deadline": seconds(5)}})
    kernel.wait(6)
    kernel.finish("a")
    assert kernel.started() == ["a#1"]


def test_a_deadline_that_passed_during_a_crash_is_noticed_at_the_restart() -> None:
    kernel = kernel_of("a -> b", deadline=seconds(10))
    kernel.finish("a")
    kernel.now += seconds(3600)
    kernel.crash()
    assert kernel.status == "partial"
    assert kernel.started() == ["a#1", "b#1"]


def test_a_task_deadline_outlives_a_restart() -> None:
    kernel = kernel_of("a, b", tasks={"a": {"deadline": seconds(10)}})
    kernel.crash()
    kernel.wait(10)
    assert kernel.stopped() == ["a#2"]


def test_a_run_ends_when_its_active_time_is_over() -> None:
    kernel = kernel_of("a", active=seconds(60))
    kernel.wait(59)
    assert kernel.status == ""
    kernel.wait(2)
    assert kernel.status == "failed"


def test_waiting_for_a_person_is_no_active_time() -> None:
    kernel = kernel_of("a", active=seconds(60))
    kernel.wait(10)
    kernel.ask("a")
    kernel.wait(1000)
    kernel.answer("a", "this")
    kernel.wait(49)
    assert kernel.status == ""
    kernel.wait(2)
    assert kernel.status == "failed"


def test_waiting_for_a_person_is_no_active_time_after_a_restart_either() -> None:
    kernel = kernel_of("a", active=seconds(60))
    kernel.ask("a")
    kernel.wait(1000)
    kernel.crash()
    kernel.wait(1000)
    kernel.answer("a", "this")
    kernel.wait(59)
    assert kernel.status == ""
    kernel.wait(2)
    assert kernel.status == "failed"


def test_a_run_is_not_idle_because_a_cascade_passes_through_a_standstill() -> None:
    """`a` fails, `b` is skipped, and only then `c` can go on; active time runs on throughout."""
    kernel = kernel_of("a -> b, b ~> c", active=seconds(60))
    kernel.wait(10)
    kernel.fail("a", "denied")
    assert kernel.state("c") == "running"
    kernel.wait(51)
    assert "DeadlinePassed" in kernel.kinds()


def test_a_run_goes_on_counting_when_its_plan_is_changed_while_it_waits() -> None:
    kernel = kernel_of("a", active=seconds(60))
    kernel.ask("a")
    kernel.wait(1000)
    kernel.amend(added=tasks_of("b"))
    kernel.wait(61)
    assert "DeadlinePassed" in kernel.kinds()


def test_a_run_whose_time_was_over_before_it_began_to_wait_is_over() -> None:
    kernel = kernel_of("a", active=seconds(60))
    kernel.now += seconds(70)  # nothing was decided meanwhile: the process was stopped
    kernel.ask("a")
    assert kernel.status == "failed"


def test_a_run_without_a_plan_can_be_cancelled() -> None:
    kernel = kernel_of("")
    kernel.cancel()
    assert kernel.status == "cancelled"


def test_an_early_timer_says_nothing() -> None:
    kernel = kernel_of("a", deadline=seconds(10))
    assert kernel.tell(DeadlinePassed(at=START)) == []


def test_sealing_twice_does_no_harm_to_a_run_that_ended() -> None:
    kernel = kernel_of("a")
    kernel.finish("a")
    assert kernel.tell(PlanSealed(at=START)) == []
