"""Checks the replies of a server. A reply that no chargehand server sends raises `ServerRefused`."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from chargehand.errors import (
    ChargehandError,
    Fault,
    KeyConflict,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    ServerRefused,
    UnknownQuestion,
    UnknownRun,
)

T = TypeVar("T")
#: errors of decoding JSON from a server
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_IS_IT = "is it a chargehand server?"
#: most characters of a redirect address in a message
_SHOWN = 200


class AnyObject(Struct):
    """A JSON object with any fields."""


class StartedRun(Struct):
    """The reply to a request that starts a run."""

    #: restricted, because the id becomes a part of URLs and is printed on terminals
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@~/-]{0,199}$")]


class SentRuns(Struct):
    """The reply to `GET runs`."""

    runs: list[dict[str, Any]]


class SentQuestion(Struct):
    """The fields of a question that the client and `run --server` use."""

    id: str
    text: str
    kind: str
    telling: str
    choices: list[str]
    default: str | None
    evidence: Any
    answered: Any
    is_closed: bool


class SentQuestions(Struct):
    """The reply to `GET questions`."""

    questions: list[SentQuestion]


class _RunState(Struct):
    state: str


class SentSnapshot(Struct):
    """The fields of a snapshot that `run --server` uses."""

    seq: int
    run: _RunState
    questions: list[SentQuestion]


class SentResult(Struct):
    """The fields of a result from which the client builds a `RemoteResult`."""

    status: str
    answer: str | None
    answer_json: Any
    composed_by: str | None


class SentPlan(Struct):
    """The fields of a plan from which the client builds a `RemotePlan`."""

    plan: dict[str, Any] | None
    version: int
    etag: str


class _Error(Struct):
    kind: str
    message: str
    hint: str = ""


class _ErrorReply(Struct):
    error: _Error


class _Taken(Struct):
    by: str
    text: str


class _Fault(Struct):
    kind: str
    task: str
    message: str


class _Faults(Struct):
    faults: list[_Fault]


class _Version(Struct):
    version: int


class _Changed(Struct):
    current: _Version


class _Conflict(Struct):
    run: str
    differs: str


def read_reply(url: str, status: int, body: bytes, shape: type[T]) -> T:
    """Decode a successful reply as `shape`. Raises `ServerRefused` if that is not possible."""
    try:
        return msgspec.json.decode(body, type=shape)
    except UNREADABLE as error:
        raise foreign(url, status, fact_of(body, error)) from None


def read_object(url: str, status: int, body: bytes, shape: type[Struct]) -> dict[str, Any]:
    """Decode a successful reply as a JSON object, and check the fields of `shape`."""
    read_reply(url, status, body, shape)
    return read_reply(url, status, body, dict[str, Any])


def refuse_redirect(url: str, status: int, location: str | None) -> None:
    """Raise `ServerRefused` for a redirect or another reply that is neither a success nor an error."""
    if 300 <= status < 400:
        to = f" to {location[:_SHOWN]!r}" if location else ""
        words = f"{url} answered {status}, a redirect{to}; give the address of the server itself"
        raise ServerRefused(words, status=status)
    if not 200 <= status < 300 and status < 400:
        raise foreign(url, status, "nothing that answers a request")


def error_in(url: str, status: int, body: bytes, about: str) -> ChargehandError:
    """The exception for an error reply; `about` is the run, question or key of the request."""
    try:
        told = msgspec.json.decode(body, type=_ErrorReply).error
    except UNREADABLE as error:
        return foreign(url, status, fact_of(body, error))
    try:
        if told.kind in _NAMED:
            return _NAMED[told.kind](body, about)
    except UNREADABLE:
        pass  # a server of another version sends other fields
    words = "; ".join(part for part in (told.message, told.hint) if part)
    return ServerRefused(
        words or f"{url} answered {status}, {told.kind}", status=status, kind=told.kind
    )


def foreign(url: str, status: int, fact: str) -> ServerRefused:
    """The error for a reply that no chargehand server sends."""
    return ServerRefused(f"{url} answered {status} with {fact}; {_IS_IT}", status=status)


def fact_of(body: bytes, error: Exception) -> str:
    """Why a body could not be decoded as JSON."""
    if not body:
        return "an empty body"
    if isinstance(error, RecursionError):
        return "JSON that is nested too deep"
    if isinstance(error, msgspec.ValidationError):
        return f"JSON of another form ({error})"
    return "something else than JSON"


def _question_taken(body: bytes, about: str) -> ChargehandError:
    taken = msgspec.json.decode(body, type=_Taken)
    return QuestionTaken(about, taken.by, taken.text)


def _plan_refused(body: bytes, _: str) -> ChargehandError:
    faults = msgspec.json.decode(body, type=_Faults).faults
    return PlanRefused([Fault(each.kind, each.task, each.message) for each in faults])


def _plan_changed(body: bytes, about: str) -> ChargehandError:
    return PlanChanged(about, msgspec.json.decode(body, type=_Changed).current.version)


def _key_conflict(body: bytes, about: str) -> ChargehandError:
    told = msgspec.json.decode(body, type=_Conflict)
    return KeyConflict(about, told.run, told.differs)


_NAMED: dict[str, Callable[[bytes, str], ChargehandError]] = {
    "QuestionTaken": _question_taken,
    "PlanRefused": _plan_refused,
    "PlanChanged": _plan_changed,
    "KeyConflict": _key_conflict,
    "UnknownRun": lambda _, about: UnknownRun(about),
    "UnknownQuestion": lambda _, about: UnknownQuestion(about),
}
