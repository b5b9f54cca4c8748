"""All faults of a file are told at once, each with its place in words and what was probably meant."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct

import chargehand as ch
from chargehand.evaluation.suite_file import load_suite
from chargehand.facts.form_faults import MOST, form_faults, place_in_plan


def test_a_plan_tells_every_fault() -> None:
    tasks = [
        {"id": "a", "descripton": "Do the a", "wroker": "a"},
        {
            "id": "b",
            "description": 7,
            "needs": ["a", {"tsk": "a"}, 3],
            "limits": {"calls": "x", "cals": 1},
        },
    ]
    with pytest.raises(ch.UsageError) as refused:
        ch.Plan.from_json(json.dumps({"gaol": "g", "tasks": tasks}))
    head, *lines = str(refused.value).split("\n  - ")
    assert head == "this is not a plan; it has 8 faults:"
    told = [line.partition("; the keys are")[0].partition(" the keys are")[0] for line in lines]
    assert told == [
        "task 1 ('a'), descripton: is not a known key; did you mean 'description'?",
        "task 1 ('a'), wroker: is not a known key; did you mean 'worker'?",
        "task 2 ('b'), description: must be str, not 7",
        "task 2 ('b'), needs item 2 tsk: is not a known key; did you mean 'task'?",
        "task 2 ('b'), needs item 3: must be str | object, not 3",
        "task 2 ('b'), limits calls: must be int | null, not 'x'",
        "task 2 ('b'), limits cals: is not a known key; did you mean 'calls'?",
        "the plan, gaol: is not a known key; did you mean 'goal'?",
    ]


def test_a_suite_tells_every_fault(tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text(
        '[suite]\nrepeat = 2\n[gate]\nrigth = { min = 1 }\n[[case]]\nid = "a"\nrequst = "x"\n'
        "checks = { number = { valu = 3 } }\n"
    )
    with pytest.raises(ch.UsageError) as refused:
        load_suite(suite)
    told = str(refused.value)
    assert "has 4 faults" in told
    for words in (
        "[suite], repeat: is not a known key; did you mean 'repeats'?",
        "[[case]] 1 ('a'), requst: is not a known key; did you mean 'request'?",
        "[[case]] 1 ('a'), checks number valu: is not a known key; did you mean 'value'?",
        "[gate], rigth: is not a known key; did you mean 'right'?",
    ):
        assert words in told


class Lamp(Struct, forbid_unknown_fields=True):
    price: int
    colours: list[str] = []

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("price must not be below 0")


def test_what_a_form_checks_itself_is_told_at_its_place() -> None:
    lamps = [{"price": 1}, {"price": -1}, {"price": "x", "colours": ["red", 2]}]
    assert form_faults(lamps, list[Lamp], place_in_plan) == [
        "the plan, item 2: price must not be below 0",
        "the plan, item 3 price: must be int, not 'x'",
        "the plan, item 3 colours item 2: must be str, not 2",
    ]


def test_what_is_no_length_of_time_is_told_how_one_is_written() -> None:
    task = {"id": "a", "description": "b", "worker": "w", "deadline": "soon"}
    with pytest.raises(ch.UsageError, match=r'must be seconds, or a duration such as "PT90S", not'):
        ch.Plan.from_json(json.dumps({"goal": "x", "tasks": [task]}))
    for fine in (90, "PT90S"):
        text = json.dumps({"goal": "x", "tasks": [task | {"deadline": fine}]})
        assert ch.Plan.from_json(text).tasks[0].deadline == timedelta(seconds=90)


def test_of_very_many_faults_the_first_are_told() -> None:
    told = form_faults([{}] * 10_000, list[Lamp], place_in_plan)
    assert (len(told), told[-1]) == (MOST + 1, "and more")


def test_a_key_that_is_given_twice_is_told_at_its_place() -> None:
    task = (
        '{"id": "t", "id": "s", "description": "d", "worker": "w", "args": {"a": {"x": 1, "x": 2}}}'
    )
    with pytest.raises(ch.UsageError) as told:
        ch.Plan.from_json(f'{{"goal": "g", "goal": "h", "tasks": [{task}]}}')
    assert str(told.value).splitlines() == [
        "this plan has 3 faults:",
        "  - the plan, goal: is given twice; a key may be there only once",
        "  - task 1 ('s'), id: is given twice; a key may be there only once",
        "  - task 1 ('s'), args a x: is given twice; a key may be there only once",
    ]


def test_a_key_that_is_given_twice_may_hide_another() -> None:
    with pytest.raises(ch.UsageError, match="has 1 fault"):
        ch.Plan.from_json('{"goal": "g", "tasks": [{"id": 1, "id": 1}], "tasks": []}')
