"""A plan is data: it can be checked, saved, edited, drawn."""

import json

import jsonschema
import pytest

import chargehand as ch
from tests.guide.conftest import make_plan, make_task


@ch.worker("writer", "Writes texts")
async def write(brief: ch.Brief) -> str:
    return "text"


def test_a_plan_survives_being_saved_and_read() -> None:
    plan = make_plan(
        make_task("a", "writer"), make_task("b", "writer", ch.Need("a", optional=True))
    )
    assert ch.Plan.from_json(plan.to_json()) == plan


def test_a_plan_written_by_hand_may_name_its_needs_by_id() -> None:
    text = """{"goal": "A letter", "tasks": [
        {"id": "draft", "description": "Draft a letter to the landlord", "worker": "writer"},
        {"id": "final", "description": "Polish the draft", "worker": "writer", "needs": ["draft"]}
    ]}"""
    assert ch.Plan.from_json(text).tasks[1].needs == (ch.Need("draft"),)


def test_every_fault_is_named_at_once_with_the_task_it_is_in() -> None:
    plan = make_plan(
        make_task("a", "writer", "b"),
        make_task("b", "writer", "a"),
        make_task("c", "painter"),
        make_task("c", "writer", "nowhere"),
        ch.Task(id="d", description=" ", worker="writer", needs=["d"]),
    )
    faults = {(fault.kind, fault.task) for fault in plan.check({"writer"}).faults}
    assert faults == {
        ("cycle", "b"),
        ("unknown_worker", "c"),
        ("duplicate_id", "c"),
        ("dangling_need", "c"),
        ("empty_description", "d"),
        ("self_need", "d"),
    }


async def test_a_faulty_plan_is_refused_before_anything_starts() -> None:
    plan = make_plan(make_task("a", "writer", "b"), make_task("b", "writer", "a"))
    async with ch.Supervisor([write]) as boss:
        with pytest.raises(ch.PlanRefused, match="in a circle: b → a → b"):
            await boss.run(plan)


async def test_more_tasks_than_the_cap_are_refused_with_the_figure() -> None:
    plan = make_plan(*(make_task(f"t{n}", "writer") for n in range(201)))
    async with ch.Supervisor([write]) as boss:
        with pytest.raises(ch.PlanRefused, match="201 tasks are more than the cap of 200"):
            await boss.run(plan)


def test_a_vague_description_is_a_warning() -> None:
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Handle it", worker="writer")])
    check = plan.check({"writer"})
    assert check
    assert [warning.kind for warning in check.warnings] == ["vague"]


def test_plans_have_a_published_json_schema() -> None:
    plan = make_plan(make_task("a", "writer"), make_task("b", "writer", "a"))
    jsonschema.validate(json.loads(plan.to_json()), ch.Plan.json_schema())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "truncated"),
        ('{"goal": "g"}', "tasks"),
        ('{"goal": "g", "tasks": [{"id": "a", "description": "x", "need": ["b"]}]}', "need"),
        (
            '{"goal": "g", "tasks": [{"id": "a", "description": "x", "limits": {"attempts": 0}}]}',
            "attempts",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(ch.UsageError, match=words):
        ch.Plan.from_json(text)


def test_a_plan_can_be_drawn() -> None:
    plan = make_plan(
        make_task("a", "writer"), make_task("b", "writer", ch.Need("a", optional=True))
    )
    assert plan.to_mermaid() == (
        "flowchart LR\n"
        '    n0["a: Produce the result of a"]\n'
        '    n1["b: Produce the result of b"]\n'
        "    n0 -.-> n1\n"
    )
