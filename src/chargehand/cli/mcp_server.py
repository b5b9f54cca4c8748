"""`chargehand mcp`: serve the supervisor over MCP, the Model Context Protocol."""

import asyncio
import logging
import os
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from chargehand.cli.options import PathsCommand, boss_for, choice_of, crew_options
from chargehand.cli.output import say
from chargehand.errors import UsageError
from chargehand.terminal_detection import is_terminal

TOKEN_VARIABLE = "CHARGEHAND_MCP_TOKEN"  # noqa: S105 - the name of a variable, not a token


def place(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parse an option that is HOST:PORT."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{value!r} must be HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command(cls=PathsCommand)
@crew_options
@click.option(
    "--http",
    metavar="HOST:PORT",
    callback=place,
    help="Serve over streamable HTTP instead of stdin and stdout. A host that other machines can reach needs a "
    f"token in ${TOKEN_VARIABLE}. Port 0 picks a free port.",
)
@click.option(
    "--approvals",
    is_flag=True,
    help="Let clients answer all questions with the tool `answer`, including those about approvals of tool calls and "
    "plans, failed tasks, the budget and interrupted steps. By default, only people can answer these.",
)
def mcp(*, http: tuple[str, int] | None, approvals: bool, **options: Any) -> None:
    """Serve the crew over MCP, the Model Context Protocol.

    Without --http, the server talks to one client over stdin and stdout, and prints nothing else to stdout. With
    --http, it can have many clients. Tools: plan, run, resume, status, result, report, answer, cancel, runs.
    """
    try:
        from chargehand.server.mcp import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        raise UsageError(f"serving MCP needs {error.name}; install chargehand[mcp]") from None
    logging.getLogger("chargehand").propagate = False  # the command line logs to stderr already
    with redirect_stdout(sys.stderr):  # a crew may print while it is loaded
        boss, _ = boss_for(choice_of(options))
    # Removed from the environment, so that programs started by workers cannot read it.
    token = os.environ.pop(TOKEN_VARIABLE, "").strip()
    if http is None:
        if sys.stdin is None or sys.stdout is None:
            raise UsageError(
                "MCP messages need stdin and stdout, and one of them is closed; open it, or use --http 127.0.0.1:8000"
            )
        if is_terminal(sys.stdin):
            say(
                "waiting for MCP messages on stdin. MCP clients start this command themselves; "
                "to run a server, use --http 127.0.0.1:8000"
            )
        asyncio.run(serve_stdio(boss, approvals=approvals))
    else:
        asyncio.run(serve_http(boss, *http, token=token, approvals=approvals, say=say))
