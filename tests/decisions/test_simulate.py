"""The plan simulator: small plans whose best makespan can be seen by eye."""

import math
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.dispatch import Dispatch, Place, Starts
from chargehand.decisions.plan_simulation import Arrival, Simulation, simulate
from chargehand.decisions.simulation_loop import PathLink, WaitedFor
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.events import Pace, RunStatus
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan, Task
from chargehand.facts.scheduler_commands import OfferAttempt, Rank

ANYBODY = [Place(worker="anybody")]


def task(
    id_: str,
    seconds: float,
    needs: Iterable[str] = (),
    *,
    worker: str = "anybody",
    priority: int = 0,
) -> Task:
    """A task that says itself how long it takes, in its arguments."""
    return Task(
        id=id_,
        description=f"work for {seconds} s",
        worker=worker,
        needs=list(needs),
        args={"seconds": seconds},
        priority=priority,
    )


def plan(*tasks: Task) -> Plan:
    return Plan(goal="see how long it takes", tasks=tasks)


def taken(task: Task) -> float:
    return float(task.args["seconds"])


def expected(task: Task) -> Task:
    """The same task, with its length known beforehand."""
    return Task(
        id=task.id,
        description=task.description,
        worker=task.worker,
        needs=task.needs,
        args=task.args,
        expect=timedelta(seconds=taken(task)),
    )


def seconds_of(simulation: Simulation) -> float:
    return simulation.makespan.total_seconds()


def starts(simulation: Simulation) -> dict[str, float]:
    return {span.task: span.start.total_seconds() for span in simulation.spans}


# Makespans


def test_a_chain_takes_the_sum_of_its_tasks() -> None:
    chain = plan(task("a", 1), task("b", 2, ["a"]), task("c", 3, ["b"]))
    assert seconds_of(simulate(chain, ANYBODY, parallel=8, seconds=taken)) == 6


def test_a_fan_takes_one_task_with_a_place_for_each_and_rounds_with_fewer() -> None:
    fan = plan(*(task(f"t{n}", 2) for n in range(10)))
    assert seconds_of(simulate(fan, ANYBODY, parallel=10, seconds=taken)) == 2
    assert seconds_of(simulate(fan, ANYBODY, parallel=3, seconds=taken)) == 8


def test_with_known_lengths_the_longest_path_goes_first() -> None:
    """In plan order the long task would start last: 1 + 1 + 4 instead of 4."""
    short_first = [task(f"short{n}", 1) for n in range(4)] + [task("long", 4)]
    known = plan(*(expected(each) for each in short_first))
    assert seconds_of(simulate(known, ANYBODY, parallel=2, seconds=taken)) == 4
    unknown = plan(*short_first)
    assert seconds_of(simulate(unknown, ANYBODY, parallel=2, seconds=taken)) == 6


def test_what_was_learnt_of_a_worker_orders_its_tasks() -> None:
    quick = [task(f"quick{n}", 1, worker="quick") for n in range(4)]
    places = [Place(worker="quick"), Place(worker="slow")]
    mixed = plan(*quick, task("slow", 4, worker="slow"))
    paces = {"quick": Pace(9, timedelta(seconds=1)), "slow": Pace(9, timedelta(seconds=5))}
    learned = simulate(mixed, places, parallel=2, seconds=taken, paces=paces)
    assert starts(learned)["slow"] == 0
    assert seconds_of(learned) == 4


def test_without_lengths_the_most_hops_go_first() -> None:
    behind = plan(
        task("leaf", 1), task("root", 1), task("mid", 1, ["root"]), task("end", 1, ["mid"])
    )
    simulation = simulate(behind, ANYBODY, parallel=1, seconds=taken)
    assert [span.task for span in simulation.spans] == ["root", "mid", "leaf", "end"]


def test_stragglers_hold_up_only_what_needs_them() -> None:
    """Three layers of ten, one straggler a layer: no layer waits for the one before it."""
    tasks = []
    for layer in range(3):
        for column in range(10):
            seconds = 13 if column == layer else 1
            needs = [f"l{layer - 1}c{column}"] if layer else []
            tasks.append(task(f"l{layer}c{column}", seconds, needs))
    critical_path, with_barriers = 13 + 1 + 1, 3 * 13
    simulation = simulate(plan(*tasks), ANYBODY, parallel=30, seconds=taken)
    assert seconds_of(simulation) == critical_path < with_barriers
    assert starts(simulation)["l1c9"] == 1


