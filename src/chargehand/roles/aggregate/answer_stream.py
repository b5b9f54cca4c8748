"""Streaming of an answer while a model writes it: as text, or as a member of a JSON object."""

import re
from collections.abc import Callable

from chargehand.models.gateway import Hear
from chargehand.roles.aggregate.answer_claims import SourceMarks
from chargehand.roles.aggregate.draft_parser import Draft

_SPACE = " \t\r\n"
#: characters from the brace of an object to the value of its first member
_LONGEST_BEGINNING = 2_000


class AnswerStream:
    """Says the answer as it grows, and takes back what did not become part of it."""

    def __init__(self, say: Hear) -> None:
        self._say = say
        self._said: list[str] = []

    def reading(self, marks: SourceMarks) -> Hear:
        """Hears a model's draft and says what readers may see of it."""
        return self._relay(lambda: Draft(marks))

    def picking(self, member: str) -> Hear:
        """Hears JSON as it comes and says the value of its first member, if that has this name."""
        return self._relay(lambda: JsonMemberStream(member))

    def _relay(self, begin: "Callable[[], Draft | JsonMemberStream]") -> Hear:
        heard = begin()

        def hear(piece: str | None) -> None:
            nonlocal heard
            if piece is None:
                heard = begin()
                self.take_back()
            else:
                self._add(heard.hear(piece))

        return hear

    def settle(self, text: str) -> None:
        """The answer is this: say what is still unsaid of it."""
        said = "".join(self._said)
        if not text.startswith(said):
            self.take_back()
            said = ""
        self._add(text[len(said) :])

    def take_back(self) -> None:
        """What was said is not the answer."""
        if self._said:
            self._said = []
            self._say(None)

    def _add(self, piece: str) -> None:
        if piece:
            self._said.append(piece)
            self._say(piece)


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
                # It would begin with the last brace that is there, and not be long.
                at = self._before.rfind("{")
                rest = self._before[at:] if at >= 0 else ""
                self._before = rest if len(rest) <= _LONGEST_BEGINNING else ""
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
