"""Kills a program of yours in the middle of its run, with -9, and lets it go on."""

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

    #: how often it was killed
    kills: int
    #: of the last life, which was not killed
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

    `command` is what follows `python`: a script, or `"-m", "chargehand", "run", …`. It is killed right after
    the given step of each life is on disk: a finished step of a worker, or a finished task. `at_writes`
    counts writes to the journal instead. Later lives run `resume`, or the same command again: a script must
    then continue its run by itself, with `key=…` or `boss.resume(…)`.

    Raises `AssertionError`, with the program's output, if it ends before it could be killed, fails in its
    last life, or takes longer than `timeout` seconds.
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
    """How each life of the program is run."""

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
        """Run it to its end, or to this point, with 0 for never."""
        command = [sys.executable]
        if point:
            command += ["-m", "chargehand.testing.kill_point", self._kind, str(point)]
        command += [os.fspath(word) for word in words]
        # A group of its own: what it has started is killed with it.
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
