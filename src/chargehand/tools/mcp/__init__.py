"""Servers of the Model Context Protocol, and their tools."""

from chargehand.tools.mcp.server import McpServer, mcp_server
from chargehand.tools.mcp.server_settings import Restarts, ServerTimeouts

__all__ = ["McpServer", "Restarts", "ServerTimeouts", "mcp_server"]
