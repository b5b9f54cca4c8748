"""The words that models are given, one file each; users may put files of their own in their place."""

import os
import re
from functools import cache
from importlib import resources
from pathlib import Path

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.regular_file import read_regular_file

_BLANK = re.compile(r"\$([a-z]+)")
_EMPTY_LINES = re.compile(r"\n{3,}")


def prompt(name: str, folder: str | Path | None = None, /, **words: str) -> str:
    """The prompt of this name with its blanks filled in; from `folder`, if it has one of that name."""
    literals, blanks = _pieces(name, None if folder is None else str(folder))
    pieces = [literals[0]]
    try:
        for blank, literal in zip(blanks, literals[1:], strict=True):
            pieces += (words[blank], literal)
    except KeyError as error:
        known = ", ".join(f"${word}" for word in sorted(words))
        raise UsageError(
            f"prompt {name!r} has the blank ${error.args[0]}; there are {known}"
        ) from None
    text = "".join(pieces)
    return (_EMPTY_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()


@cache
def _pieces(name: str, folder: str | None) -> tuple[list[str], list[str]]:
    """What stands between the blanks of a prompt, and the blanks. Read once: a prompt is filled in often."""
    own = None if folder is None else Path(folder) / f"{name}.md"
    if own is not None and own.exists():
        text = _own(own)
    else:
        text = resources.files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8")
    parts = _BLANK.split(text)
    return parts[0::2], parts[1::2]


def _own(path: Path) -> str:
    try:
        return read_regular_file(path).decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the prompt {path} cannot be read: {why}") from None


def prompt_folder(value: object, what: str) -> Path:
    """A folder that is there."""
    if not isinstance(value, (str, os.PathLike)):
        raise UsageError(f"{what}={shown(value)} must be the path of a folder")
    try:
        path = Path(value)
        is_there = path.is_dir()
    except (TypeError, ValueError, OSError):  # NUL, a lone surrogate, too long
        is_there = False
    if not is_there:
        raise UsageError(f"{what}={shown(value)} is not a folder; check the path")
    return path
