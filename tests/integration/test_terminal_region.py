"""The painted end of a terminal, on a screen that wraps its lines anew when it becomes narrower, as most do."""

import io
import os
import re
from collections.abc import Callable

import pytest

from chargehand.cli.terminal_region import TerminalRegion

_PIECE = re.compile(r"\x1b\[(?P<number>\??\d*)(?P<command>[A-Za-z])|(?P<text>[^\x1b])")


class Screen(io.StringIO):
    """A terminal like tmux: it wraps lines anew, and keeps in its history a screen that is erased at once."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.size = os.terminal_size((columns, rows))
        self.history: list[str] = []
        self.rows = [""]
        self.row = 0
        self.column = 0

    def resize(self, columns: int, rows: int) -> None:
        """Wrap anew; of rows that no longer fit, the first ones go to the history."""
        pieces = [
            row[start : start + columns]
            for row in self.rows[: self.row + 1]
            for start in range(0, max(len(row), 1), columns)
        ]
        self.size = os.terminal_size((columns, rows))
        self.rows, self.row = pieces, len(pieces) - 1
        self._scroll()

    def shown(self) -> list[str]:
        return [row.rstrip() for row in self.rows]

    def write(self, text: str) -> int:
        for piece in _PIECE.finditer(text):
            if piece["text"]:
                self._put(piece["text"])
            else:
                self._obey(piece["number"], piece["command"])
        return len(text)

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row, self.column = self.row + 1, 0
            self.rows += [""] * (self.row + 1 - len(self.rows))
            self._scroll()
        elif self.column < self.size.columns:
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1

    def _obey(self, number: str, command: str) -> None:
        match command, number:
            case "A", _:
                self.row = max(self.row - int(number or 1), 0)
            case "K", "2":
                self.rows[self.row] = ""
            case "J", "":
                if (self.row, self.column) == (0, 0):
                    self.history += self.rows
                self.rows[self.row :] = [""]
            case _:
                assert command in "hlm", f"unknown to this screen: {number}{command}"

    def _scroll(self) -> None:
        gone = max(len(self.rows) - self.size.lines, 0)
        self.history, self.rows = [*self.history, *self.rows[:gone]], self.rows[gone:]
        self.row = max(self.row - gone, 0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], tuple[Screen, TerminalRegion]]:
    def open_(columns: int, rows: int) -> tuple[Screen, TerminalRegion]:
        screen = Screen(columns, rows)
        monkeypatch.setattr(screen, "fileno", lambda: 2)
        monkeypatch.setattr(os, "get_terminal_size", lambda _: screen.size)
        return screen, TerminalRegion(screen)

    return open_


def view(columns: int, rows: int = 6) -> list[str]:
    """Lines of which every other one is as wide as the terminal."""
    return [f"{n} ".ljust(columns if n % 2 else 20, "x") for n in range(rows)]


def test_a_view_in_a_terminal_that_became_narrower_leaves_nothing_behind(
    opened: Callable[[int, int], tuple[Screen, TerminalRegion]],
) -> None:
    """Also where its wrapped lines fill all of the screen, as they do if that has fewer rows, too."""
    screen, region = opened(120, 40)
    region.paint(view(120), view(120))
    screen.resize(80, 9)
    assert len(screen.shown()) == 9
    region.paint(view(80), view(80))
    assert (screen.history, [row for row in screen.shown() if row]) == ([], view(80))
    region.above("a line that stays")
    screen.resize(120, 40)
    region.paint(view(120), view(120))
    assert screen.shown() == ["a line that stays", *view(120)]


def test_what_was_written_above_stays_when_a_view_becomes_smaller(
    opened: Callable[[int, int], tuple[Screen, TerminalRegion]],
) -> None:
    screen, region = opened(80, 24)
    region.paint(view(80), view(80))
    region.above("first\nsecond")
    region.paint(view(80, 2), view(80, 2))
    assert [row for row in screen.shown() if row] == ["first", "second", *view(80, 2)]
    region.clear()
    assert [row for row in screen.shown() if row] == ["first", "second"]


def test_a_view_that_is_forgotten_is_painted_anew_below_what_others_wrote(
    opened: Callable[[int, int], tuple[Screen, TerminalRegion]],
) -> None:
    screen, region = opened(80, 24)
    region.paint(view(80, 2), view(80, 2))
    screen.write("\nof the shell\n")
    region.forget()
    region.paint(view(80, 2), view(80, 2))
    assert screen.shown() == [*view(80, 2), "of the shell", *view(80, 2)]
