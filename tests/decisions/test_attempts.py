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
from tests.decisions.virtual_kernel import START, kernel_of, seconds


def test_a_failed_task_is_tried_again_after_its_wait_and_not_before() -> None:
    kernel = kernel_of("a")
    (planned,) = [event for event in kernel.fail("a") if isinstance(event, RetryPlanned)]
    wait = (planned.due_at - kernel.now).total_seconds()
    kernel.wait(wait - 0.001)
    assert kernel.started() == ["a#1"]
    kernel.wait(0.001)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_task_is_given_up_after_its_tries() -> None:
    kernel = kernel_of("a", attempts=3)
    for _ in range(3):
        kernel.fail("a")
        kernel.wait(60)
    assert kernel.started() == ["a#1", "a#2", "a#3"]
    assert kernel.status == "failed"


def test_a_task_may_have_fewer_tries_than_its_run() -> None:
    kernel = kernel_of("a", attempts=3, tasks={"a": {"limits": TaskLimits(attempts=1)}})
    kernel.fail("a")
    assert kernel.status == "failed"


@pytest.mark.parametrize("kind", ["denied", "cancelled"])
def test_what_is_final_is_not_tried_again(kind: str) -> None:
    kernel = kernel_of("a", attempts=3)
    kernel.fail("a", kind)
    assert kernel.status == "failed"


def test_a_lost_worker_does_not_count_as_a_try() -> None:
    kernel = kernel_of("a", attempts=1)
    kernel.lose("a")
    assert kernel.state("a") == "running"
    kernel.finish("a")
    assert kernel.status == "succeeded"


def test_a_preempted_attempt_does_not_count_as_a_try() -> None:
    kernel = kernel_of("a", attempts=1)
    kernel.kernel.free_place("r", "a", 1)
    kernel.tell(AttemptPreempted(task="a", attempt=1, at=kernel.now))
    assert kernel.started() == ["a#1", "a#2"]


def test_a_task_that_kills_its_workers_is_set_aside() -> None:
    kernel = kernel_of("a", losses=2)
    for _ in range(3):
        kernel.lose("a")
    assert kernel.started() == ["a#1", "a#2", "a#3"]
    assert kernel.status == "failed"


def test_a_task_that_gets_on_between_losses_is_not_set_aside() -> None:
    kernel = kernel_of("a", losses=1)
    for number in range(4):
        kernel.begin_step("a", f"s{number}", "pure")
        kernel.end_step("a", Done(), f"s{number}")
        kernel.lose("a")
    assert kernel.state("a") == "running"


def test_a_late_result_is_refused_and_changes_nothing() -> None:
    kernel = kernel_of("a -> b")
    kernel.lose("a")
    kernel.finish("a", attempt=1)
    assert kernel.kinds()[-1] == "ResultRefused"
    assert kernel.states() == {"a": "running", "b": "waiting"}


def test_a_result_that_is_told_twice_counts_once() -> None:
    kernel = kernel_of("a -> b -> c")
    kernel.finish("a")
    kernel.finish("a", attempt=1)
    assert kernel.states() == {"a": "done", "b": "running", "c": "waiting"}


def test_a_failure_that_is_told_twice_counts_once() -> None:
    kernel = kernel_of("a", attempts=2)
    kernel.fail("a")
    kernel.fail("a")
    assert kernel.state("a") == "retrying"


def test_deadline_beats_retry() -> None:
    kernel = kernel_of("a", tasks={"a": {"deadline": seconds(5)}})
    kernel.fail("a", retry_after=seconds(5))
    assert kernel.status == "failed"


def test_the_deadline_of_a_task_behind_it_does_not_forbid_a_retry() -> None:
    """`late` will miss its deadline, but `other` needs `a` all the same."""
    late = {"deadline": seconds(5), "optional": True}
    kernel = kernel_of("a -> late, a -> other", tasks={"late": late})
    kernel.fail("a", retry_after=seconds(6))
    kernel.wait(6)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_retry_by_skill_goes_to_another_worker() -> None:
    places = [Place(worker="ann", skills=("write",)), Place(worker="bob", skills=("write",))]
    kernel = kernel_of("a", places=places, tasks={"a": {"worker": "", "skill": "write"}})
    kernel.fail("a", "logic")
    starts = [event for event in kernel.journal if isinstance(event, AttemptStarted)]
    assert starts[0].worker != starts[1].worker


# restarts


def test_what_ran_in_a_dead_process_is_lost_and_started_again() -> None:
    kernel = kernel_of("a -> b")
    kernel.crash()
    assert kernel.kinds()[-2:] == ["AttemptLost", "AttemptStarted"]
    kernel.finish("a")
    kernel.finish("b")
    assert kernel.status == "succeeded"


def test_a_retry_that_was_waited_for_is_still_waited_for_after_a_restart() -> None:
    kernel = kernel_of("a")
    kernel.fail("a", retry_after=seconds(30))
    kernel.crash()
    kernel.wait(29.9)
    assert kernel.started() == ["a#1"]
    kernel.wait(0.1)
    assert kernel.started() == ["a#1", "a#2"]


def test_a_ready_task_is_offered_again_after_a_restart() -> None:
    kernel = kernel_of("a, b", pool=1)
    kernel.crash()
    kernel.finish("a")
    assert kernel.state("b") == "running"


def test_tries_are_remembered_over_a_restart() -> None:
    kernel = kernel_of("a", attempts=2)
    kernel.fail("a", "logic")
    kernel.crash()
    kernel.fail("a", "logic")
    assert kernel.status == "failed"
    assert isinstance(kernel.journal[-2], TaskFailed)


def test_a_result_from_before_the_restart_is_refused() -> None:
    kernel = kernel_of("a")
    kernel.crash()
    late = AttemptFinished(task="a", attempt=1, outcome=Done(), at=START)
    assert [type(event).__name__ for event in kernel.tell(late)] == ["ResultRefused"]


def test_a_run_that_is_taken_back_does_not_take_its_old_attempts_for_new_ones() -> None:
    """The process lost the run and leads it again while its first attempt has not ended yet."""
    kernel = kernel_of("a, b", parallel=1)
    kernel.kernel.close("r")
    kernel.kernel.open("r", kernel.journal)
    kernel.tell(RunLed(node="n1", epoch=3, at=kernel.now))
    kernel.kernel.free_place("r", "a", 1)
    kernel.tell()
    assert kernel.started() == ["a#1", "a#2"]
