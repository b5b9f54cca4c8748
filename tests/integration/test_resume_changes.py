"""A run is resumed with the workers it began with; what differs is named before anything is tried."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.models.base import ModelRequest, ToolCall
from tests.guide.conftest import make_plan, make_task


@ch.worker("asker", "Asks a person")
async def ask(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


@ch.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def crew(place: Path, **changed: Any) -> ch.Supervisor:
    model = ch.ScriptedModel(["done"], name=changed.pop("model", "scripted:one"))
    terms: dict[str, Any] = {"description": "Writes", "instructions": "Be brief.", "tools": []}
    writer = ch.Worker("writer", model=model, **{**terms, **changed})
    return ch.Supervisor([ask, writer], journal=place, on_question="return")


CHANGES: list[dict[str, Any]] = [
    {"instructions": "Be long."},
    {"tools": [add]},
    {"model": "scripted:two"},
    {"description": "Writes well"},
    {"skills": ["prose"]},
]


@pytest.mark.parametrize("changed", CHANGES, ids=lambda each: str(next(iter(each))))
async def test_a_changed_worker_is_named_with_what_has_changed(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    place = tmp_path / "runs.db"
    plan = make_plan(make_task("a", "asker"), make_task("b", "writer", "a"))
    first = crew(place)
    asked = await first.run(plan)
    await first.answer(asked.questions[0].id, "red")
    await first.close()
    boss = crew(place, **changed)
    part = next(iter(changed))
    with pytest.raises(
        ch.errors.RosterMismatch, match=rf"writer: another .*{part}.*--accept"
    ) as refused:
        await boss.resume(asked.id)
    assert (part == "instructions") == ("instructions" in str(refused.value))
    assert (await boss.look(asked.id)).tasks["b"].attempts == 0  # nothing was tried
    result = await boss.resume(asked.id, accept=True)
    assert result.status == "succeeded"
    await boss.close()


async def test_what_was_accepted_once_is_not_asked_for_again(tmp_path: Path) -> None:
    """The next supervisor with the accepted crew goes on; one with the first crew is refused now."""
    place = tmp_path / "runs.db"
    first = crew(place)
    asked = await first.run(make_plan(make_task("a", "asker"), make_task("b", "writer", "a")))
    await first.close()
    changed = crew(place, instructions="Be long.")
    waiting = await changed.resume(asked.id, accept=True)
    assert waiting.status == "waiting"
    await changed.answer(asked.questions[0].id, "red")
    await changed.close()
    again = crew(place)
    with pytest.raises(ch.errors.RosterMismatch, match="writer: another instructions"):
        await again.resume(asked.id)
    await again.close()
    boss = crew(place, instructions="Be long.")
    assert (await boss.resume(asked.id)).status == "succeeded"
    await boss.close()


async def test_the_same_workers_made_anew_are_the_same(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    first = crew(place)
    asked = await first.run(make_plan(make_task("a", "asker")))
    await first.answer(asked.questions[0].id, "red")
    await first.close()
    boss = crew(place)
    assert (await boss.resume(asked.id)).status == "succeeded"
    await boss.close()


POST = ToolCall("1", "post", '{"text": "hello"}')


class Office:
    """A crew whose one LLM worker posts, and is interrupted before it answers."""

    def __init__(self, place: Path) -> None:
        self.keys: list[str] = []
        self.place = place

    def crew(self, script: list[Any], *, is_nested: bool = False, **changed: Any) -> ch.Supervisor:
        @ch.tool(effect="keyed")
        def post(context: ch.ToolContext, text: str) -> str:
            """Post a text."""
            self.keys.append(context.key)
            return f"posted {text}"

        tools = [post, *changed.pop("tools", [])]
        model = ch.ScriptedModel(script, name=changed.pop("model", "scripted:one"))
        terms: dict[str, Any] = {"instructions": "Be brief.", **changed}
        clerk = ch.Worker("clerk", "Posts", tools=tools, model=model, **terms)
        if not is_nested:
            return ch.Supervisor([clerk], journal=self.place)
        below = ch.Supervisor([clerk], name="below", description="Has it posted", plan_for=posting)
        return ch.Supervisor([below], journal=self.place)

    async def interrupt(self, boss: ch.Supervisor, hung: asyncio.Event, run_id: str = "") -> str:
        """Begin a run, or go on with one, and leave it in the midst of its task."""
        async with boss:
            if run_id:
                running = asyncio.ensure_future(boss.resume(run_id, accept=True))
            else:
                worker = next(iter(boss.roster)).name
                run = await boss.submit(make_plan(make_task("a", worker)))
                running, run_id = asyncio.ensure_future(run.wait()), run.id
            await hung.wait()
            await boss.stop(0)
            with pytest.raises(ch.errors.RunInterrupted):
                await running
        return run_id


def posting(_: ch.Brief) -> ch.Plan:
    return make_plan(make_task("in", "clerk"))


def hangs() -> tuple[Callable[[ModelRequest], Awaitable[str]], asyncio.Event]:
    """A model's reply that never comes, and what is set once it is waited for."""
    hung = asyncio.Event()

    async def hang(_: ModelRequest) -> str:
        hung.set()
        await asyncio.Event().wait()
        return ""

    return hang, hung


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "chargehand")
    return caplog


