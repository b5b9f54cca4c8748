"""The command line. Every command imports what it needs itself, so that `--help` stays quick."""

import sys

import click

from chargehand.errors import ChargehandError


class _Commands(click.Group):
    """Commands whose errors are one line on stderr: the fact and the way out, no stack."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ChargehandError as error:
            click.echo(f"chargehand: {error}", err=True)
            sys.exit(2)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chargehand")
def main() -> None:
    """A supervisor for teams of agents."""


@main.group()
def models() -> None:
    """Models that run on this machine."""


@models.command("get")
@click.argument("name")
def get(name: str) -> None:
    """Fetch the weights of a small model into the user's cache, once."""
    from chargehand.models.weights import get_model

    click.echo(f"{name}: {get_model(name)}")
