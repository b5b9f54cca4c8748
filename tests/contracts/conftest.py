"""The journals that every contract test of a journal runs over.

An adapter joins by one more `Place`: somewhere that journals can be opened, each a node of its own.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from chargehand.journal.base import Journal
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite import SqliteJournal
from tests.postgres_server import (
    Pooler,
    PostgresServer,
    pooler_program,
    programs,
    running_server,
)


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


class PostgresPlace:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._namespace = secrets.token_hex(8)  # each test has its own streams

    def open(self) -> Journal:
        return open_journal(self._dsn, namespace=self._namespace)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("needs PostgreSQL; get it with: apt-get install postgresql")
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def pooler(postgres: PostgresServer) -> Iterator[Pooler]:
    if not pooler_program():
        pytest.skip("needs pgbouncer; get it with: apt-get install pgbouncer")
    started = Pooler(postgres)
    yield started
    started.stop()


@pytest.fixture(params=["memory", "sqlite", "postgres", "pooled"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param in ("postgres", "pooled"):
        fixture = "pooler" if request.param == "pooled" else "postgres"
        return PostgresPlace(request.getfixturevalue(fixture).dsn)
    return MemoryPlace(tmp_path) if request.param == "memory" else SqlitePlace(tmp_path)


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
