"""HTTP statuses of failed calls, by meaning."""

from http import HTTPStatus

TOO_SLOW = frozenset({408, 504, 524})
#: rate limited, too early, overloaded
BUSY = frozenset({425, 429, 529})
DENIED = frozenset({401, 403, 407})
#: no such model, or no longer
GONE = frozenset({404, 410})
#: the account has no credit left
UNPAID = HTTPStatus.PAYMENT_REQUIRED


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an exception, in any of the usual attributes; None: it has none."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and status >= 400:
                return status
    return None
