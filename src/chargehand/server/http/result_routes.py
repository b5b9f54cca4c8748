"""Routes about what came of a run: its answer, trace and cost, its board, and how two runs differ."""

import asyncio
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from msgspec import Struct
from starlette.responses import Response

from chargehand.decisions.report import Report
from chargehand.facts.answer import Claim, Gap
from chargehand.facts.board import Block
from chargehand.recordings.run_archive import archive_of
from chargehand.recordings.run_comparison import compare
from chargehand.result import RunResult
from chargehand.server.http import run_views as views
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import Refusal, json_response
from chargehand.server.http.event_json import preview_of
from chargehand.server.http.openapi_schemas import returns
from chargehand.server.http.run_records import RunRecord

#: versions of a block that are returned
MOST_VERSIONS = 50


class ResultView(Struct, frozen=True, kw_only=True):
    """What a run came to; of one that has not ended, as far as it goes."""

    status: str
    #: as text
    answer: str
    #: as JSON; text stays text
    answer_json: Any
    claims: tuple[Claim, ...]
    contradictions: Any
    gaps: tuple[Gap, ...]
    confidence: float
    composed_by: str
    #: by task that the answer rests on: who did it and how its result begins
    sources: dict[str, Any]
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money
    usage: Any
    #: untrusted sources that the answer derives from
    taint: tuple[str, ...]


class CostView(Struct, frozen=True, kw_only=True):
    """Where the money and the tokens went."""

    by_worker: Any
    by_model: Any
    by_task: Any
    waste: Any
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money
    usage: Any
    budget: Any


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
    #: two have written it, and neither had read what the other wrote
    conflict: bool = False
    value: Any = None
    history: list[Any] = []


class BoardView(Struct, frozen=True):
    """The shared memory of a run."""

    blocks: list[BlockView]


def result_routes(api: ApiContext) -> APIRouter:
    """The routes, for this server."""
    router = APIRouter(tags=["results"])

    @router.get("/runs/{run}/result", **returns(ResultView))
    async def result(run: str, grant: Caller) -> Response:
        """The answer with its sources, gaps and confidence."""
        record = await api.runs.find(run, grant.namespace)
        standing = await api.runs.standing(record)
        found = api.runs.result_of(record)
        async with record.lock:
            told = await asyncio.to_thread(_result_view, found, standing.state)
        return json_response(told)

    @router.get("/runs/{run}/trace", **returns(None, 200, "The trace; see its JSON Schema."))
    async def trace(run: str, grant: Caller, content: bool = True) -> Response:
        """Plan, dispatch, every call, retries and the answer, as `chargehand trace` prints it."""
        record = await api.runs.find(run, grant.namespace)
        found = api.runs.result_of(record)
        return json_response(
            await asyncio.to_thread(
                lambda: found.trace.to_json(indent=None, content=content).encode()
            )
        )

    @router.get("/runs/{run}/cost", **returns(CostView))
    async def cost(run: str, grant: Caller) -> Response:
        """Spend by worker, model and task, and what was spent in vain."""
        record = await api.runs.find(run, grant.namespace)
        found = api.runs.result_of(record)
        report = await asyncio.to_thread(lambda: found.report)
        return json_response(_cost_view(record, report))

    @router.get("/compare", **returns(None, 200, "As `chargehand diff --json` prints it."))
    async def compared(
        grant: Caller,
        a: Annotated[str, Query(max_length=200)],
        b: Annotated[str, Query(max_length=200)],
    ) -> Response:
        """How two runs differ in plan, outcomes, answer, time and cost."""
        for run in (a, b):
            await api.runs.check(run, grant.namespace)
        journal = api.boss.journal
        found = await compare(await archive_of(journal, a), await archive_of(journal, b))
        return json_response({**msgspec.to_builtins(found), "is_same": found.is_same})

    _add_board_routes(router, api)
    return router


def _add_board_routes(router: APIRouter, api: ApiContext) -> None:
    @router.get("/runs/{run}/board", **returns(BoardView))
    async def board(run: str, grant: Caller) -> Response:
        """The blocks of shared memory, each as it is now."""
        await api.runs.check(run, grant.namespace)
        own = api.boss.board(run=run)
        labels = {label.label: label for label in await own.labels()}
        blocks = [(label, await own.newest(name)) for name, label in labels.items()]
        return json_response(
            BoardView([_block_view(block, label.guard) for label, block in blocks if block])
        )

    @router.get("/runs/{run}/board/{key:path}", **returns(BlockView))
    async def block(run: str, key: str, grant: Caller) -> Response:
        """One block with its value and its newest versions."""
        await api.runs.check(run, grant.namespace)
        own = api.boss.board(run=run)
        labels = {label.label: label for label in await own.labels()}
        newest = await own.find(key) if key in labels else None
        if newest is None:
            raise Refusal(404, "UnknownBlock", f"run {run} has no block {key[:100]!r}")
        first = max(newest.version - MOST_VERSIONS, 0) + 1
        versions = [await own.find(key, number) for number in range(first, newest.version + 1)]
        history = [_version_view(each) for each in versions if each is not None]
        view = _block_view(newest, labels[key].guard)
        return json_response(
            msgspec.structs.replace(view, value=newest.value, history=history[::-1])
        )


def _result_view(result: RunResult, state: str) -> ResultView:
    answer = result.answer
    tasks = dict.fromkeys(task for claim in answer.claims for task in claim.tasks)
    sources = {
        id_: {"worker": result.tasks[id_].worker, "description": result.tasks[id_].task.description}
        for id_ in tasks
        if id_ in result.tasks
    }
    return ResultView(
        status=state,
        answer=answer.text,
        answer_json=msgspec.to_builtins(answer.output),
        claims=answer.claims,
        contradictions=msgspec.to_builtins(answer.contradictions),
        gaps=answer.gaps,
        confidence=answer.confidence,
        composed_by=answer.by,
        sources=sources,
        usage=msgspec.structs.asdict(result.usage),
        taint=result.taint,
    )


def _cost_view(record: RunRecord, report: Report) -> CostView:
    told = msgspec.json.decode(report.to_json(indent=None))
    figures = views.RunFigures(record)
    limits = record.live_run.schedule.limits
    return CostView(
        by_worker=told["workers"],
        by_model=told["models"],
        by_task=[
            {"task": task, **msgspec.structs.asdict(usage)} for task, usage in figures.usage.items()
        ],
        waste=told["waste"],
        usage=msgspec.structs.asdict(record.live_run.results.usage),
        budget={"money": limits.money, "tokens": limits.tokens, "calls": limits.calls},
    )


def _block_view(block: Block, guard: Any) -> BlockView:
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
    )


def _version_view(block: Block) -> dict[str, Any]:
    return {
        "version": block.version,
        "writer": block.author,
        "at": block.at,
        "value": block.value,
    }
