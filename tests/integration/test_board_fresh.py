"""The newest notes of a board in a file: found like all others, before and after they are moved to their places."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from chargehand.decisions.board_rules import select
from chargehand.facts.board import Match, Note, NoteOrder, NotePosted, NoteQuery
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite_writer import MANY_NOTES

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUESTIONS = [
    NoteQuery(limit=7),
    NoteQuery(tags=("even",), limit=7),
    NoteQuery(tags=("even", "third"), match=Match.ALL, limit=7),
    NoteQuery(segments=("low",), order=NoteOrder.IMPORTANT, limit=7),
    NoteQuery(min_importance=0.9, limit=7),
    NoteQuery(not_by="ada", tags=("even", "third"), limit=7),
    NoteQuery(author="bob", order=NoteOrder.IMPORTANT, limit=7),
]


def note(number: int) -> NotePosted:
    tags = [tag for tag, step in (("even", 2), ("third", 3)) if not number % step]
    return NotePosted(
        at=NOON,
        author="ada" if number % 5 else "bob",
        content=Value.of(number),
        tags=tuple(tags),
        segment="low" if number % 7 else "high",
        importance=number * 37 % 101 / 100,
    )


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = open_journal(tmp_path / "runs.db")
    yield journal
    await journal.close()


async def post(journal: Journal, first: int, count: int) -> None:
    numbers = range(first, first + count)
    await asyncio.gather(*(journal.boards.append("b", note(number)) for number in numbers))


def fresh_in(folder: Path) -> int:
    """How many notes wait to be moved."""
    with apsw.Connection(str(folder / "runs.db")) as connection:
        count: int = connection.execute("SELECT count(DISTINCT seq) FROM fresh_facets").get
    return count


async def check(journal: Journal) -> None:
    """What the index finds is what looking at every note finds."""
    everything = await journal.boards.notes("b", NoteQuery(limit=100_000))
    for query in QUESTIONS:
        found = await journal.boards.notes("b", query)
        assert [each.content for each in found] == _contents(select(everything, query)), query


def _contents(notes: list[Note]) -> list[object]:
    return [each.content for each in notes]


async def test_notes_are_found_wherever_they_wait(journal: Journal, tmp_path: Path) -> None:
    await post(journal, 0, 10)
    assert fresh_in(tmp_path) == 10
    await check(journal)
    await post(journal, 10, MANY_NOTES)  # the first ten move along
    assert fresh_in(tmp_path) < MANY_NOTES
    await check(journal)
    await post(journal, 10 + MANY_NOTES, 20)
    await check(journal)
    assert len(await journal.boards.notes("b", NoteQuery(limit=10_000))) == MANY_NOTES + 30


async def test_few_notes_at_a_time_are_moved_when_many_have_come(
    journal: Journal, tmp_path: Path
) -> None:
    waiting = []
    for first in range(0, MANY_NOTES + 50, 50):
        await post(journal, first, 50)
        waiting.append(fresh_in(tmp_path))
    assert max(waiting) < MANY_NOTES
    assert waiting[0] == 50
    await check(journal)


async def test_a_board_of_an_earlier_day_is_read_and_written(tmp_path: Path) -> None:
    """It has no tables for the newest notes: all of its notes are in their places."""
    journal = open_journal(tmp_path / "runs.db")
    await post(journal, 0, 30)
    await journal.close()
    with apsw.Connection(str(tmp_path / "runs.db")) as connection:
        connection.execute("INSERT INTO facets SELECT * FROM fresh_facets")
        connection.execute("INSERT INTO ranks SELECT * FROM fresh_ranks")
        connection.execute("DROP TABLE fresh_facets; DROP TABLE fresh_ranks")
    journal = open_journal(tmp_path / "runs.db")
    await check(journal)
    await post(journal, 30, 10)
    await check(journal)
    await journal.close()
    assert fresh_in(tmp_path) == 10
