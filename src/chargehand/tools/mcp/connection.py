"""One connection to an MCP server, from start to end, owned by one task.

The protocol's session and its transports open cancel scopes, which the task that opened them must
close. So one task opens and closes the connection; callers give it jobs and wait for the results.
"""

import asyncio
import atexit
import contextlib
import contextvars
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup
from mcp import Client, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from chargehand.tools.data_catalog import ResourceEntry
from chargehand.tools.mcp.approved_tools import Definition
from chargehand.tools.mcp.error_messages import ErrorMessages, is_lost
from chargehand.tools.mcp.http_transport import http_streams
from chargehand.tools.mcp.input_limits import Incoming, InputSource, Meter
from chargehand.tools.mcp.server_failure import ServerFailure
from chargehand.tools.mcp.server_requests import (
    Report,
    call_tool,
    list_resources,
    list_tools,
    read_resource,
)
from chargehand.tools.mcp.server_settings import ServerEndpoint, ServerProgram, ServerSettings
from chargehand.tools.mcp.stdio_process import ServerProcess

#: seconds before the next subscription to the changes of a server
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: seconds to close one connection when the program ends
CLOSING = 10.0
#: characters of a URI in a message
LONGEST_URI = 200
US = types.Implementation(name="chargehand", version="1")

# Callers get the errors of a server. Without this handler, the package would also print them to
# standard error in programs without logging, as often as the server causes them.
logging.getLogger("mcp").addHandler(logging.NullHandler())

OnListing: TypeAlias = Callable[[Sequence[Definition]], None]


