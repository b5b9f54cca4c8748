"""Reading the web: what comes back, and where no request ever goes.

All servers are on loopback; a fixture forbids every other connection. The tests' "public" network is
127.0.0.1, where that matters, and their private one 127.0.0.2.
"""

import asyncio
import gzip
import io
import ipaddress
import json
import random
import resource
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web as server

from chargehand.decisions.tool_policy import Grants, Knowledge, Ruling, Traits, judge_call
from chargehand.errors import ToolError, UsageError
from chargehand.tools import public_http as transport
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.html_text import decoded, read_page
from chargehand.tools.network_addresses import is_public
from chargehand.tools.public_http import Transport
from chargehand.tools.search_engines import BRAVE_KEY, BraveSearch
from chargehand.tools.web import web
from tests.integration.ssrf import PRIVATE, SPELLINGS

SITE = "site.example"
#: never connected to: the fixture below refuses before anything is sent
PUBLIC = "93.184.215.14"

Answer = Callable[[server.BaseRequest], Awaitable[server.StreamResponse]]


class Names:
    """A resolver that gives one answer after the other, the last one for ever."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self._turns: dict[str, int] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._answers.get(host.replace(".", "_"), ())
        turn = self._turns.get(host, 0)
        self._turns[host] = turn + 1
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return answers[min(turn, len(answers) - 1)].split()


@dataclass
class Site:
    """A server on loopback whose pages are functions, and what it was asked for."""

    port: int = 0
    pages: dict[str, Answer] = field(default_factory=dict)
    requests: list[server.BaseRequest] = field(default_factory=list)

    def url(self, path: str = "/", host: str = SITE) -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: str | bytes, kind: str = "text/html", **headers: str) -> None:
        async def answer(request: server.BaseRequest) -> server.Response:
            data = body if isinstance(body, bytes) else body.encode()
            return server.Response(body=data, headers={"Content-Type": kind, **headers})

        self.pages[path] = answer

    def moved(self, path: str, to: str, status: int = 302) -> None:
        async def answer(request: server.BaseRequest) -> server.Response:
            return server.Response(status=status, headers={"Location": to})

        self.pages[path] = answer

    async def answer(self, request: server.BaseRequest) -> server.StreamResponse:
        self.requests.append(request)
        page = self.pages.get(request.path)
        return server.Response(status=404) if page is None else await page(request)


async def serving(address: str, port: int = 0) -> AsyncIterator[Site]:
    site = Site()
    runner = server.ServerRunner(server.Server(site.answer))
    await runner.setup()
    place = server.TCPSite(runner, address, port)
    await place.start()
    site.port = int(runner.addresses[0][1])
    yield site
    await runner.cleanup()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async for each in serving("127.0.0.1"):
        yield each


@pytest.fixture
async def private(site: Site) -> AsyncIterator[Site]:
    """On the same port of another address, so that only the address tells them apart."""
    async for each in serving("127.0.0.2", site.port):
        each.page("/", "the private page")
        yield each


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that a connection was begun to. Those outside of loopback fail at once."""
    begun: list[str] = []
    real = asyncio.SelectorEventLoop.sock_connect

    async def connect(self: Any, sock: socket.socket, address: Any) -> None:
        begun.append(address[0])
        if not ipaddress.ip_address(address[0]).is_loopback:
            raise ConnectionRefusedError("the tests leave loopback alone")
        await real(self, sock, address)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    return begun


def tools_for(site: Site, names: Names | None = None, **terms: Any) -> tuple[Tool, Tool]:
    names = names or Names(site_example=["127.0.0.1"])
    return web([f"{SITE}:{site.port}"], allow_private=True, resolve=names, **terms)


async def call(tool: Tool, **arguments: Any) -> Any:
    result = await tool.call(ToolContext(), json.dumps(arguments))
    assert result.taint == (f"tool:{tool.name}",)
    return result.value


async def fetched(site: Site, path: str, **arguments: Any) -> Any:
    return await call(tools_for(site)[0], url=site.url(path), **arguments)


# What comes back


