"""The options of `chargehand serve` for the HTTP API, and the command `chargehand tokens`."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from chargehand.cli import output
from chargehand.cli.given_path import GivenPath
from chargehand.cli.options import journal_option, json_option
from chargehand.server.http.access_tokens import TOKEN_VARIABLE, AccessTokens, Scope
from chargehand.settings import Choice, token_file_beside
from chargehand.usable_path import checked_path

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


@click.group()
def tokens() -> None:
    """Create, list, rotate and revoke tokens for the HTTP API.

    Changes take effect at once, even on a running server.
    """


def _kept(token_file: str, journal: str) -> AccessTokens:
    path = checked_path(token_file, "--token-file") if token_file else token_file_beside(journal)
    return AccessTokens(path)


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice([each.value for each in Scope]),
    default=Scope.OPERATE.value,
    help="What the token allows. read: only read; operate (default): also submit runs, control them and answer "
    "questions; admin: also drain workers, let them join again, and rotate the token itself.",
)
@click.option(
    "--namespace",
    default="",
    metavar="NAME",
    help="Limit the token to the runs of this namespace.",
)
@token_file_option
@journal_option
def add(name: str, scope: str, namespace: str, token_file: str, journal: str) -> None:
    """Create a token and print it.

    NAME is the name of the new token. The token itself is shown only once.
    """
    output.result(_kept(token_file, journal).add(name, Scope(scope), namespace)[1])


@tokens.command("list")
@token_file_option
@journal_option
@json_option("Print one JSON object per token.")
def list_tokens(token_file: str, journal: str, *, as_json: bool) -> None:
    """List the names and scopes of all tokens, without the tokens themselves."""
    for grant in _kept(token_file, journal).grants:
        facts = {"name": grant.name, "scope": grant.scope.value, "namespace": grant.namespace}
        if as_json:
            output.as_json(facts)
        else:
            where = f"  namespace {grant.namespace}" if grant.namespace else ""
            output.result(f"{grant.name}  {grant.scope.value}{where}")


@tokens.command()
@click.argument("name")
@token_file_option
@journal_option
def rotate(name: str, token_file: str, journal: str) -> None:
    """Replace a token and print the new one.

    The old token is rejected at once.
    """
    output.result(_kept(token_file, journal).rotate(name))


@tokens.command()
@click.argument("name")
@token_file_option
@journal_option
def revoke(name: str, token_file: str, journal: str) -> None:
    """Revoke a token.

    The token is rejected at once.
    """
    _kept(token_file, journal).revoke(name)
    output.say(f"revoked the token {name!r}; it is rejected from now on")
