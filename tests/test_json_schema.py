"""Schemas from outside: no pattern holds up the process, nothing is fetched, what is faulty is refused at once."""

import socket
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.json_schema import fault_of, faults_against
from chargehand.facts.outcome import Done, Failed
from chargehand.facts.value import Value
from chargehand.runtime.attempt_factory import _shaped
from chargehand.testing import run_virtual

SLOW = "^(a+)+$"
TRAP = "a" * 60 + "!"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DOUBLING: dict[str, Any] = {
    f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(60)
} | {"d60": {}}
DEEP: dict[str, Any] = {}
for _ in range(190):
    DEEP = {"items": DEEP}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": SLOW}, TRAP),
        ({"$schema": DRAFT_7, "pattern": SLOW}, TRAP),
        ({"items": {"$schema": DRAFT_7, "pattern": SLOW}}, [TRAP]),
        ({"$ref": "#/odd/place", "odd": {"place": {"pattern": SLOW}}}, TRAP),
        ({"propertyNames": {"pattern": SLOW}}, {TRAP: 1}),
        ({"patternProperties": {SLOW: {}}, "additionalProperties": False}, {TRAP: 1}),
        ({"patternProperties": {SLOW: {"type": "string"}}}, {"a" * 60: 1}),
        ({"not": {"pattern": SLOW}}, "a" * 60),
        ({"pattern": "a"}, "a" * 2_000_000),
    ],
)
def test_a_pattern_takes_no_more_than_linear_time(schema: dict[str, Any], value: object) -> None:
    assert fault_of(schema) is None
    assert faults_against(schema, value)


def test_a_pattern_is_searched_for_and_not_anchored() -> None:
    assert not faults_against({"pattern": "b"}, "abc")
    assert not faults_against({"pattern": SLOW}, "aaa")
    assert not faults_against({"pattern": SLOW}, 5)
    named = {"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False}
    assert not faults_against(named, {"x-1": 1})
    assert faults_against(named, {"y": 1})


FAULTY = {
    "type": ({"type": "strin"}, "strin"),
    "open group": ({"type": "string", "pattern": "("}, "unclosed group"),
    "look-around": ({"pattern": "(?=a)a"}, "look-around"),
    "back-reference": ({"pattern": r"(a)\1"}, "backreferences"),
    "huge": ({"pattern": "(((a{100}){100}){100})"}, "size limit"),
    "named": ({"patternProperties": {"(": {}}}, "unclosed group"),
    "both": ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "together"),
    "many": ({"anyOf": [{"pattern": f"a{number}"} for number in range(300)]}, "300 patterns"),
    "length": ({"minLength": "x"}, "minLength"),
    "nowhere": ({"$ref": "#/nope"}, "#/nope"),
    "no schema": ({"$ref": "#/x", "x": 5}, "no schema"),
    "odd place": ({"$ref": "#/x", "x": {"type": "strin"}}, "strin"),
    "odd pattern": ({"$ref": "#/x", "x": {"pattern": 5}}, "pattern"),
    "url": ({"$ref": "http://127.0.0.1:9/x"}, "http://127.0.0.1:9/x"),
    "within": ({"properties": {"a": {"items": {"$ref": "https://a.b/c"}}}}, "https://a.b/c"),
    "base": ({"$id": "http://a.b/", "$ref": "other"}, "other"),
    "file": ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
    "no address": ({"$ref": "http://[::1"}, "http://[::1"),
    "dynamic": ({"$dynamicRef": "http://a.b/#n"}, "http://a.b/#n"),
    "deep": (DEEP, "too deeply"),
}


@pytest.mark.parametrize(("schema", "said"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_schema_is_a_fault_of_the_plan(
    schema: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    worked: list[str] = []

    @ch.worker("clerk", "Looks things up")
    async def clerk(brief: ch.Brief) -> str:
        worked.append(brief.task.id)
        return "fine"

    task = ch.Task(id="odd", description="Find the price", worker="clerk", output=schema)
    plan = ch.Plan(goal="Prices", tasks=[task])
    with pytest.raises(PlanRefused, match="task 'odd'") as refused:
        run_virtual(ch.Supervisor([clerk]).run(plan))
    assert said in str(refused.value)
    assert [fault.kind for fault in refused.value.faults] == ["bad_output"]
    with pytest.raises(UsageError, match="output"):
        run_virtual(ch.Supervisor([clerk]).run("Prices", output=schema))
    assert not worked
    # As a journal from before may hold it: said to be the schema's fault, and not the worker's.
    ended = _shaped(Done(Value.of("fine")), schema)
    assert isinstance(ended, Failed)
    assert "The schema of the task is faulty" in ended.message


def test_data_that_looks_like_a_reference_is_none() -> None:
    there = {"$ref": "http://127.0.0.1:9/x"}
    schemas: list[dict[str, Any]] = [{"const": there}, {"enum": [there]}]
    for schema in [*schemas, {"properties": {"$ref": {}}}]:
        assert not faults_against(schema, there)
    own = {"$defs": {"a": {"$id": "http://a.b/c", "$anchor": "q", "type": "string"}}}
    assert faults_against({**own, "$ref": "http://a.b/c#q"}, 5)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"type": "object"}, {"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_without_end_is_a_fault_before_anything_starts(schema: dict[str, Any]) -> None:
    assert fault_of(schema) == "the schema refers to itself without end; end it with a choice"


def test_a_schema_that_refers_to_itself_for_a_part_is_fine() -> None:
    assert (
        fault_of({"properties": {"a": {"$ref": "#"}}, "allOf": [{"items": {"$ref": "#"}}]}) is None
    )


def test_a_function_is_no_type_of_an_answer() -> None:
    with pytest.raises(UsageError, match="a value, not a type"):
        ch.Task(id="t", description="Add", worker="w", output=lambda text: text)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": DOUBLING, "$ref": "#/$defs/d0"},
    ],
)
def test_a_schema_that_refers_to_itself_without_end_ends(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="refers to itself"):
        faults_against(schema, 1)


def test_a_large_value_may_follow_many_references() -> None:
    schema = {"items": {"$ref": "#/$defs/i"}, "$defs": {"i": {"type": "integer"}}}
    assert not faults_against(schema, [1] * 12_000)
