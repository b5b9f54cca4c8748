"""Whether a place can hold a journal at all: its path, its file system, and the SQLite that is to write there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import apsw

from chargehand.errors import JournalUnfit, UsageError
from chargehand.journal.durable_files import make_folder
from chargehand.journal.sqlite_errors import file_refusal, read_only, unreadable
from chargehand.regular_file import refuse_special_file
from chargehand.usable_path import checked_path

#: before it, two connections that reset the WAL at once could corrupt the file
OLDEST_SQLITE = (3, 51, 3)

_NETWORK = {
    *(
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "afs",
        "afpfs",
        "ceph",
        "coda",
        "ncpfs",
    ),
    *("9p", "v9fs", "drvfs", "lustre", "beegfs", "gpfs", "glusterfs", "davfs", "webdav", "ocfs2"),
    *("vboxsf", "vmhgfs", "prl_fs", "sshfs", "s3fs", "gcsfuse", "rclone"),
}
_OCTAL = re.compile(r"\\([0-7]{3})")


def check_sqlite(version: str | None = None) -> None:
    """Raise `JournalUnfit` if this SQLite has the WAL fault that 3.51.3 mended."""
    version = apsw.sqlite_lib_version() if version is None else version
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SQLITE:
        raise JournalUnfit(
            f"SQLite {version} can corrupt a journal under load; upgrade apsw to 3.51.3 or newer"
        )


def prepare(path: Path) -> None:
    """Make the folder for a journal, or say why there can be none at this place."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        named = ascii(str(path))
        raise UsageError(
            f"{named} is not UTF-8, as the name of a journal must be; choose another name"
        ) from None
    if path.is_dir():
        raise _is_folder(path)
    refuse_special_file(path, "give the path of a file for the journal")
    try:
        make_folder(path.parent)
    except FileExistsError:
        raise UsageError(f"{path.parent} is a file, so {path} cannot lie in it") from None
    except OSError as error:
        raise file_refusal(error, path) from error
    refuse_network(path)
    writes = [path.parent, path] if path.exists() else [path.parent]
    if not all(os.access(place, os.W_OK) for place in writes):
        raise read_only(path)


def refuse_unreadable(*files: Path) -> None:
    """Raise `JournalError` if one of these files is there and this user may not read it."""
    for file in files:
        if file.exists() and not os.access(file, os.R_OK):
            raise unreadable(file)


def real_path(path: Path) -> Path:
    """Where this path of a journal leads through links. Raises `UsageError` if there can be no file."""
    real = checked_path(path, "the journal").resolve()
    if real.is_dir():
        raise _is_folder(path)
    # The longest name beside it is that of a node's file.
    checked_path(real.with_name(f"{real.name}-node-n-{'0' * 12}"), "the journal")
    return real


def _is_folder(path: Path) -> UsageError:
    return UsageError(f"{path} is a folder; name a file in it, such as {path / 'runs.db'}")


def refuse_network(path: Path) -> None:
    """Raise `JournalUnfit` on a network file system: its locks and its syncs are only promises."""
    kind = _file_system_of(path.resolve())
    if kind.removeprefix("fuse.").lower() in _NETWORK:
        raise JournalUnfit(
            f"{path} lies on a network file system ({kind}), where SQLite's locks do not hold; "
            "choose a local disk"
        )


def _file_system_of(path: Path) -> str:
    if sys.platform == "linux":
        try:
            return file_system_in(Path("/proc/self/mountinfo").read_text("utf-8"), path)
        except OSError:
            return ""
    if sys.platform == "darwin":
        told = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False)
        return file_system_told(told.stdout, path)
    return ""


def file_system_in(mountinfo: str, path: Path) -> str:
    """The kind of file system that holds this path, by what Linux says is mounted where."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        # Blanks and the like in a mount point are written as octal numbers.
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        mounts.append((point, after.split(" ")[0]))
    return _innermost(mounts, path)


def file_system_told(mounts: str, path: Path) -> str:
    """The kind of file system that holds this path, by what the program `mount` of macOS says."""
    told = [line.partition(" on ")[2].rpartition(" (") for line in mounts.splitlines()]
    return _innermost([(point, kind.split(",")[0].rstrip(")")) for point, _, kind in told], path)


def _innermost(mounts: Iterable[tuple[str, str]], path: Path) -> str:
    """The kind of the innermost mount that holds this path; a later one hides an earlier one."""
    holding = [
        (Path(point), kind) for point, kind in mounts if point and path.is_relative_to(point)
    ]
    ranked = sorted(holding, key=lambda mount: len(mount[0].parts))
    return ranked[-1][1] if ranked else ""
