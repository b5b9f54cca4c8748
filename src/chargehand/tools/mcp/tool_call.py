"""Asks a server to run one of its tools."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mcp import Client, types
from mcp.shared.dispatcher import ProgressFnT
from pydantic import TypeAdapter

from chargehand.errors import ToolError

Report: TypeAlias = Callable[[str], None]

#: of progress, in one call
MOST_REPORTS = 100
LONGEST_REPORT = 500
_Answer: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


async def call_tool(
    client: Client, name: str, arguments: Mapping[str, Any], report: Report | None
) -> types.CallToolResult:
    """What the server answers, be it an error of the tool."""
    params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
    # Not `client.call_tool`, which checks the answer by the server's own schema: a regular
    # expression in there that takes for ever would hold up the whole process.
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
