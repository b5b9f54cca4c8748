"""Outcomes of attempts. A failure is a value like any other outcome."""

import errno
import re
import traceback
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chargehand.errors import (
    JournalBusy,
    JournalFull,
    ModelError,
    NotAwaited,
    NotJSON,
    ToolError,
    UnknownQuestion,
    UsageError,
    WorkerError,
    is_thread_shortage,
)
from chargehand.facts.argument_checks import (
    Converted,
    SpanOrNone,
    duration,
    shown,
    usually,
)
from chargehand.facts.http_statuses import BUSY, DENIED, TOO_SLOW, UNPAID, status_of
from chargehand.facts.json_schema import faults_against
from chargehand.facts.value import Value, plain

#: characters of an exception's message; the rest is cut off
MOST_WORDS = 20_000
#: exceptions in a chain of causes whose stack traces are kept
MOST_CAUSES = 50


class ErrorClass(StrEnum):
    """Why something failed. The class decides whether the task is retried."""

    NETWORK = "network"  #: the other side could not be reached; retried after a wait
    TIMEOUT = "timeout"  #: it took too long; retried after a wait
    RESOURCE = "resource"  #: rate limit, quota, memory, disk; retried after a wait
    LOGIC = "logic"  #: bad input, bad output, refusal, a bug; retried, with a rewritten task if possible
    DENIED = "denied"  #: not allowed: 401, 403, policy, no sandbox; never retried
    CANCELLED = "cancelled"  #: a person or the caller stopped it; never retried

    @property
    def backs_off(self) -> bool:
        """Whether waiting may help."""
        return self in (ErrorClass.NETWORK, ErrorClass.TIMEOUT, ErrorClass.RESOURCE)

    @property
    def is_final(self) -> bool:
        """Whether a retry is pointless or forbidden."""
        return self in (ErrorClass.DENIED, ErrorClass.CANCELLED)


class Usage(
    Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False
):
    """What was spent: calls, tokens and money."""

    calls: int = 0
    #: all tokens that were sent, cached or not
    tokens_in: int = 0
    tokens_out: int = 0
    #: sent tokens that the provider had in its prompt cache
    cache_read: int = 0
    cache_written: int = 0
    money: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cache_read=self.cache_read + other.cache_read,
            cache_written=self.cache_written + other.cache_written,
            money=self.money + other.money,
        )

    @property
    def cost(self) -> float | None:
        """The money; None if calls were made and no price list knows what any of them cost."""
        return None if self.calls and not self.money else self.money


NO_USAGE = Usage()
#: the reservation for a call if nothing is limited
ONE_CALL = Usage(calls=1)
#: the start of a number: digits, perhaps after a sign, a currency symbol or a bracket
_NUMBER = re.compile(r"[^\w]*\d")
#: an amount as people type it: 20000, 20,000, 20k, $1.50
_AMOUNT = re.compile(r"\$?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)([kKmM]?)")
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
NO_AMOUNT = "is not an amount; type one such as 20000, 20,000 or 20k"
#: the largest number that every JSON reader reads exactly
MOST_TOLD = 2**53


def why_untrue(usage: Usage) -> str | None:
    """Why this usage is impossible; None if it is possible. Events from before this check may hold impossible usage."""
    for name in usage.__struct_fields__:
        amount = getattr(usage, name)
        if not 0 <= amount <= MOST_TOLD:  # NaN is not, either
            return f"{name}={shown(amount)} is not from 0 to 2**53"
    return None


