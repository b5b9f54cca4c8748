"""JSON while it is being written: the members of an object, each as soon as it is whole."""

import re
from json import JSONDecoder
from typing import Any

import msgspec

from chargehand.facts.lone_surrogates import without_escaped_surrogates

#: from the same place that fail, after which the text must have grown by a quarter before the next
TRIES = 4
_OUTSIDE = re.compile(r'["\[\]{},]')
_INSIDE = re.compile(r'["\\]')
_BEFORE_MEMBER = re.compile(r"\s*,?\s*")
_COLON = re.compile(r"\s*:\s*")
_AFTER_MEMBER = re.compile(r"\s*[,}]")
_AFTER_ITEM = re.compile(r"\s*[,\]]|(?<=[\]}])")
_decoder = JSONDecoder()


class PartialJson:
    """An object whose text comes in pieces, cut anywhere.

    Of the array named `listed`, every item is handed out by itself the moment its last bracket is
    there. Text that is no JSON ends it: nothing more is handed out. All of it takes time in proportion
    to the length of the text: a value is read once, when its brackets are closed.
    """

    def __init__(self, listed: str) -> None:
        self._listed = listed
        #: pieces that nothing can have become whole with
        self._unread: list[str] = []
        #: what stands there since the last thing was handed out, and is not in `_unread`
        self._text = ""
        self._at = 0
        self._nesting: _Nesting | None = None
        self._is_listing = False
        self._is_over = False
        self._failures = 0
        #: characters that must be there before it is read again
        self._wanted = 0
        self._size = 0

    def feed(self, piece: str) -> list[tuple[str, Any]]:
        """What is whole now and was not before: names with values, for the listed array its items."""
        if self._is_over or not self._may_be_whole(piece):
            return []
        self._text += "".join(self._unread)
        self._unread.clear()
        found: list[tuple[str, Any]] = []
        try:
            while not self._is_over:
                found += self._item() if self._is_listing else self._member()
        except (ValueError, RecursionError, msgspec.DecodeError):
            pass  # there is more to come, or it is no JSON and never becomes whole
        self._failures = 0 if self._at else self._failures + 1
        self._text, self._at = self._text[self._at :], 0
        self._size = len(self._text)
        self._wanted = self._size * 5 // 4 if self._failures > TRIES else 0
        return found

    def _may_be_whole(self, piece: str) -> bool:
        """Take in a piece; whether a member or an item may be whole with it."""
        if self._nesting is None:
            self._unread.append(piece)
            if "{" not in piece:
                return False
            piece = self._begin()
        else:
            self._unread.append(piece)
        self._size += len(piece)
        assert self._nesting is not None  # noqa: S101 - for the type checker
        outermost, opens_list = self._nesting.read(piece)
        is_end = outermost <= (2 if self._is_listing else 1)
        return (is_end or opens_list) and self._size >= self._wanted

    def _begin(self) -> str:
        """Begin with the first object; models like to talk before it, and to put it between back-quotes."""
        text = "".join(self._unread)
        # A list is no object, whatever is in it.
        self._is_over = text.lstrip("` \t\r\n").startswith("[")
        rest = text[text.index("{") + 1 :]
        self._unread = [rest]
        self._nesting = _Nesting()
        return rest

    def _member(self) -> list[tuple[str, Any]]:
        at = _end_of(_BEFORE_MEMBER, self._text, self._at)
        if self._text[at : at + 1] == "}":
            self._is_over = True
            return []
        name, at = self._value(at)
        at = _end_of(_COLON, self._text, at)
        if name == self._listed and self._text[at : at + 1] == "[":
            self._is_listing = True
            self._at = at + 1
            return []
        value, at = self._value(at)
        _end_of(_AFTER_MEMBER, self._text, at)
        self._at = at
        return [(name, value)] if name != self._listed else []

    def _item(self) -> list[tuple[str, Any]]:
        at = _end_of(_BEFORE_MEMBER, self._text, self._at)
        if self._text[at : at + 1] == "]":
            self._is_listing = False
            self._at = at + 1
            return []
        value, at = self._value(at)
        _end_of(_AFTER_ITEM, self._text, at)
        self._at = at
        return [(self._listed, value)]

    def _value(self, at: int) -> tuple[Any, int]:
        """The value that begins here, and where it ends. Raises if it is not whole."""
        _, end = _decoder.raw_decode(self._text, at)
        return msgspec.json.decode(without_escaped_surrogates(self._text[at:end])), end


class _Nesting:
    """Counts the brackets that are open in an object, of which the first is; not those in strings."""

    def __init__(self) -> None:
        self._depth = 1
        self._is_string = False
        self._is_escaped = False

    def read(self, piece: str) -> tuple[int, bool]:
        """The least depth at which something ends in this piece, and whether a member's list opens in it."""
        outermost, opens_list = len(piece) + self._depth, False
        at = int(self._is_escaped and bool(piece))
        self._is_escaped = self._is_escaped and not piece
        while found := (_INSIDE if self._is_string else _OUTSIDE).search(piece, at):
            at = found.end()
            match found[0]:
                case '"':
                    self._is_string = not self._is_string
                case "\\":
                    self._is_escaped = at == len(piece)
                    at += 1
                case "[" | "{":
                    self._depth += 1
                    opens_list |= self._depth == 2 and found[0] == "["
                case ended:
                    self._depth -= ended != ","
                    outermost = min(outermost, self._depth)
        return outermost, opens_list


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where that which must stand here ends."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(f"no {pattern.pattern} at {at}")
    return found.end()
