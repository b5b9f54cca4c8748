"""What the status of an HTTP answer says about a call that failed."""

from http import HTTPStatus

TOO_SLOW = frozenset({408, 504, 524})
#: rate limited, too early, overloaded
BUSY = frozenset({425, 429, 529})
DENIED = frozenset({401, 403, 407})
#: the account has nothing left
UNPAID = HTTPStatus.PAYMENT_REQUIRED


def status_of(error: BaseException) -> int | None:
    """The HTTP status in an exception, wherever its package puts that; None: it has none."""
    for holder in (getattr(error, "response", None), error):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and status >= 400:
                return status
    return None
