"""Connections that are kept: what comes unasked is never an answer, and what went stale is no failure."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from chargehand.errors import ModelGarbled, ModelTooSlow, ModelUnreachable
from chargehand.models import http_transport as http
from chargehand.models.base import Model, ModelReply, ModelRequest, user
from chargehand.models.connection_settings import ModelTimeouts
from chargehand.models.open_model import open_model

REQUEST = ModelRequest(turns=(user("hello"),))
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[bool]]


def completion(text: str) -> bytes:
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def streamed(*events: object) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: keep-alive\r\n"
    body = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
    body += b"data: [DONE]\n\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


SAID = {"choices": [{"delta": {"content": "one"}, "finish_reason": "stop"}]}


class Server:
    """Answers requests with raw bytes, and counts them and the connections."""

    def __init__(self, answer: Answer) -> None:
        self.requests = self.connections = 0
        self.left = asyncio.Event()
        self._answer = answer

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                self.requests += 1
                if not await self._answer(self.requests, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.left.set()


@asynccontextmanager
async def serving(answer: Answer, **options: Any) -> AsyncIterator[tuple[Model, Server]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.take, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    try:
        yield open_model("openai:m", base_url=url, key="k" * 10, **options), server
    finally:
        listening.close()


async def stream(model: Model) -> ModelReply:
    replies = [piece async for piece in model.stream(REQUEST) if isinstance(piece, ModelReply)]
    return replies[-1]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "still in the socket"])
async def test_a_reply_left_on_an_idle_connection_is_never_the_next_answer(is_seen: bool) -> None:
    kept: list[asyncio.StreamWriter] = []

    async def answer(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(completion(f"answer {number}"))
        kept.append(writer)
        return True

    async with serving(answer) as (model, server):
        assert (await model.ask(REQUEST)).text == "answer 1"
        kept[0].write(completion("never asked for"))
        for _ in range(20 if is_seen else 0):
            await asyncio.sleep(0)
        assert (await model.ask(REQUEST)).text == "answer 2"
        assert (server.requests, server.connections) == (2, 2)


@pytest.mark.parametrize("way", ["whole", "streamed"])
async def test_a_connection_that_went_stale_is_replaced_and_the_call_sent_once(way: str) -> None:
    """As llama.cpp does: it says that it keeps the connection, and closes it after a stream."""

    async def answer(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(streamed(SAID) if way == "streamed" or number % 2 else completion("two"))
        await writer.drain()
        return False

    async with serving(answer) as (model, server):
        for _ in range(4):
            assert (await stream(model)).text == "one"
            reply = await (stream(model) if way == "streamed" else model.ask(REQUEST))
            assert reply.text == ("one" if way == "streamed" else "two")
        assert server.requests == 8


async def test_a_connection_that_breaks_under_the_request_is_tried_again_only_if_it_was_kept() -> (
    None
):
    async def answer(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 2:
            return False  # it takes the request on a kept connection, and hangs up
        writer.write(completion(f"answer {number}"))
        await writer.drain()
        return True

    async with serving(answer) as (model, server):
        assert (await model.ask(REQUEST)).text == "answer 1"
        assert (await model.ask(REQUEST)).text == "answer 3"
        assert server.connections == 2

    async def silent(_number: int, _writer: asyncio.StreamWriter) -> bool:
        return False

    async with serving(silent) as (model, server):
        with pytest.raises(ModelUnreachable, match="hung up") as caught:
            await model.ask(REQUEST)
        assert caught.value.may_be_paid
        assert server.requests == 1


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def test_a_stream_has_the_same_bound_as_a_whole_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "LARGEST_REPLY", 200_000)
    event = b"data: " + json.dumps({"choices": [{"delta": {"content": "x" * 900}}]}).encode()

    async def answer(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(HEAD)
        while True:  # until the client has had enough
            writer.write((event + b"\n\n") * 20)
            await writer.drain()

    async with serving(answer) as (model, _):
        with pytest.raises(ModelGarbled, match="larger than any model's"):
            await stream(model)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("head", "drip"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" "),
    ],
    ids=["interim replies", "a header", "a body"],
)
async def test_what_trickles_in_for_ever_is_given_up_in_time(
    is_streamed: bool, head: bytes, drip: bytes
) -> None:
    """A limit on silence never strikes while single bytes arrive."""
    gone = asyncio.Event()

    async def answer(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        while not gone.is_set():
            writer.write(drip)
            await writer.drain()
            await asyncio.sleep(0.01)
        return False

    limit = timedelta(seconds=0.2)
    timeouts = ModelTimeouts(answer=limit, silence=limit, total=timedelta(seconds=1))
    async with serving(answer, timeouts=timeouts) as (model, _):
        with pytest.raises(ModelTooSlow, match=r"took longer|fell silent"):
            await asyncio.wait_for(stream(model) if is_streamed else model.ask(REQUEST), 5)
        gone.set()


@pytest.mark.parametrize(
    ("timeouts", "words"),
    [
        (ModelTimeouts(silence=timedelta(seconds=0.2)), "fell silent"),
        (ModelTimeouts(total=timedelta(seconds=0.2)), "took longer"),
    ],
)
async def test_what_only_keeps_a_stream_alive_is_no_answer(
    timeouts: ModelTimeouts, words: str
) -> None:
    gone = asyncio.Event()

    async def answer(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(HEAD)
        while not gone.is_set():
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        return False

    async with serving(answer, timeouts=timeouts) as (model, _):
        with pytest.raises(ModelTooSlow, match=words):
            await asyncio.wait_for(stream(model), 5)
        gone.set()


@pytest.mark.parametrize("unpacked", [b": all is well\n", b"data: 00000000\n\n", b"0"])
async def test_a_stream_that_unpacks_without_end_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, unpacked: bytes
) -> None:
    """What is bounded is what comes out, not what goes over the wire; and it is never held as a whole."""
    monkeypatch.setattr(http, "LARGEST_REPLY", 4_000_000)
    packed = gzip.compress(unpacked * (60_000_000 // len(unpacked)))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"

    async def answer(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)
        await writer.drain()
        return True

    async with serving(answer) as (model, _):
        tracemalloc.start()
        try:
            with pytest.raises(ModelGarbled):
                await stream(model)
            assert tracemalloc.get_traced_memory()[1] < 40_000_000
        finally:
            tracemalloc.stop()


EVENTS = (
    'data: {"é": 1}\n\n: alive\n\nevent: x\nid: 1\nretry: 9\nfoo: bar\nbar\ndatum: 1\ndata:two\n\n'
    "data: 3\ndata\ndata: 4\n\n\ndata: 5\n\ndata: cut off"
)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "BOM"])
def test_d5_events_are_read_by_the_rules_of_the_format_wherever_they_are_cut(
    start: str, end: str
) -> None:
    body = (start + EVENTS.replace("\n", end)).encode()
    for at in range(len(body)):
        for more in (1, 2, len(body)):
            lines, found = http._Lines(), list[bytes]()
            for chunk in (body[:at], body[at : at + more], body[at + more :]):
                lines.feed(chunk)
                while (event := lines.next_event()) is not None:
                    found.append(event)
            assert found == ['{"é": 1}'.encode(), b"two", b"3\n\n4", b"5"]


def test_only_one_byte_order_mark_is_skipped_and_only_at_the_start() -> None:
    lines = http._Lines()
    lines.feed("\ufeff\ufeffdata: 1\n\n\ufeffdata: 2\n\ndata: \ufeff3\n\n".encode())
    assert lines.next_event() == "\ufeff3".encode()
    assert lines.next_event() is None


async def test_d5_a_stream_that_begins_with_a_byte_order_mark_is_whole() -> None:
    chunks = [
        f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': why}]})}\n\n"
        for text, why in (("Do NOT ", None), ("sell", "stop"))
    ]
    body = ("\ufeff" + "".join(chunks) + "data: [DONE]\n\n").encode()

    async def answer(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(HEAD + body)
        await writer.drain()
        return False

    async with serving(answer, protocol="chat") as (model, _):
        assert (await stream(model)).text == "Do NOT sell"


def test_a_long_line_is_looked_through_once() -> None:
    lines = http._Lines()
    chunk = b"x" * 65_536
    for _ in range(1000):
        lines.feed(chunk)
    lines.feed(b"\ndata: end\n\n")
    assert lines.next_event() == b"end"
