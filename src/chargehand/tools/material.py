"""Material: what a tool can reach, by name. Planners see the names; only workers that hold the tool see contents."""

import time
from collections.abc import Callable

from msgspec import Struct

#: seconds for which what was found is not looked for again
FRESH = 2.0


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


class Material(Struct, frozen=True):
    """Files and tables that a tool can reach at this moment."""

    files: tuple[FileEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
    #: False: there are more files than these
    is_whole: bool = True


class FreshMaterial:
    """What a look at the folders finds, kept for a moment: several workers ask for the same."""

    def __init__(self, look: Callable[[], Material]) -> None:
        self._look = look
        self._found: tuple[float, Material] | None = None

    def __call__(self) -> Material:
        now = time.monotonic()
        if self._found is None or now - self._found[0] > FRESH:
            self._found = now, self._look()
        return self._found[1]
