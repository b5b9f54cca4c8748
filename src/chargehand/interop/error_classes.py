"""Maps exceptions of other packages to error classes, which decide whether a task is retried."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec.structs import replace

from chargehand.errors import ModelExhausted, WorkerError
from chargehand.facts.http_statuses import status_of
from chargehand.facts.outcome import NO_USAGE, ErrorClass, Failed, Usage, classify, failed_by
from chargehand.models.provider_errors import lasting_kind, retry_after_in, without_keys

#: length of the chain of causes that is examined
DEEPEST = 10


def failure_of(error: Exception, usage: Usage = NO_USAGE, kind: ErrorClass | None = None) -> Failed:
    """The failure for an exception of another package, without API keys that its text may contain.

    It is final if the account of a model is exhausted, as with chargehand's own models.
    """
    failed = failed_by(error, usage)
    return replace(
        failed,
        kind=kind or class_of(error),
        message=without_keys(failed.message),
        stack=without_keys(failed.stack),
        retry_after=failed.retry_after or _wait_in(error),
        is_final=failed.is_final or (kind is None and _is_exhausted(error)),
    )


def told_by(error: Exception) -> WorkerError:
    """The failure as a `WorkerError`, which contains its error class and its wait."""
    failed = failure_of(error)
    told = WorkerError(failed.message, kind=failed.kind, retry_after=failed.retry_after)
    told.is_final = failed.is_final
    return told


def class_of(error: BaseException) -> ErrorClass:
    """The error class, from the exception or one of its causes."""
    for each in _causes(error):
        if _says_exhausted(each):
            return ErrorClass.RESOURCE
        kind = classify(each)
        if kind is not ErrorClass.LOGIC or status_of(each) is not None:
            return kind
    return ErrorClass.LOGIC


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and the chain of its causes; of an exception group, only the first member."""
    each: BaseException | None = error
    for _ in range(DEEPEST):
        if each is None:
            return
        yield each
        each = each.exceptions[0] if isinstance(each, BaseExceptionGroup) else each.__cause__


def _is_exhausted(error: BaseException) -> bool:
    """Whether a retry cannot help, because the account is exhausted; in a group, the accounts of all models."""
    for each in _causes(error):
        if isinstance(each, BaseExceptionGroup):
            return all(map(_is_exhausted, each.exceptions))
        if _says_exhausted(each):
            return True
    return False


def _says_exhausted(error: BaseException) -> bool:
    if (status := status_of(error)) is None:
        return False
    return lasting_kind(status, str(error), _wait_in(error)) is ModelExhausted


def _wait_in(error: BaseException) -> timedelta | None:
    """The Retry-After header of the response in an exception or in one of its causes."""
    for each in _causes(error):
        for holder in (getattr(each, "response", None), each):
            items = getattr(getattr(holder, "headers", None), "items", None)
            if not callable(items):
                continue
            wait = retry_after_in({str(name).lower(): str(value) for name, value in items()})
            if wait is not None:
                return wait
    return None
