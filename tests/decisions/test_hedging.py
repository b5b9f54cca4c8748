"""Stragglers: a second attempt beside one that takes far too long; exactly one of them counts."""

import random
from datetime import timedelta
from typing import Any

import pytest

from chargehand.decisions.desk import Stop
from chargehand.decisions.dispatch import Place
from chargehand.decisions.hedging import hedge_of, hedged, is_hedge, patience_with
from chargehand.decisions.schedule import Schedule
from chargehand.facts.commands import PreemptAttempt
from chargehand.facts.events import AttemptFinished, Pace, ResultRefused
from chargehand.facts.outcome import Cancelled, Done
from chargehand.facts.plan import Task
from tests.decisions.office import Office, desk_of, seconds

HEDGE = "@hedge:a:1"
KNOWN = {"ann": Pace(5, seconds(10))}
TASK = Task(id="a", description="Look it up", worker="ann")


def straggling(arrows: str = "a -> b", **more: Any) -> Office:
    """A run whose task `a` has taken far longer than is usual."""
    given: dict[str, Any] = {"tasks": {"a": {"hedge": True}}, **more}
    desk = desk_of(arrows, asked={"hedges": True, "paces": KNOWN}, **given)
    desk.wait(20)
    return desk


# when


def test_what_a_run_has_seen_counts_more_than_what_was_known_before() -> None:
    assert patience_with(TASK, "ann", {}, KNOWN) == seconds(20)
    assert patience_with(TASK, "ann", {"ann": (4, seconds(12), seconds(1))}, KNOWN) == seconds(6)


def test_what_the_plan_expects_counts_most_and_a_second_is_the_least() -> None:
    expected = Task(id="a", description="Look it up", worker="ann", expect=seconds(0.1))
    assert patience_with(expected, "ann", {}, KNOWN) == timedelta(seconds=1)


def test_nobody_is_a_straggler_where_nobody_knows_what_is_usual() -> None:
    assert patience_with(TASK, "bob", {}, KNOWN) is None


def test_a_hedge_is_known_by_its_id() -> None:
    hedge = hedge_of(TASK, 3)
    assert is_hedge(hedge.id)
    assert hedged(hedge.id) == "a"


def test_an_attempt_that_takes_twice_as_long_as_usual_gets_a_second_one_beside_it() -> None:
    desk = desk_of("a", tasks={"a": {"hedge": True}}, asked={"hedges": True, "paces": KNOWN})
    desk.wait(19)
    assert desk.started() == ["a#1"]
    desk.wait(1)
    assert desk.started() == ["a#1", f"{HEDGE}#1"]
    desk.wait(1000)
    assert len(desk.started()) == 2


def test_the_last_of_many_is_hedged_once_the_others_have_shown_what_is_usual() -> None:
    desk = desk_of("a, b, c", tasks={"a": {"hedge": True}}, asked={"hedges": True})
    desk.wait(100)
    assert desk.started() == ["a#1", "b#1", "c#1"]
    desk.finish("b")
    desk.finish("c")
    desk.wait(100)
    assert desk.started()[-1] == f"{HEDGE}#1"


def test_a_task_that_does_not_ask_for_it_is_not_hedged() -> None:
    assert straggling(tasks={}).started() == ["a#1"]


def test_another_worker_gets_the_second_attempt_where_there_is_one() -> None:
    both = (Place(worker="ann", skills=("look",)), Place(worker="bob", skills=("look",)))
    changes = {"a": {"hedge": True, "worker": "", "skill": "look", "expect": seconds(10)}}
    desk = straggling("a", tasks=changes, places=both)
    assert desk.schedule.nodes["a"].worker != desk.schedule.nodes[HEDGE].worker


def test_a_hedge_waits_until_nobody_else_wants_a_place() -> None:
    desk = straggling("a, b", pool=1)
    assert desk.state(HEDGE) == "ready"
    desk.finish("a")
    assert desk.started() == ["a#1", "b#1"]
    assert desk.state(HEDGE) == "cancelled"


def test_a_hedge_makes_room_for_whoever_comes() -> None:
    desk = straggling("a -> c, b -> d", pool=3)
    desk.finish("b")
    desk.amend(added=[Task(id=f"e{n}", description="More of it", worker="ann") for n in range(3)])
    assert [act.task for act in desk.acts if isinstance(act, PreemptAttempt)] == [HEDGE]


# who wins


