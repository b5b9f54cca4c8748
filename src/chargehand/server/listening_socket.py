"""Where a server listens, and how it turns away a body that is too large."""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address

from starlette.types import Receive, Send

from chargehand.errors import UsageError

#: seconds in which what a refused client still sends is thrown away
LINGER = 1.0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `UsageError` if that is not possible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family)
        # Connections inherit it. asyncio sets it only where the protocol is given by number; without it, a reply
        # in two parts waits 40 ms for the client's acknowledgement of the first.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error}; name another") from None


def address_of(listener: socket.socket) -> str:
    """Host and port of a listener, as a URL has them."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


async def refuse_body(
    receive: Receive, send: Send, words: bytes, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    """Answer before the whole body was read; what still comes is thrown away for a moment.

    A connection that is closed while the other side writes is reset, and the answer lost with it.
    """
    headers = [*headers, (b"content-length", str(len(words)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body"):
                    break
    await send({"type": "http.response.body", "body": b""})
