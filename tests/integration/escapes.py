"""Ways out of a sandbox. Run inside of one, as a script: tries each and prints which got through.

An attempt that returns something true has escaped, and what it returns is the proof. One that
raises or returns nothing was held. The host's facts come as JSON in `facts.json` beside it.
"""

# An attempt makes the very call that it names.
# ruff: noqa: PTH101, PTH102, PTH110, PTH120, PTH208, PTH211
import ctypes
import errno
import json
import os
import platform
import resource
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], object]] = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
IS_X86 = platform.machine() == "x86_64"


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    ATTEMPTS[function.__name__] = function
    return function


def call(x86: int, arm: int, *arguments: Any) -> int:
    """A system call by number; raises unless it worked."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(libc.syscall(ctypes.c_long(x86 if IS_X86 else arm), *words))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def in_a_child(work: Callable[[], object]) -> int:
    """How a child that tried ended: 0 only if it worked."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def text(path: str) -> str:
    return Path(path).read_bytes().decode(errors="replace")


def others() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdecimal()]


# Files of the host


@attempt
def read_shadow() -> object:
    return text("/etc/shadow")


@attempt
def read_passwd() -> object:
    return text("/etc/passwd")


@attempt
def read_the_canary() -> object:
    return text(FACTS["canary"])


@attempt
def read_the_canary_by_climbing() -> object:
    return text("/scratch/" + "../" * 40 + FACTS["canary"].lstrip("/"))


@attempt
def read_the_repository() -> object:
    return text(FACTS["repository"])


@attempt
def list_what_the_home_folder_holds() -> object:
    """Only what leads to this Python may be seen of it."""
    return [name for name in os.listdir(FACTS["home"]) if name in FACTS["in_home"]]


@attempt
def follow_a_link_of_ones_own() -> object:
    os.symlink(FACTS["canary"], "link")
    return text("link")


@attempt
def follow_a_link_in_the_data() -> object:
    return text(f"{FACTS['data']}/link")


@attempt
def follow_the_root_of_process_one() -> object:
    return text("/proc/1/root" + FACTS["canary"])


@attempt
def look_at_the_folder_of_process_one() -> object:
    return os.listdir("/proc/1/cwd/" + "../" * 10)


@attempt
def follow_roots_and_folders_of_all() -> object:
    found = []
    for pid in others():
        for way in ("root", "cwd"):
            try:
                found.append(text(f"/proc/{pid}/{way}/{'../' * 20}{FACTS['canary']}"))
            except OSError:
                continue
    return found


@attempt
def find_open_files_that_were_left() -> object:
    return [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 3]


@attempt
def use_the_descriptors_of_process_one() -> object:
    return os.listdir("/proc/1/fd")


@attempt
def link_a_file_of_the_host_hard() -> object:
    os.link(f"{FACTS['data']}/plain", "/scratch/hard")
    return "linked"


@attempt
def find_sockets_and_system_folders() -> object:
    places = ("/run", "/var/run/docker.sock", "/sys", "/boot", "/mnt", "/srv", "/var/lib", "/opt")
    return [place for place in places if os.path.exists(place)]


@attempt
def open_by_handle() -> object:
    return call(304, 265, -100, ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0" + bytes(16)), 0)


@attempt
def chroot_out() -> object:
    os.mkdir("/scratch/deep")
    os.chroot("/scratch/deep")
    return "changed root"


# Environment and other processes


@attempt
def read_the_environment() -> object:
    return [value for value in os.environ.values() if FACTS["secret"] in value]


@attempt
def read_every_environment() -> object:
    found = []
    for pid in others():
        try:
            found.append(FACTS["secret"] in text(f"/proc/{pid}/environ"))
        except OSError:
            continue
    return any(found)


@attempt
def see_processes_of_the_host() -> object:
    seen = []
    for pid in others():
        try:
            seen += [pid] if "pytest" in text(f"/proc/{pid}/cmdline") else []
        except OSError:
            continue  # it has ended since it was listed
    return seen


@attempt
def signal_the_supervisor() -> object:
    os.kill(FACTS["pid"], 0)
    return "it is there"


@attempt
def signal_the_group_of_the_supervisor() -> object:
    os.killpg(FACTS["group"], 0)
    return "it is there"


@attempt
def open_a_descriptor_of_the_supervisor() -> object:
    return os.pidfd_open(FACTS["pid"])


@attempt
def kill_process_one() -> object:
    for number in (2, 15, 9, 19):
        os.kill(1, number)
    time.sleep(0.05)
    return "State:\tT" in text("/proc/1/status")


@attempt
def trace_process_one() -> object:
    call(101, 117, 16, 1, 0, 0)
    return "attached"


@attempt
def trace_a_child() -> object:
    return in_a_child(lambda: call(101, 117, 0, 0, 0, 0) == 0) == 0


@attempt
def read_the_memory_of_process_one() -> object:
    return text("/proc/1/maps") or os.open("/proc/1/mem", os.O_RDWR)


@attempt
def read_memory_by_call() -> object:
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(buffer), 8)
    return call(310, 270, os.getpid(), local, 1, local, 1, 0)


