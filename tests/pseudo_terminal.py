"""A program in a pseudo-terminal of a chosen size: what its screen shows, and a keyboard."""

import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyte

DOCS = Path(__file__).parents[1] / "docs"
PATIENCE = 60.0
#: the same on every machine
USUAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LOGNAME": "anna"}
PROGRAM = (sys.executable, "-c", "from chargehand.cli import main; main()")


class Terminal:
    """A program in a terminal of this size: its screen, and a keyboard."""

    def __init__(
        self,
        columns: int,
        rows: int,
        folder: Path,
        args: tuple[str, ...],
        program: Sequence[str] = PROGRAM,
        **environment: str,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        usual = {
            name: value
            for name, value in os.environ.items()
            if name not in ("CI", "NO_COLOR", "FORCE_COLOR", "NO_PROGRESS", "COLUMNS", "LINES")
            and not name.endswith("_API_KEY")
        }
        self.process = subprocess.Popen(
            [*program, *args],
            cwd=folder,
            env={**usual, **USUAL, **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=lambda: _take_terminal(theirs),
        )
        os.close(theirs)
        self.raw = b""

    def resize(self, columns: int, rows: int) -> None:
        ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    @property
    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed, as it does in a shell."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def shown(self) -> str:
        """The screen as text, without what is blank at its end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def everything(self) -> str:
        """What has scrolled away, and the screen."""
        gone = [
            "".join(row[x].data for x in range(self.screen.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return "\n".join([*gone, self.shown()])

    def wait_for(self, words: str | Callable[[str], bool]) -> str:
        """The screen, once it shows these words."""
        is_there = (lambda text: words in text) if isinstance(words, str) else words
        ends = time.monotonic() + PATIENCE
        while not (is_there(self.shown()) and self._is_whole()):
            if not self._read(ends - time.monotonic()):
                raise AssertionError(f"{words!r} was never shown:\n{self.everything()}")
        return self.shown()

    def look(self, seconds: float) -> bool:
        """Read for so long; False once the program has ended."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 or not self._is_whole():
            if not self._read(left) and self.process.poll() is not None:
                return False
        return True

    def _is_whole(self) -> bool:
        """Whether no frame is half painted."""
        return self.raw.count(b"\x1b[?2026h") == self.raw.count(b"\x1b[?2026l")

    def finish(self) -> int:
        """Read to the end, and return the exit code."""
        ends = time.monotonic() + PATIENCE
        while self._read(ends - time.monotonic()):
            pass
        return self.process.wait(timeout=PATIENCE)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(seconds, 0))
        try:
            data = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        os.close(self._ours)
        self._ours = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def _take_terminal(fd: int) -> None:
    """In the child: a session of its own, with this terminal."""
    os.setsid()
    ioctl(fd, termios.TIOCSCTTY, 0)


@contextmanager
def terminal(
    columns: int,
    rows: int,
    folder: Path,
    *args: str,
    program: Sequence[str] = PROGRAM,
    **environment: str,
) -> Iterator[Terminal]:
    opened = Terminal(columns, rows, folder, args, program, **environment)
    try:
        yield opened
    finally:
        opened.close()


def prepared_crew(folder: Path) -> tuple[str, ...]:
    """Put the crew and its plan into a folder; returns the arguments that run it there."""
    spec = spec_from_file_location("terminal_crew", DOCS / "terminal_crew.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("docs/terminal_crew.py is gone")
    crew = module_from_spec(spec)
    spec.loader.exec_module(crew)
    (folder / "crew.py").write_text((DOCS / "terminal_crew.py").read_text())
    (folder / "plan.json").write_text(crew.plan().to_json())
    (folder / "gates").mkdir()
    return ("run", "--crew", "crew.py:boss", "--plan", "plan.json", "--journal", "runs.db")
