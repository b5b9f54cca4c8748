"""Checks each request before it reaches the API: host, origin, credential, size, time.

All routes need a token unless they are listed in `OPEN`, so a new route is protected by default.
"""

import asyncio
import re
from collections.abc import Iterable
from functools import partial
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chargehand.server.http.access_tokens import SESSION, AccessTokens, Grant, GrantWatch
from chargehand.server.http.access_tokens import Scope as AccessScope
from chargehand.server.http.error_bodies import JSON_TYPE, Refusal, error_body
from chargehand.server.listening_socket import refuse_body

API = "/api/v1"
LOGIN, LOGOUT, HEALTH = f"{API}/login", f"{API}/logout", f"{API}/health"
#: routes that need no token
OPEN = frozenset({("POST", LOGIN), ("GET", HEALTH), ("HEAD", HEALTH)})
#: POST routes that change nothing
HARMLESS = frozenset({LOGIN, LOGOUT, f"{API}/plan/check"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: most bytes of a body, and of a body without a credential
MOST_BODY, MOST_LOGIN = 4 * 2**20, 4 * 2**10
#: seconds within which a body must be received
BODY_TIME = 10.0
#: deepest nesting of a JSON body, and most values in it
MOST_DEPTH, MOST_VALUES = 100, 200_000
#: security headers of each response
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
# Possessive, and also matches an unterminated string: linear time for any body.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
#: each value may be a string, and its key is another string
_MOST_STRINGS = 2 * MOST_VALUES + 1
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class GuardRules(Struct, frozen=True, kw_only=True):
    """How strictly requests are checked."""

    #: allowed host names, in lower case and without port
    hosts: frozenset[str]
    #: whether any IP address is allowed as host: DNS rebinding needs a name
    any_address: bool = False
    #: the path under which a reverse proxy serves it; empty: /
    base: str = ""
    #: whether browsers use HTTPS, directly or through a proxy
    is_secure: bool = False
    is_read_only: bool = False
    #: name of the session cookie, unique per server, because cookies do not distinguish ports
    cookie: str = "chargehand"
    body_time: float = BODY_TIME

    def knows(self, host: str) -> bool:
        """Whether a request with this Host header is meant for this server."""
        name = _name_in(host)
        if name in self.hosts:
            return True
        try:
            return self.any_address and bool(ip_address(name))
        except ValueError:
            return False

    def session_cookie(self, value: str, age: int = SESSION) -> str:
        """The Set-Cookie header that starts a session; with an age of 0, it ends the session."""
        # Browsers accept `__Host-` only with Secure, without Domain, and with the path /.
        path = "/" if self.is_secure else f"{self.base}/"
        secure = "; Secure" if self.is_secure else ""
        return (
            f"{self.cookie_name}={value}; HttpOnly; SameSite=Strict; Path={path}; "
            f"Max-Age={age}{secure}"
        )

    @property
    def cookie_name(self) -> str:
        return f"__Host-{self.cookie}" if self.is_secure else self.cookie


class RequestGuard:
    """Wraps an application, and lets only allowed requests through. Sets `scope["grant"]` to the grant of a request.

    `scope["is_granted"]()` tells long requests whether the grant is still valid.
    """

    def __init__(self, app: ASGIApp, tokens: AccessTokens, rules: GuardRules) -> None:
        self._app = app
        self._tokens = tokens
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path = _path_below(scope["path"], self._rules.base)
        is_api = path == "/api" or path.startswith("/api/")
        send = self._with_headers(send, is_api=is_api)
        headers = Headers(scope=scope)
        try:
            _refuse_two_lengths(headers)
            self._check_source(scope["method"], headers, is_api=is_api)
            grant = self._grant_for(scope["method"], path, headers, is_api=is_api)
            scope["grant"] = grant
            if grant is not None:
                find = partial(self._credential, headers)
                scope["is_granted"] = GrantWatch(self._tokens, grant, find)
            body = await self._body(scope, headers, receive)
            if scope["path"] == self._rules.base != "" and scope["method"] in ("GET", "HEAD"):
                await send(_redirect(f"{self._rules.base}/", scope["query_string"]))
                await send({"type": "http.response.body", "body": b""})
                return
        except Refusal as error:
            words = error_body(error.kind, str(error), error.hint)
            await refuse_body(receive, send, words, _error_headers(error), error.status)
            return
        scope["root_path"] = self._rules.base  # the prefix of all routes
        await self._app(scope, _replayed(body, receive), send)

    # source

    def _check_source(self, method: str, headers: Headers, *, is_api: bool) -> None:
        host, rules = headers.get("host", ""), self._rules
        if not rules.knows(host):
            raise Refusal(
                *(403, "HostRefused", f"this server does not answer to the host {host[:100]!r}"),
                "start it with --allow-host NAME",
            )
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        if is_api and site in ("cross-site", "same-site"):
            raise Refusal(403, "OriginRefused", "pages of other sites may not use this server")
        if origin and not _is_same_origin(origin, host):
            raise Refusal(
                *(403, "OriginRefused", f"the origin {origin[:100]!r} is not this server"),
                "behind a proxy, have it pass the Host header on",
            )
        if method not in SAFE and is_api:
            if headers.get("x-chargehand") != "1":
                raise Refusal(
                    *(403, "HeaderMissing", f"{method} needs the header X-Chargehand: 1"),
                    "browsers let no other site send it",
                )
            is_browser_known = site == "same-origin" or bool(origin)
            if not is_browser_known and "authorization" not in headers and "cookie" in headers:
                raise Refusal(
                    *(403, "OriginRefused", "a cookie alone does not tell where this comes from"),
                    "scripts send Authorization: Bearer TOKEN",
                )

    # credential

    def _grant_for(self, method: str, path: str, headers: Headers, *, is_api: bool) -> Grant | None:
        if (method, path) in OPEN or (not is_api and method in ("GET", "HEAD")):
            return None
        grant = self._credential(headers)
        if grant is None:
            raise Refusal(
                *(401, "NotLoggedIn", "this needs the token that chargehand serve has printed"),
                "send Authorization: Bearer TOKEN, or log in at the page",
            )
        if method in SAFE or path in HARMLESS:
            return grant
        if self._rules.is_read_only:
            raise Refusal(403, "ReadOnly", "this server was started with --read-only")
        if not grant.allows(AccessScope.OPERATE):
            raise Refusal(403, "ScopeMissing", f"the token {grant.name!r} may only read")
        return grant

    def _credential(self, headers: Headers) -> Grant | None:
        given = headers.get("authorization")
        if given is not None:
            kind, _, token = given.partition(" ")
            return self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        cookie = cookie_in(headers, self._rules.cookie_name)
        return self._tokens.find_session(cookie) if cookie else None

    # body

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if not has_body:
            return b""
        if scope["method"] in SAFE:
            raise Refusal(400, "BodyRefused", f"{scope['method']} takes no body")
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != JSON_TYPE:
            raise Refusal(415, "NotJson", "send JSON, with Content-Type: application/json")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "Compressed", "compressed bodies are not read; send it as it is")
        most = MOST_BODY if scope["grant"] is not None else MOST_LOGIN
        if _length_in(headers) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._rules.body_time):
                body = await _read(receive, most)
        except TimeoutError:
            words = f"the body was not there within {self._rules.body_time:g} s"
            raise Refusal(408, "TooSlow", words) from None
        refuse_deep(body)
        return body

    def _with_headers(self, send: Send, *, is_api: bool) -> Send:
        added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if is_api:
            added.append((b"cache-control", b"no-store"))
        if self._rules.is_secure:
            added.append((b"strict-transport-security", b"max-age=31536000"))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message.get("headers", ())}
                fresh = [each for each in added if each[0] not in known]
                message = {**message, "headers": [*message.get("headers", ()), *fresh]}
            await send(message)

        return sending


