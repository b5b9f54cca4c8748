"""`chargehand init`: create a crew file, or copy a complete example."""

import re
import shutil
from importlib.resources import files
from pathlib import Path

import click

from chargehand.cli.given_path import GivenPath
from chargehand.cli.output import say
from chargehand.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
#: a link from an example's README to a documentation page; code in the link text may contain brackets
_DOCS_LINK = re.compile(r"\[((?:`[^`]*`|[^\]`])+)\]\(\.\./\.\./(docs/[^)]+)\)")
#: in the installed package, or in a checkout
_EXAMPLES = _PACKAGE / "examples", _PACKAGE.parents[1] / "examples"


def examples() -> dict[str, Path]:
    """The complete examples by name: folders that contain scripted model replies."""
    found = (replies.parent for root in _EXAMPLES for replies in root.glob("*/replies.toml"))
    return {folder.name.replace("_", "-"): folder for folder in sorted(found)}


@click.command()
@click.argument("path", default=None, required=False, type=GivenPath(path_type=Path))
@click.option(
    "--example",
    metavar="NAME",
    help=f"Copy a complete example instead: {', '.join(examples()) or 'none is installed'}.",
)
def init(path: Path | None, example: str | None) -> None:
    """Create a commented crew file, and suggest what to try next.

    PATH is the file to create (default: crew.toml). With --example, PATH is the folder to create (default: the name
    of the example).
    """
    if example is not None:
        _copy_example(example, path)
        return
    target = path or Path("crew.toml")
    target = target / "crew.toml" if target.is_dir() else target
    if target.suffix != ".toml":
        raise UsageError(
            f"{target} must end in .toml, because it is a crew file; try {target}.toml"
        )
    template = files("chargehand.crews").joinpath("template.toml").read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(template.replace("--crew crew.toml", f"--crew {target.name}"))
    except FileExistsError:
        raise UsageError(
            f"{target} already exists and was not changed; give another path"
        ) from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    say(f"created {target}, a crew of three workers to edit. Try:")
    say(f'  chargehand plan --crew {target} "What do these files say about …?"')
    say(f'  chargehand run --crew {target} --files PATH "What do these files say about …?"')


def _copy_example(name: str, path: Path | None) -> None:
    known = examples()
    source = known.get(name.replace("_", "-"))
    if source is None:
        raise UsageError(
            f"there is no example {name!r}; the examples are {', '.join(known) or 'not installed'}"
        )
    target = path or Path(name)
    script = target / f"{source.name}.py"
    try:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    except FileExistsError:
        raise UsageError(
            f"{target} already exists and was not changed; give another path"
        ) from None
    except (OSError, shutil.Error) as error:
        raise UsageError(f"{target} cannot be written: {error}") from None
    _unlink_docs(target / "README.md")
    say(f"created {target}, a complete example with its data; see {target / 'README.md'}. Try:")
    say(f"  python {script}")


def _unlink_docs(readme: Path) -> None:
    """Replace links to documentation pages by their names: the pages are not copied."""
    if readme.exists():
        text = readme.read_text(encoding="utf-8")
        readme.write_text(_DOCS_LINK.sub(r"\1 (\2 of chargehand)", text), encoding="utf-8")
