"""Live events of runs as server-sent events (SSE).

All streams of a run share one feed. The feed reads the journal once for all streams and keeps a limited number of the
newest frames. Each stream takes frames from the feed at the speed of its reader. A stream that falls behind the oldest
frame is sent `event: resync` and ends. So a slow reader costs neither memory nor time.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import StreamingResponse
from starlette.types import Receive

from chargehand.engines.text_streams import TextStreams
from chargehand.errors import JournalBusy, UnknownRun
from chargehand.facts.answer import AnswerPiece, TaskPiece
from chargehand.facts.events import Event, RunFinished
from chargehand.journal.base import Journal
from chargehand.runtime.command_inbox import RETRY
from chargehand.server.http.error_bodies import Refusal
from chargehand.server.http.event_json import event_json

log = logging.getLogger("chargehand")

#: least seconds between two frames of a run
INTERVAL = 0.1
#: least seconds between two frames per open stream, so that many streams leave time for the runs themselves
INTERVAL_PER_STREAM = 0.001
#: number of streams woken at a time, and seconds of pause in between, in which the runs have the event loop
AT_ONCE, BREATH = 2, 0.001
#: most events in a frame, and events after which to yield to the event loop
MOST_EVENTS, SLICE = 200, 5
#: most bytes of cached past frames; many readers start at the same event
MOST_HISTORY = 8 * 2**20
#: most frames, and most bytes of frames, that a feed keeps
MOST_FRAMES, MOST_BYTES = 256, 4 * 2**20
#: seconds of silence after which a ping (an SSE comment) is sent
PING = 15.0
PING_FRAME = b": ping\n\n"
BYE = b"event: bye\ndata: {}\n\n"
RESYNC = b"event: resync\ndata: {}\n\n"
END = b"event: end\ndata: {}\n\n"
#: most text frames that wait for one reader
MOST_TEXTS = 64
#: most open streams of a server
MOST_STREAMS = 1_000


class Frame(Struct, frozen=True):
    """Several events, encoded for sending."""

    #: number of the event before the first one, and of the last one
    after: int
    last: int
    data: bytes
    #: whether the run has ended with this frame
    is_last: bool = False


class TextFeed:
    """Streams the text that models write for one run, for all streams of the run.

    The text is available only in the process that leads the run. It is not stored, and is dropped if a reader is too
    slow. `TextStreams` calls this object like a queue (`put_nowait` and `qsize`).
    """

    def __init__(self) -> None:
        #: the answer so far, for streams that join late
        self._answer = ""
        self._pieces: list[AnswerPiece | TaskPiece] = []
        self.is_new = asyncio.Event()

    def put_nowait(self, piece: AnswerPiece | TaskPiece) -> None:
        self._pieces.append(piece)
        self.is_new.set()

    def qsize(self) -> int:
        return len(self._pieces)

    def answer_so_far(self) -> bytes:
        """A frame with the answer so far; empty if there is none."""
        return (
            _text_frame("answer", {"text": self._answer, "begins_anew": True})
            if self._answer
            else b""
        )

    def take(self) -> tuple[list[bytes], list[bytes]]:
        """The new frames of the answer and of tasks since the last call; pieces of a task's text are joined."""
        pieces, self._pieces = self._pieces, []
        self.is_new.clear()
        answers: list[bytes] = []
        joined: dict[tuple[str, int, int], dict[str, Any]] = {}
        for piece in pieces:
            if isinstance(piece, AnswerPiece):
                self._answer = piece.text if piece.begins_anew else self._answer + piece.text
                told = {"text": piece.text, "begins_anew": piece.begins_anew}
                answers.append(_text_frame("answer", told))
                continue
            key = (piece.task, piece.attempt, piece.call)
            known = joined.get(key)
            if known is None or piece.begins_anew:
                joined[key] = known = {
                    "task": piece.task,
                    "attempt": piece.attempt,
                    "call": piece.call,
                    "text": "",
                    "begins_anew": piece.begins_anew,
                    "skipped": 0,
                }
            known["text"] += piece.text
            known["skipped"] += piece.skipped
        return answers, [_text_frame("token", told) for told in joined.values()]


def _text_frame(kind: str, told: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(told))


