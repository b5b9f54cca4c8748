"""Requests that fit the context of a model: tokens are counted, and results packed into chunks."""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from chargehand.errors import WorkerError
from chargehand.models.base import ModelReply, ModelRequest
from chargehand.models.gateway import Hear
from chargehand.roles.data_fences import fenced, quoted
from chargehand.roles.durable_model_calls import ModelCaller
from chargehand.roles.shared_resources import Resources

#: tokens that a provider may add around a turn, or around a schema
FRAME = 16
#: tokens of material without which a request is not worth sending
LEAST = 200

#: tokens, where nobody says what the model holds
CONTEXT = 32_000
#: calls side by side
AT_ONCE = 8
T = TypeVar("T")


class Item(Struct, frozen=True):
    """Something an answer is to be made of: a result, or notes on several."""

    #: by which statements refer to it
    name: str
    heading: str
    text: str
    #: whose results it tells of
    tasks: tuple[str, ...]
    #: its place in the plan
    order: int = 0


class ChunkBlock(Struct, frozen=True):
    """An item, or a part of one, as a model is shown it."""

    item: Item
    text: str
    tokens: int


def tokens_in(text: str) -> int:
    """No fewer tokens than any usual model makes of this text.

    Two letters of ASCII to a token, where four are usual; of all else, every byte.
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return -(-plain // 2) + len(text.encode("utf-8", "surrogatepass")) - plain


def tokens_of(request: ModelRequest) -> int:
    """No fewer tokens than this request and the longest answer to it have together."""
    texts = [part.text for turn in request.turns for part in turn.parts if hasattr(part, "text")]
    if request.schema is not None:
        texts.append(msgspec.json.encode(request.schema).decode())
    frames = FRAME * (len(request.turns) + (request.schema is not None))
    return sum(map(tokens_in, texts)) + frames + request.settings.max_tokens


def block_of(item: Item) -> ChunkBlock:
    """The item in one block, however large."""
    return _block(item, f"{item.heading}:", item.text)


def blocks_of(item: Item, room: int) -> list[ChunkBlock]:
    """The item in one block, or in as many as it takes for each to have no more tokens than `room`."""
    whole = block_of(item)
    if whole.tokens <= room:
        return [whole]
    # Marking borders makes a text longer, so it is done before cutting; a cut through a line can
    # bring one more border to light, for which two tokens are spared.
    frame = _block(item, f"{item.heading}, part 9999 of 9999:", "").tokens + 2
    pieces = list(pieces_of(quoted(item.text), max(room - frame, 4)))
    return [
        _block(item, f"{item.heading}, part {number} of {len(pieces)}:", piece)
        for number, piece in enumerate(pieces, 1)
    ]


def _block(item: Item, heading: str, text: str) -> ChunkBlock:
    words = f"{heading}\n{fenced(item.name, text)}\n"
    return ChunkBlock(item, words, tokens_in(words))


def pieces_of(text: str, most: int) -> Iterator[str]:
    """The text in pieces of at most so many tokens, cut at the end of a line or a word if there is one."""
    start = 0
    while start < len(text):
        window = text[start : start + 2 * most]
        size = bisect_right(range(len(window) + 1), most, key=lambda n: tokens_in(window[:n])) - 1
        size = max(size, 1)
        if start + size < len(text):
            size = _good_cut(window[:size])
        yield text[start : start + size]
        start += size


def _good_cut(window: str) -> int:
    """Where to cut: behind the last line, else the last word, unless that wastes half of the room."""
    for mark in ("\n", " "):
        at = window.rfind(mark) + 1
        if at > len(window) // 2:
            return at
    return len(window)


def chunks_of(blocks: Iterable[ChunkBlock], room: int) -> list[list[ChunkBlock]]:
    """The blocks, in their order, in chunks of at most `room` tokens.

    A chunk is closed by the first block that no longer fits and never touched again: whatever
    comes later, the chunks before the last stay as they are.
    """
    chunks: list[list[ChunkBlock]] = []
    left = 0
    for block in blocks:
        if not chunks or block.tokens > left:
            chunks.append([])
            left = room
        chunks[-1].append(block)
        left -= block.tokens
    return chunks


def clipped(text: str, most: int) -> str:
    """The text in at most so many tokens: its beginning and its end, and how much is left out between."""
    if tokens_in(text) <= most:
        return text
    said = f"\n[… {len(text)} characters, not all of them shown …]\n"
    left = max(most - tokens_in(said), 8)
    head = next(pieces_of(text, left * 2 // 3))
    tail = next(pieces_of(text[::-1], left // 3))[::-1]
    return f"{head}{said}{tail}"


def shown(blocks: Sequence[ChunkBlock]) -> str:
    """The blocks as they stand in a prompt: in the order of the plan, however they were packed."""
    return "".join(block.text for block in sorted(blocks, key=lambda block: block.item.order))


class LimitedModelCaller:
    """Measures every request before it goes out; one that could overflow is never sent."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller
        self.context: int = context_of(caller.resources)
        #: who answered last
        self.by = ""
        self._heard: set[str] = set()

    @property
    def resources(self) -> Resources:
        return self._caller.resources

    async def ask(self, name: str, request: ModelRequest, hear: Hear | None = None) -> ModelReply:
        tokens = tokens_of(request)
        if tokens > self.context:
            raise WorkerError(
                f"{name!r} was not asked: it could take {tokens} tokens with its answer, and the "
                f"context has {self.context}; raise ModelSettings(context=…) if the model holds more"
            )
        if hear is not None and name in self._heard:
            hear(None)  # what was heard before was sent back
        self._heard.add(name)
        reply = await self._caller.ask(name, request, hear)
        self.by = reply.model or self.resources.models(None, "the supervisor")[0].name
        return reply

    def room_beside(self, request: ModelRequest) -> int:
        """The tokens of material that may be added to a request. Raises if that is next to nothing."""
        room = self.context - tokens_of(request)
        if room < LEAST:
            most = request.settings.max_tokens
            raise WorkerError(
                f"the context has {self.context} tokens; the request and its instruction take up to "
                f"{tokens_of(request) - most}, the answer up to {most}, and nothing is left for the "
                "results; raise ModelSettings(context=…) or lower max_tokens",
                kind="denied",
            )
        return room


def context_of(resources: Resources) -> int:
    """The tokens that a request and its answer may have together."""
    return resources.settings.context or CONTEXT


async def side_by_side(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What these came to, in their order. The first that fails stops the others, and is raised."""
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(work: Callable[[], Awaitable[T]]) -> T:
        async with places:
            return await work()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(placed(work)) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
