"""Runs one program in a sandbox, reports how it ended and cleans up. Fails closed."""

import base64
import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chargehand.errors import ToolError
from chargehand.tools.sandbox.cgroup import Cgroup, new_cgroup
from chargehand.tools.sandbox.mounts import (
    INODES,
    SCRATCH,
    Backend,
    MountPlan,
    launch,
    launcher,
)
from chargehand.tools.sandbox.seccomp import call_filter

#: bytes of each output stream that are kept: half from its beginning, half from its end
MOST_KEPT = 24 * 1024
#: bytes of output after which a program is stopped; reading more costs the supervisor time
MOST_WRITTEN = 8 * 1024 * 1024
MOST_SAID = 8 * 1024 * 1024
#: seconds until the isolation must be set up
START = 20
_OWN_NAMESPACES = Path("/proc/self/ns")
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts")
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of one program."""

    seconds: float
    memory: int
    processes: int

    def as_limits(self, disk: int) -> dict[str, int]:
        """The limits, by the names of the kernel's resource limits."""
        return {
            "AS": self.memory,
            "CPU": int(self.seconds) + 1,
            "FSIZE": disk,
            "NPROC": self.processes + 1,  # the init process counts too
            "NOFILE": 256,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProgram:
    """A program to run."""

    path: str
    argv: Sequence[str]
    env: Mapping[str, str]
    #: files to write into the scratch folder before the start: text by name
    files: Mapping[str, str] = field(default_factory=dict)
    #: files whose contents are returned after the end
    wanted: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended and what it left."""

    #: exit code; negative: the signal that ended it; None: it was stopped from outside
    code: int | None
    stdout: str
    stderr: str
    #: why it was stopped: "too slow", "too much output", "too much memory", "too many files"; empty: it was not
    stopped: str = ""
    files: tuple[Mapping[str, Any], ...] = ()


class Capture:
    """The beginning and the end of a stream."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._half = most // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def add(self, chunk: bytes) -> None:
        self.size += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        del self._tail[: -self._half]

    @property
    def text(self) -> str:
        gap = self.size - len(self._head) - len(self._tail)
        between = f"\n[… {gap} bytes left out …]\n".encode() if gap else b""
        return (self._head + between + self._tail).decode(errors="replace")


class SandboxedProcess:
    """One program in a sandbox. `run` blocks the calling thread; `kill` may be called from another thread."""

    def __init__(self, walls: MountPlan, backend: Backend, allowance: SandboxLimits) -> None:
        self._walls = walls
        self._backend = backend
        self._allowance = allowance
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._is_over = False
        self._stopped = ""
        self._streams = {"stdout": Capture(), "stderr": Capture()}
        self._said = bytearray()

    def run(self, program: SandboxProgram) -> Ending:
        """Run the program. Raises `ToolError` of kind "denied", without running it, if isolation is incomplete."""
        if sys.platform != "linux":
            raise ToolError(
                f"the sandbox needs Linux, and this is {sys.platform}; nothing was run. Run the "
                "supervisor in a Linux container or virtual machine to use it",
                kind="denied",
            )
        job = self._job(program)
        total = self._allowance.memory + self._walls.disk
        cgroup = new_cgroup(total, self._allowance.processes + 8)
        try:
            self._attend(job, cgroup)
            return self._ending(cgroup)
        finally:
            if cgroup is not None:
                cgroup.close()

    def kill(self) -> None:
        """Kill the program and all processes that it has started, now."""
        with self._lock:
            self._is_killed = True
            # After `wait`, the kernel may give the same id to another process group.
            if self._process is not None and not self._is_over:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _job(self, program: SandboxProgram) -> bytes:
        limits = self._allowance.as_limits(self._walls.disk)
        text = json.dumps(
            {
                "namespaces": {
                    name: str(_OWN_NAMESPACES.joinpath(name).readlink()) for name in _NAMESPACES
                },
                "top": self._walls.top,
                "filter": base64.b64encode(call_filter()).decode(),
                "limits": limits,
                "memory": self._allowance.memory,
                "inodes": INODES,
                "files": dict(program.files),
                "wanted": list(program.wanted),
                "program": program.path,
                "argv": list(program.argv),
                "env": dict(program.env),
            }
        ).encode()
        return struct.pack("!I", len(text)) + text

    def _attend(self, job: bytes, cgroup: Cgroup | None) -> None:
        orders = launch(self._walls, self._backend, str(cgroup.path) if cgroup else "")
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = self._start([*launcher(), json.dumps(orders)], theirs)
            try:
                self._hand_over(job, ours)
                self._listen(process, ours)
            finally:
                self.kill()
                self._close(process)

    def _start(self, argv: list[str], control: socket.socket) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_killed:
                raise ToolError("the sandbox was stopped before it began", kind="cancelled")
            self._process = subprocess.Popen(  # noqa: S603 - argv only, and ours
                argv,
                stdin=control.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
            return self._process

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._is_over = True
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _hand_over(self, job: bytes, control: socket.socket) -> None:
        control.settimeout(START)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            control.sendall(job)  # if it is not read, the missing reply is reported later
        control.setblocking(False)

    def _listen(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        """Read the control channel and the output until all are closed, or until the time is up."""
        deadline, has_begun = time.monotonic() + START, False
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ, "control")
            for name in self._streams:
                selector.register(getattr(process, name), selectors.EVENT_READ, name)
            while selector.get_map():
                left = deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    self._stop("too slow")
                    return
                for key, _ in ready:
                    if not self._hear(key.data, key.fd):
                        selector.unregister(key.fileobj)
                if self._said and not has_begun:
                    # The sandbox is ready. The time that it took does not count for the program.
                    deadline, has_begun = time.monotonic() + self._allowance.seconds, True

    def _hear(self, name: str, fd: int) -> bool:
        """Read once; returns whether there may be more."""
        try:
            chunk = os.read(fd, _CHUNK)
        except ConnectionResetError:
            return False
        if name == "control":
            self._said += chunk
        else:
            self._streams[name].add(chunk)
        written = sum(stream.size for stream in self._streams.values())
        if written > MOST_WRITTEN or len(self._said) > MOST_SAID:
            self._stop("too much output")
            return False
        return bool(chunk)

    def _stop(self, why: str) -> None:
        self._stopped = self._stopped or why
        self.kill()

    def _ending(self, cgroup: Cgroup | None) -> Ending:
        words: dict[str, Any] = {}
        for line in bytes(self._said).splitlines():
            with contextlib.suppress(ValueError):  # the last line may be cut off
                words |= json.loads(line)
        if "started" not in words:
            raise self._refusal(words)
        ended = words.get("ended", {})
        stopped = self._stopped or ended.get("excess", "")
        if not stopped and cgroup is not None and cgroup.ran_out_of_memory:
            stopped = "too much memory"
        if not stopped and not ended:
            stopped = "it ended without a word, most likely for want of memory"
        return Ending(
            code=ended.get("exit"),
            stdout=self._streams["stdout"].text,
            stderr=self._streams["stderr"].text,
            stopped=stopped,
            files=tuple(ended.get("files", ())),
        )

    def _refusal(self, words: Mapping[str, Any]) -> ToolError:
        if self._stopped == "too slow":
            return ToolError(
                f"the sandbox was not ready within {START} s, so nothing was run", kind="timeout"
            )
        said = self._streams["stderr"].text.strip() or "it ended without a word"
        why = str(words.get("refused") or said[-500:])
        return ToolError(
            f"the sandbox is not safe here, so nothing was run: {why}. It needs Linux 5.12 or newer "
            "and either root or user namespaces; in a container, allow it to make namespaces, or "
            "install the package bubblewrap",
            kind="denied",
        )


#: the whole environment of a program; no variable of the supervisor is passed on
ENVIRONMENT = {
    "HOME": SCRATCH,
    "TMPDIR": f"{SCRATCH}/tmp",  # noqa: S108 - of the sandbox
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PATH": ":".join(dict.fromkeys((f"{sys.prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"))),
}
