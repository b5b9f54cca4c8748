"""Limits on what a server sends, and a filter that drops messages that chargehand does not use."""

import contextvars
import time
from collections.abc import Callable
from typing import Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

#: bytes of one message
MOST_BYTES = 16 * 1024 * 1024
MOST_MESSAGES_A_MINUTE = 10_000
MOST_BYTES_A_MINUTE = 256 * 1024 * 1024
_MINUTE = 60.0

CHANGED = "notifications/tools/list_changed"
PROGRESS = "notifications/progress"
_HEARD = {CHANGED, PROGRESS, "notifications/cancelled", "notifications/subscriptions/acknowledged"}


class Flooded(Exception):
    """A server sends too much."""


class Meter:
    """Counts what a server sends, and raises `Flooded` if it is too much within a minute."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._messages = 0
        self._bytes = 0

    def count(self, *, messages: int = 0, size: int = 0) -> None:
        now = time.monotonic()
        if now - self._since > _MINUTE:
            self._since, self._messages, self._bytes = now, 0, 0
        self._messages += messages
        self._bytes += size
        if self._messages > MOST_MESSAGES_A_MINUTE:
            raise Flooded(f"it sent more than {MOST_MESSAGES_A_MINUTE} messages within a minute")
        if self._bytes > MOST_BYTES_A_MINUTE:
            raise Flooded(f"it sent more than {MOST_BYTES_A_MINUTE >> 20} MiB within a minute")


class InputSource(Protocol):
    """The stream of incoming messages; both transports implement it."""

    async def receive(self) -> SessionMessage | Exception: ...

    async def aclose(self) -> None: ...


class Incoming:
    """The messages of a server, filtered and counted, as the protocol's session reads them.

    `on_change` is called here, in the order of the messages and without waiting, so no call can start
    between the arrival of a change and its detection.
    """

    def __init__(
        self,
        source: InputSource,
        meter: Meter,
        on_change: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._source = source
        self._meter = meter
        self._on_change = on_change
        self._on_end = on_end
        #: the context of the last message's sender; the session reads it
        self.last_context: contextvars.Context | None = None

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._source.receive()
            self.last_context = getattr(self._source, "last_context", None)
            self._meter.count(messages=1)
            if self._is_wanted(item):
                return item

    def _is_wanted(self, item: SessionMessage | Exception) -> bool:
        if isinstance(item, Exception):
            return False
        message = item.message
        if not isinstance(message, JSONRPCNotification):
            return True
        if message.method == CHANGED:
            self._on_change()
        # The session would log every message that it cannot read, as often as the server sends one.
        return message.method in _HEARD and (message.method != PROGRESS or _is_progress(message))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except Flooded as flooded:
            self._on_end(f"was cut off, because {flooded}")
        except anyio.EndOfStream:
            self._on_end("")
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._source.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _is_progress(message: JSONRPCNotification) -> bool:
    params = message.params or {}
    is_number = isinstance(params.get("progress"), int | float)
    words = params.get("message")
    return is_number and (words is None or isinstance(words, str)) and "progressToken" in params