def cookie_in(headers: Headers, name: str) -> str:
    """The value of a cookie; empty if there is none."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def refuse_deep(body: bytes) -> None:
    """Refuse JSON that is nested too deeply or has too many values, before it is parsed.

    This runs on the event loop, so it must be linear: about 0.02 s per MB for the worst body.
    """
    bare, strings = _STRING.subn(b"0", body, count=_MOST_STRINGS + 1)
    values = bare.count(b",") + bare.count(b"[") + bare.count(b"{")
    if values > MOST_VALUES or strings > _MOST_STRINGS:
        raise Refusal(413, "TooManyValues", f"a body holds {MOST_VALUES:,} values at most")
    depth = 0
    for byte in bare.translate(None, _ALL_BUT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > MOST_DEPTH:
            raise Refusal(413, "TooDeep", f"a body is nested {MOST_DEPTH} levels deep at most")
        if depth < 0:
            return  # not JSON; the parser will report it


def hosts_for(host: str, allowed: Iterable[str]) -> tuple[frozenset[str], bool]:
    """The allowed host names of a server bound to `host`, and whether any IP address is allowed."""
    names = {"localhost", "127.0.0.1", "[::1]", *(each.lower() for each in allowed)}
    is_wildcard = host in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
    if not is_wildcard:
        names.add(f"[{host}]" if ":" in host else host.lower())
    return frozenset(names), is_wildcard


def _name_in(host: str) -> str:
    """The host name in a Host header, without port; empty if the header is invalid."""
    name = host.strip().lower()
    if name.startswith("["):
        name, bracket, port = name.partition("]")
        name, port = name + bracket, port.removeprefix(":")
    else:
        name, _, port = name.partition(":")
    return name.rstrip(".") if not port or port.isdigit() else ""


def _is_same_origin(origin: str, host: str) -> bool:
    # Ignores the scheme: a proxy may use HTTPS with the browser and HTTP with this server.
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()


def _path_below(path: str, base: str) -> str:
    """The path without the base path; a proxy may have removed the base path already."""
    return path.removeprefix(base) or "/" if base and f"{path}/".startswith(f"{base}/") else path


def _redirect(path: str, query: bytes) -> Message:
    """The head of a response that redirects to a path of this server."""
    place = path.encode() + (b"?" + query if query else b"")
    headers = [(b"location", place), (b"content-length", b"0")]
    return {"type": "http.response.start", "status": 308, "headers": headers}


def _refuse_two_lengths(headers: Headers) -> None:
    """Refuse two lengths: a proxy may use the other one and take the rest for a request (request smuggling)."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Refusal(
            *(400, "TwoLengths", "Content-Length and Transfer-Encoding exclude each other"),
            "send one of them",
        )


def _length_in(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isdigit() and len(length) < 19 else MOST_BODY + 1


def _too_large(most: int) -> Refusal:
    return Refusal(413, "TooLarge", f"a body has {most:,} bytes at most", "put the rest into files")


async def _read(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refusal(400, "Disconnected", "the client went away")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body that was already read, then later messages, such as a disconnect."""
    is_given = False

    async def receiving() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


def _error_headers(error: Refusal) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", JSON_TYPE.encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
