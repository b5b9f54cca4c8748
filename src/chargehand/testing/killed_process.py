"""Kills your program with SIGKILL in the middle of a run, and restarts it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import count

_TOLD = 2000


@dataclass(frozen=True, slots=True)
class KilledRun:
    """The result of a program that was killed and started again."""

    #: number of kills
    kills: int
    #: output of the last process, which was not killed
    stdout: str
    stderr: str


def kill_and_resume(
    *command: str | os.PathLike[str],
    at_steps: Sequence[int] = (),
    at_writes: Sequence[int] = (),
    resume: Sequence[str | os.PathLike[str]] = (),
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60.0,
) -> KilledRun:
    """Run a Python program, kill it with SIGKILL at given points, restart it each time, and let it finish.

        kill_and_resume("crew.py", at_steps=[2, 5])

    `command` is what follows `python`: a script, or `"-m", "chargehand", "run", …`. For each number in `at_steps`, a
    process is started and killed right after it has stored this number of steps: finished steps and attempts, counted
    from its start. `at_writes` counts writes to the journal instead. After a kill, `resume` is run, or the same command
    again: a script must then continue its run itself, with `key=…` or `boss.resume(…)`.

    Raises `AssertionError`, with the program's output, if the program ends before a kill, if it fails after the last
    kill, or if a process takes longer than `timeout` seconds.
    """
    if sys.platform == "win32":
        raise UsageError("kill_and_resume() needs SIGKILL, which Windows does not have")
    if not command:
        raise UsageError("kill_and_resume() runs nothing; give a script, such as 'crew.py'")
    if bool(at_steps) == bool(at_writes):
        raise UsageError("say when it is killed: either at_steps=[2, 5] or at_writes=[3]")
    kind, points = ("step", at_steps) if at_steps else ("write", at_writes)
    for point in points:
        count(point, f"kill_and_resume: a {kind} to be killed at", least=1)
    if Path(command[0]).suffix == ".py" and not Path(cwd or ".", command[0]).exists():
        raise UsageError(f"there is no script {os.fspath(command[0])!r} in {Path(cwd or '.')}")
    life = _Life(kind, cwd, env, timeout)
    words: Sequence[str | os.PathLike[str]] = command
    for number, point in enumerate(points, 1):
        ended = life.run(words, point)
        if ended.returncode != -signal.SIGKILL:
            raise AssertionError(
                f"life {number} ended with {ended.returncode} before its {kind} {point}, so that it could not be "
                f"killed there; choose an earlier {kind}{_said(ended)}"
            )
        words = resume or command
    ended = life.run(words, 0)
    if ended.returncode:
        raise AssertionError(
            f"after {len(points)} kills the program did not go on to its end: it ended with "
            f"{ended.returncode}{_said(ended)}"
        )
    return KilledRun(len(points), ended.stdout, ended.stderr)


class _Life:
    """Runs the processes of the program, one after another."""

    def __init__(
        self,
        kind: str,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        timeout: float,
    ) -> None:
        self._kind = kind
        self._cwd = cwd
        self._env = {**os.environ, **(env or {})}
        self._timeout = timeout

    def run(
        self, words: Sequence[str | os.PathLike[str]], point: int
    ) -> "subprocess.CompletedProcess[str]":
        """Run the program until it ends, or is killed at `point`; 0 means that it is not killed."""
        command = [sys.executable]
        if point:
            command += ["-m", "chargehand.testing.kill_point", self._kind, str(point)]
        command += [os.fspath(word) for word in words]
        # A separate process group, so that its child processes are killed with it.
        process = subprocess.Popen(  # noqa: S603 - the program of a test
            command,
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            ended = subprocess.CompletedProcess(command, process.returncode, out, err)
            raise AssertionError(
                f"the program was not at its end after {self._timeout:g} s; does it wait for a person?{_said(ended)}"
            ) from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def _said(ended: "subprocess.CompletedProcess[str]") -> str:
    told = (ended.stderr or ended.stdout).strip()
    return f". It said:\n{told[-_TOLD:]}" if told else ""
