"""What comes out of a tool: JSON, free of secrets, cut to what a model should see."""

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.errors import JournalError, NotJSON
from chargehand.facts.value import Value
from chargehand.tools.redaction import Redactor

Spool: TypeAlias = Callable[[bytes], Awaitable[str]]
"""Keeps bytes that are too many to be shown and returns a name for them; `journal.blobs.put` is one."""

#: where reading of an endless stream stops even if there is a place to keep it
MOST_SPOOLED = 8 * 1024 * 1024


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """The output of a tool call. Has a JSON form, so that it can be the result of a step."""

    #: JSON data; when it was cut, the text that is left of it
    value: Any = None
    is_truncated: bool = False
    #: untrusted sources that it derives from
    taint: tuple[str, ...] = ()
    #: where the whole of what was cut is kept; empty: nowhere
    spooled: str = ""

    @property
    def text(self) -> str:
        """What the model sees."""
        return text_of(self.value)


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "(done; it returns nothing)" if value is None else msgspec.json.encode(value).decode()


class OutputBuffer:
    """Pieces of a stream, up to a number of bytes: then no more are asked for."""

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
        """Make a thread that still fills it stop at its next piece."""
        self._is_closed = True

    def take(self, piece: object) -> bool:
        """Whether there is room for more. Text is joined; other data is a line of JSON each."""
        if not isinstance(piece, str):
            piece = bytes(Value.of(piece).json).decode() + "\n"
        room = self._most - self._size
        kept = piece[: room + 1]
        self._size += size_of(kept)
        self._pieces.append(kept)
        self.is_cut = self._size > self._most
        return not (self.is_cut or self._is_closed)

    async def read(self, stream: AsyncIterable[object]) -> "OutputBuffer":
        """Take what an async stream gives, and end it when there is no more room."""
        async for piece in stream:
            if not self.take(piece):
                break
        end = getattr(stream, "aclose", None)
        if end is not None:
            await end()  # a generator's `finally` runs here, and not when it is collected
        return self

    def read_plain(self, stream: Iterator[object]) -> "OutputBuffer":
        """Take what a plain stream gives, and end it when there is no more room."""
        for piece in stream:
            if not self.take(piece):
                break
        end = getattr(stream, "close", None)
        if end is not None:
            end()
        return self


async def finish(raw: object, redactor: Redactor, limit: int, spool: Spool | None) -> ToolResult:
    """The result that `raw` becomes: redacted first and cut second, so that no half secret is left."""
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
    """What a plain function returned as JSON has it, for its thread: a slow `model_dump` is not to hold up the loop.

    What is still to be awaited or streamed stays as it is.
    """
    if isinstance(raw, ToolResult):
        return msgspec.structs.replace(raw, value=plain_form(raw.value))
    if inspect.isawaitable(raw) or isinstance(raw, AsyncIterable | Iterator):
        return raw
    return _checked(raw)


def _checked(raw: object) -> Any:
    """The data as JSON would have it."""
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
        return (
            ""  # the tool has done its work; that its whole output is not kept is told in the mark
        )


def cut(text: str, most: int) -> str:
    """The beginning of a text that fits into so many bytes of UTF-8."""
    most = max(0, most)
    return text[:most].encode()[:most].decode(errors="ignore")


def size_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