def test_a_worker_takes_no_more_at_once_than_it_can_hold() -> None:
    fan = plan(*(task(f"t{n}", 1) for n in range(4)))
    narrow = [Place(worker="anybody", capacity=1)]
    assert seconds_of(simulate(fan, narrow, parallel=8, seconds=taken)) == 4


def test_a_skill_is_shared_by_all_who_have_it() -> None:
    fan = plan(*(Task(id=f"t{n}", description="add up", skill="sums") for n in range(4)))
    pair = [Place(worker=name, skills=("sums",), capacity=1) for name in ("ann", "ben")]
    simulation = simulate(fan, pair, parallel=8, seconds=lambda _: 1)
    assert seconds_of(simulation) == 2
    assert simulation.busy("ann") == simulation.busy("ben") == timedelta(seconds=2)


def test_tasks_that_take_no_time_still_happen_in_order() -> None:
    chain = plan(task("a", 0), task("b", 0, ["a"]), task("c", 0, ["b"]))
    simulation = simulate(chain, ANYBODY, parallel=1, seconds=taken)
    assert [span.task for span in simulation.spans] == ["a", "b", "c"]
    assert (seconds_of(simulation), simulation.speedup, simulation.utilisation) == (0, 1, 0)


# What is told besides the makespan


def test_utilisation_is_the_part_of_the_pool_that_was_worked() -> None:
    uneven = plan(task("long", 4), task("short", 1))
    simulation = simulate(uneven, ANYBODY, parallel=2, seconds=taken)
    assert simulation.work == timedelta(seconds=5)
    assert simulation.speedup == 5 / 4
    assert simulation.utilisation == 5 / 8


def test_the_path_that_was_walked_tells_needs_from_places() -> None:
    tasks = plan(task("a", 3), task("b", 1), task("c", 2), task("d", 2, ["c"]))
    simulation = simulate(tasks, ANYBODY, parallel=1, seconds=taken)
    assert [span.task for span in simulation.spans] == ["c", "a", "b", "d"]
    assert simulation.path == (
        PathLink("run1", "c", WaitedFor.ARRIVAL),
        PathLink("run1", "a", WaitedFor.PLACE),
        PathLink("run1", "b", WaitedFor.PLACE),
        PathLink("run1", "d", WaitedFor.PLACE),
    )
    with_room = simulate(tasks, ANYBODY, parallel=4, seconds=taken)
    assert with_room.path == (
        PathLink("run1", "c", WaitedFor.ARRIVAL),
        PathLink("run1", "d", WaitedFor.NEED),
    )


def test_the_path_that_was_walked_is_as_long_as_the_makespan() -> None:
    tasks = [task(f"t{n}", 1 + n * 7 % 5, [f"t{n // 3}"] if n > 2 else []) for n in range(40)]
    simulation = simulate(plan(*tasks), ANYBODY, parallel=3, seconds=taken)
    lengths = {span.task: span.length for span in simulation.spans}
    assert (
        sum((lengths[link.task] for link in simulation.path), timedelta(0)) == simulation.makespan
    )


