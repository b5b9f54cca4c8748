"""Tools that run Python and shell code of a model in a kernel sandbox, or refuse to run it."""

import base64
import dataclasses
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from chargehand.errors import ToolError, UsageError
from chargehand.facts.argument_checks import Duration, count, duration
from chargehand.sync_async_bridge import in_thread
from chargehand.tools.base import Tool, tool
from chargehand.tools.sandbox.mounts import DATA, Backend, bubblewrap, own_walls, walls_for
from chargehand.tools.sandbox.runner import (
    ENVIRONMENT,
    START,
    Ending,
    SandboxedProcess,
    SandboxLimits,
    SandboxProgram,
)
from chargehand.usable_path import checked_path

PathLike: TypeAlias = str | os.PathLike[str]
LIMIT = timedelta(seconds=180)
MEMORY = 1024**3
DISK = 128 * 1024**2
PROCESSES = 64
MOST_CODE = 256 * 1024
#: time to start and clean up, in addition to the program's own time
_GRACE = timedelta(seconds=10)
_SELF_TEST = timedelta(seconds=20)
BACKENDS: Mapping[str, Sequence[Backend]] = {
    "auto": (bubblewrap(), own_walls),
    "bubblewrap": (bubblewrap(),),
    "namespaces": (own_walls,),
}

#: the backends that have passed their test in this process
_proven: set[Backend] = set()


def sandbox(
    *,
    data: PathLike | Sequence[PathLike] = (),
    limit: Duration = LIMIT,
    memory: int = MEMORY,
    disk: int = DISK,
    processes: int = PROCESSES,
    backend: str = "auto",
) -> tuple[Tool, Tool]:
    """The tools `run_python` and `run_shell`: no network, no files of the host, no secrets.

    A program sees the system's programs, this Python with its packages, and the files and folders of
    `data` below /data, all read-only. It can write to an empty folder of `disk` bytes, which is deleted
    afterwards. If the kernel cannot isolate a program, the program does not run. If the supervisor runs
    as root, the program runs as another user, so `data` must be world-readable. A program is killed
    after `limit`, in seconds or as a `timedelta`.
    """
    if backend not in BACKENDS:
        raise UsageError(f"backend={backend!r} is none of {', '.join(BACKENDS)}")
    seconds = duration(limit, "limit").total_seconds()
    for name, given in (("memory", memory), ("disk", disk), ("processes", processes)):
        count(given, name, least=1)
    places = [data] if isinstance(data, (str, os.PathLike)) else data
    bench = SandboxTools(
        [checked_path(place, "data") for place in places],
        SandboxLimits(seconds=seconds, memory=memory, processes=processes),
        disk,
        BACKENDS[backend],
    )
    return bench.tools()


