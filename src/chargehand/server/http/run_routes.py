"""Routes for runs: list, submit, read, follow."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.errors import NotLeading, UsageError
from chargehand.facts.limits import tightened
from chargehand.journal.base import load_value
from chargehand.server.http import run_views as views
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import JSON_TYPE, Refusal, json_response
from chargehand.server.http.event_json import event_json
from chargehand.server.http.event_stream import RunStream
from chargehand.server.http.json_types import (
    CallList,
    CallRow,
    EventPage,
    RunList,
    Snapshot,
    TaskRow,
)
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.run_cache import RunRecord
from chargehand.server.http.run_directory import is_cursor
from chargehand.supervisor.requests import RunOptions, request_or_plan, run_id
from chargehand.sync_async_bridge import in_thread

#: most bytes of a payload in a reply, unless the whole payload is requested
MOST_PAYLOAD = 256 * 1024
#: largest number of an event
MOST_SEQ = 2**53

After = Annotated[int, Query(ge=0, le=MOST_SEQ)]


class WantedLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a run, within those of the crew."""

    #: in dollars
    money: float | None = None
    tokens: int | None = None
    #: model calls
    calls: int | None = None
    #: seconds until the answer is due
    time: float | None = None


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done: a request in words, or a plan; and how."""

    request: str = ""
    plan: dict[str, Any] | None = None
    #: idempotency key: the same key with the same request returns the same run
    key: str | None = None
    priority: int = 0
    limits: WantedLimits = WantedLimits()
    #: whether a person must approve the plan, and each change to it, before it is carried out
    review_plan: bool = False
    #: the workers that the plan may use; null: all workers of the crew
    workers: list[str] | None = None
    #: stream, whole, route or steps
    approach: str | None = None
    #: the run whose answer this follows up on
    after: str | None = None
    #: the run whose results are reused if their inputs have not changed
    reuse: str | None = None
    #: what to do when the budget is used up: stop or ask
    on_budget: str = "stop"
    #: JSON Schema of the answer
    output: dict[str, Any] | None = None


class RunAccepted(Struct, frozen=True):
    """The run that was begun, or that had this key."""

    id: str


def run_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(tags=["runs"])

    @router.get("/runs", **returns(RunList))
    async def list_runs(
        grant: Caller,
        state: Annotated[str, Query(max_length=200)] = "",
        q: Annotated[str, Query(max_length=200)] = "",
        before: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Response:
        """List runs, the newest first. `state` is a state or a group: all, running, needs, partial, failed, done, ended.

        Commas separate several.
        """
        states = [each for each in state.split(",") if each]
        if unknown := views.unknown_filter(states):
            raise Refusal(
                *(422, "InvalidRequest", f"state: {unknown[:100]!r} is not a state of a run"),
                f"use one of {', '.join(dict.fromkeys([*views.GROUPS, *views.STATES]))}; commas separate several",
            )
        if before and not is_cursor(before):
            raise Refusal(
                *(422, "InvalidRequest", f"before: {before[:100]!r} is not a place in the list"),
                "give `next` of the page before it",
            )
        page = api.runs.page(grant.namespace, states=states, q=q, before=before, limit=limit)
        return json_response(await page)

    @router.post("/runs", **returns(RunAccepted, 202), **takes(RunRequest))
    async def submit_run(
        request: Request,
        grant: Caller,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Begin a run. With a key (or the header Idempotency-Key), sending it again begins nothing new."""
        wanted = await body_of(request, RunRequest)
        if idempotency_key and wanted.key and wanted.key != idempotency_key:
            raise Refusal(422, "KeysDiffer", "the header Idempotency-Key and `key` differ")
        key = idempotency_key or wanted.key
        terms = await _terms(api, wanted, grant.namespace, key)
        try:
            run = await api.boss.submit(request_or_plan(wanted.request, wanted.plan), **terms)
        except NotLeading:
            # Another server leads the run with this key; the request was already compared with that run's.
            known = "" if key is None else run_id(key, grant.namespace)
            if not known or not await api.runs.has_begun(known):
                raise
            return json_response(RunAccepted(known), 202)
        return json_response(RunAccepted(run.id), 202)

    _add_live_routes(router, api)
    _add_detail_routes(router, api)
    return router


