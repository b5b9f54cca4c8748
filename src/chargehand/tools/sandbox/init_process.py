"""The first process of a sandbox: checks the isolation, starts the program, watches it and reports.

Runs as a script inside the sandbox that `enter_sandbox.py` or bubblewrap set up. It trusts neither: if any
isolation is missing, it does not run the program. As process 1 it cannot be stopped or killed from
inside, and all processes of the sandbox end with it.
"""

# Importing pathlib would take longer than everything else before the program starts.
# ruff: noqa: PTH102, PTH115, PTH123, PTH208
import base64
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from typing import Any

SCRATCH = "/scratch"
TEMPORARY = f"{SCRATCH}/tmp"  # noqa: S108 - of the sandbox, not of the host
#: seconds between two checks of memory use; without a cgroup the kernel reports no memory limit events
TICK = 0.1
MOST_LISTED = 200
#: bytes of a file that are returned
MOST_SHOWN = 16 * 1024

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
#: execute, read a file, read a folder
READ_RIGHTS = 0b1101
#: all rights except to create device nodes
WRITE_RIGHTS = 0b0111_1011_1111 | 1 << 12 | 1 << 13 | 1 << 14
FILE_RIGHTS = 0b0110 | 1 << 14 | 1 << 15

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.argtypes = [ctypes.c_long] * 5
libc.syscall.restype = ctypes.c_long
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


class InitRefused(Exception):
    """Some isolation is missing."""


def main() -> None:
    control = take_control()
    job = read_job(control)
    try:
        check_place(job)
        give_up_rights(int(sys.argv[1]))
        landlock = restrict_files()
        filter_calls(base64.b64decode(job["filter"]))
        check_rights()
        check_walls(job["top"])
    except (InitRefused, OSError, ValueError) as error:
        say(control, refused=str(error))
        os._exit(77)
    say(control, started=True, landlock=landlock)
    watch = ProcessWatch(job, start(job, control), control)
    watch.until_it_ends()
    say(control, ended=watch.report())
    os._exit(0)


def take_control() -> socket.socket:
    """Take standard input as the channel to the supervisor; the program gets an empty standard input."""
    control = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return control


def read_job(control: socket.socket) -> dict[str, Any]:
    (length,) = struct.unpack("!I", exactly(control, 4))
    job: dict[str, Any] = json.loads(exactly(control, length))
    return job


def exactly(control: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = control.recv(count - len(got))
        if not piece:
            os._exit(78)  # the supervisor is gone
        got += piece
    return got


def say(control: socket.socket, **words: Any) -> None:
    with contextlib.suppress(OSError):  # the supervisor is gone, so the sandbox ends anyway
        control.sendall(json.dumps(words).encode() + b"\n")


# The isolation


def check_place(job: dict[str, Any]) -> None:
    """Raise `InitRefused` if a namespace is shared with the host."""
    if os.getpid() != 1:
        raise InitRefused("not the first process of a pid namespace of its own")
    for name, hosts in job["namespaces"].items():
        if os.readlink(f"/proc/self/ns/{name}") == hosts:
            raise InitRefused(f"the {name} namespace is the host's")
    if [name for _, name in socket.if_nameindex() if name != "lo"]:
        raise InitRefused("there is a network")


def give_up_rights(uid: int) -> None:
    if os.geteuid() == 0:
        for capability in range(64):
            # Fails for numbers that the kernel does not know.
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    # Effective, permitted and inheritable: bubblewrap leaves some in the inheritable set.
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    if libc.capset(header, nothing):
        raise InitRefused("capabilities cannot be given up")
    # Only now, because the change of user resets these two.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise InitRefused("no_new_privs cannot be set")
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def restrict_files() -> int:
    """Restrict files with Landlock too, if the kernel has it; returns its version, or 0."""
    version = int(libc.syscall(LANDLOCK_CREATE, 0, 0, 1, 0))
    if version < 1:
        return 0
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    words = [handled, 0b11, 0b11][: 3 if version >= 6 else 2 if version >= 4 else 1]
    rules = ctypes.create_string_buffer(struct.pack(f"={len(words)}Q", *words))
    ruleset = libc.syscall(LANDLOCK_CREATE, ctypes.addressof(rules), 8 * len(words), 0, 0)
    if ruleset < 0:
        raise InitRefused("Landlock takes no rules")
    allow(ruleset, "/", READ_RIGHTS)
    allow(ruleset, SCRATCH, (WRITE_RIGHTS | READ_RIGHTS) & handled)
    for device in ("null", "zero", "full", "random", "urandom"):
        allow(ruleset, f"/dev/{device}", FILE_RIGHTS & handled)
    if libc.syscall(LANDLOCK_RESTRICT, ruleset, 0, 0, 0):
        raise InitRefused("Landlock cannot be entered")
    os.close(ruleset)
    return version


def allow(ruleset: int, path: str, rights: int) -> None:
    where = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, where))
    result = libc.syscall(LANDLOCK_ADD, ruleset, 1, ctypes.addressof(rule), 0)
    os.close(where)
    if result:
        raise InitRefused(f"Landlock takes no rule for {path}")


