"""From what a provider says went wrong to the error that says who must act, and how."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from chargehand import errors
from chargehand.facts.http_statuses import BUSY, DENIED, GONE, TOO_SLOW, UNPAID
from chargehand.facts.outcome import wait_asked_by
from chargehand.models.connection_settings import Access
from chargehand.tools.redaction import Redactor

#: however long a provider asks to be left alone: then it is asked again, and may say so again
LONGEST_WAIT = timedelta(hours=1)
#: a provider that asks for less says nothing of when to come back
SHORTEST_WAIT = timedelta(milliseconds=10)
LONGEST_WORDS = 400
LONGEST_ID = 100
SHORTEST_KEY = 8

#: What errors call themselves when they come inside a reply that began well, as statuses.
STATUS_OF_KIND = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
}
FILTER_CODES = {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}
_SHORTER = "make the request shorter"
_CHANGE = "change the request: sent again as it is, it would be refused again"


class _Permanent(Struct, frozen=True):
    """A refusal that stays, whatever status it is dressed in, and how it is known."""

    kind: type[errors.ModelError]
    way_out: str
    codes: frozenset[str]
    words: re.Pattern[str] | None = None


# Codes and words of OpenAI, Azure, Anthropic, OpenRouter, DeepSeek, vLLM, llama.cpp, Ollama, LiteLLM.
PERMANENT = (
    _Permanent(
        errors.ModelExhausted,
        "the account has nothing left: add credit, or use another model",
        frozenset(
            {
                "access_terminated",
                "billing_error",
                "billing_hard_limit_reached",
                "billing_not_active",
                "exceeded_current_quota_error",
                "insufficient_balance",
                "insufficient_credits",
                "insufficient_quota",
                "payment_required",
            }
        ),
        re.compile(
            r"exceeded your current quota|credit balance is too low|billing hard limit"
            r"|insufficient (?:quota|credits?|balance|funds)|account is not active",
            re.IGNORECASE,
        ),
    ),
    _Permanent(
        errors.ModelRefused,
        _SHORTER,
        frozenset(
            {
                "ContextWindowExceededError",
                "context_length_exceeded",
                "exceed_context_size_error",
                "request_too_large",
                "string_above_max_length",
            }
        ),
        re.compile(
            r"(?:maximum|exceeds?|exceeded)\b.{0,60}\bcontext (?:length|size|window)"
            r"|context (?:length|size|window)\b.{0,40}\bexceed"
            r"|prompt is too long|request (?:is )?too large",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    _Permanent(
        errors.ModelUnknown,
        "check the model's name",
        frozenset({"DeploymentNotFound", "model_not_found", "not_found_error"}),
        re.compile(
            r"\b(?:model|deployment)\b.{0,80}\b(?:does not exist|not found|unknown)"
            r"|\bunknown model\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    _Permanent(
        errors.ModelRefused,
        _CHANGE,
        frozenset({"BadRequestError", "invalid_prompt", "invalid_request_error"}),
    ),
)

_SECRET = re.compile(r"\b(?:sk|pk|key|rk)-[\w*.-]{6,}|(?i:bearer)\s+[\w*.~+/=-]{6,}")
# Both forms are bounded, and so is what they are looked for in: a page of nothing but "<" must not take long.
_TAG = re.compile(
    r"<(?:style|script)\b[^<]*+(?:<(?!/(?:style|script)>)[^<]*+)*+</(?:style|script)>|<[^<>]*+>",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


class Filtered(errors.ModelRefused):
    """The provider's filter stopped the request; adapters make it a reply that is a refusal."""


class Complaint(Struct, frozen=True, kw_only=True):
    """What a provider says of a call that failed."""

    status: int
    words: str = ""
    #: as the provider names the kind of error
    code: str = ""
    #: it came inside a reply that the provider called a success
    is_inside: bool = False
    request_id: str = ""
    retry_after: timedelta | None = None


def complaint_in(status: int, headers: Mapping[str, str], body: bytes) -> Complaint:
    """Read an answer that is not a reply, in any of the shapes that servers use."""
    words, code = words_in(body)
    return Complaint(
        status=status,
        words=words,
        code=code,
        request_id=request_id_in(headers),
        retry_after=retry_after_in(headers),
    )


