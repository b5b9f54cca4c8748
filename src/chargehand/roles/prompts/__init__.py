"""The words that models are given, one file each; users may put files of their own in their place."""

from functools import cache
from importlib import resources
from pathlib import Path
from string import Template

from chargehand.errors import UsageError


def prompt(name: str, folder: str | Path | None = None, /, **words: str) -> str:
    """The prompt of this name with its blanks filled in; from `folder`, if it has one of that name."""
    text = _own(name) if folder is None else _theirs(name, Path(folder))
    try:
        filled = Template(text).substitute(words)
    except (KeyError, ValueError) as error:
        raise UsageError(f"prompt {name!r} has a blank that nothing fills: {error}") from error
    return "\n".join(line.rstrip() for line in filled.splitlines()).strip()


@cache
def _own(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8")


@cache
def _theirs(name: str, folder: Path) -> str:
    file = folder / f"{name}.md"
    return file.read_text(encoding="utf-8") if file.is_file() else _own(name)
