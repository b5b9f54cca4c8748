"""A run to be recorded, and the journals that it goes to."""

import asyncio
import json
from pathlib import Path

import pytest

import chargehand as ch
from tests.contracts.conftest import postgres
from tests.recordings.recorded_run import QUICK, flaky, plan_of, reader, task

__all__ = ["postgres"]


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@pytest.fixture
def run(journal: str) -> str:
    """A run with a retry, a large result, a nested run and a board."""

    async def led() -> str:
        below = ch.Supervisor([reader], name="below", description="Looks deeper")
        plan = plan_of(
            task("a"),
            task("b", "flaky", "a"),
            task("long", "reader", "a"),
            ch.Task(
                id="c",
                description="Look deeper into all of it",
                worker="below",
                needs=["b", "long"],
                args={"plan": json.loads(plan_of(task("x")).to_json())},
            ),
        )
        async with ch.Supervisor([reader, flaky, below], journal=journal, retry=QUICK) as boss:
            result = await boss.run(plan)
            await boss.board(run=result.id).post("a note", tags=["seen"])
        assert result.status == "succeeded"
        return result.id

    return asyncio.run(led())
