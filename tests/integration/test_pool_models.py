"""What models do for a pool, each agent with its own; and what is done by rule where there is none."""

import json
import logging
from typing import Any

import pytest

import chargehand as ch
from chargehand.decisions.dispatch import Balance
from chargehand.errors import ModelDenied, UsageError
from chargehand.models.base import ModelRequest
from chargehand.models.scripted import ScriptedModel
from chargehand.patterns.pool import (
    AgentConfig,
    BaseAgentConfig,
    SharedMemoryPool,
    SupervisorAgent,
    WorkerAgent,
    supervisor_worker_workflow,
)
from chargehand.patterns.pool.supervisor_agent import AT_ONCE, by_rule, capacities_of, share_out


def said(*tasks: str) -> str:
    return json.dumps({"tasks": tasks})


def divided_by(*lines: Any) -> tuple[SupervisorAgent, ScriptedModel]:
    model = ScriptedModel(lines)
    return SupervisorAgent(AgentConfig(model=model), SharedMemoryPool()), model


# Dividing


def test_a_model_says_what_each_task_is() -> None:
    supervisor, model = divided_by(said("Read the first act", "Read the second act"))
    tasks = supervisor.delegate("Read the play", ["ann", "bob"], num_tasks=2)
    assert [task["description"] for task in tasks] == ["Read the first act", "Read the second act"]
    (request,) = model.requests
    assert request.schema is not None
    assert request.schema["properties"]["tasks"]["maxItems"] == 2
    assert "Read the play" in request.turns[-1].text


def test_a_model_is_held_to_the_number_and_told_what_was_wrong() -> None:
    supervisor, model = divided_by(said("one"), said("one", "one"), said("one", "two"))
    tasks = supervisor.delegate("Read the play", ["ann"], num_tasks=2)
    assert [task["description"] for task in tasks] == ["one", "two"]
    assert "too short" in model.requests[1].turns[-1].text
    assert "the same" in model.requests[2].turns[-1].text


def test_many_tasks_are_asked_for_a_few_at_a_time() -> None:
    count = AT_ONCE + 5

    def answer(request: ModelRequest) -> str:
        asked = request.schema or {}
        first = len(model.requests) - 1
        wanted = asked["properties"]["tasks"]["maxItems"]
        return said(*(f"part {first}.{n}" for n in range(wanted)))

    model = ScriptedModel([answer, answer])
    supervisor = SupervisorAgent(AgentConfig(model=model), SharedMemoryPool())
    tasks = supervisor.delegate("Read the library", ["ann"], num_tasks=count)
    assert len({task["description"] for task in tasks}) == count
    assert "part 0.0" in model.requests[1].turns[-1].text


