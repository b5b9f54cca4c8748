"""Refuses pipes, devices, sockets and folders where the path of a file is expected."""

import stat
from pathlib import Path

from chargehand.errors import UsageError

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(path: Path) -> str:
    """What is there, if it is not a regular file: `a pipe`, `a folder`, …; else nothing."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""  # opening it says why
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "")


def refuse_special_file(path: Path, way_out: str = "give the path of a file") -> None:
    """Raise `UsageError` for what is there and is not a regular file: reading it may wait or never end."""
    if words := kind_of(path):
        raise UsageError(f"{path} is {words}, not a regular file; {way_out}")
