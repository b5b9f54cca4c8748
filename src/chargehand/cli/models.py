"""`chargehand models`: models that run on this machine."""

import click


@click.group()
def models() -> None:
    """Models that run on this machine."""


@models.command("get")
@click.argument("name")
def get(name: str) -> None:
    """Fetch the weights of a small model into the user's cache, once."""
    from chargehand.models.model_files import get_model

    click.echo(f"{name}: {get_model(name)}")