def test_the_same_plan_gives_the_same_simulation_whatever_the_hash_seed() -> None:
    """Two fresh interpreters with other hash seeds agree to the last span."""
    program = (
        "from chargehand.decisions.plan_simulation import simulate\n"
        "from chargehand.decisions.dispatch import Place\n"
        "from chargehand.facts.plan import Plan, Task\n"
        "tasks = [Task(id=f't{n}', description='x', skill=f's{n % 3}', needs=[f't{n // 4}'] if n > 3"
        " else []) for n in range(60)]\n"
        "places = [Place(worker=f'w{n}', skills=(f's{n % 3}', f's{(n + 1) % 3}')) for n in range(5)]\n"
        "print(simulate(Plan(goal='g', tasks=tasks), places, parallel=4,"
        " seconds=lambda task: len(task.skill) + int(task.id[1:]) % 7))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "t59" in outputs.pop()


# Several runs


def test_runs_of_one_instant_are_served_in_the_order_they_arrive() -> None:
    arrivals = [Arrival(plan=plan(task("only", 1)), name=name) for name in ("first", "second")]
    simulation = simulate(arrivals, ANYBODY, parallel=1, seconds=taken)
    assert [span.run for span in simulation.spans] == ["first", "second"]
    assert list(simulation.runs) == ["first", "second"]


def both(priorities: Mapping[str, int], *, of_tasks: bool) -> Simulation:
    """Two runs of four tasks on one place, `late` half a second behind `early`."""
    arrivals = [
        Arrival(
            plan=plan(*(task(f"t{n}", 1, priority=rank if of_tasks else 0) for n in range(4))),
            at=timedelta(seconds=0.5 if name == "late" else 0),
            priority=0 if of_tasks else rank,
            name=name,
        )
        for name, rank in priorities.items()
    ]
    return simulate(arrivals, ANYBODY, parallel=1, seconds=taken)


@pytest.mark.parametrize("of_tasks", [True, False])
def test_the_run_of_higher_priority_gets_the_next_place(of_tasks: bool) -> None:
    simulation = both({"early": 0, "late": 5}, of_tasks=of_tasks)
    assert [span.run for span in simulation.spans] == ["early"] + ["late"] * 4 + ["early"] * 3
    assert simulation.runs["late"].length == timedelta(seconds=4.5)


def test_without_priority_the_earlier_run_goes_first() -> None:
    simulation = both({"early": 0, "late": 0}, of_tasks=True)
    assert [span.run for span in simulation.spans] == ["early"] * 4 + ["late"] * 4


def test_a_run_that_comes_to_an_idle_pool_waits_for_nothing() -> None:
    arrivals = [
        Arrival(plan=plan(task("a", 1))),
        Arrival(plan=plan(task("b", 1)), at=timedelta(seconds=1)),
        Arrival(plan=plan(task("c", 1)), at=timedelta(seconds=10)),
    ]
    simulation = simulate(arrivals, ANYBODY, parallel=1, seconds=taken)
    assert starts(simulation) == {"a": 0, "b": 1, "c": 10}
    assert simulation.path == (PathLink("run3", "c", WaitedFor.ARRIVAL),)
    assert seconds_of(simulation) == 11


def test_a_run_is_stopped_at_its_deadline_and_its_place_freed() -> None:
    arrivals = [
        Arrival(plan=plan(task("a", 1), task("b", 9, ["a"])), deadline=timedelta(seconds=3)),
        Arrival(plan=plan(task("c", 1))),
    ]
    simulation = simulate(arrivals, ANYBODY, parallel=1, seconds=taken)
    assert simulation.runs["run1"].status is RunStatus.PARTIAL
    assert simulation.runs["run1"].ended == timedelta(seconds=3)
    assert simulation.runs["run2"].status is RunStatus.SUCCEEDED
    assert [span.task for span in simulation.spans if span.was_stopped] == ["b"]


def test_a_run_out_of_time_before_it_had_a_place_has_no_spans() -> None:
    arrivals = [
        Arrival(plan=plan(task("a", 9)), name="hog"),
        Arrival(plan=plan(task("b", 1)), deadline=timedelta(seconds=2), at=timedelta(seconds=1)),
    ]
    simulation = simulate(arrivals, ANYBODY, parallel=1, seconds=taken)
    assert simulation.runs["run2"].status is RunStatus.FAILED
    assert simulation.runs["run2"].ended == timedelta(seconds=3)
    assert [span.run for span in simulation.spans] == ["hog"]


def test_the_limits_of_a_run_hold_in_a_simulation_too() -> None:
    fan = plan(*(task(f"t{n}", 1) for n in range(4)))
    narrow = simulate(fan, ANYBODY, parallel=8, seconds=taken, limits=Limits(parallel=2))
    assert seconds_of(narrow) == 2
    hasty = Limits(active=timedelta(seconds=0.5))
    simulation = simulate(fan, ANYBODY, parallel=8, seconds=taken, limits=hasty)
    assert simulation.runs["run1"].status is RunStatus.FAILED


def test_a_task_that_was_given_up_while_it_waited_is_never_started() -> None:
    """Its deadline passes before its need is met; the rest of the run goes on to its end."""
    late = Task(
        id="late",
        description="be too late",
        worker="anybody",
        needs=["slow"],
        deadline=timedelta(seconds=5),
    )
    seconds = {"slow": 10, "long": 20, "late": 1}
    tasks = plan(task("slow", 10), late, task("long", 20))
    simulation = simulate(tasks, ANYBODY, parallel=4, seconds=lambda task: seconds[task.id])
    assert sorted(starts(simulation)) == ["long", "slow"]
    assert simulation.runs["run1"].ended == timedelta(seconds=20)


# The order among runs


def chain(name: str, links: int = 2, deadline: float | None = None) -> Arrival:
    """A run of equal tasks of one second, one after the other, whose lengths are known."""
    tasks = [expected(task(f"t{n}", 1, [f"t{n - 1}"] if n else [])) for n in range(links)]
    due = None if deadline is None else timedelta(seconds=deadline)
    return Arrival(plan=plan(*tasks), name=name, deadline=due)


def order_of(*arrivals: Arrival) -> list[str]:
    simulation = simulate(arrivals, ANYBODY, parallel=1, seconds=taken)
    return [span.run for span in simulation.spans]


def test_runs_of_one_instant_do_not_take_turns() -> None:
    """Else all would end at the end; so the first has its answer after half the time."""
    assert order_of(chain("first"), chain("second")) == ["first"] * 2 + ["second"] * 2


def test_a_short_run_that_came_first_is_not_held_up_by_a_long_one() -> None:
    assert order_of(chain("short", 1), chain("long", 5))[0] == "short"


def test_runs_with_one_deadline_do_not_take_turns_either() -> None:
    simulated = order_of(chain("first", 3, 10), chain("second", 3, 10))
    assert simulated == ["first"] * 3 + ["second"] * 3


def test_a_long_run_that_is_due_a_little_later_goes_first() -> None:
    """In the order of deadlines `long` would end at 7, a second too late."""
    both = [chain("short", 1, 5), chain("long", 5, 6)]
    assert order_of(*both)[0] == "long"
    simulation = simulate(both, ANYBODY, parallel=2, seconds=taken)
    assert {end.status for end in simulation.runs.values()} == {RunStatus.SUCCEEDED}


def test_a_run_that_cannot_be_in_time_lets_the_others_go_first() -> None:
    assert order_of(chain("hopeless", 5, 3), chain("calm", 2, 20))[:2] == ["calm", "calm"]


# The rate of starts


def test_starts_are_spaced_out_and_the_most_urgent_has_the_next() -> None:
    fan = plan(*(task(f"t{n}", 1, priority=n) for n in range(4)))
    simulation = simulate(fan, ANYBODY, parallel=4, seconds=taken, starts=Starts(a_minute=30))
    assert [span.task for span in simulation.spans] == ["t3", "t2", "t1", "t0"]
    began = [span.start.total_seconds() for span in simulation.spans]
    assert began == pytest.approx([0, 2, 4, 6], abs=0.01)


def test_a_burst_starts_at_once_after_a_rest() -> None:
    fan = plan(*(task(f"t{n}", 1) for n in range(4)))
    burst = Starts(a_minute=6, burst=3)
    simulation = simulate(fan, ANYBODY, parallel=4, seconds=taken, starts=burst)
    began = [span.start.total_seconds() for span in simulation.spans]
    assert began == pytest.approx([0, 0, 0, 10], abs=0.01)


def test_a_task_that_waits_for_the_rate_says_so() -> None:
    pool = Dispatch(4, starts=Starts(a_minute=30))
    pool.join(Place(worker="anybody"))
    pool.open_run("r", datetime(2030, 1, 1, tzinfo=UTC), parallel=9)
    for name in ("a", "b"):
        rank = Rank(0, math.inf, math.inf, -1.0, 0)
        pool.offer("r", OfferAttempt(name, 1, "anybody", "", rank), now=0.0)
    assert [start.task for start in pool.place(0.0)] == ["a"]
    assert pool.probes_at == pytest.approx(2)
    assert pool.why_waiting("r", "b") == "the next start (at most 30 per minute)"
    assert [start.task for start in pool.place(2.0)] == ["b"]


@pytest.mark.parametrize(
    "wrong", [{"a_minute": 0}, {"a_minute": math.nan}, {"a_minute": 1, "burst": 0}]
)
def test_a_rate_at_which_nothing_would_ever_start_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="Starts"):
        Starts(**wrong)  # type: ignore[arg-type]  # wrong on purpose


