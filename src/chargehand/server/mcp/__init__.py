"""A supervisor as a server of the Model Context Protocol. It needs the package mcp: chargehand[mcp]."""

from chargehand.server.mcp.calls import Calls
from chargehand.server.mcp.serving import serve_http, serve_stdio, server_for

__all__ = ["Calls", "serve_http", "serve_stdio", "server_for"]
