"""What a docstring says of a function and of each of its parameters."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+[^:]*:")
_GOOGLE_HEADING = re.compile(r"(?:Args|Arguments|Parameters|Params)\s*:\s*$", re.IGNORECASE)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_UNDERLINE = re.compile(r"-{3,}\s*$")


class Docstring(NamedTuple):
    """The words that a model sees."""

    summary: str
    parameters: dict[str, str]


def read_docstring(function: Callable[..., Any]) -> Docstring:
    """The first paragraph, and the parameters' descriptions in Google, NumPy or Sphinx style."""
    lines = (inspect.getdoc(function) or "").splitlines()
    found = {name: " ".join(words.split()) for name, words in _parameters(lines)}
    return Docstring(_summary(lines), {name: words for name, words in found.items() if words})


def _summary(lines: list[str]) -> str:
    paragraph = []
    for line in lines:
        if not line.strip() or _SPHINX_FIELD.match(line) or _GOOGLE_HEADING.match(line):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph)


def _parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        if _GOOGLE_HEADING.match(line.strip()):
            yield from _google(_indented(lines, number))
        elif _is_numpy_heading(lines, number):
            yield from _numpy(lines[number + 2 :])
        elif match := _SPHINX.match(line.strip()):
            yield match[1], " ".join([match[2], *_indented(lines, number)])


def _is_numpy_heading(lines: list[str], number: int) -> bool:
    is_heading = lines[number].strip().lower() in ("parameters", "other parameters")
    return is_heading and number + 1 < len(lines) and bool(_UNDERLINE.match(lines[number + 1]))


def _indented(lines: list[str], number: int) -> list[str]:
    """The lines below this one that belong to it."""
    depth = _depth(lines[number])
    block = []
    for line in lines[number + 1 :]:
        if line.strip() and _depth(line) <= depth:
            break
        block.append(line)
    return block


def _google(block: list[str]) -> Iterator[tuple[str, str]]:
    depth = min((_depth(line) for line in block if line.strip()), default=0)
    for number, line in enumerate(block):
        match = _GOOGLE_ENTRY.match(line.strip())
        if match and _depth(line) == depth:
            yield match[1], " ".join([match[2], *_indented(block, number)])


def _numpy(lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]):
            return  # the heading of the next section
        match = _NUMPY_ENTRY.match(line)
        if match and _depth(line) == 0:
            words = " ".join(_indented(lines, number))
            yield from ((name.strip(), words) for name in match[1].split(","))


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
