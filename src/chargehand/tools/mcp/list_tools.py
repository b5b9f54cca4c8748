"""Asks a server for its tools."""

from mcp import Client, types

from chargehand.errors import ToolError
from chargehand.facts.events import Effect
from chargehand.tools.mcp.approved_tools import Definition

MOST_PAGES = 100
MOST_TOOLS = 1_000


async def list_tools(client: Client) -> list[Definition]:
    """All tools of a server, page by page, as long as there are not absurdly many."""
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


def _definition(tool: types.Tool) -> Definition:
    return Definition(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        hinted=_hinted(tool.annotations or types.ToolAnnotations()),
    )


def _hinted(hints: types.ToolAnnotations) -> Effect:
    """The most harmless effect that these hints allow; a tool that may destroy is never harmless."""
    if hints.read_only_hint:
        return Effect.ONCE if hints.destructive_hint else Effect.PURE
    return Effect.IDEMPOTENT if hints.idempotent_hint else Effect.ONCE
