"""Rows G of the faults that need no event loop: deadlines in every state, races, inherited priority."""

from collections.abc import Callable

import pytest

from chargehand.decisions.desk import Desk, Message
from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.facts.commands import StartAttempt
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    CancelRequested,
    PlanAdopted,
    RunFinished,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Plan
from tests.decisions.office import START, Office, desk_of, requested, seconds, tasks_of


def test_g3_what_an_urgent_task_waits_for_is_as_urgent() -> None:
    desk = Desk(Dispatch(1))
    desk.dispatch.join(Place(worker="ann"))
    started: list[str] = []

    def tell(*messages: Message) -> None:
        round_ = desk.decide(messages, START)
        started.extend(f"{a.run}.{a.task}" for a in round_.acts if isinstance(a, StartAttempt))

    for run, arrows, priority in (("busy", "z", 9), ("mid", "m", 1), ("mixed", "low -> high", 0)):
        changes = {"high": {"priority": 5}} if run == "mixed" else {}
        plan = Plan(goal=run, tasks=tasks_of(arrows, **changes))
        desk.open(run)
        tell(
            Message(run, requested(run=run, priority=priority)),
            Message(run, PlanAdopted(plan=plan, at=START)),
        )
    desk.free_place("busy", "z", 1)
    tell(Message("busy", AttemptFinished(task="z", attempt=1, outcome=Done(), at=START)))
    assert started == ["busy.z", "mixed.low"]


def waiting(desk: Office) -> None:
    """`b` waits for `a`."""


def retrying(desk: Office) -> None:
    desk.fail("a", "network", retry_after=seconds(5))


def asking(desk: Office) -> None:
    desk.ask("a")


STATES: list[tuple[str, Callable[[Office], None]]] = [
    ("running", waiting),
    ("retrying", retrying),
    ("asking", asking),
]


@pytest.mark.parametrize(("state", "bring_about"), STATES, ids=[state for state, _ in STATES])
def test_g8_a_deadline_ends_a_run_whatever_state_it_finds_it_in(
    state: str, bring_about: Callable[[Office], None]
) -> None:
    desk = desk_of("a -> b, c", deadline=seconds(10))
    bring_about(desk)
    assert desk.state("a") == state
    desk.finish("c")
    desk.wait(11)
    last = desk.journal[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.reason) == ("partial", "out of time")
    assert set(last.missing) == {"a", "b"}


def test_g8_a_deadline_ends_what_waits_for_a_place() -> None:
    desk = desk_of("a, b", pool=1, deadline=seconds(10))
    assert desk.state("b") == "ready"
    desk.wait(11)
    assert desk.status == "failed"
    assert desk.started() == ["a#1"]


@pytest.mark.parametrize("approach", [Approach.WHOLE, Approach.STREAM, Approach.STEPS])
def test_g8_a_deadline_ends_planning(approach: Approach) -> None:
    desk = desk_of("", asked={"approach": approach}, deadline=seconds(10))
    desk.wait(11)
    assert desk.status == "failed"


def test_g8_a_deadline_beats_a_retry() -> None:
    desk = desk_of("a", deadline=seconds(10))
    desk.wait(9.9)
    desk.fail("a", "network")
    assert desk.status == "failed"
    assert desk.started() == ["a#1"]


@pytest.mark.parametrize("first", ["cancel", "end"])
@pytest.mark.parametrize("kind", ["done", "network", "logic"])
def test_g5_a_cancel_that_races_the_end_of_an_attempt_leaves_one_end(first: str, kind: str) -> None:
    """Completion, a retry in the making, or planning again: whichever it is, the run ends once."""
    desk = desk_of("", asked={"approach": Approach.WHOLE}, attempts=1 if kind == "logic" else 3)
    desk.adopt("a")
    desk.finish("@plan")
    outcome = Done() if kind == "done" else Failed(kind=ErrorClass(kind), message="it broke")
    end = AttemptFinished(task="a", attempt=1, outcome=outcome, at=desk.now)
    cancel = CancelRequested(at=desk.now)
    desk.desk.free_place("r", "a", 1)
    desk.tell(*((cancel, end) if first == "cancel" else (end, cancel)))
    desk.wait(60)
    ends = [event for event in desk.journal if isinstance(event, RunFinished)]
    assert len(ends) == 1
    won = kind == "done" and first == "end"
    assert ends[0].status == ("succeeded" if won else "cancelled")
    assert desk.tell(end) == [], "whatever comes late changes nothing"
