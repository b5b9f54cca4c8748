"""Serves a supervisor over MCP, the Model Context Protocol. Needs the package mcp: chargehand[mcp]."""

from chargehand.server.mcp.server import serve_http, serve_stdio, server_for
from chargehand.server.mcp.tools import McpTools

__all__ = ["McpTools", "serve_http", "serve_stdio", "server_for"]