# Whatever the plan


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of up to 25 tasks, each needing up to three of those before it."""
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=25))
    tasks = []
    for number, seconds in enumerate(lengths):
        earlier = st.sets(st.integers(0, number - 1), max_size=3) if number else st.just(set())
        needs = [f"t{need}" for need in sorted(draw(earlier))]
        tasks.append(task(f"t{number}", seconds, needs, worker=draw(st.sampled_from(["a", "b"]))))
    return plan(*tasks)


def critical_path(plan: Plan) -> float:
    ends: dict[str, float] = {}
    for each in plan.tasks:  # needs point back, so plan order will do
        ends[each.id] = taken(each) + max((ends[need.task] for need in each.all_needs), default=0)
    return max(ends.values())


@given(plans(), st.integers(1, 6))
def test_no_place_is_idle_while_a_task_could_run(plan: Plan, parallel: int) -> None:
    """Every task runs once, after its needs, and the whole keeps within Graham's bound."""
    places = [Place(worker="a"), Place(worker="b")]
    simulation = simulate(plan, places, parallel=parallel, seconds=taken)
    spans = {span.task: span for span in simulation.spans}
    assert len(spans) == len(simulation.spans) == len(plan.tasks)
    for each in plan.tasks:
        assert all(spans[need.task].end <= spans[each.id].start for need in each.all_needs)
    least = max(critical_path(plan), simulation.work.total_seconds() / parallel)
    most = simulation.work.total_seconds() / parallel + (1 - 1 / parallel) * critical_path(plan)
    assert least - 1e-5 <= seconds_of(simulation) <= most + 1e-5


