"""Bytes too large for an event, one file each, in a folder beside the journal."""

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from chargehand import errors
from chargehand.facts.outcome import SHORTAGE
from chargehand.facts.value import digest_of
from chargehand.journal.closed_guard import Availability
from chargehand.journal.durable_files import make_folder, sync_folder, write_whole
from chargehand.journal.sqlite_errors import NO_RIGHT, NO_ROOM, short, shortage_of_room
from chargehand.regular_file import kind_of

if sys.platform != "win32":
    import fcntl

A = TypeVar("A")
T = TypeVar("T")

_DIGEST = re.compile(r"[0-9a-f]{32}")


class FileBlobs:
    """Keeps each blob under `<folder>/<first two digits>/<digest>`, synced before it is named."""

    def __init__(self, folder: Path, gate: Availability) -> None:
        self.folder = folder
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="chargehand-blobs")
        self._settled: set[Path] = set()  # folders whose own name is known to be on disk
        self._gate = gate

    async def put(self, data: bytes) -> str:
        """Keep these bytes; returns their digest once a crash cannot lose them."""
        return await self._in_thread(self._put, bytes(data))

    async def get(self, digest: str) -> bytes:
        """The bytes of this digest, checked against it."""
        if not _DIGEST.fullmatch(digest):
            raise errors.UsageError(f"{digest!r} is not a digest of a blob: 32 hexadecimal digits")
        return await self._in_thread(self._get, digest)

    async def drop(self, digests: Sequence[str], grace: timedelta) -> list[str]:
        """Delete these and return those that are gone; one that was put within the grace is kept."""
        return await self._in_thread(partial(self._drop, grace=grace), digests) if digests else []

    async def all(self) -> list[str]:
        """The digests of all blobs that are there."""
        return await self._in_thread(self._all, self.folder)

    async def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """The bytes of these blobs; those that are missing are left out."""
        return await self._in_thread(self._sizes, digests) if digests else {}

    def close(self) -> None:
        """Finish what is under way."""
        self._threads.shutdown()

    async def _in_thread(self, work: Callable[[A], T], argument: A) -> T:
        if not self._gate.is_usable:
            raise self._gate.refusal()
        loop = asyncio.get_running_loop()
        try:
            future = loop.run_in_executor(self._threads, work, argument)
        except RuntimeError as error:  # no thread to be had
            raise short(self.folder, str(error)) from error
        return await future

    def _put(self, data: bytes) -> str:
        digest = digest_of(data)
        path = self._path_of(digest)
        try:
            self._settle(path.parent)
            with self._locked(shared=True):
                if self._renew(path, len(data)):
                    return digest
            write_whole(path, data)
        except OSError as error:
            raise self._refusal(error) from error
        return digest

    def _renew(self, path: Path, size: int) -> bool:
        """Whether the blob is there already; keeps it from being dropped before it is named."""
        try:
            if path.stat().st_size != size:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        # Whoever wrote it may have been cut off before its name was on disk.
        sync_folder(path.parent)
        return True

    def _get(self, digest: str) -> bytes:
        path = self._path_of(digest)
        if kind := kind_of(path):  # to open a pipe would wait for ever
            raise self._damaged(digest, f"is {kind}, not a regular file")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise self._damaged(digest, "is missing") from None
        except OSError as error:
            raise self._refusal(error) from error
        if digest_of(data) != digest:
            raise self._damaged(digest, "was changed")
        return data

    @staticmethod
    def _all(folder: Path) -> list[str]:
        # The lock and files that are being written lie there, too.
        return [path.name for path in folder.glob("??/*") if _DIGEST.fullmatch(path.name)]

    def _sizes(self, digests: Sequence[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for digest in digests:
            with contextlib.suppress(OSError):
                sizes[digest] = self._path_of(digest).stat().st_size
        return sizes

    def _drop(self, digests: Sequence[str], grace: timedelta) -> list[str]:
        before = time.time() - grace.total_seconds()
        gone: list[str] = []
        with self._locked(shared=False):
            for digest in digests:
                path = self._path_of(digest)
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime > before:
                        continue
                    path.unlink()
                gone.append(digest)
        return gone

    def _settle(self, folder: Path) -> None:
        if folder not in self._settled:
            make_folder(folder)
            sync_folder(folder.parent)
            self._settled.add(folder)

    @contextlib.contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        """Keep puts that find their blob in place apart from drops, in other processes too."""
        if sys.platform == "win32":
            yield
            return
        self._settle(self.folder)
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _path_of(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest

    def _damaged(self, digest: str, fact: str) -> errors.JournalDamaged:
        return errors.JournalDamaged(
            f"blob {digest} in {self.folder} {fact}; restore the folder from a backup"
        )

    def _refusal(self, error: OSError) -> errors.JournalError:
        if error.errno in NO_ROOM:
            fact, way_out = shortage_of_room(error.errno)
            return errors.JournalFull(
                f"the blob store {self.folder} cannot grow: {fact}; {way_out}; "
                "the journal itself goes on"
            )
        if error.errno in NO_RIGHT:
            return errors.JournalReadOnly(
                f"the blob store {self.folder} cannot be written; give this user the right to"
            )
        if error.errno in SHORTAGE:
            return short(self.folder, str(error))
        return errors.JournalFailed(f"the disk failed under the blob store {self.folder} ({error})")
