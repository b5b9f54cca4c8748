"""Finds tools by name: built-in sets, tools of Python files, tools of MCP servers."""

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chargehand.crews.crew_schema import ServerForm, ToolsetForm
from chargehand.crews.default_files_folder import working_folder
from chargehand.crews.python_references import load
from chargehand.errors import ToolError, UsageError
from chargehand.facts.durations import length_of
from chargehand.tools.base import Tool

if TYPE_CHECKING:
    from chargehand.tools.mcp.server_settings import ServerTimeouts

BUILT_IN = ("files", "data", "maths", "web", "sandbox")


class Toolsets:
    """The tools that a crew file can name."""

    def __init__(
        self,
        *,
        folder: Path,
        files: Sequence[Path] | None,
        sets: Mapping[str, ToolsetForm],
        servers: Sequence[ServerForm],
    ) -> None:
        self._folder = folder
        self._files = files
        self._sets = sets
        self._servers = {server.name: server for server in servers}
        self._listed: dict[str, tuple[Tool, ...]] = {}
        #: why a server did not list its tools, by name of the server
        self._unlisted: dict[str, UsageError] = {}

    def tools(self, names: Sequence[str], destinations: Sequence[str]) -> list[Tool]:
        """The tools that `names` refers to, in its order."""
        return [each for name in names for each in self._named(name, destinations)]

    def _named(self, name: str, destinations: Sequence[str]) -> Sequence[Tool]:
        first, colon, wanted = name.partition(":")
        if first in BUILT_IN or first in self._sets:
            return _chosen(self._built(first, destinations), wanted, name)
        if first in self._servers:
            return _chosen(self._of_server(self._servers[first]), wanted, name)
        if not colon:
            raise UsageError(self._unknown(name))
        return [_as_tool(load(name, self._folder, _can_be_tool), name)]

    def _unknown(self, name: str) -> str:
        known = [*dict.fromkeys([*BUILT_IN, *self._sets, *self._servers])]
        close = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return (
            f"no tools are called {name!r}; {meant}there are {', '.join(known)}, "
            "and your own as path.py:function"
        )

    def _built(self, name: str, destinations: Sequence[str]) -> tuple[Tool, ...]:
        form = self._sets.get(name, ToolsetForm())
        kind = form.use or name
        if kind not in BUILT_IN:
            raise UsageError(
                f"[tools.{name}] needs use = one of {', '.join(repr(each) for each in BUILT_IN)}"
            )
        made = _made(kind, form, partial(self._places, form, kind), destinations)
        if not form.prefix:
            return made
        return tuple(dataclasses.replace(each, name=form.prefix + each.name) for each in made)

    def _places(self, form: ToolsetForm, kind: str) -> list[Path]:
        """What a set of tools may read: its own folders, or the files that the user named."""
        if form.folders:
            return [self._folder / place for place in form.folders]
        files = [working_folder()] if self._files is None else list(self._files)
        if not files:
            raise UsageError(
                f"tools of {kind} have nothing to read; name it with --files PATH, "
                f'or with [tools.{kind}] folders = ["…"]'
            )
        return files

    def _of_server(self, server: ServerForm) -> tuple[Tool, ...]:
        if server.name in self._unlisted:
            raise self._unlisted[server.name]
        if server.name not in self._listed:
            try:
                self._listed[server.name] = self._tools_of(server)
            except UsageError as error:
                self._unlisted[server.name] = error
                raise
        return self._listed[server.name]

    def _tools_of(self, server: ServerForm) -> tuple[Tool, ...]:
        """Start or connect to a server, and list its tools."""
        from chargehand.tools.mcp import mcp_server

        opened = mcp_server(
            name=server.name,
            command=server.command,
            env=_filled(server.env, server.name),
            cwd=None if server.cwd is None else self._folder / server.cwd,
            url=server.url,
            headers=_filled(server.headers, server.name),
            prefix=server.prefix,
            pins=server.pins,
            resources=server.resources,
            timeouts=_timeouts(server),
        )
        try:
            return tuple(opened.tools_sync())
        except ToolError as error:
            raise UsageError(
                f"MCP server {server.name!r} did not list its tools: {error}"
            ) from error


def _made(
    kind: str,
    form: ToolsetForm,
    places: Callable[[], Sequence[Path]],
    destinations: Sequence[str],
) -> tuple[Tool, ...]:
    """A built-in set with the settings of a crew file. Imports only the modules of this set."""
    match kind:
        case "files":
            from chargehand.tools.files import files

            return files(places(), hidden=form.hidden, trusted=form.trusted)
        case "data":
            from chargehand.tools.sql_tables import data

            return data(places(), hidden=form.hidden, trusted=form.trusted)
        case "web":
            from chargehand.tools.web import web

            if not destinations:
                raise UsageError(
                    "tools of the web need destinations: the hosts that this worker may ask, "
                    'or destinations = ["*"] for every public one'
                )
            return web(form.allow or destinations)
        case "sandbox":
            from chargehand.tools.sandbox.tools import LIMIT, sandbox

            return sandbox(data=form.folders, limit=length_of(form.limit) if form.limit else LIMIT)
        case _:
            from chargehand.tools.calculator import maths

            return maths()


def _chosen(tools: Sequence[Tool], wanted: str, reference: str) -> Sequence[Tool]:
    """All tools of a set; with `wanted`, the tool with that name, or the only tool with that word in its name."""
    if not wanted:
        return tools
    exact = [each for each in tools if each.name == wanted]
    found = exact or [each for each in tools if wanted in each.name.split("_")]
    if len(found) != 1:
        names = ", ".join(each.name for each in tools)
        raise UsageError(f"{reference!r} names {len(found) or 'no'} tools; there are {names}")
    return found


def _can_be_tool(thing: object) -> bool:
    return isinstance(thing, Tool)


def _as_tool(found: object, reference: str) -> Tool:
    if not isinstance(found, Tool):
        raise UsageError(
            f"{reference} is a {type(found).__name__}, not a tool; write @chargehand.tool above it"
        )
    return found


def _timeouts(server: ServerForm) -> "ServerTimeouts":
    """The timeouts of a server from the crew file, with defaults."""
    from chargehand.tools.mcp.server_settings import ServerTimeouts

    given = {"connect": server.connect, "listing": server.connect, "call": server.timeout}
    return ServerTimeouts(**{name: length for name, length in given.items() if length is not None})


def _filled(values: Mapping[str, str] | None, server: str) -> dict[str, str] | None:
    """Replace values of the form `$NAME` by environment variables, so that crew files contain no secrets."""
    if values is None:
        return None
    whose = f"MCP server {server!r}"
    return {
        name: from_environment(value[1:], whose) if value.startswith("$") else value
        for name, value in values.items()
    }


def from_environment(name: str, whose: str) -> str:
    """The value of an environment variable. Raises `UsageError` if it is not set."""
    if name not in os.environ:
        raise UsageError(f"{whose} needs {name}, which is not in the environment; set it")
    return os.environ[name]
