"""The stack trace of a failure as lines for people: the frames of the user's code."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

_PACKAGE = str(Path(__file__).parent.parent)
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+')
#: frames that run the user's code: chargehand, also that of another process or machine, and the event loop
_RUNS_IT = re.compile(
    r"[/\\](?:site-packages|src)[/\\]chargehand[/\\]"
    r"|[/\\]python3\.\d+[/\\](?:asyncio|concurrent[/\\]futures)[/\\]",
    re.IGNORECASE,
)


def stack_lines(stack: str) -> list[str]:
    """The lines of a stack trace without the frames of chargehand and asyncio, if other frames are left."""
    pieces = list(_pieces(stack.rstrip().splitlines()))
    if not any(file and not _is_inner(file) for file, _ in pieces):
        return [line for _, lines in pieces for line in lines]
    return [line for file, lines in pieces if not file or not _is_inner(file) for line in lines]


def _pieces(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The frames, each with its file, and the lines between frames, with an empty file."""
    number, file, indent = 0, "", 0

    def of_piece(line: str) -> tuple[int, str]:
        nonlocal number, file, indent
        if frame := _FRAME.match(line):
            number, file = number + 1, frame["file"]
            indent = len(line) - len(line.lstrip())
        elif file and len(line) - len(line.lstrip()) <= indent:
            number, file = number + 1, ""  # the source line and its marks are indented further
        return number, file

    for (_, owner), found in groupby(lines, of_piece):
        yield owner, list(found)


def _is_inner(file: str) -> bool:
    return file.startswith(_PACKAGE) or _RUNS_IT.search(file) is not None
