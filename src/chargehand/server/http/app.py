"""The FastAPI application: all routes, behind the request guard."""

import logging

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from chargehand.errors import ChargehandError
from chargehand.server.http.api_context import ApiContext, granted, refuse_unknown_options
from chargehand.server.http.authentication_guard import API, RequestGuard
from chargehand.server.http.board_block_routes import board_routes
from chargehand.server.http.board_note_routes import note_routes
from chargehand.server.http.control_routes import control_routes
from chargehand.server.http.error_bodies import (
    Refusal,
    error_body,
    failed_response,
    json_response,
    refused,
)
from chargehand.server.http.login_crew_token_routes import open_routes, server_routes
from chargehand.server.http.openapi_schemas import install
from chargehand.server.http.plan_routes import plan_routes
from chargehand.server.http.question_routes import question_routes
from chargehand.server.http.result_routes import result_routes
from chargehand.server.http.run_routes import run_routes
from chargehand.server.http.static_files import StaticFiles
from chargehand.server.http.worker_routes import worker_routes

log = logging.getLogger("chargehand")


def api_app(api: ApiContext) -> FastAPI:
    """The application without its guard. All routes of the API except login and health need a token."""
    app = FastAPI(
        version=api.facts.version,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.include_router(open_routes(api), prefix=API)
    closed = APIRouter(prefix=API, dependencies=[Depends(refuse_unknown_options)])
    for routes in (
        run_routes,
        plan_routes,
        control_routes,
        question_routes,
        result_routes,
        board_routes,
        note_routes,
        server_routes,
        worker_routes,
    ):
        closed.include_router(routes(api))

    @closed.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        """The OpenAPI document."""
        granted(request)
        return json_response(app.openapi())

    app.include_router(closed)
    install(app, [api.rules.base or "/"])
    files = StaticFiles(api.rules.base)
    app.add_route("/{path:path}", files.serve, methods=["GET", "HEAD"], include_in_schema=False)
    _add_error_handlers(app)
    return app


def guarded_app(api: ApiContext) -> RequestGuard:
    """The application with its guard, as it is served."""
    return RequestGuard(api_app(api), api.tokens, api.rules)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refuse(_: Request, error: Refusal) -> Response:
        return refused(error)

    @app.exception_handler(ChargehandError)
    async def fail(_: Request, error: ChargehandError) -> Response:
        return failed_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return json_response(error_body("InvalidRequest", f"{where}: {first['msg']}"), 422)

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        words = f"{request.method} {request.url.path[:200]}: {error.detail}"
        body = error_body("NoSuchRoute", words, "GET api/v1/openapi.json lists all routes")
        return json_response(body, error.status_code, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        log.error("request_failed %s %s", request.method, request.url.path, exc_info=error)
        return json_response(
            error_body("InternalError", "this is a bug in chargehand; see its log"), 500
        )
