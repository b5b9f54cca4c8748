"""Material: the names of what a tool can reach. Planners see names; only workers with the tool see contents."""

import time
from collections.abc import Callable

from msgspec import Struct

#: a listing is reused for this many times the time that it took
KEPT = 10


class FileEntry(Struct, frozen=True, gc=False):
    """A file that a tool can read."""

    #: the path, in the form that the tool takes
    path: str
    bytes: int


class TableEntry(Struct, frozen=True, gc=False):
    """A table that a tool can query."""

    #: the name, in the form that the tool takes
    name: str
    #: name and type of each column
    columns: tuple[tuple[str, str], ...]
    #: the file that it is loaded from, if any
    path: str = ""
    #: number of rows; None: not counted yet
    rows: int | None = None
    #: its first row, for workers that can query it
    sample: str = ""
    #: why it cannot be queried, if that is known
    error: str = ""


class ResourceEntry(Struct, frozen=True, gc=False):
    """Something that a tool can read by its address, such as a resource of an MCP server."""

    uri: str
    name: str = ""
    #: its media type, if known
    kind: str = ""


class Material(Struct, frozen=True):
    """The files, tables and resources that a tool can reach at this moment."""

    files: tuple[FileEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
    #: False: there are more files than the listed ones
    is_whole: bool = True
    resources: tuple[ResourceEntry, ...] = ()


class FreshMaterial:
    """The current material of a tool. A slow listing is cached for a while, because several workers ask for it."""

    def __init__(self, look: Callable[[], Material], *, lists_files: bool = True) -> None:
        self._look = look
        #: False: it never lists files, so a file that is not in it may still exist
        self.lists_files = lists_files
        self._found = Material()
        self._kept_until = 0.0

    def __call__(self) -> Material:
        return self._found if time.monotonic() < self._kept_until else self.anew()

    def anew(self) -> Material:
        """List the material now, without the cache."""
        began = time.monotonic()
        found = self._look()
        ended = time.monotonic()
        self._found, self._kept_until = found, ended + KEPT * (ended - began)
        return found


def lists_files(holds: Callable[[], Material]) -> bool:
    """Whether a tool lists all files that it can reach, so an unlisted file does not exist for it."""
    return not isinstance(holds, FreshMaterial) or holds.lists_files


def held_now(holds: Callable[[], Material]) -> Material:
    """The material of a tool, without the cache: for decisions that depend on it."""
    return holds.anew() if isinstance(holds, FreshMaterial) else holds()
