"""The messages of an MCP client on stdin. Those that are no valid messages are answered here.

The SDK drops what it cannot read, without a reply, so that the client would wait for ever.
"""

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

#: messages that are read ahead
MOST_AHEAD = 16
READ_BYTES = 65_536
#: strings, brackets and other words of JSON, wherever they stand
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
#: ids that can be taken from a message that cannot be read
_ID = re.compile(r'"[^"\\]*"|-?\d{1,18}')

Reply = Callable[[JSONRPCError], Awaitable[None]]


@asynccontextmanager
async def stdio_messages() -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to the client. Leaving ends the reading at once, also if no line comes.

    Meanwhile, stdin of this process is empty, and its stdout is stderr.
    """
    written: list[Any] = []

    async def reply(error: JSONRPCError) -> None:
        await written[0].send(SessionMessage(error))

    with _taken_stdin() as source:
        lines = cast("anyio.AsyncFile[str]", _sound_lines(_lines_of(source), reply))
        async with stdio_server(stdin=lines) as (read, write):
            written.append(write)
            yield read, write


@asynccontextmanager
async def quiet_at_end() -> AsyncIterator[None]:
    """End quietly if the client closes the pipe that it reads from."""
    try:
        yield
    except* (BrokenPipeError, ConnectionResetError):
        # The SDK's writer says so once more when it is collected, with what it could not write.
        sys.unraisablehook = _quiet_about_the_pipe


def _quiet_about_the_pipe(unraisable: "sys.UnraisableHookArgs") -> None:
    if not isinstance(unraisable.exc_value, BrokenPipeError | ConnectionResetError):
        sys.__unraisablehook__(unraisable)


async def _sound_lines(lines: AsyncIterator[bytes], reply: Reply) -> AsyncIterator[str]:
    """The lines that hold a valid message; others are answered."""
    async for data in lines:
        line = data.decode("utf-8", "replace")
        if not line.strip():
            continue
        error = error_in(line)
        if error is None:
            yield line
        else:
            await reply(error)


def error_in(line: str) -> JSONRPCError | None:
    """The reply to a line that is no valid message; None if it is one."""
    fact = ""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        if not isinstance(message, JSONRPCNotification) or "id" not in json.loads(line):
            return None
        fact = "its id must be a text or a whole number"
    except (ValidationError, ValueError, RecursionError) as error:
        fact = fact or _first_line_of(error)
    try:
        told = json.loads(line)
    except RecursionError:
        return _invalid("it is nested too deeply", _id_in(line))
    except ValueError as error:
        return _error(PARSE_ERROR, f"the line is not JSON: {error}", None)
    if isinstance(told, list):
        return _invalid("it is a list; send one message in each line", None)
    if not isinstance(told, dict):
        return _invalid("it is not an object", None)
    # The id of a reply is one of this server: an error with it would be taken for the end of another request.
    is_reply = "method" not in told and ("result" in told or "error" in told)
    id_ = told.get("id")
    is_known = type(id_) in (str, int) and not is_reply and not _has_surrogates(str(id_))
    if "method" not in told and not is_reply:
        fact = "it has no method"
    return _invalid(fact, cast("str | int", id_) if is_known else None)


def _first_line_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        told = error.errors(include_url=False, include_input=False)
        return str(told[0]["msg"]).partition("\n")[0] if told else "it cannot be read"
    return str(error)


def _invalid(fact: str, id_: str | int | None) -> JSONRPCError:
    return _error(INVALID_REQUEST, f"the message is not a valid JSON-RPC request: {fact}", id_)


def _error(code: int, message: str, id_: str | int | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=message))


def _id_in(line: str) -> str | int | None:
    """The id of a message that is nested too deeply to be parsed; None if it is not known."""
    depth, before = 0, ["", ""]
    for token in _TOKEN.finditer(line):
        word = token[0]
        if word in "{[":
            depth += 1
        elif word in "}]":
            depth -= 1
        elif depth == 1 and before == ['"id"', ":"] and _ID.fullmatch(word):
            return cast("str | int", json.loads(word))
        before = [before[1], word]
    return None


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


# Reading


@contextmanager
def _taken_stdin() -> Iterator[int]:
    """The descriptor of stdin, moved away: whoever else reads stdin finds it empty."""
    source = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        yield source
    finally:
        os.dup2(source, 0)  # and `source` stays open, because a thread may still read from it


async def _lines_of(source: int) -> AsyncIterator[bytes]:
    """The lines of a pipe. A thread of its own reads them, which never keeps the process from ending."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_AHEAD)

    def read() -> None:
        for line in _read_lines(source):
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        asyncio.run_coroutine_threadsafe(lines.put(None), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


def _read_lines(source: int) -> Iterator[bytes]:
    rest = bytearray()
    while chunk := os.read(source, READ_BYTES):
        rest += chunk
        if b"\n" in chunk:  # a long line comes in many chunks; all of it is looked through once
            *whole, rest = rest.split(b"\n")
            yield from map(bytes, whole)
    if rest:
        yield bytes(rest)