def complaint_of(error: object, headers: Mapping[str, str]) -> Complaint:
    """The complaint that came as an `error` inside a reply, under a status of success."""
    words, code = _words_of(error)
    status = _number(error.get("code")) if isinstance(error, dict) else 0
    if not 400 <= status < 600:
        status = STATUS_OF_KIND.get(code, 500)
    return Complaint(
        status=status,
        is_inside=True,
        words=words,
        code=code,
        request_id=request_id_in(headers),
        retry_after=retry_after_in(headers),
    )


def failure_of(complaint: Complaint, access: Access) -> errors.ModelError:
    """The error that this complaint means, in words that never hold a key."""
    kind, way_out = _meaning(complaint, access)
    try:
        phrase = f" {HTTPStatus(complaint.status).phrase}"
    except ValueError:
        phrase = ""
    answered = "200 with an error" if complaint.is_inside else f"{complaint.status}{phrase}"
    words = shown(complaint.words or (complaint.code if complaint.is_inside else ""), access)
    said = f": {words.rstrip('.')}" if words else ""
    # Cut only here: half a key that was cut through would not be found.
    request = shown(complaint.request_id, access)[:LONGEST_ID]
    traced = f" (request {request})" if request else ""
    return kind(
        f"{access.shown_name} answered {answered}{said}{traced}; {way_out}",
        retry_after=complaint.retry_after,
        status=complaint.status,
    )


def _meaning(complaint: Complaint, access: Access) -> tuple[type[errors.ModelError], str]:
    status = complaint.status
    if complaint.code in FILTER_CODES:
        return Filtered, "say it otherwise"
    if (stays := _permanent(complaint)) is not None:
        return stays.kind, stays.way_out
    if status in BUSY:
        return errors.ModelBusy, f"{_when(complaint.retry_after)}, or work with fewer calls at once"
    if status in DENIED:
        kind = errors.ModelForbidden if status == HTTPStatus.FORBIDDEN else errors.ModelDenied
        return kind, f"check {access.key_source}, and what that key may use"
    if status in TOO_SLOW:
        return errors.ModelTooSlow, "it may help to try again, or to ask for less at once"
    if status >= 500:
        return (
            errors.ModelUnreachable,
            f"the trouble is on its side; {_when(complaint.retry_after)}",
        )
    if 300 <= status < 400:
        return errors.ModelRefused, f"it lies elsewhere; check the base URL {access.shown_url}"
    if status in GONE or status == 405:
        return errors.ModelUnknown if status in GONE else errors.ModelRefused, (
            f"check the model's name, and the base URL {access.shown_url} "
            "(most end in a version, such as /v1)"
        )
    return errors.ModelRefused, _SHORTER if status == 413 else _CHANGE


def _permanent(complaint: Complaint) -> _Permanent | None:
    """The refusal that this complaint is, if waiting could not help; None: its status decides."""
    status = complaint.status
    if status == UNPAID:
        return PERMANENT[0]
    # Of a key that is not accepted, only an empty account is told apart; of other refusals the status
    # says as much as the words, and where it is.
    could_pass = status in BUSY or status in TOO_SLOW or status >= 500
    for stays in PERMANENT if could_pass or status in (400, 413, 422) else PERMANENT[:1]:
        if complaint.code in stays.codes:
            return stays
        # Words alone are weaker: who speaks of a quota and says when to come back means a rate.
        is_rate = stays.kind is errors.ModelExhausted and complaint.retry_after is not None
        if stays.words is not None and not is_rate and stays.words.search(complaint.words):
            return stays
    return None


def lasting_kind(
    status: int, words: str, retry_after: timedelta | None
) -> type[errors.ModelError] | None:
    """The refusal that stays in words that another package hands on; None: its status decides."""
    stays = _permanent(Complaint(status=status, words=words, retry_after=retry_after))
    return None if stays is None else stays.kind


