"""An MCP (Model Context Protocol) server, as tools for workers.

Each server has one connection per process. The connection runs on the background loop, whichever loop
or thread a call comes from, so there is one server process, one session and one restart budget.
"""

import asyncio
import contextlib
import importlib.metadata
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from chargehand.errors import ToolError, UsageError
from chargehand.facts.events import Effect
from chargehand.sync_async_bridge import in_thread, run_in_background, wait_in_background
from chargehand.tools.base import LIMIT, Tool, ToolContext
from chargehand.tools.data_catalog import FreshMaterial, Material, ResourceEntry
from chargehand.tools.mcp.approved_tools import ApprovedTools, Definition, spellings
from chargehand.tools.mcp.server_failure import ServerFailure
from chargehand.tools.mcp.server_settings import (
    RestartBudget,
    Restarts,
    ServerEndpoint,
    ServerProgram,
    ServerSettings,
    ServerTimeouts,
)
from chargehand.usable_path import checked_path

if TYPE_CHECKING:
    from chargehand.tools.mcp.connection import ServerConnection

log = logging.getLogger("chargehand")

T = TypeVar("T")
_CONNECTION = "chargehand.tools.mcp.connection"
#: seconds; a longer wait is logged
SAID = 1.0
#: seconds to list resources; planners wait for the list, and then continue without it
LISTING = 5.0
#: the name of the tool that reads resources
READER = "read_resource"
LONGEST_DESCRIPTION = 4_000
#: tries to get a usable connection whose tools do not change while they are listed
MOST_TRIES = 4


def mcp_server(
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    name: str | None = None,
    prefix: str = "",
    pins: Mapping[str, str] | None = None,
    trust_hints: bool = False,
    limit: int = LIMIT,
    timeouts: ServerTimeouts | None = None,
    restarts: Restarts | None = None,
    resources: bool = False,
) -> "McpServer":
    """An MCP server: a program to start (`command=`) or an address (`url=`).

    Nothing is started or contacted before the first request for its tools. A program gets `PATH`,
    `HOME` and `LANG` of the environment, and the variables in `env`. `prefix` is put before the
    names of its tools; `pins` contains the hashes of the approved definitions; `trust_hints` accepts the
    effects that the server declares for its tools. With `resources`, workers can read its resources with
    the tool `read_resource`, and planners see the names of the resources.
    """
    address = _address(command, url, env, headers, cwd)
    _require_package()
    terms = ServerSettings(
        name=name or address.name,
        prefix=prefix,
        timeouts=timeouts or ServerTimeouts(),
        restarts=restarts or Restarts(),
        trust_hints=trust_hints,
        limit=limit,
        resources=resources,
    )
    return McpServer(address, terms, pins)


