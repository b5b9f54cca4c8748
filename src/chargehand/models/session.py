"""One HTTP session for each event loop, shared by every model that is used there."""

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

KEEPALIVE = 30.0
#: seconds that an unused connection is kept; the providers keep theirs for longer


@dataclass(frozen=True, slots=True)
class _Held:
    session: aiohttp.ClientSession
    keeper: AsyncGenerator[None, None]


_held: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Held]" = WeakKeyDictionary()
_inherited: list[_Held] = []
_lock = threading.Lock()


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


async def close_session() -> None:
    """Close the session of the running loop now; the next call opens another."""
    with _lock:
        held = _held.pop(asyncio.get_running_loop(), None)
    if held is not None:
        await held.keeper.aclose()


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