class QuestionId(NamedTuple):
    """The parts of a question's id, which is written `run:task:name`. Only a task's id may contain colons."""

    run: str
    task: str
    name: str

    @classmethod
    def read(cls, written: str) -> Self:
        """The parts of this id; those that are missing are empty."""
        run, _, rest = written.partition(":")
        task, _, name = rest.rpartition(":")
        return cls(run, task, name)

    @classmethod
    def checked(cls, written: str) -> Self:
        """The parts of this id. Raises `UnknownQuestion` if one is missing."""
        parts = cls.read(written)
        if not all(parts):
            raise UnknownQuestion(written)
        return parts

    def __str__(self) -> str:
        return ":".join(self)


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """Something that only a person can answer. The rest of the run continues meanwhile."""

    id: str
    text: str
    #: what kind of question: plain, approval, in_doubt, failure, budget, plan
    about: str = "plain"
    #: empty: any text is an answer
    choices: tuple[str, ...] = ()
    #: the answer that is followed by a colon and JSON
    telling: str = ""
    #: used if no answer comes within `patience`; None: the task fails then
    default: str | None = None
    #: None: waits as long as the run lasts
    patience: SpanOrNone = usually(None)
    evidence: Value = Value()
    #: JSON schema of what may follow `telling`; empty: any JSON
    shape: dict[str, Any] = {}
    #: untrusted sources that the asking worker has read; they may have shaped the question
    taint: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.patience is not None:
            force_setattr(self, "patience", duration(self.patience, "Question: patience"))

    @property
    def offers(self) -> str:
        """The possible answers, as text."""
        told = [f"'{self.telling}: …'"] if self.telling else []
        return ", ".join([*map(repr, self.choices), *told])

    def accepts(self, text: str) -> bool:
        """Whether this text answers the question."""
        return self.objection(text) is None

    def as_spelled(self, text: str) -> str:
        """The choice that this text means, as the question spells it; any other text is returned unchanged."""
        head, colon, rest = text.partition(":")
        if self.telling and colon and head.strip().casefold() == self.telling.casefold():
            return f"{self.telling}:{rest}"
        meant = [each for each in self.choices if each.casefold() == text.strip().casefold()]
        return meant[0] if len(meant) == 1 else text

    @property
    def is_numbered(self) -> bool:
        """Whether a choice may be given by its position in the list: not if any choice begins with a number.

        With the choices 10, 5 and 1, `1` could mean the first or the last.
        """
        return not any(_NUMBER.match(each) for each in self.choices)

    def choice_at(self, number: int) -> str | None:
        """The choice at this position, counted from 1; None if there is none, or if choices are not numbered."""
        return (
            self.choices[number - 1]
            if self.is_numbered and 1 <= number <= len(self.choices)
            else None
        )

    def objection(self, text: str) -> str | None:
        """Why this text does not answer the question, in words that follow the text; None if it does."""
        if not self.choices or text in self.choices:
            return None
        if not self.telling or not text.startswith(f"{self.telling}:"):
            return "is none of the choices"
        try:
            told = self.told(text)
        except (ValueError, RecursionError) as error:  # invalid JSON, or nested too deeply
            if self.about == "budget":
                return NO_AMOUNT
            return f"has no JSON after {self.telling!r} ({error})"
        if self.about == "budget":
            return self._why_no_budget(told)
        if self.about == "approval" and not isinstance(told, dict):
            return "has no arguments by their names"
        if not text.partition(":")[2].strip():
            return f"has no JSON after {self.telling!r}; leave the colon out if there is none"
        return self._misfit(told) if self.shape else None

    def _misfit(self, told: object) -> str | None:
        try:
            faults = faults_against(self.shape, told)
        except UsageError:
            return None  # the schema of an external tool may be invalid; the tool then checks
        return f"does not fit the tool ({'; '.join(faults)})" if faults else None

    def _why_no_budget(self, told: object) -> str | None:
        """Why the budget cannot be raised to this amount; only money need not be a whole number."""
        if isinstance(told, bool) or not isinstance(told, (int, float)):
            return NO_AMOUNT
        if not 0 < told <= MOST_TOLD:
            return NO_AMOUNT
        known = self.evidence.read()
        if known["limit"] != "money" and told != int(told):
            return "is not a whole number"
        most = max(known["cap"], known["spent"])
        return None if told > most else f"does not raise the budget; give more than {most:.12g}"

    def told(self, text: str) -> object:
        """The JSON that an answer such as `it ran: …` carries; None if it carries none."""
        json = text.removeprefix(self.telling).removeprefix(":").strip()
        if self.about == "budget" and (amount := _AMOUNT.fullmatch(json)):
            return float(amount[1].replace(",", "")) * _TIMES[amount[2].lower()]
        return msgspec.json.decode(json) if json else None


AnyJSON: TypeAlias = Converted[Any, Value]


