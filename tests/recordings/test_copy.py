"""Copying runs between journals, and importing recordings."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import recordings
from chargehand.errors import NotLeading, RunDiffers
from chargehand.journal.base import Journal
from chargehand.journal.verify import verified
from tests.postgres_server import PostgresServer
from tests.recordings.recorded_run import (
    SECRET_WORDS,
    chargehand,
    flaky,
    plan_of,
    reader,
    task,
)


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    return postgres.dsn


async def told(where: str, run: str) -> tuple[object, ...]:
    """All that can be read of a run: how it ended, its answer, its trace, its board, whether it is whole."""
    async with ch.Supervisor([], journal=where) as boss:
        result = await boss.look(run)
        trace = await asyncio.to_thread(lambda: result.trace.to_json())
        answer = await asyncio.to_thread(lambda: str(result.answer))
        notes = [note.content for note in await boss.board(run=run).notes(segments=["notes"])]
        faults = [each.faults async for each in verified(boss.journal, run)]
    return result.status, answer, trace, notes, faults


def test_a_run_goes_to_postgres_and_back(run: str, journal: str, dsn: str, tmp_path: Path) -> None:
    """Everything that belongs to it, its hash chain intact."""
    back = str(tmp_path / "back.db")
    there = chargehand("copy", run, "--journal", journal, "--to", dsn)
    assert there.exit_code == 0
    assert chargehand("copy", run, "--journal", dsn, "--to", back).exit_code == 0
    before, after = asyncio.run(told(journal, run)), asyncio.run(told(back, run))
    assert before == after == asyncio.run(told(dsn, run))
    assert SECRET_WORDS in str(before[3])
    assert before[4] == [()]
    archives = [asyncio.run(recordings.load(run, where)) for where in (journal, dsn, back)]
    assert len({archive.hash(each) for archive in archives for each in archive.runs}) == 2
    streams = [archive.streams for archive in archives]
    assert streams[0] == streams[1] == streams[2]
    for where in (dsn, back):
        again = chargehand("copy", run, "--journal", journal, "--to", where)
        assert again.stdout == f"run {run}: already there\n"


def test_a_recording_is_imported(run: str, journal: str, tmp_path: Path) -> None:
    file, other = str(tmp_path / "run.chargehand"), str(tmp_path / "other.db")
    chargehand("record", run, "-o", file, "--journal", journal)
    (line,) = chargehand("copy", file, "--to", other, "--json").stdout.splitlines()
    copied = json.loads(line)
    assert copied["run"] == run
    assert copied["new"] == copied["events"] > 0
    assert asyncio.run(told(other, run)) == asyncio.run(told(journal, run))


@pytest.mark.parametrize("command", ["copy", "fork"])
def test_what_cannot_be_read_leaves_no_journal_behind(
    run: str, journal: str, tmp_path: Path, command: str
) -> None:
    damaged, target = tmp_path / "damaged.chargehand", tmp_path / "new.db"
    asyncio.run(recordings.record(run, damaged, journal))
    damaged.write_bytes(damaged.read_bytes()[:-40])
    words = {"copy": ["--to"], "fork": ["--dry-run", "--journal"]}[command]
    assert chargehand(command, str(damaged), *words, str(target)).exit_code != 0
    assert not target.exists()


def test_a_run_that_is_not_there_leaves_no_journal_behind(journal: str, tmp_path: Path) -> None:
    target = tmp_path / "new.db"
    with pytest.raises(ch.errors.UnknownRun):
        asyncio.run(recordings.copy(["r0"], journal, target))
    assert not target.exists()


def test_all_runs_are_copied_with_one_command(run: str, journal: str, tmp_path: Path) -> None:
    async def another() -> str:
        async with ch.Supervisor([reader, flaky], journal=journal) as boss:
            return (await boss.run(plan_of(task("z")))).id

    second = asyncio.run(another())
    result = chargehand("copy", "--all", "--journal", journal, "--to", str(tmp_path / "other.db"))
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [
        f"run {run}",
        f"run {second}",
    ]


@pytest.mark.parametrize("words", [[], ["--all", "r1"]])
def test_what_to_copy_is_said_in_one_way(words: list[str], tmp_path: Path) -> None:
    result = chargehand("copy", *words, "--to", str(tmp_path / "other.db"))
    assert result.exit_code == 2
    assert "--all" in result.stderr
    assert not (tmp_path / "other.db").exists()


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Journal, Journal]]:
    journals = ch.open_journal(tmp_path / "a.db"), ch.open_journal(tmp_path / "b.db")
    yield journals
    for each in journals:
        await each.close()


async def test_a_run_that_is_led_right_now_is_refused(two: tuple[Journal, Journal]) -> None:
    here, there = two
    going, waited = asyncio.Event(), asyncio.Event()

    @ch.worker("waits", "Waits until it may end")
    async def waits(brief: ch.Brief) -> str:
        going.set()
        await waited.wait()
        return "done"

    async with ch.Supervisor([waits], journal=here) as boss:
        led = await boss.submit(plan_of(task("a", "waits")))
        await going.wait()
        with pytest.raises(NotLeading, match="stop it first"):
            await recordings.copy([led.id], here, there)
        assert await there.heads() == []
        waited.set()
        await led.wait()
    assert (await recordings.copy([led.id], here, there))[0].new > 0


async def test_an_interrupted_run_goes_on_elsewhere(two: tuple[Journal, Journal]) -> None:
    """It is resumed in the second journal, with the answer that was waiting for it; what was done is kept."""
    here, there = two
    done: list[str] = []

    @ch.worker("asks", "Asks a person")
    async def asks(brief: ch.Brief) -> str:
        done.append(brief.task.id)
        if brief.task.id == "a":
            return "first"
        return await brief.ask("How many?")

    plan = plan_of(task("a", "asks"), task("b", "asks", "a"))
    async with ch.Supervisor([asks], journal=here, on_question="return") as boss:
        left = await boss.run(plan)
    assert left.status == "waiting"
    (copied,) = await recordings.copy([left.id], here, there)
    assert copied.new == copied.events
    async with ch.Supervisor([asks], journal=there, on_question="return") as boss:
        await boss.answer(left.questions[0].id, "three")
        result = await boss.resume(left.id)
    assert result.status == "succeeded"
    assert done.count("a") == 1
    assert (await recordings.copy([left.id], here, there))[0].new == 0, "it is ahead there"
    archive = await recordings.load(left.id, there)
    assert (await recordings.replay(archive)).difference is None


async def test_an_unfinished_fork_brings_the_run_that_it_needs(
    two: tuple[Journal, Journal],
) -> None:
    here, there = two
    done: list[str] = []

    @ch.worker("asks", "Asks a person the second time")
    async def asks(brief: ch.Brief) -> str:
        done.append(brief.task.id)
        return await brief.ask("Well?") if done.count("b") > 1 else "first"

    async with ch.Supervisor([asks], journal=here, on_question="return") as boss:
        first = await boss.run(plan_of(task("a", "asks"), task("b", "asks")))
        left = await boss.fork(first.id, redo=["b"])
    assert left.status == "waiting"
    await recordings.copy([left.id], here, there)
    assert {head.stream for head in await there.heads()} == {first.id, left.id}
    async with ch.Supervisor([asks], journal=there) as boss:
        await boss.answer(left.questions[0].id, "three")
        result = await boss.resume(left.id)
    assert result.status == "succeeded"
    assert done.count("a") == 1


async def test_another_run_of_the_same_name_is_refused(two: tuple[Journal, Journal]) -> None:
    for number, each in enumerate(two):
        async with ch.Supervisor([reader], journal=each) as boss:
            result = await boss.run(plan_of(task(f"t{number}")), key="the same")
            await boss.run(plan_of(task("x")), key="the same but one") if number else None
    here, there = two
    with pytest.raises(RunDiffers, match=result.id):
        await recordings.copy([result.id], here, there)
    heads = {head.stream: head.seq for head in await there.heads()}
    assert len(heads) == 2
