"""From the exceptions of other packages to the class of failure that decides what is done about them."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from chargehand.errors import ModelError, ToolError, WorkerError
from chargehand.facts.outcome import NO_USAGE, ErrorClass, Failed, Usage, classify, failed_by
from chargehand.models.provider_errors import BUSY, DENIED, TOO_SLOW, retry_after_in, without_keys

#: causes of causes that are looked at
DEEPEST = 10
# Known by their names: nobody imports a package to find out that its exceptions were not raised.
_SLOW = {
    *("APITimeoutError", "ModelRequestTimeout", "ModelTimeoutError", "NodeTimeoutError"),
    *("Timeout", "TimeoutException", "ToolTimeoutError"),
}
_UNREACHED = {
    *("APIConnectionError", "ClientConnectionError", "ConnectionError"),
    *("ModelConnectionError", "TransportError"),
}


def failure_of(error: Exception, usage: Usage = NO_USAGE, kind: ErrorClass | None = None) -> Failed:
    """The failure that an exception of another package means, without the keys it may quote."""
    failed = failed_by(error, usage)
    return replace(
        failed,
        kind=kind or class_of(error),
        message=without_keys(failed.message),
        stack=without_keys(failed.stack),
        retry_after=failed.retry_after or _wait_in(error),
    )


def told_by(error: Exception) -> WorkerError:
    """The same failure as an exception that says itself how it is to be treated."""
    failed = failure_of(error)
    return WorkerError(failed.message, kind=failed.kind, retry_after=failed.retry_after)


def class_of(error: BaseException) -> ErrorClass:
    """Why it failed, as far as the exception or one of its causes tells."""
    for each in _causes(error):
        kind = _told(each)
        if kind is not None:
            return kind
    return ErrorClass.LOGIC


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and what it was raised for; of several at once, the first."""
    each: BaseException | None = error
    for _ in range(DEEPEST):
        if each is None:
            return
        yield each
        each = each.exceptions[0] if isinstance(each, BaseExceptionGroup) else each.__cause__


def _told(error: BaseException) -> ErrorClass | None:
    if isinstance(error, (WorkerError, ModelError, ToolError)):
        return ErrorClass(error.kind)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _SLOW:
        return ErrorClass.TIMEOUT
    status = status_of(error)
    if status is not None:
        return _by_status(status)
    if names & _UNREACHED:
        return ErrorClass.NETWORK
    kind = classify(error)
    return None if kind is ErrorClass.LOGIC else kind


def status_of(error: BaseException) -> int | None:
    """The HTTP status in it, wherever its package puts that."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and status >= 400:
                return status
    return None


def _by_status(status: int) -> ErrorClass:
    if status in BUSY:
        return ErrorClass.RESOURCE
    if status in DENIED:
        return ErrorClass.DENIED
    if status in TOO_SLOW:
        return ErrorClass.TIMEOUT
    return ErrorClass.NETWORK if status >= 500 else ErrorClass.LOGIC


def _wait_in(error: BaseException) -> timedelta | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    return None if headers is None else retry_after_in({k.lower(): v for k, v in headers.items()})
