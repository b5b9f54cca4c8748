"""The HTTP client for MCP servers over streamable HTTP.

The transport of the `mcp` package drops the whole connection, with all other calls, when one request
cannot be sent, and hides the status of an error response. So if a server cannot be reached or refuses a
request, this client creates the response itself: a protocol error that contains the reason.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client

from chargehand.tools.mcp.input_limits import MOST_BYTES, Flooded, InputSource, Meter
from chargehand.tools.mcp.server_failure import brief_words
from chargehand.tools.mcp.server_settings import ServerEndpoint, ServerTimeouts

#: seconds to send a message that has no response; the next request waits for it
COURTESY = 5.0
#: seconds that a response may take longer than its caller waits
SPARE = 10.0
#: our own error code, from the range that the protocol reserves for implementations
STOOD_IN = -32011
_KINDS = {401: "denied", 403: "denied", 407: "denied", 408: "timeout", 429: "resource"}
_LASTING = "subscriptions/listen"


class HttpRefusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why there is no response; sent as the data of a protocol error."""

    kind: str
    retry_after: float | None = None
    #: the connection is unusable
    is_lost: bool = False


@asynccontextmanager
async def http_streams(
    endpoint: ServerEndpoint, timeouts: ServerTimeouts, meter: Meter
) -> AsyncIterator[tuple[InputSource, Any]]:
    """Open the streams to and from a server; the connection is closed on exit."""
    async with (
        GuardedClient(endpoint, timeouts, meter) as client,
        streamable_http_client(
            endpoint.url, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


class GuardedClient(httpx2.AsyncClient):
    """Limits the size and the duration of responses, and turns connection errors into protocol errors."""

    def __init__(self, endpoint: ServerEndpoint, timeouts: ServerTimeouts, meter: Meter) -> None:
        connect = timeouts.connect.total_seconds()
        super().__init__(
            # Not compressed: a small response could expand to more than the available memory.
            headers={"accept-encoding": "identity"} | dict(endpoint.headers),
            timeout=httpx2.Timeout(None, connect=connect),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._meter = meter
        longest = max(timeouts.connect, timeouts.listing, timeouts.call)
        self._longest = longest.total_seconds() + SPARE

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        is_call, lasts = _kind_of(request)
        try:
            with anyio.fail_after(self._longest if is_call or lasts else COURTESY):
                response = await super().send(request, **options)
        except (httpx2.TransportError, TimeoutError, OSError, RuntimeError) as error:
            return _stand_in(request, _unreached(error))
        if is_call and response.status_code >= 400:
            return await self._explained(request, response)
        limits = (None, None) if lasts else (self._longest, MOST_BYTES)
        response.stream = _Bounded(response.stream, self._meter, *limits)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _stand_in(request, "it answers in an encoding that was not asked for")
        return response

    async def _explained(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Response:
        """The error response as a protocol error: that of the server, or one made from the status."""
        response.stream = _Bounded(response.stream, self._meter, COURTESY, MOST_BYTES)
        try:
            body = await response.aread()
        except (httpx2.HTTPError, httpx2.StreamError):
            body = b""
        finally:
            await response.aclose()
        status = response.status_code
        if status not in _KINDS and status != 404 and _is_protocol_error(body):
            return httpx2.Response(status, json=msgspec.json.decode(body), request=request)
        return _stand_in(request, _status_words(response, body), _refusal(response))


def _kind_of(request: httpx2.Request) -> tuple[bool, bool]:
    """Whether this is a protocol request, and whether its response is an endless stream."""
    if request.method != "POST":
        return False, request.method == "GET"
    message = msgspec.json.decode(request.content)
    return "id" in message and "method" in message, message.get("method") == _LASTING


class _Bounded(httpx2.AsyncByteStream):
    """A response body that raises `StreamError` if it gets too long or takes too long."""

    def __init__(self, body: Any, meter: Meter, seconds: float | None, most: int | None) -> None:
        self._body = body
        self._meter = meter
        self._until = None if seconds is None else time.monotonic() + seconds
        self._most = most
        self._size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._body)
        while True:
            try:
                with anyio.fail_after(self._left):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise httpx2.StreamError("its answer did not end in time") from None
            except (httpx2.TransportError, OSError) as error:
                # The transport treats only this kind of error as one of this response, not of the connection.
                raise httpx2.StreamError(_unreached(error)) from None
            self._count(len(chunk))
            yield chunk

    @property
    def _left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _count(self, size: int) -> None:
        self._size += size
        try:
            self._meter.count(size=size)
        except Flooded as flooded:
            raise httpx2.StreamError(str(flooded)) from None
        if self._most is not None and self._size > self._most:
            raise httpx2.StreamError(f"its answer is larger than {self._most >> 20} MiB")

    async def aclose(self) -> None:
        await self._body.aclose()


def _stand_in(
    request: httpx2.Request, words: str, refusal: HttpRefusal | None = None
) -> httpx2.Response:
    if request.method == "DELETE":
        # 405 means "sessions cannot be ended", which the transport ignores.
        return httpx2.Response(405, request=request)
    data = refusal or HttpRefusal("network", is_lost=True)
    error = {"code": STOOD_IN, "message": words, "data": msgspec.to_builtins(data)}
    return httpx2.Response(
        502, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request
    )


def _unreached(error: Exception) -> str:
    words = brief_words(str(error))
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"cannot be reached ({words or type(error).__name__})"
    return f"broke off ({words or type(error).__name__})"


def _refusal(response: httpx2.Response) -> HttpRefusal:
    status = response.status_code
    kind = _KINDS.get(status, "network" if status >= 500 or status == 404 else "logic")
    # 404 means that the server has forgotten the session.
    return HttpRefusal(kind, retry_after=_retry_after(response), is_lost=status == 404)


def _retry_after(response: httpx2.Response) -> float | None:
    seconds = response.headers.get("retry-after", "")
    return min(float(seconds), timedelta(days=1).total_seconds()) if seconds.isdecimal() else None


def _status_words(response: httpx2.Response, body: bytes) -> str:
    told = brief_words(body[:300].decode(errors="replace"))
    words = f"answered {response.status_code} {response.reason_phrase}"
    return f"{words}: {told}" if told else words


def _is_protocol_error(body: bytes) -> bool:
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(message, dict) and isinstance(message.get("error"), dict)
