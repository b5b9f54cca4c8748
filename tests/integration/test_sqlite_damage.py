"""Bytes that were changed or lost are found, and never read as if all were well."""

import random
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from chargehand.errors import (
    JournalDamaged,
    JournalError,
    JournalFailed,
)
from chargehand.journal.base import Key, Mail
from chargehand.journal.head_mark import HeadMark, Mark
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite import SqliteJournal
from tests.integration.sqlite_at_hand import (
    copied,
    entries_of,
    mark_of,
    meddle,
    notes,
    texts_of,
    until,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    async with SqliteJournal(path) as opened:
        yield opened


async def damaged_tail(path: Path, folder: Path, cut: int) -> Path:
    """A journal whose log has lost its last bytes after its head mark was written."""
    journal = SqliteJournal(path)
    for number in range(10):
        await journal.append("run", notes(str(number)))
    copy = copied(path, folder)
    await journal.close()
    shutil.copy(f"{path}-head", f"{copy}-head")
    log = Path(f"{copy}-wal")
    log.write_bytes(log.read_bytes()[:-cut])
    return copy


@pytest.mark.parametrize("cut", [1, 100, 4096, 20_000])
async def test_a11_a_log_that_lost_its_tail_is_found_by_the_head_mark(
    path: Path, tmp_path: Path, cut: int
) -> None:
    copy = await damaged_tail(path, tmp_path / "copy", cut)
    with pytest.raises(JournalDamaged, match=r"commits are missing.*accept_damage=True"):
        open_journal(copy)


async def test_a11_a_lost_tail_can_be_accepted_and_is_then_no_damage_any_more(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = await damaged_tail(path, tmp_path / "copy", 100)
    journal = SqliteJournal(copy, accept_damage=True)
    assert "journal_damage_accepted" in caplog.text
    assert await texts_of(journal) == [str(number) for number in range(9)]
    await journal.append("run", notes("later"))
    await journal.close()
    again = SqliteJournal(copy)
    assert (await texts_of(again))[-1] == "later"
    await again.close()


async def test_a_relaxed_journal_that_lost_its_tail_only_warns(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = await damaged_tail(path, tmp_path / "copy", 100)
    journal = SqliteJournal(copy, durability="relaxed")
    assert "journal_relaxed" in caplog.text
    assert "commits are missing" in caplog.text
    assert len(await entries_of(journal)) == 9
    await journal.close()


async def test_a_database_that_is_gone_while_its_mark_is_there_is_damage(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.append("run", notes("a"))
    await journal.close()
    path.unlink()
    with pytest.raises(JournalDamaged, match="commit 1"):
        open_journal(path)


async def test_another_history_of_the_same_length_is_found_by_the_head_mark(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        journal = SqliteJournal(tmp_path / name)
        await journal.append("run", notes(name))
        await journal.close()
    shutil.copy(tmp_path / "one-head", tmp_path / "two-head")
    with pytest.raises(JournalDamaged, match="commit 1 is not the one that was made"):
        open_journal(tmp_path / "two")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"commit":1,"hash":"00"'])
async def test_a_damaged_head_mark_is_refused_unless_accepted(path: Path, content: bytes) -> None:
    await SqliteJournal(path).close()
    Path(f"{path}-head").write_bytes(content)
    with pytest.raises(JournalDamaged, match="head mark"):
        open_journal(path)
    await open_journal(path, accept_damage=True).close()


async def test_the_head_mark_follows_the_last_commit_while_nothing_else_happens(
    journal: SqliteJournal, path: Path
) -> None:
    await journal.append("run", notes("a"))
    await until(lambda: b'"commit":1,' in mark_of(path))
    await journal.append("run", notes("b"))
    await until(lambda: b'"commit":2,' in mark_of(path))


CHANGES = {
    "payload": "UPDATE entries SET payload = replace(payload, 'b', 'c') WHERE seq = 2",
    "kind": "UPDATE entries SET kind = 'RunFinished' WHERE seq = 2",
    "instant": "UPDATE entries SET at = at + 1 WHERE seq = 2",
    "epoch": "UPDATE entries SET epoch = 5 WHERE seq = 2",
    "author": "UPDATE authors SET name = 'n-somebody'",
    "missing": "DELETE FROM entries WHERE seq = 2",
    "last missing": "DELETE FROM entries WHERE seq = 3",
    "swapped": "UPDATE entries SET seq = 5 - seq WHERE seq IN (2, 3)",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a12_a_changed_entry_is_found_when_it_is_read(path: Path, change: str) -> None:
    journal = SqliteJournal(path)
    await journal.append("run", notes("a", "b", "c"))
    await journal.close()
    if change == "swapped":
        meddle(path, "UPDATE entries SET seq = -seq WHERE seq IN (2, 3)")
        meddle(path, "UPDATE entries SET seq = 5 + seq WHERE seq < 0")
    else:
        meddle(path, CHANGES[change].replace("replace(payload, 'b', 'c')", "x'7b7d'"))
    journal = SqliteJournal(path)
    with pytest.raises(JournalDamaged, match=r"event \d of stream 'run'"):
        await entries_of(journal)
    await journal.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE streams SET seq = 2",
        "UPDATE streams SET epoch = 9",
        "UPDATE streams SET owner = 'n-me'",
        "UPDATE streams SET name = 'ruN'",
        "UPDATE streams SET ended = 1",
        "DELETE FROM streams",
        "UPDATE keys SET name = 'other'",
        "DROP TABLE mail",
    ],
)
async def test_a12_a_changed_head_or_key_is_found_when_the_journal_is_opened(
    path: Path, change: str
) -> None:
    journal = SqliteJournal(path)
    await journal.append("run", notes("a", "b", "c"), key=Key("s", "k", "d"))
    await journal.close()
    meddle(path, change)
    with pytest.raises(JournalDamaged):
        open_journal(path)
    await open_journal(path, accept_damage=True).close()


async def test_a_damaged_head_that_was_accepted_still_cannot_be_read_as_if_whole(
    path: Path,
) -> None:
    journal = SqliteJournal(path)
    await journal.append("bad", notes("a"))
    await journal.append("good", notes("b"))
    await journal.close()
    meddle(path, "UPDATE streams SET seq = 0 WHERE name = 'bad'")
    journal = SqliteJournal(path, accept_damage=True)
    assert [head.stream for head in await journal.heads()] == ["good"]
    assert await texts_of(journal, "good") == ["b"]
    for use in (entries_of(journal, "bad"), journal.append("bad", notes("c"))):
        with pytest.raises(JournalDamaged, match="bad"):
            await use
    await journal.close()


@pytest.mark.parametrize("hash_", [None, "words", 7])
async def test_a12_a_newest_commit_that_is_no_commit_is_found(path: Path, hash_: object) -> None:
    async with SqliteJournal(path) as journal:
        await journal.append("run", notes("a"))
    meddle(path, "CREATE TABLE copy AS SELECT * FROM commits")
    meddle(path, "UPDATE copy SET hash = ?", hash_)
    meddle(path, "DROP TABLE commits")
    meddle(path, "ALTER TABLE copy RENAME TO commits")
    with pytest.raises(JournalDamaged):
        SqliteJournal(path)


async def test_changed_mail_is_found_when_it_is_read(path: Path) -> None:
    journal = SqliteJournal(path)
    await journal.mail.post(Mail(key="m", stream="run", subject="cancel", body=b"{}"))
    await journal.close()
    meddle(path, "UPDATE mail SET subject = 'submit'")
    journal = SqliteJournal(path)
    with pytest.raises(JournalDamaged, match="mail 1"):
        await journal.mail.unread()
    await journal.close()


async def all_of(path: Path) -> list[object]:
    """Everything that can be read from a journal."""
    journal = SqliteJournal(path)
    try:
        heads = await journal.heads()
        streams = [await entries_of(journal, head.stream) for head in heads]
        return [heads, streams, await journal.mail.unread()]
    finally:
        await journal.close()


async def test_a12_a_flipped_bit_is_found_or_harmless(path: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(path)
    for number in range(30):
        await journal.append(f"run {number % 7}", notes("x" * 50, "y" * number))
    await journal.mail.post(Mail(key="m", stream="run", subject="cancel", body=b"{}"))
    await journal.close()
    whole = await all_of(path)
    sound = path.read_bytes()
    draw = random.Random(12)
    harmless = 0
    for trial in range(80):
        copy = copied(path, tmp_path / str(trial))
        place = draw.randrange(len(sound))
        flipped = bytes([sound[place] ^ (1 << draw.randrange(8))])
        copy.write_bytes(sound[:place] + flipped + sound[place + 1 :])
        try:
            found = await all_of(copy)
        except JournalError:
            continue
        assert found == whole, f"byte {place} of trial {trial}"
        harmless += 1
    assert harmless < 80


# the head mark is gone


async def test_a11_a_journal_whose_head_mark_is_gone_is_refused_unless_accepted(path: Path) -> None:
    async with SqliteJournal(path) as journal:
        for text in ("one", "two", "three"):
            await journal.append("run", notes(text))
            await until(lambda: mark_of(path) != b"")
    Path(f"{path}-head").unlink()
    for _ in range(2):  # refusing it makes no new mark
        with pytest.raises(JournalDamaged, match=r"head mark is missing.*accept_damage=True"):
            SqliteJournal(path)
    async with SqliteJournal(path, accept_damage=True) as journal:
        assert await texts_of(journal) == ["one", "two", "three"]
    async with SqliteJournal(path) as journal:  # it has a mark again
        assert await texts_of(journal) == ["one", "two", "three"]


async def test_a_new_journal_has_a_head_mark_before_its_first_commit(path: Path) -> None:
    async with SqliteJournal(path) as journal:
        assert b'"commit":0,' in mark_of(path)
        await journal.append("run", notes("one"))
        Path(f"{path}-head").unlink()
        with pytest.raises(JournalDamaged, match="head mark is missing"):
            SqliteJournal(path)


async def test_a11_a_journal_of_an_earlier_version_that_died_before_its_first_head_mark_opens(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(HeadMark, "write", lambda *_: None)
        async with SqliteJournal(path) as journal:
            await journal.append("run", notes("one"))
            await journal.append("run", notes("two"))
    meddle(path, "DELETE FROM meta WHERE name = 'marked'")
    assert mark_of(path) == b""
    async with SqliteJournal(path) as journal:
        assert await texts_of(journal) == ["one", "two"]
    assert "journal_mark_missing" in caplog.text
    assert mark_of(path) != b""


async def test_a_journal_that_another_process_makes_while_it_is_opened_is_whole(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteJournal(tmp_path / "made.db") as made:
        for text in ("one", "two", "three"):
            await made.append("run", notes(text))
            await until(lambda: mark_of(tmp_path / "made.db") != b"")
    read = HeadMark.read

    def read_too_early(mark: HeadMark) -> Mark | None:
        found = read(mark)
        if not mark.path.exists():  # the other process makes file and mark just after we looked
            shutil.copy(tmp_path / "made.db", path)
            shutil.copy(tmp_path / "made.db-head", f"{path}-head")
        return found

    monkeypatch.setattr(HeadMark, "read", read_too_early)
    async with SqliteJournal(path) as journal:
        assert await texts_of(journal) == ["one", "two", "three"]


# another file takes its name


def _deleted(path: Path) -> None:
    path.unlink()


def _moved(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def _replaced(path: Path) -> None:
    fresh = path.with_name("fresh.db")
    fresh.write_bytes(path.read_bytes())
    fresh.replace(path)


def _log_deleted(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def _index_deleted(path: Path) -> None:
    Path(f"{path}-shm").unlink()


@pytest.mark.parametrize("lose", [_deleted, _moved, _replaced, _log_deleted, _index_deleted])
async def test_nothing_is_acknowledged_into_a_file_that_lost_its_name(
    path: Path, lose: Callable[[Path], None]
) -> None:
    journal = SqliteJournal(path)
    await journal.append("run", notes("kept"))
    lose(path)
    for _ in range(2):
        with pytest.raises(JournalFailed, match="moved or deleted"):
            await journal.append("run", notes("lost"))
    assert not journal.leases.is_valid()
    await journal.close()
