"""What becomes of attempts: tries, losses, late and doubled reports, restarts."""

import pytest

from chargehand.decisions.dispatch import Place
from chargehand.facts.events import (
    AttemptFinished,
    AttemptPreempted,
    AttemptStarted,
    RetryPlanned,
    RunLed,
    TaskFailed,
)
from chargehand.facts.limits import TaskLimits
from chargehand.facts.outcome import Done
from tests.decisions.office import START, desk_of, seconds


def test_a_failed_task_is_tried_again_after_its_wait_and_not_before() -> None:
    desk = desk_of("a")
    (planned,) = [event for event in desk.fail("a") if isinstance(event, RetryPlanned)]
    wait = (planned.due_at - desk.now).total_seconds()
    desk.wait(wait - 0.001)
    assert desk.started() == ["a#1"]
    desk.wait(0.001)
    assert desk.started() == ["a#1", "a#2"]


def test_a_task_is_given_up_after_its_tries() -> None:
    desk = desk_of("a", attempts=3)
    for _ in range(3):
        desk.fail("a")
        desk.wait(60)
    assert desk.started() == ["a#1", "a#2", "a#3"]
    assert desk.status == "failed"


def test_a_task_may_have_fewer_tries_than_its_run() -> None:
    desk = desk_of("a", attempts=3, tasks={"a": {"limits": TaskLimits(attempts=1)}})
    desk.fail("a")
    assert desk.status == "failed"


@pytest.mark.parametrize("kind", ["denied", "cancelled"])
def test_what_is_final_is_not_tried_again(kind: str) -> None:
    desk = desk_of("a", attempts=3)
    desk.fail("a", kind)
    assert desk.status == "failed"


def test_a_lost_worker_does_not_count_as_a_try() -> None:
    desk = desk_of("a", attempts=1)
    desk.lose("a")
    assert desk.state("a") == "running"
    desk.finish("a")
    assert desk.status == "succeeded"


def test_a_preempted_attempt_does_not_count_as_a_try() -> None:
    desk = desk_of("a", attempts=1)
    desk.desk.free_place("r", "a", 1)
    desk.tell(AttemptPreempted(task="a", attempt=1, at=desk.now))
    assert desk.started() == ["a#1", "a#2"]


def test_a_task_that_kills_its_workers_is_set_aside() -> None:
    desk = desk_of("a", losses=2)
    for _ in range(3):
        desk.lose("a")
    assert desk.started() == ["a#1", "a#2", "a#3"]
    assert desk.status == "failed"


def test_a_task_that_gets_on_between_losses_is_not_set_aside() -> None:
    desk = desk_of("a", losses=1)
    for number in range(4):
        desk.begin_step("a", f"s{number}", "pure")
        desk.end_step("a", Done(), f"s{number}")
        desk.lose("a")
    assert desk.state("a") == "running"


def test_a_late_result_is_refused_and_changes_nothing() -> None:
    desk = desk_of("a -> b")
    desk.lose("a")
    desk.finish("a", attempt=1)
    assert desk.kinds()[-1] == "ResultRefused"
    assert desk.states() == {"a": "running", "b": "waiting"}


def test_a_result_that_is_told_twice_counts_once() -> None:
    desk = desk_of("a -> b -> c")
    desk.finish("a")
    desk.finish("a", attempt=1)
    assert desk.states() == {"a": "done", "b": "running", "c": "waiting"}


def test_a_failure_that_is_told_twice_counts_once() -> None:
    desk = desk_of("a", attempts=2)
    desk.fail("a")
    desk.fail("a")
    assert desk.state("a") == "retrying"


def test_deadline_beats_retry() -> None:
    desk = desk_of("a", tasks={"a": {"deadline": seconds(5)}})
    desk.fail("a", retry_after=seconds(5))
    assert desk.status == "failed"


def test_the_deadline_of_a_task_behind_it_does_not_forbid_a_retry() -> None:
    """`late` will miss its deadline, but `other` needs `a` all the same."""
    late = {"deadline": seconds(5), "optional": True}
    desk = desk_of("a -> late, a -> other", tasks={"late": late})
    desk.fail("a", retry_after=seconds(6))
    desk.wait(6)
    assert desk.started() == ["a#1", "a#2"]


def test_a_retry_by_skill_goes_to_another_worker() -> None:
    places = [Place(worker="ann", skills=("write",)), Place(worker="bob", skills=("write",))]
    desk = desk_of("a", places=places, tasks={"a": {"worker": "", "skill": "write"}})
    desk.fail("a", "logic")
    starts = [event for event in desk.journal if isinstance(event, AttemptStarted)]
    assert starts[0].worker != starts[1].worker


# restarts


def test_what_ran_in_a_dead_process_is_lost_and_started_again() -> None:
    desk = desk_of("a -> b")
    desk.crash()
    assert desk.kinds()[-2:] == ["AttemptLost", "AttemptStarted"]
    desk.finish("a")
    desk.finish("b")
    assert desk.status == "succeeded"


def test_a_retry_that_was_waited_for_is_still_waited_for_after_a_restart() -> None:
    desk = desk_of("a")
    desk.fail("a", retry_after=seconds(30))
    desk.crash()
    desk.wait(29.9)
    assert desk.started() == ["a#1"]
    desk.wait(0.1)
    assert desk.started() == ["a#1", "a#2"]


def test_a_ready_task_is_offered_again_after_a_restart() -> None:
    desk = desk_of("a, b", pool=1)
    desk.crash()
    desk.finish("a")
    assert desk.state("b") == "running"


def test_tries_are_remembered_over_a_restart() -> None:
    desk = desk_of("a", attempts=2)
    desk.fail("a", "logic")
    desk.crash()
    desk.fail("a", "logic")
    assert desk.status == "failed"
    assert isinstance(desk.journal[-2], TaskFailed)


def test_a_result_from_before_the_restart_is_refused() -> None:
    desk = desk_of("a")
    desk.crash()
    late = AttemptFinished(task="a", attempt=1, outcome=Done(), at=START)
    assert [type(event).__name__ for event in desk.tell(late)] == ["ResultRefused"]


def test_a_run_that_is_taken_back_does_not_take_its_old_attempts_for_new_ones() -> None:
    """The process lost the run and leads it again while its first attempt has not ended yet."""
    desk = desk_of("a, b", parallel=1)
    desk.desk.close("r")
    desk.desk.open("r", desk.journal)
    desk.tell(RunLed(node="n1", epoch=3, at=desk.now))
    desk.desk.free_place("r", "a", 1)
    desk.tell()
    assert desk.started() == ["a#1", "a#2"]
