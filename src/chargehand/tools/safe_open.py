"""Opens files below a folder and nowhere else, whatever the path says and even if links are swapped."""

import contextlib
import ctypes
import errno
import functools
import os
import re
import stat
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from chargehand.errors import ToolError, UsageError
from chargehand.facts.plan import fits
from chargehand.usable_path import checked_path

PathLike: TypeAlias = str | os.PathLike[str]
LONGEST_PATH = 1_024
#: files that are listed in a folder and its subfolders
MOST_FILES = 20_000

_OPENAT2 = 437  # the same number on every architecture of Linux
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
_TRIES = 20  # the kernel returns EAGAIN if something was renamed meanwhile
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
# Otherwise opening a pipe would block, and opening a terminal could make it the controlling terminal.
_READ_FILE = _READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


class NoSuchFile(ToolError):
    """No file exists at a path that may be read."""

    def __init__(self, path: str, hint: str = "list_files shows what there is") -> None:
        super().__init__(f"there is no file {path[:200]!r}; {hint}")


class Stamp(NamedTuple):
    """Identifies one version of a file: changes when the file is written or replaced."""

    size: int
    modified: int
    changed: int
    number: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Root:
    """A folder, or a single file, that may be read.

    On Linux the kernel itself resolves every path below the folder (`openat2`), so no link leads out,
    even if it is swapped meanwhile. Without `openat2`, no links are followed. A hard link to a file
    elsewhere counts as a file of this folder, because the kernel cannot tell the difference.
    """

    def __init__(self, path: str | os.PathLike[str], *, hidden: bool = False) -> None:
        place = checked_path(path, home=True).resolve()
        if not place.exists():
            raise UsageError(f"there is no folder or file {os.fspath(path)!r} to be read")
        self._only = "" if place.is_dir() else place.name
        self.folder = place if place.is_dir() else place.parent
        self._hidden = hidden
        self.name = _shown(place.name)
        self.is_file = bool(self._only)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file of this folder for reading. Raises `ToolError` for everything else."""
        parts = self._checked(path)
        try:
            try:
                handle = self._opened(parts)
            except FileNotFoundError:
                if (real := [_real(part) for part in parts]) == parts:
                    raise
                handle = self._opened(real)
        except OSError as error:
            raise _refusal(path, error) from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise ToolError(f"{path!r} is not a file; list_files shows the files there are")
        return os.fdopen(handle, "rb")

    def files(self) -> Iterator[tuple[str, Stamp]]:
        """The files below, by path, in a stable order, up to `MOST_FILES`. Links are not followed.

        Bytes of a name that are not UTF-8 are escaped; `open` accepts the escaped form.
        """
        for number, (path, status) in enumerate(self._walk()):
            if number >= MOST_FILES:
                return
            yield _shown(path), Stamp.of(status)

    def _checked(self, path: str) -> list[str]:
        """The parts of the path. Raises `ToolError` for `..`, absolute paths and the like."""
        if len(path) > LONGEST_PATH:
            raise ToolError(f"the path is longer than {LONGEST_PATH} characters")
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
            raise ToolError("the path holds characters that no path of a file has")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        is_elsewhere = _real(path).startswith(("/", "\\", "~")) or path[1:2] == ":" or ".." in parts
        if is_elsewhere or (os.name == "nt" and "\\" in path):
            raise ToolError(
                f"{path[:200]!r} leads out of the folder; give a path as list_files shows it",
                kind="denied",
            )
        if not self._hidden and any(part.startswith(".") for part in parts):
            raise ToolError(
                f"{path[:200]!r} is hidden, and hidden files are not read", kind="denied"
            )
        if not parts or (self._only and parts != [_shown(self._only)]):
            raise NoSuchFile(path)
        return parts

    def _opened(self, parts: list[str]) -> int:
        if not os.supports_dir_fd >= {os.open}:
            return _open_checked(self.folder, parts)
        folder = os.open(self.folder, _READ | getattr(os, "O_DIRECTORY", 0))
        try:
            handle = _open_beneath(folder, "/".join(parts))
            return _open_by_steps(folder, parts) if handle is None else handle
        finally:
            os.close(folder)

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, folders, names, status_of in _folders(self.folder):
            folders[:] = [] if self._only else sorted(filter(self._is_shown, folders))
            for name in sorted(filter(self._is_shown, names)):
                with contextlib.suppress(OSError):  # deleted in the meantime
                    status = status_of(name)
                    if stat.S_ISREG(status.st_mode):
                        yield "/".join((*folder, name)), status

    def _is_shown(self, name: str) -> bool:
        if self._only and name != self._only:
            return False
        return self._hidden or not name.startswith(".")


class Roots:
    """One or several folders and files that may be read, presented as one folder.

    With several folders, each path begins with the name of its folder.
    """

    def __init__(self, paths: PathLike | Sequence[PathLike], *, hidden: bool = False) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        if not given:
            raise UsageError("there must be at least one folder or file to be read")
        self._roots = {root.name: root for root in (Root(path, hidden=hidden) for path in given)}
        if len(self._roots) < len(given):
            raise UsageError("two of the folders have the same name; their paths would be mixed up")

    def files(self) -> Iterator[tuple[str, Stamp]]:
        """The files of all folders, by path; see `Root.files`."""
        for name, root in self._roots.items():
            is_plain = len(self._roots) == 1 or root.is_file
            for path, stamp in root.files():
                yield path if is_plain else f"{name}/{path}", stamp

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading. Raises `ToolError` for everything else."""
        if len(self._roots) == 1:
            (root,) = self._roots.values()
            return root.open(path)
        name, _, inner = path.removeprefix("./").partition("/")
        if name not in self._roots:
            raise NoSuchFile(path)
        root = self._roots[name]
        return root.open(name if root.is_file and not inner else inner)


