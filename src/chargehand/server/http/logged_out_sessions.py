"""Stores logged-out browser sessions next to the token file, until they would have expired anyway."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chargehand.journal.sqlite_errors import file_refusal
from chargehand.regular_file import read_regular_file

if sys.platform != "win32":
    import fcntl

#: number of expired sessions in the file after which it is rewritten without them
MOST_OVER = 200


class EndedSessions:
    """The marks of logged-out sessions, each with the time at which the session would have expired.

    Cookies are signed, not stored, so only this file distinguishes a logged-out session from a valid one. Lines are
    appended one by one, so that two servers with the same token file do not lose each other's entries.
    """

    def __init__(self, path: Path | None) -> None:
        #: None: sessions are kept only in memory
        self.path = path
        #: number of changes, here or in the file
        self.changes = 0
        self._ended: dict[str, int] = {}
        self._seen: tuple[int, int, int] | None = None

    def __contains__(self, mark: str) -> bool:
        self.read()
        return mark in self._ended

    def add(self, mark: str, ends: int, now: float) -> None:
        """End a session. Raises `JournalError` if this cannot be stored; this process refuses the session anyway."""
        self.read()
        self._ended[mark] = ends
        self.changes += 1
        if self.path is None:
            self._ended = {each: end for each, end in self._ended.items() if end >= now}
            return
        try:
            self._store(self.path, mark, ends, now)
        except OSError as error:
            raise file_refusal(error, self.path) from error

    def _store(self, path: Path, mark: str, ends: int, now: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as handle:
            known = read_regular_file(path)
            kept = {each: end for each, end in _entries(known).items() if end >= now}
            if known.count(b"\n") - len(kept) > MOST_OVER:
                kept[mark] = ends
                _replace(path, b"".join(b"%d %s\n" % (e, m.encode()) for m, e in kept.items()))
                self._ended = kept
                return
            # A full disk may have cut off the last line: this entry must not be appended to it.
            gap = b"" if not known or known.endswith(b"\n") else b"\n"
            _write(handle, gap + b"%d %s\n" % (ends, mark.encode()))

    def read(self) -> None:
        """Read what other servers have stored."""
        if self.path is None:
            return
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._seen:
            return
        found = _entries(read_regular_file(self.path))
        if found.keys() - self._ended.keys():
            self.changes += 1
        self._ended |= found
        self._seen = seen


def _entries(data: bytes) -> dict[str, int]:
    """The expiry time of each mark. Incomplete lines are ignored."""
    found = {}
    for line in data.decode("ascii", "replace").splitlines():
        ends, _, mark = line.partition(" ")
        if ends.isdecimal() and len(ends) <= 12 and mark:
            found[mark] = int(ends)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file for appending, and lock it. Other processes can neither write nor replace it meanwhile.

    On Windows, there is no lock.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX)
                if os.fstat(handle).st_ino != path.stat().st_ino:
                    continue  # another process replaced the file during the wait
            yield handle
            return
        finally:
            os.close(handle)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".logouts-")  # with mode 0600
    try:
        try:
            _write(handle, data)
        finally:
            os.close(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