@attempt
def take_a_descriptor_of_another() -> object:
    return call(438, 438, os.pidfd_open(1), 0, 0)


# Network


def connected(family: int, kind: int, address: Any) -> object:
    with socket.socket(family, kind) as client:
        client.settimeout(1)
        client.connect(address)
        client.send(b"out")
    return "sent"


@attempt
def connect_to_loopback() -> object:
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", FACTS["port"]))


@attempt
def send_a_datagram_to_loopback() -> object:
    return connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", FACTS["port"]))


@attempt
def connect_to_loopback_of_version_6() -> object:
    return connected(socket.AF_INET6, socket.SOCK_STREAM, ("::1", FACTS["port"]))


@attempt
def connect_to_an_abstract_socket() -> object:
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + FACTS["abstract"])


@attempt
def connect_to_a_socket_in_the_data() -> object:
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, f"{FACTS['data']}/socket")


@attempt
def open_raw_netlink_and_machine_sockets() -> object:
    found = []
    for family, kind in ((17, 3), (16, 3), (40, 1), (38, 5), (2, 3), (31, 3)):
        try:
            socket.socket(family, kind).close()
        except OSError:
            continue
        found.append(family)
    return found


@attempt
def find_a_network_card() -> object:
    lines = text("/proc/net/dev").splitlines()[2:]
    return [line for line in lines if not line.strip().startswith("lo:")]


@attempt
def find_a_route() -> object:
    return text("/proc/net/route").splitlines()[1:]


@attempt
def write_to_a_pipe_of_the_host() -> object:
    return os.write(os.open(f"{FACTS['data']}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"out")


# Namespaces, mounts and powers


@attempt
def mount_a_filesystem() -> object:
    return libc.mount(b"tmpfs", b"/scratch", b"tmpfs", 0, None) == 0


@attempt
def mount_writable_again() -> object:
    return libc.mount(None, b"/", None, 32 | 4096, None) == 0


@attempt
def uncover_what_is_below() -> object:
    return [place for place in (b"/proc", b"/", b"/scratch") if libc.umount2(place, 2) == 0]


@attempt
def mount_the_new_way() -> object:
    return call(430, 430, b"tmpfs", 0)


@attempt
def clone_a_mount() -> object:
    return call(428, 428, -100, b"/", 1)


@attempt
def pivot() -> object:
    return call(155, 41, b".", b".") == 0


@attempt
def make_a_user_namespace() -> object:
    return in_a_child(lambda: libc.unshare(0x10000000) == 0) == 0


@attempt
def make_a_mount_namespace() -> object:
    return in_a_child(lambda: libc.unshare(0x00020000) == 0) == 0


@attempt
def clone_into_a_user_namespace() -> object:
    def cloned() -> bool:
        pid = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return True

    return in_a_child(cloned) == 0


@attempt
def clone_the_new_way() -> object:
    arguments = ctypes.create_string_buffer(struct.pack("=11Q", 0x10000000, *(0,) * 10))
    pid = call(435, 435, arguments, 88)
    if pid == 0:
        os._exit(0)
    return pid


@attempt
def join_a_namespace() -> object:
    return [name for name in ("net", "mnt", "pid") if joined(name)]


def joined(name: str) -> bool:
    process = "1" if os.access(f"/proc/1/ns/{name}", os.R_OK) else "self"
    return bool(libc.setns(os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY), 0) == 0)


@attempt
def become_root() -> object:
    os.setuid(0)
    return os.getuid()


@attempt
def take_back_capabilities() -> object:
    header, everything = struct.pack("=Ii", 0x20080522, 0), b"\xff" * 24
    return libc.capset(header, everything) == 0


@attempt
def drop_the_filter() -> object:
    return libc.prctl(38, 0, 0, 0, 0) == 0 or libc.prctl(22, 0, 0, 0, 0) == 0


@attempt
def use_the_other_numbers() -> object:
    if not IS_X86:
        return None
    return in_a_child(lambda: libc.syscall(0x40000000 + 39) > 0) == 0


@attempt
def load_code_into_the_kernel() -> object:
    attribute = ctypes.create_string_buffer(128)
    return [number for number in (321, 313, 246, 320) if reached(number, attribute)]


@attempt
def use_what_has_had_holes() -> object:
    """Rings, keys, performance counters, page faults, handles, other architectures."""
    numbers = (425, 250, 248, 298, 323, 303, 135, 300, 447, 458)
    return [number for number in numbers if reached(number, ctypes.create_string_buffer(256))]


def reached(number: int, buffer: Any) -> bool:
    """Whether the kernel looked at the arguments at all."""
    if not IS_X86:
        return False
    libc.syscall(ctypes.c_long(number), buffer, ctypes.c_long(0), ctypes.c_long(0))
    return ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS)


