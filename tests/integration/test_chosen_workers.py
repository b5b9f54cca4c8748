"""A run that is limited to some workers of the roster: its plans, changes and successors keep to them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch


@ch.worker("reader", "Reads", skills=["text"])
async def read(brief: ch.Brief) -> str:
    return "read"


@ch.worker("writer", "Writes", skills=["text", "prose"])
async def write(brief: ch.Brief) -> str:
    return "written"


@ch.worker("flaky", "Fails")
async def fail(brief: ch.Brief) -> str:
    raise ch.WorkerError("it is broken", kind="denied")


def plan_with(worker: str = "", skill: str = "") -> ch.Plan:
    task = ch.Task(id="t1", description="Do it", worker=worker, skill=skill)
    return ch.Plan(goal="One thing", tasks=[task])


def written(worker: str, id_: str = "t1") -> str:
    task = {"id": id_, "description": f"Do {id_}", "worker": worker, "needs": []}
    plan = {"goal": "", "instruction": "", "strategy": "merge"}
    return json.dumps({**plan, "tasks": [{**task, "accept": "", "optional": False}]})


def choices_in(request: Any) -> list[str]:
    """The workers that the schema of a planner's request lets it name."""
    tasks = request.schema["properties"]
    found = tasks.get("tasks") or tasks["added"]
    names: list[str] = found["items"]["properties"]["worker"]["enum"]
    return names


@pytest.mark.parametrize("who", [{"worker": "writer"}, {"skill": "prose"}, {"skill": "text"}])
async def test_a_plan_that_names_others_is_refused(who: dict[str, str]) -> None:
    """A skill that a worker outside has too could be given to it, so it is refused as well."""
    boss = ch.Supervisor([read, write])
    with pytest.raises(ch.PlanRefused, match=next(iter(who.values()))):
        await boss.run(plan_with(**who), workers=["reader"])
    done = await boss.run(plan_with(**who), workers=["writer", "reader"])
    assert done.status == "succeeded"


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ([], "leaves nobody"),
        ("reader", "give a list"),
        (["reader", "nobody"], "'nobody' is not on the roster; there are reader, writer"),
        ([1], r"workers\[0\]=1 must be a text"),
    ],
)
async def test_a_choice_that_cannot_be_kept_is_refused(workers: Any, words: str) -> None:
    boss = ch.Supervisor([read, write])
    with pytest.raises(ch.UsageError, match=words):
        await boss.run(plan_with(worker="reader"), workers=workers)


async def test_a_policy_that_hands_tasks_to_others_is_refused() -> None:
    boss = ch.Supervisor([read, write], on_failure=["elsewhere:writer"])
    with pytest.raises(ch.UsageError, match=r"elsewhere:writer .*add it to its workers"):
        await boss.run(plan_with(worker="reader"), workers=["reader"])


async def test_a_planner_that_names_others_has_to_correct_itself() -> None:
    mind = ch.ScriptedModel([written("writer"), written("reader"), "Read. [t1]"])
    boss = ch.Supervisor([read, write], model=mind)
    result = await boss.run("Do something", workers=["reader"], approach="whole")
    assert [task.worker for task in result.tasks.values()] == ["reader"]
    assert choices_in(mind.requests[0]) == ["reader"]


async def test_a_change_of_the_plan_keeps_to_the_chosen_workers() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ch.worker("reader", "Reads when it may")
    async def wait(brief: ch.Brief) -> str:
        begun.set()
        await may_end.wait()
        return "read"

    async with ch.Supervisor([wait, write]) as boss:
        run = await boss.submit(plan_with(worker="reader"), workers=["reader"])
        await begun.wait()
        changed = plan_with(worker="writer")
        with pytest.raises(ch.PlanRefused, match="writer"):
            await boss.change_plan(run.id, changed, version=1)
        may_end.set()
        await run.wait()


async def test_a_later_planner_keeps_the_choice(tmp_path: Path) -> None:
    """One supervisor leaves the run; another plans it, is stopped by a question, and a third makes the next plan."""
    journal, crew = tmp_path / "runs.db", [fail, read, write]
    mind = ch.ScriptedModel([])
    async with ch.Supervisor(crew, model=mind, journal=journal) as boss:
        run = await boss.post("Do something", workers=["flaky", "reader"], review=True)
    mind.add(written("flaky"))
    async with ch.Supervisor(crew, model=mind, journal=journal, on_question="return") as boss:
        waiting = await boss.resume(run)
        await boss.answer(waiting.questions[0].id, "Have it read, too")
    mind.add(written("reader", "t2"))
    async with ch.Supervisor(crew, model=mind, journal=journal, on_question="return") as boss:
        waiting = await boss.resume(run)
        await boss.cancel(run)
    assert [choices_in(each) for each in mind.requests] == [["flaky", "reader"]] * 2


async def test_a_fork_inherits_the_choice(tmp_path: Path) -> None:
    async with ch.Supervisor([read, write], journal=tmp_path / "runs.db") as boss:
        done = await boss.run(plan_with(worker="reader"), workers=["reader"])
        with pytest.raises(ch.PlanRefused, match="writer"):
            await boss.fork(done.id, plan=plan_with(worker="writer"))
        other = await boss.fork(done.id, plan=plan_with(worker="writer"), workers=None)
    assert other.status == "succeeded"
