"""What callers hand in is converted once, or refused in words that name the argument."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chargehand as ch
from chargehand.errors import UnknownKeyword
from chargehand.facts import checks

NO_DURATIONS = [
    True,
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    timedelta(seconds=-1),
    timedelta.max,
    timedelta.min,
    10**30,
    "5s",
    b"5",
    None,
    [],
    object(),
]

TAKES_DURATION: dict[str, Callable[[object], object]] = {
    "Task deadline": lambda x: ch.Task(id="t", description="d", deadline=x),  # type: ignore[arg-type]  # hostile on purpose
    "Task expect": lambda x: ch.Task(id="t", description="d", expect=x),  # type: ignore[arg-type]  # likewise
    "TaskLimits timeout": lambda x: ch.TaskLimits(timeout=x),  # type: ignore[arg-type]  # likewise
    "Limits deadline": lambda x: ch.Limits(deadline=x),  # type: ignore[arg-type]  # likewise
    "Limits active": lambda x: ch.Limits(active=x),  # type: ignore[arg-type]  # likewise
    "Limits grace": lambda x: ch.Limits(grace=x),  # type: ignore[arg-type]  # likewise
    "Worker timeout": lambda x: ch.Worker("w", "Works", timeout=x),  # type: ignore[arg-type]  # likewise
    "worker timeout": lambda x: ch.worker("w", "Works", timeout=x)(print),  # type: ignore[arg-type]  # likewise
    "Elastic period": lambda x: ch.Elastic(period=x),  # type: ignore[arg-type]  # likewise
    "RetryPolicy cap": lambda x: ch.RetryPolicy(cap=x),  # type: ignore[arg-type]  # likewise
    "OnFailure patience": lambda x: ch.OnFailure(patience=x),  # type: ignore[arg-type]  # likewise
}


NOT_OPTIONAL = ("Limits active", "Limits grace", "Elastic period", "RetryPolicy cap")


def test_what_is_no_duration_is_refused() -> None:
    for value in NO_DURATIONS:
        with pytest.raises(ch.UsageError, match="patience"):
            checks.duration(value, "patience")


@pytest.mark.parametrize("place", TAKES_DURATION)
def test_every_value_that_takes_a_duration_refuses_what_is_none(place: str) -> None:
    """And its message names the argument."""
    for value in NO_DURATIONS:
        if value is not None or place in NOT_OPTIONAL:
            with pytest.raises(ch.UsageError, match=place.split()[1]):
                TAKES_DURATION[place](value)


def test_numbers_mean_seconds() -> None:
    task = ch.Task(id="t", description="d", deadline=5, limits=ch.TaskLimits(timeout=0.5))
    assert task.deadline == timedelta(seconds=5)
    assert task.limits.timeout == timedelta(seconds=0.5)
    assert ch.Limits(deadline=60).deadline == timedelta(minutes=1)
    assert ch.OnFailure("ask", patience=60).patience == timedelta(minutes=1)


def test_numbers_mean_seconds_in_a_plan_of_json_too() -> None:
    plan = ch.Plan.from_json(
        b'{"goal": "g", "tasks": [{"id": "t", "description": "d", "worker": "w", "deadline": 90}]}'
    )
    assert plan.tasks[0].deadline == timedelta(seconds=90)
    assert ch.Plan.from_json(plan.to_json()) == plan


@given(st.one_of(st.floats(), st.integers(), st.timedeltas()))
def test_a_duration_that_passes_can_be_added_to_the_present_and_stored(
    value: float | timedelta,
) -> None:
    try:
        task = ch.Task(id="t", description="d", worker="w", deadline=value)
    except ch.UsageError:
        return
    plan = ch.Plan(goal="g", tasks=[task])
    assert ch.Plan.from_json(plan.to_json()) == plan
    assert checks.duration(value, "x", may_be_zero=True) <= checks.LONGEST


@pytest.mark.parametrize("value", [True, 1.5, "3", None, -1, 2**60, float("nan"), object()])
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(ch.UsageError, match="size"):
        checks.count(value, "size")


@pytest.mark.parametrize("value", ["", " ", "a\nb", "a\0", "\ud800", "x" * 201, 5, None, b"x"])
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ch.UsageError, match="label"):
        checks.name(value, "label")


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_a_text_that_passes_can_be_written(value: str) -> None:
    if any("\ud800" <= each <= "\udfff" for each in value):
        with pytest.raises(ch.UsageError, match="surrogate"):
            checks.text(value, "note")
    else:
        assert checks.text(value, "note").encode().decode() == value


@pytest.mark.parametrize(
    ("call", "keyword", "nearest"),
    [
        (lambda: ch.Limits(dedline=5), "dedline", "deadline"),  # type: ignore[call-arg]  # on purpose
        (lambda: ch.TaskLimits(timout=5), "timout", "timeout"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.Task(id="t", description="d", need=[]), "need", "needs"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.Plan(goal="g", task=[]), "task", "tasks"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.Need("t", outputs="x"), "outputs", "output"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.Worker("w", "Works", tmeout=5), "tmeout", "timeout"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.worker("w", "Works", capcity=5), "capcity", "capacity"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.tool(effct="pure"), "effct", "effect"),  # type: ignore[call-overload]  # likewise
        (lambda: ch.Supervisor([], paralel=3), "paralel", "parallel"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.RetryPolicy(frst=3), "frst", "first"),  # type: ignore[call-arg]  # likewise
        (lambda: ch.Elastic(leats=3), "leats", "least"),  # type: ignore[call-arg]  # likewise
        (
            lambda: ch.Supervisor([]).run_sync("Do it", dedline=5),  # type: ignore[call-arg]  # likewise
            "dedline",
            "deadline",
        ),
        (lambda: ch.OnFailure(step="fail"), "step", "steps"),  # type: ignore[call-arg]  # likewise
    ],
)
def test_unknown_keywords_are_refused_with_a_suggestion(
    call: Callable[[], object], keyword: str, nearest: str
) -> None:
    with pytest.raises(UnknownKeyword, match=f"did you mean '{nearest}'") as caught:
        call()
    assert caught.value.keyword == keyword
    assert isinstance(caught.value, TypeError)