@attempt
def hide_memory_from_the_limits() -> object:
    found = []
    for x86, arm, *arguments in ((319, 279, b"x", 0), (29, 194, 0, 4096, 0o1600)):
        try:
            found.append(call(int(x86), int(arm), *arguments) + 1)
        except OSError:
            continue
    return found


@attempt
def lift_the_limits() -> object:
    found = []
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        try:
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            continue
        found.append(kind)
    return found


@attempt
def survive_when_memory_runs_out() -> object:
    return Path("/proc/self/oom_score_adj").write_text("0")


@attempt
def go_before_others() -> object:
    return os.nice(-5) < 0


@attempt
def set_the_clock_or_name() -> object:
    return libc.sethostname(b"mine", 4) == 0 or libc.settimeofday(b"\0" * 16, None) == 0


@attempt
def type_into_a_terminal() -> object:
    import fcntl
    import termios

    found = []
    for fd in range(3):
        try:
            fcntl.ioctl(fd, termios.TIOCSTI, b"x")
        except OSError:
            continue
        found.append(fd)
    return found


# Writing


@attempt
def write_outside_of_the_scratch_folder() -> object:
    places = ["/", "/usr", "/usr/bin", "/dev", "/etc", "/proc", "/var", sys.prefix, sys.base_prefix]
    places += [FACTS["data"], os.path.dirname(json.__file__), os.path.dirname(FACTS["home"])]
    found = []
    for place in places:
        try:
            Path(place, "written").write_text("x")
        except OSError:
            continue
        found.append(place)
    return found


@attempt
def find_a_mount_that_can_be_written() -> object:
    mounts = [line.split() for line in text("/proc/mounts").splitlines()]
    return [
        place
        for _, place, _, options, *_ in mounts
        if "rw" in options.split(",") and place != "/scratch" and not place.startswith("/dev/")
    ]


@attempt
def change_a_file_of_the_host() -> object:
    found = []
    for path in (f"{FACTS['data']}/plain", "/.init_process.py", "/etc/ld.so.cache", sys.executable):
        for change in (opened, loosened, os.unlink, os.utime):
            try:
                change(path)
            except OSError:
                continue
            found.append(path)
    return found


def opened(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def loosened(path: str) -> None:
    os.chmod(path, 0o777)


@attempt
def turn_the_knobs_of_the_kernel() -> object:
    found = []
    for path in (
        "sys/kernel/hostname",
        "sys/kernel/core_pattern",
        "sysrq-trigger",
        "sys/vm/swappiness",
    ):
        try:
            os.open(f"/proc/{path}", os.O_WRONLY)
        except OSError:
            continue
        found.append(path)
    return found


@attempt
def make_device_nodes() -> object:
    found = []
    for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 10, 200)):
        try:
            os.mknod("/scratch/node", kind | 0o666, os.makedev(major, minor))
        except OSError:
            continue
        found.append(major)
    return found


@attempt
def open_devices() -> object:
    names = (
        "mem",
        "kmem",
        "kmsg",
        "port",
        "tty",
        "console",
        "sda",
        "vda",
        "fuse",
        "kvm",
        "net/tun",
    )
    return [name for name in names if os.path.exists(f"/dev/{name}")]


@attempt
def read_the_kernel() -> object:
    return [path for path in ("kcore", "kmsg") if os.access(f"/proc/{path}", os.R_OK)]


def main() -> None:
    FACTS.update(json.loads(Path("facts.json").read_text(encoding="utf-8")))
    escaped = {}
    for name, function in ATTEMPTS.items():
        try:
            proof = function()
        except Exception:  # noqa: BLE001 - held, in whatever words
            continue
        if proof:
            escaped[name] = repr(proof)[:200]
    print(json.dumps({"tried": len(ATTEMPTS), "escaped": escaped}))


if __name__ == "__main__":
    main()
