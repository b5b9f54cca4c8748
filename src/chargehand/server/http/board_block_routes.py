"""Routes for the board of a run: its blocks, their history, and edits while the run is paused."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.errors import BlockChanged, RunEnded
from chargehand.facts.board import LEADER, Block, Guard
from chargehand.facts.value import Value
from chargehand.roles.board import Board
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import Refusal, json_response
from chargehand.server.http.event_json import preview_of
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.run_cache import RunRecord

#: most versions of a block in a reply
MOST_VERSIONS = 50


class BlockView(Struct, frozen=True, kw_only=True):
    """A block of shared memory."""

    key: str
    preview: str
    size: int
    writer: str
    version: int
    readers: tuple[str, ...]
    writers: tuple[str, ...]
    at: datetime
    #: meant for concurrent writes that did not see each other; not computed, so always false
    conflict: bool = False
    #: untrusted sources that the newest version derives from
    taint: tuple[str, ...] = ()
    value: Any = None
    history: list[Any] = []


class BoardView(Struct, frozen=True):
    """The shared memory of a run."""

    blocks: list[BlockView]


class BlockBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The new value of a block, as JSON."""

    value: Any


def board_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(prefix="/runs/{run}/board", tags=["board"])

    @router.get("", **returns(BoardView))
    async def board(run: str, grant: Caller) -> Response:
        """The blocks of shared memory, each as it is now."""
        await api.runs.check(run, grant.namespace)
        own = api.boss.board(run=run)
        labels = {label.label: label for label in await own.labels()}
        blocks = [(label, await own.newest(name)) for name, label in labels.items()]
        return json_response(
            BoardView([_block_view(block, label.guard) for label, block in blocks if block])
        )

    @router.get("/{key:path}", **returns(BlockView))
    async def block(run: str, key: str, grant: Caller) -> Response:
        """One block with its value and its newest versions; its version is the ETag."""
        await api.runs.check(run, grant.namespace)
        view = await _details(api.boss.board(run=run), key)
        if view is None:
            raise _unknown(run, key)
        return _shown(view)

    @router.put("/{key:path}", **returns(BlockView), **takes(BlockBody))
    async def edit(
        request: Request,
        run: str,
        key: str,
        grant: Caller,
        if_match: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Write the next version of a block, while the run is paused. Needs the version in If-Match."""
        body = await body_of(request, BlockBody)
        record = await api.runs.find(run, grant.namespace)
        own = api.boss.board(run=run).signed(api.name_of(grant), LEADER)
        known = await own.find(key)
        if known is None:
            raise _unknown(run, key)
        _refuse_unpaused(record)
        version = _version_in(if_match, known)
        # An edited value may still contain text from an untrusted source.
        value = Value.of(body.value, known.taint)
        try:
            await own.write(key, value, expect=version)
        except BlockChanged as error:
            raise Refusal(
                *(409, "BlockChanged", f"block {key[:100]!r} is at version {error.version} by now"),
                "read it again and repeat the change",
                current=msgspec.to_builtins(await _details(own, key)),
            ) from None
        view = await _details(own, key)
        if view is None:
            raise _unknown(run, key)
        return _shown(view)

    return router


def _refuse_unpaused(record: RunRecord) -> None:
    """Raise 409 unless the run is paused: otherwise, workers would continue with the old value."""
    schedule = record.live_run.schedule
    if schedule.status is not None:
        raise RunEnded(record.run, schedule.status.value)
    if not schedule.is_paused:
        raise Refusal(
            *(409, "RunNotPaused", f"run {record.run} is not paused"),
            "pause it, change the block, then let it go on",
        )


def _version_in(if_match: str | None, known: Block) -> int:
    """The version that the caller has read, from If-Match."""
    if if_match is None:
        words = "name the version that you have read, in the header If-Match"
        raise Refusal(428, "VersionMissing", words, f"it is {known.version} now")
    given = if_match.strip().removeprefix("W/").strip('"')
    if given == "*":
        return known.version
    if not given.isdecimal() or len(given) > 15:
        raise Refusal(422, "VersionUnknown", f"{given[:60]!r} is not the number of a version")
    return int(given)


def _unknown(run: str, key: str) -> Refusal:
    return Refusal(404, "UnknownBlock", f"run {run} has no block {key[:100]!r}")


async def _details(own: Board, key: str) -> BlockView | None:
    """A block with its value and its newest versions, newest first."""
    labels = {label.label: label for label in await own.labels()}
    newest = await own.find(key) if key in labels else None
    if newest is None:
        return None
    first = max(newest.version - MOST_VERSIONS, 0) + 1
    versions = [await own.find(key, number) for number in range(first, newest.version + 1)]
    history = [_version_view(each) for each in versions if each is not None]
    view = _block_view(newest, labels[key].guard)
    return msgspec.structs.replace(view, value=newest.value, history=history[::-1])


def _shown(view: BlockView) -> Response:
    return json_response(view, headers={"etag": f'"{view.version}"'})


def _block_view(block: Block, guard: Guard) -> BlockView:
    cut = preview_of(block.stored)
    return BlockView(
        key=block.label,
        preview=cut["preview"],
        size=cut["size"],
        writer=block.author,
        version=block.version,
        readers=guard.readers,
        writers=guard.writers,
        at=block.at,
        taint=block.taint,
    )


def _version_view(block: Block) -> dict[str, Any]:
    return {
        "version": block.version,
        "writer": block.author,
        "at": block.at,
        "value": block.value,
    }
