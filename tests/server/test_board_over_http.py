"""The board of a run over HTTP: read its blocks, and edit them while the run is paused."""

import asyncio
from pathlib import Path
from typing import Any

import chargehand as ch
from chargehand.facts.value import Value
from chargehand.server.http.access_tokens import Scope
from tests.server.conftest import Reply, Served, serving, task


@ch.worker("noter", "Writes a block and reads it again, at steps")
async def note(brief: ch.Brief) -> str:
    assert brief.board is not None
    await brief.board.write("facts/tower", {"metres": 324})
    await brief.step("wait", asyncio.Event().wait, effect="pure")
    return "never"


async def noted(served: Served) -> str:
    """A run that has written its block and goes on."""
    run = await served.submit(task("t1", "noter"))
    signal = served.boss.journal.boards.signal
    while True:
        known = signal.count
        if (await served.get(f"runs/{run}/board"))["blocks"]:
            return run
        await signal.wait(since=known)


async def put(served: Served, run: str, value: Any, version: Any = 1, **more: Any) -> Reply:
    headers = {} if version is None else {"If-Match": str(version)}
    path = f"runs/{run}/board/facts/tower"
    return await served.call("PUT", path, {"value": value}, headers=headers, **more)


async def test_a_block_is_edited_while_the_run_is_paused_and_says_by_whom(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[note]) as served:
        run = await noted(served)
        refused = await put(served, run, {"metres": 330})
        assert (refused.status, refused.kind) == (409, "RunNotPaused")
        assert "pause it" in refused.json["error"]["hint"]
        await served.post(f"runs/{run}/pause")
        await served.until(run, "paused")
        token = served.web.tokens.add("ann", Scope.OPERATE)[1]
        edited = await put(served, run, {"metres": 330}, '"1"', token=token)
        assert (edited.status, edited.headers["etag"]) == (200, '"2"')
        seen = await served.get(f"runs/{run}/board/facts/tower")
        assert (seen["value"], seen["version"], seen["writer"]) == ({"metres": 330}, 2, "ann")
        assert [each["writer"] for each in seen["history"]] == ["ann", "noter"]
        block = await served.boss.board(run=run).read("facts/tower")
        assert (block.value, block.author) == ({"metres": 330}, "ann")


async def test_an_edit_of_an_older_version_gets_the_newer_one(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[note]) as served:
        run = await noted(served)
        await served.post(f"runs/{run}/pause")
        await served.until(run, "paused")
        assert (await put(served, run, "first")).status == 200
        late = await put(served, run, "second")
        assert (late.status, late.kind) == (409, "BlockChanged")
        assert (late.json["current"]["version"], late.json["current"]["value"]) == (2, "first")
        missing = await put(served, run, "third", None)
        assert (missing.status, missing.kind) == (428, "VersionMissing")
        assert (await put(served, run, "third", "two")).status == 422
        unknown = await served.call("PUT", f"runs/{run}/board/x", {"value": 1})
        assert (unknown.status, unknown.kind) == (404, "UnknownBlock")


async def test_who_may_only_read_edits_nothing_and_an_ended_run_stays_as_it_is(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, crew=[note]) as served:
        run = await noted(served)
        await served.post(f"runs/{run}/pause")
        await served.until(run, "paused")
        reader = served.web.tokens.add("bob", Scope.READ)[1]
        assert (await put(served, run, 1, token=reader)).status == 403
        await served.post(f"runs/{run}/cancel")
        await served.until(run, "cancelled")
        ended = await put(served, run, 1)
        assert (ended.status, ended.kind) == (409, "RunEnded")


async def test_an_edit_stays_as_untrusted_as_what_was_edited(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[note]) as served:
        run = await noted(served)
        board = served.boss.board(run=run)
        await board.write("facts/tower", Value.of("from a page", ("web:example.com",)))
        await served.post(f"runs/{run}/pause")
        await served.until(run, "paused")
        assert (await put(served, run, "from a page, edited", 2)).status == 200
        assert (await board.read("facts/tower")).taint == ("web:example.com",)