async def test_a_page_becomes_markdown(site: Site) -> None:
    site.page(
        "/a/b",
        """<!doctype html><html><head><TITLE>Bees &amp; <b>honey</TITLE><style>p {}</style></head>
        <body><script>alert("x < y")</script><nav><a href="/">Home</a></nav>
        <h1>Bees</h1><p>They <b>make</b> <a href='c?x=1&amp;y=2'>sweet
        honey</a>.</p><ul><li>one<li>two</ul><table><tr><td>1<td>2</table>
        <!-- <p>hidden</p> --><img src="https://evil.example/?secret" alt="a bee">
        <a href="javascript:alert(1)">run</a> 2 < 3</body></html>""",
    )
    page = await fetched(site, "/a/b")
    assert page["title"] == "Bees & <b>honey"
    assert page["url"] == site.url("/a/b")
    text = page["text"]
    assert f"[Home]({site.url('/')})" in text
    assert "# Bees" in text
    assert f"They **make** [sweet honey]({site.url('/a/c?x=1&y=2')})." in text
    assert "- one\n- two" in text
    assert "| 1 | 2" in text
    assert "a bee" in text
    assert "run" in text
    assert "2 < 3" in text
    for absent in ("alert", "hidden", "evil", "javascript", "{"):
        assert absent not in text


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=latin-1", "größer".encode("latin-1"), "größer"),
        ("application/json", b'{"a": [1]}', '{"a": [1]}'),
        ("application/ld+json", b"[]", "[]"),
        ("text/csv", b"a,b\n", "a,b\n"),
        ("text/plain; charset=klingon", "größer".encode(), "größer"),
    ],
)
async def test_texts_are_returned_as_they_are(
    site: Site, kind: str, body: bytes, text: str
) -> None:
    site.page("/x", body, kind)
    assert (await fetched(site, "/x"))["text"] == text


async def test_a_long_page_is_read_in_parts(site: Site) -> None:
    site.page("/long", "x" * 45_000 + "END", "text/plain")
    first = await fetched(site, "/long")
    assert len(first["text"]) == 40_000
    assert first["more"] == "45003 characters in all; go on with start=40000"
    assert (await fetched(site, "/long", start=40_000))["text"].endswith("END")


async def test_a_pdf_is_read(site: Site) -> None:
    pypdf = pytest.importorskip("pypdf", reason="needs pypdf; install chargehand[documents]")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    data = io.BytesIO()
    writer.write(data)
    site.page("/x", data.getvalue(), "application/pdf")
    assert "[page 1]" in (await fetched(site, "/x"))["text"]


async def test_what_is_packed_is_unpacked(site: Site) -> None:
    site.page("/x", gzip.compress(b"packed", mtime=0), "text/plain", **{"Content-Encoding": "gzip"})
    assert (await fetched(site, "/x"))["text"] == "packed"
    assert site.requests[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("status", "headers", "kind", "seconds"),
    [
        (404, {}, "logic", None),
        (403, {}, "logic", None),
        (429, {"Retry-After": "7"}, "resource", 7),
        (503, {"Retry-After": "soon"}, "network", None),
    ],
)
async def test_an_error_of_the_host_is_told(
    site: Site, status: int, headers: dict[str, str], kind: str, seconds: int | None
) -> None:
    async def answer(request: server.BaseRequest) -> server.Response:
        return server.Response(status=status, headers=headers)

    site.pages["/x"] = answer
    with pytest.raises(ToolError, match=str(status)) as caught:
        await fetched(site, "/x")
    assert caught.value.kind == kind
    assert caught.value.retry_after == (timedelta(seconds=seconds) if seconds else None)


async def test_nobody_there_is_told(site: Site) -> None:
    fetch, _ = web([f"{SITE}:1"], allow_private=True, resolve=Names(site_example=["127.0.0.1"]))
    with pytest.raises(ToolError, match="was not reached") as caught:
        await call(fetch, url=f"http://{SITE}:1/")
    assert caught.value.kind == "network"


async def test_a_name_that_does_not_exist_is_told(site: Site) -> None:
    with pytest.raises(ToolError, match="was not found") as caught:
        await call(tools_for(site, Names())[0], url=site.url())
    assert caught.value.kind == "network"


# Redirects


async def test_redirects_that_stay_are_followed(site: Site) -> None:
    site.moved("/1", "/2", 301)
    site.moved("/2", site.url("/3"), 307)
    site.page("/3", "there", "text/plain", **{"Set-Cookie": "a=b"})
    page = await fetched(site, "/1")
    assert page == {"url": site.url("/3"), "text": "there"}


