"""An output that fits the JSON schema of a type, but not the type, is no result."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

import chargehand as ch
from chargehand.facts.output_schema import shape_of, type_faults
from tests.guide.conftest import make_plan, make_task


class Sum(BaseModel):
    amount: Decimal


class Due(BaseModel):
    amount: date


class Paid(BaseModel):
    amount: float

    @field_validator("amount")
    @classmethod
    def is_paid(cls, amount: float) -> float:
        if amount < 0:
            raise ValueError("must not be negative")
        return amount


CASES = [
    (Sum, "1,600.00", 1600, "valid decimal"),
    (Due, "15.10.2026", "2026-10-15", "valid date"),
    (Paid, -5, 5, "must not be negative"),
]


def said(amount: Any) -> str:
    told = {"answer": {"amount": amount}, "claims": [], "contradictions": [], "confidence": 1.0}
    return json.dumps(told)


@ch.worker("clerk", "Works")
async def clerk(_: ch.Brief) -> int:
    return 1


@pytest.mark.parametrize(("output", "bad", "good", "fault"), CASES)
async def test_the_model_is_told_what_the_type_of_the_answer_refuses(
    output: type[BaseModel], bad: Any, good: Any, fault: str
) -> None:
    model = ch.ScriptedModel([said(bad), said(good)])
    boss = ch.Supervisor([clerk], model=model)
    result = await boss.run(make_plan(make_task("a", "clerk")), output=output)
    assert (result.status, len(model.requests)) == ("succeeded", 2)
    assert fault in model.requests[1].turns[-1].text
    assert isinstance(result.output, output)


@pytest.mark.parametrize(("output", "bad", "good", "fault"), CASES)
async def test_a_task_whose_result_its_type_refuses_fails(
    output: type[BaseModel], bad: Any, good: Any, fault: str
) -> None:
    for amount, state in ((bad, "failed"), (good, "done")):

        @ch.worker("reporter", "Reports")
        async def report(_: ch.Brief, amount: Any = amount) -> dict[str, Any]:
            return {"amount": amount}

        task = ch.Task(id="a", description="Report it", worker="reporter", output=output)
        result = await ch.Supervisor([report]).run(ch.Plan(goal="Report", tasks=[task]))
        assert result.tasks["a"].state == state
        assert state == "done" or fault in str(result.tasks["a"].error)


async def test_a_run_resumed_for_another_type_says_where_its_answer_is() -> None:
    boss = ch.Supervisor([clerk], model=ch.ScriptedModel([said(5)]))
    async with boss:
        run = await boss.submit(make_plan(make_task("a", "clerk")), output=Paid)
        await run.wait()
        again = await boss.resume(run.id, output=list[int])
        with pytest.raises(ch.UsageError, match=r"does not fit .*result\.answer\.output"):
            _ = again.output


def test_a_value_of_any_type_with_the_same_schema_is_taken() -> None:
    class Count(BaseModel):
        value: float

        @field_validator("value")
        @classmethod
        def is_count(cls, value: float) -> float:
            if value < 0:
                raise ZeroDivisionError("below 0")
            return value

    strict = Count

    def lax() -> type[BaseModel]:
        class Count(BaseModel):
            value: float

        return Count

    schema = shape_of(strict)
    assert schema is not None
    assert type_faults(schema, {"value": -1}) == ["ZeroDivisionError: below 0"]
    assert shape_of(lax()) == schema
    assert not type_faults(schema, {"value": -1})
