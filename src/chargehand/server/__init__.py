"""Servers through which other programs use a supervisor: the HTTP API and MCP."""