def _add_live_routes(router: APIRouter, api: ApiContext) -> None:
    @router.get("/runs/{run}/snapshot", **returns(Snapshot))
    async def snapshot(run: str, grant: Caller) -> Response:
        """A run without payloads. Its stream goes on after `seq`."""
        record = await api.runs.find(run, grant.namespace)
        return json_response(await api.runs.snapshot(record))

    @router.get(
        "/runs/{run}/events",
        response_class=Response,
        **_streams("Server-sent events: arrays of events, `id:` is the last number."),
    )
    async def events(
        request: Request,
        run: str,
        grant: Caller,
        after: After = 0,
        tokens: bool = False,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> Response:
        """Follow a run. Resumes behind `after`, or behind the header Last-Event-ID if that is larger.

        With `tokens`, also what models write for its tasks, if this process leads the run.
        """
        await api.runs.check(run, grant.namespace)
        known = int(last_event_id) if last_event_id and last_event_id.isdecimal() else 0
        first = max(after, min(known, MOST_SEQ))
        is_granted = request.scope["is_granted"]
        stream = RunStream(api.streams, run, first, is_granted=is_granted, wants_tokens=tokens)
        return stream.response(request.receive)

    @router.get("/runs/{run}/log", **returns(EventPage))
    async def log(
        run: str,
        grant: Caller,
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
    ) -> Response:
        """Events of a run, page by page."""
        await api.runs.check(run, grant.namespace)
        return json_response(await _log_page(api, run, after, limit))


def _streams(what: str) -> dict[str, Any]:
    told = returns(None, 200, what)
    told["responses"][200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    return told


def _add_detail_routes(router: APIRouter, api: ApiContext) -> None:
    @router.get("/runs/{run}/calls", **returns(CallList))
    async def calls(
        run: str,
        grant: Caller,
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
        task: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """Model calls, tool calls and other steps, of all tasks or of one, in the order in which they began."""
        record = await api.runs.find(run, grant.namespace)
        bounds = views.slow_bounds(record.calls)
        asked = [call for call in record.calls if not task or call.task == task]
        later = [call for call in asked if call.seq > after]
        rows = [
            views.call_row(call, bounds.get(call.span.kind.value, views.SLOW))
            for call in later[:limit]
        ]
        return json_response(CallList(rows, rows[-1].id if len(later) > limit else None))

    @router.get("/runs/{run}/calls/{call}", **returns(CallRow))
    async def call(
        run: str, call: Annotated[int, Path(ge=1, le=MOST_SEQ)], grant: Caller, full: bool = False
    ) -> Response:
        """One call with what went in and what came out; with `full`, only the whole of what came out."""
        record = await api.runs.find(run, grant.namespace)
        return await _call(api, record, call, full=full)

    @router.get("/runs/{run}/tasks/{task:path}", **returns(TaskRow))
    async def task(run: str, task: str, grant: Caller, full: bool = False) -> Response:
        """One task with its result and all attempts; with `full`, only the whole result."""
        record = await api.runs.find(run, grant.namespace)
        return await _task(api, record, task, full=full)


async def _terms(
    api: ApiContext, wanted: RunRequest, namespace: str, key: str | None
) -> RunOptions:
    """The options of a run. Limits of the client cannot exceed those of the crew."""
    for run in filter(None, (wanted.after, wanted.reuse)):
        await api.runs.check(run, namespace)
    own, limits = api.boss.limits, wanted.limits
    terms = RunOptions(
        priority=wanted.priority,
        limits=tightened(own, money=limits.money, tokens=limits.tokens, calls=limits.calls),
        on_budget=wanted.on_budget,
        source=api.facts.source,
        clarify=not wanted.plan,
        namespace=namespace,
        review=wanted.review_plan,
        after=wanted.after,
        reuse=wanted.reuse,
        workers=wanted.workers,
    )
    if key is not None:
        terms["key"] = key
    if limits.time is not None:
        if limits.time <= 0:
            raise UsageError("limits.time must be more than 0 seconds")
        most = limits.time if own.deadline is None else own.deadline.total_seconds()
        terms["deadline"] = min(limits.time, most)
    if wanted.approach is not None:
        terms["approach"] = wanted.approach
    if wanted.output is not None:
        terms["output"] = wanted.output
    return terms


async def _log_page(api: ApiContext, run: str, after: int, limit: int) -> bytes:
    parts: list[bytes] = []
    more: int | None = None
    async for entry in api.boss.journal.read(run, after):
        if len(parts) == limit:
            more = entry.seq - 1
            break
        parts.append(event_json(run, entry.seq, entry.event))
    return b'{"events":[%s],"next":%s}' % (b",".join(parts), msgspec.json.encode(more))


async def _call(api: ApiContext, record: RunRecord, number: int, *, full: bool) -> Response:
    call = record.call(number)
    if call is None:
        raise Refusal(404, "UnknownCall", f"run {record.run} has no call {number}")
    given = await _payload(api, record.run, call.seq, "about")
    came = await _payload(api, record.run, call.ended, "outcome") if call.ended else b"null"
    if full:
        return _download(came, f"{record.run}-{number}.json")
    bound = views.slow_bounds(record.calls).get(call.span.kind.value, views.SLOW)
    row = msgspec.structs.replace(
        views.call_row(call, bound),
        input=_shown(given),
        output=_shown(came),
        truncated=len(came) > MOST_PAYLOAD,
        size=len(came),
    )
    return json_response(row)


async def _payload(api: ApiContext, run: str, seq: int, field: str) -> bytes:
    """The JSON of a value in an event, loaded from its blob if necessary."""
    async for entry in api.boss.journal.read(run, seq - 1):
        found = getattr(entry.event, field)
        value = getattr(found, "value", None) if field == "outcome" else found
        if value is None:
            return msgspec.json.encode({"error": str(found)})
        return bytes((await load_value(value, api.boss.journal.blobs)).json)
    return b"null"


def _shown(payload: bytes) -> Any:
    """A payload as JSON; of a long payload, only the beginning of its text."""
    if len(payload) <= MOST_PAYLOAD:
        return msgspec.Raw(payload)
    return payload[:MOST_PAYLOAD].decode("utf-8", "ignore")


def _download(payload: bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(payload, 200, headers, media_type=JSON_TYPE)


async def _task(api: ApiContext, record: RunRecord, id_: str, *, full: bool) -> Response:
    live_run = record.live_run
    node = live_run.schedule.nodes.get(id_)
    if node is None:
        raise Refusal(404, "UnknownTask", f"run {record.run} has no task {id_[:100]!r}")
    value = live_run.results.outputs.get(id_)
    output = b"null"
    if value is not None:
        output = bytes((await load_value(value, api.boss.journal.blobs)).json)
    if full:
        return _download(output, f"{record.run}.json")

    def build() -> TaskRow:
        figures = views.RunFigures(record)
        phase = views.phases_of(live_run).get(id_, 0)
        spans = figures.spans.get(id_, ())
        names = {span.task: views.item_name(record, span.task) for span in spans}
        return msgspec.structs.replace(
            views.task_row(node, figures, phase),
            instruction=live_run.schedule.instruction,
            args=node.task.args,
            output=_shown(output),
            output_size=len(output) if value is not None else 0,
            output_truncated=len(output) > MOST_PAYLOAD,
            history=views.attempt_rows(spans, whole=True, names=names),
            rewrites=record.rewrites.get(id_, []),
            provenance=() if value is None else value.taint,
            gaps=node.gaps,
        )

    async with record.lock:
        return json_response(await in_thread(build))
