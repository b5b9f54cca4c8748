"""A scripted model server over HTTP on loopback.

It speaks OpenAI's chat completions and responses and Anthropic's messages, streamed and not streamed. It refuses
requests that the providers would refuse, so that tests are realistic. The official clients of both companies are also
tested against it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from aiohttp import web

from chargehand.testing.model_protocols import (
    DIALECTS,
    Json,
    Refused,
    Say,
    WireProtocol,
    compact,
    event,
)

__all__ = [
    "DIALECTS",
    "Body",
    "Cut",
    "Framing",
    "Later",
    "Line",
    "ModelServer",
    "Received",
    "Say",
    "Status",
    "Wire",
    "complete_at",
    "event",
    "model_server",
    "wire",
]

Framing: TypeAlias = Literal["chunked", "length", "close"]


# What can be scripted, other than a reply


@dataclass(frozen=True, kw_only=True)
class Status:
    """An answer with this HTTP status, such as an error."""

    status: int
    words: str = "as scripted"
    kind: str = "server_error"
    headers: dict[str, str] = field(default_factory=dict)
    #: replaces the protocol's error body
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Body:
    """A successful answer with these bytes as its body."""

    content: bytes
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A reply that is cut off after `at` bytes, including its headers."""

    say: Say
    at: int
    framing: Framing = "chunked"
    then: Literal["close", "stall"] = "close"


@dataclass(frozen=True)
class Wire:
    """Raw bytes, including the headers; then the connection is closed."""

    content: bytes


@dataclass(frozen=True, kw_only=True)
class Later:
    """Another line after a delay."""

    seconds: float
    line: "Line"


Line: TypeAlias = "Say | Status | Body | Cut | Wire | Later | Callable[[Received], Line]"


@dataclass(frozen=True)
class Received:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: Json
    query: dict[str, str]


# The server


class ModelServer:
    """Controls the server in a test: scripts its answers, and records its requests."""

    def __init__(self) -> None:
        self.url = ""
        #: if set, requests with another API key get 401
        self.key = ""
        self.requests: list[Received] = []
        #: time (of the event loop) and status of each answer
        self.answered: list[tuple[float, int]] = []
        #: set when a client disconnects in the middle of an answer
        self.hung_up = asyncio.Event()
        #: set when an answer has stalled
        self.stalled = asyncio.Event()
        #: the answer when the script is empty
        self.always: Line = Status(status=500, words="nothing was scripted", kind="api_error")
        self._lines: list[Line] = []
        self._admission: Admission | None = None

    def say(self, *lines: Line) -> None:
        self._lines += lines

    def admit(self, per_second: float, *, retry_after: str | None = None) -> None:
        """Answer 429 to requests above this rate."""
        self._admission = Admission(per_second, retry_after)

    def next_line(self, received: Received) -> Line:
        if self._admission is not None and (refusal := self._admission.refusal()) is not None:
            return refusal
        line = self._lines.pop(0) if self._lines else self.always
        while callable(line):
            line = line(received)
        return line


class Admission:
    """A token bucket."""

    def __init__(self, per_second: float, retry_after: str | None) -> None:
        self._rate = per_second
        self._headers = {} if retry_after is None else {"Retry-After": retry_after}
        self._left = 1.0
        self._at = asyncio.get_running_loop().time()

    def refusal(self) -> Status | None:
        now = asyncio.get_running_loop().time()
        self._left = min(self._left + (now - self._at) * self._rate, max(self._rate, 1.0))
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return None
        return Status(status=429, kind="rate_limit_error", headers=self._headers)


