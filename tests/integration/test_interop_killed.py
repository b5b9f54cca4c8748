"""Agents of other frameworks whose process is killed with -9 in the middle of a model call."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

pytest.importorskip("agents", reason="needs openai-agents: pip install chargehand[openai-agents]")
pytest.importorskip("pydantic_ai", reason="needs pydantic-ai-slim")

from chargehand.testing.model_server import Say, model_server
from tests.integration.interop_at_work import ADD, Hang

SCRIPT = Path(__file__).parent / "agents_at_work.py"


@pytest.mark.parametrize("framework", ["openai", "pydantic"])
async def test_after_a_kill_no_call_that_had_ended_is_made_again(
    framework: str, tmp_path: Path
) -> None:
    async with model_server() as server:
        hang = Hang()
        server.say(Say(calls=(ADD,)), hang, Say(text="It is 3."))
        command = (sys.executable, str(SCRIPT), framework, server.url, str(tmp_path))
        first = await asyncio.create_subprocess_exec(*command)
        await hang.asked.wait()
        first.kill()
        await first.wait()
        second = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        told, _ = await second.communicate()
    assert told.decode() == "It is 3.\n"
    assert (tmp_path / "calls").read_text() == "3\n"
    assert len(server.requests) == 3
    assert server.requests[1].body == server.requests[2].body