async def test_a_redirect_to_a_subdomain_is_followed(site: Site) -> None:
    site.moved("/1", f"http://www.{SITE}:{site.port}/2")
    site.page("/2", "there", "text/plain")
    names = Names(site_example=["127.0.0.1"], www_site_example=["127.0.0.1"])
    page = await call(tools_for(site, names)[0], url=site.url("/1"))
    assert page["text"] == "there"
    assert names.asked == [SITE, f"www.{SITE}"]


async def test_a_redirect_to_another_host_is_told_and_not_followed(site: Site) -> None:
    """Else an allowed host with an open redirect could be used to tell any other something."""
    site.moved("/1", "https://evil.example/?q=canary")
    names = Names(site_example=["127.0.0.1"], evil_example=["127.0.0.1"])
    fetch, _ = web([f"*:{site.port}"], allow_private=True, resolve=names)
    page = await call(fetch, url=site.url("/1"))
    assert page["moved_to"] == "https://evil.example/?q=canary"
    assert names.asked == [SITE]


async def test_a_circle_of_redirects_ends(site: Site) -> None:
    site.moved("/1", "/1")
    with pytest.raises(ToolError, match="redirects more than 5 times"):
        await fetched(site, "/1")
    assert len(site.requests) == 6


@pytest.mark.parametrize(
    "to",
    ["file:///etc/passwd", "ftp://site.example/", "gopher://x/", "http://u:p@site.example/"],
)
async def test_a_redirect_to_what_is_no_page_is_refused(site: Site, to: str) -> None:
    site.moved("/1", to)
    with pytest.raises(ToolError):
        await fetched(site, "/1")
    assert len(site.requests) == 1


async def test_nothing_of_one_request_is_sent_with_the_next(site: Site) -> None:
    """No cookies, no referrer, no authorization."""

    async def answer(request: server.BaseRequest) -> server.Response:
        return server.Response(status=302, headers={"Location": "/2", "Set-Cookie": "id=1; Path=/"})

    site.pages["/1"] = answer
    site.page("/2", "there", "text/plain")
    await fetched(site, "/1")
    assert set(site.requests[1].headers) <= {
        *("Host", "User-Agent", "Accept-Encoding", "Accept", "Connection")
    }


async def test_proxies_of_the_environment_are_not_used(
    site: Site, private: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, private.url("/", "127.0.0.2"))
    site.page("/x", "direct", "text/plain")
    assert (await fetched(site, "/x"))["text"] == "direct"
    assert private.requests == []


# Where no request goes: I6

OPEN = ["1.1.1.1", "8.8.8.8", PUBLIC, "172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255"]
OPEN += ["2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", OPEN)
def test_a_public_address_is_known(address: str) -> None:
    assert is_public(address)


def test_no_address_is_more_public_here_than_in_the_standard_library() -> None:
    chance = random.Random(6)
    for _ in range(5_000):
        four = ipaddress.IPv4Address(chance.getrandbits(32))
        six = ipaddress.IPv6Address(chance.getrandbits(128) >> chance.choice((0, 1, 2, 3, 64, 96)))
        for ip in (four, six):
            if is_public(str(ip)):
                assert ip.is_global or ip in ipaddress.ip_network("64:ff9b::/96")
                assert not ip.is_multicast


@pytest.mark.parametrize("address", PRIVATE)
async def test_i6_a_name_that_leads_to_it_is_refused(address: str, connections: list[str]) -> None:
    """Alone, and hidden behind a public one."""
    for answer in (address, f"{PUBLIC} {address}"):
        fetch, _ = web(["*"], resolve=Names(site_example=[answer]))
        with pytest.raises(ToolError, match="public network") as caught:
            await call(fetch, url=f"https://{SITE}/")
        assert caught.value.kind == "denied"
    assert connections == []


@pytest.mark.parametrize("url", SPELLINGS)
async def test_i6_no_spelling_gets_through(url: str, connections: list[str]) -> None:
    """With every host allowed, and the system's own resolver for names of this machine."""
    names = Names(
        site_example=["127.0.0.1"], **{"localhost": ["127.0.0.1"], "ip6-localhost": ["::1"]}
    )
    names._answers.update({"localhost_localdomain": ["127.0.0.1"], "1e3": ["127.0.0.1"]})
    names._answers.update({"0b1": ["127.0.0.1"]})
    fetch, _ = web(["*"], resolve=names)
    with pytest.raises(ToolError):
        await call(fetch, url=url)
    assert connections == []
    # What looks like a number is not left for a resolver to make something of.
    assert not [host for host in names.asked if host[0].isdecimal() and host not in ("1e3", "0b1")]


