"""Workers that keep failing are left alone for a while, and what waits for them is parked, not failed."""

from typing import Any

import pytest

from chargehand.decisions.breaker import Breaker, BreakerPolicy, BreakerState
from chargehand.decisions.budget import Account
from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    RetryDue,
    StepStarted,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import ErrorClass, Failed, Usage
from chargehand.facts.plan import Task
from tests.decisions.office import START, Office, desk_of, seconds, step_started
from tests.decisions.test_dispatch import NOW, offer

POLICY = BreakerPolicy()
PAIR = (Place(worker="ann", skills=("write",)), Place(worker="bob", skills=("write",)))


def down(office: Office, times: int = 5, kind: str = "network") -> None:
    """Have so many of the running attempts fail at one moment."""
    events = []
    for task in running(office)[:times]:
        number = office.schedule.nodes[task].attempt
        office.desk.free_place("r", task, number)
        failed = Failed(kind=ErrorClass(kind), message="it broke")
        events.append(AttemptFinished(task=task, attempt=number, outcome=failed, at=office.now))
    office.tell(*events)


def many(count: int, **more: Any) -> Office:
    more = {"attempts": 1, **more}
    return desk_of(", ".join(f"t{n}" for n in range(count)), **more)


def running(office: Office) -> list[str]:
    return [task for task, state in office.states().items() if state == "running"]


# the breaker of a worker


@pytest.mark.parametrize("kind", ["network", "timeout", "resource"])
def test_a_worker_that_fails_five_times_in_a_row_gets_nothing_until_its_rest_is_over(
    kind: str,
) -> None:
    office = many(8, pool=5)
    down(office, kind=kind)
    assert running(office) == []
    assert office.state("t5") == "ready"
    office.wait(POLICY.rest - 1)
    assert running(office) == []
    office.wait(1.1)
    assert running(office) == ["t5"], "one probe, and the loop was woken for it"


def test_a_probe_that_is_done_lets_all_others_go() -> None:
    office = many(9, pool=5)
    down(office)
    office.wait(POLICY.rest + 1)
    office.finish("t5")
    assert running(office) == ["t6", "t7", "t8"]


def test_a_probe_that_fails_doubles_the_rest() -> None:
    office = many(9, pool=5)
    down(office)
    office.wait(POLICY.rest + 1)
    office.fail("t5")
    office.wait(2 * POLICY.rest - 1)
    assert running(office) == []
    office.wait(1.1)
    assert running(office) == ["t6"]


@pytest.mark.parametrize("kind", ["logic", "denied", "cancelled"])
def test_a_probe_that_says_nothing_of_its_worker_gives_its_turn_to_the_next(kind: str) -> None:
    office = many(9, pool=5)
    down(office)
    office.wait(POLICY.rest + 1)
    office.fail("t5", kind)
    assert running(office) == ["t6"]


def test_what_is_the_tasks_own_fault_opens_no_breaker() -> None:
    office = many(9, pool=3)
    for kind in ("logic", "denied", "cancelled"):
        down(office, 3, kind)
    assert len(office.started()) == 9


def test_a_success_in_between_starts_the_count_anew() -> None:
    office = many(20, pool=1)
    for _ in range(2):
        for _ in range(4):
            office.fail(running(office)[0])
        office.finish(running(office)[0])
    assert len(running(office)) == 1


def test_lost_attempts_count_unless_the_process_itself_was_lost() -> None:
    office = many(9, pool=5)
    lost = [
        AttemptLost(task=task, attempt=1, reason="gone", at=office.now) for task in running(office)
    ]
    for each in lost:
        office.desk.free_place("r", each.task, 1)
    office.tell(*lost)
    assert running(office) == []
    crashed = many(9, pool=5)
    crashed.crash()
    assert len(running(crashed)) == 5


def test_one_that_does_not_stop_when_told_to_is_not_held_against_its_worker() -> None:
    office = many(12, pool=6, tasks={f"t{n}": {"deadline": seconds(5)} for n in range(6)})
    office.wait(6)
    office.wait(60)
    for task, number in [(task, 1) for task in office.states()][:6]:
        office.desk.free_place("r", task, number)
    office.tell()
    assert len(running(office)) == 6


def test_others_with_the_skill_take_what_a_resting_worker_cannot() -> None:
    tasks = {f"t{n}": {"worker": "", "skill": "write"} for n in range(12)}
    office = desk_of(", ".join(tasks), places=PAIR, pool=10, tasks=tasks, attempts=1)
    for task in [t for t in running(office) if office.schedule.nodes[t].worker == "bob"]:
        office.finish(task)  # leaves his place, and the most idle one is his
    assert [office.schedule.nodes[t].worker for t in ("t10", "t11")] == ["bob", "bob"]
    for task in [t for t in running(office) if office.schedule.nodes[t].worker == "ann"]:
        office.fail(task)
    office.amend([Task(id="late", description="d", skill="write")])
    assert office.schedule.nodes["late"].worker == "bob"


def test_late_failures_of_attempts_from_before_do_not_lengthen_the_rest() -> None:
    office = many(13, pool=10)
    down(office)
    office.wait(POLICY.rest + 1)
    assert len(running(office)) == 6, "five from before, and the probe"
    office.fail("t5")
    office.finish("t10")
    assert {"t11", "t12"} <= set(running(office))


