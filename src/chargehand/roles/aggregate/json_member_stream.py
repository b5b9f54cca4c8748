"""One member of a JSON object, heard while the object is still being written."""

import re

_SPACE = " \t\r\n"


class JsonMemberStream:
    """Takes JSON in pieces; hands out the text of the first member's value, without idle space.

    Anything but an object that begins with this member hands out nothing: whoever wants the value
    then waits for the whole.
    """

    def __init__(self, name: str) -> None:
        self._beginning = re.compile(rf'\{{\s*"{re.escape(name)}"\s*:\s*')
        #: what came before the value; None: the value has begun
        self._before: str | None = ""
        self._depth = 0
        self._is_text = False
        self._is_escaped = False
        self._is_over = False

    def hear(self, piece: str) -> str:
        """Take in one more piece; returns what of the value came with it."""
        if self._before is not None:
            self._before += piece
            found = self._beginning.search(self._before)
            if found is None:
                return ""
            piece, self._before = self._before[found.end() :], None
        return "".join(letter for letter in piece if self._is_of_value(letter))

    def _is_of_value(self, letter: str) -> bool:
        if self._is_over:
            return False
        if self._is_text:
            self._read_text(letter)
            return True
        if letter in _SPACE:
            return False
        if not self._depth and letter in ",}":  # the end of a number, or of true, false, null
            self._is_over = True
            return False
        self._is_text = letter == '"'
        self._depth += (letter in "{[") - (letter in "}]")
        self._is_over = not self._depth and letter in "}]"
        return True

    def _read_text(self, letter: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif letter == "\\":
            self._is_escaped = True
        elif letter == '"':
            self._is_text = False
            self._is_over = not self._depth
