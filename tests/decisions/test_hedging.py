"""Stragglers: a second attempt beside one that takes far too long; exactly one of them counts."""

import random
from datetime import timedelta
from typing import Any

import pytest

from chargehand.decisions.dispatch import Place
from chargehand.decisions.duration_estimates import WorkTimes
from chargehand.decisions.hedging import hedge_of, patience_with
from chargehand.decisions.kernel import StopAct
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.system_tasks import hedged, is_hedge
from chargehand.facts.events import AttemptFinished, Pace, ResultRefused
from chargehand.facts.outcome import Cancelled, Done
from chargehand.facts.plan import Task
from chargehand.facts.scheduler_commands import PreemptAttempt
from tests.decisions.virtual_kernel import START, VirtualKernel, kernel_of, seconds

HEDGE = "@hedge:a:1"
SEEN = WorkTimes({"ann": (4, seconds(12), seconds(1))})
KNOWN = {"ann": Pace(5, seconds(10))}
TASK = Task(id="a", description="Look it up", worker="ann")


def straggling(arrows: str = "a -> b", **more: Any) -> VirtualKernel:
    """A run whose task `a` has taken far longer than is usual."""
    given: dict[str, Any] = {"tasks": {"a": {"hedge": True}}, **more}
    kernel = kernel_of(arrows, asked={"hedges": True, "paces": KNOWN}, **given)
    kernel.wait(20)
    return kernel


# when


def test_what_a_run_has_seen_counts_more_than_what_was_known_before() -> None:
    assert patience_with(TASK, "ann", WorkTimes(), KNOWN) == seconds(20)
    assert patience_with(TASK, "ann", SEEN, KNOWN) == seconds(6)


def test_what_the_plan_expects_counts_most_and_a_second_is_the_least() -> None:
    expected = Task(id="a", description="Look it up", worker="ann", expect=seconds(0.1))
    assert patience_with(expected, "ann", WorkTimes(), KNOWN) == timedelta(seconds=1)


def test_nobody_is_a_straggler_where_nobody_knows_what_is_usual() -> None:
    assert patience_with(TASK, "bob", WorkTimes(), KNOWN) is None


def test_a_hedge_is_known_by_its_id() -> None:
    hedge = hedge_of(TASK, 3)
    assert is_hedge(hedge.id)
    assert hedged(hedge.id) == "a"


def test_an_attempt_that_takes_twice_as_long_as_usual_gets_a_second_one_beside_it() -> None:
    kernel = kernel_of("a", tasks={"a": {"hedge": True}}, asked={"hedges": True, "paces": KNOWN})
    kernel.wait(19)
    assert kernel.started() == ["a#1"]
    kernel.wait(1)
    assert kernel.started() == ["a#1", f"{HEDGE}#1"]
    kernel.wait(1000)
    assert len(kernel.started()) == 2


def test_the_last_of_many_is_hedged_once_the_others_have_shown_what_is_usual() -> None:
    kernel = kernel_of("a, b, c", tasks={"a": {"hedge": True}}, asked={"hedges": True})
    kernel.wait(100)
    assert kernel.started() == ["a#1", "b#1", "c#1"]
    kernel.finish("b")
    kernel.finish("c")
    kernel.wait(100)
    assert kernel.started()[-1] == f"{HEDGE}#1"


def test_a_task_that_does_not_ask_for_it_is_not_hedged() -> None:
    assert straggling(tasks={}).started() == ["a#1"]


def test_another_worker_gets_the_second_attempt_where_there_is_one() -> None:
    both = (Place(worker="ann", skills=("look",)), Place(worker="bob", skills=("look",)))
    changes = {"a": {"hedge": True, "worker": "", "skill": "look", "expect": seconds(10)}}
    kernel = straggling("a", tasks=changes, places=both)
    assert kernel.schedule.nodes["a"].worker != kernel.schedule.nodes[HEDGE].worker


def test_a_hedge_waits_until_nobody_else_wants_a_place() -> None:
    kernel = straggling("a, b", pool=1)
    assert kernel.state(HEDGE) == "ready"
    kernel.finish("a")
    assert kernel.started() == ["a#1", "b#1"]
    assert kernel.state(HEDGE) == "cancelled"


def test_a_hedge_makes_room_for_whoever_comes() -> None:
    kernel = straggling("a -> c, b -> d", pool=3)
    kernel.finish("b")
    kernel.amend(added=[Task(id=f"e{n}", description="More of it", worker="ann") for n in range(3)])
    assert [act.task for act in kernel.acts if isinstance(act, PreemptAttempt)] == [HEDGE]


# who wins


def test_the_result_of_a_faster_hedge_is_the_result_and_the_straggler_is_stopped() -> None:
    kernel = straggling()
    kernel.finish(HEDGE, "found")
    assert kernel.states() == {"a": "done", "b": "running", HEDGE: "done"}
    assert kernel.stopped() == ["a#1"]
    assert kernel.kernel.runs["r"].results.outputs["a"].read() == "found"
    late = kernel.finish("a", "found too", attempt=1)
    assert [type(event) for event in late] == [ResultRefused]
    kernel.finish("b")
    assert kernel.status == "succeeded"


