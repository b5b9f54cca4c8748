"""Starts processes by forking one that has imported everything already.

Python and its imports take longer than most of what a process is started for here. A forked process
is a process like any other: it has a group of its own, and is killed, stopped and traced alone.
`python -m tests.chaos.fork_server` reads one request per line from its input, and writes a line when
a process was started and another when it has ended. At the end of its input it kills all of them, so
that a campaign which is cut off leaves nothing behind.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
#: imported before the first fork
MODULES = ("tests.chaos.client", "tests.chaos.serving")
#: seconds for a tracer to come
TRACING = 20.0
#: prctl: gets a signal when its parent dies
_SET_PDEATHSIG = 1
#: prctl: may be traced by processes that are not its parent
_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


class ForkRequest(msgspec.Struct):
    """A process to start: calls `main` of a module."""

    module: str
    arguments: list[str]
    #: where its output goes
    output: str
    #: it does nothing before something traces it
    is_traced: bool = False


class ForkReply(msgspec.Struct):
    """A process was started, or has ended."""

    pid: int
    code: int | None = None


class ForkedProcess:
    """A process that was forked elsewhere, used like `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: strace, which writes until the process has ended
        self.tracer: subprocess.Popen[bytes] | None = None
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        if self.tracer is not None:
            self.tracer.wait()
        assert self.returncode is not None
        return self.returncode


class ForkServer:
    """The one process of this one that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for us alone: it ends at the end of its input
        )
        self._lock = threading.Lock()
        self._started: queue.Queue[ForkedProcess] = queue.Queue()
        self._running: dict[int, ForkedProcess] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        atexit.register(self.close)

    def start(
        self, module: str, *arguments: str, output: Path, strace: Sequence[str] = ()
    ) -> ForkedProcess:
        """Start a process; with options of strace it is traced from its first call on."""
        request = ForkRequest(module, list(arguments), str(output), bool(strace))
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            started = self._started.get(timeout=60)
        if strace:
            command = ["strace", "-f", "-p", str(started.pid), *strace]
            with output.open("ab") as told:
                started.tracer = subprocess.Popen(command, stdout=told, stderr=told)
        return started

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            reply = msgspec.json.decode(line, type=ForkReply)
            if reply.code is None:
                self._running[reply.pid] = ForkedProcess(reply.pid)
                self._started.put(self._running[reply.pid])
            else:
                self._running.pop(reply.pid).end(reply.code)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@functools.cache
def fork_server() -> ForkServer:
    """Started when it is needed first."""
    return ForkServer()


def serve() -> ForkRequest | None:
    """Fork until the input ends. Returns in each child what it is to do, and None at the end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(running)
        if 0 in ready:
            if not (line := _read_line()):
                break
            request = msgspec.json.decode(line, type=ForkRequest)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wake)
                return request
            running.add(pid)
            # Here too, so that its group can be killed as soon as it is known.
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            _say(ForkReply(pid))
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return None


def _read_line() -> bytes:
    # Byte by byte, so that nothing of the next request is kept where `select` cannot see it.
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        line += byte
    return line


def _say(reply: ForkReply) -> None:
    os.write(1, msgspec.json.encode(reply) + b"\n")


def _reap(running: set[int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        running.discard(pid)
        _say(ForkReply(pid, os.waitstatus_to_exitcode(status)))


def become(request: ForkRequest) -> None:
    """Be the process that was asked for."""
    os.setpgid(0, 0)
    die_with_parent()
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for handle, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(handle, place)
    os.close(nothing)
    os.close(output)
    if request.is_traced:
        _wait_for_tracer()
    sys.argv = [request.module, *request.arguments]
    module: Any = importlib.import_module(request.module)
    module.main()


def die_with_parent() -> None:
    """Be killed when the thread that started this process is gone, however it ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_tracer() -> None:
    ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY, 0, 0, 0)
    status, began = Path("/proc/self/status"), time.monotonic()
    while "TracerPid:\t0\n" in status.read_text("ascii"):
        if time.monotonic() > began + TRACING:
            sys.exit("nothing has traced this process")
        time.sleep(0.001)


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    if (asked := serve()) is not None:
        become(asked)
