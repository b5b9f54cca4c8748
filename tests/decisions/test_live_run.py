"""One live run: what a report leads to, and what is read of the past."""

import pytest

from chargehand.decisions.live_run import LiveRun, Timers
from chargehand.decisions.run_outputs_and_steps import RunResults
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanAdopted,
    RetryDue,
    RetryPlanned,
    RunFinished,
    RunLed,
    StepStarted,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome, Usage
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import Command, OfferAttempt
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import (
    RUN,
    START,
    requested,
    seconds,
    step_finished,
    step_started,
    tasks_of,
)

DONE = Done(Value.of("x" * 50))
FLAKY = Failed(kind=ErrorClass.NETWORK, message="it broke")


def run_of(arrows: str, **limits: object) -> tuple[LiveRun, list[Event]]:
    """A run with this plan, and what was written so far."""
    live_run, written = LiveRun(RUN), list[Event]()
    plan = Plan(goal="a test", tasks=tasks_of(arrows))
    for event in (
        requested(Limits(**limits)),  # type: ignore[arg-type] # any limit, by name
        RunLed(node="n", epoch=1, at=START),
        PlanAdopted(plan=plan, at=START),
    ):
        live_run.take(event, written)
    return live_run, written


def started(task: str, attempt: int = 1) -> AttemptStarted:
    return AttemptStarted(task=task, attempt=attempt, worker="ann", at=START)


def finished(task: str, outcome: Outcome = DONE) -> AttemptFinished:
    return AttemptFinished(task=task, attempt=1, outcome=outcome, at=START)


def offered(commands: list[Command]) -> list[str]:
    return [f"{each.task}#{each.attempt}" for each in commands if isinstance(each, OfferAttempt)]


def take(live_run: LiveRun, *events: Event) -> tuple[list[type[Event]], list[Command]]:
    """What was written when these were reported, and the commands of the last one."""
    written, commands = list[Event](), list[Command]()
    for event in events:
        commands = live_run.take(event, written)
    return [type(event) for event in written], commands


def test_a_report_is_followed_to_the_end() -> None:
    live_run, _ = run_of("a")
    kinds, left = take(live_run, started("a"), finished("a"))
    assert kinds == [AttemptStarted, AttemptFinished, RunFinished]
    assert left == []
    assert list(live_run.results.outputs) == ["a"]


def test_what_others_must_do_is_left_to_the_caller() -> None:
    live_run, _ = run_of("a -> b")
    _, left = take(live_run, started("a"), finished("a"))
    assert offered(left) == ["b#1"]
    assert len(left) == 1


def test_timers_are_kept_and_come_when_they_are_due() -> None:
    live_run, _ = run_of("a")
    kinds, left = take(live_run, started("a"), finished("a", FLAKY))
    assert kinds == [AttemptStarted, AttemptFinished, RetryPlanned]
    assert left == []
    due_at = live_run.timers.next_due()
    assert due_at is not None
    assert live_run.timers.pop(START) is None
    due = live_run.timers.pop(due_at)
    assert due is not None
    assert due == (RUN, RetryDue(task="a", attempt=1, at=due_at))
    assert offered(take(live_run, due[1])[1]) == ["a#2"]


def test_a_report_that_says_nothing_new_changes_nothing() -> None:
    live_run, _ = run_of("a")
    assert take(live_run, started("a"), started("a")) == ([AttemptStarted], [])


def test_a_step_must_have_begun_to_end() -> None:
    """The attempt did not wait to hear that its beginning was refused."""
    live_run, _ = run_of("a")
    ended = step_finished("a", 1, "send", DONE)
    assert take(live_run, started("a"), ended)[0] == [AttemptStarted]
    begun = step_started("a", 1, "send", "pure")
    assert len(take(live_run, begun, ended)[0]) == 2


@pytest.mark.parametrize(("calls", "is_begun"), [(1, False), (2, True)])
def test_a_step_that_cannot_be_paid_does_not_begin(calls: int, is_begun: bool) -> None:
    live_run, _ = run_of("a", calls=calls)
    begun = StepStarted(
        **{name: getattr(step_started("a", 1, "ask", "pure"), name) for name in _FIELDS},
        reserve=Usage(calls=2),
    )
    assert (len(take(live_run, started("a"), begun)[0]) == 2) is is_begun


_FIELDS = ("task", "attempt", "name", "ordinal", "effect", "key", "digest", "at")


def test_if_a_decision_raises_what_was_applied_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    live_run, written = run_of("a")
    live_run.take(started("a"), written)

    def broken(_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(live_run.schedule, "is_moot", broken)
    with pytest.raises(ZeroDivisionError):
        live_run.take(finished("a"), written)
    assert isinstance(written[-1], AttemptFinished)
    assert live_run.schedule.nodes["a"].state.is_settled


def test_stored_decisions_are_not_made_again() -> None:
    live_run, _ = run_of("a")
    live_run.take(started("a"), [])
    assert live_run.read(finished("a")) == []
    assert live_run.schedule.status is None  # its end is an event that comes next
    assert live_run.read(RunFinished(status="succeeded", at=START)) == []  # type: ignore[arg-type] # as stored
    assert live_run.schedule.status == "succeeded"


def test_what_another_process_stored_is_offered_and_timed_here_too() -> None:
    live_run, _ = run_of("a, b -> c")
    live_run.take(started("a"), [])
    live_run.take(started("b"), [])
    assert offered(live_run.read(finished("b"))) == ["c#1"]
    before = live_run.timers.next_due()
    live_run.read(finished("a", FLAKY))
    planned = RetryPlanned(task="a", attempt=1, due_at=START + seconds(5), at=START)
    live_run.read(planned)
    assert live_run.timers.next_due() == START + seconds(5) != before


def test_replay_comes_to_the_same_state_and_sets_no_timer() -> None:
    live_run, written = run_of("a -> b", calls=9)
    for event in (started("a"), finished("a"), started("b"), finished("b", FLAKY)):
        live_run.take(event, written)
    again = LiveRun(RUN)
    again.replay(written)
    assert again.timers.next_due() is None
    assert again.schedule.outstanding() == live_run.schedule.outstanding()
    assert again.results.outputs == live_run.results.outputs
    assert again.account is not None


def test_a_watched_run_keeps_short_outputs_and_no_steps() -> None:
    _, written = run_of("a, b")
    short = finished("b", Done(Value.of("x")))
    watched = LiveRun(RUN, results=RunResults(longest=20))
    begun, ended = step_started("a", 1, "send", "pure"), step_finished("a", 1, "send", DONE)
    watched.replay([*written, started("a"), begun, ended])
    assert watched.results.steps == {}
    watched.replay([finished("a"), started("b"), short])
    assert list(watched.results.outputs) == ["b"]


def test_timers_of_several_runs_come_in_order() -> None:
    timers = Timers()
    for count, run in ((2, "late"), (1, "gone"), (1, "first"), (1, "second")):
        at = START + seconds(count)
        timers.set(at, run, RetryDue(task=run, attempt=1, at=at))
    assert timers.next_due({"late"}.union(("first", "second"))) == START + seconds(1)
    popped = []
    while (due := timers.pop(START + seconds(3))) is not None:
        popped.append(due)
    assert [run for run, _ in popped] == ["first", "second", "late"]
    assert {event.at for _, event in popped} == {START + seconds(3)}