def test_a_probe_whose_report_is_lost_does_not_bar_its_worker_for_ever() -> None:
    dispatch = Dispatch(5, breaker=BreakerPolicy(failures=1, rest=10))
    dispatch.join(Place(worker="ann"))
    dispatch.open_run("r", START, 5)
    dispatch.failed("r", "gone", 1, "ann", NOW, "down")
    for task in ("a", "b"):
        dispatch.offer("r", offer(task), NOW)
    assert dispatch.place(NOW) == []
    assert [start.task for start in dispatch.place(NOW + 10)] == ["a"]
    assert dispatch.place(NOW + 20) == []
    dispatch.freed("r", "a", 1)
    assert [start.task for start in dispatch.place(NOW + 20)] == ["b"]


def test_the_pool_says_whose_breaker_is_waited_for_and_until_when() -> None:
    office = many(8, pool=5)
    dispatch = office.desk.dispatch
    down(office)
    assert dispatch.why_waiting("r", "t5") == (
        "the breaker of worker ann, until 2026-01-01T00:00:15+00:00"
    )
    office.wait(POLICY.rest + 1)
    assert dispatch.why_waiting("r", "t6") == ("the breaker of worker ann, until its probe is back")
    started = [event for event in office.journal if getattr(event, "worker", "") == "ann"]
    assert getattr(started[-1], "why", "") == "to see whether ann works again"


def test_a_desk_that_is_stopping_is_not_woken_for_a_probe() -> None:
    office = many(8, pool=5)
    down(office)
    due_at = office.desk.next_due()
    office.desk.is_draining = True
    assert due_at is not None
    assert office.desk.next_due() != due_at


def test_without_failures_allowed_a_breaker_never_opens() -> None:
    breaker = Breaker(BreakerPolicy(failures=0))
    for _ in range(100):
        breaker.fail(0.0, "down")
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    "terms", [{"failures": -1}, {"rest": 0.0}, {"rest": 9.0, "longest_rest": 8}]
)
def test_a_policy_that_makes_no_sense_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="BreakerPolicy"):
        BreakerPolicy(**terms)


# parked attempts


def test_a_parked_task_holds_no_place_and_goes_on_when_its_time_has_come() -> None:
    office = many(2, pool=1)
    office.park("t0", 40)
    assert office.state("t0") == "retrying"
    assert running(office) == ["t1"], "its place went to another"
    office.finish("t1")
    office.wait(39)
    assert running(office) == []
    assert isinstance(office.wait(2)[0], RetryDue)
    assert office.started()[-1] == "t0#2"
    office.finish("t0")
    assert office.status == "succeeded"


def test_parking_counts_neither_as_a_try_nor_as_a_loss() -> None:
    office = many(1, attempts=2, losses=1)
    for _ in range(20):
        office.park("t0", 10)
        office.wait(11)
    node = office.schedule.nodes["t0"]
    assert (node.tries, node.losses, node.parks, node.lineage) == (0, 0, 20, 1)
    office.fail("t0", "logic")
    assert running(office) == ["t0"]


def test_active_time_stands_still_while_all_is_parked() -> None:
    office = many(1, active=seconds(60))
    office.wait(50)
    office.park("t0", 600)
    assert office.schedule.state is RunState.RUNNING, "no person is waited for"
    office.wait(605)
    assert running(office) == ["t0"]
    office.wait(4)
    assert office.stopped() == []
    office.wait(2)
    assert office.stopped() == ["t0#2"]


def test_active_time_goes_on_while_something_else_runs() -> None:
    office = many(2, active=seconds(60))
    office.park("t0", 600)
    office.wait(61)
    assert office.stopped() == ["t1#1"]
    assert office.status == "failed"


def test_a_deadline_counts_while_a_task_is_parked() -> None:
    office = many(1, tasks={"t0": {"deadline": seconds(30)}})
    office.park("t0", 600)
    office.wait(31)
    assert office.status == "failed"


def test_a_parked_plan_leaves_the_run_no_less_time() -> None:
    office = desk_of("", asked={"approach": Approach.WHOLE}, active=seconds(60))
    assert running(office) == ["@plan"]
    office.park("@plan", 600)
    office.wait(601)
    assert running(office) == ["@plan"]
    assert office.stopped() == []


def test_a_run_that_is_cancelled_while_all_is_parked_ends_at_once() -> None:
    office = many(2)
    office.park("t0", 600)
    office.park("t1", 600)
    office.cancel()
    assert office.status == "cancelled"


def test_one_that_was_told_to_stop_is_not_parked() -> None:
    office = many(1)
    office.cancel()
    office.park("t0", 600)
    assert office.status == "cancelled"


def test_who_reads_the_journal_later_waits_as_long() -> None:
    office = many(1, active=seconds(60))
    office.park("t0", 100)
    office.crash()
    office.wait(99)
    assert running(office) == []
    office.wait(2)
    assert running(office) == ["t0"]


def test_what_a_parked_attempt_had_reserved_is_given_back() -> None:
    account = Account(Limits(calls=1))
    begun = step_started("t0", 1, "model", "pure")
    account.apply(StepStarted(**{f: getattr(begun, f) for f in _FIELDS}, reserve=Usage(calls=1)))
    assert account.refusal("t0", Usage(calls=1))
    account.apply(AttemptParked(task="t0", attempt=1, due_at=START, at=START))
    assert account.refusal("t0", Usage(calls=1)) == ""
    assert account.spent == Usage()


_FIELDS = ("task", "attempt", "name", "ordinal", "effect", "key", "digest", "at")
