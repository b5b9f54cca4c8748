"""Calls to a provider over HTTP: a body out, a body or a stream of events back, or a `ModelError`.

Whatever goes wrong below leaves this module as the `ModelError` that says who must act.
"""

import asyncio
import errno
import ssl
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from chargehand.errors import ModelBusy, ModelError, ModelTooSlow, ModelUnreachable
from chargehand.models.call_ban import refuse_if_forbidden
from chargehand.models.connection_settings import Access
from chargehand.models.http_session import StaleConnection, session_here
from chargehand.models.provider_errors import complaint_in, failure_of, garbled, shown

#: bytes; a body or an event past this is no answer of a model
LARGEST_REPLY = 64 * 1024 * 1024
LARGEST_COMPLAINT = 64 * 1024
#: seconds for which buffered events are handed out before other tasks of the event loop have their turn
LONGEST_TURN = 0.01
#: where no total time is set
LONGEST_STREAM = timedelta(minutes=30)

#: all that the library raises for trouble on the wire; ValueError is what it makes of odd bytes
_LOWER = (aiohttp.ClientError, OSError, TimeoutError, ValueError, EOFError)


class EventStream:
    """The server-sent events of one answer, one at a time."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: "ModelEndpoint") -> None:
        self.headers = response.headers
        self._response = response
        self._endpoint = endpoint
        self._lines = _Lines()
        self._loop = asyncio.get_running_loop()
        self._began = self._heard = self._turn = self._loop.time()
        self._size = 0
        self._has_events = False

    def cut_off(self) -> ModelError:
        """The error for a stream that ended too early, or an answer that is no stream of events."""
        kind = self._response.content_type
        is_stream = self._has_events or not self._size or kind == "text/event-stream"
        fact = "broke off before its end" if is_stream else f"is {kind}, not a stream of events"
        return garbled(self._endpoint.access, fact)

    async def next(self) -> bytes | None:
        """The data of the next event; None at the end of the stream.

        An event that the end cuts off is not handed out: by the rules of the format it never came.
        """
        while True:
            if (data := self._lines.next_event()) is not None:
                self._heard, self._has_events = self._loop.time(), True
                if self._heard - self._turn > LONGEST_TURN:
                    await asyncio.sleep(0)  # reading what is buffered waits for nothing
                    self._turn = self._loop.time()
                return data
            chunk = await self._read()
            if not chunk:
                return None
            self._lines.feed(chunk)
            self._check_bounds(len(chunk))

    def _check_bounds(self, size: int) -> None:
        """A stream is bounded as a whole reply is, and what only keeps it alive is no answer."""
        self._size += size
        if self._size > LARGEST_REPLY:
            raise garbled(self._endpoint.access, "is larger than any model's")
        now, timeouts = self._loop.time(), self._endpoint.access.timeouts
        if now - self._heard > timeouts.silence.total_seconds() and not self._lines.is_ready:
            raise self._endpoint.failure_by(aiohttp.SocketTimeoutError())
        if now - self._began > (timeouts.total or LONGEST_STREAM).total_seconds():
            raise self._endpoint.failure_by(TimeoutError())

    async def finish(self) -> None:
        """Wait a moment for the end of the stream, so that its connection can be used again."""
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(1):
                while await self._read():
                    pass

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except _LOWER as error:
            raise self._endpoint.failure_by(error) from None


class _Lines:
    """Cuts bytes into events, wherever the network has cut them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ready: list[bytes] = []
        self._data: list[bytes] = []
        self._is_first = True
        #: whether the last chunk ended with CR: an LF that comes next belongs to it
        self._ends_with_cr = False

    @property
    def is_ready(self) -> bool:
        return bool(self._ready)

    def feed(self, chunk: bytes) -> None:
        if self._ends_with_cr:
            chunk = chunk.removeprefix(b"\n")
            self._ends_with_cr = False
        if b"\r" in chunk:  # alone, it ends a line as well
            self._ends_with_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._buffer += chunk
        if b"\n" not in chunk:
            return  # a long line comes in many chunks; all of it is looked through once
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest
        if self._is_first:
            lines[0] = lines[0].removeprefix(BOM_UTF8)
            self._is_first = False
        for line in lines:
            self._take(bytes(line))
        self._ready.reverse()

    def next_event(self) -> bytes | None:
        return self._ready.pop() if self._ready else None

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line == b"data":  # a field without a colon is empty
            self._data.append(b"")
        elif not line and self._data:
            self._ready.append(b"\n".join(self._data))
            self._data = []
        # Ignored: comments (keep-alives), `event`, `id` and `retry`, because what an event is stands in its data,
        # and lines of any other name, as the format demands.


