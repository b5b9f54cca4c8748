"""Builds the OpenAPI document, with schemas made from the types that routes take and return."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec.inspect import Field, StructType, Type, UnionType, type_info
from starlette.requests import Request

from chargehand.facts.form_faults import Location, place_in_plan, repeated_keys
from chargehand.server.http.error_bodies import JSON_TYPE, Refusal

T = TypeVar("T")
REF = "#/components/schemas/{name}"
_KNOWN: dict[str, type[Any]] = {}
#: matches up to and including the first escape of a lone surrogate; possessive, so it takes linear time
_HALF_CHARACTER = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+"
    rb"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})",
    re.DOTALL,
)
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Why a request was refused.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "message", "hint"],
            "properties": {
                "kind": {"type": "string", "description": "The name of the error."},
                "message": {"type": "string"},
                "hint": {"type": "string", "description": "What helps; may be empty."},
            },
        }
    },
}
_ERRORS = {
    400: "The request is no proper request.",
    401: "No valid token.",
    403: "The token, the host or the origin may not do this.",
    404: "There is no such thing, or not in the namespace of this token.",
    408: "The body did not come in time.",
    409: "It was changed or answered by another client meanwhile.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "The body is JSON, and something in it is wrong.",
    503: "The journal or the server cannot do this just now.",
}


def ref(kind: type[Any]) -> dict[str, str]:
    """A reference to the schema of a type."""
    _KNOWN[kind.__name__] = kind
    return {"$ref": REF.format(name=kind.__name__)}


def returns(kind: type[Any] | None = None, status: int = 200, what: str = "") -> dict[str, Any]:
    """The decorator arguments for a route that returns this type, or nothing, including the common errors."""
    summary = (getattr(kind, "__doc__", None) or "").strip()  # under `python -OO` there are none
    words = what or (summary.splitlines()[0] if kind is not None and summary else "Done.")
    told: dict[str, Any] = {"description": words}
    if kind is not None:
        told["content"] = {JSON_TYPE: {"schema": ref(kind)}}
    error = {JSON_TYPE: {"schema": {"$ref": REF.format(name="Error")}}}
    errors = {code: {"description": words, "content": error} for code, words in _ERRORS.items()}
    return {"status_code": status, "response_model": None, "responses": {status: told, **errors}}


def takes(kind: type[Any], *, required: bool = True) -> dict[str, Any]:
    """The decorator argument for a route that takes a body of this type."""
    body = {"required": required, "content": {JSON_TYPE: {"schema": ref(kind)}}}
    return {"openapi_extra": {"requestBody": body}}


async def body_of(request: Request, kind: type[T]) -> T:
    """Decode and check the body of a request. An empty body counts as `{}`."""
    data = await request.body()
    try:
        found = msgspec.json.decode(data or b"{}", type=kind)
    except (
        msgspec.ValidationError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        is_json = isinstance(error, msgspec.ValidationError)
        kind_of_error = "InvalidBody" if is_json else "NotJson"
        words = str(error) if is_json else _lone_surrogate(data) or str(error)
        hint = fields_hint(kind, str(error)) if is_json else "send a JSON object"
        raise Refusal(422 if is_json else 400, kind_of_error, f"the body: {words}", hint) from None
    if repeated := repeated_keys(data, _place_in_body):
        raise Refusal(422, "InvalidBody", f"the body: {'; '.join(repeated)}")
    return found


def _place_in_body(location: Location, document: Any) -> str:
    """A position in the body of a request, such as `task 2 ('count'), id`."""
    if location[0] == "plan" and len(location) > 1:
        return place_in_plan(location[1:], document["plan"])
    return ".".join(map(str, location))


def fields_hint(kind: type[Any], words: str) -> str:
    """The fields of the object with a validation error; `words` is the error, which contains the object's position."""
    place, found = "", _fields_of(type_info(kind))
    for name in words.partition(" - at `$.")[2].rstrip("`").split("."):
        below = _fields_of(found[name].type) if name in found else {}
        if not below:
            break
        place, found = f"{place}.{name}" if place else name, below
    named = ", ".join(
        f"{name} (required)" if field.required else name for name, field in found.items()
    )
    return f"the fields of {place or 'the body'}: {named}" if named else ""


def _fields_of(kind: Type) -> dict[str, Field]:
    """The fields of a type by name; empty if it is not a msgspec struct."""
    for each in kind.types if isinstance(kind, UnionType) else (kind,):
        if isinstance(each, StructType):
            return {field.encode_name: field for field in each.fields}
    return {}


def _lone_surrogate(data: bytes) -> str:
    """The first lone surrogate of a body, in words; empty if there is none."""
    found = _HALF_CHARACTER.match(data)
    if found is None:
        return ""
    return (
        f"{found[1].decode()} at byte {found.start(1)} is half a character (a lone surrogate); "
        "send both halves, or \\ufffd in its place"
    )


def install(app: FastAPI, servers: Sequence[str]) -> None:
    """Make the application use these schemas in its OpenAPI document."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, servers)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI documents it


def _document(app: FastAPI, servers: Sequence[str]) -> dict[str, Any]:
    document = get_openapi(
        title="chargehand",
        version=app.version,
        description="Runs of a supervisor of agents: submit, follow, control, answer.",
        routes=app.routes,
        servers=[{"url": each} for each in servers],
    )
    _, schemas = msgspec.json.schema_components(list(_KNOWN.values()), ref_template=REF)
    known = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        known.pop(name, None)
    known.update({**schemas, "Error": ERROR_SCHEMA})
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    document["security"] = [{"bearer": []}]
    return document
