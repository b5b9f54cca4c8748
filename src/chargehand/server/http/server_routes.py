"""Routes about the server itself: login, who I am, the crew, its workers, tokens."""

from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.decisions.dispatch import WorkerLoad
from chargehand.decisions.task_graph import TaskState
from chargehand.errors import UsageError
from chargehand.roles.roster import Member
from chargehand.server.http.access_tokens import Scope
from chargehand.server.http.api_context import Admin, ApiContext, Caller
from chargehand.server.http.error_bodies import Refusal, json_response
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.request_guard import cookie_in
from chargehand.server.http.run_records import RunRecord
from chargehand.server.http.run_views import limits_json
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offer import servers_of


class LoginBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, to be exchanged for a cookie."""

    token: str


class Liveness(Struct, frozen=True):
    """The server is alive."""

    status: str = "ok"


class CallerView(Struct, frozen=True, kw_only=True):
    """The holder of this token, and the server."""

    name: str
    namespace: str
    scopes: list[str]
    read_only: bool
    version: str
    node: str
    can_submit: bool
    tokens_stream: bool


class CrewMember(Struct, frozen=True, kw_only=True):
    """A worker on the roster."""

    name: str
    does: str
    model: str
    tools: list[str]
    skills: tuple[str, ...]
    #: llm, function or supervisor
    kind: str
    capacity: int | None


class CrewView(Struct, frozen=True, kw_only=True):
    """Who does the work."""

    workers: list[CrewMember]
    #: the models that plan and answer
    planner: tuple[str, ...]
    #: what the crew may read
    files: list[str]
    limits: Any


class RotatedToken(Struct, frozen=True):
    """The new token; it is shown once."""

    name: str
    token: str


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker and what it does now."""

    name: str
    #: idle, busy, draining or resting (its breaker is open)
    state: str
    model: str
    capacity: int
    active: int
    #: attempts under way: run, task and attempt
    busy: list[Any]
    task: str
    run: str
    done: int
    failed: int
    tokens: int
    #: tasks that wait for it
    queue: int
    heartbeat_age: float | None = None


class ServerView(Struct, frozen=True, kw_only=True):
    """A process that serves the journal."""

    node: str
    pid: int
    host: str
    since: Any
    workers: list[str]
    leads: list[str]
    here: bool


class WorkersView(Struct, frozen=True):
    """The workers of this server, and the processes that serve the journal."""

    workers: list[WorkerView]
    servers: list[ServerView]


class WorkerName(Struct, frozen=True):
    """The worker that was changed."""

    name: str


def open_routes(api: ApiContext) -> APIRouter:
    """The routes that need no token."""
    router = APIRouter(tags=["server"])

    @router.post("/login", **returns(None, 204), **takes(LoginBody))
    async def login(request: Request) -> Response:
        """Exchange a token for a session cookie."""
        body = await body_of(request, LoginBody)
        grant = api.tokens.find(body.token)
        if grant is None:
            raise Refusal(
                *(401, "WrongToken", "this is not a token of this server"),
                "chargehand serve prints it when it starts; it may have been rotated since",
            )
        cookie = api.rules.session_cookie(api.tokens.open_session(grant))
        return Response(status_code=204, headers={"set-cookie": cookie})

    @router.get("/health", **returns(Liveness))
    async def health() -> Response:
        """Whether the server is alive."""
        return json_response(Liveness())

    return router


def server_routes(api: ApiContext) -> APIRouter:
    """The routes about this server."""
    router = APIRouter(tags=["server"])

    @router.post("/logout", **returns(None, 204))
    async def logout(request: Request, grant: Caller) -> Response:  # noqa: ARG001 - it must have one
        """End the session of this browser."""
        api.tokens.end_session(cookie_in(request.headers, api.rules.cookie_name))
        headers = {"set-cookie": api.rules.session_cookie("", 0)}
        return Response(status_code=204, headers=headers)

    @router.get("/me", **returns(CallerView))
    async def me(grant: Caller) -> Response:
        """What this token may do here."""
        read_only = api.rules.is_read_only
        view = CallerView(
            name=grant.name,
            namespace=grant.namespace,
            scopes=[scope.value for scope in grant.scope.included],
            read_only=read_only,
            version=api.facts.version,
            node=api.boss.journal.leases.node,
            can_submit=not read_only and grant.allows(Scope.OPERATE),
            tokens_stream=True,
        )
        return json_response(view)

    @router.get("/crew", **returns(CrewView))
    async def crew(grant: Caller) -> Response:  # noqa: ARG001 - it must have one
        """The workers that plans may name."""
        view = CrewView(
            workers=[_member(worker) for worker in api.boss.roster],
            planner=api.facts.models,
            files=[str(each) for each in api.facts.source.get("files", ())],
            limits=limits_json(api.boss.limits),
        )
        return json_response(view)

    @router.post("/tokens/rotate", **returns(RotatedToken))
    async def rotate(grant: Admin) -> Response:
        """Replace the token of this request. The old one is refused from now on, as are its cookies."""
        return json_response(RotatedToken(grant.name, api.tokens.rotate(grant.name)))

    _add_worker_routes(router, api)
    return router


