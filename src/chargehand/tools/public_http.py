"""HTTP to public hosts only. Resolves a name once, checks the addresses and connects only to these.

No cookies, no proxies from the environment, no redirects to other hosts, and a limit on the size of
a response, compressed and decompressed.
"""

import asyncio
import contextlib
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin

from chargehand.decisions.tool_policy import reaches
from chargehand.errors import ToolError, UsageError
from chargehand.facts.argument_checks import Duration, count, duration
from chargehand.tools.network_addresses import host_fault, is_address, is_public

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

#: resolves a host and a port to addresses
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

MOST_BYTES = 5 * 1024 * 1024
MOST_HOPS = 5
LONGEST_URL = 4_000
TIME = timedelta(seconds=30)
USUAL_PORTS = {"http": 80, "https": 443}
_REDIRECTS = {301, 302, 303, 307, 308}
_ALLOWED = re.compile(
    r"\[?(?P<host>\*|[\w.-]+|[0-9a-f:]+:[0-9a-f:.]*)\]?\.?(?::(?P<port>\d{1,5}))?"
)
_CHUNK = 64 * 1024
_HEADERS = {"User-Agent": "chargehand", "Accept-Encoding": "gzip"}
_GZIP = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The response of a host."""

    url: str
    status: int
    #: the media type, in lower case
    kind: str
    charset: str
    body: bytes = b""
    #: the target of a redirect that was not followed
    moved_to: str = ""
    retry_after: timedelta | None = None

    def refuse_failure(self, who: str) -> None:
        """Raise `ToolError` unless the status is a success."""
        if not 200 <= self.status < 300:
            kind = "network" if self.status >= 500 else "logic"
            raise ToolError(
                f"{who} answered with status {self.status}",
                kind="resource" if self.status == 429 else kind,
                retry_after=self.retry_after,
            )


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses according to the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Transport:
    """Sends requests to a list of allowed hosts.

    `allow` lists hosts such as "example.org" or, for a port other than 80 and 443, "example.org:8080";
    subdomains are included. "*" is every public host.
    """

    def __init__(
        self,
        allow: Iterable[str],
        *,
        allow_private: bool = False,
        resolve: Resolve = look_up,
        most: int = MOST_BYTES,
        time: Duration = TIME,
    ) -> None:
        self._hosts, self._ports = _read_allowed(allow)
        self._allow_private = allow_private
        self._resolve = resolve
        self._most = count(most, "most", least=1)
        self._time = duration(time, "time")

    def target(self, text: str) -> "URL":
        """The parsed address. Raises `ToolError`, with the reason, if it may not be requested."""
        url = _parsed(text)
        host = host_of(url)
        if not reaches(host, self._hosts):
            raise ToolError(f"{host!r} is not among the hosts that may be asked", kind="denied")
        port = url.port or 0
        if port not in USUAL_PORTS.values() and not reaches(
            host, self._ports.get(port, frozenset())
        ):
            raise ToolError(f"port {url.port} of {host!r} may not be used", kind="denied")
        if is_address(host):
            self._check(host, [host])
        return url

    async def get(self, text: str) -> Reply:
        """Fetch a page; follows redirects to the same host and its subdomains."""
        url = self.target(text)
        origin = frozenset({host_of(url)})
        async with _errors_told(self._time):
            for _ in range(MOST_HOPS + 1):
                reply = await self._ask("GET", url, {})
                if not reply.moved_to:
                    return reply
                following = _parsed(reply.moved_to)
                # Redirecting to another host could leak data in the address; that is for the caller to decide.
                if not reaches(host_of(following), origin):
                    return reply
                if url.scheme == "https" and following.scheme == "http":
                    raise ToolError(f"{url} redirects to a connection that is not encrypted")
                url = self.target(reply.moved_to)
        raise ToolError(f"{text[:200]} redirects more than {MOST_HOPS} times")

    async def ask(
        self, method: str, text: str, headers: Mapping[str, str], body: Any = None
    ) -> Reply:
        """Send one request, without following redirects."""
        url = self.target(text)
        async with _errors_told(self._time):
            return await self._ask(method, url, headers, body)

    async def _ask(
        self, method: str, url: "URL", headers: Mapping[str, str], body: Any = None
    ) -> Reply:
        import aiohttp

        addresses = await self._addresses(host_of(url), url.port or 0)
        async with (
            aiohttp.ClientSession(
                connector=_connector(addresses),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # done below, with a size limit
                trust_env=False,
                headers=_HEADERS,
            ) as session,
            session.request(
                method, url, headers=headers, json=body, allow_redirects=False
            ) as response,
        ):
            return await self._reply(url, response)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if is_address(host):
            addresses: Sequence[str] = [host]
        else:
            try:
                addresses = await self._resolve(host, port)
            except OSError as error:
                raise ToolError(f"{host!r} was not found: {error}", kind="network") from None
        if not addresses:
            raise ToolError(f"{host!r} has no address", kind="network")
        self._check(host, addresses)
        return list(dict.fromkeys(addresses))

    def _check(self, host: str, addresses: Sequence[str]) -> None:
        """Refuse the host if any of its addresses is not public: a mix is a sign of an attack."""
        if self._allow_private:
            return
        for address in addresses:
            if not is_public(address):
                raise ToolError(
                    f"{host!r} is not on the public network, and only that may be asked",
                    kind="denied",
                )

    async def _reply(self, url: "URL", response: "aiohttp.ClientResponse") -> Reply:
        moved_to = ""
        if response.status in _REDIRECTS and "Location" in response.headers:
            whole = urljoin(str(url), response.headers["Location"].strip())
            moved_to = whole[: LONGEST_URL + 1]
        return Reply(
            url=str(url),
            status=response.status,
            kind=response.content_type.lower(),
            charset=response.charset or "",
            body=b"" if moved_to else await self._body(response),
            moved_to=moved_to,
            retry_after=_seconds(response.headers.get("Retry-After", "")),
        )

    async def _body(self, response: "aiohttp.ClientResponse") -> bytes:
        unpacking = _Unpacking(response.headers.get("Content-Encoding", ""))
        body = bytearray()
        taken = 0
        async for chunk in response.content.iter_chunked(_CHUNK):
            taken += len(chunk)
            body += unpacking.take(chunk, self._most + 1 - len(body))
            if max(taken, len(body)) > self._most:
                raise ToolError(f"{response.url} is larger than {self._most // 1024} kB")
        unpacking.finish()
        return bytes(body)


def host_of(url: "URL") -> str:
    return (url.raw_host or "").lower().rstrip(".")


def _read_allowed(allow: Iterable[str]) -> tuple[frozenset[str], dict[int, frozenset[str]]]:
    """The allowed hosts, and the allowed hosts of each other port."""
    if isinstance(allow, str):
        raise UsageError(f"allow={allow!r} must be a list of hosts")
    hosts: frozenset[str] = frozenset()
    ports: dict[int, frozenset[str]] = {}
    for entry in allow:
        named = _ALLOWED.fullmatch(entry.lower())
        if named is None:
            raise UsageError(f"{entry!r} is not a host; write example.org, example.org:8080 or *")
        hosts |= {named["host"]}
        if named["port"]:
            port = int(named["port"])
            ports[port] = ports.get(port, frozenset()) | {named["host"]}
    return hosts, ports


def _parsed(text: str) -> "URL":
    """Parse an address once, with the library that will use it, so the check and the request agree."""
    from yarl import URL

    text = text.strip()
    if len(text) > LONGEST_URL:
        raise ToolError(f"an address of {len(text)} characters is too long")
    if "\\" in text or any(character <= " " or character == "\x7f" for character in text):
        raise ToolError(f"{text[:200]!r} is not an address: it holds characters that none has")
    try:
        url = URL(text)
        port = url.port
    except ValueError as error:
        raise ToolError(f"{text[:200]!r} is not an address: {error}") from None
    if url.scheme not in USUAL_PORTS:
        raise ToolError(f"{text[:200]!r}: only http and https can be asked", kind="denied")
    if "@" in url.raw_authority:
        raise ToolError("an address may not hold a user's name or password", kind="denied")
    if not url.raw_host or not port:
        raise ToolError(f"{text[:200]!r} names no host; write it like https://example.org/page")
    if fault := host_fault(host_of(url)):
        raise ToolError(f"{url.raw_host!r} cannot be asked: {fault}", kind="denied")
    return url.with_fragment(None)


def _connector(addresses: Sequence[str]) -> "aiohttp.TCPConnector":
    """A connector that connects only to these addresses, whatever the name resolves to by now."""
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Pinned(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: int = socket.AF_INET
        ) -> list[ResolveResult]:
            del family  # both are accepted
            return [
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses
            ]

        async def close(self) -> None:
            pass

    def opened(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, where = info
        if where[0] not in addresses:
            raise ToolError(f"a connection to {where[0]} was about to be made", kind="denied")
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setblocking(False)
        return made

    return aiohttp.TCPConnector(
        resolver=Pinned(), use_dns_cache=False, force_close=True, socket_factory=opened
    )


class _Unpacking:
    """Decompresses a response, up to a maximum number of bytes."""

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise ToolError(f"it is packed in a way that was not asked for: {encoding[:40]!r}")
        self._packed = None if encoding in ("", "identity") else zlib.decompressobj(_GZIP)

    def take(self, chunk: bytes, most: int) -> bytes:
        if self._packed is None:
            return chunk[:most]
        try:
            return self._packed.decompress(chunk, most)
        except zlib.error as error:
            raise ToolError(f"it cannot be unpacked: {error}", kind="network") from None

    def finish(self) -> None:
        if self._packed is not None and not self._packed.eof:
            raise ToolError("it was cut off in the middle", kind="network")


def _seconds(text: str) -> timedelta | None:
    return timedelta(seconds=min(int(text), 86_400)) if text.isdecimal() else None


@contextlib.asynccontextmanager
async def _errors_told(time: timedelta) -> AsyncIterator[None]:
    """Turn errors and timeouts inside into a `ToolError` that a model can act on."""
    import aiohttp

    seconds = time.total_seconds()
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ToolError(f"no whole answer came within {seconds:g} s", kind="timeout") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        words = str(error) or type(error).__name__
        raise ToolError(f"the host was not reached: {words[:300]}", kind="network") from None