class _Handling:
    """Handles the requests of one protocol."""

    def __init__(self, server: ModelServer, dialect: WireProtocol) -> None:
        self._server = server
        self._dialect = dialect

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        received = Received(request.path, dict(request.headers), body, dict(request.query))
        self._server.requests.append(received)
        line = self._refusal(received) or self._server.next_line(received)
        while isinstance(line, Later):
            await asyncio.sleep(line.seconds)
            line = line.line
        response = await self._answer(request, line, body)
        self._server.answered.append((asyncio.get_running_loop().time(), response.status))
        return response

    def _refusal(self, received: Received) -> "Line | None":
        keys = {received.headers.get(name) for name in ("x-api-key", "api-key")}
        keys.add(received.headers.get("Authorization", "").removeprefix("Bearer "))
        if self._server.key and self._server.key not in keys:
            words = f"Incorrect API key provided: {max(map(str, keys))}"
            return Status(status=401, kind="authentication_error", words=words)
        if self._dialect.name == "messages" and "anthropic-version" not in received.headers:
            return Status(status=400, kind="invalid_request_error", words="anthropic-version")
        try:
            self._dialect.check(received.body)
        except Refused as error:
            return Status(status=400, kind="invalid_request_error", words=str(error))
        return None

    async def _answer(self, request: web.Request, line: Line, body: Json) -> web.StreamResponse:
        headers = {"x-request-id": "req_1"}
        match line:
            case Say():
                if body.get("stream"):
                    return await self._stream(request, line, body)
                whole = self._dialect.whole(line, body)
                return web.json_response(whole, headers=headers, dumps=compact)
            case Status(status=status, headers=more, body=content):
                if content is None:
                    content = json.dumps(self._dialect.error(line.kind, line.words)).encode()
                return web.Response(
                    status=status,
                    body=content,
                    content_type="application/json",
                    headers={**headers, **more},
                )
            case Body(content=content, content_type=kind, headers=more):
                kind = "text/event-stream" if body.get("stream") else kind
                headers |= {"Content-Type": kind, **more}
                return web.Response(body=content, headers=headers)
            case Cut(at=at, then=then):
                content = wire(self._dialect, line, body)[:at]
                return await self._break_off(request, content, then)
            case Wire(content=content):
                return await self._break_off(request, content, "close")
        raise AssertionError(line)

    async def _stream(self, request: web.Request, say: Say, body: Json) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for content in self._dialect.events(say, body):
            await response.write(content)
        await response.write_eof()
        return response

    async def _break_off(
        self, request: web.Request, content: bytes, then: str
    ) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None  # noqa: S101 - for the type checker: the request was just received
        transport.write(content)
        if then == "stall":
            self._server.stalled.set()
            try:
                await asyncio.Event().wait()
            finally:
                self._server.hung_up.set()
        transport.close()
        return web.Response()


def wire(dialect: WireProtocol, cut: Cut, body: Json) -> bytes:
    """The bytes of the whole answer, before it is cut."""
    if body.get("stream"):
        parts, kind = [*dialect.events(cut.say, body)], "text/event-stream"
    else:
        parts, kind = [compact(dialect.whole(cut.say, body)).encode()], "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"
    content = b"".join(parts)
    match cut.framing:
        case "chunked":
            head += "Transfer-Encoding: chunked\r\n"
            content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            content += b"0\r\n\r\n"
        case "length":
            head += f"Content-Length: {len(content)}\r\n"
        case "close":
            head += "Connection: close\r\n"
    return f"{head}\r\n".encode() + content


def complete_at(dialect: WireProtocol, cut: Cut, body: Json) -> int:
    """The number of bytes after which a reader knows that the answer is complete."""
    content = wire(dialect, cut, body)
    if body.get("stream"):
        return content.rindex(b"\n\n") + 2
    return content.rindex(b"}") + 1


@asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    """Run a model server inside the block, at `ModelServer.url`."""
    server = ModelServer()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    chat, responses, messages = (_Handling(server, each).handle for each in DIALECTS.values())
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/openai/v1/chat/completions", chat)
    app.router.add_post("/openai/deployments/{name}/chat/completions", chat)
    app.router.add_post("/v1/responses", responses)
    app.router.add_post("/v1/messages", messages)
    # A disconnected client cancels its handler, so that tests can notice it.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
