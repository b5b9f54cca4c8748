"""Routes for the results of a run: answer, trace and cost, and the comparison of two runs."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from msgspec import Struct
from starlette.responses import Response

from chargehand.decisions.time_and_cost_report import Report
from chargehand.facts.answer import Claim, Gap
from chargehand.facts.outcome import Usage
from chargehand.recordings.run_archive import archive_of
from chargehand.recordings.run_comparison import compare
from chargehand.result import RunResult
from chargehand.server.http import run_views as views
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import json_response
from chargehand.server.http.openapi_schemas import returns
from chargehand.server.http.run_cache import RunRecord
from chargehand.sync_async_bridge import in_thread


class ResultView(Struct, frozen=True, kw_only=True):
    """What a run came to; of one that has not ended, as far as it goes."""

    status: str
    #: the answer as text; null if there is none
    answer: str | None
    #: the answer as JSON; text is a string
    answer_json: Any
    claims: tuple[Claim, ...]
    contradictions: Any
    gaps: tuple[Gap, ...]
    confidence: float
    composed_by: str
    #: worker and description of each task that supports the answer
    sources: dict[str, Any]
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money (null: a price is not known)
    usage: Any
    #: each cap of the run or of a task that was exceeded, in words
    over_budget: tuple[str, ...]
    #: untrusted sources that the answer derives from
    taint: tuple[str, ...]


class CostView(Struct, frozen=True, kw_only=True):
    """Where the money and the tokens went."""

    by_worker: Any
    by_model: Any
    by_task: Any
    waste: Any
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money (null: a price is not known)
    usage: Any
    budget: Any
    #: each cap of the run or of a task that was exceeded, in words
    over_budget: tuple[str, ...]
    #: models without a known price: sums of money leave them out
    unpriced: list[str]


def result_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(tags=["results"])

    @router.get("/runs/{run}/result", **returns(ResultView))
    async def result(run: str, grant: Caller) -> Response:
        """The answer with its sources, gaps and confidence."""
        record = await api.runs.find(run, grant.namespace)
        standing = await api.runs.standing(record)
        found = api.runs.result_of(record)
        async with record.lock:
            told = await in_thread(_result_view, found, standing.state)
        return json_response(told)

    @router.get("/runs/{run}/trace", **returns(None, 200, "The trace; see its JSON Schema."))
    async def trace(run: str, grant: Caller, content: bool = True) -> Response:
        """Plan, dispatch, every call, retries and the answer, as `chargehand trace` prints it."""
        record = await api.runs.find(run, grant.namespace)
        found = api.runs.result_of(record)
        return json_response(
            await in_thread(lambda: found.trace.to_json(indent=None, content=content).encode())
        )

    @router.get("/runs/{run}/cost", **returns(CostView))
    async def cost(run: str, grant: Caller) -> Response:
        """Spend by worker, model and task, and what was spent in vain."""
        record = await api.runs.find(run, grant.namespace)
        found = api.runs.result_of(record)
        report = await in_thread(lambda: found.report)
        return json_response(_cost_view(record, report, found.over_budget))

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

    return router


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
        answer=None if answer.output is None else answer.text,
        answer_json=msgspec.to_builtins(answer.output),
        claims=answer.claims,
        contradictions=msgspec.to_builtins(answer.contradictions),
        gaps=answer.gaps,
        confidence=answer.confidence,
        composed_by=answer.by,
        sources=sources,
        usage=views.usage_view(result.usage),
        over_budget=result.over_budget,
        taint=result.taint,
    )


def _with_usage(told: list[dict[str, Any]], used: Iterable[Usage]) -> list[dict[str, Any]]:
    """Rows of a report with null for an unknown cost, which is otherwise left out."""
    return [
        {**row, "usage": views.usage_view(usage)} for row, usage in zip(told, used, strict=True)
    ]


def _cost_view(record: RunRecord, report: Report, over_budget: tuple[str, ...]) -> CostView:
    told = msgspec.json.decode(report.to_json(indent=None))
    figures = views.RunFigures(record)
    limits = record.live_run.limits
    return CostView(
        by_worker=_with_usage(told["workers"], (each.usage for each in report.workers)),
        by_model=_with_usage(told["models"], (each.usage for each in report.models)),
        unpriced=[each.model for each in report.models if each.usage.cost is None],
        by_task=[
            {"task": task, **views.usage_view(usage)} for task, usage in figures.usage.items()
        ],
        waste={**told["waste"], "usage": views.usage_view(report.waste.usage)},
        usage=views.usage_view(record.live_run.results.usage),
        budget={"money": limits.money, "tokens": limits.tokens, "calls": limits.calls},
        over_budget=over_budget,
    )
