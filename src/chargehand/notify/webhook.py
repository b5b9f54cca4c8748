"""Sends notices over HTTP, signed, to one configured URL."""

import asyncio
import hashlib
import hmac
import random
import re
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urlsplit

import msgspec

from chargehand.errors import NoticeNotSent, UsageError
from chargehand.facts.argument_checks import Duration, count, duration, keywords_checked
from chargehand.notify.base import Notice

TIME = timedelta(seconds=10)
BACKOFF = timedelta(seconds=1)
#: seconds; the longest wait before a retry. If Retry-After is longer, the notice is not retried
LONGEST_WAIT = 15.0
SIGNATURE = "X-Chargehand-Signature"
#: how long a signature is valid
FRESH = timedelta(minutes=5)
_HERE = {"localhost", "127.0.0.1", "::1"}
_SIGNED = re.compile(r"t=(?P<at>\d{1,12}),v1=(?P<mac>[0-9a-f]{64})")


class Webhook:
    """Posts each notice as JSON to one URL. Redirects are not followed.

    With a `secret`, the header `X-Chargehand-Signature` contains the time and the HMAC-SHA256 of time
    and body; the receiver checks it with `is_genuine`. The header `Idempotency-Key` is the notice's id.
    Temporary failures are retried up to `retries` times, with backoff.
    """

    @keywords_checked
    def __init__(
        self,
        url: str,
        *,
        secret: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: Duration = TIME,
        retries: int = 3,
        backoff: Duration = BACKOFF,
        allow_http: bool = False,
    ) -> None:
        self._host = _host_of(url, allow_http=allow_http)
        self._url = url
        self._secret = secret.encode()
        self._headers = dict(headers or {})
        for name, value in self._headers.items():
            if "\n" in name + value or "\r" in name + value:
                raise UsageError(f"the webhook's header {name!r} holds a line break; take it out")
        self._timeout = duration(timeout, "Webhook: timeout")
        self._retries = count(retries, "Webhook: retries", most=100)
        self._backoff = duration(backoff, "Webhook: backoff", may_be_zero=True)

    def __repr__(self) -> str:
        return f"webhook {self._host}"  # the rest of such a URL is often a secret

    async def notify(self, notice: Notice) -> None:
        body = msgspec.json.encode(notice)
        for number in range(self._retries + 1):
            failure, wait = await self._post(notice, body)
            if not failure:
                return
            if wait is None or number == self._retries:
                break
            growing = self._backoff.total_seconds() * 2**number * random.uniform(0.5, 1)  # noqa: S311 - no secret
            await asyncio.sleep(min(max(wait, growing), LONGEST_WAIT))
        raise NoticeNotSent(f"{self!r} {failure}")

    async def _post(self, notice: Notice, body: bytes) -> tuple[str, float | None]:
        """Post once. Returns the error, empty on success, and the minimum wait before a retry, None if it is final."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout.total_seconds())
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
                ) as session,
                session.post(
                    self._url,
                    data=body,
                    headers=self._headers_for(notice, body),
                    allow_redirects=False,
                ) as reply,
            ):
                return _judged(reply.status, reply.headers.get("Retry-After", ""))
        except TimeoutError:
            return f"did not answer within {self._timeout.total_seconds():g} s", 0.0
        except (aiohttp.ClientError, OSError) as error:
            return f"cannot be reached: {type(error).__name__}", 0.0

    def _headers_for(self, notice: Notice, body: bytes) -> dict[str, str]:
        headers = {
            **self._headers,
            "Content-Type": "application/json",
            "User-Agent": "chargehand",
            "Idempotency-Key": notice.id,
        }
        if self._secret:
            at = int(time.time())
            headers[SIGNATURE] = f"t={at},v1={_mac(body, self._secret, at)}"
        return headers


def is_genuine(body: bytes, signature: str, secret: str, *, within: Duration = FRESH) -> bool:
    """Whether a `Webhook` with this secret has sent this body within the last `within`."""
    found = _SIGNED.fullmatch(signature)
    if found is None or not secret:
        return False
    at = int(found["at"])
    is_fresh = abs(time.time() - at) <= duration(within, "within", may_be_zero=True).total_seconds()
    return hmac.compare_digest(_mac(body, secret.encode(), at), found["mac"]) and is_fresh


def _mac(body: bytes, secret: bytes, at: int) -> str:
    return hmac.new(secret, b"%d." % at + body, hashlib.sha256).hexdigest()


def _judged(status: int, retry_after: str) -> tuple[str, float | None]:
    if 200 <= status < 300:
        return "", None
    if 300 <= status < 400:
        return f"answered {status}, and redirects are not followed; configure the new URL", None
    may_help = status in (408, 425, 429) or status >= 500
    wait = float(retry_after) if retry_after.isdecimal() else 0.0
    return f"answered {status}", wait if may_help and wait <= LONGEST_WAIT else None


def _host_of(url: str, *, allow_http: bool) -> str:
    """The host of the URL. Raises `UsageError` for a URL that may not be used."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"the webhook's URL cannot be read: {error}") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", url):
        raise UsageError("a webhook needs a URL such as https://example.org/hook")
    if parts.username is not None:
        raise UsageError(
            f"the webhook's URL for {host} holds a user; put it into a header: headers={{…}}"
        )
    if parts.scheme == "http" and host not in _HERE and not allow_http:
        raise UsageError(
            f"the webhook for {host} would send questions unencrypted; use https, "
            "or Webhook(…, allow_http=True) in a network that you trust"
        )
    return host
