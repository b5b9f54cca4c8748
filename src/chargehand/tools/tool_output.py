"""The output of a tool: JSON without secrets, cut to the size that a model should see."""

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.errors import JournalError, NotJSON
from chargehand.facts.value import Value
from chargehand.tools.redaction import Redactor

#: stores an output that is too long to show, and returns a name for it; `journal.blobs.put` is one
Spool: TypeAlias = Callable[[bytes], Awaitable[str]]

#: bytes after which reading of a stream stops, even if the whole output can be stored
MOST_SPOOLED = 8 * 1024 * 1024


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """The output of a tool call. It can be stored as JSON, because it is the result of a step."""

    #: JSON data; if it was cut, the beginning as text
    value: Any = None
    is_truncated: bool = False
    #: the untrusted sources from which it derives
    taint: tuple[str, ...] = ()
    #: the name under which the whole output is stored, if it was cut; empty: it is not stored
    spooled: str = ""

    @property
    def text(self) -> str:
        """The text that the model sees."""
        return text_of(self.value)


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "(done; it returns nothing)" if value is None else msgspec.json.encode(value).decode()


class OutputBuffer:
    """Collects the pieces of a stream up to a number of bytes, and then stops reading."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: list[str] = []
        self._size = 0
        self._is_closed = False
        self.is_cut = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def close(self) -> None:
        """Make a thread that still fills the buffer stop at its next piece."""
        self._is_closed = True

    def take(self, piece: object) -> bool:
        """Add a piece; returns whether there is room for more. A piece that is not text becomes a line of JSON."""
        if not isinstance(piece, str):
            piece = bytes(Value.of(piece).json).decode() + "\n"
        room = self._most - self._size
        kept = piece[: room + 1]
        self._size += size_of(kept)
        self._pieces.append(kept)
        self.is_cut = self._size > self._most
        return not (self.is_cut or self._is_closed)

    async def read(self, stream: AsyncIterable[object]) -> "OutputBuffer":
        """Read an async stream, and close it when the buffer is full."""
        async for piece in stream:
            if not self.take(piece):
                break
        end = getattr(stream, "aclose", None)
        if end is not None:
            await end()  # the `finally` of a generator runs now, not when it is garbage-collected
        return self

    def read_plain(self, stream: Iterator[object]) -> "OutputBuffer":
        """Read a plain iterator, and close it when the buffer is full."""
        for piece in stream:
            if not self.take(piece):
                break
        end = getattr(stream, "close", None)
        if end is not None:
            end()
        return self


async def finish(raw: object, redactor: Redactor, limit: int, spool: Spool | None) -> ToolResult:
    """Turn the output of a function into a result: redacted first, then cut, so no part of a secret remains."""
    if isinstance(raw, OutputBuffer):
        text = redactor.text(raw.text)
        if raw.is_cut:
            text = text[: len(text) - redactor.margin]
        return await _fitted(_checked(text), limit, spool, is_cut=raw.is_cut)
    if isinstance(raw, ToolResult):
        inner = await finish(raw.value, redactor, limit, spool)
        return msgspec.structs.replace(
            inner,
            is_truncated=inner.is_truncated or raw.is_truncated,
            taint=raw.taint,
            spooled=inner.spooled or raw.spooled,
        )
    return await _fitted(redactor.data(_checked(raw)), limit, spool, is_cut=False)


def plain_form(raw: object) -> object:
    """The JSON form of what a plain function returned.

    Call it in the thread of the function: a slow `model_dump` must not block the event loop. Awaitables
    and streams are returned unchanged.
    """
    if isinstance(raw, ToolResult):
        return msgspec.structs.replace(raw, value=plain_form(raw.value))
    if inspect.isawaitable(raw) or isinstance(raw, AsyncIterable | Iterator):
        return raw
    return _checked(raw)


def _checked(raw: object) -> Any:
    """The data in its JSON form."""
    stored = Value.of(raw)
    if raw is None or type(raw) is str:
        return raw
    try:
        return stored.read()
    except msgspec.DecodeError as error:
        raise NotJSON(f"{type(raw).__name__} cannot be read back from JSON: {error}") from None


async def _fitted(value: Any, limit: int, spool: Spool | None, *, is_cut: bool) -> ToolResult:
    text = text_of(value)
    size = size_of(text)
    if size <= limit and not is_cut:
        return ToolResult(value)
    reference = await _spooled(text, spool)
    kept = f"; kept as {reference}" if reference else "; ask for less at a time"
    whole = f"more than {size} bytes, of which no more were read" if is_cut else f"{size} bytes"
    mark = f"\n[cut: this is the beginning of {whole}{kept}]"
    return ToolResult(cut(text, limit - size_of(mark)) + mark, is_truncated=True, spooled=reference)


async def _spooled(text: str, spool: Spool | None) -> str:
    if spool is None:
        return ""
    try:
        return await spool(text.encode())
    except JournalError:
        # The call itself has succeeded; the mark shows that the whole output is not stored.
        return ""


def cut(text: str, most: int) -> str:
    """The longest beginning of a text that fits into this many bytes of UTF-8."""
    most = max(0, most)
    return text[:most].encode()[:most].decode(errors="ignore")


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
