"""What the command line says of runs that people ended, and of runs that nobody leads."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from tests.guide.conftest import make_plan, make_task

#: leads a run whose worker ends the process
DIES = """
import asyncio, os, sys
import chargehand as ch

@ch.worker("clerk", "Ends its process")
async def clerk(brief: ch.Brief) -> str:
    os._exit(9)

async def main():
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="t1", description="End it all", worker="clerk")])
    async with ch.Supervisor([clerk], journal=sys.argv[1]) as boss:
        await boss.run(plan)

asyncio.run(main())
"""


@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@pytest.fixture
def asking(journal: str) -> str:
    """A run that was let go of with an open question."""

    async def left() -> str:
        async with ch.Supervisor([asker], journal=journal, on_question="return") as boss:
            return (await boss.run(make_plan(make_task("a", "asker")))).id

    return asyncio.run(left())


@pytest.mark.parametrize("options", [["--reason", "too dear"], []])
def test_show_says_who_cancelled_a_run_and_why(
    options: list[str], asking: str, journal: str
) -> None:
    assert chargehand("cancel", asking, *options, "--journal", journal).exit_code == 0
    line = chargehand("show", asking, "--journal", journal).stdout.splitlines()[1]
    assert line.startswith("cancelled by ")
    assert line.endswith(": too dear") is bool(options)
    halt = json.loads(chargehand("show", asking, "--json", "--journal", journal).stdout)["halt"]
    assert halt["reason"] == ("too dear" if options else "")


async def test_show_advises_to_watch_a_run_that_a_process_leads(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal, on_question="wait") as boss:
        run = await boss.submit(make_plan(make_task("a", "asker")))
        async for _ in boss.watch(run.id):
            if (await boss.look(run.id)).questions:
                break
        shown = await asyncio.to_thread(chargehand, "show", run.id, "--journal", journal)
        assert f"  follow it: chargehand watch {run.id}" in shown.stdout
        assert "chargehand resume" not in shown.stdout
        await boss.cancel(run.id)


def test_show_advises_to_resume_a_run_that_no_process_leads(asking: str, journal: str) -> None:
    shown = chargehand("show", asking, "--journal", journal).stdout
    assert f"  then:      chargehand resume {asking}" in shown


async def test_a_pause_names_who_wanted_it_until_it_is_over(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal, on_question="wait") as boss:
        run = await boss.submit(make_plan(make_task("a", "asker")))
        await run.pause("too dear")
        halt = (await boss.look(run.id)).halt
        assert halt is not None
        assert str(halt).startswith("paused by ")
        assert str(halt).endswith(": too dear")
        await run.unpause()
        assert (await boss.look(run.id)).halt is None


def test_a_journal_that_is_gone_is_missed(asking: str, journal: str) -> None:
    """The file beside it tells that there was one: this is no empty journal."""
    Path(journal).unlink()
    for command in (["runs"], ["status"], ["show", asking], ["copy", "--all", "--to", "x.db"]):
        result = chargehand(*command, "--journal", journal)
        assert result.exit_code != 0, command
        assert f"the journal {journal} is missing" in result.stderr
        assert "runs.db-head" in result.stderr


async def told(journal: str) -> str:
    return (await asyncio.to_thread(chargehand, "status", "--journal", journal)).stdout


async def test_status_says_why_a_run_is_not_taken_over(journal: str) -> None:
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, journal], check=False)
    assert "no process serves the journal; go on with: chargehand resume" in await told(journal)

    @ch.worker("clerk", "Another one")
    async def other(brief: ch.Brief) -> str:
        return "done"

    boss = ch.Supervisor([other], journal=journal)
    serving = asyncio.create_task(boss.serve())
    while "not taken over by" not in (said := await told(journal)):
        await asyncio.sleep(0)
    assert "its crew differs (clerk: another description)" in said
    assert "--accept" in said
    lines = await asyncio.to_thread(chargehand, "status", "--json", "--journal", journal)
    facts = json.loads(lines.stdout.splitlines()[0])
    assert list(facts["not_taken_by"].values()) == ["clerk: another description"]
    await boss.stop(0)
    await serving
    await boss.close()


async def test_status_says_that_a_run_was_let_go_of(journal: str) -> None:
    @ch.worker("slow", "Never ends")
    async def slow(brief: ch.Brief) -> str:
        begun.set()
        return await asyncio.Future()

    begun = asyncio.Event()
    async with ch.Supervisor([slow], journal=journal) as boss:
        run = await boss.submit(make_plan(make_task("a", "slow")))
        await begun.wait()
        await boss.stop(0)
    assert "released on purpose; go on with: chargehand resume" in await told(journal)
    assert run.id in await told(journal)
