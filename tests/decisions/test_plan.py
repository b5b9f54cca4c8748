"""Plans: what is refused, and that nothing anybody writes breaks the check."""

import json
import os
import string
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.limits import Limits
from chargehand.facts.plan import FAULTS, Need, Plan, Task, find_cycle, is_vague
from tests.decisions.virtual_kernel import seconds, tasks_of

SCALE = int(os.environ.get("CHAOS_SCALE", "1"))

IDS = st.sampled_from(["a", "b", "c", "d", "e", "@plan", "", "no good", "x" * 101])
NEEDS = st.one_of(IDS, st.builds(Need, IDS, st.booleans(), st.sampled_from(["", "k.l"]), IDS))
TASKS = st.builds(
    Task,
    id=IDS,
    description=st.sampled_from(["write the report", "", "  ", "do it", "handle everything"]),
    worker=st.sampled_from(["", "ann", "bob"]),
    skill=st.sampled_from(["", "write"]),
    needs=st.lists(NEEDS, max_size=4),
    args=st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    optional=st.booleans(),
    priority=st.integers(-9, 9),
    deadline=st.one_of(st.none(), st.integers(0, 9).map(seconds)),
)
PLANS = st.builds(Plan, goal=st.text(max_size=9), tasks=st.lists(TASKS, max_size=7))


@settings(max_examples=200 * SCALE)
@given(plan=PLANS, roster=st.one_of(st.none(), st.just(["ann", "write"])))
def test_e3_the_check_of_any_plan_names_its_faults_and_never_breaks(
    plan: Plan, roster: list[str] | None
) -> None:
    check = plan.check(roster, Limits(tasks=5))
    assert {fault.kind for fault in (*check.faults, *check.warnings)} <= set(FAULTS)
    ids = [task.id for task in plan.tasks]
    if check:
        assert ids
        assert len(ids) == len(set(ids)) <= 5
        assert all(need.task in ids for task in plan.tasks for need in task.all_needs)
    else:
        with pytest.raises(PlanRefused):
            plan.refuse_faults(roster, Limits(tasks=5))
    plan.to_mermaid()


@given(plan=PLANS)
def test_a_plan_survives_the_way_through_json(plan: Plan) -> None:
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest
    assert Plan.from_json(plan.to_json(indent=None)) == plan


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(string.printable, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=200 * SCALE)
@given(text=st.one_of(st.text(), JSON.map(json.dumps), st.binary()))
def test_e3_what_is_no_plan_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(UsageError):
        Plan.from_json(text)


@settings(max_examples=200 * SCALE)
@given(plan=PLANS, data=st.data())
def test_e3_a_damaged_plan_is_read_or_refused(plan: Plan, data: st.DataObject) -> None:
    text = bytearray(plan.to_json(indent=None).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UsageError):
        Plan.from_json(bytes(text)).check()


# cycles


@given(edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_a_cycle_is_found_if_and_only_if_there_is_one(edges: list[tuple[int, int]]) -> None:
    needs: dict[int, set[int]] = {place: set() for place in range(7)}
    for task, need in edges:
        if task != need:
            needs[task].add(need)
    tasks = [
        Task(id=str(task), description="d", worker="w", needs=[str(n) for n in sorted(upstream)])
        for task, upstream in needs.items()
    ]
    cycle = find_cycle(tasks)
    assert bool(cycle) == any(_reaches_itself(needs, task) for task in needs)
    if cycle:
        assert len(cycle) == len(set(cycle))
        for before, id_ in zip([cycle[-1], *cycle], cycle, strict=False):
            assert int(before) in needs[int(id_)], "each needs the one before it"


def _reaches_itself(needs: dict[int, set[int]], start: int) -> bool:
    reached = set(needs[start])
    for _ in needs:
        reached |= {further for task in reached for further in needs[task]}
    return start in reached


@pytest.mark.parametrize(
    ("tasks", "kind"),
    [
        ([], "no_tasks"),
        (tasks_of("a") * 2, "duplicate_id"),
        (tasks_of("bad!"), "bad_id"),
        (tasks_of("a", a={"worker": ""}), "no_worker"),
        (tasks_of("a", a={"worker": "nobody"}), "unknown_worker"),
        (tasks_of("a -> b")[1:], "dangling_need"),
        (tasks_of("a -> a"), "self_need"),
        (tasks_of("a -> b, a -> b"), "duplicate_need"),
        (tasks_of("a -> b -> c -> a"), "cycle"),
        (tasks_of(",".join(f" t{n}" for n in range(201))), "too_many_tasks"),
    ],
)
def test_each_fault_is_named(tasks: list[Task], kind: str) -> None:
    check = Plan(goal="g", tasks=tasks).check(["ann"])
    assert kind in {fault.kind for fault in check.faults}


def test_a_vague_task_is_a_warning_and_an_empty_one_a_fault() -> None:
    vague = Plan(goal="g", tasks=[Task(id="a", description="do it", worker="w")]).check()
    assert bool(vague)
    assert [warning.kind for warning in vague.warnings] == ["vague"]
    assert not Plan(goal="g", tasks=[Task(id="a", description=" ", worker="w")]).check()


@pytest.mark.parametrize(
    "text", ["Please handle this.", "fix everything", "Continue", "just do it"]
)
def test_a_description_that_nobody_could_check_is_vague(text: str) -> None:
    assert is_vague(text)


@pytest.mark.parametrize("text", ["Fix the typo in line 3", "List all ports", "Continue at row 7"])
def test_a_description_that_names_its_result_is_not(text: str) -> None:
    assert not is_vague(text)


def test_an_id_that_is_too_long_is_cut_in_its_fault() -> None:
    plan = Plan(goal="g", tasks=[Task(id="x" * 10_000, description="d", worker="w")])
    with pytest.raises(PlanRefused, match="an id is 1 to 100 letters") as refused:
        plan.refuse_faults()
    assert len(str(refused.value)) < 1_000
