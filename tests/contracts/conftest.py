"""The journals that every contract test of a journal runs over.

An adapter joins by one more `Place`: somewhere that journals can be opened, each a node of its own.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import pytest

from chargehand.journal.base import Journal
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal


class Place(Protocol):
    """Where the journals of one test lie."""

    def open(self) -> Journal:
        """One more node on the same streams."""


class MemoryPlace:
    def __init__(self, folder: Path) -> None:
        self._first: MemoryJournal | None = None

    def open(self) -> Journal:
        if self._first is None:
            self._first = MemoryJournal()
            return self._first
        return self._first.neighbour()


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "runs.db"

    def open(self) -> Journal:
        return SqliteJournal(self._path)


@pytest.fixture(params=[MemoryPlace, SqlitePlace], ids=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


@pytest.fixture
async def another(place: Place) -> AsyncIterator[Callable[[], Journal]]:
    """Opens one more journal on the same streams; all are closed at the end."""
    journals: list[Journal] = []

    def open_one() -> Journal:
        journals.append(place.open())
        return journals[-1]

    yield open_one
    for journal in reversed(journals):
        await journal.close()


@pytest.fixture
def journal(another: Callable[[], Journal]) -> Journal:
    return another()


@pytest.fixture
def neighbour(journal: Journal, another: Callable[[], Journal]) -> Journal:
    """Another node on the streams of `journal`."""
    return another()
