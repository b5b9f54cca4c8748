"""Routes for the server itself: login, the caller, the crew, tokens."""

from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.errors import JournalError
from chargehand.roles.roster import Member
from chargehand.server.http.access_tokens import Scope
from chargehand.server.http.api_context import Admin, ApiContext, Caller
from chargehand.server.http.authentication_guard import cookie_in
from chargehand.server.http.error_bodies import Refusal, failed_response, json_response
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.run_views import limits_json
from chargehand.supervisor import Supervisor


class LoginBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, to be exchanged for a cookie."""

    token: str


class Liveness(Struct, frozen=True):
    """The server is alive."""

    status: str = "ok"
    #: ok, or why nothing can be stored
    journal: str = "ok"


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
    #: `--crew` and `--journal` for commands that submit runs to this server; empty: the defaults
    crew: str = ""
    journal: str = ""


class RotatedToken(Struct, frozen=True):
    """The new token; it is shown once."""

    name: str
    token: str


def open_routes(api: ApiContext) -> APIRouter:
    """Create the routes that need no token."""
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
        """Whether the server is alive, and whether its journal can be written."""
        error = api.boss.journal_error
        if error is None:
            return json_response(Liveness())
        return json_response(Liveness(journal=f"cannot be written: {type(error).__name__}"))

    return router


def server_routes(api: ApiContext) -> APIRouter:
    """Create the other routes for the server itself."""
    router = APIRouter(tags=["server"])

    @router.post("/logout", **returns(None, 204))
    async def logout(request: Request, grant: Caller) -> Response:  # noqa: ARG001 - the route needs a token
        """End the session of this browser. An error says that it would be valid again after a restart."""
        reply = Response(status_code=204)
        try:
            api.tokens.end_session(cookie_in(request.headers, api.rules.cookie_name))
        except JournalError as error:
            reply = failed_response(error)
        reply.headers["set-cookie"] = api.rules.session_cookie("", 0)
        return reply

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
    async def crew(grant: Caller) -> Response:  # noqa: ARG001 - the route needs a token
        """The workers that plans may name."""
        view = CrewView(
            workers=[_member(worker) for worker in api.boss.roster],
            planner=api.facts.models,
            files=[str(each) for each in api.facts.source.get("files", ())],
            limits=limits_json(api.boss.limits),
            crew=str(api.facts.source.get("crew", "")),
            journal=str(getattr(api.boss.journal, "path", "")),
        )
        return json_response(view)

    @router.post("/tokens/rotate", **returns(RotatedToken))
    async def rotate(grant: Admin) -> Response:
        """Replace the token of this request. The old one is refused from now on, as are its cookies."""
        return json_response(RotatedToken(grant.name, api.tokens.rotate(grant.name)))

    return router


def model_of(worker: Member) -> str:
    """The name of a worker's model; empty if it has no model of its own."""
    model = getattr(worker, "model", None)
    return model if isinstance(model, str) else str(getattr(model, "name", "") or "")


def _member(worker: Member) -> CrewMember:
    toolbox = getattr(worker, "toolbox", None)
    kind = "llm" if toolbox is not None else "function"
    return CrewMember(
        name=worker.name,
        does=worker.description,
        model=model_of(worker),
        tools=[] if toolbox is None else list(toolbox.names),
        skills=worker.skills,
        kind="supervisor" if isinstance(worker, Supervisor) else kind,
        capacity=worker.place.most,
    )
