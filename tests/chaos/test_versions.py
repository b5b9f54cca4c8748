"""Journals of other versions, and SQLites of other versions."""

import asyncio
import functools
import json
import shutil
import threading
from pathlib import Path

import apsw
import pytest

import chargehand as ch
from chargehand.errors import JournalUnfit, JournalVersion
from chargehand.facts.events import KINDS
from chargehand.journal import hash_chain as chain
from chargehand.journal import sqlite_writer
from chargehand.journal.leases import SERVED_FORMAT
from tests.corpus import make

from . import client
from .disks import here
from .oracle import check_ended, read_journal, verify

CORPUS = Path(make.__file__).parent
VERSIONS = sorted(path.name for path in CORPUS.iterdir() if (path / "view.json").exists())


def test_a17_old_sqlite_is_refused_by_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.51.3 two connections could corrupt the file; the message says what to upgrade."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(JournalUnfit, match="upgrade apsw"):
        ch.Supervisor(client.WORKERS, journal=tmp_path / "runs.db")


def test_a17_one_process_writes_with_one_thread(tmp_path: Path) -> None:
    log = here("small")
    writers: set[int | None] = set()
    before = {thread.ident for thread in threading.enumerate()}

    async def lead() -> None:
        journal = ch.open_journal(tmp_path / "runs.db")
        async with client.supervisor_on(journal, log) as boss:
            runs = [await boss.submit(client.plan_of("small")) for _ in range(3)]
            for thread in threading.enumerate():
                if "journal-writer" in thread.name and thread.ident not in before:
                    writers.add(thread.ident)
            await asyncio.gather(*(run.wait() for run in runs))
        await journal.close()

    asyncio.run(lead())
    assert len(writers) == 1


def test_a18_there_is_a_journal_of_every_format() -> None:
    assert {f"v{number}" for number in range(1, SERVED_FORMAT + 1)} == set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_a18_old_journal_means_what_it_meant(version: str, tmp_path: Path) -> None:
    """Opened by this version it comes to the same, and what was not ended can be gone on with."""
    folder = tmp_path / version
    shutil.copytree(CORPUS / version, folder)
    kept = json.loads((folder / "view.json").read_text("utf-8"))
    assert asyncio.run(make.view(folder / "runs.db")) == kept
    verify(read_journal(folder / "runs.db"), []).check()

    log = here("small")

    async def go_on() -> None:
        async with ch.Supervisor(make.WORKERS, journal=folder / "runs.db") as boss:
            boss.on(*KINDS.values())(log.acknowledge)
            run = await boss.submit(make.PLANS["asking"], key="asking")
            (question,) = (await boss.look(run.id)).questions
            await boss.answer(question.id, "red")
            assert (await run.wait()).tasks["a"].output == "red"

    asyncio.run(go_on())
    runs = read_journal(folder / "runs.db")
    verdict = verify(runs, log.lines())
    check_ended({run: runs[run] for run in {line["run"] for line in log.lines()}}, verdict)
    verdict.check()


def test_a19_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / VERSIONS[-1], tmp_path / "new")
    connection = apsw.Connection(str(tmp_path / "new" / "runs.db"))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(JournalVersion, match=r"format 99.*upgrade chargehand"):
        ch.Supervisor(client.WORKERS, journal=tmp_path / "new" / "runs.db")


def test_a19_newer_event_is_refused_and_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that a newer version wrote to cannot be looked at or resumed; other runs can."""

    async def lead(key: str) -> str:
        async with ch.Supervisor(client.WORKERS, journal=tmp_path / "runs.db") as boss:
            return (await boss.run(client.plan_of("small"), key=key)).id

    async def look(run: str) -> ch.RunResult:
        async with ch.Supervisor(client.WORKERS, journal=tmp_path / "runs.db") as boss:
            return await boss.look(run)

    here("small")
    old = asyncio.run(lead("old"))
    with monkeypatch.context() as newer:
        newer.setattr(sqlite_writer, "VERSION", 2)
        newer.setattr(sqlite_writer, "header", functools.partial(chain.header, version=2))
        new = asyncio.run(lead("new"))
    with pytest.raises(JournalVersion, match=r"version 2.*upgrade chargehand"):
        asyncio.run(look(new))
    assert asyncio.run(look(old)).status is ch.RunStatus.SUCCEEDED