class SandboxTools:
    """Runs programs, each in a sandbox of its own."""

    def __init__(
        self, data: Sequence[Path], allowance: SandboxLimits, disk: int, backends: Sequence[Backend]
    ) -> None:
        self._data = data
        self._walls = walls_for(data, disk)
        self._allowance = allowance
        self._backends = backends

    def tools(self) -> tuple[Tool, Tool]:
        terms: dict[str, Any] = {
            "effect": "pure",  # nothing outside of the sandbox changes
            "timeout": timedelta(seconds=self._allowance.seconds)
            + timedelta(seconds=2 * START)
            + _SELF_TEST
            + _GRACE,
            "untrusted": bool(self._data),
        }
        made = (
            tool(name="run_python", **terms)(self.run_python),
            tool(name="run_shell", **terms)(self.run_shell),
        )
        python, shell = (
            dataclasses.replace(each, description=f"{each.description} {self._terms()}")
            for each in made
        )
        return python, shell

    async def run_python(self, code: str, files: list[str] | None = None) -> dict[str, Any]:
        """Run a Python program in a sandbox and return what it prints. Nothing is kept between calls.

        Args:
            code: the whole program; print what you want to know
            files: names of files that it writes into its folder and whose contents you want
        """
        return _told(await self._run(_python(code, files or []), len(code)), self._allowance)

    async def run_shell(self, command: str, files: list[str] | None = None) -> dict[str, Any]:
        """Run a shell command in a sandbox and return what it prints. Nothing is kept between calls.

        Args:
            command: one command line or a whole script
            files: names of files that it writes into its folder and whose contents you want
        """
        return _told(await self._run(_shell(command, files or []), len(command)), self._allowance)

    def _terms(self) -> str:
        shown = [f"{DATA}/{place.resolve().name}" for place in self._data]
        readable = f"; readable: {', '.join(shown)}" if shown else ""
        return (
            f"No network; {self._allowance.seconds:g} s; {self._allowance.memory >> 20} MB of "
            f"memory; {self._walls.disk >> 20} MB of disk in the current folder{readable}."
        )

    async def _run(self, program: SandboxProgram, size: int) -> Ending:
        if size > MOST_CODE:
            raise ToolError(f"a program of {size} characters is too long; {MOST_CODE} are allowed")
        backend = await self._choose()
        try:
            return await self._jailed(backend, self._allowance, program)
        except ToolError as error:
            if error.kind == "denied":
                _proven.discard(backend)  # the cause may be fixed before the next call
            raise

    async def _choose(self) -> Backend:
        """The first backend that passes its test. A run that fails later is not retried with another backend."""
        reasons = []
        for backend in self._backends:
            try:
                if backend not in _proven:
                    await self._test(backend)
            except ToolError as error:
                reasons.append(str(error))
            else:
                _proven.add(backend)
                return backend
        raise ToolError("\n".join(reasons), kind="denied")

    async def _test(self, backend: Backend) -> None:
        """Check, before the first run, that Python starts at all. Every run checks its isolation itself."""
        seconds = _SELF_TEST.total_seconds()
        allowance = dataclasses.replace(self._allowance, seconds=seconds)
        ending = await self._jailed(backend, allowance, _python("print(6 * 7)", []))
        if ending.stdout != "42\n":
            shown = ending.stderr[-300:] or ending.stopped or "it prints nothing"
            raise ToolError(f"Python does not work inside the sandbox: {shown}", kind="denied")

    async def _jailed(
        self, backend: Backend, allowance: SandboxLimits, program: SandboxProgram
    ) -> Ending:
        jailed = SandboxedProcess(self._walls, backend, allowance)
        try:
            ending: Ending = await in_thread(jailed.run, program)
        finally:
            jailed.kill()
        return ending


def _python(code: str, wanted: Sequence[str]) -> SandboxProgram:
    return SandboxProgram(
        # `path` is the real interpreter; argv[0] makes it find the packages of this virtual environment.
        path=os.path.realpath(sys.executable),
        argv=[sys.executable, "-u", "main.py"],
        env=ENVIRONMENT,
        files={"main.py": code},
        wanted=wanted,
    )


def _shell(command: str, wanted: Sequence[str]) -> SandboxProgram:
    path = shutil.which("bash", path="/usr/bin:/bin") or "/bin/sh"
    return SandboxProgram(path=path, argv=[path, "-c", command], env=ENVIRONMENT, wanted=wanted)


def _told(ending: Ending, allowance: SandboxLimits) -> dict[str, Any]:
    """The tool's output. A program that fails is a normal result; one that times out is a `ToolError`."""
    if ending.stopped == "too slow":
        raise ToolError(
            f"it took longer than {allowance.seconds:g} s and was killed. It had printed:\n"
            f"{ending.stdout[-1500:]}\n{ending.stderr[-1500:]}".rstrip(),
            kind="timeout",
        )
    told: dict[str, Any] = {"exit_code": ending.code}
    if ending.stopped:
        told["killed"] = ending.stopped
    elif ending.code is not None and ending.code < 0:
        told["killed"] = f"by signal {_signal(-ending.code)}"
    told |= {"stdout": ending.stdout, "stderr": ending.stderr}
    told["files"] = [_file(file) for file in ending.files if file["path"] != "main.py"]
    return {name: value for name, value in told.items() if value not in ("", [])}


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in list(signal.Signals) else str(number)


def _file(file: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"path": file["path"], "size": file["size"]}
    if "data" in file:
        data = base64.b64decode(file["data"])
        try:
            told["text"] = data.decode()
        except UnicodeDecodeError:
            told["base64"] = file["data"]
        if len(data) < file["size"]:
            told["cut"] = f"these are the first {len(data)} bytes"
    return told
