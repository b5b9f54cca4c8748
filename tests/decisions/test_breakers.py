"""Workers that keep failing are left alone for a while, and what waits for them is parked, not failed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from chargehand.decisions.budget import Account
from chargehand.decisions.circuit_breaker import (
    OF_PROVIDERS,
    OF_WORKERS,
    Breaker,
    BreakerPolicy,
    BreakerState,
    counts_against_worker,
)
from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.breaker_figures import BreakerFigures
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
from tests.decisions.test_dispatch import NOW, offer
from tests.decisions.virtual_kernel import (
    BREAKER,
    START,
    VirtualKernel,
    kernel_of,
    seconds,
    step_started,
)

REST = BREAKER.rest or 0
PAIR = (Place(worker="ann", skills=("write",)), Place(worker="bob", skills=("write",)))


def down(resources: VirtualKernel, times: int = 5, kind: str = "network") -> None:
    """Have so many of the running attempts fail at one moment."""
    events = []
    for task in running(resources)[:times]:
        number = resources.schedule.nodes[task].attempt
        resources.kernel.free_place("r", task, number)
        failed = Failed(kind=ErrorClass(kind), message="it broke")
        events.append(AttemptFinished(task=task, attempt=number, outcome=failed, at=resources.now))
    resources.tell(*events)


def many(count: int, **more: Any) -> VirtualKernel:
    more = {"attempts": 1, **more}
    return kernel_of(", ".join(f"t{n}" for n in range(count)), **more)


def running(resources: VirtualKernel) -> list[str]:
    return [task for task, state in resources.states().items() if state == "running"]


# the breaker of a worker


@pytest.mark.parametrize("kind", ["network", "timeout", "resource"])
def test_a_worker_that_fails_five_times_in_a_row_gets_nothing_until_its_rest_is_over(
    kind: str,
) -> None:
    resources = many(8, pool=5)
    down(resources, kind=kind)
    assert running(resources) == []
    assert resources.state("t5") == "ready"
    resources.wait(REST - 1)
    assert running(resources) == []
    resources.wait(1.1)
    assert running(resources) == ["t5"], "one probe, and the loop was woken for it"


def test_a_probe_that_is_done_lets_all_others_go() -> None:
    resources = many(9, pool=5)
    down(resources)
    resources.wait(REST + 1)
    resources.finish("t5")
    assert running(resources) == ["t6", "t7", "t8"]


def test_a_probe_that_fails_doubles_the_rest() -> None:
    resources = many(9, pool=5)
    down(resources)
    resources.wait(REST + 1)
    resources.fail("t5")
    resources.wait(2 * REST - 1)
    assert running(resources) == []
    resources.wait(1.1)
    assert running(resources) == ["t6"]


@pytest.mark.parametrize("kind", ["logic", "denied", "cancelled"])
def test_a_probe_that_says_nothing_of_its_worker_gives_its_turn_to_the_next(kind: str) -> None:
    resources = many(9, pool=5)
    down(resources)
    resources.wait(REST + 1)
    resources.fail("t5", kind)
    assert running(resources) == ["t6"]


@pytest.mark.parametrize(("reused", "counts"), [("", "network: it broke"), ("r0", "")])
def test_a_failure_of_an_earlier_run_does_not_count_against_a_worker(
    reused: str, counts: str
) -> None:
    failed = Failed(kind=ErrorClass.NETWORK, message="it broke")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = AttemptFinished(task="a", attempt=1, outcome=failed, reused=reused, at=at)
    assert counts_against_worker(event) == counts


def test_what_is_the_tasks_own_fault_opens_no_breaker() -> None:
    resources = many(9, pool=3)
    for kind in ("logic", "denied", "cancelled"):
        down(resources, 3, kind)
    assert len(resources.started()) == 9


def test_a_success_in_between_starts_the_count_anew() -> None:
    resources = many(20, pool=1)
    for _ in range(2):
        for _ in range(4):
            resources.fail(running(resources)[0])
        resources.finish(running(resources)[0])
    assert len(running(resources)) == 1


def test_lost_attempts_count_unless_the_process_itself_was_lost() -> None:
    resources = many(9, pool=5)
    lost = [
        AttemptLost(task=task, attempt=1, reason="gone", at=resources.now)
        for task in running(resources)
    ]
    for each in lost:
        resources.kernel.free_place("r", each.task, 1)
    resources.tell(*lost)
    assert running(resources) == []
    crashed = many(9, pool=5)
    crashed.crash()
    assert len(running(crashed)) == 5


def test_one_that_does_not_stop_when_told_to_is_not_held_against_its_worker() -> None:
    resources = many(12, pool=6, tasks={f"t{n}": {"deadline": seconds(5)} for n in range(6)})
    resources.wait(6)
    resources.wait(60)
    for task, number in [(task, 1) for task in resources.states()][:6]:
        resources.kernel.free_place("r", task, number)
    resources.tell()
    assert len(running(resources)) == 6


def test_others_with_the_skill_take_what_a_resting_worker_cannot() -> None:
    tasks = {f"t{n}": {"worker": "", "skill": "write"} for n in range(12)}
    resources = kernel_of(", ".join(tasks), places=PAIR, pool=10, tasks=tasks, attempts=1)
    for task in [t for t in running(resources) if resources.schedule.nodes[t].worker == "bob"]:
        resources.finish(task)  # leaves his place, and the most idle one is his
    assert [resources.schedule.nodes[t].worker for t in ("t10", "t11")] == ["bob", "bob"]
    for task in [t for t in running(resources) if resources.schedule.nodes[t].worker == "ann"]:
        resources.fail(task)
    resources.amend([Task(id="late", description="d", skill="write")])
    assert resources.schedule.nodes["late"].worker == "bob"


def test_late_failures_of_attempts_from_before_do_not_lengthen_the_rest() -> None:
    resources = many(13, pool=10)
    down(resources)
    resources.wait(REST + 1)
    assert len(running(resources)) == 6, "five from before, and the probe"
    resources.fail("t5")
    resources.finish("t10")
    assert {"t11", "t12"} <= set(running(resources))


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
    resources = many(8, pool=5)
    dispatch = resources.kernel.dispatch
    down(resources)
    assert dispatch.why_waiting("r", "t5") == (
        "the circuit breaker of worker ann, until 2026-01-01T00:00:15+00:00"
    )
    resources.wait(REST + 1)
    assert dispatch.why_waiting("r", "t6") == (
        "the circuit breaker of worker ann, until its probe has ended"
    )
    started = [event for event in resources.journal if getattr(event, "worker", "") == "ann"]
    assert getattr(started[-1], "why", "") == "to see whether ann works again"


def test_a_desk_that_is_stopping_is_not_woken_for_a_probe() -> None:
    resources = many(8, pool=5)
    down(resources)
    due_at = resources.kernel.next_due()
    resources.kernel.is_draining = True
    assert due_at is not None
    assert resources.kernel.next_due() != due_at


def test_without_failures_allowed_a_breaker_never_opens() -> None:
    breaker = Breaker(BreakerPolicy(failures=0).over(OF_WORKERS))
    for _ in range(100):
        breaker.fail(0.0, "down")
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    "terms", [{"failures": -1}, {"rest": 0.0}, {"rest": 9.0, "longest_rest": 8}]
)
def test_a_policy_that_makes_no_sense_is_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="BreakerPolicy"):
        BreakerPolicy(**terms)


@pytest.mark.parametrize(
    ("given", "of_workers", "of_providers"),
    [
        ({}, (10, 5, 60), (5, 15, 300)),
        ({"failures": 20}, (20, 5, 60), (20, 15, 300)),
        ({"failures": 0}, (0, 5, 60), (0, 15, 300)),
        ({"rest": 1}, (10, 1, 60), (5, 1, 300)),
        ({"rest": 400}, (10, 400, 400), (5, 400, 400)),
        ({"longest_rest": 10}, (10, 5, 10), (5, 10, 10)),
    ],
)
def test_what_a_policy_leaves_out_is_the_default_of_where_it_is_used(
    given: dict[str, Any], of_workers: tuple[float, ...], of_providers: tuple[float, ...]
) -> None:
    def told(usual: BreakerFigures) -> tuple[float, ...]:
        chosen = BreakerPolicy(**given).over(usual)
        return chosen.failures, chosen.rest, chosen.longest_rest

    assert told(OF_WORKERS) == of_workers
    assert told(OF_PROVIDERS) == of_providers


def test_a_worker_rests_five_seconds_if_only_the_failures_are_chosen() -> None:
    dispatch = Dispatch(5, breaker=BreakerPolicy(failures=1))
    dispatch.join(Place(worker="ann"))
    dispatch.open_run("r", START, 5)
    dispatch.failed("r", "gone", 1, "ann", NOW, "down")
    dispatch.offer("r", offer("a"), NOW)
    assert dispatch.place(NOW + 4.9) == []
    assert [start.task for start in dispatch.place(NOW + 5)] == ["a"]


# parked attempts


def test_a_parked_task_holds_no_place_and_goes_on_when_its_time_has_come() -> None:
    resources = many(2, pool=1)
    resources.park("t0", 40)
    assert resources.state("t0") == "retrying"
    assert running(resources) == ["t1"], "its place went to another"
    resources.finish("t1")
    resources.wait(39)
    assert running(resources) == []
    assert isinstance(resources.wait(2)[0], RetryDue)
    assert resources.started()[-1] == "t0#2"
    resources.finish("t0")
    assert resources.status == "succeeded"


def test_parking_counts_neither_as_a_try_nor_as_a_loss() -> None:
    resources = many(1, attempts=2, losses=1)
    for _ in range(20):
        resources.park("t0", 10)
        resources.wait(11)
    node = resources.schedule.nodes["t0"]
    assert (node.tries, node.losses, node.parks, node.lineage) == (0, 0, 20, 1)
    resources.fail("t0", "logic")
    assert running(resources) == ["t0"]


def test_active_time_stands_still_while_all_is_parked() -> None:
    resources = many(1, active=seconds(60))
    resources.wait(50)
    resources.park("t0", 600)
    assert resources.schedule.state is RunState.RUNNING, "no person is waited for"
    resources.wait(605)
    assert running(resources) == ["t0"]
    resources.wait(4)
    assert resources.stopped() == []
    resources.wait(2)
    assert resources.stopped() == ["t0#2"]


def test_active_time_goes_on_while_something_else_runs() -> None:
    resources = many(2, active=seconds(60))
    resources.park("t0", 600)
    resources.wait(61)
    assert resources.stopped() == ["t1#1"]
    assert resources.status == "failed"


def test_a_deadline_counts_while_a_task_is_parked() -> None:
    resources = many(1, tasks={"t0": {"deadline": seconds(30)}})
    resources.park("t0", 600)
    resources.wait(31)
    assert resources.status == "failed"


def test_a_parked_plan_leaves_the_run_no_less_time() -> None:
    resources = kernel_of("", asked={"approach": Approach.WHOLE}, active=seconds(60))
    assert running(resources) == ["@plan"]
    resources.park("@plan", 600)
    resources.wait(601)
    assert running(resources) == ["@plan"]
    assert resources.stopped() == []


def test_a_run_that_is_cancelled_while_all_is_parked_ends_at_once() -> None:
    resources = many(2)
    resources.park("t0", 600)
    resources.park("t1", 600)
    resources.cancel()
    assert resources.status == "cancelled"


def test_one_that_was_told_to_stop_is_not_parked() -> None:
    resources = many(1)
    resources.cancel()
    resources.park("t0", 600)
    assert resources.status == "cancelled"


def test_who_reads_the_journal_later_waits_as_long() -> None:
    resources = many(1, active=seconds(60))
    resources.park("t0", 100)
    resources.crash()
    resources.wait(99)
    assert running(resources) == []
    resources.wait(2)
    assert running(resources) == ["t0"]


def test_what_a_parked_attempt_had_reserved_is_given_back() -> None:
    account = Account(Limits(calls=1))
    begun = step_started("t0", 1, "model", "pure")
    account.apply(StepStarted(**{f: getattr(begun, f) for f in _FIELDS}, reserve=Usage(calls=1)))
    assert account.refusal("t0", Usage(calls=1))
    account.apply(AttemptParked(task="t0", attempt=1, due_at=START, at=START))
    assert account.refusal("t0", Usage(calls=1)) == ""
    assert account.spent == Usage()


_FIELDS = ("task", "attempt", "name", "ordinal", "effect", "key", "digest", "at")
