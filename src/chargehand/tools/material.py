"""Material: what a tool can reach, by name. Planners see the names; only workers that hold the tool see contents."""

from msgspec import Struct


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
    #: None: nobody has counted them
    rows: int | None = None


class Material(Struct, frozen=True):
    """Files and tables that a tool can reach at this moment."""

    files: tuple[FileEntry, ...] = ()
    tables: tuple[TableEntry, ...] = ()