class Done(
    Struct,
    frozen=True,
    tag="done",
    tag_field="is",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    """The task has its result. A worker gives any JSON: `Done("x", usage=Usage(calls=1))`."""

    #: any JSON; it is stored as a `Value` when the attempt ends
    value: AnyJSON = usually(Value())
    #: what was spent: no amount below 0 or above 2**53, or the attempt fails
    usage: Usage = NO_USAGE
    #: what is missing from a partial result
    gaps: tuple[str, ...] = ()


class Failed(
    Struct,
    frozen=True,
    kw_only=True,
    tag="failed",
    tag_field="is",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    """The attempt failed, and why."""

    kind: ErrorClass
    message: str
    #: name of the exception's type
    error: str = ""
    stack: str = ""
    retry_after: SpanOrNone = usually(None)
    usage: Usage = NO_USAGE
    #: the same worker would fail again, so it does not retry
    is_final: bool = False
    #: untrusted sources that its message may derive from
    taint: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.retry_after is not None:
            wait = duration(self.retry_after, "Failed: retry_after", may_be_zero=True)
            force_setattr(self, "retry_after", wait)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Cancelled(
    Struct,
    frozen=True,
    kw_only=True,
    tag="cancelled",
    tag_field="is",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    """The attempt stopped because it was cancelled."""

    reason: str = ""
    usage: Usage = NO_USAGE
    #: untrusted sources that the reason may derive from
    taint: tuple[str, ...] = ()


class NeedsInput(
    Struct,
    frozen=True,
    kw_only=True,
    tag="needs_input",
    tag_field="is",
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """The attempt cannot continue before a person has answered."""

    question: Question
    usage: Usage = NO_USAGE


class Parked(BaseException):
    """Ends an attempt that would have to wait long for a model provider.

    It is not an `Exception`, so that a worker's own `except Exception` does not swallow it. The task gets
    another attempt when the wait is over, which continues from the recorded steps; no try is counted.
    """

    def __init__(self, wait: timedelta, why: str, *, is_long: bool = False) -> None:
        self.wait = wait
        self.why = why
        #: the wait has reached its limit: the run is parked and can be resumed later
        self.is_long = is_long
        super().__init__(why)


Outcome: TypeAlias = Done | Failed | Cancelled | NeedsInput
Said = TypeVar("Said")

NOTHING_DONE = Done()


def tainted(said: Said, sources: tuple[str, ...]) -> Said:
    """The same outcome with these untrusted sources added to the taint of its result, message or question.

    All outcomes of attempts and steps pass through here, so that no text loses its taint because it is part of
    a failure and not of a result.
    """
    if not sources:
        return said
    match said:
        case Done(value=value):
            return replace(said, value=value.derived_from(sources))
        case Failed(taint=taint) | Cancelled(taint=taint):
            return replace(said, taint=tuple(dict.fromkeys((*taint, *sources))))
        case NeedsInput(question=question):
            taint = tuple(dict.fromkeys((*question.taint, *sources)))
            return replace(said, question=replace(question, taint=taint))
        case _:
            return said


#: too many open files, threads or processes, or no memory: a temporary shortage
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
#: the disk is full, or the user's quota is used up
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})

# Exceptions of other packages are recognised by their names or those of their base classes, so that
# these packages need not be imported.
#: of urllib3, requests, httpx, openai, anthropic, LangGraph, Pydantic AI
_SLOW = {
    *("APITimeoutError", "ModelRequestTimeout", "ModelTimeoutError", "NodeTimeoutError"),
    *("Timeout", "TimeoutError", "TimeoutException", "ToolTimeoutError"),
}
#: of http.client, aiohttp, urllib3, requests, httpx, openai, anthropic, Pydantic AI
_UNREACHED = {
    *("APIConnectionError", "ChunkedEncodingError", "ClientConnectionError", "ClientPayloadError"),
    *("ConnectionError", "IncompleteRead", "MaxRetryError", "ModelConnectionError"),
    *("NewConnectionError", "TransportError"),
}
#: of httpx: an invalid address, though it is a TransportError
_BAD_ADDRESS = {"UnsupportedProtocol"}
#: their `errno` is a number of the resolver or of OpenSSL. They include untrusted certificates, which may
#: be temporary (one server of several, a wrong clock); errors of model calls are classified alike.
_RESOLVER_OR_TLS = {"SSLError", "gaierror", "herror"}


def classify(error: BaseException) -> ErrorClass:
    """The error class of an exception: its own `kind`, else what its type or HTTP status means."""
    if isinstance(error, (WorkerError, ModelError, ToolError)):
        return ErrorClass(error.kind) if error.kind in list(ErrorClass) else ErrorClass.LOGIC
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, TimeoutError) or names & _SLOW:
        return ErrorClass.TIMEOUT
    if isinstance(error, PermissionError):
        return ErrorClass.DENIED
    if isinstance(error, (MemoryError, JournalFull, JournalBusy)) or is_thread_shortage(error):
        return ErrorClass.RESOURCE
    if (status := status_of(error)) is not None:
        return _class_of_status(status)
    if names & _RESOLVER_OR_TLS:
        return ErrorClass.NETWORK
    if isinstance(error, OSError) and error.errno in SHORTAGE | FULL_DISK:
        return ErrorClass.RESOURCE
    if isinstance(error, (ConnectionError, EOFError)) or names & _UNREACHED:
        return ErrorClass.LOGIC if names & _BAD_ADDRESS else ErrorClass.NETWORK
    if isinstance(error, OSError):
        reason = getattr(error, "reason", None)
        if isinstance(reason, Exception):  # urllib wraps the original exception
            return classify(reason)
        # FileNotFoundError and similar errors are permanent; errors of the operating system about
        # networks and resources may pass.
        return ErrorClass.LOGIC if type(error) is not OSError else ErrorClass.NETWORK
    return ErrorClass.LOGIC


def _class_of_status(status: int) -> ErrorClass:
    if status in BUSY or status == UNPAID:
        return ErrorClass.RESOURCE
    if status in DENIED:
        return ErrorClass.DENIED
    if status in TOO_SLOW:
        return ErrorClass.TIMEOUT
    return ErrorClass.NETWORK if status >= 500 else ErrorClass.LOGIC


def failed_by(error: BaseException, usage: Usage = NO_USAGE) -> Failed:
    """The failure for this exception, with its stack trace. Never raises, even if the message, attributes
    or class of the exception are broken."""
    try:
        return _failed_by(error, usage)
    except BaseException:  # noqa: BLE001 - even reading its type can raise, and be it SystemExit
        return broken(error, usage)


def broken(error: BaseException, usage: Usage = NO_USAGE) -> Failed:
    """The failure for an exception that cannot be read: no code of the exception is called here."""
    name = _name_of(type(error))
    return Failed(
        kind=ErrorClass.LOGIC,
        message=f"what its function returned or raised could not be read ({name})",
        error=name,
        usage=usage,
    )


def _name_of(kind: type) -> str:
    """The name of a type, without calling its metaclass."""
    return plain(type.__dict__["__name__"].__get__(kind))


def _failed_by(error: BaseException, usage: Usage) -> Failed:
    told: list[str] = [_words_of(error)]
    try:
        kind = classify(error)
        is_final = _is_final(error)
        if kind != getattr(error, "kind", kind) and isinstance(error, WorkerError | ToolError):
            told.append(f"(kind={error.kind!r} is none of {', '.join(ErrorClass)})")
    except Exception:  # noqa: BLE001 - its kind cannot be read
        kind, is_final = ErrorClass.LOGIC, False
    wait = None
    try:
        wait = wait_asked_by(error)
    except Exception as fault:  # noqa: BLE001 - its retry_after cannot be read, or is no duration
        told.append(f"(ignored: {_said_by(fault)})")
    return Failed(
        kind=kind,
        message=plain(" ".join(told)),
        error=plain(type(error).__name__),
        stack="" if isinstance(error, NotJSON) else plain(_stack_of(error)),
        retry_after=wait,
        usage=usage,
        is_final=is_final,
    )


def _is_final(error: BaseException) -> bool:
    """Whether another try is pointless although the error class alone would allow it."""
    if isinstance(error, ModelError | WorkerError | NotJSON | NotAwaited):
        return bool(error.is_final)
    return status_of(error) == UNPAID


def checked(outcome: "Outcome") -> "Outcome":
    """An outcome made by a worker, as a journal would return it; a failure if it cannot be stored."""
    try:
        return _readable(outcome)
    except Exception as error:  # noqa: BLE001 - anything that cannot be stored as JSON or read back
        words = f"the worker's {_name_of(type(outcome))} cannot be stored: {_said_by(error)}"
        return failed_by(NotJSON(words, is_final=isinstance(error, NotJSON) and error.is_final))


def checked_step(done: "Done") -> "Done":
    """Like `checked`, for the result of a step. Raises `NotJSON` if it cannot be stored."""
    if not isinstance(done, Done):
        raise NotJSON(f"a step brings Done(Value.of(…)), not {_name_of(type(done))}")
    try:
        known = _readable(done)
    except Exception as error:  # noqa: BLE001 - as above
        raise NotJSON(f"the step's Done cannot be stored: {_said_by(error)}") from None
    assert isinstance(known, Done)  # noqa: S101 - for the type checker: it is written as one
    return known


def _readable(outcome: "Outcome") -> "Outcome":
    """The outcome as a reader of the journal will see it. Raises an exception if it cannot be stored.

    The JSON of a value is copied into the event unchanged, so anything but one JSON value would corrupt the event.
    """
    if isinstance(outcome, Done):
        outcome = replace(outcome, value=_stored(outcome.value))
    known = _outcomes.decode(msgspec.json.encode(outcome))
    why = why_untrue(known.usage)
    if why is not None:
        raise NotJSON(f"its usage cannot be true: {why}")
    value, told = _value_in(known), _value_in(outcome)
    if value is not None:
        value.refuse_unreadable()
        if told is None or bytes(told.json).strip() != bytes(value.json):
            raise NotJSON("its value is not one JSON value")
    return known


def _stored(given: object) -> Value:
    """What a worker gave to `Done`, as a value."""
    if isinstance(given, Value):
        return given
    if isinstance(given, (Done, Failed, Cancelled, NeedsInput)):
        kind = type(given).__name__
        words = f"its result is a {kind}, which is an outcome itself; return the {kind} alone"
        raise NotJSON(words, is_final=True)
    return Value.of(given)


def _value_in(outcome: "Outcome") -> Value | None:
    match outcome:
        case Done(value=value):
            return value
        case NeedsInput(question=question):
            return question.evidence
        case _:
            return None


def _words_of(error: BaseException) -> str:
    words, name = _said_by(error), type(error).__name__
    # "3" says nothing about a SystemExit, nor "'id'" about a KeyError.
    is_bare = not isinstance(error, Exception) or isinstance(error, LookupError)
    return f"{name}: {words}" if words and is_bare else words or name


def _said_by(error: BaseException) -> str:
    try:
        words = str(error)
    except BaseException as fault:  # noqa: BLE001 - a __str__ that raises, if only SystemExit, or returns no text
        return f"{type(error).__name__}, whose message cannot be read ({type(fault).__name__})"
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"


def _stack_of(error: BaseException) -> str:
    try:
        if _causes_of(error) > MOST_CAUSES:  # formatting all of them would take seconds
            lines = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
            lines.insert(0, f"(a chain of more than {MOST_CAUSES} causes is left out)\n")
        else:
            lines = traceback.format_exception(error)
        return "".join(lines[-40:])[-8_000:]
    except Exception:  # noqa: BLE001 - notes and causes may be anything
        return ""


def _causes_of(error: BaseException) -> int:
    """The number of exceptions in the chain of causes, counted up to `MOST_CAUSES` + 1."""
    count = 0
    before = error.__cause__ or error.__context__
    while before is not None and count <= MOST_CAUSES:
        count += 1
        before = before.__cause__ or before.__context__
    return count


def wait_asked_by(error: BaseException) -> timedelta | None:
    """The `retry_after` of an exception; None if it has none. Raises `UsageError` for an invalid duration."""
    wait = getattr(error, "retry_after", None)  # in errors of other libraries, a number of seconds
    if isinstance(wait, bool) or not isinstance(wait, int | float | timedelta):
        return None
    return duration(wait, "retry_after", may_be_zero=True)


_outcomes: "msgspec.json.Decoder[Outcome]" = msgspec.json.Decoder(Outcome)
