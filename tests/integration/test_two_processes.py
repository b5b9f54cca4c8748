"""Other processes reach a run through the journal: they cancel it, answer it, submit to it."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import chargehand as ch
from tests.guide.conftest import make_plan, make_task

LEADER = """
import asyncio, sys
import chargehand as ch

@ch.worker("asker", "Asks for a colour")
async def ask(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?", choices=["red", "blue"])

@ch.worker("sleeper", "Sleeps")
async def sleep(brief: ch.Brief) -> str:
    await asyncio.sleep(600)

async def main() -> None:
    async with ch.Supervisor([ask, sleep], journal=sys.argv[1]) as boss:
        boss.on(ch.events.AttemptStarted)(lambda run, event: print("started", run, flush=True))
        boss.on(ch.events.AttemptFinished)(lambda run, event: print("asked", run, flush=True))
        boss.on(ch.events.RunFinished)(lambda run, event: print(event.status.value, run, flush=True))
        print("ready", flush=True)
        if sys.argv[2] == "serve":
            await asyncio.Event().wait()
        plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="Wait for it", worker=sys.argv[2])])
        print((await boss.run(plan)).answer.output, flush=True)

asyncio.run(main())
"""


@ch.worker("asker", "Asks for a colour")
async def asker(brief: ch.Brief) -> None:
    raise AssertionError("this process is not to do the work")


@ch.worker("sleeper", "Sleeps")
async def sleeper(brief: ch.Brief) -> None:
    raise AssertionError("this process is not to do the work")


class Leader:
    def __init__(self, folder: Path, mode: str) -> None:
        script = folder / "leader.py"
        script.write_text(textwrap.dedent(LEADER))
        self.journal = folder / "runs.db"
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self.journal), mode],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("ready")

    def expect(self, word: str) -> str:
        """Read lines until one begins with this word; return the rest of it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise AssertionError(f"the leader ended before it said {word!r}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def leaders(tmp_path: Path) -> Iterator[list[Leader]]:
    started: list[Leader] = []
    yield started
    for leader in started:
        leader.end()


async def test_a_run_is_cancelled_from_another_process(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    leaders.append(leader := Leader(tmp_path, "sleeper"))
    run = leader.expect("started")
    async with ch.Supervisor([asker, sleeper], journal=leader.journal) as boss:
        await boss.cancel(run, "from outside")
        await boss.cancel(run, "from outside")
        assert leader.expect("cancelled") == run
        assert (await boss.look(run)).status == "cancelled"


async def test_a_question_is_answered_from_another_process(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    leaders.append(leader := Leader(tmp_path, "asker"))
    run = leader.expect("asked")
    async with ch.Supervisor([asker, sleeper], journal=leader.journal) as boss:
        question = (await boss.look(run)).questions[0]
        await boss.answer(question.id, "blue")
        assert leader.expect("succeeded") == run
        with pytest.raises(ch.errors.UnknownQuestion):
            await boss.answer(question.id, "red")
    assert leader.expect("blue") == ""


async def test_a_run_is_submitted_from_another_process(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    leaders.append(leader := Leader(tmp_path, "serve"))
    poster = ch.Supervisor(
        [asker, sleeper], journal=leader.journal
    )  # not at work, so not its to do
    run = await poster.post(make_plan(make_task("t", "asker")))
    assert leader.expect("started") == run
    assert leader.expect("asked") == run
    await poster.close()


async def test_a16_a_run_that_a_live_process_leads_is_not_led_twice(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    leaders.append(leader := Leader(tmp_path, "sleeper"))
    run = leader.expect("started")
    async with ch.Supervisor([asker, sleeper], journal=leader.journal) as boss:
        with pytest.raises(ch.errors.NotLeading):
            await boss.resume(run)


async def test_a_run_of_a_killed_process_is_taken_over_at_once(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    """Its lease has not run out yet, but the kernel knows that it is gone."""

    @ch.worker("sleeper", "Sleeps")
    async def awake(brief: ch.Brief) -> str:
        return f"attempt {brief.attempt}"

    leaders.append(leader := Leader(tmp_path, "sleeper"))
    run = leader.expect("started")
    os.kill(leader.process.pid, signal.SIGKILL)
    leader.process.wait()
    began = time.monotonic()
    async with ch.Supervisor([asker, awake], journal=leader.journal) as boss:
        result = await boss.resume(run)
    assert result.answer.output == "attempt 2"
    assert time.monotonic() - began < 5  # the lease is 10 s


async def test_cancelling_a_run_that_nobody_leads_ends_it_here(
    tmp_path: Path, leaders: list[Leader]
) -> None:
    leaders.append(leader := Leader(tmp_path, "sleeper"))
    run = leader.expect("started")
    leader.end()
    async with ch.Supervisor([asker, sleeper], journal=leader.journal) as boss:
        await boss.cancel(run)
        assert (await boss.look(run)).status == "cancelled"


async def test_a_posted_run_waits_for_a_supervisor_that_has_its_workers(tmp_path: Path) -> None:
    @ch.worker("echo", "Says what it is told")
    async def echo(brief: ch.Brief) -> str:
        return str(brief.args["text"])

    journal = tmp_path / "runs.db"
    poster = ch.Supervisor([echo], journal=journal)
    run = await poster.post(make_plan(make_task("t", "echo", args={"text": "hello"})))
    async with ch.Supervisor([asker], journal=journal):
        await asyncio.sleep(0)  # at work, but without an echo
    ended = asyncio.Event()
    async with ch.Supervisor([echo], journal=journal) as boss:
        boss.on(ch.events.RunFinished)(lambda run, event: ended.set())
        async with asyncio.timeout(20):
            await ended.wait()
        assert (await boss.look(run)).answer.output == "hello"
    await poster.close()
