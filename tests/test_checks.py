"""What callers hand in is converted once, or refused in words that name the argument."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chargehand as ch
from chargehand.errors import UnknownKeyword
from chargehand.facts import argument_checks as checks
from chargehand.facts import events
from chargehand.journal import hash_chain as chain
from chargehand.journal.open_journal import open_journal

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


OLD = {
    "a negative deadline": ('"deadline":"-P1D"', "deadline", timedelta(0)),
    "an absurd deadline": ('"deadline":"P999999999D"', "deadline", checks.LONGEST),
    "a number": ('"expect":1e300', "expect", checks.LONGEST),
    "an absurd priority": ('"priority":9999999999', "priority", checks.MOST_PRIORITY),
    "a timeout of nothing": (
        '"limits":{"timeout":"PT0S"}',
        "limits",
        ch.TaskLimits(timeout=timedelta.resolution),
    ),
    "debts": ('"limits":{"money":-1.5,"tokens":-7}', "limits", ch.TaskLimits(money=0, tokens=0)),
    "endless patience": (
        '"on_failure":{"steps":["ask"],"patience":"P999999999D"}',
        "on_failure",
        ch.OnFailure("ask", patience=checks.LONGEST),
    ),
}


@pytest.mark.parametrize("name", OLD)
async def test_j2_what_was_stored_under_wider_bounds_is_read_within_todays(
    name: str, tmp_path: Path
) -> None:
    """The border refuses it now; a journal that holds it opens, is whole and tells what was meant."""
    written, field, meant = OLD[name]
    task = f'{{"id":"t","description":"Do it","worker":"w",{written}}}'
    plan = f'{{"goal":"g","tasks":[{task}]}}'
    with pytest.raises(ch.UsageError):
        ch.Plan.from_json(plan)
    adopted = '{"kind":"PlanAdopted","at":"2026-01-01T00:00:00Z","plan":%s}'
    event = events.decode((adopted % plan).encode())
    assert isinstance(event, events.PlanAdopted)
    assert getattr(event.plan.tasks[0], field) == meant
    with pytest.raises(ch.UsageError):
        ch.Plan.from_json(plan)  # at the border as before

    path = tmp_path / "runs.db"
    journal = open_journal(path)
    epoch = await journal.leases.lead("r1")
    plain_plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="Do it", worker="w")])
    with pytest.MonkeyPatch.context() as patch:  # as a version without these bounds wrote it
        patch.setattr(chain, "encode", lambda _: (adopted % plan).encode())
        await journal.append("r1", [events.PlanAdopted(plan=plain_plan, at=event.at)], epoch=epoch)
    await journal.close()
    journal = open_journal(path)
    assert [entry.event async for entry in journal.read("r1")] == [event]
    await journal.close()


@pytest.mark.parametrize("given", [True, 1.5, "1", 10**7, -(10**7), 10**400, None, object()])
def test_j1_priorities_are_whole_numbers_within_bounds(given: Any) -> None:
    with pytest.raises(ch.UsageError, match="priority"):
        ch.Task(id="t", description="d", priority=given)