def filter_calls(program: bytes) -> None:
    """Install the seccomp filter, for this process and all its descendants."""
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    )
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.addressof(header), 0, 0):
        raise InitRefused(f"no seccomp filter: {os.strerror(ctypes.get_errno())}")


def check_rights() -> None:
    with open("/proc/self/status", encoding="ascii") as lines:
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int(facts[name], 16)]
    if held:
        raise InitRefused(f"capabilities are left in {', '.join(held)}")
    if facts["NoNewPrivs"].strip() != "1" or facts["Seccomp"].strip() != "2":
        raise InitRefused("no_new_privs or seccomp is off")
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise InitRefused("the user is root")


def check_walls(top: list[str]) -> None:
    """Check from inside that nothing else is visible, writable or reachable."""
    if more := set(os.listdir("/")).difference(top):
        raise InitRefused(
            f"more of the host is visible than was asked for: {', '.join(sorted(more))}"
        )
    for folder in ("/", "/dev", "/usr", "/proc"):
        with contextlib.suppress(OSError):
            os.mkdir(f"{folder}/chargehand-was-here")
            raise InitRefused(f"{folder} can be written")
    for family in (socket.AF_INET, socket.AF_UNIX):
        with contextlib.suppress(OSError):
            socket.socket(family).close()
            raise InitRefused("sockets can be opened")


# The program


def start(job: dict[str, Any], control: socket.socket) -> int:
    os.mkdir(TEMPORARY)
    for name, text in job["files"].items():
        with open(f"{SCRATCH}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    pid = os.fork()
    if pid == 0:
        try:
            become(job, control)
        finally:
            os._exit(126)
    return pid


def become(job: dict[str, Any], control: socket.socket) -> None:
    control.close()
    os.setsid()
    os.chdir(SCRATCH)
    for name, most in job["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.closerange(3, 1024)
    try:
        os.execve(job["program"], job["argv"], job["env"])  # noqa: S606 - argv only
    except OSError as error:
        os.write(2, f"{job['program']}: {error.strerror}\n".encode())


class ProcessWatch:
    """Watches one program: how it ends, and whether it exceeds its limits."""

    def __init__(self, job: dict[str, Any], pid: int, control: socket.socket) -> None:
        self._job = job
        self._pid = pid
        self._control = control
        self._status: int | None = None
        self._excess = ""

    def until_it_ends(self) -> None:
        pidfd = os.pidfd_open(self._pid)
        control = self._control.fileno()
        while not self._has_ended():
            ready, _, _ = select.select([pidfd, control], [], [], TICK)
            if control in ready:
                # The supervisor sends nothing after the job, so this is the end of the channel.
                os._exit(78)
            if not ready and not self._excess:
                self._excess = self._measure()
                if self._excess:
                    kill_all()
        kill_all()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)

    def _has_ended(self) -> bool:
        """Whether the program has ended. Also reaps orphans, which the kernel gives to process 1."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status = ended[1]
        return self._status is not None

    def _measure(self) -> str:
        room = os.statvfs(SCRATCH)
        if room.f_files - room.f_ffree > self._job["inodes"] + 16:
            return "too many files"
        return "too much memory" if memory_used(self._job["memory"]) else ""

    def report(self) -> dict[str, Any]:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return {"exit": code, "excess": self._excess, "files": list(found(self._job["wanted"]))}


def kill_all() -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def memory_used(most: int) -> bool:
    """Whether all processes together use more than `most` bytes.

    Shared pages are counted once only if the first, rough sum exceeds the limit, because that is slow.
    """
    pids = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    page = os.sysconf("SC_PAGE_SIZE")
    rough = {pid: resident(pid) * page for pid in pids}
    if sum(rough.values()) <= most:
        return False
    return sum(proportional(pid, rough[pid]) for pid in pids) > most


def resident(pid: str) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1])
    return 0


def proportional(pid: str, otherwise: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return otherwise


# Files that the program leaves


def found(wanted: list[str]) -> Iterator[dict[str, Any]]:
    """The files in the scratch folder, with the contents of the wanted files."""
    count = 0
    for folder, folders, names in os.walk(SCRATCH):
        folders[:] = sorted(name for name in folders if f"{folder}/{name}" != TEMPORARY)
        for name in sorted(names):
            path = os.path.relpath(f"{folder}/{name}", SCRATCH)
            entry = read(path, is_wanted=path in wanted)
            if entry is not None and (count < MOST_LISTED or path in wanted):
                count += 1
                yield entry


def read(path: str, *, is_wanted: bool) -> dict[str, Any] | None:
    whole = f"{SCRATCH}/{path}"
    with contextlib.suppress(OSError):
        facts = os.lstat(whole)
        if not stat.S_ISREG(facts.st_mode):
            return None
        shown = path.encode(errors="replace").decode(errors="replace")
        entry: dict[str, Any] = {"path": shown, "size": facts.st_size}
        if is_wanted:
            with open(os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                entry["data"] = base64.b64encode(file.read(MOST_SHOWN)).decode()
        return entry
    return None


if __name__ == "__main__":
    main()
