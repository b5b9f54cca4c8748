"""A factory makes a worker for each task: who it is, which tools it is granted, and what is refused."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from benchmarks import dynamic_workers

import chargehand as ch
from chargehand.models.base import ModelRequest, ToolCall
from tests.guide.conftest import make_plan

_SOON = timedelta(milliseconds=1)


@ch.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@ch.tool(effect="pure")
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def hire(role: str, *tools: str) -> str:
    return json.dumps({"role": role, "tools": tools})


def staffed(
    *script: object, tools: Sequence[ch.Tool] = (add, shout)
) -> "tuple[ch.Factory, ch.ScriptedModel]":
    model = ch.ScriptedModel(script)  # type: ignore[arg-type]  # lines of a script
    return ch.Factory("crew", "Makes any specialist", tools=tools, model=model), model


def task(**args: object) -> ch.Task:
    return ch.Task(id="only", description="Add 1 and 2", worker="crew", args=args)


def words(request: ModelRequest) -> str:
    return "\n".join(getattr(part, "text", "") for turn in request.turns for part in turn.parts)


async def test_the_plan_says_who_does_a_task_and_with_which_tools() -> None:
    crew, model = staffed(ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3.")
    plan = make_plan(task(role="You are a patient accountant.", tools=["add"], currency="EUR"))
    result = await ch.Supervisor([crew]).run(plan)
    assert result.answer.output == "It is 3."
    model.assert_complete()
    asked = words(model.requests[0])
    assert "You are a patient accountant." in asked
    assert 'Given: {"currency":"EUR"}' in asked, "what was said to the factory is not the worker's"
    assert [spec.name for spec in model.requests[0].tools] == ["add", "cannot"]


async def test_a_tool_that_was_not_granted_is_neither_seen_nor_callable() -> None:
    crew, model = staffed(ToolCall("1", "shout", '{"text": "hello"}'), "I could not.")
    result = await ch.Supervisor([crew]).run(make_plan(task(role="You are quiet.", tools=["add"])))
    assert result.answer.output == "I could not."
    assert "there is no tool 'shout'" in words(model.requests[1])


async def test_without_a_word_in_the_plan_a_model_decides_on_role_and_tools() -> None:
    crew, model = staffed(
        hire("You are a patient accountant.", "add"),
        ToolCall("1", "add", '{"a": 1, "b": 2}'),
        "It is 3.",
    )
    result = await ch.Supervisor([crew]).run(make_plan(task()))
    assert result.answer.output == "It is 3."
    model.assert_complete()
    staffing, doing = model.requests[:2]
    assert "shout: Say it louder." in words(staffing)
    assert "BEGIN task\nAdd 1 and 2\nEND task" in words(staffing)
    assert staffing.schema is not None
    assert staffing.schema["properties"]["tools"]["items"]["enum"] == ["add", "shout"]
    assert "You are a patient accountant." in words(doing)
    assert [spec.name for spec in doing.tools] == ["add", "cannot"]
    assert [step.name for step in result.trace.attempts[0].steps] == [
        "hire",
        "model",
        "tool add",
        "model",
    ]


async def test_a_model_that_grants_what_is_not_there_is_told_so() -> None:
    crew, model = staffed(hire("You fly.", "wings"), hire("You walk."), "There.")
    result = await ch.Supervisor([crew]).run(make_plan(task()))
    assert result.answer.output == "There."
    assert "'wings' is not one of" in words(model.requests[1])
    assert model.requests[2].tools == ()


async def test_a_factory_without_tools_makes_workers_of_words_alone() -> None:
    crew, model = staffed(hire("You think.", "imaginary"), "Thought.", tools=())
    result = await ch.Supervisor([crew]).run(make_plan(task()))
    assert result.answer.output == "Thought."
    assert model.requests[1].tools == ()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"tools": ["add", "saw"]}, "there is no tool 'saw'"),
        ({"tools": "add"}, "its args are not understood"),
        ({"role": 7}, "its args are not understood"),
    ],
    ids=["unknown", "no list", "no text"],
)
async def test_a_hire_that_makes_no_sense_is_refused_once_and_says_what_there_is(
    args: dict[str, object], why: str
) -> None:
    crew, model = staffed()
    result = await ch.Supervisor([crew]).run(make_plan(task(**args)))
    only = result.tasks["only"]
    assert only.error is not None
    assert only.error.error == "HireRefused"
    assert why in only.error.message
    assert "factory 'crew' takes args role (text) and tools (of: add, shout)" in only.error.message
    assert only.attempts == 1, "the same words would be refused again"
    assert model.requests == []


async def test_a_function_of_your_own_may_make_the_worker() -> None:
    model = ch.ScriptedModel(["Bonjour"])
    seen: list[str] = []

    def make(brief: ch.Brief) -> ch.Worker:
        seen.append(brief.task.id)
        return ch.Worker("guest", "Speaks", instructions=f"Speak {brief.args['language']}.")

    crew = ch.Factory("crew", "Makes speakers", model=model, make=make)
    result = await ch.Supervisor([crew]).run(make_plan(task(language="French")))
    assert (result.answer.output, seen) == ("Bonjour", ["only"])
    assert "Your part in a team: Speaks\nSpeak French." in words(model.requests[0])


async def test_a_function_that_makes_something_else_is_told_what_it_should() -> None:
    crew = ch.Factory("crew", "Makes nothing", make=lambda _: "a worker")  # type: ignore[arg-type,return-value]
    result = await ch.Supervisor([crew]).run(make_plan(task()))
    assert "must return a chargehand.Worker" in result.tasks["only"].why


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda _: ch.Worker("guest", "Speaks"),
            "worker 'guest' has no model; give it one",
        ),
        (lambda _: ch.Worker("", "Speaks"), "name"),
    ],
)
async def test_a_worker_that_cannot_be_made_or_has_no_model_is_not_tried_again(
    make: Any, words: str
) -> None:
    crew = ch.Factory("crew", "Makes speakers", make=make)
    result = await ch.Supervisor([crew]).run(make_plan(task()))
    error = result.tasks["only"].error
    assert error is not None
    assert (error.kind, result.tasks["only"].attempts) == ("denied", 1)
    assert error.message.startswith("factory 'crew': ")
    assert words in error.message
    assert ("on the command line, with --model" in error.message) == ("no model" in words)


@pytest.mark.parametrize("is_below", [False, True], ids=["on the top", "below"])
async def test_a_made_worker_with_a_model_of_unknown_price_is_refused_under_a_cap_on_money(
    is_below: bool,
) -> None:
    def make(_: ch.Brief) -> ch.Worker:
        return ch.Worker(
            "guest", "Speaks", model=ch.open_model("openai:nobody-knows", key="k" * 20)
        )

    crew = ch.Factory("crew", "Makes speakers", make=make)
    limits = ch.Limits(money=1)
    if is_below:
        low = ch.Supervisor([crew], name="low", plan_for=lambda _: make_plan(task()))
        boss = ch.Supervisor([low], limits=limits)
        plan = make_plan(ch.Task(id="only", description="Speak to them", worker="low"))
    else:
        boss, plan = ch.Supervisor([crew], limits=limits), make_plan(task())
    result = await boss.run(plan)
    assert "the price of openai:nobody-knows" in result.tasks["only"].why


async def test_the_hire_is_kept_when_the_attempt_is_interrupted() -> None:
    """A worker whose provider fails goes on with the same hire: it is not decided upon anew."""
    crew, model = staffed(
        hire("You are patient.", "add"), ConnectionError("the line is dead"), "It is 3."
    )
    result = await ch.Supervisor([crew], retry=ch.RetryPolicy(first=_SOON)).run(make_plan(task()))
    assert result.answer.output == "It is 3."
    assert [step.name for each in result.trace.attempts for step in each.steps].count("hire") == 1
    model.assert_complete()


def test_a_factory_must_be_given_what_it_needs() -> None:
    with pytest.raises(ch.UsageError, match="name and a description"):
        ch.Factory("", "Makes things")
    with pytest.raises(ch.UsageError, match="with make=…, tools are given"):
        ch.Factory("crew", "Makes things", tools=[add], make=lambda _: ch.Worker("a", "b"))


async def test_a_factory_without_any_model_says_so_before_anything_runs() -> None:
    with pytest.raises(ch.UsageError, match="factory 'crew' has no model"):
        await ch.Supervisor([ch.Factory("crew", "Makes things")]).run(make_plan(task()))


def test_planners_are_told_which_tools_a_factory_can_grant() -> None:
    crew, _ = staffed()
    assert crew.description == "Makes any specialist. Tools it can grant: add, shout."


# Planned by a model


def written(worker: str, *tools: str, role: str = "") -> str:
    task = {
        "id": "t1",
        "description": "Give the sum of 1 and 2",
        "worker": worker,
        "needs": [],
        "accept": "",
        "optional": False,
        "role": role,
        "tools": tools,
    }
    head = {"goal": "The sum", "instruction": "A number", "strategy": "merge"}
    return json.dumps({**head, "tasks": [task]})


async def test_a_planner_says_who_does_a_task_of_a_factory() -> None:
    crew, worker = staffed(ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3.")
    planner = ch.ScriptedModel([written("crew", "add", role="You are an accountant.")])
    boss = ch.Supervisor([crew], model=planner)
    plan = await boss.plan("What is the sum of 1 and 2?")
    assert plan.tasks[0].args == {"role": "You are an accountant.", "tools": ["add"]}
    schema = planner.requests[0].schema
    assert schema is not None
    asked = schema["properties"]["tasks"]["items"]
    assert asked["properties"]["tools"]["items"]["enum"] == ["add", "shout"]
    assert {"role", "tools"} <= set(asked["required"])
    assert (await boss.run(plan)).tasks["t1"].output == "It is 3."
    worker.assert_complete()


async def test_a_planner_that_grants_what_a_factory_has_not_is_told_so() -> None:
    crew, _ = staffed()
    planner = ch.ScriptedModel([written("crew", "saw"), written("crew", "add")])
    plan = await ch.Supervisor([crew], model=planner).plan("What is the sum of 1 and 2?")
    assert plan.tasks[0].args == {"tools": ["add"]}
    assert "crew cannot grant the tool 'saw'; there are: add, shout" in words(planner.requests[1])


async def test_without_a_factory_nobody_is_asked_for_roles() -> None:
    planner = ch.ScriptedModel([written("mind")])
    mind = ch.Worker("mind", "Thinks", model=ch.ScriptedModel())
    plan = await ch.Supervisor([mind], model=planner).plan("What is the sum of 1 and 2?")
    assert plan.tasks[0].args == {}
    assert "role" not in json.dumps(planner.requests[0].schema)


async def test_the_offline_planner_leaves_the_hire_to_the_factory() -> None:
    crew, _ = staffed(hire("You add.", "add"), "It is 3.")
    result = await ch.Supervisor([crew], model="offline").run("Add 1 and 2 with a specialist")
    assert result.status == "succeeded"
    assert [each.worker for each in result.tasks.values()] == ["crew"]


def test_the_benchmark_tells_the_cost_beside_a_static_roster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dynamic_workers.main(["--json", "--latency", "0.001", "--repeats", "1"]) == 0
    names = [figure["name"] for figure in json.loads(capsys.readouterr().out)["figures"]]
    assert "factory, told in the plan ÷ static roster: CPU" in names
    assert "factory, asks a model ÷ static roster: wall" in names
