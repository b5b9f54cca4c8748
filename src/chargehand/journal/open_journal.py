"""From what a person writes, a path or nothing at all, to a journal."""

import os
from typing import Literal, TypeAlias

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import Duration
from chargehand.journal.base import LEASE, PATIENCE, Journal
from chargehand.journal.memory import MemoryJournal

Durability: TypeAlias = Literal["strict", "relaxed"]


def open_journal(
    where: "str | os.PathLike[str] | Journal | None" = None,
    *,
    durability: Durability = "strict",
    accept_damage: bool = False,
    lease: Duration = LEASE,
    patience: Duration = PATIENCE,
    blob_dir: "str | os.PathLike[str] | None" = None,
    vfs: str = "",
) -> Journal:
    """The journal at this place, made if it is not there; None is one in memory.

    A journal is handed back as it is. The options are those of `SqliteJournal`. Opening looks at
    the file before it returns: a damaged or unfit one is refused here, not in the middle of a run.
    """
    if where is None:
        return MemoryJournal()
    if not isinstance(where, (str, os.PathLike)):
        if not hasattr(where, "append"):
            raise UsageError(f"{where!r} is no journal; give a path, a journal, or None")
        return where
    path = os.fspath(where)
    if path.startswith(("postgresql:", "postgres:")):
        raise UsageError(
            "journals in PostgreSQL are not there yet; give the path of a file, such as runs.db"
        )
    path = path.removeprefix("sqlite:")
    if not path:
        raise UsageError("the journal's path is empty; give the path of a file, such as runs.db")
    # Imported here so that programs with a journal in memory never load SQLite.
    from pathlib import Path

    from chargehand.journal.sqlite import SqliteJournal

    return SqliteJournal(
        Path(path),
        durability=durability,
        accept_damage=accept_damage,
        lease=lease,
        patience=patience,
        blob_dir=None if blob_dir is None else Path(blob_dir),
        vfs=vfs,
    )
