"""Journals that this user may only read: commands that look at runs work, and change nothing beside them."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.errors import JournalReadOnly
from tests.guide.conftest import make_plan, make_task


@ch.worker("clerk", "Is done at once")
async def clerk(brief: ch.Brief) -> str:
    return "filed"


@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


Forbid = Callable[..., None]


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A journal with a run that is done and one that asks."""
    place = str(tmp_path / "runs.db")

    async def work() -> None:
        async with ch.Supervisor([clerk, asker], journal=place, on_question="return") as boss:
            await boss.run(make_plan(make_task("a", "clerk")))
            await boss.run(make_plan(make_task("b", "asker")))

    asyncio.run(work())
    return place


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Forbid:
    """Take rights away from this user, who may be root and then has all of them."""

    def taken(kind: int, *paths: str) -> None:
        allowed = os.access
        monkeypatch.setattr(
            os,
            "access",
            lambda path, mode, **more: (
                not (mode == kind and str(path) in paths) and allowed(path, mode, **more)
            ),
        )

    return taken


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_commands_that_look_at_runs_read_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid, tmp_path: Path, locked: str
) -> None:
    before = files_in(tmp_path)
    forbid(os.W_OK, journal if locked == "file" else str(tmp_path))
    for words in (
        ["runs"],
        ["status"],
        ["show", "last"],
        ["trace", "last"],
        ["notes", "last", "--all"],
        ["blocks", "last"],
        ["talk", "last"],
        ["verify"],
    ):
        told = chargehand(*words, "--journal", journal)
        assert told.exit_code == 0, (words, told.output)
    assert "Which colour?" in chargehand("show", "last", "--journal", journal).stdout
    assert files_in(tmp_path) == before


def test_a_command_that_would_write_is_refused_by_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid
) -> None:
    forbid(os.W_OK, journal)
    for words in (["answer", "last", "red"], ["cancel", "last"], ["steer", "last", "Hurry"]):
        told = chargehand(*words, "--journal", journal)
        assert (told.exit_code, "cannot be written" in told.stderr) == (2, True), told.output


def test_a_supervisor_with_workers_refuses_a_journal_that_cannot_be_written(
    journal: str, forbid: Forbid
) -> None:
    forbid(os.W_OK, journal)
    with pytest.raises(JournalReadOnly):
        ch.Supervisor([clerk], journal=journal)


@pytest.mark.parametrize("part", ["", "-head"])
@pytest.mark.parametrize("command", ["runs", "status", "verify"])
def test_a_journal_that_cannot_even_be_read_is_told_as_that(
    journal: str, forbid: Forbid, part: str, command: str
) -> None:
    forbid(os.R_OK, journal + part)
    forbid(os.W_OK, journal)
    told = chargehand(command, "--journal", journal)
    assert told.exit_code == 2
    assert f"{journal}{part} cannot be read" in told.stderr


def test_a_log_that_another_process_writes_is_read_too(journal: str, forbid: Forbid) -> None:
    async def watched() -> Result:
        async with ch.Supervisor([clerk], journal=journal) as boss:
            await boss.run(make_plan(make_task("fresh", "clerk")))
            forbid(os.W_OK, journal)
            return await asyncio.to_thread(chargehand, "show", "last", "--journal", journal)

    assert "fresh" in asyncio.run(watched()).stdout
