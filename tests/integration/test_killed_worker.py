"""A worker with a mind, killed for real between two tool calls, and a provider that is down for an hour."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from chargehand.testing.model_server import ModelServer, Say, model_server
from tests.guide.conftest import make_plan, make_task

SCRIPT = """
import asyncio, os, signal, sys
from pathlib import Path
import chargehand as ch

journal, url, log, life = sys.argv[1:5]

def note(what: str) -> None:
    with Path(log).open("a") as file:
        file.write(what + "\\n")

@ch.tool(effect="once")
async def pay(what: str) -> str:
    "Pay for something."
    note(f"pay {what}")
    if life == "dies in doubt":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

@ch.tool(effect="pure")
async def look(what: str) -> str:
    "Look at something."
    if life == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    note(f"look {what}")
    return "seen"

async def main() -> None:
    model = ch.open_model("openai:gpt-4o", base_url=url, key="k" * 20)
    mind = ch.Worker("mind", "Thinks", model=model, tools=[pay, look])
    task = ch.Task(id="only", description="Pay the rent, then look at the post", worker="mind")
    async with ch.Supervisor([mind], journal=journal) as boss:
        if life == "is asked":
            boss.on(ch.events.AttemptFinished)(lambda run, event: print(bytes(event.outcome.question.evidence.json).decode(), flush=True) or os._exit(0))
        result = await boss.run(ch.Plan(goal="Pay and look", tasks=[task]), key="k")
        print(result.answer.output, flush=True)

asyncio.run(main())
"""


async def live(folder: Path, server: ModelServer, life: str) -> "subprocess.CompletedProcess[str]":
    script = folder / "life.py"
    script.write_text(SCRIPT)
    arguments = [str(folder / "runs.db"), f"{server.url}/v1", str(folder / "log"), life]
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def call(id_: str, name: str, what: str) -> Say:
    return Say(calls=(ToolCall(id_, name, json.dumps({"what": what})),))


async def test_a_worker_killed_between_two_tool_calls_repeats_neither(tmp_path: Path) -> None:
    async with model_server() as server:
        server.say(call("1", "pay", "rent"), call("2", "look", "post"), Say(text="All done."))
        died = await live(tmp_path, server, "dies")
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert len(server.requests) == 2
        lived = await live(tmp_path, server, "lives")
        assert lived.stdout == "All done.\n", lived.stderr
        assert len(server.requests) == 3, "the model was asked again for what it had answered"
    assert (tmp_path / "log").read_text().splitlines() == ["pay rent", "look post"]


async def test_a_once_call_in_doubt_asks_and_is_not_made_again(tmp_path: Path) -> None:
    async with model_server() as server:
        server.say(call("1", "pay", "rent"), Say(text="All done."))
        died = await live(tmp_path, server, "dies in doubt")
        assert died.returncode == -signal.SIGKILL, died.stderr
        asked = await live(tmp_path, server, "is asked")
        evidence = json.loads(asked.stdout)
        assert evidence == {"step": "tool pay", "worker": "mind", "given": {"what": "rent"}}
        assert len(server.requests) == 1
    assert (tmp_path / "log").read_text().splitlines() == ["pay rent"]


@pytest.mark.parametrize("error", [ch.errors.ModelBusy, ch.errors.ModelUnreachable])
def test_d13_a_provider_that_is_down_for_an_hour_fails_no_run(
    error: type[ch.errors.ModelError],
) -> None:
    """In virtual time: calls are put off, by limiter and breaker, and waiting uses up no attempt."""

    async def main() -> ch.RunResult:
        loop = asyncio.get_running_loop()

        def answer(request: object) -> "str | Exception":
            if 0 < loop.time() < 3600:
                return error("overloaded")
            return "there"

        mind = ch.Worker("mind", "Thinks", model=ch.ScriptedModel([answer] * 5000))
        board = ch.ModelGateway(patience=timedelta(hours=3))
        limits = ch.Limits(active=timedelta(hours=5))
        boss = ch.Supervisor([mind], clock=FakeClock(), gateway=board, limits=limits)
        async with boss:
            await boss.run(make_plan(make_task("before", "mind")))
            await asyncio.sleep(1)
            return await boss.run(make_plan(*(make_task(f"t{n}", "mind") for n in range(5))))

    result = run_virtual(main())
    assert result.status == "succeeded"
    assert {each.attempts for each in result.tasks.values()} == {1}
    assert timedelta(minutes=59) < result.wall < timedelta(minutes=70)