@pytest.mark.parametrize("line", ["no", ModelDenied("no key")])
def test_where_the_model_cannot_divide_a_request_a_rule_does(
    line: Any, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, _ = divided_by(*[line] * 12)
    with caplog.at_level(logging.WARNING, "chargehand.pool"):
        tasks = supervisor.delegate("Read the play", ["ann"], num_tasks=2)
    assert [task["description"] for task in tasks] == by_rule("Read the play", 2)
    assert "pool_split_by_rule" in caplog.text
    (note,) = supervisor.pool.read_relevant(tags=["divided-by-rule"])
    assert note["metadata"]["request_id"] == tasks[0]["request_id"]


@pytest.mark.parametrize(
    "request_",
    [
        "Process 5 customer support tickets",
        "Summarise the annual report in 500 words",
        "Scan the page at 300 dpi",
        "Read 1,000 letters",
        "Process five documents",
        "Report on 2026 sales",
    ],
)
def test_how_many_tasks_there_are_is_never_read_out_of_the_request(request_: str) -> None:
    supervisor = SupervisorAgent(None, SharedMemoryPool())
    assert len(supervisor.delegate(request_, ["ann", "bob"])) == 2
    assert len(supervisor.delegate(request_, ["ann", "bob"], 7)) == 7


def test_parts_by_rule_say_which_part_they_are() -> None:
    assert by_rule("Read the play", 1) == ["Read the play"]
    first, second = by_rule("Read the play", 2)
    assert "part 1 of 2" in first
    assert first != second


def test_tasks_may_be_given_as_they_are() -> None:
    supervisor, model = divided_by()
    tasks = supervisor.delegate("Read", ["ann", "bob"], tasks=["Read act 1", "Read act 2"])
    assert [(t["description"], t["assigned_to"]) for t in tasks] == [
        ("Read act 1", "ann"),
        ("Read act 2", "bob"),
    ]
    assert model.requests == []


def test_the_more_urgent_request_comes_first() -> None:
    supervisor, _ = divided_by()
    supervisor.delegate("Calm", ["ann"], tasks=["Water the flowers"])
    supervisor.delegate("Urgent", ["ann"], tasks=["Put out the fire"], priority=5)
    ann = WorkerAgent(None, supervisor.pool, "ann")
    assert [task["priority"] for task in ann.get_assigned_tasks()] == [5, 0]


# Refusals


@pytest.mark.parametrize(
    ("workers", "fact"),
    [
        ([], "names no worker"),
        ("ann", "is not a list"),
        (["ann", "ann"], "twice"),
        ([""], "a name is empty"),
        ([7], "names no worker"),
        ([("ann",)], "names no worker"),
        ([("ann", 0)], "above 0"),
        ([("ann", "many")], "what 'ann' can hold='many' must be a number"),
        ([("ann", float("inf"))], "what 'ann' can hold"),
        (object(), "is not a list"),
        (["\ud800"], "lone surrogate"),
    ],
)
def test_a_broken_list_of_workers_is_refused(workers: Any, fact: str) -> None:
    supervisor, _ = divided_by()
    with pytest.raises(UsageError, match=fact):
        supervisor.delegate("Read 2 books", workers)


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "3", 1_000_000])
def test_what_is_no_number_of_tasks_is_refused(number: Any) -> None:
    supervisor, _ = divided_by()
    with pytest.raises(UsageError, match="num_tasks="):
        supervisor.delegate("Read", ["ann"], num_tasks=number)


def test_an_empty_request_is_refused() -> None:
    supervisor, _ = divided_by()
    with pytest.raises(UsageError, match="empty"):
        supervisor.delegate("  ", ["ann"])


def test_a_plan_with_a_circle_is_refused() -> None:
    supervisor, _ = divided_by()
    tasks = [
        ch.Task(id="a", description="Do a first", needs=["b"]),
        ch.Task(id="b", description="Do b first", needs=["a"]),
    ]
    with pytest.raises(ch.PlanRefused, match="each other"):
        supervisor.delegate("Go round", ["ann"], tasks=tasks)


def test_a_task_that_only_a_leader_could_mend_is_refused() -> None:
    supervisor, _ = divided_by()
    policy = ch.OnFailure(("rewritten", "fail"))
    task = ch.Task(id="a", description="Do a first", on_failure=policy)
    with pytest.raises(UsageError, match="needs a supervisor that leads"):
        supervisor.delegate("Do a", ["ann"], tasks=[task])