def test_a_straggler_that_is_done_first_stops_its_hedge() -> None:
    kernel = straggling()
    kernel.finish("a", "found")
    assert kernel.states() == {"a": "done", "b": "running", HEDGE: "cancelled"}
    assert kernel.stopped() == [f"{HEDGE}#1"]
    late = kernel.end(HEDGE, Done(), attempt=1)
    assert [type(event) for event in late] == [ResultRefused]


@pytest.mark.parametrize("how", ["fail", "ask", "lose", "park"])
def test_whatever_else_becomes_of_a_hedge_is_without_consequence(how: str) -> None:
    kernel = straggling("a")
    if how == "park":
        kernel.park(HEDGE, 10)
    else:
        getattr(kernel, how)(HEDGE)
    assert kernel.states() == {"a": "running", HEDGE: "cancelled"}
    kernel.finish("a")
    assert kernel.status == "succeeded"


@pytest.mark.parametrize("how", ["fail", "ask", "lose"])
def test_the_end_of_the_attempt_that_it_was_begun_beside_ends_a_hedge(how: str) -> None:
    kernel = straggling()
    getattr(kernel, how)("a")
    assert kernel.state(HEDGE) == "cancelled"
    assert StopAct("r", HEDGE, 1, "the other attempt was faster") in kernel.acts


def test_a_hedge_begins_no_step_that_must_not_be_done_twice() -> None:
    kernel = straggling()
    assert kernel.begin_step(HEDGE, effect="once") == []
    assert kernel.begin_step(HEDGE, effect="keyed") == []
    assert len(kernel.begin_step(HEDGE, effect="pure")) == 1


def test_a_cancelled_run_stops_both() -> None:
    kernel = straggling()
    kernel.cancel()
    assert sorted(kernel.stopped()) == [f"{HEDGE}#1", "a#1"]
    kernel.end("a", Cancelled())
    kernel.end(HEDGE, Cancelled(), attempt=1)
    assert kernel.status == "cancelled"


def test_the_next_process_begins_with_one_attempt_again() -> None:
    kernel = straggling()
    kernel.crash()
    assert kernel.states() == {"a": "running", "b": "waiting", HEDGE: "cancelled"}
    assert kernel.started()[-1] == "a#2"
    kernel.finish("a")
    kernel.finish("b")
    assert kernel.status == "succeeded"


@pytest.mark.parametrize("seed", range(40))
def test_exactly_one_of_two_attempts_counts_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    changes = {task: {"hedge": True} for task in "abc"}
    asked = {"hedges": True, "paces": KNOWN}
    kernel = kernel_of(
        "a -> b, c -> d", tasks=changes, asked=asked, pool=dice.randint(1, 5), losses=99
    )
    for _ in range(300):
        if not kernel.kernel.runs:
            break
        _happen(kernel, dice)
    assert kernel.status in ("succeeded", "partial", "failed")
    ends = [event for event in kernel.journal if isinstance(event, AttemptFinished)]
    done = [event.task for event in ends if isinstance(event.outcome, Done)]
    assert len(done) == len(set(done))
    reader = Schedule()
    for event in kernel.journal:
        reader.apply(event)
    assert reader.status is not None


def _happen(kernel: VirtualKernel, dice: random.Random) -> None:
    opened = [node.task.id for node in kernel.schedule.nodes.values() if node.is_open]
    draw = dice.random()
    if draw < 0.05:
        kernel.crash()
    elif draw < 0.5 or not opened:
        kernel.wait(dice.choice([1, 20, 100]))
    elif draw < 0.6:
        kernel.lose(dice.choice(opened))
    elif draw < 0.7:
        kernel.fail(dice.choice(opened), "logic")
    else:
        kernel.finish(dice.choice(opened))


def test_a_hedge_that_could_not_be_done_before_the_deadline_is_not_begun() -> None:
    asked = {"hedges": True, "paces": KNOWN, "deadline_at": START + seconds(25)}
    expected = {"a": {"hedge": True, "expect": seconds(10)}}
    kernel = kernel_of("a", tasks=expected, asked=asked)
    kernel.wait(20)
    assert kernel.state(HEDGE) == "cancelled"
    assert kernel.started() == ["a#1"]
    kernel.finish("a")
    assert kernel.state("a") == "done"


@pytest.mark.parametrize("places", [2, 3])
def test_a_hedge_ends_with_a_straggler_that_is_parked_when_its_time_is_over(places: int) -> None:
    late = {"a": {"hedge": True, "deadline": seconds(25)}}
    kernel = straggling("a, c", pool=places, tasks=late)
    assert kernel.state(HEDGE) == ("ready" if places == 2 else "running")
    kernel.wait(5)
    kernel.park("a", 9)
    assert (kernel.state("a"), kernel.state(HEDGE)) == ("failed", "cancelled")
    kernel.wait(1)
    assert kernel.started().count(f"{HEDGE}#1") == places - 2
