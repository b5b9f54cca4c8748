"""Reads files that a person names: regular files of a bounded size, so that no read waits or never ends."""

import os
import stat
from pathlib import Path

from chargehand.errors import UsageError
from chargehand.facts.sizes import shown_size

#: bytes of a file, if its reader sets no other bound; more is no file that a person wrote
MOST_BYTES = 64 * 2**20
#: bytes of one read
_PIECE = 2**20
# A pipe or a terminal that took the place of the file meanwhile would otherwise make the opening itself wait.
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_WAY_OUT = "give the path of a file"

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
        return _kind(path.stat())
    except (OSError, ValueError):
        return ""  # opening it says why


def refuse_special_file(path: Path, way_out: str = _WAY_OUT) -> None:
    """Raise `UsageError` for what is there and is not a regular file: reading it may wait or never end."""
    _refuse(path, kind_of(path), way_out)


def read_regular_file(path: Path, most: int = MOST_BYTES, *, way_out: str = _WAY_OUT) -> bytes:
    """All bytes of a file. Never waits for what is no regular file, and never reads more than `most` bytes.

    Raises `UsageError` in both cases, and `OSError` where opening it does.
    """
    refuse_special_file(path, way_out)  # before opening: to open some devices has an effect
    try:
        handle = os.open(path, _READ)
    except ValueError:  # NUL, a lone surrogate
        raise UsageError(f"{str(path)!r} is not the path of a file; {way_out}") from None
    try:
        _refuse(path, _kind(os.fstat(handle)), way_out)
        data = bytearray()
        while len(data) <= most and (piece := os.read(handle, _PIECE)):
            data += piece
    finally:
        os.close(handle)
    if len(data) > most:
        raise UsageError(f"{path} is larger than {shown_size(most)}; check the path")
    return bytes(data)


def _kind(status: os.stat_result) -> str:
    return next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "")


def _refuse(path: Path, kind: str, way_out: str) -> None:
    if kind:
        raise UsageError(f"{path} is {kind}, not a regular file; {way_out}")
