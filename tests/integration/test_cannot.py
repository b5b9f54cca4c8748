"""An LLM worker that says it cannot do its task has failed: a sentence is no result because it arrived."""

import json

import pytest

import chargehand as ch
from chargehand.models.base import Abilities, ModelReply, ModelRequest, StopReason, Text, ToolCall
from chargehand.roles.json_reply_check import objection_to
from chargehand.roles.refusal_detection import apology_in, refusal_in, with_status

SHAPE = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}


@ch.tool(effect="pure")
def look(name: str) -> str:
    """Look up a price."""
    return f"{name}: 9"


def outcome_of(*script: object, tools: tuple[ch.Tool, ...] = (), **more: object) -> ch.RunResult:
    model = ch.ScriptedModel([*script])  # type: ignore[list-item] # replies of several types
    reader = ch.Worker("reader", "Reads files", tools=tools, model=model)
    task = ch.Task(id="t1", description="Find the price of the lamp", worker="reader", **more)  # type: ignore[arg-type] # one keyword of several types
    boss = ch.Supervisor([reader], limits=ch.Limits(attempts=1))
    return boss.run_sync(ch.Plan(goal="g", tasks=[task]))


REFUSALS = {
    "a call": (ToolCall("1", "cannot", '{"reason": "no file", "missing": "prices.csv"}'),),
    "a call that cannot be read": (ToolCall("1", "cannot", "no file"),),
    "a line": ("CANNOT: no file prices.csv",),
    "our words repeated": (
        "Cannot with the reason that the data is not available from any table.",
    ),
    "a call written as text": ("cannot(reason: 'no file prices.csv', missing: 'the file')",),
    "a line in bold": ("**CANNOT:** no file prices.csv",),
    "a sentence": ("I cannot do this: there is no file prices.csv.",),
    "an apology": ("I'm sorry, but I do not have access to any file.",),
    "a refusal": (ModelReply(parts=(Text("no file"),), stop=StopReason.REFUSAL),),
    "nothing": (" \n",),
}


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("tools", [(), (look,)])
@pytest.mark.parametrize("output", [None, SHAPE])
def test_whoever_says_that_it_cannot_has_failed(
    how: str, tools: tuple[ch.Tool, ...], output: dict[str, object] | None
) -> None:
    result = outcome_of(*REFUSALS[how], tools=tools, output=output)
    assert (result.status, result.tasks["t1"].state) == ("failed", "failed")
    error = result.tasks["t1"].error
    assert error is not None
    assert error.kind == "logic"
    assert [gap.task for gap in result.answer.gaps] == ["t1"]


@pytest.mark.parametrize(
    "text",
    [
        '{"result": {"cannot": "no file"}}',
        '{"cannot": "no file"}',
        '{"result": {"price": "CANNOT: there is no file"}}',
    ],
)
def test_the_status_in_a_schema_says_that_there_is_no_result(text: str) -> None:
    result = outcome_of(text, output=SHAPE)
    assert result.tasks["t1"].error is not None
    assert result.tasks["t1"].error.error == "Cannot"


@pytest.mark.parametrize(
    "text",
    ['{"result": {"price": 9}}', '{"price": 9}', '```json\n{"price": 9}\n```'],
)
def test_a_result_of_a_shape_is_taken_with_its_status_and_without(text: str) -> None:
    assert outcome_of(text, output=SHAPE).output == {"price": 9}


def test_the_way_to_fail_is_told() -> None:
    for tools, words in (((), "CANNOT:"), ((look,), "call cannot")):
        model = ch.ScriptedModel(["9 euro"])
        reader = ch.Worker("reader", "Reads", tools=tools, model=model)
        task = ch.Task(id="t1", description="Find the price of the lamp", worker="reader")
        ch.Supervisor([reader]).run_sync(ch.Plan(goal="g", tasks=[task]))
        assert words in model.requests[0].turns[0].text
        assert [spec.name for spec in model.requests[0].tools] == (
            ["look", "cannot"] if tools else []
        )


def test_a_model_that_declines_by_itself_is_offered_no_call() -> None:
    model = ch.ScriptedModel(["9 euro"], abilities=Abilities(declines=True, is_real=False))
    reader = ch.Worker("reader", "Reads", tools=[look], model=model)
    task = ch.Task(id="t1", description="Find the price of the lamp", worker="reader")
    ch.Supervisor([reader]).run_sync(ch.Plan(goal="g", tasks=[task]))
    assert [spec.name for spec in model.requests[0].tools] == ["look"]


