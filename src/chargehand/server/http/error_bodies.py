"""Errors in the API: a status and a body `{"error": {"kind", "message", "hint"}}`."""

from typing import Any

import msgspec
from starlette.responses import Response

from chargehand.errors import (
    BlockChanged,
    ChargehandError,
    EffectsWouldRepeat,
    JournalBusy,
    JournalError,
    JournalFull,
    JournalReadOnly,
    KeyConflict,
    NotLeading,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    RunEnded,
    UnknownQuestion,
    UnknownRun,
    UsageError,
)

JSON_TYPE = "application/json"
#: HTTP status by type of error; the first match counts
_STATUS: tuple[tuple[type[ChargehandError], int], ...] = (
    (QuestionTaken, 409),
    (KeyConflict, 409),
    (NotLeading, 409),
    (PlanChanged, 409),
    (EffectsWouldRepeat, 409),
    (BlockChanged, 409),
    (RunEnded, 409),
    (UnknownRun, 404),
    (UnknownQuestion, 404),
    (PlanRefused, 422),
    (UsageError, 422),
    (JournalFull, 507),
    (JournalReadOnly, 503),
    (JournalBusy, 503),
    (JournalError, 503),
)


class Refusal(Exception):
    """Raised to refuse a request with this status."""

    def __init__(self, status: int, kind: str, message: str, hint: str = "", **facts: Any) -> None:
        self.status = status
        self.kind = kind
        self.hint = hint
        self.facts = facts
        super().__init__(message)


def json_response(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response from anything that msgspec can encode, or from encoded bytes."""
    body = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return Response(body, status, headers, media_type=JSON_TYPE)


def error_body(kind: str, message: str, hint: str = "", **facts: Any) -> bytes:
    """The JSON of an error, with `facts` as further top-level fields."""
    error = {"kind": kind, "message": message, "hint": hint}
    return msgspec.json.encode({"error": error, **facts})


def refused(error: Refusal) -> Response:
    """The response for a `Refusal`."""
    body = error_body(error.kind, str(error), error.hint, **error.facts)
    return json_response(body, error.status)


def failed_response(error: ChargehandError) -> Response:
    """The response for an error of the supervisor or the journal."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    message, _, hint = str(error).partition("; ")
    facts: dict[str, Any] = {}
    if isinstance(error, PlanRefused):
        facts["faults"] = [fault_json(each) for each in error.faults]
        message, hint = str(error), ""
    elif isinstance(error, QuestionTaken):
        facts = {"by": error.by, "text": error.text}
    elif isinstance(error, KeyConflict):
        facts = {"run": error.run, "differs": error.differs}
    elif isinstance(error, PlanChanged):
        facts = {"current": {"version": error.version}}
    elif isinstance(error, RunEnded):
        facts = {"state": error.status}
    return json_response(error_body(type(error).__name__, message, hint, **facts), status)


def fault_json(fault: Any) -> dict[str, str]:
    """A fault of a plan as JSON: its task, its field if known, and what is wrong."""
    field = _FIELDS.get(fault.kind, "")
    return {"task": fault.task, "field": field, "kind": fault.kind, "message": fault.message}


_FIELDS = {
    "bad_id": "id",
    "duplicate_id": "id",
    "unknown_worker": "worker",
    "no_worker": "worker",
    "dangling_need": "needs",
    "self_need": "needs",
    "duplicate_need": "needs",
    "cycle": "needs",
    "forward_need": "needs",
    "bad_output": "output",
    "empty_description": "description",
    "vague": "description",
    "nobody_else": "on_failure",
    "missing_file": "description",
    "missing_table": "description",
    "no_items": "for_each",
    "bad_for_each": "for_each",
}
