"""Half characters in what models write: U+FFFD stands for them wherever they come in, and no run breaks."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import chargehand as ch
from chargehand.facts.lone_surrogates import without_escaped_surrogates, without_surrogates
from chargehand.models.base import ModelRequest, ToolCall, user
from chargehand.models.gateway import ModelGateway
from chargehand.models.tool_call_emulation import read_form
from chargehand.roles.json_reply_check import decoded, objection_to
from chargehand.roles.partial_json import PartialJson
from chargehand.testing.model_server import DIALECTS, Body, Say, model_server
from tests.guide.conftest import make_plan, make_task
from tests.integration.test_model_faults import asked, opened, streamed

HALF, WHOLE = r"\ud83d", "\N{REPLACEMENT CHARACTER}"
TEXTS = {
    r'"\ud800"': WHOLE,
    r'"\uDFFF!"': f"{WHOLE}!",
    r'"\ud800\ud800"': WHOLE * 2,
    r'"\udc00\ud800"': WHOLE * 2,
    r'"\ud83d\ude00"': "😀",
    r'"\ud83d\ud83d\ude00"': f"{WHOLE}😀",
    r'"\\ud800"': r"\ud800",
    r'"\\\ud800"': f"\\{WHOLE}",
    r'"\u00e9\ud800"': f"é{WHOLE}",
    '"\ud800"': WHOLE,
}


@dataclass
class Page:
    title: str


@pytest.mark.parametrize("text", TEXTS)
def test_half_a_character_is_replaced_and_all_else_stays(text: str) -> None:
    whole = without_escaped_surrogates(text)
    assert msgspec.json.decode(whole) == TEXTS[text]
    assert without_escaped_surrogates(whole) == whole
    assert without_surrogates("a\udc80é") == f"a{WHOLE}é"


@pytest.mark.parametrize("text", TEXTS)
def test_every_reader_of_json_by_models_has_the_same_rule(text: str) -> None:
    plan = f'{{"goal": {text}, "tasks": [{text}, 1]}}'
    expected = {"goal": TEXTS[text], "tasks": [TEXTS[text], 1]}
    assert objection_to(plan, {}) == (expected, None)
    assert decoded(f"Here it is:\n```json\n{plan}\n```\nDone.") == expected
    growing = PartialJson("tasks")
    found = [each for letter in plan for each in growing.feed(letter)]
    assert found == [("goal", TEXTS[text]), ("tasks", TEXTS[text]), ("tasks", 1)]
    form = read_form(f'{{"answer": {text}}}', "1")
    assert form is not None
    assert form.answer == TEXTS[text]


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', '{"a": -Infinity}'])
def test_numbers_that_no_json_has_are_objected_to(text: str) -> None:
    value, objection = objection_to(f"Here: {text}", {})
    assert value is None
    assert objection is not None
    assert "not JSON" in objection


def _written(request: ModelRequest) -> str:
    """JSON of the schema that is asked for, with half a character in each free text."""
    if request.schema is None:
        return "The answer."
    return json.dumps(_filled(request.schema)).replace("HALF", HALF)


def _filled(schema: dict[str, Any], name: str = "") -> Any:
    if "anyOf" in schema:
        return _filled(schema["anyOf"][0], name)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {key: _filled(each, key) for key, each in schema["properties"].items()}
        case "array" if name in ("tasks", "claims"):
            return [_filled(schema["items"], name)]
        case "array":
            return []
        case "boolean":
            return False
        case "number" | "integer":
            return 1
    return "" if name in ("for_each", "accept") else "Count the words of HALF"


@pytest.mark.parametrize("approach", ["stream", "whole", "route"])
@pytest.mark.parametrize("output", [None, Page])
async def test_a_plan_with_half_a_character_is_carried_out(approach: Any, output: Any) -> None:
    told: list[str] = []

    @ch.worker("w", "Counts words")
    async def count(brief: ch.Brief) -> str:
        told.append(brief.task.description)
        return "12"

    async with ch.Supervisor([count], model=ch.ScriptedModel([_written] * 9)) as boss:
        result = await boss.run("Count the words", approach=approach, output=output)
    assert result.status == "succeeded"
    assert told == [f"Count the words of {WHOLE}"]
    assert output is None or result.output == Page(told[0])


async def test_steps_and_rewritten_tasks_may_hold_half_a_character() -> None:
    failures = [ch.WorkerError("the description is unclear")]

    @ch.worker("w", "Counts words")
    async def fails_once(brief: ch.Brief) -> str:
        if failures:
            raise failures.pop()
        return brief.task.description

    model = ch.ScriptedModel([_written] * 9)
    async with ch.Supervisor([fails_once], model=model) as boss:
        await boss.run("Count the words", approach="whole")
        assert sum(
            "description" in (each.schema or {})["properties"] for each in model.requests[:2]
        )
        step = await boss.run("Count the words", approach="steps")
    assert step.status == "partial"  # the model asks for the same step forever
    assert "exactly this" in str(step.answer.gaps)


async def test_a_worker_returns_valid_text_and_calls_tools_with_it() -> None:
    said: list[str] = []

    @ch.tool(effect="pure")
    def say(words: str) -> str:
        """Say it."""
        said.append(words)
        return "said"

    script: list[str | ToolCall] = [
        ToolCall("1", "say", rf'{{"words": "{HALF}"}}'),
        ToolCall("2", "say", '{"words": "\ud83d!"}'),
        "The end \ud800",
    ]
    worker = ch.Worker("w", "Says it", tools=[say], model=ch.ScriptedModel(script))
    async with ch.Supervisor([worker]) as boss:
        result = await boss.run(make_plan(make_task("a", worker="w")))
    assert result.output == f"The end {WHOLE}"
    assert said == [WHOLE, f"{WHOLE}!"]


async def test_a_stream_says_the_same_as_the_whole_reply() -> None:
    heard: list[str | None] = []
    model = ch.ScriptedModel(["one \ud800 two"])
    call = await ModelGateway().ask([model], ModelRequest(turns=(user("go"),)), hear=heard.append)
    assert "".join(each or "" for each in heard) == call.reply.text == f"one {WHOLE} two"


@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
async def test_a_provider_may_send_half_a_character(protocol: str) -> None:
    said, dialect = Say(text="Hello HALF", piece=99), DIALECTS[protocol]
    whole = json.dumps(dialect.whole(said, {"model": "m"})).encode()
    events = b"".join(dialect.events(said, {"model": "m", "stream": True}))
    request = ModelRequest(turns=(user("go"),))
    async with model_server() as server:
        model = opened(protocol, server.url)
        server.say(
            *(Body(content=each.replace(b"HALF", HALF.encode())) for each in (whole, events))
        )
        assert (await asked(model, request)).text == f"Hello {WHOLE}"
        assert (await streamed(model, request)).text == f"Hello {WHOLE}"
