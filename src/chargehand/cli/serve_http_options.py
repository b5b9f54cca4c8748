"""The options of `chargehand serve` for the HTTP API."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from chargehand.cli import output
from chargehand.cli.given_path import GivenPath
from chargehand.server.http.access_tokens import TOKEN_VARIABLE
from chargehand.supervisor_factory import Choice, token_file_beside

if TYPE_CHECKING:
    from chargehand.server.http.web_server import WebOptions

Command = TypeVar("Command", bound=Callable[..., Any])
OFF = "off"
INSTALL = "pip install 'chargehand[server]'"


def web_options(command: Command) -> Command:
    """Add the options of the HTTP API: address, hosts, TLS, tokens."""
    options = (
        click.option(
            "--http",
            metavar="HOST:PORT",
            envvar="CHARGEHAND_HTTP",
            default="",
            help="Address of the HTTP API and the dashboard; off: serve neither. Default: 127.0.0.1:8642, or a free port "
            "if that one is taken.",
        ),
        click.option(
            "--allow-host",
            "hosts",
            multiple=True,
            metavar="NAME",
            help="Also accept requests for this host name, for example behind a proxy. Can be repeated.",
        ),
        click.option(
            "--base-path",
            default="",
            metavar="PATH",
            help="URL path under which a proxy serves the API and the dashboard.",
        ),
        click.option(
            "--https-proxy",
            "is_secure",
            is_flag=True,
            help="Send cookies only over HTTPS, for a server behind an HTTPS proxy.",
        ),
        click.option(
            "--tls-cert",
            default="",
            type=GivenPath(),
            metavar="FILE",
            help="Serve HTTPS with this certificate.",
        ),
        click.option(
            "--tls-key",
            default="",
            type=GivenPath(),
            metavar="FILE",
            help="Private key of the certificate.",
        ),
        click.option("--read-only", is_flag=True, help="Make the API read-only."),
        token_file_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def token_file_option(command: Command) -> Command:
    return click.option(
        "--token-file",
        default="",
        type=GivenPath(),
        metavar="FILE",
        help="File that stores the tokens. Default: tokens.json next to the journal.",
    )(command)


def web_options_of(options: dict[str, Any], choice: Choice) -> "WebOptions | None":
    """Remove the API options from the options of a command; None if the API is switched off or not installed."""
    http = options.pop("http")
    given = {
        "hosts": tuple(options.pop("hosts")),
        "base": options.pop("base_path"),
        "is_secure": options.pop("is_secure"),
        "certificate": options.pop("tls_cert"),
        "key": options.pop("tls_key"),
        "is_read_only": options.pop("read_only"),
    }
    token_file = options.pop("token_file") or str(token_file_beside(choice.journal))
    if http == OFF:
        return None
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        if http:
            raise click.UsageError(f"--http needs the server extra: {INSTALL}")
        output.say(f"serving without the HTTP API and the dashboard; to add them: {INSTALL}")
        return None
    from chargehand.server.http.web_server import HOST, WebOptions

    host, port = _place(http) if http else (HOST, None)
    return WebOptions(
        host=host,
        port=port,
        token_file=token_file,
        token=os.environ.get(TOKEN_VARIABLE, "").strip(),
        source=choice.source(),
        **given,
    )


def _place(http: str) -> tuple[str, int]:
    host, colon, port = http.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise click.UsageError(f"--http {http!r} must be HOST:PORT, such as 127.0.0.1:8642, or off")
    return host.removeprefix("[").removesuffix("]"), int(port)
