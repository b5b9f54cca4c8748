"""Creates a sandbox around its own process and starts the init process inside.

Runs as a script, with its input as JSON. It uses kernel namespaces directly, or replaces itself with
bubblewrap. Errors are reported on the control channel, and then nothing is run.
"""

# Importing pathlib would take longer than everything that this script does.
# ruff: noqa: PTH102, PTH103, PTH112, PTH120, PTH123, PTH211
import ctypes
import json
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

#: file descriptor of the channel to the supervisor: standard input
CONTROL = 0

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
#: mount, cgroup, uts, ipc, pid, net
NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
NEW_USER = 0x10000000
MOUNT_SETATTR = 442
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

#: start of a range that is free in systemd's list of user ids; see `lone_uid`
FIRST_UID = 0x70000000
NOBODY = 65534

libc = ctypes.CDLL(None, use_errno=True)
# Longs, because ints would truncate pointers and sizes.
libc.syscall.argtypes = [ctypes.c_long] * 6
libc.syscall.restype = ctypes.c_long
libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


class EntryRefused(Exception):
    """Some isolation cannot be set up."""


def main() -> None:
    orders = json.loads(sys.argv[1])
    try:
        join_cgroup(orders["cgroup"])
        die_first()
        command = [*orders["command"], str(lone_uid())]
        if orders["bwrap"]:
            os.execv(orders["bwrap"][0], [*orders["bwrap"], *command])  # noqa: S606 - argv only
        enter(orders, command)
    except (OSError, EntryRefused) as error:
        os.write(CONTROL, json.dumps({"refused": str(error)}).encode() + b"\n")
        os._exit(77)


def enter(orders: dict[str, Any], command: list[str]) -> None:
    """Fork: the parent waits outside, the child becomes the first process of the sandbox."""
    # Before the fork: afterwards the child changes the mounts, which the parent shares.
    nowhere = os.open(os.devnull, os.O_RDWR)
    if os.geteuid() == 0:
        unshare(NAMESPACES)
    else:
        unshare_as_user(os.getuid(), os.getgid())
    if pid := os.fork():
        wait_outside(pid, nowhere)
    libc.prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    libc.sethostname(b"sandbox", 7)
    build(orders)
    os.execve(command[0], command, {"LANG": "C.UTF-8"})  # noqa: S606 - argv only


def wait_outside(pid: int, nowhere: int) -> NoReturn:
    for fd in range(3):
        os.dup2(nowhere, fd)  # otherwise the pipes would stay open until this process ends
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def join_cgroup(folder: str) -> None:
    if folder:
        with open(f"{folder}/cgroup.procs", "w", encoding="ascii") as procs:
            procs.write("0")


def die_first() -> None:
    """Have the kernel kill this process, not the supervisor, when the machine runs out of memory."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def lone_uid() -> int:
    """The user of the sandbox. If root starts it: a user id that owns nothing and runs nothing else.

    The kernel limits processes per user, and does not limit root.
    """
    if os.geteuid() != 0:
        return os.getuid()
    wanted = FIRST_UID + os.getpid()
    return wanted if all(map(has_mapping(wanted), ("uid", "gid"))) else NOBODY


def has_mapping(number: int) -> Any:
    def is_mapped(kind: str) -> bool:
        with open(f"/proc/self/{kind}_map", encoding="ascii") as lines:
            ranges = [[int(word) for word in line.split()] for line in lines]
        return any(first <= number < first + count for first, _, count in ranges)

    return is_mapped


def unshare_as_user(uid: int, gid: int) -> None:
    unshare(NEW_USER | NAMESPACES)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def build(orders: dict[str, Any]) -> None:
    """Replace the root file system by one that contains only the binds and links, read-only."""
    mount("", "/", "", MS_REC | MS_PRIVATE)
    # Two steps, so that a source may be below /tmp, which the first mount hides.
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=2048,mode=755")  # noqa: S108
    os.chdir("/tmp")  # noqa: S108 - covered by the mount above
    os.umask(0o022)
    os.mkdir("old")
    os.mkdir("new")
    pivot_root(".", "old")
    os.chdir("/")
    mount("tmpfs", "/new", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=2048,mode=755")
    for source, target, kind in orders["binds"]:
        bind(f"/old{source}", f"/new{target}", is_device=kind == "dev")
    for path, target in orders["links"]:
        os.makedirs(os.path.dirname(f"/new{path}"), exist_ok=True)
        os.symlink(target, f"/new{path}")
    fresh("/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
    room = f"size={orders['disk']},nr_inodes={orders['inodes']},mode=1777"
    fresh(f"/new{orders['scratch']}", "tmpfs", MS_NOSUID | MS_NODEV, room)
    os.chdir("/new")
    pivot_root(".", ".")
    check(libc.umount2(b".", MNT_DETACH), "umount the host's files")
    os.chdir("/")
    set_attributes("/", MS_RDONLY)
    set_attributes("/proc", MS_RDONLY)


def bind(source: str, target: str, *, is_device: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "x").close()
    mount(source, target, "", MS_BIND | MS_REC)
    attributes = MS_NOSUID | MS_NOEXEC if is_device else MS_RDONLY | MS_NOSUID | MS_NODEV
    set_attributes(target, attributes, is_deep=True)


def fresh(target: str, kind: str, flags: int, options: str) -> None:
    os.makedirs(target, exist_ok=True)
    mount(kind, target, kind, flags, options)


def set_attributes(path: str, attributes: int, *, is_deep: bool = False) -> None:
    """Set mount attributes. The lowest bits of mount_setattr are the same as those of mount."""
    values = struct.pack("=QQQQ", attributes, 0, 0, 0)
    where = ctypes.create_string_buffer(path.encode())
    result = libc.syscall(
        MOUNT_SETATTR,
        AT_FDCWD,
        ctypes.addressof(where),
        AT_RECURSIVE if is_deep else 0,
        ctypes.addressof(holding := ctypes.create_string_buffer(values)),
        len(holding) - 1,
    )
    check(result, f"mount_setattr {path} (Linux 5.12 or newer)")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [text.encode() or None for text in (source, target, kind)]
    check(libc.mount(*words, flags, options.encode() or None), f"mount {kind or source} {target}")


def pivot_root(new: str, old: str) -> None:
    number = PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise EntryRefused(f"no sandbox for the processor {platform.machine()}")
    paths: Sequence[Any] = [ctypes.create_string_buffer(path.encode()) for path in (new, old)]
    check(libc.syscall(number, *map(ctypes.addressof, paths), 0, 0, 0), "pivot_root")


def unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare namespaces")


def check(result: int, what: str) -> None:
    if result != 0:
        raise EntryRefused(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
