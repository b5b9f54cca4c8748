"""From what a person writes, a path or nothing at all, to a journal."""

import os
from pathlib import Path
from typing import Literal, TypeAlias

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import Duration
from chargehand.journal.base import LEASE, PATIENCE, Journal
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.postgres_address import is_dsn
from chargehand.journal.verify import OpenedForCheck

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
    namespace: str = "",
) -> Journal:
    """Open the journal at this path, or create it; None is a journal in memory.

    A journal object is returned unchanged. The options are those of `SqliteJournal`. The file
    is checked before this returns: a damaged or unsuitable one is refused here, not in the
    middle of a run.
    """
    if where is None:
        return MemoryJournal()
    if not isinstance(where, (str, os.PathLike)):
        if not hasattr(where, "append"):
            raise UsageError(f"{where!r} is not a journal; give a path, a journal, or None")
        return where
    path = os.fspath(where)
    if is_dsn(path):
        return _open_postgres(path, durability, lease, patience, namespace)
    if namespace:
        raise UsageError(
            "namespace= is for journals in PostgreSQL; give each team a file of its own"
        )
    path = path.removeprefix("sqlite:")
    if not path:
        raise UsageError("the journal's path is empty; give the path of a file, such as runs.db")
    # Imported here so that programs with a journal in memory never load SQLite.
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


def open_to_read(where: "str | os.PathLike[str] | Journal | None") -> Journal:
    """Open a journal for those who mean to read it: `open_journal`, but also a file that this user may not write.

    Whatever would write to such a file raises `JournalReadOnly`.
    """
    if not isinstance(where, (str, os.PathLike)) or is_dsn(os.fspath(where)):
        return open_journal(where)
    path = os.fspath(where).removeprefix("sqlite:")
    if not path:
        return open_journal(where)  # says that it is empty
    from chargehand.journal.sqlite import SqliteJournal

    return SqliteJournal(Path(path), may_be_read_only=True)


def open_to_check(where: "str | os.PathLike[str]") -> OpenedForCheck:
    """Open a journal only to read it and to find what is wrong with it; nothing is made, changed or accepted.

    Raises `JournalDamaged` if nothing in it can be read.
    """
    path = os.fspath(where)
    if is_dsn(path):
        return OpenedForCheck(
            _open_postgres(path, "strict", LEASE, PATIENCE, "", makes_tables=False)
        )
    from chargehand.journal.sqlite_verification import SqliteCheck

    journal = SqliteCheck(Path(path.removeprefix("sqlite:")))
    return OpenedForCheck(journal, tuple(map(str, journal.faults)))


def _open_postgres(
    dsn: str,
    durability: Durability,
    lease: Duration,
    patience: Duration,
    namespace: str,
    *,
    makes_tables: bool = True,
) -> Journal:
    from importlib.util import find_spec

    if find_spec("asyncpg") is None:
        raise UsageError(
            "a journal in PostgreSQL needs asyncpg; get it with: pip install 'chargehand[postgres]'"
        )
    from chargehand.journal.postgres import PostgresJournal

    return PostgresJournal(
        dsn,
        namespace=namespace,
        durability=durability,
        lease=lease,
        patience=patience,
        makes_tables=makes_tables,
    )
