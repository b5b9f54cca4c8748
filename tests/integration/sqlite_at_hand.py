"""What the tests of the SQLite journal need again and again."""

import asyncio
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from chargehand.facts.events import Event, ProgressNoted
from chargehand.journal.base import Entry
from chargehand.journal.sqlite import SqliteJournal

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUICK = timedelta(milliseconds=50)


def notes(*texts: str) -> list[Event]:
    return [ProgressNoted(at=NOON, task="t1", attempt=1, text=text) for text in texts]


async def entries_of(journal: SqliteJournal, stream: str = "run") -> list[Entry]:
    return [entry async for entry in journal.read(stream)]


async def texts_of(journal: SqliteJournal, stream: str = "run") -> list[str]:
    return [entry.event.text async for entry in journal.read(stream)]  # type: ignore[union-attr]  # only notes are stored here


def commits_in(path: Path) -> int:
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute("SELECT max(number) FROM commits").get or 0)
    finally:
        connection.close()


def meddle(path: Path, sql: str, *values: Any) -> None:
    """Change a journal's tables behind its back."""
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


def copied(path: Path, folder: Path) -> Path:
    """A copy of a journal with all that lies beside it."""
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            shutil.copy(file, folder / file.name)
    return folder / path.name


def mark_of(path: Path) -> bytes:
    mark = Path(f"{path}-head")
    return mark.read_bytes() if mark.exists() else b""


async def until(condition: Callable[[], bool], patience: float = 20) -> None:
    """Wait at the edge of the process, where there is nothing to be woken by."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)
