"""Reads the descriptions of a function and of its parameters from its docstring."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class Docstring(NamedTuple):
    """The descriptions that a model sees."""

    summary: str
    parameters: dict[str, str]


def read_docstring(function: Callable[..., Any]) -> Docstring:
    """The first paragraph, and the parameters' descriptions in Google, NumPy or Sphinx style."""
    # Imported here, because `import chargehand` does not need it.
    from docstring_parser import parse

    read = parse(inspect.getdoc(function) or "")
    summary = read.short_description or ""
    if not read.blank_after_short_description:  # the first paragraph has more lines
        summary += " " + (read.long_description or "").partition("\n\n")[0]
    described = {
        name.strip("* "): " ".join((param.description or "").split())
        for param in read.params
        for name in param.arg_name.split(",")  # NumPy style may describe several parameters at once
    }
    return Docstring(
        " ".join(summary.split()), {name: words for name, words in described.items() if words}
    )
