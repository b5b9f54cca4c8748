"""The board in use: by workers of a run, by people, by threads and processes on one file."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from benchmarks import board as benchmark

import chargehand as ch
from chargehand.decisions.board_rules import note_of, select
from chargehand.errors import BlockChanged, BlockDenied, JournalDamaged
from chargehand.facts.board import Match, NoteOrder, NotePosted, NoteQuery
from chargehand.facts.value import INLINE_BYTES, Value
from chargehand.journal import sqlite_boards
from chargehand.journal.sqlite import SqliteJournal
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task
from tests.integration.sqlite_at_hand import meddle

RACER = """
import asyncio, sys
import chargehand as ch

async def main() -> None:
    boss = ch.Supervisor([], journal=sys.argv[1])
    board = boss.board("race")
    for _ in range(int(sys.argv[2])):
        await board.update("sum", lambda old: (old or 0) + 1)
        await board.post("added", tags=["added"])
    await boss.close()

asyncio.run(main())
"""


@pytest.fixture
async def boss(tmp_path: Path) -> AsyncIterator[ch.Supervisor]:
    supervisor = ch.Supervisor([], journal=tmp_path / "runs.db")
    yield supervisor
    await supervisor.close()


def plan_for(*workers: str) -> ch.Plan:
    """One task after the other, each for one of these workers."""
    names = [f"t{number}" for number, _ in enumerate(workers, start=1)]
    return make_plan(
        *(
            make_task(name, worker, *(names[place - 1 : place] if place else ()))
            for place, (name, worker) in enumerate(zip(names, workers, strict=True))
        )
    )


# By workers


@ch.worker("writer", "Writes a note")
async def writer(brief: ch.Brief) -> str:
    await brief.board.post({"price": 3}, tags=["price"], segment="facts", importance=0.9)
    await brief.board.write("summary", "prices rose")
    return "written"


@ch.worker("reader", "Reads the notes of others")
async def reader(brief: ch.Brief) -> list[object]:
    notes = await brief.board.notes(segments=["facts"], exclude_own=True)
    return [[note.author, note.content] for note in notes] + [
        (await brief.board.read("summary")).value
    ]


def test_workers_of_a_run_share_its_board() -> None:
    boss = ch.Supervisor([writer, reader], clock=FakeClock())
    result = run_virtual(boss.run(plan_for("writer", "reader")))
    assert result.tasks["t2"].output == [["writer", {"price": 3}], "prices rose"]


def test_what_happened_to_a_run_is_read_as_notes_beside_what_was_posted() -> None:
    boss = ch.Supervisor([writer, reader], clock=FakeClock())

    async def work() -> list[ch.Note]:
        result = await boss.run(plan_for("writer", "reader"))
        return await boss.board(run=result.id).notes()

    notes = run_virtual(work())
    segments = [note.segment for note in notes]
    assert segments.count("tasks") == segments.count("results") == 2
    assert segments.count("facts") == 1
    assert notes == sorted(notes, key=lambda note: note.at, reverse=True)


def test_a_worker_in_a_thread_uses_the_board_too() -> None:
    @ch.worker("plain", "Posts from a thread")
    def plain(brief: ch.Brief) -> int:
        brief.wait(brief.board.post("hello"))
        return len(brief.wait(brief.board.notes(segments=["notes"])))

    boss = ch.Supervisor([plain], clock=FakeClock())
    result = run_virtual(boss.run(plan_for("plain")))
    assert result.tasks["t1"].output == 1


def test_what_is_untrusted_taints_whoever_reads_it() -> None:
    posted = asyncio.Event()

    @ch.worker("browser", "Posts what it found outside")
    async def browser(brief: ch.Brief) -> None:
        brief.distrust("web")
        await brief.board.post("buy now", tags=["found"])
        await brief.board.write("found", "buy now")
        posted.set()

    @ch.worker("noter", "Reads notes")
    async def noter(brief: ch.Brief) -> list[str]:
        await posted.wait()
        await brief.board.notes(tags=["found"])
        return list(brief.taint)

    @ch.worker("blocker", "Reads a block")
    async def blocker(brief: ch.Brief) -> list[str]:
        await posted.wait()
        await brief.board.read("found")
        return list(brief.taint)

    @ch.worker("stranger", "Reads nothing of it")
    async def stranger(brief: ch.Brief) -> list[str]:
        await posted.wait()
        await brief.board.notes(tags=["else"])
        return list(brief.taint)

    team = [browser, noter, blocker, stranger]
    boss = ch.Supervisor(team, clock=FakeClock())
    result = run_virtual(boss.run(make_plan(*(make_task(each.name, each.name) for each in team))))
    found = {name: task.output for name, task in result.tasks.items()}
    assert found == {"browser": None, "noter": ["web"], "blocker": ["web"], "stranger": []}


def test_an_attempt_that_is_tried_again_posts_once_and_reads_the_same() -> None:
    seen: list[list[object]] = []

    @ch.worker("shaky", "Fails the first time, after it has posted")
    async def shaky(brief: ch.Brief) -> int:
        await brief.board.post("once")
        await brief.board.update("sum", lambda old: (old or 0) + 1)
        seen.append([note.content for note in await brief.board.notes(segments=["notes"])])
        if brief.attempt == 1:
            raise ConnectionError("no line")
        return int((await brief.board.read("sum")).value)

    boss = ch.Supervisor([shaky], clock=FakeClock())

    async def work() -> tuple[ch.RunResult, list[ch.Note]]:
        result = await boss.run(plan_for("shaky"))
        return result, await boss.board(run=result.id).notes(segments=["notes"])

    result, notes = run_virtual(work())
    assert result.tasks["t1"].output == 1
    assert [note.content for note in notes] == ["once"]
    assert seen == [["once"], ["once"]]


def test_f13_a_worker_that_may_not_write_a_block_is_denied_and_not_tried_again() -> None:
    @ch.worker("owner", "Guards its block")
    async def owner(brief: ch.Brief) -> None:
        board = brief.board
        assert isinstance(board, ch.Board)
        await board.write("plan", "mine")
        await board.guard("plan", writers=["owner"])

    @ch.worker("intruder", "Writes what is not its own")
    async def intruder(brief: ch.Brief) -> None:
        await brief.board.write("plan", "yours")

    boss = ch.Supervisor([owner, intruder], clock=FakeClock())

    async def work() -> tuple[ch.RunResult, ch.Block, list[ch.Note]]:
        result = await boss.run(plan_for("owner", "intruder"))
        board = boss.board(run=result.id)
        return result, await board.read("plan"), await board.notes(segments=["conflicts"])

    result, block, conflicts = run_virtual(work())
    cause = result.tasks["t2"].error
    assert cause is not None
    assert cause.kind == "denied"
    assert (block.version, block.value) == (1, "mine")
    assert [note.author for note in conflicts] == ["intruder"]


def test_a_worker_without_a_board_is_told_so() -> None:
    brief = ch.Brief("r", make_task("t", "far"), 1, "far", {}, None)
    with pytest.raises(ch.UsageError, match="'far' has no board here"):
        _ = brief.board


# By people


async def test_a_board_outlives_the_process_that_wrote_it(tmp_path: Path) -> None:
    first = ch.Supervisor([], journal=tmp_path / "runs.db")
    await first.board("market").post("kept", importance=1.0)
    await first.close()
    second = ch.Supervisor([], journal=tmp_path / "runs.db")
    assert [note.content for note in await second.board("market").notes()] == ["kept"]
    await second.close()


async def test_history_and_difference_of_a_block(boss: ch.Supervisor) -> None:
    board = boss.board("market")
    for text in ("one\ntwo", "one\nthree"):
        await board.write("text", text)
    assert [block.value for block in await board.history("text")] == ["one\ntwo", "one\nthree"]
    changed = await board.diff("text", 1)
    assert "-two" in changed
    assert "+three" in changed
    assert [(known.label, known.version) for known in await board.labels()] == [("text", 2)]


async def test_a_write_that_expects_what_is_gone_is_told(boss: ch.Supervisor) -> None:
    board = boss.board("market")
    await board.write("text", "a", expect=0)
    with pytest.raises(BlockChanged):
        await board.write("text", "b", expect=0)


async def test_roles_decide_who_reads_and_writes(boss: ch.Supervisor) -> None:
    board = boss.board("market")
    await board.write("secret", 1)
    await board.guard("secret", readers=["auditor"], writers=["editor"])
    auditor, editor = board.signed("a", "auditor"), board.signed("e", "editor")
    assert (await auditor.read("secret")).value == 1
    assert (await editor.write("secret", 2)).version == 2
    with pytest.raises(BlockDenied, match="may write"):
        await auditor.write("secret", 3)
    with pytest.raises(BlockDenied, match="may read"):
        await editor.read("secret")


async def test_large_contents_lie_in_blobs_and_come_back_whole(boss: ch.Supervisor) -> None:
    board = boss.board("market")
    large = "x" * (INLINE_BYTES + 1)
    posted = await board.post(large)
    written = await board.write("large", large)
    assert posted.content == written.value == large
    [note] = await board.notes()
    assert note.content == large
    assert (await board.read("large")).value == large
    [stored] = await boss.journal.boards.notes("market", NoteQuery())
    assert stored.stored.blob


async def test_followers_hear_notes_as_they_come(boss: ch.Supervisor) -> None:
    board = boss.board("market")
    heard: list[object] = []

    async def follow() -> None:
        async for note in board.follow(tags=["news"]):
            heard.append(note.content)
            if len(heard) == 2:
                return

    await board.post("first", tags=["news"])
    following = asyncio.create_task(follow())
    await board.post("noise", tags=["other"])
    await board.post("second", tags=["news"])
    await asyncio.wait_for(following, 10)
    assert heard == ["first", "second"]


async def test_followers_of_a_run_hear_what_happens_to_it(tmp_path: Path) -> None:
    async with ch.Supervisor([writer, reader], journal=tmp_path / "runs.db") as boss:
        run = await boss.submit(plan_for("writer", "reader"))
        heard: list[str] = []
        async for note in boss.board(run=run.id).follow(min_importance=0.8):
            heard.append(note.segment)
            if heard.count("results") == 2:
                break
        await run.wait()
    assert sorted(heard) == ["facts", "results", "results", "tasks", "tasks"]


async def test_a_follower_from_now_on_hears_nothing_from_before() -> None:
    board = ch.Supervisor([]).board("market")
    await board.post("before")
    following = board.follow(from_now=True)
    first = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)  # in memory, it has looked by now
    await board.post("after")
    note = await asyncio.wait_for(first, 10)
    assert note.content == "after"


@pytest.mark.parametrize("asked", [{}, {"name": "a", "run": "b"}])
async def test_a_board_is_asked_for_by_its_name_or_by_a_run(
    boss: ch.Supervisor, asked: dict[str, str]
) -> None:
    with pytest.raises(ch.UsageError, match="name a board or a run"):
        boss.board(**asked)


async def test_one_word_is_not_taken_for_a_list_of_letters(boss: ch.Supervisor) -> None:
    with pytest.raises(ch.UsageError, match=r"give a list: tags=\['news'\]"):
        await boss.board("market").post("x", tags="news")


# Searching


@pytest.mark.parametrize("few", [1, 20, 5000])
async def test_every_way_of_searching_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Which index is begun with depends on how many notes there are; what is found does not."""
    monkeypatch.setattr(sqlite_boards, "FEW", few)
    draw = random.Random(few)
    words = ("x", "y", "z", "w")
    journal = SqliteJournal(tmp_path / "runs.db")
    posts = [
        NotePosted(
            at=datetime(2026, 3, 1, tzinfo=UTC),
            author=draw.choice(words),
            content=Value.of(number),
            tags=tuple(draw.choices(words, k=draw.randrange(4))),
            segment=draw.choice(words),
            importance=draw.choice((0.1, 0.5, 0.8, 0.9)),
        )
        for number in range(200)
    ]
    for post in posts:
        await journal.boards.append("market", post)
    notes = [note_of("market", seq, post) for seq, post in enumerate(posts, start=1)]
    for _ in range(150):
        query = NoteQuery(
            tags=tuple(draw.choices(words, k=draw.randrange(3))),
            match=draw.choice(list(Match)),
            segments=tuple(draw.choices(words, k=draw.randrange(3))),
            min_importance=draw.choice((0.0, 0.5, 0.85)),
            author=draw.choice(("", "", "x")),
            not_by=draw.choice(("", "", "y")),
            order=draw.choice(list(NoteOrder)),
            limit=draw.choice((1, 10, 100)),
        )
        found = await journal.boards.notes("market", query)
        assert found == select([note for note in notes if note], query), query
    await journal.close()


