"""Sends notices to a program."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from typing import IO

import msgspec

from chargehand.errors import NoticeNotSent, UsageError
from chargehand.facts.argument_checks import Duration, duration, keywords_checked
from chargehand.notify.base import Notice

TIME = timedelta(seconds=30)
#: bytes of standard error of a failing command that appear in the log
SAID = 500


class Command:
    """Starts a program for each notice and passes it the notice as JSON on standard input.

    `argv` is a list of arguments, run without a shell; it never contains any part of a notice. A
    program that does not end in time is killed, including its children.
    """

    @keywords_checked
    def __init__(self, argv: Sequence[str], *, timeout: Duration = TIME) -> None:
        from shutil import which  # imported here, because most programs do not need it

        if isinstance(argv, str) or not argv:
            raise UsageError("a command is a list of words: Command(['notify-send', 'chargehand'])")
        if which(argv[0]) is None:
            if (found := which(argv[0], os.F_OK)) is not None:
                raise UsageError(
                    f"{found} cannot notify: it is not executable; make it so with chmod +x, or name its interpreter first"
                )
            raise UsageError(
                f"there is no program {argv[0]!r} to notify with; install it or give its path"
            )
        self._argv = tuple(argv)
        self._timeout = duration(timeout, "Command: timeout")

    def __repr__(self) -> str:
        return f"command {self._argv[0]}"

    async def notify(self, notice: Notice) -> None:
        from tempfile import TemporaryFile

        # A file, not a pipe, for standard error: a background child would keep a pipe open.
        with TemporaryFile() as said:
            code = await self._run(msgspec.json.encode(notice), said)
            if code:
                said.seek(0)
                words = said.read(SAID).decode(errors="replace").strip()
                raise NoticeNotSent(f"{self!r} ended with {code}: {words or 'it said nothing'}")

    async def _run(self, data: bytes, said: IO[bytes]) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # a process group of its own, so its children can be killed too
            )
        except OSError as error:
            raise NoticeNotSent(f"{self!r} cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await process.communicate(data)
        except TimeoutError:
            seconds = self._timeout.total_seconds()
            raise NoticeNotSent(f"{self!r} was killed after {seconds:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
        return process.returncode or 0