@given(plans(), plans(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_no_cap_is_ever_passed(
    one: Plan, two: Plan, capacity: int, of_run: int, parallel: int
) -> None:
    """Neither that of the pool, nor of a worker, nor of a run."""
    places = [Place(worker="a", capacity=capacity), Place(worker="b")]
    simulation = simulate(
        [Arrival(plan=one), Arrival(plan=two, at=timedelta(seconds=3))],
        places,
        parallel=parallel,
        seconds=taken,
        limits=Limits(parallel=of_run),
    )
    for at in {span.start for span in simulation.spans}:
        now = [span for span in simulation.spans if span.start <= at < span.end]
        assert len(now) <= parallel
        assert sum(span.worker == "a" for span in now) <= capacity
        assert all(sum(span.run == run for span in now) <= of_run for run in simulation.runs)
    assert {end.status for end in simulation.runs.values()} == {RunStatus.SUCCEEDED}


# Bad input


def test_a_plan_that_would_not_be_led_is_refused() -> None:
    with pytest.raises(PlanRefused, match="nobody_here"):
        simulate(plan(task("a", 1, worker="nobody_here")), ANYBODY, parallel=1, seconds=taken)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 1e300])
def test_a_length_that_no_task_can_have_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="'a' cannot take"):
        simulate(plan(task("a", 0)), ANYBODY, parallel=1, seconds=lambda _: seconds)


def test_two_runs_of_one_name_and_no_run_at_all_are_refused() -> None:
    same = Arrival(plan=plan(task("a", 1)), name="same")
    with pytest.raises(UsageError, match="'same'"):
        simulate([same, same], ANYBODY, parallel=1, seconds=taken)
    with pytest.raises(UsageError, match="nothing to simulate"):
        simulate([], ANYBODY, parallel=1, seconds=taken)


# The page that explains it


def test_the_pictures_of_the_page_are_those_that_the_scheduler_draws() -> None:
    script = Path(__file__).parents[2] / "docs" / "draw_scheduling.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
