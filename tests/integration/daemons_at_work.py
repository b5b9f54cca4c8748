"""Workers and a server that start daemons: forked twice, in sessions of their own, deaf to SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from chargehand.engines.brief import Brief
from tests.integration.mcp_servers import Rogue, text


def start_daemon(pipe: str) -> None:
    """A daemon by the book; it holds the pipe open for as long as it lives."""
    ready, told = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            handle = os.open(pipe, os.O_WRONLY)
            os.write(handle, b"held")
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            os.write(told, b"x")
            time.sleep(600)
        os._exit(0)
    os.waitpid(first, 0)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)


def start_and_return(brief: Brief) -> str:
    start_daemon(brief.args["pipe"])
    return "done"


def start_and_die(brief: Brief) -> None:
    start_daemon(brief.args["pipe"])
    os.kill(os.getpid(), signal.SIGKILL)


def start_and_spin(brief: Brief) -> None:
    start_daemon(brief.args["pipe"])
    brief.progress("started")
    while True:
        sum(range(1_000))


def start_one_after_the_other(brief: Brief) -> None:
    """A daemon whose child starts children of its own, in groups of their own, all holding the pipe."""
    start_daemon(brief.args["pipe"])
    handle = os.open(brief.args["pipe"], os.O_WRONLY)
    nested = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True, close_fds=False); time.sleep(600)"
    subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", nested], start_new_session=True, pass_fds=[handle]
    )
    os.close(handle)
    os._exit(5)


def serve() -> None:
    """A stdio MCP server with a daemon."""

    def start(_: object) -> dict[str, object]:
        start_daemon(sys.argv[1])
        return text("started")

    def die(_: object) -> None:
        start_daemon(sys.argv[1])
        os._exit(3)

    Rogue(start=start, die=die).run()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    serve()
