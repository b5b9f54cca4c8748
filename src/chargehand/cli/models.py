"""`chargehand models`: list models, and download models that run on this machine."""

import os
from collections.abc import Iterator

import click

from chargehand.cli import output
from chargehand.cli.options import json_option
from chargehand.errors import UsageError
from chargehand.models.llama_runtime import HOW_TO_INSTALL, is_installed
from chargehand.models.model_files import KNOWN, get_model, path_of
from chargehand.models.open_model import IN_PROCESS, PROVIDERS
from chargehand.presentation.display_text import table


@click.group()
def models() -> None:
    """List models, and download models that run on this machine."""


@models.command("list")
@json_option("Print one JSON object per model.")
def list_(*, as_json: bool) -> None:
    """List the models that you can use, and what is missing for the others.

    The command sends nothing over the network.
    """
    rows = list(_rows())
    if as_json:
        for name, state, how in rows:
            output.as_json({"model": name, "state": state, "how": how})
        return
    width = output.width()
    output.result(table(("model", "state", "how"), rows, width))


def _rows() -> Iterator[tuple[str, str, str]]:
    for name, provider in PROVIDERS.items():
        has_key = bool(os.environ.get(provider.key_variable, "").strip())
        url = os.environ.get(provider.url_variable, "").strip() or provider.base_url
        if provider.needs_key and not has_key:
            yield f"{name}:…", "no key", f"set {provider.key_variable}"
        elif not url:
            yield f"{name}:…", "no address", f"set {provider.url_variable}"
        else:
            yield f"{name}:…", "ready" if provider.needs_key else "not tried", url
    for name in KNOWN:
        try:
            fetched = str(path_of(name))
            if is_installed():
                yield f"local:{name}", "ready", fetched
            else:
                yield f"local:{name}", "no xllamacpp", HOW_TO_INSTALL
        except UsageError:
            yield f"local:{name}", "not fetched", f"chargehand models get {name}"
    for name, (_, extra) in IN_PROCESS.items():
        if name == "local":
            continue
        how = f"with chargehand[{extra}]" if extra else "rules, no language model"
        shown = name if name == "offline" else f"{name}:…"
        yield (
            shown,
            "ready" if not extra else "extra",
            how if name != "written" else "replies from a file",
        )


@models.command("get")
@click.argument("name")
def get(name: str) -> None:
    """Download the weights of a small model to your cache.

    If the weights are there already, nothing is downloaded. `chargehand models list` lists the names.
    """
    click.echo(f"{name}: {get_model(name)}")