async def test_the_systems_own_names_of_this_machine_are_refused(connections: list[str]) -> None:
    fetch, _ = web(["*"])
    with pytest.raises(ToolError, match="public network"):
        await call(fetch, url="http://localhost/")
    assert connections == []


@pytest.fixture
def two_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 127.0.0.1 were public, so that a whole attack can be played on loopback."""
    monkeypatch.setattr(transport, "is_public", lambda address: address == "127.0.0.1")


async def test_i6_a_name_is_looked_up_once_for_a_request(
    site: Site, private: Site, two_networks: None, connections: list[str]
) -> None:
    """Rebinding: the first answer is public; the second, which nobody asks for, is private."""
    site.page("/", "public", "text/plain")
    names = Names(site_example=["127.0.0.1", "127.0.0.2"])
    fetch, _ = web([f"{SITE}:{site.port}"], resolve=names)
    assert (await call(fetch, url=site.url()))["text"] == "public"
    assert names.asked == [SITE]
    assert connections == ["127.0.0.1"]
    assert private.requests == []


async def test_i6_a_name_that_has_turned_private_is_refused_at_the_next_hop(
    site: Site, private: Site, two_networks: None
) -> None:
    site.moved("/1", "/")
    names = Names(site_example=["127.0.0.1", "127.0.0.2"])
    fetch, _ = web([f"{SITE}:{site.port}"], resolve=names)
    with pytest.raises(ToolError, match="public network"):
        await call(fetch, url=site.url("/1"))
    assert private.requests == []


@pytest.mark.parametrize("host", ["127.0.0.2", "2130706434", "inside.site.example"])
async def test_i6_a_redirect_into_a_private_network_leads_nowhere(
    site: Site, private: Site, two_networks: None, host: str
) -> None:
    site.moved("/1", private.url("/", host))
    names = Names(site_example=["127.0.0.1"], inside_site_example=["127.0.0.2"])
    fetch, _ = web([f"*:{site.port}"], resolve=names)
    try:
        page = await call(fetch, url=site.url("/1"))
    except ToolError:
        page = {}
    with pytest.raises(ToolError):
        await call(fetch, url=page.get("moved_to", private.url("/", host)))
    assert private.requests == []


async def test_a_redirect_to_another_port_is_refused(site: Site, private: Site) -> None:
    site.moved("/1", f"http://{SITE}:22/")
    with pytest.raises(ToolError, match="port 22"):
        await fetched(site, "/1")


async def test_the_checked_address_is_the_one_that_is_connected_to(connections: list[str]) -> None:
    """A public name, with whatever the system itself would say of it left out of account."""
    fetch, _ = web(["*"], resolve=Names(localhost=[f"{PUBLIC} 2606:4700::1111"]))
    with pytest.raises(ToolError, match="not reached"):
        await call(fetch, url="https://localhost/")
    assert set(connections) <= {PUBLIC, "2606:4700::1111"}
    assert PUBLIC in connections


# Limits


async def test_a_large_page_is_refused(site: Site) -> None:
    async def endless(request: server.BaseRequest) -> server.StreamResponse:
        response = server.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(bytes(64 * 1024))
        return response

    site.pages["/x"] = endless
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolError, match="larger than 5120 kB"):
        await fetched(site, "/x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 * 1024


async def test_a_bomb_is_not_unpacked(site: Site) -> None:
    """An eighth of a megabyte that would become an eighth of a gigabyte."""
    packing = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packing.compress(bytes(2**20)) for _ in range(128)) + packing.flush()
    site.page("/x", bomb, "text/plain", **{"Content-Encoding": "gzip"})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolError, match="larger than"):
        await fetched(site, "/x")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 * 1024


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(b"x" * 1000, mtime=0)[:-20], "gzip"),
        (b"not packed", "gzip"),
        (b"x", "br"),
        (b"x", "gzip, gzip"),
    ],
    ids=["cut off", "not packed", "another way", "twice"],
)
async def test_what_cannot_be_unpacked_whole_is_refused(
    site: Site, body: bytes, encoding: str
) -> None:
    site.page("/x", body, "text/plain", **{"Content-Encoding": encoding})
    with pytest.raises(ToolError, match=r"packed|cut off"):
        await fetched(site, "/x")


async def test_a_page_that_is_cut_off_is_not_taken_for_whole(site: Site) -> None:
    async def cut(request: server.BaseRequest) -> server.StreamResponse:
        response = server.StreamResponse(
            headers={"Content-Type": "text/plain", "Content-Length": "100"}
        )
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    site.pages["/x"] = cut
    with pytest.raises(ToolError, match="not reached"):
        await fetched(site, "/x")


async def test_a_host_that_stalls_is_given_up(site: Site) -> None:
    async def stall(request: server.BaseRequest) -> server.StreamResponse:
        response = server.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for _ in range(50):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    site.pages["/x"] = stall
    impatient = Transport(
        [f"{SITE}:{site.port}"],
        allow_private=True,
        resolve=Names(site_example=["127.0.0.1"]),
        time=timedelta(seconds=0.2),
    )
    with pytest.raises(ToolError, match=r"within 0\.2 s") as caught:
        await impatient.get(site.url("/x"))
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    "kind", ["image/png", "application/octet-stream", "video/mp4", "application/zip"]
)
async def test_what_is_no_text_is_refused(site: Site, kind: str) -> None:
    site.page("/x", b"\x00\x01", kind)
    with pytest.raises(ToolError, match=f"cannot be read: {kind}"):
        await fetched(site, "/x")


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "<",
            "<a",
            "<a ",
            "<!--",
            "<!-- >",
            "<![CDATA[",
            "<script>",
            "<title>",
            "</",
            "&",
            "&#",
            "<a href='",
        ),
        *(
            '<a href="x',
            "<p>",
            "<a href=x>",
            "<svg><title>",
            "<!",
            "<?",
            "<td",
            "> <",
            "<b></b>",
            "\n",
            " ",
        ),
    ],
)
def test_no_page_takes_longer_than_its_length_deserves(piece: str) -> None:
    """Each of these, repeated, makes some parser's time grow with the square."""
    source = piece * (400_000 // len(piece))
    started = time.process_time()
    read_page(source, "https://site.example/")
    assert time.process_time() - started < 5  # seconds; a square would take minutes


def test_bytes_say_themselves_how_they_are_written() -> None:
    assert decoded("ä".encode("utf-16"), "") == "ä"
    assert decoded(b"\xef\xbb\xbf\xc3\xa4", "latin-1") == "ä"
    assert decoded(b'<meta charset="latin-1">\xe4', "").endswith("ä")
    assert decoded(b'<meta charset="rot13">x', "").endswith("x")


# Where it may go: I4


def test_the_policy_is_told_the_host() -> None:
    fetch, search = web(["*"])
    assert (
        fetch.destination_of('{"url": "https://Docs.Example.ORG:443/x?y#z"}') == "docs.example.org"
    )
    assert fetch.destination_of('{"url": "https://bücher.example/"}') == "xn--bcher-kva.example"
    assert search.destination_of('{"query": "x"}') == "api.search.brave.com"
    with pytest.raises(ToolError):
        fetch.destination_of('{"url": "https://user@example.org/"}')


@pytest.mark.parametrize(
    ("url", "taint", "ruling"),
    [
        ("https://docs.example/x", (), Ruling.ALLOWED),
        ("https://sub.docs.example/x", (), Ruling.ALLOWED),
        ("https://docs.example/?q=canary", ("tool:fetch_page",), Ruling.ASK),
        ("https://evil.example/?q=canary", (), Ruling.DENIED),
        ("https://canary.evil.example/", (), Ruling.DENIED),
        ("https://docs.example.evil.example/", (), Ruling.DENIED),
        ("https://evildocs.example/", (), Ruling.DENIED),
        ("https://docs.example%2eevil.example/", (), None),
        ("https://docs.example@evil.example/", (), None),
    ],
)
def test_i4_egress_is_judged_by_its_destination(
    url: str, taint: tuple[str, ...], ruling: Ruling | None
) -> None:
    fetch, _ = web(["*"])
    grants = Grants(tools=frozenset({"fetch_page"}), destinations=frozenset({"docs.example"}))
    try:
        destination = fetch.destination_of(json.dumps({"url": url})) or ""
    except ToolError:
        assert ruling is None
        return
    traits = Traits(
        name=fetch.name, effect=fetch.effect, is_untrusted=fetch.untrusted, destination=destination
    )
    assert judge_call(traits, grants, Knowledge(taint=taint)).ruling is ruling


@pytest.mark.parametrize(
    "host", ["evil.example", "canary.evil.example", "site.example.evil.example", "notsite.example"]
)
async def test_i4_a_host_that_is_not_listed_is_not_even_looked_up(
    site: Site, host: str, connections: list[str]
) -> None:
    """A name alone can carry a secret to whoever answers for it."""
    names = Names()
    fetch, _ = tools_for(site, names)
    with pytest.raises(ToolError, match="not among the hosts") as caught:
        await call(fetch, url=f"http://{host}:{site.port}/?canary")
    assert caught.value.kind == "denied"
    assert names.asked == connections == []


async def test_i4_no_canary_leaves_with_a_page_that_asks_for_it(site: Site) -> None:
    """Links and pictures of a hostile page are text; nothing follows them by itself."""
    site.page(
        "/x",
        '<img src="/steal?canary"><iframe src="/steal"></iframe>'
        '<meta http-equiv=refresh content="0;url=/steal"><link rel=prefetch href="/steal">'
        '<script src="/steal"></script>![x](/steal)',
    )
    await fetched(site, "/x")
    assert [request.path for request in site.requests] == ["/x"]


@pytest.mark.parametrize(
    "allow", [["https://example.org"], ["example.org/x"], ["example.org:web"], "example.org"]
)
def test_a_list_that_cannot_be_meant_is_refused(allow: Any) -> None:
    with pytest.raises(UsageError):
        web(allow)


# Search


def engine(site: Site, key: str | None = "a-long-key") -> BraveSearch:
    return BraveSearch(key, url=site.url("/search", "127.0.0.1"), allow_private=True)


async def test_a_search_returns_the_best_pages(site: Site) -> None:
    results = [
        {"title": f"T{n}", "url": f"https://e.example/{n}", "description": "a-long-key"}
        for n in range(9)
    ]
    site.page("/search", json.dumps({"web": {"results": results}, "mixed": {}}), "application/json")
    _, search = tools_for(site, search=engine(site))
    found = await call(search, query="bees & honey", count=2)
    assert [hit["url"] for hit in found] == ["https://e.example/0", "https://e.example/1"]
    assert "a-long-key" not in json.dumps(found)
    assert dict(site.requests[0].query) == {"q": "bees & honey", "count": "2"}
    assert site.requests[0].headers["X-Subscription-Token"] == "a-long-key"
    assert search.destination == "127.0.0.1"


async def test_a_search_without_a_key_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BRAVE_KEY, raising=False)
    _, search = tools_for(site)
    with pytest.raises(ToolError, match=f"set {BRAVE_KEY}") as caught:
        await call(search, query="bees")
    assert caught.value.kind == "denied"


