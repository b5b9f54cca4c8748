"""What a run has brought forth: outputs, steps, answers."""

import pytest

from chargehand.decisions.run_outputs_and_steps import RunResults
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    RetryHow,
    RetryPlanned,
    TaskFailed,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed, Usage
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import START, step_finished, step_started

BROKEN = Failed(kind=ErrorClass.NETWORK, message="it broke")
DONE = Done(Value.of("sent"))


def results_of(
    effect: str, outcome: Done | Failed | None, how: RetryHow | None = None
) -> RunResults:
    """A task whose first attempt began one step, and perhaps ended it, and perhaps is retried."""
    results = RunResults()
    results.apply(step_started("a", 1, "send", effect))
    if outcome is not None:
        results.apply(step_finished("a", 1, "send", outcome))
    if how is not None:
        results.apply(RetryPlanned(task="a", attempt=1, due_at=START, how=how, at=START))
    return results


def found(results: RunResults) -> str:
    """What the next attempt learns of the step."""
    log = results.steps.get("a")
    record = None if log is None else log.find("send", 1, "a/send")
    if record is None:
        return "nothing"
    return "in doubt" if record.outcome is None else type(record.outcome).__name__


def test_a_step_that_began_and_did_not_end_is_in_doubt() -> None:
    assert found(results_of("once", None)) == "in doubt"


def test_a_finished_step_is_found_by_the_next_attempt() -> None:
    assert found(results_of("pure", DONE, RetryHow.AGAIN)) == "Done"


@pytest.mark.parametrize("effect", ["idempotent", "keyed", "once"])
def test_a_fresh_line_of_attempts_still_knows_what_was_done_to_the_world(effect: str) -> None:
    assert found(results_of(effect, DONE, RetryHow.AFRESH)) == "Done"


def test_a_fresh_line_of_attempts_looks_again_at_what_was_only_looked_at() -> None:
    assert found(results_of("pure", DONE, RetryHow.AFRESH)) == "nothing"


@pytest.mark.parametrize("how", [RetryHow.AGAIN, RetryHow.AFRESH, RetryHow.ELSEWHERE])
def test_a_once_step_in_doubt_stays_in_doubt_whatever_is_tried_next(how: RetryHow) -> None:
    assert found(results_of("once", None, how)) == "in doubt"


@pytest.mark.parametrize("effect", ["pure", "idempotent", "keyed"])
def test_a_failed_step_is_done_again_by_the_next_try(effect: str) -> None:
    assert found(results_of(effect, BROKEN, RetryHow.AGAIN)) == "nothing"


def test_a_failed_once_step_is_not_done_again_unasked() -> None:
    assert found(results_of("once", BROKEN, RetryHow.AGAIN)) == "Failed"


def begun(results: RunResults, attempt: int, worker: str) -> None:
    results.apply(AttemptStarted(task="a", attempt=attempt, worker=worker, at=START))


@pytest.mark.parametrize("ending", ["lost", "network", "logic"])
@pytest.mark.parametrize("how", [RetryHow.AGAIN, RetryHow.ELSEWHERE])
@pytest.mark.parametrize("effect", ["pure", "idempotent", "keyed", "once"])
@pytest.mark.parametrize("second", ["ada", "bob"])
def test_j11_only_an_interrupted_attempt_of_the_same_worker_goes_on_in_its_lineage(
    ending: str, how: RetryHow, effect: str, second: str
) -> None:
    results = RunResults()
    begun(results, 1, "ada")
    results.apply(step_started("a", 1, "send", effect))
    results.apply(step_finished("a", 1, "send", DONE))
    if ending == "lost":
        results.apply(AttemptLost(task="a", attempt=1, reason="it died", at=START))
    else:
        failed = Failed(kind=ErrorClass(ending), message="it broke")
        results.apply(AttemptFinished(task="a", attempt=1, outcome=failed, at=START))
        results.apply(RetryPlanned(task="a", attempt=1, due_at=START, how=how, at=START))
    begun(results, 2, second)
    is_same_line = second == "ada" and ending != "logic"
    assert bool(results.steps["a"].lineage) is is_same_line
    # What was done to the outside world is known by its key to whoever comes next.
    assert found(results) == ("Done" if is_same_line or effect != "pure" else "nothing")


def test_the_beginning_of_a_step_told_twice_does_not_undo_its_end() -> None:
    results = results_of("keyed", DONE)
    results.apply(step_started("a", 1, "send", "keyed"))
    assert found(results) == "Done"


def test_each_doubt_about_a_step_has_its_own_number() -> None:
    results = results_of("once", None)
    results.apply(step_started("a", 2, "send", "once"))
    record = results.steps["a"].find("send", 1, "a/send")
    assert record is not None
    assert record.begun == 2


def test_outputs_and_usage_are_kept_and_steps_are_dropped_when_a_task_is_done() -> None:
    results = results_of("pure", DONE)
    done = Done(Value.of({"n": 1}), Usage(calls=2))
    results.apply(AttemptFinished(task="a", attempt=1, outcome=done, at=START))
    assert results.outputs["a"].read() == {"n": 1}
    assert results.usage.calls == 2
    assert found(results) == "nothing"


def test_steps_of_a_task_that_is_given_up_are_dropped() -> None:
    results = results_of("once", None)
    results.apply(TaskFailed(task="a", cause=BROKEN, at=START))
    assert results.steps == {}
