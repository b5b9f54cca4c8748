"""The voice: what listeners hear of an answer while it is made. What they heard at last is the answer."""

from collections.abc import Callable

from chargehand.models.gateway import Hear
from chargehand.roles.aggregate.answer_draft import Draft
from chargehand.roles.aggregate.json_member_stream import JsonMemberStream
from chargehand.roles.aggregate.source_marks import SourceMarks


class AnswerStream:
    """Says the answer as it grows, and takes back what did not become part of it."""

    def __init__(self, say: Hear) -> None:
        self._say = say
        self._said = ""

    def reading(self, marks: SourceMarks) -> Hear:
        """Hears a model's draft and says what readers may see of it."""
        return self._relay(lambda: Draft(marks))

    def picking(self, member: str) -> Hear:
        """Hears JSON as it comes and says the value of its first member, if that has this name."""
        return self._relay(lambda: JsonMemberStream(member))

    def _relay(self, begin: Callable[[], Draft | JsonMemberStream]) -> Hear:
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
        if not text.startswith(self._said):
            self.take_back()
        self._add(text[len(self._said) :])

    def take_back(self) -> None:
        """What was said is not the answer."""
        if self._said:
            self._said = ""
            self._say(None)

    def _add(self, piece: str) -> None:
        if piece:
            self._said += piece
            self._say(piece)
