"""`chargehand verify` changes nothing, and a path that can hold no journal is refused in words."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.errors import JournalDamaged, JournalError, UsageError
from chargehand.journal.open_journal import open_journal, open_to_check
from tests.integration.sqlite_at_hand import notes


def append(path: Path, *texts: str) -> None:
    async def do() -> None:
        async with ch.Supervisor([], journal=path) as boss:
            for text in texts:
                await boss.journal.append("run", notes(text))

    asyncio.run(do())


def files_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def command(*words: str, journal: Path | str) -> Result:
    return CliRunner().invoke(main, [*words, "--journal", str(journal)])


def roll_back(path: Path) -> None:
    shutil.copy(path, path.with_name("older"))
    append(path, "b")
    path.with_name("older").replace(path)


def swap_mark(path: Path) -> None:
    other = path.with_name("other.db")
    append(other, "x")
    shutil.copy(f"{other}-head", f"{path}-head")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "rolled back": roll_back,
    "swapped mark": swap_mark,
    "missing mark": lambda path: Path(f"{path}-head").unlink(),
    "junk mark": lambda path: Path(f"{path}-head").write_bytes(b"\xff" * 4000),
    "emptied": lambda path: path.write_bytes(b""),
    "cut off": lambda path: os.truncate(path, 5000),
    "overwritten": lambda path: path.write_text("this is not a database, though it is long enough"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_check_of_a_damaged_journal_changes_nothing_and_it_is_refused_as_before(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "runs.db"
    append(path, "a")
    DAMAGE[damage](path)
    before = files_in(tmp_path)
    for _ in range(2):
        told = command("verify", journal=path)
        assert told.exit_code == 1, told.output
        assert "the journal as a whole" in told.stdout
        assert "no damage found" not in told.stderr
        assert files_in(tmp_path) == before
    with pytest.raises(JournalDamaged):
        open_journal(path)


def test_a_file_that_never_was_a_journal_is_not_called_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("#!/usr/bin/env python\nprint('no journal, and no backup of one either')\n")
    with pytest.raises(JournalError, match="is not a chargehand journal") as refused:
        open_journal(path)
    assert "backup" not in str(refused.value)
    told = command("runs", journal=path)
    assert "give the path of a journal" in told.stderr
    assert path.read_text().startswith("#!/usr/bin/env python")


def test_a_journal_with_a_lost_tail_counts_only_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    append(path, "a")
    roll_back(path)
    assert (
        "1 of 1 runs are intact; the journal as a whole is"
        in command("verify", journal=path).stderr
    )
    assert command("verify", "run", journal=path).exit_code == 1
    assert "the nearest are run" in command("verify", "ru-n", journal=path).stderr
    asyncio.run(_accept(path))
    assert "1 of 1 runs are intact; no damage found" in command("verify", journal=path).stderr


async def _accept(path: Path) -> None:
    await open_journal(path, accept_damage=True).close()


def test_a_check_of_a_sound_journal_leaves_every_byte_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    append(path, "a", "b")
    before = files_in(tmp_path)
    assert command("verify", journal=path).exit_code == 0
    assert files_in(tmp_path) == before


async def test_a_log_that_a_killed_process_left_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = open_journal(path)
    await journal.append("run", notes("a"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for each in ("runs.db", "runs.db-wal", "runs.db-head"):
        shutil.copy(tmp_path / each, copy / each)
    await journal.close()
    before = files_in(copy)
    check = open_to_check(copy / "runs.db")
    assert [head.stream for head in await check.journal.heads()] == ["run"]
    await check.journal.close()
    after = files_in(copy)
    after.pop("runs.db-shm", None)  # an index of the log, which SQLite makes of it
    assert after == before


async def test_a_journal_can_be_checked_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with ch.Supervisor([], journal=path) as boss:
        await boss.journal.append("run", notes("a"))
        check = open_to_check(path)
        await boss.journal.append("run", notes("b"))
        assert check.faults == ()
        assert [entry.seq async for entry in check.journal.read("run")] == [1, 2]
        await check.journal.close()
        await boss.journal.append("run", notes("c"))


def test_an_empty_file_is_not_made_a_journal_by_a_check(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    with pytest.raises(JournalError, match="is empty, so there is nothing to check"):
        open_to_check(path)
    assert files_in(tmp_path) == {"runs.db": b""}


def _loop(folder: Path) -> Path:
    place = folder / "loop.db"
    place.symlink_to(place)
    return place


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.db")
    return folder / "pipe.db"


PATHS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "too long": (lambda folder: folder / ("a" * 300), "it is too long"),
    "too long for its mark": (lambda folder: folder / ("a" * 245), "it is too long"),
    "a folder that is too long": (lambda folder: folder / ("a" * 300) / "r", "it is too long"),
    "a link to itself": (_loop, "its links lead in a circle"),
    "a NUL": (lambda folder: folder / "a\0b", "paths cannot have, such as NUL"),
    "a pipe": (_pipe, "is a pipe, not a regular file"),
    "a device": (lambda _: Path(os.devnull), "is a device, not a regular file"),
    "a folder": (lambda folder: folder, "is a folder"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", PATHS)
def test_a_path_that_can_hold_no_journal_is_named(tmp_path: Path, kind: str) -> None:
    make, words = PATHS[kind]
    path = make(tmp_path)
    with pytest.raises(UsageError, match=words) as told:
        open_journal(path)
    assert repr(str(path))[1:-1][:200] in str(told.value)  # a long path is cut in messages
    with pytest.raises(UsageError, match=words):
        open_to_check(path)
    for name in ("verify", "runs", "status"):
        result = command(name, journal=path)
        assert result.exit_code == 2, result.output
        assert words in result.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_head_mark_that_is_not_a_regular_file_is_damage_and_is_never_waited_for(
    tmp_path: Path, make: Callable[[str], None]
) -> None:
    path = tmp_path / "runs.db"
    append(path, "a")
    Path(f"{path}-head").unlink()
    make(f"{path}-head")
    for name, code in (("verify", 1), ("runs", 2), ("status", 2)):
        told = command(name, journal=path)
        assert told.exit_code == code
        assert "not a regular file" in told.output
    with pytest.raises(JournalDamaged, match=r"runs\.db-head is a"):
        open_journal(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
async def test_a_blob_that_is_a_pipe_is_damage_and_is_never_waited_for(tmp_path: Path) -> None:
    async with ch.Supervisor([], journal=tmp_path / "runs.db") as boss:
        digest = await boss.journal.blobs.put(b"much")
        (blob,) = (tmp_path / "runs.db-blobs").glob(f"*/{digest}")
        blob.unlink()
        os.mkfifo(blob)
        with pytest.raises(JournalDamaged, match="is a pipe"):
            await boss.journal.blobs.get(digest)


@pytest.mark.parametrize("kind", ["rolled back", "missing mark", "junk mark"])
def test_a_journal_without_a_sound_end_is_accepted_by_the_command_that_its_refusal_names(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "my runs.db"
    append(path, "a")
    DAMAGE[kind](path)
    refused = command("runs", journal=path)
    words = f"chargehand verify --journal '{path}' --accept"
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr
    accepted = command("verify", "--accept", journal=path)
    assert accepted.exit_code == 0, accepted.output
    assert "is accepted as it is" in accepted.stderr
    assert "no damage found" in accepted.stderr
    assert command("runs", journal=path).exit_code == 0


@pytest.mark.parametrize("kind", ["cut off", "overwritten"])
def test_what_is_no_journal_any_more_cannot_be_accepted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "runs.db"
    append(path, "a")
    DAMAGE[kind](path)
    before = path.read_bytes()
    told = command("verify", "--accept", journal=path)
    assert told.exit_code in (1, 2)
    assert isinstance(told.exception, SystemExit)
    assert path.read_bytes() == before
