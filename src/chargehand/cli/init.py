"""`chargehand init`: a crew file to start from."""

from importlib.resources import files
from pathlib import Path

import click

from chargehand.cli.output import say
from chargehand.errors import UsageError


@click.command()
@click.argument("path", default="crew.toml", type=click.Path(path_type=Path))
def init(path: Path) -> None:
    """Write a commented crew file to PATH (default: crew.toml) and say what to try next."""
    target = path / "crew.toml" if path.is_dir() else path
    if target.suffix != ".toml":
        raise UsageError(f"{target} does not end in .toml, as crew files do; try {target}.toml")
    template = files("chargehand.crews").joinpath("template.toml").read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(template.replace("--crew crew.toml", f"--crew {target.name}"))
    except FileExistsError:
        raise UsageError(
            f"{target} is there already and is left alone; give another path"
        ) from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    say(f"{target}: three workers, ready to be changed. Try:")
    say(f'  chargehand plan --crew {target} "What do these files say about …?"')
    say(f'  chargehand run --crew {target} --files PATH "What do these files say about …?"')
