"""Decisions inside the transactions of an SQLite journal, where the disk, or a decision itself, fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

from chargehand.errors import JournalFull, NotJSON
from chargehand.facts.events import Event
from chargehand.journal.base import Tail
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_writer import Transaction
from tests.integration.sqlite_at_hand import notes, texts_of


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    async with SqliteJournal(tmp_path / "runs.db") as journal:
        yield journal


def deciding(*texts: str) -> Callable[[Tail], list[Event]]:
    return lambda _: notes(*texts)


async def test_all_decisions_of_a_group_that_is_not_stored_are_undone(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone: list[str] = []
    write = Transaction.write

    def refuse(transaction: Transaction) -> None:
        write(transaction)
        raise apsw.FullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "write", refuse)
        asked = [
            journal.decide("run", deciding(text), undo=lambda text=text: undone.append(text))  # type: ignore[misc]  # bound now
            for text in ("a", "b")
        ]
        told = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, JournalFull) for each in told)
    assert undone == ["a", "b"]
    await journal.decide("run", deciding("c"))
    assert await texts_of(journal) == ["c"]


async def test_what_is_stored_is_never_undone(journal: SqliteJournal) -> None:
    undone: list[str] = []
    await journal.decide("run", deciding("a"), undo=lambda: undone.append("a"))
    await journal.decide("run", lambda _: [], undo=lambda: undone.append("nothing"))
    assert undone == []


async def test_a_decision_that_cannot_be_written_down_is_undone_alone(
    journal: SqliteJournal,
) -> None:
    undone: list[str] = []
    bad, good = await asyncio.gather(
        journal.decide("run", deciding("\ud800"), undo=lambda: undone.append("bad")),
        journal.decide("run", deciding("good"), undo=lambda: undone.append("good")),
        return_exceptions=True,
    )
    assert isinstance(bad, NotJSON)
    assert not isinstance(good, BaseException)
    assert undone == ["bad"]
    assert await texts_of(journal) == ["good"]


async def test_a_decision_sees_what_was_decided_before_it_in_the_same_group(
    journal: SqliteJournal,
) -> None:
    seen: list[list[str]] = []

    def look(tail: Tail) -> list[Event]:
        seen.append([entry.event.text for entry in tail.read(0)])  # type: ignore[union-attr]  # notes all
        return notes(str(tail.seq))

    await asyncio.gather(*(journal.decide("run", look) for _ in range(5)))
    assert seen == [[str(n) for n in range(count)] for count in range(5)]


async def test_what_is_beside_a_decision_in_its_group_is_kept(journal: SqliteJournal) -> None:
    """Reading in the middle of a group writes down what was entered before, once."""
    await asyncio.gather(
        journal.append("run", notes("a")),
        journal.append("other", notes("x")),
        journal.decide("run", lambda tail: notes(f"after {len(tail.read(0))}")),
        journal.append("run", notes("b")),
        journal.append("other", notes("y")),
    )
    assert await texts_of(journal) == ["a", "after 1", "b"]
    assert await texts_of(journal, "other") == ["x", "y"]