@dataclass(slots=True, eq=False)
class _Job:
    """A request in progress, and the future that its caller waits for."""

    what: str
    run: Callable[[Client], Awaitable[Any]]
    limit: timedelta
    #: the response of the server, or a `ServerFailure`
    answer: asyncio.Future[Any]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    #: the caller's context, so that its trace continues in the server
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def settle(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class ServerConnection:
    """One connection, for any number of concurrent callers. Once it has ended, it is never reopened.

    Use it only on the event loop on which it was created.
    """

    def __init__(
        self, address: ServerProgram | ServerEndpoint, terms: ServerSettings, on_listing: OnListing
    ) -> None:
        self.loop = asyncio.get_running_loop()
        #: when it ended, by the loop's clock
        self.ended_at: float | None = None
        self._address = address
        self._timeouts = terms.timeouts
        self._on_listing = on_listing
        self._meter = Meter()
        self._process: ServerProcess | None = None
        self._diagnosis = ErrorMessages(terms.name, self._last_words)
        self._scope = anyio.CancelScope()
        self._ready: asyncio.Future[ServerFailure | None] = self.loop.create_future()
        self._over = asyncio.Event()
        self._end: ServerFailure | None = None
        self._retirement: ServerFailure | None = None
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._open: set[_Job] = set()
        self._listing: asyncio.Future[Any] | None = None
        self._changes, self._seen = 1, 0
        self._task: asyncio.Task[None] | None = None

    # For callers

    @property
    def is_over(self) -> bool:
        """Whether the next call needs a new connection."""
        return self._end is not None or self._retirement is not None

    @property
    def is_stale(self) -> bool:
        """Whether the tools may have changed since they were listed."""
        return self._changes != self._seen

    def start(self, delay: float, on_gone: Callable[["ServerConnection"], None]) -> None:
        """Start to connect, after `delay` seconds; `on_gone` is called when the connection is fully closed."""
        self._task = self.loop.create_task(self._live(delay), name="chargehand-mcp")
        _open[self] = os.getpid()
        self._task.add_done_callback(lambda _: _open.pop(self, None))
        self._task.add_done_callback(lambda _: on_gone(self))

    async def wait_ready(self) -> ServerFailure | None:
        """Wait until the connection is ready; returns the failure if it cannot be. Safe to cancel."""
        return await asyncio.shield(self._ready)

    async def relist(self) -> ServerFailure | None:
        """List the tools again; concurrent callers share one listing."""
        if self._listing is None or self._listing.done():
            changes = self._changes
            job = self._submit(
                "list its tools", lambda client: self._list(client, changes), self._timeouts.listing
            )
            self._listing = job.answer
        answer = await asyncio.shield(self._listing)
        return answer if isinstance(answer, ServerFailure) else None

    async def call(
        self, name: str, arguments: Mapping[str, Any], report: Report | None
    ) -> types.CallToolResult | ServerFailure:
        """Call a tool. Cancelling this call cancels the request and no other."""
        job = self._submit(
            f"run {name}",
            lambda client: call_tool(client, name, arguments, report),
            self._timeouts.call,
        )
        try:
            answer: types.CallToolResult | ServerFailure = await job.answer
        except asyncio.CancelledError:
            job.scope.cancel()
            raise
        return answer

    async def resources(self) -> list[ResourceEntry] | ServerFailure:
        """The resources that the server offers."""
        job = self._submit("list its resources", list_resources, self._timeouts.listing)
        found: list[ResourceEntry] | ServerFailure = await asyncio.shield(job.answer)
        return found

    async def read(self, uri: str) -> str | ServerFailure:
        """Read a resource. Cancelling this call cancels the request and no other."""
        job = self._submit(
            f"read {uri[:LONGEST_URI]}",
            lambda client: read_resource(client, uri),
            self._timeouts.call,
        )
        try:
            text: str | ServerFailure = await job.answer
        except asyncio.CancelledError:
            job.scope.cancel()
            raise
        return text

    def note_change(self) -> None:
        """Make the next call list the tools again first."""
        self._changes += 1

    def retire(self, trouble: ServerFailure) -> None:
        """End once the calls in progress are done; `is_over` is true from now on."""
        self._retirement = self._retirement or trouble
        if not self._open:
            self.end(trouble)

    def end(self, trouble: ServerFailure) -> None:
        """End the connection now; requests in progress are lost."""
        if self._end is None:
            self._end, self.ended_at = trouble, self.loop.time()
        self._over.set()
        if not self._ready.done():
            self._scope.cancel()

    async def stop(self) -> None:
        """End the connection and wait until it is fully closed."""
        self.end(self._diagnosis.ended("was closed"))
        if self._task is not None:
            await asyncio.wait([self._task])

    # In the task that owns the connection

    async def _live(self, delay: float) -> None:
        try:
            with self._scope:
                await anyio.sleep(delay)
                self._scope.deadline = anyio.current_time() + self._timeouts.connect.total_seconds()
                await self._connect_and_serve()
            if self._scope.cancelled_caught and self._end is None:
                self.end(self._diagnosis.too_slow("connect", self._timeouts.connect))
        except Exception as error:  # noqa: BLE001 - callers get any error
            self.end(self._diagnosis.of(error, "connect"))
        finally:
            self._finish()

    async def _connect_and_serve(self) -> None:
        async with Client(self._streams(), cache=None, client_info=US) as client:
            self._scope.deadline = math.inf
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, client)
                group.start_soon(self._take_jobs, client, group)
                trouble = await self.relist()
                if trouble is not None:
                    self.end(trouble)
                elif not self._ready.done():
                    self._ready.set_result(None)
                await self._over.wait()
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Incoming, Any]]:
        opening: AbstractAsyncContextManager[tuple[InputSource, Any]]
        if isinstance(self._address, ServerProgram):
            self._process = ServerProcess(self._address, self._meter)
            opening = self._process.streams()
        else:
            opening = http_streams(self._address, self._timeouts, self._meter)
        async with opening as (read, write):
            yield Incoming(read, self._meter, self.note_change, self._on_end), write

    def _on_end(self, how: str) -> None:
        told = how or ("closed the connection" if self._process is None else self._process.end)
        self.end(self._diagnosis.ended(told))

    def _last_words(self) -> str:
        return "" if self._process is None else self._process.last_words

    async def _watch(self, client: Client) -> None:
        """Subscribe to changes of the tools. Older protocol versions report changes without a subscription."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None:
            return
        pause = SHORTEST_PAUSE
        while tools.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    self.note_change()  # changes before this moment were not reported
                    async for _ in events:
                        pause = SHORTEST_PAUSE
            except (MCPError, SubscriptionLost, TimeoutError):
                pass  # proxies close idle streams; `note_change` above covers missed changes
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _take_jobs(self, client: Client, group: TaskGroup) -> None:
        while True:
            job = await self._jobs.get()
            job.context.run(group.start_soon, self._run, client, job)

    async def _run(self, client: Client, job: _Job) -> None:
        try:
            with job.scope, anyio.fail_after(job.limit.total_seconds()):
                job.settle(await job.run(client))
        except TimeoutError:
            # A server that hangs answers no other request either; the next listing will detect that.
            self.note_change()
            job.settle(self._diagnosis.too_slow(job.what, job.limit))
        except Exception as error:  # noqa: BLE001 - the caller gets any error
            self._settle_failed(job, error)
        self._open.discard(job)
        if self._retirement is not None and not self._open:
            self.end(self._retirement)

    def _settle_failed(self, job: _Job, error: Exception) -> None:
        if self._end is not None:
            job.settle(self._diagnosis.lost(self._end, job.what))
            return
        trouble = self._diagnosis.of(error, job.what)
        job.settle(trouble)
        if is_lost(error):
            self.retire(trouble)

    async def _list(self, client: Client, changes: int) -> None:
        self._on_listing(await list_tools(client))
        self._seen = changes

    def _submit(self, what: str, run: Callable[[Client], Awaitable[Any]], limit: timedelta) -> _Job:
        job = _Job(what, run, limit, self.loop.create_future())
        if self._end is None:
            self._open.add(job)
            self._jobs.put_nowait(job)
        else:
            job.settle(self._end)
        return job

    def _finish(self) -> None:
        """Settle all jobs, so that no caller waits forever."""
        end = self._end or self._diagnosis.ended("was abandoned")
        self._end, self.ended_at = end, self.ended_at or self.loop.time()
        for job in self._open:
            job.settle(self._diagnosis.lost(end, job.what))
        self._open.clear()
        if not self._ready.done():
            self._ready.set_result(end)


#: open connections, with the id of the process that opened each: a fork closes only its own
_open: dict[ServerConnection, int] = {}


@atexit.register
def _close_all() -> None:
    """Close the remaining connections when the program ends.

    Connections run on a daemon thread, which just stops; without this, their processes could stay alive.
    """
    mine = [each for each, pid in list(_open.items()) if pid == os.getpid()]
    closing = [asyncio.run_coroutine_threadsafe(each.stop(), each.loop) for each in mine]
    for each in closing:
        with contextlib.suppress(Exception):
            each.result(CLOSING)
