"""What the command line says of runs that people ended, and of runs that nobody leads."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.cli.find_run import FoundRun, standing_of
from chargehand.cli.run_details import shown as shown_lines
from chargehand.cli.warning_sentences import log_line, log_words
from chargehand.errors import JournalBusy
from chargehand.presentation.run_status import status_of
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


#: that say how a run stands
COMMANDS = ("runs", "status", "show last")


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


async def test_show_counts_the_time_of_a_run_that_is_under_way_up_to_now(journal: str) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ch.worker("slow", "Takes its time")
    async def slow(brief: ch.Brief) -> str:
        begun.set()
        await may_end.wait()
        return "done"

    async with ch.Supervisor([slow], journal=journal) as boss:
        run = await boss.submit(make_plan(make_task("a", "slow")))
        await begun.wait()
        words = ("show", run.id, "--json", "--journal", journal)
        before = json.loads((await asyncio.to_thread(chargehand, *words)).stdout)
        after = json.loads((await asyncio.to_thread(chargehand, *words)).stdout)
        assert before["status"] == "running"
        assert 0 < before["seconds"] < after["seconds"]
        standing = FoundRun(await boss.look(run.id), "running")
        later = (standing.result.trace.began_at or datetime.now(UTC)) + timedelta(seconds=90)
        lines = [
            "".join(part.text for part in line)
            for line in shown_lines(standing, journal, 80, later)
        ]
        assert f"run {run.id}: running after 1m30s" in lines
        assert "◐ a  running, slow, 1m30s" in lines
        may_end.set()
        await run.wait()


def test_show_counts_the_time_of_a_run_that_waits_up_to_its_last_event(
    asking: str, journal: str
) -> None:
    words = ("show", asking, "--json", "--journal", journal)
    first, second = (json.loads(chargehand(*words).stdout)["seconds"] for _ in range(2))
    assert first == second


def test_json_of_a_run_that_spent_nothing_has_all_fields_of_its_usage(
    asking: str, journal: str
) -> None:
    usage = json.loads(chargehand("show", asking, "--json", "--journal", journal).stdout)["usage"]
    spent = dict.fromkeys(("calls", "tokens_in", "tokens_out", "cache_read", "cache_written"), 0)
    assert usage == {**spent, "money": 0.0}


def test_show_advises_to_resume_a_run_that_no_process_leads(asking: str, journal: str) -> None:
    shown = chargehand("show", asking, "--journal", journal).stdout
    assert f"  then:      chargehand resume {asking}" in shown


def test_a_run_that_was_returned_with_a_question_waits_for_an_answer(
    asking: str, journal: str
) -> None:
    """No process leads it, but it was not interrupted: it says what answers it, and what resumes it then."""
    words = {name: chargehand(*name.split(), "--journal", journal).stdout for name in COMMANDS}
    for name, shown in words.items():
        assert "waits for an answer" in shown, name
        assert "interrupted" not in shown, name
    for shown in (words["show last"], words["status"]):
        assert f"chargehand answer {asking}:a:" in shown
        assert f"chargehand resume {asking}" in shown
    facts = json.loads(chargehand("runs", "--json", "--journal", journal).stdout)
    assert facts["status"] == "waiting"
    answered = chargehand("answer", asking, "red", "--journal", journal)
    assert (
        f"no process leads the run; continue it with: chargehand resume {asking}" in answered.stderr
    )
    for name in COMMANDS:
        shown = chargehand(*name.split(), "--journal", journal).stdout
        assert "interrupted" not in shown, "nothing went wrong with it"
        assert asking in shown
        assert "answered" in shown
    assert (
        f"continue it with: chargehand resume {asking}"
        in chargehand("status", "--journal", journal).stdout
    )


def test_a_command_for_a_run_that_nobody_leads_says_what_resumes_it(
    asking: str, journal: str
) -> None:
    said = chargehand("pause", asking, "--journal", journal).stderr
    assert (
        f"will be paused as soon as a process leads it; continue it with: chargehand resume {asking}"
        in said
    )


async def test_a_command_names_the_process_that_leads_the_run(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal, on_question="wait") as boss:
        run = await boss.submit(make_plan(make_task("a", "asker")))
        said = await asyncio.to_thread(chargehand, "pause", run.id, "--journal", journal)
        assert f"will be paused as soon as process {os.getpid()} on " in said.stderr
        await boss.cancel(run.id)


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
    assert "no process serves the journal; continue it with: chargehand resume" in await told(
        journal
    )

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
    assert "released on purpose; continue it with: chargehand resume" in await told(journal)
    assert run.id in await told(journal)


def test_tasks_that_wait_for_their_next_try_are_counted_apart(journal: str) -> None:
    """One task, and one whose items are all to be tried again; none of them is worked on."""
    plan = make_plan(make_task("a", "flaky"), make_task("b", "flaky", for_each=[1, 2]))

    @ch.worker("flaky", "Fails")
    async def flaky(brief: ch.Brief) -> str:
        raise ConnectionError("reset")

    async def left() -> str:
        later = ch.RetryPolicy(first=600, cap=600)
        async with ch.Supervisor([flaky], journal=journal, retry=later) as boss:
            run = await boss.submit(plan)
            seen = 0
            async for event in boss.watch(run.id):
                seen += isinstance(event, ch.events.RetryPlanned)
                if seen == 3:
                    break
            await boss.stop(0)
            return run.id

    run = asyncio.run(left())
    for command in (["show", run], ["status"]):
        shown = chargehand(*command, "--journal", journal).stdout
        assert "2 to be tried again" in shown
        assert "running" not in shown
    tree = chargehand("trace", run, "--tree", "--journal", journal).stdout
    assert "3 failed attempts" in tree.splitlines()[0]


@pytest.mark.parametrize("command", [["answer", "last", "red"], ["cancel", "last"]])
def test_a_command_at_a_locked_journal_says_that_it_waits_and_gives_up(
    command: list[str], asking: str, journal: str
) -> None:
    """Within a second it says for what it waits, and after four it says what to do; the run is as it was."""
    lock = apsw.Connection(journal)
    lock.execute("begin immediate")
    program = [sys.executable, "-m", "chargehand", *command, "--journal", journal]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    lock.execute("rollback")
    assert ended.returncode == 2
    waits, refused = ended.stderr.splitlines()
    assert waits.startswith(f"chargehand: waiting up to 4 s for {journal}, which another program")
    assert refused == (
        f"chargehand: {journal} is locked by another program; close that program, or try again later"
    )
    assert "waits for an answer" in chargehand("show", asking, "--journal", journal).stdout
    assert chargehand(*command, "--journal", journal).exit_code == 0


def test_what_is_logged_at_the_command_line_is_a_sentence() -> None:
    def words(message: str, *args: object) -> str:
        return log_words(logging.LogRecord("c", logging.WARNING, "f", 1, message, args, None))

    waits = "run_waits run=%s task=%s for=%r%s; %s"
    assert words(waits, "r1", "@items:t3", "the supervisor", "", "it continues by itself") == (
        "listing the items of t3 of r1 waits for the supervisor; it continues by itself"
    )
    model = "model_waits provider=%s up_to_seconds=%.0f waiting=%d reason=%s; …%s"
    busy = "openai answered 429; try again after 2 s, or work with fewer calls at once"
    waiting = logging.LogRecord(
        "c", logging.WARNING, "f", 1, model, ("openai", 598.0, 2, busy, ""), None
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  2 calls wait up to 598 s for openai: openai answered 429. It continues by itself; .*",
        log_line(waiting),
    )
    postgres = "journal_waits path=%s: %s"
    assert words(postgres, "db", JournalBusy("no answer")) == "journal_waits path=db: no answer"
    assert words("plan_warning run=%s", "r1") == "plan_warning run=r1"


async def test_look_tells_that_the_process_of_a_run_died(journal: str) -> None:
    """A program that polls `look` sees what the command line and the MCP server say, from one function."""
    left = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, journal)
    await left.wait()
    async with ch.Supervisor([asker], journal=journal) as boss:
        (head,) = await boss.journal.heads()
        seen = await boss.look(head.stream)
        assert (seen.is_interrupted, seen.leader) == (True, None)
        assert seen.status.value == "running"
        assert status_of(seen) == (await standing_of(boss, head)).status == "interrupted"


async def test_look_names_the_process_that_leads_a_run(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal, on_question="wait") as boss:
        run = await boss.submit(make_plan(make_task("a", "asker")))
        async for _ in boss.watch(run.id):
            if (await boss.look(run.id)).questions:
                break
        async with ch.Supervisor([asker], journal=journal) as other:
            for seen in (await boss.look(run.id), await other.look(run.id)):
                assert seen.leader is not None
                assert (seen.leader.pid, seen.is_interrupted) == (os.getpid(), False)
        await boss.cancel(run.id)
        ended = await boss.look(run.id)
        assert (ended.leader, ended.is_interrupted) == (None, False)


async def test_look_leaves_out_a_question_whose_answer_waits_for_a_leader(
    tmp_path: Path,
) -> None:
    journal = str(tmp_path / "runs.db")
    async with ch.Supervisor([asker], journal=journal, on_question="return") as boss:
        run = (await boss.run(make_plan(make_task("a", "asker")))).id
    async with ch.Supervisor([asker], journal=journal) as boss:
        seen = await boss.look(run)
        (question,) = seen.questions
        assert (seen.is_interrupted, seen.answered) == (False, {})
        await boss.answer(question.id, "red", by="ann")
        seen = await boss.look(run)
        assert seen.questions == []
        assert seen.answered == {question.id: "red (by ann)"}
        assert seen.is_interrupted  # there is work to do, and nobody does it
        assert (await boss.resume(run)).output == "red"


async def test_a_run_that_was_only_submitted_is_not_interrupted(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal) as boss:
        run = await boss.post(make_plan(make_task("a", "asker")))
        seen = await boss.look(run)
        assert (seen.is_interrupted, seen.leader) == (False, None)


async def test_a_note_for_a_run_that_nobody_leads_says_what_its_leader_needs(journal: str) -> None:
    async with ch.Supervisor([asker], journal=journal, model=ch.ScriptedModel([])) as boss:
        await boss.post("Ask for a colour")
    told = await asyncio.to_thread(chargehand, "steer", "last", "Hurry", "--journal", journal)
    assert told.exit_code == 0
    assert "as soon as a process leads it, if its crew has a model" in told.stderr


@pytest.mark.parametrize("command", [*COMMANDS, "trace last", "answer last red", "watch last"])
@pytest.mark.parametrize("as_", ["option", "variable"])
def test_a_journal_that_was_named_and_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, as_: str
) -> None:
    place = str(tmp_path / "teem.db")
    if as_ == "variable":
        monkeypatch.setenv("CHARGEHAND_JOURNAL", place)
    told = chargehand(*command.split(), *(["--journal", place] if as_ == "option" else []))
    assert (told.exit_code, told.stdout) == (2, "")
    assert f"there is no journal at {place}" in told.stderr


@pytest.mark.parametrize("command", ["runs", "status"])
def test_no_journal_at_the_default_place_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_JOURNAL", raising=False)
    told = chargehand(command)
    assert (told.exit_code, "runs in .chargehand/runs.db" in told.stderr) == (0, True)