class ModelEndpoint:
    """One provider's address, called with the key and the patience of `access`."""

    def __init__(self, access: Access, model: str) -> None:
        self.access = access
        self._model = model
        self._is_local = access.is_local
        self._headers = access.sent_headers()
        self._proxy = None if self._is_local else proxy_for(access.base_url)
        # Whatever trickles in meanwhile, a reply in one piece is there in time or not at all.
        whole = min(access.timeouts.answer, access.timeouts.total or access.timeouts.answer)
        self._whole = _limits(access, total=whole)
        self._piecewise = _limits(
            access, total=access.timeouts.total, silence=access.timeouts.silence
        )
        self._urls: dict[str, URL] = {}

    async def post(self, path: str, body: bytes) -> tuple[bytes, aiohttp.ClientResponse]:
        """The whole body of the answer, and the answer for its headers."""
        self._check_allowed()
        try:
            async with await self._send(path, body, self._headers, self._whole) as response:
                if response.status == 200:
                    return await self._read_all(response), response
                failure = await self._failure_in(response)
        except _LOWER as error:
            raise self.failure_by(error) from None
        raise failure

    @asynccontextmanager
    async def open(self, path: str, body: bytes) -> AsyncIterator[EventStream]:
        """The answer as a stream of events. Leaving early closes the connection."""
        self._check_allowed()
        headers = {**self._headers, "Accept": "text/event-stream"}
        try:
            async with asyncio.timeout(self.access.timeouts.answer.total_seconds()):
                response = await self._send(path, body, headers, self._piecewise)
        except _LOWER as error:
            raise self.failure_by(error) from None
        try:
            if response.status != 200:
                raise await self._failure_in(response)
            yield EventStream(response, self)
        finally:
            response.release()

    async def _send(
        self, path: str, body: bytes, headers: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        session = await session_here()
        while True:
            try:
                return await session.post(
                    self._url(path),
                    data=body,
                    headers=headers,
                    timeout=limits,
                    proxy=self._proxy,
                    # A redirected POST becomes a GET, and the key would go wherever it points.
                    allow_redirects=False,
                )
            except StaleConnection:
                # Kept from an earlier call, and closed by the server before a byte came back; the
                # pool has dropped it, so this ends with a new one.
                continue

    def failure_by(self, error: Exception) -> ModelError:
        """The error that trouble on the wire means."""
        access, timeouts = self.access, self.access.timeouts
        where = f"{access.provider} at {access.shown_url}"
        match error:
            case aiohttp.ConnectionTimeoutError():
                late = ModelTooSlow(
                    f"no connection to {where} within {_in_words(timeouts.connect)}; check the "
                    "base URL and the network, or allow more time (timeouts.connect)"
                )
                late.may_be_paid = False
                return late
            case aiohttp.SocketTimeoutError():
                return ModelTooSlow(
                    f"{where} fell silent; check whether it is overloaded, or allow it more time "
                    f"(timeouts.silence, now {_in_words(timeouts.silence)})"
                )
            case TimeoutError():
                return ModelTooSlow(
                    f"{where} took longer than it may; check whether it is overloaded, ask for less at "
                    f"once, or allow it more time (timeouts.answer, now {_in_words(timeouts.answer)}; "
                    f"timeouts.total, now {_in_words(timeouts.total)})"
                )
            case aiohttp.ClientPayloadError() | EOFError():
                return garbled(access, "broke off before its end")
            case OSError(errno=errno.EMFILE | errno.ENFILE):
                return ModelBusy(
                    f"no connection to {where}: this process may open no more files; "
                    "work with fewer calls at once, or raise the limit (ulimit -n)"
                )
            case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
                return ModelUnreachable(
                    f"the certificate of {where} is not trusted; check the base URL, or make its "
                    "authority known to this machine (SSL_CERT_FILE)"
                )
            case aiohttp.ServerDisconnectedError():
                gone = ModelUnreachable(f"{where} hung up without an answer; try again later")
                gone.may_be_paid = True
                return gone
            case aiohttp.ClientConnectionError() | OSError():
                why = shown(_reason(error), access)
                return ModelUnreachable(
                    f"no connection to {where}{why}; check the base URL, and whether it is up"
                )
        return garbled(access, "is not HTTP as it should be")

    def _check_allowed(self) -> None:
        if not self._is_local:
            refuse_if_forbidden(self._model)

    def _url(self, path: str) -> URL:
        if (url := self._urls.get(path)) is None:
            base = URL(self.access.base_url)
            query = {**base.query, **self.access.query}
            url = base.with_path(base.path.rstrip("/") + path).with_query(query)
            self._urls[path] = url
        return url

    async def _read_all(self, response: aiohttp.ClientResponse) -> bytes:
        is_packed = "Content-Encoding" in response.headers  # then its length says nothing
        if not is_packed and (response.content_length or LARGEST_REPLY) < LARGEST_REPLY:
            return await response.read()
        return await self._read_up_to(response, LARGEST_REPLY)

    async def _read_up_to(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        """All of a body of unknown length, which may be a bomb that unpacks without end."""
        content = bytearray()
        while chunk := await response.content.readany():
            content += chunk
            if len(content) > most:
                raise garbled(self.access, "is larger than any model's")
        return bytes(content)

    async def _failure_in(self, response: aiohttp.ClientResponse) -> ModelError:
        body = b""
        # The status says enough, should the rest not come.
        with suppress(*_LOWER, ModelError):
            async with asyncio.timeout(5):
                body = await self._read_up_to(response, LARGEST_COMPLAINT)
        if target := response.headers.get("location"):
            body = f"it points to {target.partition('?')[0]}".encode()
        return failure_of(complaint_in(response.status, response.headers, body), self.access)


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address.

    Looked up once for each model: the library would read the user's netrc with every call.
    """
    where = URL(url)
    found = getproxies().get(where.scheme)
    return None if not found or not where.host or proxy_bypass(where.host) else found


def _limits(
    access: Access, *, total: timedelta | None, silence: timedelta | None = None
) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None if total is None else total.total_seconds(),
        connect=access.timeouts.connect.total_seconds(),
        sock_read=None if silence is None else silence.total_seconds(),
        ceil_threshold=60,  # below it timeouts are exact; above, they share wake-ups
    )


def _reason(error: Exception) -> str:
    """In the system's words, if it has any: `: Connect call failed`."""
    while isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    words = getattr(error, "strerror", None) or str(error)
    return f": {words}" if words else ""


def _in_words(time: timedelta | None) -> str:
    return "unlimited" if time is None else f"{time.total_seconds():g} s"
