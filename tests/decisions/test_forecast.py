"""The forecast: many simulations of one plan, and what they tell."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.decisions import plan_forecast
from chargehand.decisions.dispatch import Place, Starts
from chargehand.decisions.plan_forecast import (
    GUESS,
    Forecast,
    Outlook,
    Range,
    forecast,
    places_for,
)
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.events import Pace
from chargehand.facts.plan import Plan, Task


def task(id_: str, worker: str = "hand", needs: Iterable[str] = (), **more: object) -> Task:
    return Task(id=id_, description="Do it well", worker=worker, needs=list(needs), **more)  # type: ignore[arg-type]  # spelled by each test


def plan(*tasks: Task) -> Plan:
    return Plan(goal="See what it takes", tasks=tasks)


def exactly(**seconds: float) -> Outlook:
    return Outlook(given={worker: Range(each, each) for worker, each in seconds.items()})


def paced(count: int = 100, **seconds: float) -> Mapping[str, Pace]:
    return {worker: Pace(count, timedelta(seconds=each)) for worker, each in seconds.items()}


def told(plan: Plan, outlook: Outlook, *, parallel: int = 4, runs: int = 60) -> Forecast:
    return forecast(plan, places_for(plan), parallel=parallel, outlook=outlook, runs=runs)


FAN = plan(*(task(f"t{n}") for n in range(6)), task("end", needs=[f"t{n}" for n in range(6)]))


def test_certain_lengths_give_a_certain_end() -> None:
    sure = told(FAN, exactly(hand=10), parallel=3)
    assert sure.p50 == sure.p95 == timedelta(seconds=30)
    assert sure.work == timedelta(seconds=70)
    assert sure.speedup == pytest.approx(70 / 30)
    assert sure.utilisation == pytest.approx(70 / 90)


def test_a_range_lies_between_its_bounds() -> None:
    one = plan(task("only"))
    within = told(one, Outlook(given={"hand": Range(5, 9)}))
    assert timedelta(seconds=5) <= within.p50 < within.p95 <= timedelta(seconds=9)


def test_past_runs_give_lengths_around_their_mean() -> None:
    one = plan(task("only"))
    around = told(one, Outlook(paces=paced(hand=10)), runs=2000)
    assert around.work.total_seconds() == pytest.approx(10, rel=0.1)
    assert around.p50 < around.work < around.p95


def test_few_past_attempts_make_the_end_less_certain() -> None:
    many = plan(*(task(f"t{n}", needs=[f"t{n - 1}"] if n else []) for n in range(20)))
    sure = told(many, Outlook(paces=paced(200, hand=10)), runs=300)
    vague = told(many, Outlook(paces=paced(1, hand=10)), runs=300)
    assert vague.p95 - vague.p50 > 1.5 * (sure.p95 - sure.p50)


def test_what_somebody_says_beats_what_the_task_expects_beats_what_was_learned() -> None:
    one = plan(task("only", expect=timedelta(seconds=1000)))
    assert told(one, exactly(hand=3)).p50 == timedelta(seconds=3)
    assert told(one, Outlook(paces=paced(hand=10))).p50 > timedelta(seconds=200)


def test_a_skill_is_as_quick_as_those_who_have_it() -> None:
    able = [Place(worker="ann", skills=("sums",)), Place(worker="ben", skills=("sums",))]
    one = plan(Task(id="only", description="Add it up", skill="sums"))
    outlook = Outlook(paces=paced(ann=10, ben=30))
    skilled = forecast(one, able, parallel=2, outlook=outlook, runs=2000)
    assert skilled.work.total_seconds() == pytest.approx(20, rel=0.1)
    assert skilled.guessed == ()


def test_what_nobody_knows_is_guessed_and_said() -> None:
    both = plan(task("a"), task("b", "stranger"), task("c", "stranger"))
    guessing = told(both, exactly(hand=1), runs=1000)
    assert guessing.guessed == ("stranger",)
    assert guessing.work.total_seconds() == pytest.approx(1 + 2 * GUESS, rel=0.1)


def test_the_same_seed_gives_the_same_forecast_and_another_another() -> None:
    outlook = Outlook(paces=paced(hand=10))
    assert told(FAN, outlook) == told(FAN, outlook)
    other = forecast(FAN, places_for(FAN), parallel=4, outlook=outlook, runs=60, seed=2)
    assert other.p50 != told(FAN, outlook).p50


def test_a_plan_of_very_many_items_is_simulated_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_forecast, "MOST_SIMULATED", 8_000)
    each = Task(id="each", description="Do it", worker="w", for_each=[0] * 1_500)
    plan = Plan(goal="items", tasks=[each])
    told = forecast(plan, [Place(worker="w")], parallel=8, outlook=Outlook())
    assert told.runs == 5
    assert len(told.sweep) < 10, "not every size is tried"


def test_money_is_counted_where_it_is_known() -> None:
    both = plan(task("a"), task("b"), task("c", "dear"))
    known = told(both, Outlook(prices={"hand": 0.25, "dear": 2.0}))
    assert (known.cost, known.unpriced) == (2.5, ())
    half = told(both, Outlook(prices={"hand": 0.25}))
    assert (half.cost, half.unpriced) == (0.5, ("dear",))


def test_the_critical_path_says_how_often_the_end_waited_for_a_task() -> None:
    pair = plan(task("long", "slow"), task("short"), task("end", needs=["long", "short"]))
    always = told(pair, exactly(slow=10, hand=1))
    assert always.critical == {"long": 1.0, "end": 1.0}
    sometimes = told(pair, Outlook(given={"slow": Range(0, 10), "hand": Range(0, 10)}))
    assert sometimes.critical["end"] == 1.0
    assert 0.2 < sometimes.critical["short"] < 0.8


def test_the_best_pool_is_the_smallest_that_ends_as_soon_as_any() -> None:
    """Six equal tasks take as long on three places as on five: two rounds."""
    fan = told(FAN, exactly(hand=10))
    assert [level.parallel for level in fan.sweep] == [1, 2, 3, 4, 6]
    assert [level.p50.total_seconds() for level in fan.sweep] == [70, 40, 30, 30, 20]
    assert fan.best == 6
    chain = plan(task("a"), task("b", needs=["a"]), task("c", needs=["b"]))
    assert told(chain, exactly(hand=10)).best == 1


def test_the_sweep_asks_for_no_more_places_than_there_is_use_for() -> None:
    chain = plan(*(task(f"t{n}", needs=[f"t{n - 1}"] if n else []) for n in range(9)))
    assert [level.parallel for level in told(chain, exactly(hand=1)).sweep] == [1]


def test_a_worker_that_takes_one_at_a_time_limits_the_best_pool() -> None:
    narrow = [Place(worker="hand", capacity=1)]
    limited = forecast(FAN, narrow, parallel=8, outlook=exactly(hand=10), runs=3)
    assert (limited.p50, limited.best) == (timedelta(seconds=70), 1)


def test_a_rate_of_starts_holds_the_forecast_back() -> None:
    slow = Starts(a_minute=6)
    gated = forecast(FAN, places_for(FAN), parallel=8, outlook=exactly(hand=1), runs=3, starts=slow)
    assert gated.p50.total_seconds() == pytest.approx(61, abs=0.1)


def test_the_typical_run_is_the_one_in_the_middle() -> None:
    middle = told(FAN, Outlook(paces=paced(hand=10)))
    assert middle.typical.makespan == middle.p50
    assert {span.task for span in middle.typical.spans} == {each.id for each in FAN.tasks}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(0, 1000),
)
def test_whatever_the_plan_the_figures_fit_each_other(
    drawn: list[tuple[int, int]], parallel: int, seed: int
) -> None:
    tasks = [
        task(f"t{n}", needs=[f"t{need % n}"] if n and need < 7 else [])
        for n, (need, _) in enumerate(drawn)
    ]
    seen = forecast(
        plan(*tasks),
        [Place(worker="hand")],
        parallel=parallel,
        outlook=Outlook(paces=paced(hand=5)),
        runs=5,
        seed=seed,
    )
    assert timedelta(0) < seen.p50 <= seen.p95
    assert 0 < seen.utilisation <= 1 + 1e-9
    assert all(0 < share <= 1 for share in seen.critical.values())
    assert seen.best in {level.parallel for level in seen.sweep}
    assert seen.sweep[0].parallel == 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="the smaller first"):
        Range(9, 5)
    with pytest.raises(UsageError, match="runs=0"):
        told(FAN, Outlook(), runs=0)
    with pytest.raises(PlanRefused, match="stranger"):
        forecast(plan(task("a", "stranger")), [], parallel=1, outlook=Outlook())
