"""JSON while it is being written: the members of an object, each as soon as it is whole."""

import re
from json import JSONDecoder
from typing import Any

import msgspec

#: nothing becomes whole without one of these
_END = re.compile(r"[,\]}]")
_BEFORE_MEMBER = re.compile(r"\s*,?\s*")
_COLON = re.compile(r"\s*:\s*")
_AFTER_MEMBER = re.compile(r"\s*[,}]")
_AFTER_ITEM = re.compile(r"\s*[,\]]|(?<=[\]}])")
_decoder = JSONDecoder()


class PartialJson:
    """An object whose text comes in pieces, cut anywhere.

    Of the array named `listed`, every item is handed out by itself the moment its last bracket is
    there. Text that is no JSON ends it: nothing more is handed out.
    """

    def __init__(self, listed: str) -> None:
        self._listed = listed
        #: pieces that nothing can have become whole with
        self._unread: list[str] = []
        #: what stands there since the last thing was handed out
        self._text = ""
        self._has_begun = False
        self._is_listing = False
        self._is_over = False

    def feed(self, piece: str) -> list[tuple[str, Any]]:
        """What is whole now and was not before: names with values, for the listed array its items."""
        self._unread.append(piece)
        found: list[tuple[str, Any]] = []
        if self._is_over or not _END.search(piece):
            return found
        self._text += "".join(self._unread)
        self._unread.clear()
        try:
            self._begin()
            while not self._is_over:
                found += self._item() if self._is_listing else self._member()
        except (ValueError, RecursionError, msgspec.DecodeError):
            pass  # there is more to come, or it is no JSON and never becomes whole
        return found

    def _begin(self) -> None:
        """Begin with the first object; models like to talk before it, and to put it between back-quotes."""
        if not self._has_begun:
            # A list is no object, whatever is in it.
            self._is_over = self._text.lstrip("` \t\r\n").startswith("[")
            self._text = self._text[self._text.index("{") + 1 :]
            self._has_begun = True

    def _member(self) -> list[tuple[str, Any]]:
        at = _end_of(_BEFORE_MEMBER, self._text, 0)
        if self._text[at : at + 1] == "}":
            self._is_over = True
            return []
        name, at = self._value(at)
        at = _end_of(_COLON, self._text, at)
        if name == self._listed and self._text[at : at + 1] == "[":
            self._is_listing = True
            self._text = self._text[at + 1 :]
            return []
        value, at = self._value(at)
        _end_of(_AFTER_MEMBER, self._text, at)
        self._text = self._text[at:]
        return [(name, value)] if name != self._listed else []

    def _item(self) -> list[tuple[str, Any]]:
        at = _end_of(_BEFORE_MEMBER, self._text, 0)
        if self._text[at : at + 1] == "]":
            self._is_listing = False
            self._text = self._text[at + 1 :]
            return []
        value, at = self._value(at)
        _end_of(_AFTER_ITEM, self._text, at)
        self._text = self._text[at:]
        return [(self._listed, value)]

    def _value(self, at: int) -> tuple[Any, int]:
        """The value that begins here, and where it ends. Raises if it is not whole."""
        _, end = _decoder.raw_decode(self._text, at)
        return msgspec.json.decode(self._text[at:end]), end


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where that which must stand here ends."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"no {pattern.pattern} at {at}")
    return found.end()
