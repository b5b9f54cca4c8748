"""`chargehand tokens`: create, list, rotate and revoke the tokens of the HTTP API."""

import click

from chargehand.cli import output
from chargehand.cli.options import journal_option, json_option
from chargehand.cli.serve_http_options import token_file_option
from chargehand.server.http.access_tokens import AccessTokens, Scope
from chargehand.supervisor_factory import token_file_beside
from chargehand.usable_path import checked_path


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