def test_a_task_that_its_worker_cannot_do_is_given_elsewhere() -> None:
    ada = ch.Worker("ada", "Sums", skills=["sums"], model=ch.ScriptedModel(["CANNOT: no"] * 3))
    bob = ch.Worker("bob", "Sums", skills=["sums"], model=ch.ScriptedModel(["Four."] * 3))
    task = ch.Task(id="t1", description="What is two plus two?", skill="sums")
    result = ch.Supervisor([ada, bob]).run_sync(ch.Plan(goal="g", tasks=[task]))
    assert (result.status, result.output) == ("succeeded", "Four.")


def test_a_task_that_cannot_be_done_is_rewritten_then_planned_around_then_named_as_a_gap() -> None:
    plan = {
        "goal": "g",
        "instruction": "One sentence",
        "strategy": "merge",
        "tasks": [{"id": "t1", "description": "Find the lamp in prices.csv", "worker": "reader"}],
    }
    asked: list[str] = []

    def reply(request: ModelRequest) -> str:
        words = request.turns[-1].text
        for name, said in (
            ("Plan this", json.dumps(plan)),
            ("Plan what is to be done now", '{"reason": "no way", "replaced": [], "tasks": []}'),
            ("Task:", "I cannot do this: there is no file prices.csv."),
        ):
            if name in words:
                asked.append(name)
                return said
        asked.append("rewrite")
        return json.dumps({"description": f"Find the lamp, try {len(asked)}, in any file"})

    boss = ch.Supervisor([ch.Worker("reader", "Reads")], model=ch.ScriptedModel([reply] * 30))
    result = boss.run_sync("What does the lamp cost?", approach="whole")
    assert asked == [
        *("Plan this", "Task:", "rewrite", "Task:", "rewrite", "Task:"),
        "Plan what is to be done now",
    ]
    assert (result.status, [gap.task for gap in result.answer.gaps]) == ("failed", ["t1"])
    assert "no file prices.csv" in result.answer.gaps[0].why


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "Sorry, I am unable to access the file.",
        "I could not complete the task because the file is missing.",
        "As an AI language model, I cannot browse the internet.",
        "I’m afraid I can’t do that.",
        "I cannot answer this question.",
    ],
)
def test_a_bare_apology_is_known_as_one(text: str) -> None:
    assert apology_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "Four.",
        "I cannot find any error in the contract.",
        "I can't stop the feeling that spring is here.",
        "I cannot recommend this lamp: it broke after a day.",
        "I cannot access the website, but notes.md gives 9 euro.",
        "I could not agree more.",
        "Dear Ms Lee, I cannot do this without your help.",
        "We cannot process cars faster than 40 an hour.",
        "I cannot do this alone, " + "said the king to his court. " * 20,
    ],
)
def test_a_result_that_only_looks_like_an_apology_is_a_result(text: str) -> None:
    assert not apology_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "N/A",
        "n/a.",
        "**N/A**",
        "No data available.",
        "I don't know.",
        "I'm sorry, I do not know the answer.",
        "Error: tool timed out. No data available.",
        "Error: the tool failed",
        "Unfortunately, I could not find the order.",
        "Sorry, we were unable to locate order 42.",
    ],
)
def test_a_shrug_is_no_result_unless_it_was_asked_for(text: str) -> None:
    assert outcome_of(text).status == "failed"
    reply = ModelReply(parts=(Text(text),), stop=StopReason.END)
    asked = f"Look it up; if there is none, say {text.strip('.*')}"
    assert refusal_in(reply, None, asked) is None or "*" in text


@pytest.mark.parametrize(
    "text",
    [
        "None",
        "No.",
        "Unknown",
        "NA: sodium",
        "Error: disk full on /dev/sda1",
        "No results differ from last year's.",
        "I don't know a better lamp than the Luxo.",
        "I could not find any error.",
        "Unfortunately, I could not find any order of that day.",
        "Unfortunately, I could not find the order, but the invoice says 9 euro.",
        "N/A\n\nThe list has no lamp; the nearest is a torch at 9 euro.",
        "Not available in red",
    ],
)
def test_a_result_that_only_looks_like_a_shrug_is_a_result(text: str) -> None:
    assert outcome_of(text).output == text


def test_the_status_keeps_the_definitions_that_a_schema_points_to() -> None:
    shape = {
        "type": "object",
        "properties": {"lamp": {"$ref": "#/$defs/Lamp"}},
        "$defs": {"Lamp": {"type": "string"}},
        "required": ["lamp"],
    }
    told = '{"result": {"lamp": 3}}'
    assert objection_to(told, with_status(shape))[1] is not None
    assert objection_to(told.replace("3", '"red"'), with_status(shape))[1] is None
    rooted = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert with_status(rooted) is rooted
