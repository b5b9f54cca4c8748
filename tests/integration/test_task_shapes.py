"""`Task(output=…)`: a Pydantic model, a dataclass or a schema, for every kind of worker and journal."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

import chargehand as ch


class Lamp(BaseModel):
    price: float
    colours: list[str] = []


@dataclasses.dataclass
class Light:
    price: float


SCHEMA = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


def agent(text: str) -> ch.Worker:
    return ch.Worker("finder", "Finds prices", model=ch.ScriptedModel([text] * 9))


def function(value: object) -> ch.FunctionWorker:
    @ch.worker("finder", "Finds prices")
    async def find(brief: ch.Brief) -> object:
        return value

    return find


RIGHT: dict[str, Callable[[], object]] = {
    "an LLM worker": lambda: agent('{"price": 9}'),
    "a function that returns JSON": lambda: function({"price": 9}),
    "a function that returns the model": lambda: function(Lamp(price=9)),
}
WRONG: dict[str, Callable[[], object]] = {
    "an LLM worker": lambda: agent('{"cost": 9}'),
    "a function": lambda: function({"cost": 9}),
    "a function that returns nothing": lambda: function(None),
    "a function that returns a text": lambda: function("nine"),
}


def run(worker: object, output: object, journal: str | None, limits: ch.Limits) -> ch.RunResult:
    task = ch.Task(id="t", description="Find the price of the lamp", worker="finder", output=output)
    plan = ch.Plan(goal="g", tasks=[task])
    assert ch.Plan.from_json(plan.to_json()) == plan  # it is JSON, whatever it was made of
    with_journal = {} if journal is None else {"journal": journal}
    return ch.Supervisor([worker], limits=limits, **with_journal).run_sync(plan)  # type: ignore[list-item, arg-type] # workers of several kinds


@pytest.mark.parametrize("output", [Lamp, Light, SCHEMA])
@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("kind", RIGHT)
def test_a_result_of_the_right_shape_is_taken(
    kind: str, output: object, is_durable: bool, tmp_path: Path
) -> None:
    journal = str(tmp_path / "runs.db") if is_durable else None
    result = run(RIGHT[kind](), output, journal, ch.Limits())
    assert result.status == "succeeded", result.tasks["t"].error
    assert result.output["price"] == 9


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("kind", WRONG)
def test_a_result_of_the_wrong_shape_is_a_failure_by_name(
    kind: str, is_durable: bool, tmp_path: Path
) -> None:
    journal = str(tmp_path / "runs.db") if is_durable else None
    result = run(WRONG[kind](), Lamp, journal, ch.Limits(attempts=1))
    error = result.tasks["t"].error
    assert error is not None
    assert (result.status, error.kind, error.error) == ("failed", "logic", "ResultRefused")
    assert "does not fit the schema" in error.message


@pytest.mark.parametrize("output", ["Lamp", 3, [SCHEMA], object()])
def test_what_is_no_type_is_refused_where_it_is_written(output: object) -> None:
    with pytest.raises(ch.UsageError, match="give a Pydantic model, a dataclass or a JSON schema"):
        ch.Task(id="t", description="Find the price", worker="finder", output=output)