# By processes, and after damage


def test_f14_processes_on_one_file_lose_no_update(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.db")
    command = [sys.executable, "-c", RACER, journal, "20"]
    racers = [subprocess.Popen(command) for _ in range(3)]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]

    async def look() -> tuple[list[object], int]:
        boss = ch.Supervisor([], journal=journal)
        board = boss.board("race")
        versions = [block.value for block in await board.history("sum")]
        notes = await board.notes(tags=["added"])
        await boss.close()
        return versions, len(notes)

    assert asyncio.run(look()) == (list(range(1, 61)), 60)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET payload = CAST(replace(payload, 'prices', 'pricey') AS BLOB)",
        "UPDATE entries SET at = at + 1",
        "DELETE FROM entries WHERE seq = 1",
    ],
)
async def test_a_note_that_was_changed_in_the_file_is_not_handed_out(
    tmp_path: Path, sql: str
) -> None:
    journal = SqliteJournal(tmp_path / "runs.db")
    board = ch.Supervisor([], journal=journal).board("market")
    await board.post("prices rose")
    await journal.close()
    meddle(tmp_path / "runs.db", sql)
    again = SqliteJournal(tmp_path / "runs.db")
    with pytest.raises(JournalDamaged):
        await again.boards.notes("market", NoteQuery())
    await again.close()


async def test_a_version_that_was_changed_in_the_file_is_noticed(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "runs.db")
    board = ch.Supervisor([], journal=journal).board("market")
    await board.write("sum", 1)
    await journal.close()
    meddle(tmp_path / "runs.db", "UPDATE blocks SET version = 7")
    again = ch.Supervisor([], journal=tmp_path / "runs.db")
    with pytest.raises(JournalDamaged, match="block 'sum' was changed"):
        await again.board("market").write("sum", 2)
    await again.close()


def test_the_benchmark_says_what_it_is_asked_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main(["--notes", "20", "--asks", "2", "--json"]) == 0
    figures = [figure["name"] for figure in json.loads(capsys.readouterr().out)["figures"]]
    assert "a note by itself: the second to the first" in figures
    assert "p95: two tags at once" in figures