def _when(wait: timedelta | None) -> str:
    if wait is None or wait < SHORTEST_WAIT:
        return "try again later"
    return f"try again after {wait.total_seconds():g} s"


def garbled(access: Access, fact: str) -> errors.ModelGarbled:
    """The error for an answer that cannot be read."""
    return errors.ModelGarbled(
        f"the answer of {access.shown_name} {shown(fact, access)}; try again, and if it stays so "
        f"check that {access.shown_url} speaks the protocol it is used with"
    )


def shown(text: str, access: Access) -> str:
    """`text` in one line, bounded, and without this access's key, in any encoding, or anything that looks like one."""
    # Before anything is cut: half a key that was cut through would not be found. What is shorter
    # is a stand-in, such as "ollama", and would be found in every other word.
    given = (access.key, *access.headers.values(), *access.query.values())
    secrets = tuple(dict.fromkeys(secret for secret in given if len(secret) >= SHORTEST_KEY))
    text = _redactor_of(secrets).text(text) if secrets else text
    line = _CONTROL.sub(" ", without_keys(text)).strip()
    return line if len(line) <= LONGEST_WORDS else f"{line[: LONGEST_WORDS - 1]}…"


@lru_cache(maxsize=64)
def _redactor_of(secrets: tuple[str, ...]) -> Redactor:
    """Finds these secrets in all the forms in which secrets are kept out of what tools return."""
    return Redactor(
        {f"key {number}": secret for number, secret in enumerate(secrets)}, mark="[key]"
    )


def without_keys(text: str) -> str:
    """`text` without anything that looks like a key: providers like to repeat a wrong one."""
    return _SECRET.sub("[key]", text)


# Reading


def words_in(body: bytes) -> tuple[str, str]:
    """The message and the code in an error's body: JSON of some shape, a page, or plain text."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = body[:20_000].decode("utf-8", "replace")
        return _TAG.sub(" ", text).strip(), ""
    if isinstance(content, list) and len(content) == 1:
        content = content[0]  # Google wraps its errors so
    if not isinstance(content, dict):
        return str(content)[:20_000], ""
    for key in ("error", "detail", "message"):
        if content.get(key):
            return _words_of(content[key])
    return msgspec.json.encode(content).decode()[:20_000] if content else "", ""


def _words_of(error: object) -> tuple[str, str]:
    if not isinstance(error, dict):
        return (error[:20_000] if isinstance(error, str) else _as_text(error)), ""
    # The code is the more exact of the two, where it is a word.
    named = [error.get("code"), error.get("type")]
    code = next((name for name in named if isinstance(name, str) and name), "")
    message = error.get("message") or error.get("detail") or ""
    return (message[:20_000] if isinstance(message, str) else _as_text(message)), code


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:20_000]


def _number(value: object) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        return int(value)
    return value if isinstance(value, int) else 0


def request_id_in(headers: Mapping[str, str]) -> str:
    """What to tell the provider's support."""
    for name in ("x-request-id", "request-id", "apim-request-id", "cf-ray"):
        if found := headers.get(name):
            return found
    return ""


def retry_after_in(headers: Mapping[str, str]) -> timedelta | None:
    """How long the provider asks to be left alone; None if it does not say, or not so that one
    could understand it."""
    if (wait := _seconds(headers.get("retry-after-ms", ""))) is not None:
        return _bounded(wait / 1000)
    asked = headers.get("retry-after", "")
    if (wait := _seconds(asked)) is not None:
        return _bounded(wait)
    if (until := _instant(asked)) is None:
        return None
    # By the provider's own clock, if it shows it: ours may be wrong.
    now = _instant(headers.get("date", "")) or datetime.now(UTC)
    return _bounded((until - now).total_seconds())


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _instant(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def seconds_asked_by(error: errors.ModelError) -> float | None:
    """How long the provider asks to wait, within bounds; what is no length of time says nothing."""
    try:
        wait = wait_asked_by(error)
    except errors.UsageError:
        return None
    return None if wait is None else min(wait, LONGEST_WAIT).total_seconds()


def _bounded(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_WAIT.total_seconds()))
