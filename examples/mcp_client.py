"""A crew as an MCP server: any MCP client can plan, run, watch and answer.

The server is `chargehand mcp` in a process of its own; the client is the official MCP package. The crew is the
default one, over bundled data, and its model is `offline`: no API key, no network. The first client leaves while
its run is in progress; the next one asks for the answer.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters

DATA = Path(__file__).parent / "data" / "reviews"
REQUEST = "What is said about the strap of the backpack?"


def server(journal: Path) -> StdioServerParameters:
    """How a client starts the server."""
    crew = ["--files", str(DATA), "--model", "offline", "--journal", str(journal)]
    return StdioServerParameters(command=sys.executable, args=["-m", "chargehand", "mcp", *crew])


async def hear(progress: float, total: float | None, message: str | None) -> None:
    print(f"  {progress:4.1f} of {total or '?'}  {message}")


async def main(folder: Path) -> str:
    async with Client(server(folder / "runs.db")) as client:
        tools = await client.list_tools()
        print("tools:", ", ".join(tool.name for tool in tools.tools))
        planned = await client.call_tool("plan", {"request": REQUEST})
        print((planned.structured_content or {})["outline"])
        begun = await client.call_tool("run", {"request": REQUEST, "wait": False})
        run = (begun.structured_content or {})["run"]
        print(f"{run} is begun, and the client leaves")

    async with Client(server(folder / "runs.db")) as client:
        ended = await client.call_tool("resume", {"run": run}, progress_callback=hear)
        reply = ended.structured_content or {}
    print(f"{reply['status']}: {reply['answer']}")
    print(f"untrusted sources: {', '.join(reply['untrusted'])}")
    return str(reply["answer"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(Path(place)))