@pytest.mark.parametrize("is_nested", [False, True], ids=["alone", "nested"])
@pytest.mark.parametrize("changed", CHANGES[:3], ids=lambda each: str(next(iter(each))))
async def test_a_changed_worker_begins_its_open_task_anew_and_uses_up_no_try(
    changed: dict[str, Any], is_nested: bool, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    resources = Office(tmp_path / "runs.db")
    hang, hung = hangs()
    run_id = await resources.interrupt(resources.crew([POST, hang], is_nested=is_nested), hung)
    boss = resources.crew([POST, "Posted."], is_nested=is_nested, **changed)
    with pytest.raises(ch.errors.RosterMismatch, match="--accept"):
        await boss.resume(run_id)
    result = await boss.resume(run_id, accept=True)
    assert (result.status, result.output) == ("succeeded", "Posted.")
    assert "outcome=failed" not in logged.text  # at either level
    assert len(resources.keys) == 1  # what was done to the outside world is not done twice
    await boss.close()


async def test_a_changed_worker_goes_on_from_its_own_steps_when_it_is_interrupted_too(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    resources = Office(tmp_path / "runs.db")
    hang, hung = hangs()
    run_id = await resources.interrupt(resources.crew([POST, hang]), hung)
    hang, hung = hangs()
    second = resources.crew([POST, hang], instructions="Be long.")
    await resources.interrupt(second, hung, run_id)
    boss = resources.crew(["Posted."], instructions="Be long.")  # nothing is asked again
    result = await boss.resume(run_id, accept=True)
    assert (result.status, result.output, len(resources.keys)) == ("succeeded", "Posted.", 1)
    assert "outcome=failed" not in logged.text
    await boss.close()


async def clerical(_: ch.Brief) -> str:
    return "posted"


async def test_planning_begins_anew_with_a_changed_roster(
    tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "runs.db"
    task = {"id": "a", "worker": "clerk", "description": "Post the letter to Ada"}
    planned = json.dumps({"goal": "The letter is posted", "tasks": [task]})
    hang, hung = hangs()

    def crew(script: list[Any], description: str) -> ch.Supervisor:
        clerk = ch.worker("clerk", description)(clerical)
        return ch.Supervisor([clerk], journal=place, model=ch.ScriptedModel(script))

    async with crew(["not a plan", hang], "Posts") as first:
        run = await first.submit("Post the letter to Ada")
        await hung.wait()
        await first.stop(0)
        with pytest.raises(ch.errors.RunInterrupted):
            await run.wait()
    async with crew([planned, "Posted."], "Posts letters") as boss:
        result = await boss.resume(run.id, accept=True)
    assert result.status == "succeeded"
    assert "outcome=failed" not in logged.text
