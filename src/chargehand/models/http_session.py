"""One HTTP session for each event loop, shared by every model that is used there."""

import asyncio
import os
import select
import threading
import warnings
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL as _NO_CAUSE

#: seconds that an unused connection is kept; the providers keep theirs for longer
KEEPALIVE = 30.0


@dataclass(frozen=True, slots=True)
class _Held:
    session: aiohttp.ClientSession
    keeper: AsyncGenerator[None, None]


_held: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Held]" = WeakKeyDictionary()
_inherited: list[_Held] = []
_lock = threading.Lock()


class StaleConnection(aiohttp.ServerDisconnectedError):
    """A connection that was used before broke before a byte of this answer came: it is safe to resend."""


class _Protocol(ResponseHandler):
    """Knows whether it was used before, and is not used again once anything unasked for has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._uses = 0
        self._has_heard = False
        #: asks the system whether anything waits in the socket
        self._poll: select.poll | None = None

    def is_connected(self) -> bool:
        # Asked before it is used again. What has come meanwhile, or waits in the socket, is no answer
        # to the next request: an end of the connection, or a reply that nobody asked for.
        return super().is_connected() and not self.should_close and not self._is_readable()

    def set_response_params(self, **options: Any) -> None:
        self._uses += 1
        self._has_heard = False
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        super().data_received(data)

    def set_exception(self, exc: Any, exc_cause: BaseException = _NO_CAUSE) -> None:
        is_gone = isinstance(exc, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
        if is_gone and self._uses > 1 and not self._has_heard:
            exc = StaleConnection()
        super().set_exception(exc, exc_cause)

    def _is_readable(self) -> bool:
        if self._poll is None:
            socket = None if self.transport is None else self.transport.get_extra_info("socket")
            if socket is None or socket.fileno() < 0:
                return False
            self._poll = select.poll()
            self._poll.register(socket.fileno(), select.POLLIN)
        return bool(self._poll.poll(0))


class _Connector(aiohttp.TCPConnector):
    """A pool of connections that closes itself only where that can be done.

    In a forked child it would say goodbye on connections that the parent still uses, and on a loop
    that is closed there is nobody left to say it.
    """

    _made_in = 0
    _made_on: asyncio.AbstractEventLoop

    def __init__(self, **options: Any) -> None:
        self._made_in, self._made_on = os.getpid(), asyncio.get_running_loop()
        super().__init__(**options)
        self._factory = cast(Any, partial(_Protocol, loop=self._made_on))

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._made_in == os.getpid() and not self._made_on.is_closed():
            super().__del__(_warnings)


async def session_here() -> aiohttp.ClientSession:
    """The session of the running loop, opened if there is none.

    It is closed with its loop: `asyncio.run` and its like close asynchronous generators that are
    still open, and one of those holds the session.
    """
    loop = asyncio.get_running_loop()
    held = _held.get(loop)
    if held is not None and not held.session.closed:
        return held.session
    session = _new_session()
    keeper = _keep(session)
    await anext(keeper)  # starts it, and by that makes it known to the loop
    with _lock:
        _forget_closed_loops()
        _held[loop] = _Held(session, keeper)
    return session


def _new_session() -> aiohttp.ClientSession:
    # No limit here: how many calls may run at once is for the limiter to say, and a queue hidden
    # inside the connector would make its figures wrong.
    connector = _Connector(limit=0, keepalive_timeout=KEEPALIVE, ttl_dns_cache=300)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent",),
        headers={"User-Agent": "chargehand"},
    )


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await session.close()


def _forget_closed_loops() -> None:
    """Let go of loops that somebody closed by hand; a session keeps its loop alive."""
    for loop in [loop for loop in _held if loop.is_closed()]:
        _held.pop(loop).session.detach()


def _leave_to_the_parent() -> None:
    global _lock  # another thread may have held the old one when the process was forked
    _lock = threading.Lock()
    for held in list(_held.values()):
        held.session.detach()
        # Kept alive: let go of, a keeper would ask the parent's loop to close it, which is not ours.
        _inherited.append(held)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
