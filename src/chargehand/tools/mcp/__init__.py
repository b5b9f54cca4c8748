"""Tools of MCP (Model Context Protocol) servers."""

from chargehand.tools.mcp.server import McpServer, mcp_server
from chargehand.tools.mcp.server_settings import Restarts, ServerTimeouts

__all__ = ["McpServer", "Restarts", "ServerTimeouts", "mcp_server"]
