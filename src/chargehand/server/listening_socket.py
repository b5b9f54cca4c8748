"""Opens listening sockets, and refuses requests without reading their whole body."""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address

from starlette.types import Receive, Send

from chargehand.errors import UsageError

#: seconds for which the rest of a refused body is read and dropped
LINGER = 1.0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises `UsageError` if that fails."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family)
        # Connections inherit this option. asyncio does not set it here, because the socket's protocol number is 0.
        # Without it, a reply in two parts waits 40 ms for the client to acknowledge the first part.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error}; name another") from None


def address_of(listener: socket.socket) -> str:
    """Host and port of a listener, as in a URL."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


async def refuse_body(
    receive: Receive, send: Send, words: bytes, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    """Answer before the whole body was read, and drop the rest of the body for at most `LINGER` seconds.

    If a connection is closed while the client is still sending, it is reset and the answer is lost.
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
