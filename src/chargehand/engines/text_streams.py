"""Text while models write it, passed on to those who listen: pieces of answers, and of tasks on request."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from chargehand.decisions.system_tasks import ANSWER
from chargehand.facts.answer import AnswerPiece, TaskPiece
from chargehand.facts.events import AttemptStarted, Event

#: what may wait for a reader before pieces of tasks are dropped; events and the answer are never dropped
MOST_WAITING = 1000


class PieceQueue(Protocol):
    """Where pieces are put."""

    def put_nowait(self, piece: Any, /) -> None: ...

    def qsize(self) -> int: ...


class _Reader(NamedTuple):
    queue: PieceQueue
    #: whether it wants the pieces of tasks, too
    tokens: bool
    #: by task: characters that were dropped since its last piece
    skipped: dict[str, int]


class TextStreams:
    """Passes pieces of text on to the queues of readers, by run. Nothing is kept."""

    def __init__(self) -> None:
        self._readers: dict[str, list[_Reader]] = {}

    def add(self, run: str, queue: PieceQueue, *, tokens: bool) -> None:
        """Put the pieces of this run into the queue from now on, whether it has begun or not."""
        self._readers.setdefault(run, []).append(_Reader(queue, tokens, {}))

    def remove(self, run: str, queue: PieceQueue) -> None:
        left = [reader for reader in self._readers.pop(run, ()) if reader.queue is not queue]
        if left:
            self._readers[run] = left

    @contextmanager
    def reading(
        self, run: str, *, tokens: bool
    ) -> "Iterator[asyncio.Queue[AnswerPiece | TaskPiece]]":
        """A queue that gets the pieces of this run while the block lasts."""
        queue: asyncio.Queue[AnswerPiece | TaskPiece] = asyncio.Queue()
        self.add(run, queue, tokens=tokens)
        try:
            yield queue
        finally:
            self.remove(run, queue)

    def wants_tokens(self, run: str) -> bool:
        """Whether a reader wants the pieces of tasks: nothing need be streamed for nobody."""
        return any(reader.tokens for reader in self._readers.get(run, ()))

    def say(self, run: str, piece: AnswerPiece | TaskPiece) -> None:
        for reader in self._readers.get(run, ()):
            if isinstance(piece, AnswerPiece):
                reader.queue.put_nowait(piece)
            elif reader.tokens:
                _offer(reader, piece)


async def with_pieces(
    events: AsyncIterator[Event], pieces: "asyncio.Queue[AnswerPiece | TaskPiece]"
) -> AsyncIterator[Event | AnswerPiece | TaskPiece]:
    """These events, and between them the pieces that come meanwhile; nothing after the last event.

    Events go through the journal and pieces do not, so a piece waits for the event that began its attempt.
    """
    begun: set[str] = set()
    early: dict[str, list[AnswerPiece | TaskPiece]] = {}
    event: asyncio.Future[Event] = asyncio.ensure_future(anext(events))
    piece = asyncio.ensure_future(pieces.get())
    try:
        while True:
            await asyncio.wait((event, piece), return_when=asyncio.FIRST_COMPLETED)
            while piece.done():
                attempt = _attempt_of(piece.result())
                if attempt in begun:
                    yield piece.result()
                else:
                    early.setdefault(attempt, []).append(piece.result())
                piece = asyncio.ensure_future(pieces.get())
                await asyncio.sleep(0)
            if event.done():
                try:
                    heard = event.result()
                except StopAsyncIteration:
                    return
                yield heard
                if isinstance(heard, AttemptStarted):
                    attempt = _attempt_key(heard.task, heard.attempt)
                    begun.add(attempt)
                    for waiting in early.pop(attempt, ()):
                        yield waiting
                event = asyncio.ensure_future(anext(events))
    finally:
        event.cancel()
        piece.cancel()
        await asyncio.gather(event, piece, return_exceptions=True)


def _attempt_of(piece: AnswerPiece | TaskPiece) -> str:
    return ANSWER if isinstance(piece, AnswerPiece) else _attempt_key(piece.task, piece.attempt)


def _attempt_key(task: str, attempt: int) -> str:
    return ANSWER if task == ANSWER else f"{task}:{attempt}"


def _offer(reader: _Reader, piece: TaskPiece) -> None:
    """Hand a piece of a task to a reader, unless too much waits for it already."""
    lost = reader.skipped.get(piece.task, 0)
    if reader.queue.qsize() >= MOST_WAITING:
        reader.skipped[piece.task] = lost + len(piece.text)
        return
    if lost:
        del reader.skipped[piece.task]
        piece = replace(piece, skipped=lost)
    reader.queue.put_nowait(piece)
