"""Lists and calls the tools of a server, reads its resources, and parses the results."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mcp import Client, types
from mcp.shared.dispatcher import ProgressFnT
from pydantic import TypeAdapter

from chargehand.errors import ToolError
from chargehand.facts.events import Effect
from chargehand.tools.data_catalog import ResourceEntry
from chargehand.tools.mcp.approved_tools import Definition

Report: TypeAlias = Callable[[str], None]

MOST_PAGES = 100
MOST_TOOLS = 1_000
#: further resources are left out
MOST_RESOURCES = 1_000
#: progress reports of one call
MOST_REPORTS = 100
LONGEST_REPORT = 500
_Answer: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


async def list_tools(client: Client) -> list[Definition]:
    """All tools of a server, from all pages. Raises `ToolError` if there are too many."""
    found: list[Definition] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += map(_definition, page.tools)
        cursor = page.next_cursor
        if len(found) > MOST_TOOLS:
            raise ToolError(f"it lists more than {MOST_TOOLS} tools")
        if cursor is None:
            return found
    raise ToolError(f"its list of tools has more than {MOST_PAGES} pages")


async def list_resources(client: Client) -> list[ResourceEntry]:
    """The resources of a server, from all pages, up to `MOST_RESOURCES`."""
    found: list[ResourceEntry] = []
    if client.server_capabilities.resources is None:
        return found
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_resources(cursor=cursor)
        found += [
            ResourceEntry(each.uri, each.title or each.name, each.mime_type or "")
            for each in page.resources
        ]
        cursor = page.next_cursor
        if cursor is None or len(found) >= MOST_RESOURCES:
            break
    return found[:MOST_RESOURCES]


async def read_resource(client: Client, uri: str) -> str:
    """The text of a resource. Content that is not text is replaced by its type and size."""
    answer = await client.read_resource(uri)
    parts = [types.EmbeddedResource(resource=each) for each in answer.contents]
    return "\n\n".join(
        each.text if isinstance(each, types.TextResourceContents) else _told(part)
        for each, part in zip(answer.contents, parts, strict=True)
    )


def _definition(tool: types.Tool) -> Definition:
    return Definition(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        hinted=_hinted(tool.annotations or types.ToolAnnotations()),
    )


def _hinted(hints: types.ToolAnnotations) -> Effect:
    """The weakest effect that these hints allow; a read-only tool that is also destructive is `once`."""
    if hints.read_only_hint:
        return Effect.ONCE if hints.destructive_hint else Effect.PURE
    return Effect.IDEMPOTENT if hints.idempotent_hint else Effect.ONCE


async def call_tool(
    client: Client, name: str, arguments: Mapping[str, Any], report: Report | None
) -> types.CallToolResult:
    """Call a tool; returns the response of the server, which may be an error of the tool."""
    params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
    # Not `client.call_tool`, which checks the result against the server's schema: a regular
    # expression in the schema that never ends would block the whole process.
    answer = await client.session.send_request(
        types.CallToolRequest(params=params),
        _Answer,
        progress_callback=None if report is None else _reporter(report),
    )
    if isinstance(answer, types.InputRequiredResult):
        raise ToolError(f"{name} asks for input of a person, which it cannot have", kind="denied")
    return answer


def _reporter(report: Report) -> ProgressFnT:
    left = MOST_REPORTS

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            report((message or share)[:LONGEST_REPORT])

    return on_progress


def value_of(result: types.CallToolResult, tool: str) -> Any:
    """The data of a response. Content that is neither text nor data is replaced by its type and size."""
    told = [_told(block) for block in result.content]
    text = "\n\n".join(told)
    if result.is_error:
        raise ToolError(text or f"{tool} failed and did not say why")
    if result.structured_content is None:
        return text or None
    # Servers repeat the data as text, so only content that is not text can add to it.
    others = [block for block in result.content if not isinstance(block, types.TextContent)]
    if not others:
        return result.structured_content
    return {"data": result.structured_content, "also": [_told(block) for block in others]}


def _told(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return f"[image: {_size(block.mime_type, block.data)}]"
        case types.AudioContent():
            return f"[audio: {_size(block.mime_type, block.data)}]"
        case types.ResourceLink():
            return f"[link: {block.name}, {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            kind = resource.mime_type or "of unknown type"
            return f"[resource: {resource.uri}, {_size(kind, resource.blob)}]"
    raise ToolError(f"the answer holds a {type(block).__name__}, which is unknown here")


def _size(kind: str, base64: str) -> str:
    return f"{kind}, {len(base64) * 3 // 4 - base64.count('=', -2)} bytes, not shown"
