"""The notes of a run over HTTP: who wrote what, in which task, and which of them are not to be trusted."""

from pathlib import Path

import chargehand as ch
from chargehand.facts.value import Value
from chargehand.roles.board import BriefBoard
from chargehand.server.http.access_tokens import Scope
from chargehand.server.http.board_note_routes import MOST_CONTENT
from tests.server.conftest import Served, serving, task


@ch.worker("scout", "Posts notes on the board of the run, and on one that many runs share")
async def scout(brief: ch.Brief) -> str:
    assert isinstance(brief.board, BriefBoard)
    name = brief.task.id
    await brief.board.named("market").post(f"{name} looks around", tags=["elsewhere"])
    await brief.board.post({"price": 3}, tags=["price", name], importance=0.9)
    await brief.board.post(f"{name} saw <b>much</b>", metadata={"page": 7})
    return "seen"


async def noted(served: Served) -> str:
    run = await served.submit(task("east", "scout"), task("west", "scout", "east"))
    await served.until(run, "succeeded")
    return run


async def test_notes_come_newest_first_with_who_wrote_them_in_which_task(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[scout]) as served:
        run = await noted(served)
        listed = await served.get(f"runs/{run}/notes")
        assert listed["has_more"] is False
        told = [(n["author"], n["task"], n["attempt"], n["content"]) for n in listed["notes"]]
        assert told == [
            ("scout", "west", 1, "west saw <b>much</b>"),
            ("scout", "west", 1, {"price": 3}),
            ("scout", "east", 1, "east saw <b>much</b>"),
            ("scout", "east", 1, {"price": 3}),
        ]
        last, first = listed["notes"][0], listed["notes"][-1]
        assert (first["tags"], first["importance"], first["segment"]) == (
            ["price", "east"],
            0.9,
            "notes",
        )
        assert (last["metadata"], last["taint"], last["truncated"]) == ({"page": 7}, [], False)


async def test_notes_are_chosen_by_author_tag_and_segment_and_more_are_announced(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, crew=[scout]) as served:
        run = await noted(served)
        await served.boss.board(run=run).signed("eva").post("from outside", segment="remarks")

        async def contents(query: str) -> list[object]:
            found = (await served.get(f"runs/{run}/notes?{query}"))["notes"]
            return [note["content"] for note in found]

        assert await contents("author=eva") == ["from outside"]
        assert await contents("segment=remarks") == ["from outside"]
        assert await contents("tag=east") == [{"price": 3}]
        assert await contents("tag=east&author=eva") == []
        newest = await served.get(f"runs/{run}/notes?limit=1")
        assert [note["task"] for note in newest["notes"]] == [""]
        assert newest["has_more"] is True
        for refused in ("limit=0", "limit=501", f"tag={'x' * 201}"):
            assert (await served.call("GET", f"runs/{run}/notes?{refused}")).status == 422


async def test_a_note_says_what_it_derives_from_and_a_large_one_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[scout]) as served:
        run = await noted(served)
        board = served.boss.board(run=run)
        await board.post(Value.of("from a page", ("web:example.com",)))
        await board.post("x" * (MOST_CONTENT + 1))
        await board.post("y" * 100_000)  # is stored apart
        blob, long, tainted = (await served.get(f"runs/{run}/notes?limit=3"))["notes"]
        assert tainted["taint"] == ["web:example.com"]
        assert (long["truncated"], long["content"]) == (True, "x" * MOST_CONTENT)
        assert (blob["truncated"], blob["content"]) == (True, "")
        assert blob["size"] > 100_000


async def test_only_who_may_read_the_run_reads_its_notes(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[scout]) as served:
        run = await noted(served)
        reader = served.web.tokens.add("bob", Scope.READ)[1]
        assert (await served.call("GET", f"runs/{run}/notes", token=reader)).status == 200
        assert (await served.call("GET", f"runs/{run}/notes", token="")).status == 401
        other = served.web.tokens.add("joe", Scope.ADMIN, namespace="team")[1]
        assert (await served.call("GET", f"runs/{run}/notes", token=other)).status == 404
        assert (await served.call("GET", "runs/nope/notes")).status == 404


async def test_a_block_says_what_it_derives_from(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[scout]) as served:
        run = await noted(served)
        board = served.boss.board(run=run)
        await board.write("page", Value.of("from a page", ("web:example.com",)))
        (block,) = (await served.get(f"runs/{run}/board"))["blocks"]
        assert block["taint"] == ["web:example.com"]
