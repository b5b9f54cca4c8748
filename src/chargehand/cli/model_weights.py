"""`chargehand models`: models that run on this machine."""

import click

from chargehand.models.model_files import get_model


@click.group()
def models() -> None:
    """Models that run on this machine."""


@models.command("get")
@click.argument("name")
def get(name: str) -> None:
    """Fetch the weights of a small model into the user's cache, once."""
    click.echo(f"{name}: {get_model(name)}")
