"""Which files of the host a sandboxed program sees, and the two backends that mount them."""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from chargehand.errors import ToolError, UsageError

SCRATCH = "/scratch"
DATA = "/data"
INODES = 16 * 1024
INIT_PROCESS = "/.init_process.py"
_HERE = Path(__file__).parent

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "usr")
#: files that programs and libraries need; none contains a secret
_ETC = ("alternatives", "fonts", "ld.so.cache", "localtime", "mime.types")
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: all usual places for temporary files are links into the one writable folder, which is bounded
_LINKS = {
    "/tmp": f"{SCRATCH}/tmp",  # noqa: S108 - of the sandbox, not of the host
    "/var/tmp": f"{SCRATCH}/tmp",  # noqa: S108
    "/dev/shm": f"{SCRATCH}/tmp",  # noqa: S108
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}


class Bind(NamedTuple):
    """A file or folder of the host, and the path at which the program sees it."""

    #: a path without symbolic links
    source: str
    target: str
    #: "ro" or "dev"
    kind: str = "ro"


class MountPlan(NamedTuple):
    """Everything that is visible inside the sandbox."""

    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    #: size of the one writable folder, in bytes
    disk: int

    @property
    def top(self) -> list[str]:
        """The names in the root folder."""
        return sorted({path.split("/")[1] for path in (SCRATCH, "/proc", *self._paths)})

    @property
    def folders(self) -> list[str]:
        """The folders to create, as parents of the binds and links."""
        bound = tuple(f"{bind.target}/" for bind in self.binds)
        held = {str(folder) for path in self._paths for folder in Path(path).parents}
        return sorted(f for f in held if f != "/" and not f"{f}/".startswith(bound))

    @property
    def _paths(self) -> list[str]:
        return [*(bind.target for bind in self.binds), *(path for path, _ in self.links)]


#: returns the `bwrap` command line for a mount plan, without the program; empty: `enter_sandbox.py` creates the mounts
Backend: TypeAlias = Callable[[MountPlan], list[str]]


def walls_for(data: Sequence[Path], disk: int) -> MountPlan:
    """The mounts of a sandbox: system programs, this Python with its packages, and `data`; all read-only."""
    system, links = _system()
    devices = (Bind(f"/dev/{name}", f"/dev/{name}", "dev") for name in _DEVICES)
    binds = {b.target: b for b in (*system, *_python(), *_data(data), *devices)}
    binds[INIT_PROCESS] = Bind(os.path.realpath(_HERE / "init_process.py"), INIT_PROCESS)
    # A folder that contains a bind, such as this Python, cannot also be a link.
    held = {str(folder) for target in binds for folder in Path(target).parents}
    shown = {path: to for path, to in {**links, **_LINKS}.items() if path not in held}
    # Sorted, so that a folder comes before the binds inside it.
    return MountPlan(
        tuple(sorted(binds.values(), key=lambda bind: bind.target)),
        tuple(sorted(shown.items())),
        disk,
    )


def launch(walls: MountPlan, backend: Backend, cgroup: str) -> dict[str, Any]:
    """The input of `enter_sandbox.py`."""
    return {
        "bwrap": backend(walls),
        "cgroup": cgroup,
        "binds": walls.binds,
        "links": walls.links,
        "scratch": SCRATCH,
        "disk": walls.disk,
        "inodes": INODES,
        "command": [*isolated_python(), INIT_PROCESS],
    }


def launcher() -> list[str]:
    return [*isolated_python(), str(_HERE / "enter_sandbox.py")]


def isolated_python() -> list[str]:
    """The command line of a bare interpreter, without packages and without settings from the environment."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-B"]


def own_walls(_: MountPlan) -> list[str]:
    """The backend that uses kernel namespaces directly, without bubblewrap."""
    return []


def bubblewrap(path: str | None = None) -> Backend:
    """The backend that uses the program `bwrap`, which is looked up for each run because it may disappear."""
    return functools.partial(_bubblewrap, path)


def _bubblewrap(path: str | None, walls: MountPlan) -> list[str]:
    program = shutil.which(path or "bwrap")
    if program is None:
        raise ToolError(
            f"the sandbox needs {path or 'bwrap'}, which is not there, and nothing was run; "
            "install the package bubblewrap",
            kind="denied",
        )
    return [os.path.realpath(program), *_bubblewrap_options(walls), "--"]


def _bubblewrap_options(walls: MountPlan) -> Iterator[str]:
    for name in ("pid", "net", "ipc", "uts", "cgroup-try"):
        yield f"--unshare-{name}"
    if os.geteuid() == 0:
        # Root needs no user namespace. It keeps only the capabilities with which the init process
        # drops privileges.
        yield from ("--cap-drop", "ALL")
        for name in ("SETUID", "SETGID", "SETPCAP"):
            yield from ("--cap-add", f"CAP_{name}")
    else:
        yield "--unshare-user"
    yield from ("--as-pid-1", "--die-with-parent", "--hostname", "sandbox")
    yield from ("--clearenv", "--setenv", "LANG", "C.UTF-8", "--chdir", "/")
    for folder in walls.folders:
        yield from ("--perms", "0755", "--dir", folder)  # otherwise only root could enter
    for source, target, kind in walls.binds:
        yield from ("--dev-bind" if kind == "dev" else "--ro-bind", source, target)
    for path, target in walls.links:
        yield from ("--symlink", target, path)
    yield from ("--proc", "/proc", "--remount-ro", "/proc")
    yield from ("--perms", "1777", "--size", str(walls.disk), "--tmpfs", SCRATCH)
    yield from ("--remount-ro", "/")


def _system() -> tuple[list[Bind], dict[str, str]]:
    binds, links = [], {}
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            links[str(path)] = str(path.readlink())
        elif path.is_dir():
            binds.append(Bind(str(path), str(path)))
    etc = [Path("/etc", name) for name in _ETC]
    binds += [Bind(os.path.realpath(path), str(path)) for path in etc if path.exists()]
    return binds, links


def _python() -> Iterator[Bind]:
    """The interpreter and its packages, wherever they were installed."""
    program = Path(os.path.realpath(sys.executable))
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - Path.home fails without one
    for place in dict.fromkeys((sys.base_prefix, sys.prefix, str(program.parent.parent))):
        real = os.path.realpath(place)
        if Path(home).is_relative_to(real):
            raise UsageError(
                f"this Python lies in {real}, and a sandbox that shows it would show the home "
                "folder too; use one from a virtual environment or from the system"
            )
        if Path(real).is_relative_to("/usr"):
            continue
        store = Path("/nix/store")  # the libraries are next to it
        if Path(real).is_relative_to(store):
            yield Bind(str(store), str(store))
        yield Bind(real, real)
        yield Bind(real, place)


def _data(places: Sequence[Path]) -> Iterator[Bind]:
    names = [place.resolve().name for place in places]
    if len(set(names)) < len(names):
        raise UsageError("two of the data folders have the same name; they would hide each other")
    for place, name in zip(places, names, strict=True):
        if not place.exists() or not name:
            raise UsageError(
                f"{place} cannot be shown to a sandbox: there is no such folder or file"
            )
        yield Bind(os.path.realpath(place), f"{DATA}/{name}")