def _shown(path: str) -> str:
    """A path as text, in which bytes that are not UTF-8 are escaped: `\\udcff`."""
    return path.encode("utf-8", "backslashreplace").decode()


def _real(name: str) -> str:
    """The real name for an escaped name; the inverse of `_shown`."""
    return re.sub(r"\\u(dc[89a-f][0-9a-f])", lambda found: chr(int(found[1], 16)), name)


def matches(path: str, pattern: str) -> bool:
    """Whether a pattern like `*.md` or `notes/*` matches a path or, without a slash, its last part."""
    return fits(path.casefold(), pattern.casefold())


_Folder: TypeAlias = tuple[tuple[str, ...], list[str], list[str], Callable[[str], os.stat_result]]


def _folders(top: Path) -> Iterator[_Folder]:
    """Walk all folders: the parts of the path, the subfolders, the files, and a function that stats one of them."""
    if hasattr(os, "fwalk"):
        # By file descriptor: a folder that is replaced by a link meanwhile is skipped.
        for folder, folders, names, handle in os.fwalk(top, follow_symlinks=False):
            look = functools.partial(os.stat, dir_fd=handle, follow_symlinks=False)
            yield Path(folder).relative_to(top).parts, folders, names, look
        return
    for folder, folders, names in os.walk(top, followlinks=False):
        here = Path(folder)
        yield here.relative_to(top).parts, folders, names, functools.partial(_status_in, here)


def _status_in(folder: Path, name: str) -> os.stat_result:
    return (folder / name).lstat()


def _open_beneath(folder: int, path: str) -> int | None:
    """Open with `openat2`, which never leaves the folder; None if the kernel does not support it."""
    if not sys.platform.startswith("linux"):
        return None
    how = struct.pack("=QQQ", _READ_FILE, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(_TRIES):
        handle = int(_libc().syscall(_OPENAT2, folder, os.fsencode(path), how, len(how)))
        if handle >= 0:
            return handle
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox that hides it
            return None
        if number != errno.EAGAIN:
            raise OSError(number, os.strerror(number))
    raise OSError(errno.EXDEV, "it changes all the time")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _open_by_steps(folder: int, parts: list[str]) -> int:
    """Open one part of the path after the other, without following links."""
    at = os.dup(folder)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, _READ | os.O_DIRECTORY | _NO_FOLLOW, dir_fd=at)
            os.close(at)
            at = deeper
        return os.open(parts[-1], _READ_FILE | _NO_FOLLOW, dir_fd=at)
    finally:
        os.close(at)


def _open_checked(folder: Path, parts: list[str]) -> int:
    """For systems without `dir_fd`: check where the path really leads, before and after opening it.

    The weakest of the three: an attacker who swaps links between two of these lines may still succeed.
    """
    path = folder.joinpath(*parts)
    _inside(folder, path)
    handle = os.open(path, _READ_FILE | getattr(os, "O_BINARY", 0))
    try:
        is_same = os.path.samestat(os.fstat(handle), _inside(folder, path).lstat())
    except BaseException:
        os.close(handle)
        raise
    if not is_same:
        os.close(handle)
        raise OSError(errno.EXDEV, "it was swapped")
    return handle


def _inside(folder: Path, path: Path) -> Path:
    # Not `Path.resolve`, which raises RuntimeError for a loop of links.
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(folder):
        raise OSError(errno.EXDEV, "it leads out of the folder")
    return real


def _refusal(path: str, error: OSError) -> ToolError:
    shown = path[:200]
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return ToolError(f"{shown!r} leads out of the folder, through a link", kind="denied")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ToolError(f"{shown!r} may not be read by this program", kind="denied")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL):
        return NoSuchFile(path)
    return ToolError(f"{shown!r} cannot be read: {error.strerror}", kind="resource")
