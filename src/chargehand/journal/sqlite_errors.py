"""What SQLite and the file system say when they refuse, in the journal's own words."""

import errno
import os
import shlex
import struct
from pathlib import Path

import apsw

from chargehand import errors
from chargehand.facts.outcome import SHORTAGE

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: what Python says of values that nobody would have stored: SQLite itself does not look at types
#: when it reads
NONSENSE = (TypeError, ValueError, OverflowError, struct.error)
NO_RIGHT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def refusal(
    error: Exception, path: Path, system_errno: int = 0
) -> errors.JournalError | errors.InternalError:
    """The journal's error for one of SQLite's. `system_errno` tells a full disk from a broken one.

    Only bytes that are not what they were are damage: whoever reads of damage may replace the file by an old backup.
    """
    match error:
        case errors.JournalError() | errors.InternalError():
            return error
        case OSError():
            return file_refusal(error, path)
        case apsw.FullError():
            return full(path)
        case apsw.IOError() | apsw.CantOpenError() if system_errno in NO_ROOM:
            return full(path, system_errno)
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
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return damaged(path, f"SQLite cannot make sense of it ({error})")
        case apsw.ConstraintError() | apsw.MismatchError():
            return damaged(path, f"its tables contradict each other ({error})")
        case apsw.CantOpenError():
            return errors.JournalError(
                f"{path} cannot be opened ({error}); check its folder and its rights"
            )
        case apsw.SQLError():
            command = shlex.join(["chargehand", "verify", "--journal", str(path)])
            return errors.JournalError(
                f"SQLite refused a statement on {path} ({error}), which does not mean that it is damaged; "
                f"see whether it is with: {command}"
            )
        case _:
            return errors.InternalError(f"the journal {path} met {type(error).__name__}: {error}")


def file_refusal(error: OSError, path: Path) -> errors.JournalError:
    """The journal's error for one of the file system's."""
    if error.errno in NO_ROOM:
        return full(path, error.errno)
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


def not_a_journal(path: Path) -> errors.JournalError:
    """A file that SQLite does not know, and beside which nothing says that it ever did."""
    return errors.JournalError(
        f"{path} is not a chargehand journal, nor any SQLite database, and was left as it is; give the path of a "
        "journal, or of a file that does not exist yet"
    )


def full(path: Path, number: int = errno.ENOSPC) -> errors.JournalFull:
    """There is no room."""
    fact, way_out = shortage_of_room(number)
    return errors.JournalFull(
        f"{path} cannot grow: {fact}; nothing of this request was stored: {way_out}"
    )


def shortage_of_room(number: int | None) -> tuple[str, str]:
    """What of `NO_ROOM` there is, and the way out."""
    if number == errno.EFBIG:
        fact = "a file would be larger than this process may make one (ulimit -f)"
        return fact, "raise this limit, then try again"
    fact = "the disk quota is used up" if number == errno.EDQUOT else "its disk is full"
    return fact, "make room, then try again"


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
