"""What is done about a failure."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chargehand.decisions.retry import (
    Again,
    GiveUp,
    History,
    draw_for,
    judge,
)
from chargehand.facts.events import RetryHow
from chargehand.facts.failure_policy import OnFailure, Recourse
from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.facts.retry_policy import RetryPolicy
from tests.decisions.virtual_kernel import START, seconds

DRAWS = st.floats(0, 1, exclude_max=True)
WAITING_HELPS = [ErrorClass.NETWORK, ErrorClass.TIMEOUT, ErrorClass.RESOURCE]


def history(tries: int = 1, attempts: int = 3, deadline: float | None = None) -> History:
    return History(
        tries=tries,
        attempts=attempts,
        at=START,
        deadline_at=None if deadline is None else START + seconds(deadline),
        has_others=False,
    )


def failure(kind: ErrorClass, retry_after: float | None = None) -> Failed:
    wait = None if retry_after is None else seconds(retry_after)
    return Failed(kind=kind, message="it broke", retry_after=wait)


@given(tries=st.integers(1, 10_000), draw=DRAWS)
def test_a_wait_doubles_up_to_its_cap_and_is_at_most_halved_by_lot(tries: int, draw: float) -> None:
    wait = RetryPolicy().backoff(tries, draw)
    full = min(2.0 ** min(tries - 1, 50), 60.0)
    assert seconds(full / 2) <= wait <= seconds(full)


@given(
    first=st.integers(1, 100),
    cap=st.integers(1, 1000),
    jitter=st.floats(0, 1),
    tries=st.integers(1, 100),
    draw=DRAWS,
)
def test_no_policy_waits_longer_than_its_cap_or_a_negative_time(
    first: int, cap: int, jitter: float, tries: int, draw: float
) -> None:
    policy = RetryPolicy(first=seconds(first), cap=seconds(cap), jitter=jitter)
    assert timedelta(0) <= policy.backoff(tries, draw) <= seconds(cap)


def test_a_cap_below_the_first_wait_is_the_wait() -> None:
    """It is not refused: journals hold such policies, and a shorter cap alone is a wish that can be met."""
    policy = RetryPolicy(first=seconds(10), cap=seconds(1), jitter=0)
    assert [policy.backoff(tries, 0.0) for tries in (1, 2, 9)] == [seconds(1)] * 3


@pytest.mark.parametrize("kind", WAITING_HELPS)
def test_what_waiting_helps_is_waited_for(kind: ErrorClass) -> None:
    verdict = judge(RetryPolicy(), failure(kind), history(), 0.0)
    assert isinstance(verdict, Again)
    assert verdict.due_at == START + seconds(1)


def test_a_logic_error_is_tried_afresh_at_once() -> None:
    verdict = judge(RetryPolicy(), failure(ErrorClass.LOGIC), history(), 0.5)
    assert verdict == Again(START, RetryHow.AFRESH)


@given(kind=st.sampled_from(WAITING_HELPS), asked=st.floats(0, 1000), draw=DRAWS)
def test_no_retry_comes_sooner_than_was_asked_for(
    kind: ErrorClass, asked: float, draw: float
) -> None:
    verdict = judge(RetryPolicy(), failure(kind, asked), history(), draw)
    assert isinstance(verdict, Again)
    assert verdict.due_at >= START + seconds(asked)


@pytest.mark.parametrize("kind", [ErrorClass.DENIED, ErrorClass.CANCELLED])
def test_what_is_final_is_given_up_at_once(kind: ErrorClass) -> None:
    assert judge(RetryPolicy(), failure(kind), history(), 0.0) == GiveUp(failure(kind))


def test_the_last_try_says_how_many_there_were() -> None:
    verdict = judge(RetryPolicy(), failure(ErrorClass.NETWORK), history(tries=3), 0.0)
    assert isinstance(verdict, GiveUp)
    assert verdict.cause.message == "it broke (tried 3 times)"


@given(deadline=st.floats(0, 100), asked=st.floats(0, 100), draw=DRAWS)
def test_no_retry_is_due_at_or_after_the_deadline(
    deadline: float, asked: float, draw: float
) -> None:
    verdict = judge(
        RetryPolicy(), failure(ErrorClass.NETWORK, asked), history(deadline=deadline), draw
    )
    if isinstance(verdict, Again):
        assert verdict.due_at < START + seconds(deadline)
    else:
        assert max(asked, 1.0) >= deadline - 0.001


def test_the_lot_of_an_attempt_is_always_the_same_and_differs_from_its_neighbours() -> None:
    lots = [draw_for(7, task, attempt) for task in ("a", "b") for attempt in (1, 2)]
    assert lots == [draw_for(7, task, attempt) for task in ("a", "b") for attempt in (1, 2)]
    assert len(set(lots)) == 4


def test_what_is_final_for_one_worker_may_be_done_by_another_that_has_not_tried_it() -> None:
    """A provider that refuses for good says nothing of the provider of another worker."""
    final = Failed(kind=ErrorClass.LOGIC, message="no such model", is_final=True)
    untried = replace(history(), has_others=True, has_untried=True)
    assert isinstance(judge(RetryPolicy(), final, untried, 0.5), Again)
    tried = replace(history(tries=2), has_others=True)
    assert isinstance(judge(RetryPolicy(), final, tried, 0.5), GiveUp)
    assert isinstance(judge(RetryPolicy(), final, history(), 0.5), GiveUp)


@pytest.mark.parametrize("steps", [["elsewhere:bob"], ["again", "again", "elsewhere:bob", "fail"]])
def test_a_final_failure_goes_to_the_worker_that_the_policy_names_next(steps: list[str]) -> None:
    final = Failed(kind=ErrorClass.RESOURCE, message="the quota is used up", is_final=True)
    step = OnFailure(steps).step(final, (), by="ann")
    assert (step.recourse, step.worker) == (Recourse.ELSEWHERE, "bob")
    assert OnFailure(["again", "fail"]).step(final, (), by="ann").recourse is Recourse.FAIL
    again = OnFailure(steps).step(final, (ErrorClass.RESOURCE,), by="bob")
    assert again.recourse is Recourse.FAIL, "the one that was named has failed for good too"


def test_elsewhere_leads_nowhere_for_a_final_failure_if_nobody_else_can_do_it() -> None:
    final = Failed(kind=ErrorClass.LOGIC, message="no", is_final=True)
    policy = OnFailure(["elsewhere", "without"])
    assert policy.step(final, (), by="ann").recourse is Recourse.WITHOUT
    assert policy.step(final, (), by="ann", to_others=True).recourse is Recourse.ELSEWHERE
