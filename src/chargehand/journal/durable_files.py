"""Files and folders written so that neither a crash nor a power cut leaves half of them."""

import os
import secrets
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut cannot take them away again."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Put these bytes at this path so that a crash leaves the old file or the new, never a mixture.

    Returns once a power cut cannot undo it.
    """
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            sync_file(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_file(handle: int) -> None:
    """Make the bytes of a file durable, also where the plain call stops at the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Windows has no such thing and needs none."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
