"""Follows the events of a run on a server, and reconnects when a connection is lost."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec

from chargehand.client.replies import UNREADABLE, fact_of, foreign
from chargehand.client.slow_server_warnings import ServerWait
from chargehand.errors import ServerUnreachable

#: waits before a new connection double from twice `FIRST_WAIT` to `LONGEST_WAIT`, in seconds; `MOST_TRIES` in a row
FIRST_WAIT, LONGEST_WAIT, MOST_TRIES = 0.2, 5.0, 10
#: seconds after which a connection without events counts as good when a ping arrives; the server pings every 15
SOUND = 10.0
#: most bytes of a frame; a frame contains up to 200 events, with large values cut
MOST_BYTES = 64 * 2**20
#: the kind of a frame that is only a ping
COMMENT = ":"
#: the kinds of frames with text from models
_TEXTS = ("token", "answer")


class StreamFrame(NamedTuple):
    """One frame of a stream. A frame with events has an empty kind."""

    kind: str
    data: Any


#: opens a connection that streams the frames after the event with this number
Connect = Callable[[int], AsyncGenerator[StreamFrame, None]]


class EventFollower:
    """Reads the events of one run until its end, each once. Reconnects when a connection is lost."""

    def __init__(self, url: str, run: str, after: int, connect: Connect) -> None:
        self._url = url
        self._run = run
        #: number of the last event that was passed on
        self._seq = after
        self._connect = connect
        #: failed connections in a row
        self._tries = 0
        self._wait = ServerWait(
            url,
            f"the events of run {run}",
            "check that chargehand serve is running there; Ctrl-C ends this wait, not the run",
        )

    async def frames(self) -> AsyncGenerator[StreamFrame, None]:
        """Events and texts until the end of the run. Raises `ServerUnreachable` after ten failures in a row."""
        try:
            while True:
                self._wait.begin()
                lost = self._ended_early()
                try:
                    async with aclosing(self._connect(self._seq)) as frames:
                        async for frame in self._news_in(frames):
                            if frame.kind == "end":
                                return
                            yield frame
                except ServerUnreachable as error:
                    lost = error
                self._tries += 1
                if self._tries >= MOST_TRIES:
                    raise lost
                self._wait.begin(str(lost).partition("; ")[0])
                await asyncio.sleep(min(FIRST_WAIT * 2**self._tries, LONGEST_WAIT))
        finally:
            self._wait.end()

    async def _news_in(self, frames: AsyncIterator[StreamFrame]) -> AsyncIterator[StreamFrame]:
        """The new events, the texts and the end of one connection."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async for frame in frames:
            self._wait.end()
            news = frame if frame.kind else StreamFrame("", self._new(frame.data))
            is_news = bool(news.data) if not news.kind else news.kind in _TEXTS
            if is_news or loop.time() - began >= SOUND:
                self._tries = 0
                self._wait.forget()
            if is_news or news.kind == "end":
                yield news

    def _new(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The events that were not passed on before: a server may repeat some."""
        new = []
        for event in events:
            if event["seq"] > self._seq:
                self._seq = event["seq"]
                new.append(event)
        return new

    def _ended_early(self) -> ServerUnreachable:
        return ServerUnreachable(
            f"{self._url} ended the stream of events of run {self._run} before the run had ended; "
            "is chargehand serve running there?"
        )


async def frames_in(url: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[StreamFrame]:
    """Parse an event stream into frames. Raises `ServerRefused` for anything else."""
    buffer = b""
    async for chunk in chunks:
        buffer += chunk
        *whole, buffer = buffer.split(b"\n\n")
        if len(buffer) > MOST_BYTES:
            raise foreign(url, 200, f"a stream in which no event ends within {MOST_BYTES} bytes")
        for text in whole:
            yield _frame(url, text)


def _frame(url: str, text: bytes) -> StreamFrame:
    fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if b": " in line)
    if b"data" not in fields:
        return StreamFrame(COMMENT, None)
    kind = fields.get(b"event", b"").decode("ascii", "replace")
    try:
        if kind:
            return StreamFrame(kind, msgspec.json.decode(fields[b"data"], type=dict[str, Any]))
        events = msgspec.json.decode(fields[b"data"], type=list[dict[str, Any]])
    except UNREADABLE as error:
        raise foreign(url, 200, f"a stream of {fact_of(fields[b'data'], error)}") from None
    if not all(type(each.get("seq")) is int and type(each.get("kind")) is str for each in events):
        raise foreign(url, 200, "a stream of events without a number or a kind")
    return StreamFrame("", events)
