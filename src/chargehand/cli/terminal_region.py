"""Repaints the last lines of a terminal while other lines scroll above them."""

import os
import threading
from collections.abc import Sequence
from typing import TextIO

from chargehand.presentation.display_text import cell_width

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronized output: no flicker, if supported
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ERASE_ROW, _ROW_UP = "\x1b[2K", "\x1b[1A"


class TerminalRegion:
    """Owns the last lines of a terminal. Threads may write above it at any time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        #: the lines on the screen
        self._drawn: list[str] = []
        self._widths: list[int] = []
        self._columns = 0
        self._is_lost = False

    @property
    def size(self) -> tuple[int, int]:
        """The current columns and rows of the terminal."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        return size.columns or 80, size.lines or 24

    def paint(self, lines: Sequence[str], plain: Sequence[str]) -> None:
        """Replace the lines of the region; `plain` are the same lines without escape sequences."""
        with self._lock:
            columns = self.size[0]
            if list(lines) == self._drawn and columns == self._columns:
                return
            self._write(
                _BEGIN + self._erased(columns) + self._drawn_as(lines, plain, columns) + _END
            )

    def above(self, text: str) -> None:
        """Write lines above the region; they scroll up and stay."""
        with self._lock:
            columns = self.size[0]
            erased, drawn = self._erased(columns), list(self._drawn)
            self._drawn = []
            again = self._drawn_as(drawn, None, columns)
            self._write(f"{_BEGIN}{erased}{text}\n{again}{_END}")

    def clear(self) -> None:
        """Erase the region."""
        with self._lock:
            if self._drawn:
                self._write(self._erased(self.size[0]) + _SHOW)
            self._drawn, self._widths = [], []

    def forget(self) -> None:
        """Leave the drawn lines where they are: other programs have written below them."""
        with self._lock:
            self._drawn, self._widths = [], []

    def _erased(self, columns: int) -> str:
        """The sequences that erase the drawn lines. A terminal that became narrower has wrapped some of them.

        Erases row by row, upwards: if the whole screen is erased at once, tmux keeps the rows in its history.
        """
        if not self._drawn:
            return ""
        if columns >= self._columns:
            rows = len(self._drawn)
        else:
            rows = sum(max(1, -(-width // max(columns, 1))) for width in self._widths)
        return f"\r{_ERASE_ROW}{(_ROW_UP + _ERASE_ROW) * (rows - 1)}"

    def _drawn_as(self, lines: Sequence[str], plain: Sequence[str] | None, columns: int) -> str:
        if plain is not None:
            self._widths = [cell_width(line) for line in plain]
        self._drawn, self._columns = list(lines), columns
        if not lines:
            return ""
        return _HIDE + _NO_WRAP + "\n".join(lines) + _WRAP

    def _write(self, text: str) -> None:
        if self._is_lost:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the run continues
            self._is_lost = True
