"""An MCP server over stdio: a small news archive. `python news_archive.py FOLDER` serves the articles of a folder.

An article whose file does not have the checksum of the catalogue is damaged, and reading it is an error.
"""

import csv
import hashlib
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "data" / "archive")
READS_ONLY = ToolAnnotations(read_only_hint=True)
server = MCPServer("news archive")


def catalogue() -> list[dict[str, str]]:
    with (FOLDER / "catalogue.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@server.tool(annotations=READS_ONLY)
def find_articles(company: str) -> list[dict[str, str]]:
    """List the articles about a company: number, date, title."""
    return [
        {name: row[name] for name in ("article", "date", "title")}
        for row in catalogue()
        if row["company"].casefold() == company.strip().casefold()
    ]


@server.tool(annotations=READS_ONLY)
def read_article(article: int) -> str:
    """Read an article. Each line begins with its source, as file:line."""
    row = next((row for row in catalogue() if int(row["article"]) == article), None)
    if row is None:
        raise ToolError(f"there is no article {article}")
    text = (FOLDER / row["file"]).read_bytes()
    if hashlib.sha256(text).hexdigest() != row["sha256"]:
        raise ToolError(
            f"article {article} is damaged: {row['file']} has {len(text)} bytes and not the checksum of the catalogue"
        )
    return "\n".join(
        f"archive/{row['file']}:{number}: {line}"
        for number, line in enumerate(text.decode().splitlines(), 1)
    )


if __name__ == "__main__":
    server.run("stdio")
