"""The whole path over real HTTP: plan, tasks side by side, a failure refined and given up, a partial answer."""

import json
from datetime import timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import chargehand as ch
from chargehand.facts.events import TaskRewritten
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from chargehand.testing.model_server import Line, ModelServer, Received, Say, model_server

CITIES = ("Paris", "Lyon", "Vienna")


@ch.tool(effect="pure")
async def look_up(city: str) -> str:
    """Looks up the year in which the tower of a city was built.

    Args:
        city: its name
    """
    if city == "Lyon":
        raise ValueError("there is nothing about it")
    return f"{city}: 1889"


def task(id_: str, description: str, worker: str = "reader") -> dict[str, Any]:
    needed = {"needs": [], "accept": "", "optional": False}
    return {"id": id_, "description": description, "worker": worker, **needed}


def plan(*tasks: dict[str, Any]) -> str:
    head = {"goal": "Know the years", "instruction": "One line a city", "strategy": "merge"}
    return json.dumps({**head, "tasks": tasks})


class Town:
    """A model that plays every part: it tells by the prompt who asks."""

    def __init__(self) -> None:
        self.rewritten = 0

    def __call__(self, received: Received) -> Line:
        asked = json.dumps(received.body)
        if "You plan the work of a team" in asked:
            cities = [f"Find when {city} built its tower" for city in CITIES]
            return Say(text=plan(*(task(f"t{n}", words) for n, words in enumerate(cities, 1))))
        if "A task was given to a worker and failed" in asked:
            self.rewritten += 1
            return Say(text=json.dumps({"description": f"Find Lyon's tower, way {self.rewritten}"}))
        if "You compose the one answer" in asked:
            return Say(text="Paris: 1889 [t1]. Vienna: 1889 [t3].\nCONFIDENCE: 0.9")
        return self._read(asked)

    def _read(self, asked: str) -> Line:
        city = next(city for city in CITIES if city in asked)
        if "there is nothing about it" in asked:
            return Say(refusal="I cannot find it")
        if f"{city}: 1889" in asked:
            return Say(text=f"{city}: 1889")
        return Say(calls=(ToolCall("c1", "look_up", json.dumps({"city": city})),))


def team(server: ModelServer) -> ch.Supervisor:
    model = ch.open_model("openai:gpt-4o", base_url=f"{server.url}/v1", key="k" * 20)
    reader = ch.Worker("reader", "Looks up towers", tools=[look_up])
    return ch.Supervisor([reader], model=model, limits=ch.Limits(replans=0))


@pytest.mark.parametrize("approach", ["stream", "whole"])
async def test_a_request_goes_all_the_way_and_its_trace_tells_it(approach: str) -> None:
    async with model_server() as server:
        server.always = Town()
        rewritten: list[str] = []
        async with team(server) as boss:
            boss.on(TaskRewritten)(lambda _, event: rewritten.append(event.description))
            result = await boss.run("When were the three towers built?", approach=approach)
            trace = json.loads(result.trace.to_json())
        sent = len(server.requests)
    assert result.status == "partial"
    assert result.answer.text == "Paris: 1889. Vienna: 1889."
    assert [claim.tasks for claim in result.answer.claims] == [("t1",), ("t3",)]
    (gap,) = result.answer.gaps
    assert (gap.task, gap.state) == ("t2", "failed")
    assert "I cannot find it; look_up failed: ValueError: there is nothing about it" in gap.why
    assert gap.why.endswith("(tried 3 times)")
    assert rewritten == ["Find Lyon's tower, way 1", "Find Lyon's tower, way 2"]
    Draft202012Validator(ch.Trace.json_schema()).validate(trace)
    tried = [(span["task"], span["attempt"], span["worker"]) for span in trace["attempts"]]
    assert ("@plan", 1, "@planner") in tried
    assert ("@answer", 1, "@answerer") in tried
    assert [each for each in tried if each[0] == "t2"] == [("t2", n, "reader") for n in (1, 2, 3)]
    steps = [step for span in trace["attempts"] for step in span["steps"]]
    models = [step for step in steps if step.get("model")]
    assert len(models) == sent, "every model call is in the trace"
    # Each try at each city calls its tool once: one for Paris and Vienna, three for Lyon.
    assert sum(step["name"] == "tool look_up" for step in steps) == 5
    assert result.usage.calls == sent


async def test_tasks_of_a_plan_run_side_by_side() -> None:
    async with model_server() as server:
        server.always = Town()
        async with team(server) as boss:
            result = await boss.run("When were the three towers built?", approach="whole")
    spans = {span.task: span for span in result.trace.attempts if span.attempt == 1}
    began = [spans[each].began_at for each in ("t1", "t2", "t3")]
    ended = [spans[each].ended_at for each in ("t1", "t2", "t3")]
    assert max(began) < min(end for end in ended if end is not None)


def test_at_half_the_time_it_needs_there_is_an_answer_in_time() -> None:
    """Ten calls of 50 ms one after another, and a deadline at half of that."""

    def chain() -> ch.Plan:
        tasks = [
            ch.Task(
                id=f"t{n}",
                description=f"Say what comes after number {n}",
                worker="mind",
                needs=[f"t{n - 1}"] if n else [],
            )
            for n in range(10)
        ]
        return ch.Plan(goal="Count", instruction="All numbers", tasks=tasks)

    said: list[Any] = [f"It is {n}" for n in range(11)]
    model = ch.ScriptedModel(said, latency=timedelta(milliseconds=50))
    mind = ch.Worker("mind", "Thinks")
    boss = ch.Supervisor([mind], model=model, clock=FakeClock())
    deadline = timedelta(milliseconds=250)
    result = run_virtual(boss.run(chain(), deadline=deadline))
    assert result.status == "partial"
    assert result.wall <= deadline + timedelta(seconds=1)
    assert result.answer.output
    missing = [gap.task for gap in result.answer.gaps if gap.task != "@answer"]
    assert missing
    assert missing == [f"t{n}" for n in range(10 - len(missing), 10)]
    assert all(gap.why for gap in result.answer.gaps)
