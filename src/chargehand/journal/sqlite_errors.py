"""What SQLite and the file system say when they refuse, in the journal's own words."""

import errno
import os
import struct
from pathlib import Path

import apsw

from chargehand import errors
from chargehand.facts.outcome import SHORTAGE

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
#: what Python says of values that nobody would have stored: SQLite itself does not look at types
#: when it reads
NONSENSE = (TypeError, ValueError, OverflowError, struct.error)
NO_RIGHT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def refusal(
    error: Exception, path: Path, system_errno: int = 0
) -> errors.JournalError | errors.InternalError:
    """The journal's error for one of SQLite's. `system_errno` tells a full disk from a broken one."""
    match error:
        case errors.JournalError() | errors.InternalError():
            return error
        case OSError():
            return file_refusal(error, path)
        case apsw.FullError():
            return full(path)
        case apsw.IOError() | apsw.CantOpenError() if system_errno in NO_ROOM:
            return full(path)
        case MemoryError() | apsw.NoMemError():
            return short(path, "no memory")
        case apsw.IOError() | apsw.CantOpenError() if _is_short(error, system_errno):
            return short(path, os.strerror(system_errno))
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return read_only(path)
        case apsw.IOError() | apsw.CantOpenError() if system_errno in NO_RIGHT:
            return read_only(path)
        case apsw.IOError():
            return failed(path, f"{error}")
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return errors.JournalBusy(
                f"{path} is locked by another program; close that program, or try again later"
            )
        case apsw.NotADBError() if _is_foreign(path):
            return errors.JournalError(
                f"{path} is not a chargehand journal, nor any SQLite database; give the path of a "
                "journal, or of a file that does not exist yet"
            )
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError() | apsw.FormatError():
            return damaged(path, f"SQLite cannot make sense of it ({error})")
        case apsw.ConstraintError() | apsw.MismatchError():
            return damaged(path, f"its tables contradict each other ({error})")
        case apsw.CantOpenError():
            return errors.JournalError(
                f"{path} cannot be opened ({error}); check its folder and its rights"
            )
        case _:
            return errors.InternalError(f"the journal {path} met {type(error).__name__}: {error}")


#: what every SQLite database begins with
_HEADER = b"SQLite format 3\0"


def _is_foreign(path: Path) -> bool:
    """Whether a file never was a journal: it has neither the header of a database nor a head mark beside it."""
    if path.with_name(f"{path.name}-head").exists():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) != _HEADER
    except OSError:
        return False


def file_refusal(error: OSError, path: Path) -> errors.JournalError:
    """The journal's error for one of the file system's."""
    if error.errno in NO_ROOM:
        return full(path)
    if error.errno in NO_RIGHT:
        return read_only(path)
    if error.errno in SHORTAGE:
        return short(path, str(error))
    return failed(path, str(error))


def _is_short(error: apsw.Error, system_errno: int) -> bool:
    # A sync that failed is never tried again, whatever it failed for. Nor does EAGAIN count: SQLite
    # remembers it from a lock that it had to ask for twice.
    is_sync = getattr(error, "extendedresult", 0) in (
        apsw.SQLITE_IOERR_FSYNC,
        apsw.SQLITE_IOERR_DIR_FSYNC,
    )
    return system_errno in SHORTAGE - {errno.EAGAIN} and not is_sync


def damaged(path: Path | str, fact: str) -> errors.JournalDamaged:
    """Bytes are not what they were."""
    return errors.JournalDamaged(f"{path} is damaged: {fact}; restore it from a backup")


def full(path: Path) -> errors.JournalFull:
    """There is no room."""
    return errors.JournalFull(
        f"{path} cannot grow: its disk is full; nothing of this request was stored: "
        "make room, then try again"
    )


def short(path: Path, fact: str) -> errors.JournalBusy:
    """This process has run out of something that comes back."""
    return errors.JournalBusy(
        f"{path} cannot be used just now ({fact}); nothing of this request was stored: close files, end "
        "processes or raise the limits of this process, then try again"
    )


def read_only(path: Path) -> errors.JournalReadOnly:
    """There is no right to write."""
    return errors.JournalReadOnly(
        f"{path} cannot be written; give this user the right to write the file and its folder, "
        "or choose another place for the journal"
    )


def unreadable(path: Path | str) -> errors.JournalError:
    """There is not even the right to read."""
    return errors.JournalError(
        f"{path} cannot be read: this user has no right to; give it the right to read the file and to enter its folder"
    )


def failed(path: Path, fact: str) -> errors.JournalFailed:
    """The disk is not to be trusted."""
    return errors.JournalFailed(
        f"the disk failed under {path} ({fact}); nothing is acknowledged any more: "
        "check the disk, then open the journal again"
    )
