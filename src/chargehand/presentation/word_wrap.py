"""Wraps text between words to fit a terminal."""

import re
from typing import NamedTuple

from chargehand.presentation.display_text import cell_width

#: never broken: a word, or a command that people copy
_PIECE = re.compile(r"(?<!\S)chargehand [a-z]+ \S.*|\S+")
#: the start of a line that sets the indent of its later rows: tree lines, then a time or an icon
_LEAD = re.compile(r"(?P<tree>[\s│├└─]*)(?P<mark>\d\d:\d\d:\d\d  |[✓✗↻▲·–◐◌○⊘▌?] +)?")
_TREE = str.maketrans({"├": "│", "└": " ", "─": " "})
_STREAMED = re.compile(r"\n|[^\S\n]+|\S+")


class Row(NamedTuple):
    """One row of a line: its indent, and its start and end in the text."""

    indent: str
    start: int
    end: int


def rows_of(text: str, width: int, hang: int = 0) -> list[Row]:
    """Split a line into rows that fit; a single long word may exceed the width."""
    if cell_width(text) <= width:
        return [Row("", 0, len(text))]
    lead = _LEAD.match(text)
    indent = " " * hang
    if lead is not None and not hang:
        indent = lead["tree"].translate(_TREE) + " " * cell_width(lead["mark"] or "")
    if cell_width(indent) > width // 2:
        indent = ""
    rows: list[Row] = []
    start = end = used = 0
    for piece in _PIECE.finditer(text, 0 if lead is None else lead.end()):
        more = cell_width(text[end : piece.end()])
        if end and used + more > width:
            rows.append(Row(indent if rows else "", start, end))
            start, used = piece.start(), cell_width(indent)
            more = cell_width(piece[0])
        used, end = used + more, piece.end()
    return [*rows, Row(indent if rows else "", start, len(text))]


def wrapped(text: str, width: int, hang: int = 0) -> str:
    """Wrap each line of a text between words. With `width` 0, the text is unchanged.

    `hang` is the indent of the later rows of a line.
    """
    if not width:
        return text
    return "\n".join(
        f"{row.indent}{line[row.start : row.end]}"
        for line in text.split("\n")
        for row in rows_of(line, width, hang)
    )


class StreamedWrap:
    """Wraps a text while it is streamed; holds back the last word until it is complete."""

    def __init__(self) -> None:
        self._column = 0
        self._gap = ""
        self._word = ""

    def add(self, text: str, width: int) -> str:
        """Add a piece of text, and return what can be written now."""
        written = ""
        for piece in _STREAMED.findall(text):
            if not piece.isspace():
                self._word += piece
                continue
            written += self._whole_word(width)
            if piece == "\n":
                written += piece
                self._column, self._gap = 0, ""
            else:
                self._gap += piece
        return written

    def _whole_word(self, width: int) -> str:
        gap, word, self._gap, self._word = self._gap, self._word, "", ""
        if not word:
            self._gap = gap
            return ""
        if self._column and self._column + cell_width(gap + word) > width:
            self._column, gap = 0, ""
            word = f"\n{word}"
        self._column += cell_width(gap + word.lstrip("\n"))
        return gap + word
