"""An MCP server as a child process: starts it, exchanges messages over its pipes, and always ends it."""

import asyncio
import contextlib
import re
import sys
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, jsonrpc_message_adapter
from msgspec import Struct

from chargehand import subreaper
from chargehand.subreaper import command_below
from chargehand.tools.mcp.input_limits import MOST_BYTES, Flooded, Meter
from chargehand.tools.mcp.server_failure import brief_words, last_line
from chargehand.tools.mcp.server_settings import ServerProgram

CHUNK = 64 * 1024
#: last bytes of standard error that are kept to explain why it ended
TAIL = 2_000
#: seconds to wait for its exit after its input is closed, and again after SIGTERM
PATIENCE = 2.0
#: consecutive lines that are not messages: a stray print is tolerated, another protocol is not
MOST_GARBAGE = 100
#: messages to a server that it has not read yet
MOST_WAITING = 256
#: our own error code, from the range that the protocol reserves for implementations
OVERLONG = -32010
_ID = re.compile(rb'^\s*\{(?:(?!"result"|"error"|"params").)*?"id"\s*:\s*(\d{1,18})\b', re.DOTALL)
_HEAD = 512

Items: TypeAlias = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing: TypeAlias = MemoryObjectReceiveStream[SessionMessage]
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class Overlong(Struct, frozen=True):
    """The beginning of a line that was too long to keep."""

    head: bytes

    @property
    def request(self) -> int | None:
        """The id of the request that it answers, if the id is in the beginning of the line."""
        found = _ID.search(self.head)
        return int(found[1]) if found else None


class LineReader:
    """Splits chunks into lines; for a line that is too long, yields only its beginning."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | Overlong]:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            yield from self._add(part)
            if not self._is_skipping:
                yield bytes(self._kept)
            self._kept.clear()
            self._is_skipping = False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[Overlong]:
        if self._is_skipping:
            return
        self._kept += part
        if len(self._kept) > self._most:
            yield Overlong(bytes(self._kept[:_HEAD]))
            self._kept.clear()
            self._is_skipping = True


class _Pipes(SubprocessStreamProtocol):
    """Detects the exit of the process at once, even if one of its children keeps the pipes open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=CHUNK, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class StdioChild:
    """A server process and its pipes."""

    def __init__(self, transport: asyncio.SubprocessTransport, pipes: _Pipes) -> None:
        self._transport = transport
        self._exited = pipes.exited
        self._process = asyncio.subprocess.Process(transport, pipes, asyncio.get_running_loop())
        self.input = cast("asyncio.StreamWriter", self._process.stdin)
        self.output = cast("asyncio.StreamReader", self._process.stdout)
        self.errors = cast("asyncio.StreamReader", self._process.stderr)

    @classmethod
    async def start(cls, program: ServerProgram) -> "StdioChild":
        loop = asyncio.get_running_loop()
        transport, pipes = await loop.subprocess_exec(
            lambda: _Pipes(loop),
            *command_below(program.command, program.environment.get("PATH"), program.cwd),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=program.environment,
            cwd=program.cwd,
            start_new_session=True,  # a process group of its own, which can be killed as a whole
        )
        return cls(transport, pipes)

    @property
    def exit_words(self) -> str:
        """How the process ended; empty while it runs."""
        code = self._transport.get_returncode()
        if code is None:
            return ""
        return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"

    async def wait_exit(self, seconds: float) -> bool:
        """Wait for the exit; returns whether the process exits within this time."""
        with anyio.move_on_after(seconds):
            await self._exited.wait()
        return self._exited.is_set()

    async def stop(self) -> None:
        """Close its input, then send SIGTERM, then kill the process and its children."""
        self.input.close()
        if not await self.wait_exit(PATIENCE):
            subreaper.ask(self._process.pid)
            await self.wait_exit(PATIENCE)
        if not self._exited.is_set() or sys.platform != "linux":
            subreaper.kill(self._process.pid)
            await self.wait_exit(PATIENCE)
        self._transport.close()


class ServerProcess:
    """A started server program, as the two streams of messages that a session needs."""

    def __init__(self, program: ServerProgram, meter: Meter) -> None:
        self._program = program
        self._meter = meter
        self._child: StdioChild | None = None
        self._tail = b""
        self._garbage = ""
        self._reason = ""

    @property
    def end(self) -> str:
        """How it ended, as far as known, as a phrase that follows its name."""
        exit_words = "" if self._child is None else self._child.exit_words
        told = self._reason or (f"ended ({exit_words})" if exit_words else "closed its output")
        return f"{told}{self.last_words}"

    @property
    def last_words(self) -> str:
        """The output that may explain why it is silent or has ended."""
        garbage = f"; it wrote what is no message: {self._garbage!r}" if self._garbage else ""
        tail = last_line(self._tail.decode(errors="replace"))
        return garbage + (f"; its last words: {tail}" if tail else "")

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start the server and open the streams to and from it; on exit, the process is ended."""
        items, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        # Buffered, so that a server that does not read cannot block a caller that cancels a request.
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](MOST_WAITING)
        with items, read, write, outgoing:
            child = self._child = await StdioChild.start(self._program)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._read_messages, child, items)
                    group.start_soon(_write_messages, child, outgoing)
                    group.start_soon(self._read_errors, child)
                    yield read, write
                    group.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await child.stop()

    async def _read_messages(self, child: StdioChild, items: Items) -> None:
        # The end of this stream tells the session that the server has ended.
        async with items:
            try:
                await self._pass_on(child, items)
            except Flooded as flooded:
                self._reason = f"was cut off, because {flooded}"
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session has closed the stream
            else:
                await child.wait_exit(PATIENCE / 2)  # to get its exit code

    async def _pass_on(self, child: StdioChild, items: Items) -> None:
        lines, strange = LineReader(MOST_BYTES), 0
        while chunk := await child.output.read(CHUNK):
            self._meter.count(size=len(chunk))
            for line in lines.feed(chunk):
                message = self._read(line)
                if message is not None:
                    strange = 0
                    await items.send(message)
                    continue
                strange += 1
                if strange > MOST_GARBAGE:
                    raise Flooded("what it writes is not the Model Context Protocol")

    def _read(self, line: bytes | Overlong) -> SessionMessage | None:
        if isinstance(line, Overlong):
            return _refused(line)
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            self._tail = b""  # what it wrote before this message concerned something else
            return message
        except ValueError:
            self._garbage = self._garbage or brief_words(line[:200].decode(errors="replace"))
            return None

    async def _read_errors(self, child: StdioChild) -> None:
        while chunk := await child.errors.read(CHUNK):
            self._tail = (self._tail + chunk)[-TAIL:]


async def _write_messages(child: StdioChild, outgoing: Outgoing) -> None:
    with contextlib.suppress(ConnectionError):  # the process is gone, which the reader notices too
        async for item in outgoing:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            child.input.write(text.encode() + b"\n")
            await child.input.drain()


def _refused(line: Overlong) -> SessionMessage | None:
    """An error in place of a response that was too long, so that its caller does not wait for it."""
    if line.request is None:
        return None
    error = ErrorData(code=OVERLONG, message=f"its answer is larger than {MOST_BYTES >> 20} MiB")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.request, error=error))
