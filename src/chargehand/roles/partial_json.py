"""JSON while it is being written: the members of an object, each as soon as it is whole."""

import re
from typing import Any

import msgspec

_MARK = re.compile(r'["{}\[\],]')
_STRING_MARK = re.compile(r'["\\]')
_OPENER = {"}": "{", "]": "["}


class PartialJson:
    """An object whose text comes in pieces, cut anywhere.

    Of the array named `listed`, every item is handed out by itself the moment its last bracket is
    there. Each character is looked at once. Text that is no JSON ends it: nothing more is handed out.
    """

    def __init__(self, listed: str) -> None:
        self._listed = listed
        #: what stands there since the last thing was handed out
        self._text: list[str] = []
        #: brackets, the outermost first
        self._open: list[str] = []
        self._is_listing = False
        self._is_in_string = False
        self._is_escaped = False
        self._is_over = False

    def feed(self, piece: str) -> list[tuple[str, Any]]:
        """What is whole now and was not before: names with values, for the listed array its items."""
        found: list[tuple[str, Any]] = []
        at = 0
        while at < len(piece) and not self._is_over:
            if self._is_in_string:
                at = self._read_string(piece, at)
                continue
            mark = _MARK.search(piece, at)
            self._text.append(piece[at : mark.start() if mark else len(piece)])
            if mark is None:
                break
            at = mark.end()
            self._meet(mark[0], found)
        return found

    def _read_string(self, piece: str, at: int) -> int:
        """Read on in a string from here; returns where to go on."""
        if self._is_escaped:
            self._is_escaped = False
            self._text.append(piece[at])
            return at + 1
        mark = _STRING_MARK.search(piece, at)
        end = mark.end() if mark else len(piece)
        self._text.append(piece[at:end])
        if mark is not None:
            self._is_in_string = mark[0] != '"'
            self._is_escaped = mark[0] == "\\"
        return end

    def _meet(self, mark: str, found: list[tuple[str, Any]]) -> None:
        if not self._open:
            self._begin(mark)
        elif mark == '"':
            self._is_in_string = True
            self._text.append(mark)
        elif mark in "{[":
            self._go_in(mark)
        elif mark == ",":
            self._separate(found)
        else:
            self._go_out(mark, found)

    def _begin(self, mark: str) -> None:
        """Begin with the first object; models like to talk before it, and to put it between back-quotes."""
        is_first = not "".join(self._text).strip("` \t\r\n")
        self._text.clear()
        self._is_over = mark == "[" and is_first  # a list is no object, whatever is in it
        if mark == "{":
            self._open.append(mark)

    def _go_in(self, mark: str) -> None:
        if len(self._open) == 1 and mark == "[" and self._name() == self._listed:
            self._is_listing = True
            self._text.clear()
        else:
            self._text.append(mark)
        self._open.append(mark)

    def _go_out(self, mark: str, found: list[tuple[str, Any]]) -> None:
        if self._open.pop() != _OPENER[mark]:
            self._is_over = True
        elif not self._open:
            self._end_member(found)
            self._is_over = True
        elif len(self._open) == 1 and self._is_listing:
            self._end_item(found)
            self._is_listing = False
        else:
            self._text.append(mark)
            if len(self._open) == 2 and self._is_listing:
                self._end_item(found)

    def _separate(self, found: list[tuple[str, Any]]) -> None:
        if len(self._open) == 1:
            self._end_member(found)
        elif len(self._open) == 2 and self._is_listing:
            self._end_item(found)
        else:
            self._text.append(",")

    def _end_item(self, found: list[tuple[str, Any]]) -> None:
        text = self._taken()
        if text:
            found += [(self._listed, item) for item in self._decoded(text)]

    def _end_member(self, found: list[tuple[str, Any]]) -> None:
        text = self._taken()
        if text:
            members = [each for whole in self._decoded(f"{{{text}}}") for each in whole.items()]
            found += [each for each in members if each[0] != self._listed]

    def _name(self) -> object:
        """The name of the member that is being written."""
        name, colon, value = "".join(self._text).rpartition(":")
        try:
            return msgspec.json.decode(name) if colon and not value.strip() else None
        except (msgspec.DecodeError, ValueError):
            return None  # what follows will not be JSON either, and ends it

    def _taken(self) -> str:
        text = "".join(self._text).strip()
        self._text.clear()
        return text

    def _decoded(self, text: str) -> list[Any]:
        """The one value in this text; none if it is no JSON."""
        try:
            return [msgspec.json.decode(text)]
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._is_over = True
            return []
