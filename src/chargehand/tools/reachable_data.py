"""Material: what a tool can reach, by name. Planners see the names; only workers that hold the tool see contents."""

import time
from collections.abc import Callable

from msgspec import Struct

#: what was found is not looked for again for so many times as long as the look took
KEPT = 10


class FileEntry(Struct, frozen=True, gc=False):
    """A file that a tool can read."""

    #: as the tool takes it
    path: str
    bytes: int


class TableEntry(Struct, frozen=True, gc=False):
    """A table that a tool can query."""

    #: as the tool takes it
    name: str
    #: name and type of each column
    columns: tuple[tuple[str, str], ...]
    #: the file that it is made of, if any
    path: str = ""
    #: None: nobody has counted them
    rows: int | None = None
    #: its first row, for workers that can query it
    sample: str = ""


class ResourceEntry(Struct, frozen=True, gc=False):
    """Something that a tool can read by its address, such as a resource of an MCP server."""

    uri: str
    name: str = ""
    #: its media type, if that is known
    kind: str = ""


class Material(Struct, frozen=True):
    """Files, tables and resources that a tool can reach at this moment."""

    files: tuple[FileEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
    #: False: there are more files than these
    is_whole: bool = True
    resources: tuple[ResourceEntry, ...] = ()


class FreshMaterial:
    """What a look at the folders finds. A look that took long is kept for a while: several workers ask for the same."""

    def __init__(self, look: Callable[[], Material], *, lists_files: bool = True) -> None:
        self._look = look
        #: False: it is no list of files, so that it has none says nothing
        self.lists_files = lists_files
        self._found = Material()
        self._kept_until = 0.0

    def __call__(self) -> Material:
        return self._found if time.monotonic() < self._kept_until else self.anew()

    def anew(self) -> Material:
        """Look at this moment, whatever was found before."""
        began = time.monotonic()
        found = self._look()
        ended = time.monotonic()
        self._found, self._kept_until = found, ended + KEPT * (ended - began)
        return found


def lists_files(holds: Callable[[], Material]) -> bool:
    """Whether files are missing that are not in what a tool holds."""
    return not isinstance(holds, FreshMaterial) or holds.lists_files


def held_now(holds: Callable[[], Material]) -> Material:
    """What a tool holds at this moment, for those who act on it instead of only telling of it."""
    return holds.anew() if isinstance(holds, FreshMaterial) else holds()