class McpServer:
    """An MCP server. Any number of workers may use its tools at once, from any event loop.

    The server is started when first needed, and restarted when it dies, as often as its restart budget
    allows. Close it, or use it in `async with`; open servers are closed when the program ends.
    """

    def __init__(
        self,
        address: ServerProgram | ServerEndpoint,
        terms: ServerSettings,
        pins: Mapping[str, str] | None = None,
    ) -> None:
        self._address = address
        self._terms = terms
        self._catalog = ApprovedTools(pins)
        self._budget = RestartBudget(terms.restarts)
        self._redactor = address.redactor
        #: never called in the thread of the background loop, because it blocks
        self._resources = FreshMaterial(
            lambda: wait_in_background(self._list_resources()), lists_files=False
        )
        self._link: ServerConnection | None = None
        #: all open connections, including those that only finish their calls
        self._links: set[ServerConnection] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<MCP server {self.name!r}>"

    @property
    def name(self) -> str:
        return self._terms.name

    @property
    def pins(self) -> dict[str, str]:
        """The hash of each approved definition, by the server's names of the tools.

        Store them and pass them as `pins=` to approve these definitions and no others.
        """
        return self._catalog.pins

    @property
    def disabled(self) -> dict[str, str]:
        """The tools that may not be called, by the server's names of the tools, with the reasons."""
        return self._catalog.refusals

    async def tools(self) -> list[Tool]:
        """List the tools of the server. A disabled tool has its approved definition."""
        return await _elsewhere(self._tools())

    def tools_sync(self) -> list[Tool]:
        """`tools` for code that cannot await, such as the module that defines the workers."""
        return wait_in_background(self._tools())

    def approve(self, name: str) -> str:
        """Approve the current definition of a tool and enable it; returns its pin.

        Existing `Tool` objects keep the old definition; `tools` returns new ones.
        """
        own = {
            shown: own for own, shown in spellings(self._catalog.names, self._terms.prefix).items()
        }
        return self._catalog.approve(name if name in self._catalog.names else own.get(name, name))

    async def close(self) -> None:
        """Close the connection for good and end the server's process."""
        await _elsewhere(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # On the caller's loop

    def _tool(self, definition: Definition, shown: str) -> Tool:
        # Imported here because it imports Pydantic.
        from chargehand.tools.tool_arguments import SchemaArguments

        async def call(context: ToolContext, /, **arguments: Any) -> Any:
            report = self._relay(context)
            return await _elsewhere(self._call(definition.name, arguments, report))

        about = definition.description.strip() or f"{definition.name} of {self.name}"
        return Tool(
            name=shown,
            description=about[:LONGEST_DESCRIPTION],
            arguments=SchemaArguments({"type": "object"} | definition.schema, shown),
            function=call,
            takes_context=True,
            effect=definition.hinted if self._terms.trust_hints else Effect.ONCE,
            timeout=self._terms.timeouts.whole,
            untrusted=True,
            limit=self._terms.limit,
            destination=self._address.destination,
            server=self._address.server,
            is_announced=True,
        )

    def _reader(self, taken: Collection[str]) -> Tool:
        """The tool that reads the server's resources, under a name that is not taken."""
        from chargehand.tools.tool_arguments import SchemaArguments

        async def read(uri: str) -> str:
            return await _elsewhere(self._read(uri))

        name = f"{self._terms.prefix}{READER}"
        while name in taken:
            name += "_"
        uri = {"type": "string", "description": "the address of the resource"}
        schema = {"type": "object", "properties": {"uri": uri}, "required": ["uri"]}
        return Tool(
            name=name,
            description=f"Read a resource of {self.name} by its address.",
            arguments=SchemaArguments(schema, name),
            function=read,
            effect=Effect.PURE,  # in the protocol, reading changes nothing
            timeout=self._terms.timeouts.whole,
            untrusted=True,
            limit=self._terms.limit,
            destination=self._address.destination,
            server=self._address.server,
            holds=self._resources,
        )

    def _relay(self, context: ToolContext) -> Callable[[str], None] | None:
        """A function that reports progress from the background loop to the caller's loop."""
        if context.report is None:
            return None
        progress = context.for_thread(asyncio.get_running_loop()).progress

        def report(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                progress(self._redactor.text(text))

        return report

    # On the background loop

    async def _tools(self) -> list[Tool]:
        was_listed = self._link is not None
        with self._redacting():
            link = await self._ready()
            # Listed, not marked as changed: a mark would make every other call wait for a new listing,
            # and concurrent callers of `tools` could delay each other forever.
            if was_listed and (trouble := await link.relist()) is not None:
                link.retire(trouble)
            await self._ready()
        shown = self._catalog.shown
        names = spellings(self._catalog.names, self._terms.prefix)
        tools = [self._tool(each, names[each.name]) for each in shown]
        return [*tools, self._reader(names.values())] if self._terms.resources else tools

    async def _list_resources(self) -> Material:
        with self._redacting():
            try:
                async with asyncio.timeout(LISTING):
                    link = await self._ready()
                    found = await link.resources()
            except TimeoutError:
                slow = (
                    f"MCP server {self.name!r} took longer than {LISTING:g} s to list its resources"
                )
                raise ToolError(slow, kind="timeout") from None
            if isinstance(found, ServerFailure):
                raise found.error()
        clean = self._redactor.text
        entries = [ResourceEntry(clean(each.uri), clean(each.name), each.kind) for each in found]
        return Material(resources=tuple(entries))

    async def _read(self, uri: str) -> str:
        with self._redacting():
            link = await self._ready()
            text = await link.read(uri)
            if isinstance(text, ServerFailure):
                raise text.error()
        return self._redactor.text(text)

    async def _call(
        self, name: str, arguments: Mapping[str, Any], report: Callable[[str], None] | None
    ) -> Any:
        with self._redacting():
            link = await self._ready()
            # Imported here because it imports the package mcp, which `_ready` has already imported.
            from chargehand.tools.mcp.server_requests import value_of

            why = self._catalog.refusal(name)
            if why is not None:
                raise ToolError(
                    f"{name} of MCP server {self.name!r} is disabled: {why}; a person must approve it",
                    kind="denied",
                )
            answer = await link.call(name, arguments, report)
            if isinstance(answer, ServerFailure):
                raise answer.error()
            return self._redactor.data(value_of(answer, name))

    @contextlib.contextmanager
    def _redacting(self) -> Iterator[None]:
        """Remove the server's secrets from errors."""
        try:
            yield
        except ToolError as error:
            words = self._redactor.text(str(error))
            raise ToolError(words, kind=error.kind, retry_after=error.retry_after) from None

    async def _ready(self) -> "ServerConnection":
        """A connection with an up-to-date listing. Use it before the next `await`."""
        if self._link is None:
            await in_thread(import_module, _CONNECTION)  # takes a second the first time
        for _ in range(MOST_TRIES):
            link = self._current()
            trouble = await link.wait_ready()
            if trouble is not None:
                raise trouble.error()
            if link.is_over:
                continue
            if not link.is_stale:
                return link
            trouble = await link.relist()
            if trouble is not None:
                link.retire(trouble)  # it hangs or is unusable for another reason
        raise ToolError(
            f"MCP server {self.name!r} cannot be kept up with: {trouble}", kind="network"
        )

    def _current(self) -> "ServerConnection":
        if self._is_closed:
            raise ToolError(f"MCP server {self.name!r} was closed", kind="denied")
        link, loop = self._link, asyncio.get_running_loop()
        if link is not None and link.loop is not loop:
            link = None  # this process is a fork; the connection belongs to the parent
        if link is not None and not link.is_over:
            return link
        if link is not None:
            self._budget.note_end(link.ended_at or loop.time())
            self._link = None
        return self._started(loop.time())

    def _started(self, now: float) -> "ServerConnection":
        from chargehand.tools.mcp.connection import ServerConnection

        refusal = self._budget.refusal(now, self.name)
        if refusal is not None:
            raise refusal.error()
        self._link = link = ServerConnection(self._address, self._terms, self._catalog.take)
        self._links.add(link)
        delay = self._budget.delay(now)
        if delay > SAID:
            log.warning(
                "mcp_waits server=%s seconds=%.0f for='its next start, because it has ended'; it continues by itself",
                *(self.name, delay),
            )
        link.start(delay, on_gone=self._links.discard)
        return link

    async def _close(self) -> None:
        self._is_closed = True
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(link.stop() for link in self._links if link.loop is loop))


async def _elsewhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine on the background loop. Cancelling this call cancels the coroutine."""
    return await asyncio.wrap_future(run_in_background(coroutine))


def _address(
    command: Sequence[str] | None,
    url: str | None,
    env: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    cwd: str | Path | None,
) -> ServerProgram | ServerEndpoint:
    if command is not None and url is None and headers is None:
        if isinstance(command, str):
            raise UsageError(
                "command= is a list: the program, then its arguments; no shell reads it"
            )
        folder = None if cwd is None else checked_path(cwd, "cwd")
        return ServerProgram(tuple(command), dict(env or {}), folder)
    if url is not None and command is None and env is None and cwd is None:
        return ServerEndpoint(url, dict(headers or {}))
    raise UsageError(
        "an MCP server is either a program (command=, env=, cwd=) or an address (url=, headers=)"
    )


def _require_package() -> None:
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    if int(version.partition(".")[0]) < 2:
        raise UsageError("MCP servers need the package mcp, 2.3 or later: chargehand[mcp]")
