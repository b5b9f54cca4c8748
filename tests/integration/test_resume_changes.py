"""A run is resumed with the workers it began with; what differs is named before anything is tried."""

from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
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
    with pytest.raises(ch.errors.RosterMismatch, match=rf"writer: another .*{part}.*--accept"):
        await boss.resume(asked.id)
    assert (await boss.look(asked.id)).tasks["b"].attempts == 0  # nothing was tried
    result = await boss.resume(asked.id, accept=True)
    assert result.status == "succeeded"
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
