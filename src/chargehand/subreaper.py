"""A small process above a program we start, which ends whatever that program leaves behind.

A daemon (forked twice, in a session of its own) escapes its process group and its parent. On Linux it
falls to the nearest subreaper: this process, which kills it. It needs nothing of this package, so that
it also runs as a script: `python subreaper.py PROGRAM ARGUMENT…`.
"""

import contextlib
import errno
import os
import signal
import sys
import time

#: sent to the subreaper: kill all that is below it, at once
TERMINATE = signal.SIGTERM
#: seconds that killed processes have to be gone
PATIENCE = 5.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

if sys.platform == "linux":
    #: sent to the subreaper: ask the program to end, with SIGTERM
    ASK = signal.SIGUSR1
    _HEEDED = {TERMINATE, ASK, signal.SIGCHLD}

    def stay_above() -> None:
        """Go on in a new process, below this one. Returns there; this one ends when that has ended.

        To be called before any thread is started. This process ends as the new one does: with its
        exit code, or by its signal. It ends, too, together with the thread that started it.
        """
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        parent = os.getppid()
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, TERMINATE, 0, 0, 0)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)
        if os.getppid() != parent:  # it has ended before the kernel was told to tell us
            os._exit(1)
        child = os.fork()
        if child:
            _end_as(_watch(child))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setpgid(0, 0)  # to be signalled as a group, without the subreaper
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _watch(child: int) -> int:
        """Wait for the child's end, end all else, and return how the child ended."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in range(3):  # the pipes are the child's alone: their end is to be noticed
            os.dup2(nothing, handle)
        os.closerange(3, 1024)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status: int | None = None
        while status is None:
            heard = signal.sigwait(_HEEDED)
            if heard == ASK:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGTERM)
            if heard == TERMINATE:
                _kill_all()
            status = _reaped(child)
        ends_at = time.monotonic() + PATIENCE
        while _kill_all() and time.monotonic() < ends_at:
            signal.sigtimedwait(_HEEDED, 0.05)
            _reaped(child)
        return status

    def _kill_all() -> bool:
        """Kill every child. What was below them falls to us then, and is killed the next time."""
        below = _children()
        for process in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        return bool(below)

    def _children() -> list[int]:
        own = os.getpid()
        try:
            with open(f"/proc/self/task/{own}/children", encoding="ascii") as file:  # noqa: PTH123 - quick to start
                return [int(number) for number in file.read().split()]
        except OSError:
            return [each for each in _processes() if _parent_of(each) == own]

    def _processes() -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above

    def _parent_of(process: int) -> int:
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
                return int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return 0

    def _reaped(child: int) -> int | None:
        """Take note of all that have ended; how the child did, if it is among them."""
        found: int | None = None
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    break
                if process == child:
                    found = os.waitstatus_to_exitcode(status)
        return found

    def _end_as(code: int) -> None:
        if code < 0:
            import resource

            resource.setrlimit(
                resource.RLIMIT_CORE, (0, 0)
            )  # the child has dumped its core already
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 128 - code)

    def is_below_stopped(subreaper: int) -> bool:
        """Whether the program below a subreaper is stopped, by SIGSTOP, say."""
        try:
            with open(f"/proc/{subreaper}/task/{subreaper}/children", encoding="ascii") as file:  # noqa: PTH123 - as above
                first = file.read().split()[:1]  # what it adopted comes later
            with open(f"/proc/{first[0]}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except (OSError, IndexError):
            return False

    def ask(subreaper: int) -> None:
        """Have the program below a subreaper asked to end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(subreaper, ASK)

    def kill(subreaper: int) -> None:
        """Have a subreaper kill all that is below it and end, also if somebody has stopped it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(subreaper, TERMINATE)
            os.kill(subreaper, signal.SIGCONT)

else:

    def stay_above() -> None:
        """Elsewhere than on Linux nothing can be done about daemons; groups are killed by their starter."""

    def is_below_stopped(subreaper: int) -> bool:
        """Whether a child is stopped, as far as the system tells."""
        if not hasattr(os, "waitid"):
            return False
        look_only = os.WSTOPPED | os.WNOHANG | os.WNOWAIT  # its end is not ours to take
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, subreaper, look_only) is not None
        return False

    def ask(subreaper: int) -> None:
        """Ask a program and its group to end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(subreaper, signal.SIGTERM)

    def kill(subreaper: int) -> None:
        """Kill a program and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(subreaper, signal.SIGKILL)
            else:
                os.kill(subreaper, signal.SIGTERM)


def command_below(
    command: "tuple[str, ...]", path: str | None = None, cwd: "os.PathLike[str] | None" = None
) -> list[str]:
    """The command that runs this one below a subreaper. Raises `OSError` as starting it would.

    `path` is PATH as the program will see it, `cwd` the folder it will be started in.
    """
    if sys.platform != "linux" or not sys.executable:
        return list(command)
    import shutil

    place = os.path.join(cwd or "", command[0]) if os.path.dirname(command[0]) else command[0]  # noqa: PTH118, PTH120 - quick to start
    if shutil.which(place, path=path) is None:
        number = errno.EACCES if os.path.exists(place) else errno.ENOENT  # noqa: PTH110 - as above
        raise OSError(number, os.strerror(number), command[0])
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), *command]  # noqa: PTH100 - as above


def main() -> None:
    """Run a program below this process."""
    stay_above()
    program, *_ = command = sys.argv[1:]
    try:
        os.execvp(program, command)  # noqa: S606 - argv only, as we were told
    except OSError as error:
        sys.stderr.write(f"{program} could not be started: {error}\n")
        sys.stderr.flush()
        os._exit(127)


if __name__ == "__main__":
    main()
