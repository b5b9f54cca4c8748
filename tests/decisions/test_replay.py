"""Replaying one run: what is compared, and how a difference is named."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.replay_check import Difference, RunReplay
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanAdopted,
    ResultRefused,
    RetryDue,
    RetryPlanned,
    RunFinished,
    RunLed,
    RunStatus,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Plan
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import RUN, START, requested, seconds, tasks_of

DONE = Done(Value.of("x"))
FLAKY = Failed(kind=ErrorClass.NETWORK, message="it broke")


def started(task: str, attempt: int = 1, after: float = 0) -> AttemptStarted:
    return AttemptStarted(task=task, attempt=attempt, worker="ann", at=START + seconds(after))


def finished(task: str, outcome: Done | Failed = DONE, attempt: int = 1) -> AttemptFinished:
    return AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=START)


def recorded(*reports: Event, retry: RetryPolicy | None = None) -> list[Event]:
    """The events of a run of `a -> b` to which this was reported."""
    live_run, written = LiveRun(RUN), list[Event]()
    plan = Plan(goal="a test", tasks=tasks_of("a -> b"))
    begun = (requested(Limits()), RunLed(node="n", epoch=1, retry=retry, at=START))
    for event in (*begun, PlanAdopted(plan=plan, at=START), *reports):
        live_run.take(event, written)
    return written


WHOLE = (started("a"), finished("a"), started("b"), finished("b"))


def first_difference(events: list[Event]) -> Difference | None:
    replay = RunReplay(RUN)
    found = (replay.take(event) for event in events)
    return next((each for each in found if each is not None), None) or replay.end()


def changed(
    events: list[Event], kind: type[Event], change: Callable[[Event], Event]
) -> list[Event]:
    return [change(event) if type(event) is kind else event for event in events]


def test_an_untouched_run_has_no_difference() -> None:
    events = recorded(*WHOLE)
    assert type(events[-1]) is RunFinished
    assert first_difference(events) is None


def test_a_changed_field_of_a_decision_is_named() -> None:
    events = changed(
        recorded(*WHOLE), RunFinished, lambda event: replace(event, status=RunStatus.PARTIAL)
    )
    found = first_difference(events)
    assert found is not None
    assert (found.seq, found.kind, found.field) == (8, "RunFinished", "status")
    assert (found.recorded, found.recomputed) == ('"partial"', '"succeeded"')


def test_a_field_inside_a_decision_is_named_by_its_path() -> None:
    lost = Failed(kind=ErrorClass.DENIED, message="no")
    events = recorded(started("a"), finished("a", lost))
    other = replace(lost, message="yes")
    events = [
        replace(event, cause=other) if type(event).__name__ == "TaskFailed" else event
        for event in events
    ]
    found = first_difference(events)
    assert found is not None
    assert (found.kind, found.task, found.field) == ("TaskFailed", "a", "cause.message")


def test_a_decision_that_is_missing_is_named() -> None:
    found = first_difference(recorded(*WHOLE)[:-1])
    assert found is not None
    assert (found.seq, found.kind, found.recorded) == (8, "", "nothing")
    assert "RunFinished" in found.recomputed


def test_a_decision_that_nothing_led_to_is_named() -> None:
    events = recorded(*WHOLE)
    found = first_difference([*events[:5], events[-1]])
    assert found is not None
    assert (found.kind, found.recomputed) == ("RunFinished", "no decision")


def test_a_start_that_was_not_offered_is_named() -> None:
    events = recorded(started("a"))
    found = first_difference([*events[:3], started("b")])
    assert found is not None
    assert (found.task, found.recomputed) == ("b", "the task was not offered")


def test_a_start_by_another_worker_than_the_plan_names_is_named() -> None:
    events = recorded(started("a"))
    found = first_difference([*events[:3], replace(started("a"), worker="bob")])
    assert found is not None
    assert (found.field, found.recorded, found.recomputed) == ("worker", "bob", "ann")


def test_a_retry_before_its_time_is_named() -> None:
    events = recorded(started("a"), finished("a", FLAKY))
    planned = events[-1]
    assert type(planned) is RetryPlanned
    early = RetryDue(task="a", attempt=1, at=planned.due_at - seconds(0.001))
    found = first_difference([*events, early])
    assert found is not None
    assert (found.kind, found.field) == ("RetryDue", "at")
    in_time = replace(early, at=planned.due_at)
    assert first_difference([*events, in_time]) is None


def test_a_timer_that_was_never_set_is_named() -> None:
    found = first_difference([*recorded(started("a")), RetryDue(task="a", attempt=1, at=START)])
    assert found is not None
    assert found.recomputed == "no timer was set for it"


def test_a_refused_result_is_refused_again() -> None:
    late = ResultRefused(
        task="a", attempt=1, reported="Done", why="the task is done at attempt 1", at=START
    )
    events = recorded(started("a"), finished("a"))
    assert first_difference([*events, late]) is None
    found = first_difference([*events[:-1], late])
    assert found is not None
    assert found.kind == "ResultRefused"


@pytest.mark.parametrize("first", [1, 30])
def test_the_waits_of_its_leader_are_in_the_recording(first: int) -> None:
    policy = RetryPolicy(first=timedelta(seconds=first), jitter=0)
    events = recorded(started("a"), finished("a", FLAKY), retry=policy)
    planned = events[-1]
    assert type(planned) is RetryPlanned
    assert planned.due_at - planned.at == timedelta(seconds=first)
    assert first_difference(events) is None


def test_a_decision_that_raises_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    events = recorded(*WHOLE)
    monkeypatch.setattr("chargehand.decisions.schedule.missing_of", lambda *_: 1 / 0)
    found = first_difference(events)
    assert found is not None
    assert "ZeroDivisionError" in found.recomputed
