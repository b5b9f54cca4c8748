"""What every journal promises of streams that are copied out of it and into it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from chargehand.errors import JournalDamaged, KeyConflict, NotLeading, RunDiffers, UnknownRun
from chargehand.facts.board import NoteQuery, board_of_run, stream_of
from chargehand.journal.base import Journal, Key, StoredKey, StreamCopy
from chargehand.journal.memory import MemoryJournal
from tests.contracts.test_board import note, write
from tests.contracts.test_journal import NOON, entries_of, finished, notes


@pytest.fixture
async def elsewhere() -> AsyncIterator[Journal]:
    """A journal that shares nothing with the one that is tested."""
    async with MemoryJournal() as journal:
        yield journal


async def copy_of(journal: Journal, stream: str = "run") -> StreamCopy:
    rows = [row async for row in journal.streams.rows(stream)]
    return StreamCopy(stream, rows, await journal.streams.keys(stream))


async def test_a_copy_is_read_as_it_was(journal: Journal, elsewhere: Journal) -> None:
    """Numbers, epochs, authors, events and hashes."""
    for source, target in ((journal, elsewhere), (elsewhere, journal)):
        stream = f"run-{source.leases.node}"
        epoch = await source.leases.lead(stream)
        await source.append(stream, notes("a", "b"), epoch=epoch)
        await source.append(stream, [finished()], epoch=epoch)
        assert await target.streams.adopt(await copy_of(source, stream)) == 3
        assert await entries_of(target, stream) == await entries_of(source, stream)
        (head,) = [head for head in await target.heads() if head.stream == stream]
        assert (head.seq, head.is_ended, head.owner, head.began_at) == (3, True, "", NOON)


async def test_copying_twice_adds_nothing(journal: Journal, elsewhere: Journal) -> None:
    await elsewhere.append("run", notes("a"))
    copy = await copy_of(elsewhere)
    assert await journal.streams.adopt(copy) == 1
    assert await journal.streams.adopt(copy) == 0
    assert len(await entries_of(journal)) == 1


async def test_what_came_since_is_added(journal: Journal, elsewhere: Journal) -> None:
    await elsewhere.append("run", notes("a"))
    first = await copy_of(elsewhere)
    await journal.streams.adopt(first)
    await elsewhere.append("run", notes("b"))
    assert await journal.streams.adopt(await copy_of(elsewhere)) == 1
    assert await entries_of(journal) == await entries_of(elsewhere)
    assert await journal.streams.adopt(first) == 0, "an older copy takes nothing away"


async def test_other_events_under_the_same_name_are_refused(
    journal: Journal, elsewhere: Journal
) -> None:
    await journal.append("run", notes("mine"))
    await elsewhere.append("run", notes("a", "b"))
    with pytest.raises(RunDiffers, match=r"already in .*, with other events"):
        await journal.streams.adopt(await copy_of(elsewhere))
    assert len(await entries_of(journal)) == 1


async def test_a_copied_run_can_be_led_on(journal: Journal, elsewhere: Journal) -> None:
    epoch = await elsewhere.leases.lead("run")
    await elsewhere.append("run", notes("a"), epoch=epoch)
    await journal.streams.adopt(await copy_of(elsewhere))
    later = await journal.leases.lead("run")
    assert later > epoch
    await journal.append("run", notes("b"), epoch=later)
    assert [entry.epoch for entry in await entries_of(journal)] == [epoch, later]


async def test_a_run_that_is_led_here_takes_no_copy(journal: Journal, elsewhere: Journal) -> None:
    await elsewhere.append("run", notes("a"))
    await journal.leases.lead("run")
    with pytest.raises(NotLeading):
        await journal.streams.adopt(await copy_of(elsewhere))


@pytest.mark.parametrize("damage", ["payload", "hash", "order", "gap", "kind"])
async def test_rows_that_are_no_chain_are_refused(
    damage: str, journal: Journal, elsewhere: Journal
) -> None:
    await elsewhere.append("run", notes("a", "b", "c"))
    copy = await copy_of(elsewhere)
    a, b, c = copy.rows
    rows = {
        "payload": [a, replace(b, payload=b.payload.replace(b"b", b"x")), c],
        "hash": [a, b, replace(c, hash=bytes(16))],
        "order": [b, a, c],
        "gap": [a, c],
        "kind": [a, replace(b, kind="RunFinished"), c],
    }[damage]
    with pytest.raises(JournalDamaged, match="'run'"):
        await journal.streams.adopt(StreamCopy("run", rows))
    with pytest.raises(UnknownRun):
        await entries_of(journal)


async def test_a_stream_that_is_not_there_is_unknown(journal: Journal) -> None:
    with pytest.raises(UnknownRun):
        await copy_of(journal)
    assert await journal.streams.keys("run") == []


async def test_a_board_is_found_in_its_copy(journal: Journal, elsewhere: Journal) -> None:
    """Notes by tag, blocks by version, and keys that were used stay used."""
    key = Key(stream_of("plans"), "once", "d1")
    for source, target in ((elsewhere, journal), (journal, MemoryJournal())):
        board = source.boards
        if source is elsewhere:
            await board.append("plans", note("look", tags=("x",)), key=key)
            await board.append("plans", write(1))
            await board.append("plans", write(2))
        copy = await copy_of(source, stream_of("plans"))
        assert [each.key for each in copy.keys] == [key]
        assert await target.streams.adopt(copy) == len(copy.rows)
        (found,) = await target.boards.notes("plans", NoteQuery(tags=("x",)))
        assert found.content == "look"
        block = await target.boards.block("plans", "sum", 1)
        assert block is not None
        assert block.value == 1
        (label,) = await target.boards.labels("plans")
        assert label.version == len(copy.rows) - 1
        again = await target.boards.append("plans", note("another"), key=key)
        assert again.seq == 1
        with pytest.raises(KeyConflict):
            await target.boards.append("plans", note("another"), key=replace(key, digest="d2"))
        entry = await target.boards.append("plans", write(3, expect=label.version))
        assert entry.seq == len(copy.rows) + 1
        assert await source.streams.adopt(copy) == 0


async def test_two_who_copy_at_once_store_it_once(
    journal: Journal, neighbour: Journal, elsewhere: Journal
) -> None:
    await elsewhere.append("run", notes("a", "b"))
    copy = await copy_of(elsewhere)
    added = await asyncio.gather(journal.streams.adopt(copy), neighbour.streams.adopt(copy))
    assert sorted(added) == [0, 2]
    assert len(await entries_of(neighbour)) == 2


@pytest.mark.parametrize("is_swept", [True, False])
async def test_a_deleted_run_is_restored_from_its_copy(journal: Journal, *, is_swept: bool) -> None:
    """With its board, whether its events have been cleared away yet or not; another run is refused."""
    name = f"run-{is_swept}"
    board = stream_of(board_of_run(name))
    await journal.append(name, [*notes("a", "b"), finished()])
    await journal.boards.append(board_of_run(name), note("seen"))
    copies = [await copy_of(journal, stream) for stream in (board, name)]
    copies[1] = replace(copies[1], keys=[StoredKey(Key(name, "mark", ""), 3)])
    assert await journal.storage.forget([name], known=())
    if is_swept:
        assert [each async for each in journal.storage.sweep()]
    async with MemoryJournal() as other:
        await other.append(name, [*notes("a", "c"), finished()])
        with pytest.raises(RunDiffers, match="3 events when retention deleted it"):
            await journal.streams.adopt(await copy_of(other, name))
    assert [await journal.streams.adopt(copy) for copy in copies] == [1, 3]
    assert await copy_of(journal, name) == copies[1]
    (found,) = await journal.boards.notes(board_of_run(name), NoteQuery())
    assert found.content == "seen"
    (head,) = [each for each in await journal.heads(forgotten=False) if each.stream == name]
    assert (head.seq, head.is_ended) == (3, True)
    assert [await journal.streams.adopt(copy) for copy in copies] == [0, 0]
    assert await journal.storage.forget([name], known=()), "it can be deleted again"


async def test_keys_of_entries_that_are_here_are_not_taken_from_a_copy(
    journal: Journal, elsewhere: Journal
) -> None:
    await elsewhere.append("run", notes("a"))
    copy = await copy_of(elsewhere)
    await journal.streams.adopt(copy)
    forged = StreamCopy("run", copy.rows, [StoredKey(Key("run", "order-7", "1"), 1)])
    await journal.streams.adopt(forged)
    assert await journal.streams.keys("run") == []
