"""Servers of the Model Context Protocol, and their tools."""

from chargehand.tools.mcp.restarts import Restarts
from chargehand.tools.mcp.server import McpServer, mcp_server
from chargehand.tools.mcp.terms import Timeouts

__all__ = ["McpServer", "Restarts", "Timeouts", "mcp_server"]
