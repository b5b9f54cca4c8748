"""D13: a provider that answered before and stays away parks the run: waiting, resumable, in its own words."""

import asyncio
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand import errors
from chargehand.models import gateway, provider_queue
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from chargehand.testing.model_protocols import Say
from chargehand.testing.model_server import ModelServer, Status, model_server
from tests.guide.conftest import make_plan, make_task

GONE = Status(status=503, words="the hall is flooded", kind="server_error")
LOOK = ToolCall("1", "look", "{}")
CREW = """
from datetime import timedelta
import chargehand as ch
from chargehand.models import gateway, provider_queue

provider_queue.PARK = gateway.PARK = 0.1
gateway.FIRST_WAIT = 0.5

@ch.tool(effect="once")
def look() -> str:
    "Look once."
    with open("looked.txt", "a") as file:
        file.write("x")
    return "a tower"

model = ch.open_model("openai:gpt-4.1", base_url={url!r}, key="sk-test-key")
mind = ch.Worker("mind", "Looks", model=model, tools=[look])
patient = ch.ModelGateway(patience=timedelta(seconds=0.05))
boss = ch.Supervisor([mind], gateway=patient)
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, so that real HTTP need not take minutes."""
    for module in (provider_queue, gateway):
        monkeypatch.setattr(module, "PARK", 0.1)
    monkeypatch.setattr(gateway, "FIRST_WAIT", 0.5)


def boss_at(server: ModelServer, looked: list[str], **terms: Any) -> ch.Supervisor:
    @ch.tool(effect="once")
    def look() -> str:
        """Look once."""
        looked.append("x")
        return "a tower"

    model = ch.open_model("openai:gpt-4.1", base_url=f"{server.url}/v1", key="sk-test-key")
    mind = ch.Worker("mind", "Looks", model=model, tools=[look])
    board = ch.ModelGateway(patience=timedelta(seconds=0.05))
    return ch.Supervisor([mind], gateway=board, **terms)


@pytest.mark.usefixtures("hasty")
async def test_d13_the_caller_gets_the_waiting_run_and_resumes_it(tmp_path: Path) -> None:
    looked: list[str] = []
    async with model_server() as server:
        server.say(Say(calls=(LOOK,)))
        server.always = GONE
        boss = boss_at(server, looked, journal=tmp_path / "runs.db")
        plan = make_plan(make_task("t", "mind"))
        left = await asyncio.wait_for(asyncio.to_thread(boss.run_sync, plan), 30)
        assert (left.status, left.tasks["t"].state) == ("waiting", "retrying")
        assert "the hall is flooded" in str(left.tasks["t"].waits_for)
        sent = len(server.requests)
        server.always = Say(text="There is a tower.")
        later = boss_at(server, looked, journal=tmp_path / "runs.db")
        result = await later.resume(left.id)
        assert (result.status, result.output) == ("succeeded", "There is a tower.")
        assert (len(server.requests) - sent, looked) == (1, ["x"]), "nothing is done twice"
        assert result.tasks["t"].attempts == 1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("on_question", [None, "return", "fail"])
async def test_d13_in_memory_it_fails_in_the_provider_s_words(on_question: str | None) -> None:
    async with model_server() as server:
        server.say(Say(calls=(LOOK,)))
        server.always = GONE
        boss = boss_at(server, [], on_question=on_question)
        result = await asyncio.wait_for(boss.run(make_plan(make_task("t", "mind"))), 30)
    if on_question == "return":  # by whoever holds the supervisor
        assert result.status == "waiting"
        return
    error = result.tasks["t"].error
    assert error is not None
    assert (result.status, error.error) == ("failed", "ModelUnreachable")
    assert "the hall is flooded" in error.message
    assert "journal='runs.db'" in error.message
    assert result.usage.calls == 1


async def test_d13_at_the_command_line_it_exits_with_4_and_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    async def command(*args: str) -> tuple[int, str, str]:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chargehand", *args),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        out, err = await asyncio.wait_for(program.communicate(), 60)
        return program.returncode or 0, out.decode(), err.decode()

    async with model_server() as server:
        server.say(Say(calls=(LOOK,)))
        server.always = GONE
        (tmp_path / "crew.py").write_text(CREW.format(url=f"{server.url}/v1"))
        (tmp_path / "plan.json").write_text(make_plan(make_task("t", "mind")).to_json())
        crew = ("--crew", "crew.py:boss", "--journal", "r.db")
        code, _, told = await command("run", "--plan", "plan.json", *crew)
        assert code == 4, told
        assert "the hall is flooded" in told
        hint = re.search(r"then:\s+chargehand (resume .*)", told)
        assert hint is not None, told
        server.always = Say(text="There is a tower.")
        code, said, told = await command(*hint[1].split())
    assert (code, said.strip()) == (0, "There is a tower."), told
    assert (tmp_path / "looked.txt").read_text() == "x"


@pytest.mark.parametrize("status", [0, 502, 503])
@pytest.mark.parametrize("before", [False, True])
def test_a_lone_request_waits_only_for_a_provider_that_has_answered_before(
    status: int, *, before: bool
) -> None:
    """Alone, it cannot tell an outage from its own fault: what was never served fails in seconds."""
    down = errors.ModelUnreachable("it is gone", status=status)

    def answer(_: object) -> "str | Exception":
        now = asyncio.get_running_loop().time()
        return down if (1 if before else 0) <= now < 120 else "there"

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Thinks", model=ch.ScriptedModel([answer] * 500))
        async with ch.Supervisor([mind], clock=FakeClock()) as boss:
            if before:
                await boss.run(make_plan(make_task("before", "mind")))
            await asyncio.sleep(1)
            return await boss.run(make_plan(make_task("t", "mind")))

    result = run_virtual(main())
    assert result.status == ("succeeded" if before else "failed")
    if before:
        assert timedelta(seconds=100) < result.wall < timedelta(minutes=4)
        assert result.tasks["t"].attempts == 1
    else:
        assert result.wall < timedelta(seconds=20)