def test_the_result_of_a_faster_hedge_is_the_result_and_the_straggler_is_stopped() -> None:
    desk = straggling()
    desk.finish(HEDGE, "found")
    assert desk.states() == {"a": "done", "b": "running", HEDGE: "done"}
    assert desk.stopped() == ["a#1"]
    assert desk.desk.runs["r"].results.outputs["a"].read() == "found"
    late = desk.finish("a", "found too", attempt=1)
    assert [type(event) for event in late] == [ResultRefused]
    desk.finish("b")
    assert desk.status == "succeeded"


def test_a_straggler_that_is_done_first_stops_its_hedge() -> None:
    desk = straggling()
    desk.finish("a", "found")
    assert desk.states() == {"a": "done", "b": "running", HEDGE: "cancelled"}
    assert desk.stopped() == [f"{HEDGE}#1"]
    late = desk.end(HEDGE, Done(), attempt=1)
    assert [type(event) for event in late] == [ResultRefused]


@pytest.mark.parametrize("how", ["fail", "ask", "lose", "park"])
def test_whatever_else_becomes_of_a_hedge_is_without_consequence(how: str) -> None:
    desk = straggling("a")
    if how == "park":
        desk.park(HEDGE, 10)
    else:
        getattr(desk, how)(HEDGE)
    assert desk.states() == {"a": "running", HEDGE: "cancelled"}
    desk.finish("a")
    assert desk.status == "succeeded"


@pytest.mark.parametrize("how", ["fail", "ask", "lose"])
def test_the_end_of_the_attempt_that_it_was_begun_beside_ends_a_hedge(how: str) -> None:
    desk = straggling()
    getattr(desk, how)("a")
    assert desk.state(HEDGE) == "cancelled"
    assert Stop("r", HEDGE, 1, "the other attempt was faster") in desk.acts


def test_a_hedge_begins_no_step_that_must_not_be_done_twice() -> None:
    desk = straggling()
    assert desk.begin_step(HEDGE, effect="once") == []
    assert desk.begin_step(HEDGE, effect="keyed") == []
    assert len(desk.begin_step(HEDGE, effect="pure")) == 1


def test_a_cancelled_run_stops_both() -> None:
    desk = straggling()
    desk.cancel()
    assert sorted(desk.stopped()) == [f"{HEDGE}#1", "a#1"]
    desk.end("a", Cancelled())
    desk.end(HEDGE, Cancelled(), attempt=1)
    assert desk.status == "cancelled"


def test_the_next_process_begins_with_one_attempt_again() -> None:
    desk = straggling()
    desk.crash()
    assert desk.states() == {"a": "running", "b": "waiting", HEDGE: "cancelled"}
    assert desk.started()[-1] == "a#2"
    desk.finish("a")
    desk.finish("b")
    assert desk.status == "succeeded"


@pytest.mark.parametrize("seed", range(40))
def test_exactly_one_of_two_attempts_counts_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    changes = {task: {"hedge": True} for task in "abc"}
    asked = {"hedges": True, "paces": KNOWN}
    desk = desk_of("a -> b, c -> d", tasks=changes, asked=asked, pool=dice.randint(1, 5), losses=99)
    for _ in range(300):
        if not desk.desk.runs:
            break
        _happen(desk, dice)
    assert desk.status in ("succeeded", "partial", "failed")
    ends = [event for event in desk.journal if isinstance(event, AttemptFinished)]
    done = [event.task for event in ends if isinstance(event.outcome, Done)]
    assert len(done) == len(set(done))
    reader = Schedule()
    for event in desk.journal:
        reader.apply(event)
    assert reader.status is not None


def _happen(desk: Office, dice: random.Random) -> None:
    opened = [node.task.id for node in desk.schedule.nodes.values() if node.is_open]
    draw = dice.random()
    if draw < 0.05:
        desk.crash()
    elif draw < 0.5 or not opened:
        desk.wait(dice.choice([1, 20, 100]))
    elif draw < 0.6:
        desk.lose(dice.choice(opened))
    elif draw < 0.7:
        desk.fail(dice.choice(opened), "logic")
    else:
        desk.finish(dice.choice(opened))


@pytest.mark.parametrize("places", [2, 3])
def test_a_hedge_ends_with_a_straggler_that_is_parked_when_its_time_is_over(places: int) -> None:
    late = {"a": {"hedge": True, "deadline": seconds(25)}}
    desk = straggling("a, c", pool=places, tasks=late)
    assert desk.state(HEDGE) == ("ready" if places == 2 else "running")
    desk.wait(5)
    desk.park("a", 9)
    assert (desk.state("a"), desk.state(HEDGE)) == ("failed", "cancelled")
    desk.wait(1)
    assert desk.started().count(f"{HEDGE}#1") == places - 2
