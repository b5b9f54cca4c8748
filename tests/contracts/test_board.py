"""What every journal promises of the boards in it."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from chargehand.errors import BlockChanged, KeyConflict, UnknownRun
from chargehand.facts.board import (
    BlockRefused,
    BlockWritten,
    BoardEntry,
    Guard,
    GuardBlock,
    Label,
    Match,
    NoteOrder,
    NotePosted,
    NoteQuery,
    WriteBlock,
    board_of_run,
)
from chargehand.facts.events import RunFinished, RunStatus
from chargehand.facts.value import Value
from chargehand.journal.base import Journal, Key

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def note(text: object, **more: Any) -> NotePosted:
    content = Value.of(text, more.pop("taint", ()))
    return NotePosted(**{"author": "ann", "at": NOON, "content": content, **more})


def write(value: object, expect: int | None = None, *, author: str = "ann") -> WriteBlock:
    return WriteBlock(
        at=NOON, author=author, role=author, label="sum", value=Value.of(value), expect=expect
    )


def guard(*writers: str) -> GuardBlock:
    kept = Guard(writers=writers)
    return GuardBlock(at=NOON, author="boss", role="supervisor", label="sum", guard=kept)


async def texts(journal: Journal, board: str = "market", **asked: Any) -> list[object]:
    return [found.content for found in await journal.boards.notes(board, NoteQuery(**asked))]


async def filled(journal: Journal) -> None:
    for text, more in (
        ("a", {"tags": ("x",), "segment": "results", "importance": 0.2}),
        ("b", {"tags": ("x", "y"), "segment": "errors", "importance": 0.9, "author": "bob"}),
        ("c", {"tags": ("y",), "segment": "results", "importance": 0.5}),
        ("d", {"tags": ("x", "y", "x"), "segment": "results", "importance": 0.9}),
    ):
        await journal.boards.append("market", note(text, **more))


async def test_a_board_that_nobody_wrote_to_is_empty(journal: Journal) -> None:
    assert await texts(journal) == []
    assert await journal.boards.block("market", "sum") is None
    assert await journal.boards.labels("market") == []
    assert [entry async for entry in journal.boards.read("market")] == []


async def test_a_note_is_found_with_all_that_was_said_of_it(journal: Journal) -> None:
    posted = note({"n": 1}, tags=("x",), segment="results", importance=0.7, metadata={"k": [1]})
    entry = await journal.boards.append("market", posted)
    [found] = await journal.boards.notes("market", NoteQuery())
    assert entry == BoardEntry("market", 1, posted)
    assert (found.content, found.tags, found.segment) == ({"n": 1}, ("x",), "results")
    assert (found.importance, found.metadata, found.at) == (0.7, {"k": [1]}, NOON)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "dcba"),
        ({"limit": 2}, "dc"),
        ({"order": NoteOrder.IMPORTANT}, "dbca"),
        ({"order": NoteOrder.IMPORTANT, "limit": 1}, "d"),
        ({"tags": ("x",)}, "dba"),
        ({"tags": ("x", "y")}, "dcba"),
        ({"tags": ("x", "y"), "match": Match.ALL}, "db"),
        ({"tags": ("x", "z"), "match": Match.ALL}, ""),
        ({"segments": ("results",)}, "dca"),
        ({"segments": ("results", "errors"), "tags": ("y",)}, "dcb"),
        ({"min_importance": 0.5}, "dcb"),
        ({"min_importance": 0.9, "segments": ("results",)}, "d"),
        ({"author": "bob"}, "b"),
        ({"not_by": "bob"}, "dca"),
        ({"not_by": "ann", "tags": ("x",), "order": NoteOrder.IMPORTANT}, "b"),
        ({"author": "bob", "not_by": "bob"}, ""),
    ],
)
async def test_a_query_finds_exactly_what_fits(
    journal: Journal, asked: dict[str, Any], expected: str
) -> None:
    await filled(journal)
    assert "".join(map(str, await texts(journal, **asked))) == expected


async def test_boards_of_two_names_share_nothing(journal: Journal) -> None:
    await filled(journal)
    assert await texts(journal, "other") == []


async def test_boards_are_not_listed_among_the_runs(journal: Journal) -> None:
    await filled(journal)
    assert await journal.heads() == []


async def test_another_node_reads_what_was_written(journal: Journal, neighbour: Journal) -> None:
    await filled(journal)
    await journal.boards.append("market", write(1))
    assert await texts(neighbour, tags=("x",)) == ["d", "b", "a"]
    block = await neighbour.boards.block("market", "sum")
    assert block is not None
    assert block.value == 1


async def test_a_key_stores_once_and_tells_what_came_of_it(journal: Journal) -> None:
    key = Key("board:market", "k", "digest")
    first = await journal.boards.append("market", note("a"), key=key)
    again = await journal.boards.append("market", note("a"), key=key)
    assert again == first
    assert await texts(journal) == ["a"]
    with pytest.raises(KeyConflict):
        await journal.boards.append("market", note("b"), key=Key("board:market", "k", "other"))


async def test_versions_of_a_block_are_all_kept(journal: Journal) -> None:
    for value in ("one", "two", "three"):
        await journal.boards.append("market", write(value))
    found = [await journal.boards.block("market", "sum", n) for n in (1, 2, 3, 0)]
    assert [block.value for block in found if block] == ["one", "two", "three", "three"]
    assert await journal.boards.block("market", "sum", 4) is None
    assert [(known.label, known.version) for known in await journal.boards.labels("market")] == [
        ("sum", 3)
    ]


async def test_one_block_is_known_of_without_the_others(journal: Journal) -> None:
    await journal.boards.append("market", guard("editor"))
    await journal.boards.append("market", replace(write(1), label="other"))
    assert await journal.boards.labels("market", only="other") == [Label("other", 1)]
    assert await journal.boards.labels("market", only="sum") == [
        Label("sum", 0, Guard(writers=("editor",)))
    ]
    assert await journal.boards.labels("market", only="none") == []


async def test_a_write_that_expects_an_older_version_changes_nothing(journal: Journal) -> None:
    await journal.boards.append("market", write("one", expect=0))
    with pytest.raises(BlockChanged, match="at version 1 and no longer at 0"):
        await journal.boards.append("market", write("two", expect=0))
    block = await journal.boards.block("market", "sum")
    assert block is not None
    assert (block.version, block.value) == (1, "one")


async def test_f13_a_write_without_permission_is_written_down_and_not_done(
    journal: Journal,
) -> None:
    await journal.boards.append("market", guard("editor"))
    await journal.boards.append("market", write("mine", author="editor"))
    entry = await journal.boards.append("market", write("yours", author="tool"))
    assert isinstance(entry.event, BlockRefused)
    block = await journal.boards.block("market", "sum")
    assert block is not None
    assert (block.version, block.value) == (1, "mine")
    [conflict] = await journal.boards.notes("market", NoteQuery(segments=("conflicts",)))
    assert (conflict.author, conflict.importance) == ("tool", 0.9)


async def test_all_that_happened_to_a_board_is_read_in_order(journal: Journal) -> None:
    await journal.boards.append("market", note("a"))
    await journal.boards.append("market", write(1))
    await journal.boards.append("market", guard("editor"))
    entries = [entry async for entry in journal.boards.read("market")]
    assert [type(entry.event).__name__ for entry in entries] == [
        "NotePosted",
        "BlockWritten",
        "BlockGuarded",
    ]
    assert [entry.seq async for entry in journal.boards.read("market", 2)] == [3]


async def test_a_follower_is_told_of_what_others_store(
    journal: Journal, neighbour: Journal
) -> None:
    signal = journal.boards.signal
    for store in (
        lambda: journal.boards.append("market", note("own")),
        lambda: neighbour.boards.append("market", note("other")),
        lambda: journal.append("run", [RunFinished(at=NOON, status=RunStatus.SUCCEEDED)]),
    ):
        known = signal.count
        await store()
        await asyncio.wait_for(signal.wait(since=known), 10)
    assert await texts(journal) == ["other", "own"]


async def test_f14_racing_writers_lose_no_update_and_leave_no_gap(
    journal: Journal, neighbour: Journal
) -> None:
    """Threads of two nodes add one at a time; each addition is in the end."""

    async def add(to: Journal, times: int) -> None:
        for _ in range(times):
            while True:
                known = await to.boards.block("market", "sum")
                value, version = (known.value, known.version) if known else (0, 0)
                try:
                    await to.boards.append("market", write(value + 1, expect=version))
                    break
                except BlockChanged:
                    continue

    threads = [
        threading.Thread(target=asyncio.run, args=(add(to, 25),))
        for to in (journal, neighbour, journal, neighbour)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    written = [
        entry.event
        async for entry in journal.boards.read("market")
        if isinstance(entry.event, BlockWritten)
    ]
    assert [event.version for event in written] == list(range(1, 101))
    assert [event.value.read() for event in written] == list(range(1, 101))


async def test_the_board_of_a_run_is_forgotten_with_it(journal: Journal) -> None:
    board = board_of_run("run")
    await journal.append("run", [RunFinished(at=NOON, status=RunStatus.SUCCEEDED)])
    await journal.boards.append(board, note("a", tags=("x",)))
    await journal.boards.append(board, write(1))
    await filled(journal)
    assert await journal.storage.forget(["run"], known=())
    assert sum([piece async for piece in journal.storage.sweep()]) >= 0
    with pytest.raises(UnknownRun, match="retention"):
        await texts(journal, board)
    with pytest.raises(UnknownRun, match="retention"):
        await journal.boards.append(board, note("late"))
    assert len(await texts(journal)) == 4, "other boards stay"


async def test_what_is_untrusted_stays_so(journal: Journal) -> None:
    await journal.boards.append("market", note("a", taint=("web",)))
    [found] = await journal.boards.notes("market", NoteQuery())
    assert found.taint == ("web",)


async def test_boards_with_a_name_of_their_own_are_listed(journal: Journal) -> None:
    assert await journal.boards.named() == []
    for board in ("market", board_of_run("run"), "archive"):
        await journal.boards.append(board, note("a"))
    assert await journal.boards.named() == ["archive", "market"]