class RunFeed:
    """Reads the events of one run for all its streams."""

    def __init__(self, run: str, journal: Journal, after: int, streams: "EventStreams") -> None:
        self.run = run
        #: number of the last event that was read
        self.seq = after
        self.followers: set[RunStream] = set()
        self._journal = journal
        self._streams = streams
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self.texts = TextFeed()
        self.task = asyncio.ensure_future(self._read_on())
        self.task.add_done_callback(_log_failure)
        self._telling = asyncio.ensure_future(self._tell_on())
        self._telling.add_done_callback(_log_failure)

    def close(self) -> None:
        """Stop reading."""
        self.task.cancel()
        self._telling.cancel()

    def listen(self) -> None:
        """Subscribe to the text of models: of the answer, and of tasks if a stream wants that."""
        texts, wants = self._streams.texts, any(each.wants_tokens for each in self.followers)
        texts.remove(self.run, self.texts)
        texts.add(self.run, self.texts, tokens=wants)

    def deafen(self) -> None:
        self._streams.texts.remove(self.run, self.texts)

    async def _tell_on(self) -> None:
        """Pass on the text of models, several times a second."""
        while True:
            await self.texts.is_new.wait()
            await self._tell()
            await asyncio.sleep(max(INTERVAL, INTERVAL_PER_STREAM * self._streams.count))

    async def _tell(self) -> None:
        answers, tokens = self.texts.take()
        for number, follower in enumerate(list(self.followers), 1):
            follower.hear(answers, tokens)
            if number % AT_ONCE == 0:
                await asyncio.sleep(BREATH)

    def frame_behind(self, seq: int) -> Frame | None:
        """The frame that contains the event after `seq`; None if there is nothing new.

        Raises `LookupError` if that frame is no longer kept.
        """
        if seq >= self.seq:
            return None
        for frame in reversed(self._frames):
            if frame.after <= seq:
                return frame
        raise LookupError(seq)

    async def _read_on(self) -> None:
        signal, loop = self._journal.boards.signal, asyncio.get_running_loop()
        is_over = False
        while not is_over:
            known, began = signal.count, loop.time()
            try:
                is_over = await self._read()
            except JournalBusy as error:
                log.warning("stream_waits run=%s error=%s", self.run, error)
                await asyncio.sleep(RETRY)
                continue
            pause = max(INTERVAL, INTERVAL_PER_STREAM * self._streams.count)
            await asyncio.sleep(max(pause - (loop.time() - began), 0.0))
            await signal.wait(since=known)

    async def _read(self) -> bool:
        """Publish new events as frames. Returns whether the run has ended."""
        is_over = False
        with contextlib.suppress(UnknownRun):  # it is submitted but not started
            async for frame in frames(self._journal, self.run, self.seq):
                is_over = frame.is_last
                await self._publish(frame)
        return is_over

    async def _publish(self, frame: Frame) -> None:
        if frame.is_last:
            await self._tell()  # send the whole answer before the end
        self._frames.append(frame)
        self._bytes += len(frame.data)
        self.seq = frame.last
        while len(self._frames) > MOST_FRAMES or (
            self._bytes > MOST_BYTES and len(self._frames) > 1
        ):
            self._bytes -= len(self._frames.popleft().data)
        for number, follower in enumerate(list(self.followers), 1):
            follower.wake.set()
            if number % AT_ONCE == 0:
                await asyncio.sleep(BREATH)


class EventStreams:
    """All open streams of a server."""

    def __init__(self, journal: Journal, texts: TextStreams) -> None:
        self.journal = journal
        self.texts = texts
        self.is_stopping = False
        self.count = 0
        self._feeds: dict[str, RunFeed] = {}
        self._past: OrderedDict[tuple[str, int], Frame] = OrderedDict()
        self._past_bytes = 0
        self._reading = asyncio.Lock()

    def stop(self) -> None:
        """End all streams with `event: bye`."""
        self.is_stopping = True
        for feed in self._feeds.values():
            for follower in feed.followers:
                follower.wake.set()

    async def frame_of_past(self, run: str, after: int, last: int | None) -> Frame | None:
        """A frame of the events after `after`, up to `last`; None if there are none. Cached for all readers."""
        known = self._past.get((run, after))
        if known is not None and (last is None or known.last <= last):
            self._past.move_to_end((run, after))
            return known
        async with self._reading:  # one at a time, because the runs have priority
            if known is None:
                known = self._past.get((run, after))
                if known is not None and (last is None or known.last <= last):
                    return known
            with contextlib.suppress(UnknownRun):  # it is submitted but not started
                async for frame in frames(self.journal, run, after, last):
                    self._keep(run, frame)
                    return frame
        return None

    def _keep(self, run: str, frame: Frame) -> None:
        """Cache a frame. Events never change, so a cached frame remains valid."""
        old = self._past.pop((run, frame.after), None)
        self._past[run, frame.after] = frame
        self._past_bytes += len(frame.data) - (0 if old is None else len(old.data))
        while self._past_bytes > MOST_HISTORY and len(self._past) > 1:
            self._past_bytes -= len(self._past.popitem(last=False)[1].data)

    @contextlib.contextmanager
    def following(self, stream: "RunStream", after: int) -> Iterator[RunFeed]:
        """The feed of a run, which reads new events inside the block."""
        feed = self._feeds.get(stream.run)
        if feed is None or feed.task.done():
            feed = self._feeds[stream.run] = RunFeed(stream.run, self.journal, after, self)
        feed.followers.add(stream)
        feed.listen()
        try:
            yield feed
        finally:
            feed.followers.discard(stream)
            feed.listen()
            if not feed.followers:
                feed.deafen()
                feed.close()
                if self._feeds.get(stream.run) is feed:
                    del self._feeds[stream.run]


