"""Sessions of browsers that were logged out, kept beside the tokens until they would have ended by themselves."""

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

#: sessions that are over anyway, after which the file is written anew without them
MOST_OVER = 200


class EndedSessions:
    """The marks of sessions that were logged out, each with the instant at which it would have ended.

    A cookie is signed, not stored, so only this file tells a session that was logged out from one that goes on.
    Each line is added by itself: two servers with one token file lose nothing of each other's.
    """

    def __init__(self, path: Path | None) -> None:
        #: None: they are kept in memory only
        self.path = path
        #: how often it has changed, here or in the file
        self.changes = 0
        self._ended: dict[str, int] = {}
        self._seen: tuple[int, int, int] | None = None

    def __contains__(self, mark: str) -> bool:
        self.read()
        return mark in self._ended

    def add(self, mark: str, ends: int, now: float) -> None:
        """End a session. Raises a `JournalError` if that cannot be stored; it has ended here all the same."""
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
            # A line that was cut off when the disk was full must not swallow this one.
            gap = b"" if not known or known.endswith(b"\n") else b"\n"
            _write(handle, gap + b"%d %s\n" % (ends, mark.encode()))

    def read(self) -> None:
        """Take in what other servers have stored."""
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
    """By mark: the end. A line that is not whole says nothing."""
    found = {}
    for line in data.decode("ascii", "replace").splitlines():
        ends, _, mark = line.partition(" ")
        if ends.isdecimal() and len(ends) <= 12 and mark:
            found[mark] = int(ends)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, to be added to; nobody else writes it meanwhile, or puts another in its place."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX)
                if os.fstat(handle).st_ino != path.stat().st_ino:
                    continue  # it was replaced while we waited
            yield handle
            return
        finally:
            os.close(handle)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".logouts-")  # of mode 0600
    try:
        try:
            _write(handle, data)
        finally:
            os.close(handle)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
