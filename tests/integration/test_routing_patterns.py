"""Routing in one call: the right worker, in its own words, or the expert for what is nobody's."""

import json

import pytest

import chargehand as ch
from chargehand.models.scripted import ScriptedModel
from chargehand.patterns import route


@ch.worker("cook", "Knows recipes")
async def cook(brief: ch.Brief) -> str:
    return f"cooked: {brief.task.description}"


@ch.worker("driver", "Drives people and goods")
async def driver(brief: ch.Brief) -> str:
    return f"driven: {brief.task.description}"


@ch.worker("porter", "Takes what nobody else takes")
async def porter(brief: ch.Brief) -> str:
    return f"carried: {brief.task.description}"


def choice(worker: str, task: str = "") -> str:
    return json.dumps({"worker": worker, "task": task, "why": "it says so"})


async def test_one_worker_gets_the_request_rewritten_for_it() -> None:
    model = ScriptedModel([choice("cook", "Write down a soup for four")])
    result = await route("I am hungry, we are four", [cook, driver], model=model)
    assert result.status == "succeeded"
    assert [each.worker for each in result.tasks.values()] == ["cook"]
    assert result.output == "cooked: Write down a soup for four"
    model.assert_complete()


async def test_the_default_expert_gets_what_is_clearly_nobodys_as_it_is() -> None:
    model = ScriptedModel([choice("unclear")])
    result = await route("Where is my hat?", [cook, driver], model=model, default=porter)
    assert result.output == "carried: Where is my hat?"


async def test_the_default_may_be_one_of_the_workers_by_name() -> None:
    model = ScriptedModel([choice("unclear")])
    result = await route("Where is my hat?", [cook, porter], model=model, default="porter")
    assert result.output == "carried: Where is my hat?"


async def test_without_a_default_there_is_no_unclear_case() -> None:
    model = ScriptedModel([choice("unclear"), choice("driver", "Drive the hat to the station")])
    result = await route("Where is my hat?", [cook, driver], model=model)
    assert result.output == "driven: Drive the hat to the station"
    assert model.requests[0].schema is not None
    assert model.requests[0].schema["properties"]["worker"]["enum"] == ["cook", "driver"]


async def test_a_default_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ch.UsageError, match="'nobody' is not on the roster"):
        await route("Where is my hat?", [cook], model=ScriptedModel(), default="nobody")
