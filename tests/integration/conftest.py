"""Every run that these tests lead is replayed after them: the same decisions must come out."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chargehand.decisions.replay_check import Difference
from chargehand.errors import ChargehandError
from chargehand.journal.base import Journal
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.recordings.archive_replay import replay_run
from chargehand.recordings.run_archive import archive_of

#: modules whose tests lead runs of every kind, and change no decision behind their backs
REPLAYED = {
    f"tests.integration.test_{name}"
    for name in (
        *("aggregate", "approvals", "budgets", "budget_questions", "cancel_storm", "children"),
        *("drafts", "elastic", "failure_policy", "for_each", "groups", "nesting", "on_question"),
        *("outcomes", "parking", "pause_and_steer", "planner", "planner_streaming", "pool"),
        *("pool_edges", "priority", "questions", "recursive", "refine", "resume_changes"),
        *("supervisor", "two_processes"),
    )
}


@pytest.fixture(autouse=True)
def every_run_replays(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if request.module.__name__ not in REPLAYED:
        yield
        return
    journals: list[MemoryJournal] = []
    paths: set[Path] = set()
    in_memory, in_file = MemoryJournal.__init__, SqliteJournal.__init__

    def note_memory(self: MemoryJournal, *args: Any) -> None:
        in_memory(self, *args)
        journals.append(self)

    def note_file(self: SqliteJournal, path: Path, **options: Any) -> None:
        in_file(self, path, **options)
        paths.add(self.path)

    monkeypatch.setattr(MemoryJournal, "__init__", note_memory)
    monkeypatch.setattr(SqliteJournal, "__init__", note_file)
    yield
    # What the test has patched is patched still: the same decisions, by the same rules.
    assert asyncio.run(_differences(list(journals), set(paths))) == []


async def _differences(journals: list[MemoryJournal], paths: set[Path]) -> list[str]:
    found = [each for kept in journals for each in await _differences_in(kept.neighbour())]
    for path in paths:
        with suppress(ChargehandError):  # some tests damage their journals
            async with SqliteJournal(path) as journal:
                found += await _differences_in(journal)
    return [str(each) for each in found]


async def _differences_in(journal: Journal) -> list[Difference]:
    found = []
    for head in await journal.heads():
        if not head.is_forgotten:
            archive = await archive_of(journal, head.stream)
            replayed, _ = replay_run(archive, head.stream)
            found += [replayed.difference] if replayed.difference is not None else []
    return found