async def test_the_key_may_be_in_the_environment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BRAVE_KEY, "from-outside")
    site.page("/search", "{}", "application/json")
    _, search = tools_for(site, search=engine(site, None))
    assert await call(search, query="bees") == []
    assert site.requests[0].headers["X-Subscription-Token"] == "from-outside"


@pytest.mark.parametrize(("status", "body", "kind"),
    [(401, "", "denied"), (429, "", "resource"), (500, "", "network"), (400, "", "logic"),
     (200, "<html>", "network"), (200, '{"web": []}', "network"), (200, "[" * 100_000, "network")],
)  # fmt: skip
async def test_a_search_that_fails_is_told(site: Site, status: int, body: str, kind: str) -> None:
    async def answer(request: server.BaseRequest) -> server.Response:
        return server.Response(status=status, text=body)

    site.pages["/search"] = answer
    _, search = tools_for(site, search=engine(site))
    with pytest.raises(ToolError, match="search engine") as caught:
        await call(search, query="bees")
    assert caught.value.kind == kind
    assert "a-long-key" not in str(caught.value)


async def test_an_empty_query_is_not_sent(site: Site) -> None:
    with pytest.raises(ToolError, match="empty"):
        await call(tools_for(site, search=engine(site))[1], query="  ")
    assert site.requests == []


def test_the_tools_say_what_they_are() -> None:
    for each in web(["*"]):
        assert each.untrusted
        assert each.effect == "idempotent"
        assert Traits(name=each.name, effect=each.effect).acts