def _add_worker_routes(router: APIRouter, api: ApiContext) -> None:
    @router.get("/workers", **returns(WorkersView))
    async def workers(grant: Caller) -> Response:
        """What each worker of this server does now, and which processes serve the journal."""
        return json_response(await _workers_view(api, grant.namespace))

    @router.post("/workers/{name}/drain", **returns(WorkerName, 202))
    async def drain(name: str, grant: Admin) -> Response:  # noqa: ARG001 - it must have one
        """Give a worker of this server nothing new; it finishes what it has."""
        _known(api.boss, name)
        await api.boss.drain(name)
        return json_response(WorkerName(name), 202)

    @router.post("/workers/{name}/join", **returns(WorkerName, 202))
    async def join(name: str, grant: Admin) -> Response:  # noqa: ARG001 - it must have one
        """Give a worker that was drained work again."""
        worker = _known(api.boss, name)
        try:
            await api.boss.join(worker)
        except UsageError:
            raise UsageError(f"worker {name!r} is on the roster already") from None
        return json_response(WorkerName(name), 202)


def _known(boss: Supervisor, name: str) -> Member:
    worker = boss.roster.get(name)
    if worker is None:
        raise Refusal(404, "UnknownWorker", f"there is no worker {name[:100]!r}")
    return worker


def _member(worker: Member) -> CrewMember:
    model = getattr(worker, "model", None)
    toolbox = getattr(worker, "toolbox", None)
    kind = "llm" if toolbox is not None else "function"
    return CrewMember(
        name=worker.name,
        does=worker.description,
        model=model if isinstance(model, str) else str(getattr(model, "name", "") or ""),
        tools=[] if toolbox is None else list(toolbox.names),
        skills=worker.skills,
        kind="supervisor" if isinstance(worker, Supervisor) else kind,
        capacity=worker.place.most,
    )


def _state_of(load: WorkerLoad) -> str:
    if load.is_draining:
        return "draining"
    if load.is_resting:
        return "resting"
    return "busy" if load.active else "idle"


def _queued(record: RunRecord, worker: str) -> int:
    """How many tasks of a run wait for a slot of this worker."""
    nodes = record.live_run.schedule.nodes.values()
    return sum(n.state is TaskState.READY and n.task.worker == worker for n in nodes)


async def _workers_view(api: ApiContext, namespace: str) -> WorkersView:
    records = {record.run: record for record in await api.runs.open_runs(namespace)}
    here = api.boss.journal.leases.node
    views = []
    for load in api.boss.worker_loads():
        own = [
            span for r in records.values() for span in r.spans.attempts if span.worker == load.name
        ]
        busy: list[dict[str, Any]] = [
            {"run": run, "task": task, "attempt": attempt}
            for run, task, attempt in load.held
            if run in records
        ]
        member = api.boss.roster.get(load.name)
        views.append(
            WorkerView(
                name=load.name,
                state=_state_of(load),
                model="" if member is None else _member(member).model,
                capacity=load.capacity,
                active=load.active,
                busy=busy,
                task=busy[0]["task"] if busy else "",
                run=busy[0]["run"] if busy else "",
                done=sum(span.ending == "done" for span in own),
                failed=sum(span.ending in ("failed", "lost") for span in own),
                tokens=sum(span.usage.tokens_in + span.usage.tokens_out for span in own),
                queue=sum(_queued(record, load.name) for record in records.values()),
            )
        )
    servers = [
        ServerView(
            node=each.process.node,
            pid=each.process.pid,
            host=each.process.host,
            since=each.offer.since,
            workers=list(each.offer.names),
            leads=[run for run, record in records.items() if record.node == each.process.node],
            here=each.process.node == here,
        )
        for each in await servers_of(api.boss.journal)
    ]
    return WorkersView(views, servers)