@pytest.mark.parametrize(
    "insight",
    [
        "words",
        {"tags": ["a"]},
        {"content": 1, "tags": "a"},
        {"content": 1, "colour": "red"},
        {"content": 1, "importance": 2},
        {"content": 1, "importance": "high"},
    ],
)
def test_what_is_no_insight_is_refused(insight: Any) -> None:
    pool = SharedMemoryPool()
    with pytest.raises(UsageError):
        pool.write_insight(insight)
    assert pool.read_all() == []


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"llm_provider": "acme", "model": "x"}, "none of"),
        ({"llm_provider": "openai"}, "name one"),
        ({"model": "gpt-5-mini"}, "llm_provider='openai'"),
        ({"llm_provider": "mock", "model": "gpt-5-mini"}, "llm_provider='openai'"),
    ],
)
def test_a_config_that_names_no_model_is_refused(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        AgentConfig(**given)


# Models of their own


def test_a_config_is_a_model_and_how_it_is_to_answer() -> None:
    config = BaseAgentConfig(
        llm_provider="openai", model="gpt-5", temperature=0.2, max_tokens=100, reasoning="low"
    )
    assert config.choice == "openai:gpt-5"
    assert (config.settings.temperature, config.settings.max_tokens) == (0.2, 100)
    assert config.settings.reasoning == "low"
    assert AgentConfig(llm_provider="offline").choice == "offline"


@pytest.mark.parametrize(
    "request_", ["Which customer complained most?", "Write an insight", "Read the insights"]
)
def test_the_offline_model_knows_nothing_by_itself_and_leaves_the_memory_alone(
    request_: str,
) -> None:
    """What a memory tool returns is no answer; a model that goes by rules is not given any."""
    offline = AgentConfig(llm_provider="offline")
    result = supervisor_worker_workflow(
        request_, num_workers=2, num_tasks=2, config=offline, attempts=1
    )
    assert (result["final_result"], result["confidence"]) == (None, 0)
    assert ["knows nothing by itself" in gap["why"] for gap in result["gaps"]] == [True, True]
    assert result["pool"].read_relevant(segments=["notes"]) == []


def test_workers_ask_their_own_model_in_their_own_way() -> None:
    boss = ScriptedModel([said("Greet the world")], name="scripted:large")
    cheap = ScriptedModel(["Hello, world"], name="scripted:small")
    pool = SharedMemoryPool()
    (task,) = SupervisorAgent(AgentConfig(model=boss), pool).delegate("Greet", ["ann"], num_tasks=1)
    ann = WorkerAgent(
        AgentConfig(model=cheap, temperature=0.5), pool, "ann", instructions="Be short"
    )
    assert ann.execute_task(task)["result"] == "Hello, world"
    (request,) = cheap.requests
    assert request.settings.temperature == 0.5
    assert "Be short" in request.turns[0].text
    assert "Greet the world" in request.turns[-1].text


def test_a_call_that_was_paid_for_is_not_made_again_by_the_next_worker() -> None:
    """The model's reply is a step; the tool call after it fails, and another worker goes on from there."""
    pool = SharedMemoryPool()
    supervisor = SupervisorAgent(None, pool)
    (task,) = supervisor.delegate("Greet", ["ann"], num_tasks=1)
    failing = ScriptedModel([ConnectionError("no line")])
    assert WorkerAgent(AgentConfig(model=failing), pool, "ann").execute_task(task)["error"]
    supervisor.reassign_task(task, "bob")
    bob = WorkerAgent(AgentConfig(model=ScriptedModel(["Hello"])), pool, "bob")
    assert bob.execute_task(task)["result"] == "Hello"


def test_a_model_puts_the_results_together_once() -> None:
    answers = ScriptedModel(
        [
            said("Count the cats", "Count the dogs"),
            "There are 2 cats [t1] and 3 dogs [t2].",
        ]
    )
    pool = SharedMemoryPool()
    supervisor = SupervisorAgent(AgentConfig(model=answers), pool)
    tasks = supervisor.delegate("Count the animals", ["ann"], num_tasks=2)
    ann = WorkerAgent(None, pool, "ann", work=lambda brief: f"seen {brief.task.id}")
    for task in tasks:
        ann.execute_task(task)
    first = supervisor.aggregate_results(tasks[0]["request_id"])
    asked = len(answers.requests)
    again = SupervisorAgent(AgentConfig(model=answers), pool).aggregate_results(
        tasks[0]["request_id"]
    )
    assert len(answers.requests) == asked
    assert first == again
    assert "cats" in str(first["final_result"])
    assert (first["by"], first["gaps"]) == ("scripted", [])


def test_the_mock_says_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "chargehand.pool"):
        result = supervisor_worker_workflow("Process 2 letters", num_workers=1, num_tasks=2)
    assert all("no model was asked" in each["result"] for each in result["results"])
    assert sum("pool_without_model" in each for each in caplog.messages) == 1


def test_a_config_without_logging_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    quiet = AgentConfig(logging_enabled=False)
    with caplog.at_level(logging.INFO, "chargehand.pool"):
        supervisor_worker_workflow("Process 2 letters", config=quiet, num_tasks=2)
    assert caplog.messages == []


# Sharing out


def test_turns_are_spread_evenly_by_capacity() -> None:
    turns = share_out(9, capacities_of([("a", 2), ("b", 1)]), Balance.ROUND_ROBIN, {})
    assert turns == ["a", "b", "a"] * 3


def test_least_busy_counts_what_each_can_hold() -> None:
    capacities = capacities_of([("a", 4), ("b", 1)])
    assert share_out(5, capacities, Balance.LEAST_BUSY, {}).count("a") == 4
    assert share_out(1, capacities, Balance.LEAST_BUSY, {"a": 8}) == ["b"]