class RunStream:
    """One reader of the events of a run."""

    def __init__(
        self,
        streams: EventStreams,
        run: str,
        after: int,
        *,
        is_granted: Callable[[], bool],
        wants_tokens: bool = False,
    ) -> None:
        self.run = run
        #: called before each frame: meanwhile, a token may be revoked or a session logged out
        self._is_granted = is_granted
        self.wants_tokens = wants_tokens
        self.wake = asyncio.Event()
        #: frames with text of models
        self._texts: deque[bytes] = deque()
        #: number of task frames dropped since the last one that was kept
        self._dropped = 0
        self._streams = streams
        self._seq = after
        self._is_over = False
        self._is_gone = False

    def response(self, receive: Receive) -> StreamingResponse:
        """The stream as a response. It ends when the reader disconnects."""
        if self._streams.count >= MOST_STREAMS:
            raise Refusal(
                *(503, "TooManyStreams", f"{MOST_STREAMS} streams are open"),
                "close some, or read GET runs/{id}/log",
            )
        return StreamingResponse(
            self._counted(receive),
            media_type="text/event-stream",
            headers={
                "cache-control": "no-store",
                "connection": "close",  # so that a stopping server need not wait for the connection
                "x-accel-buffering": "no",
            },
        )

    def hear(self, answers: list[bytes], tokens: list[bytes]) -> None:
        """Queue text frames. If too many wait, frames of tasks are dropped, but not those of the answer."""
        self._texts += answers
        for frame in tokens if self.wants_tokens else ():
            if len(self._texts) >= MOST_TEXTS:
                self._dropped += 1
                continue
            if self._dropped:
                self._texts.append(_text_frame("token", {"dropped": self._dropped}))
                self._dropped = 0
            self._texts.append(frame)
        if self._texts:
            self.wake.set()

    async def _counted(self, receive: Receive) -> AsyncIterator[bytes]:
        watch = asyncio.ensure_future(self._watch(receive))
        self._streams.count += 1
        try:
            async for data in self._frames():
                if not self._is_granted():
                    yield BYE
                    return
                yield data
        finally:
            self._streams.count -= 1
            watch.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        self.wake.set()

    async def _frames(self) -> AsyncIterator[bytes]:
        yield b": chargehand\n\n"  # sends the headers to the reader at once
        if self._seq > 0:
            known = await self._known_event()
            if known is None:  # otherwise it would wait for events that never come
                yield RESYNC
                return
            self._is_over = isinstance(known, RunFinished)
        async for data in self._missed(None):
            yield data
        with self._streams.following(self, self._seq) as feed:
            if (so_far := feed.texts.answer_so_far()) and not self._is_over:
                yield so_far
            while not self._is_over and not self._is_gone:
                if self._streams.is_stopping:
                    yield BYE
                    return
                self.wake.clear()
                while self._texts:
                    yield self._texts.popleft()
                try:
                    frame = feed.frame_behind(self._seq)
                except LookupError:
                    yield RESYNC
                    return
                if frame is None and feed.task.done():  # the feed has failed
                    yield RESYNC
                    return
                if len(self._texts) > 2 * MOST_TEXTS:
                    yield RESYNC  # the reader is too slow even for the answer
                    return
                if frame is None:
                    if not await self._is_woken():
                        yield PING_FRAME
                elif frame.after == self._seq:
                    self._seq, self._is_over = frame.last, frame.is_last
                    yield frame.data
                else:  # this stream has already sent some events of the frame
                    async for data in self._missed(frame.last):
                        yield data
        while self._texts:
            yield self._texts.popleft()
        if self._is_over:
            yield END

    async def _missed(self, last: int | None) -> AsyncIterator[bytes]:
        """The events that are in the journal already, up to `last`."""
        while not (self._is_over or self._is_gone or self._streams.is_stopping):
            if last is not None and self._seq >= last:
                return
            frame = await self._streams.frame_of_past(self.run, self._seq, last)
            if frame is None:
                return
            self._seq, self._is_over = frame.last, frame.is_last
            yield frame.data

    async def _known_event(self) -> Event | None:
        """The event after which the stream starts; None if the run has no event with this number."""
        with contextlib.suppress(UnknownRun):
            async for entry in self._streams.journal.read(self.run, self._seq - 1):
                return entry.event
        return None

    async def _is_woken(self) -> bool:
        try:
            async with asyncio.timeout(PING):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True


async def frames(
    journal: Journal, run: str, after: int, last: int | None = None
) -> AsyncIterator[Frame]:
    """Read the events of a run after `after`, up to `last`, as frames."""
    parts: list[bytes] = []
    seq, is_over = after, False
    async for entry in journal.read(run, after):
        if last is not None and entry.seq > last:
            break
        parts.append(event_json(run, entry.seq, entry.event))
        seq, is_over = entry.seq, isinstance(entry.event, RunFinished)
        if len(parts) % SLICE == 0:
            await asyncio.sleep(0)
        if len(parts) == MOST_EVENTS:
            yield _frame(after, seq, parts, is_over=is_over)
            after, parts = seq, []
    if parts:
        yield _frame(after, seq, parts, is_over=is_over)


def _frame(after: int, last: int, parts: list[bytes], *, is_over: bool) -> Frame:
    return Frame(after, last, b"id: %d\ndata: [%s]\n\n" % (last, b",".join(parts)), is_over)


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("stream_failed error=%s: %s", type(error).__name__, error)
