"""The draft: what a model writes as the answer, read while it comes.

Marks and lines for the machine are taken out of what is shown; the text that was shown when the
draft ends is the text of the answer, however the draft was cut into pieces on its way.
"""

import re
from itertools import combinations

from chargehand.facts.answer import Claim, Contradiction
from chargehand.roles.aggregate.answer_claims import INSIDE, SourceMarks

#: with which models like to set off a line
_ORNAMENTS = " \t>*_`#-"
_MOST_ORNAMENTS = 8
_MACHINE_WORDS = ("CONTRADICTION", "CONFIDENCE")
#: characters at the beginning of a line by which a line for the machine is known: ornaments and such a word
_HEAD = 64
_MACHINE_LINE = re.compile(r"(CONTRADICTION|CONFIDENCE)[ \t*_`]*[:=](.*)", re.DOTALL)
_FIGURE = re.compile(
    r"(?P<number>-?\d{1,9}(?:[.,]\d{1,9})?)\s*(?:(?P<percent>%)|/\s*(?P<of>\d{1,9}))?"
)
_TOKEN = re.compile(rf"(?P<space>[ \t\r]+)|{INSIDE}|(?P<text>[^\[ \t\r]+)")
_OPEN = re.compile(r"\[[^\[\]\n]{0,400}\Z")
_BORDER = re.compile(r"[\[\]\s,;&]+")


class Draft:
    """Takes a reply in pieces; says what of it may be shown, and at last what it says to the machine.

    A line `CONTRADICTION: t1: … | t2: …` counts wherever it stands, if both sides name their task. A
    line `CONFIDENCE: 0.8` counts only if no text follows: anywhere else it is somebody's words.
    Each piece is looked at once, however long its line is.
    """

    def __init__(self, marks: SourceMarks) -> None:
        #: of text, with their marks
        self.lines: list[str] = []
        self.contradictions: list[Contradiction] = []
        self._marks = marks
        self._shown: list[str] = []
        #: of the line; of those, what is not dealt with yet
        self._pieces: list[str] = []
        self._open: list[str] = []
        self._head = ""
        self._is_blank = True
        #: whether the line is known to be no line for the machine
        self._is_text = False
        #: lines of confidence, and empty ones after them: for readers after all, if text follows
        self._held: list[str] = []
        self._breaks = 0
        #: the last line was for the machine: empty ones after it go with it
        self._is_cut = False
        self._spaces: list[str] = []
        #: what stood before a mark that was just taken out
        self._indent: str | None = None
        #: anything of this line
        self._has_shown = False

    @property
    def text(self) -> str:
        """All that was shown so far."""
        return "".join(self._shown)

    @property
    def confidence(self) -> float | None:
        """What the draft says of itself, from 0 to 1; None if it says nothing."""
        told = [found[2] for line in self._held if (found := _machine_line(line))]
        return _figure_in(told[-1]) if told else None

    def hear(self, piece: str) -> str:
        """Take in one more piece; returns what may be shown now."""
        before = len(self._shown)
        *ended, rest = piece.split("\n")
        for line in ended:
            self._add(line)
            self._end_line()
        self._add(rest)
        if self._is_text or not self._may_be_for_machine():
            self._show_line(is_whole=False)
        return "".join(self._shown[before:])

    def finish(self) -> "Draft":
        """The draft is whole."""
        if self._pieces:
            self._end_line()
        return self

    def _add(self, piece: str) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._open.append(piece)
        if not self._is_text:
            self._is_blank = self._is_blank and not piece.strip()
            self._head = (self._head + piece)[:_HEAD] if len(self._head) < _HEAD else self._head

    def _may_be_for_machine(self) -> bool:
        """Whether the line so far can become a line for the machine, or an empty one."""
        return self._is_blank or (bool(self._head.strip()) and _may_be_for_machine(self._head))

    def _end_line(self) -> None:
        line = "".join(self._pieces)
        is_text = self._is_text or not self._take(line)
        if is_text:
            self._show_line(is_whole=True)
            self.lines.append(line)
        is_cut = self._is_cut and not self._has_shown
        self._breaks += is_text and not is_cut
        self._is_cut = is_cut or not is_text
        self._begin_line()

    def _begin_line(self, *pieces: str) -> None:
        self._pieces, self._open = [], []
        self._head, self._is_blank = "", True
        self._is_text = self._has_shown = False
        self._spaces, self._indent = [], None
        for piece in pieces:
            self._add(piece)

    # lines for the machine

    def _take(self, line: str) -> bool:
        """Whether this line, now whole, is not for readers."""
        if not line.strip():
            self._held += [line] if self._held else []
            return bool(self._held)
        found = _machine_line(line)
        if found is None:
            return False
        if found[1] == "CONFIDENCE":
            self._held.append(line)
            return True
        sides = [self._side(side) for side in found[2].split("|")]
        if len(sides) < 2 or not all(side.tasks for side in sides):
            return False
        self.contradictions += (Contradiction(*pair) for pair in combinations(sides[:4], 2))
        return True

    def _side(self, text: str) -> Claim:
        head, colon, rest = text.strip(_ORNAMENTS).partition(": ")
        named = self._marks.read(" ".join(_BORDER.split(head)))
        if not (colon and named):
            bare, tasks, _ = self._marks.part(text)
            return Claim(bare, tasks)
        bare, more, _ = self._marks.part(rest)
        return Claim(bare, tuple(dict.fromkeys((*named, *more))))

    def _release(self) -> None:
        """Text goes on after a line of confidence, so that line was text too."""
        pieces, held = self._pieces, self._held
        self._held = []
        for each in held:
            self._is_cut = False
            self._begin_line(each)
            self._is_text = True
            self._end_line()
        self._begin_line(*pieces)

    # what is shown

    def _show_line(self, *, is_whole: bool) -> None:
        if not self._is_text:
            if self._is_blank:
                return
            self._release()
            self._is_text = True
        text, at = "".join(self._open), 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is not None:
                at = token.end()
                self._show(token)
            elif not is_whole and _OPEN.match(text, at):
                break  # it may become a mark
            else:
                at += 1
                self._put("[")
        self._open = [text[at:]] if at < len(text) else []

    def _show(self, token: re.Match[str]) -> None:
        if token["space"]:
            self._spaces.append(token["space"])
        elif token["inside"] is None or self._marks.read(token["inside"]) is None:
            self._put(token[0])
        else:
            self._indent = "".join(self._spaces) if self._indent is None else self._indent
            self._spaces = []

    def _put(self, text: str) -> None:
        gap = "".join(self._spaces)
        if self._indent is not None:
            if not self._has_shown:
                gap = self._indent  # "[t1] Sales rose" begins where its mark began
            elif not gap and text[0].isalnum():
                gap = " "
        if self._shown:
            self._shown.append("\n" * self._breaks + gap + text)
        else:
            self._shown.append(text)
        self._breaks, self._spaces, self._indent = 0, [], None
        self._has_shown = True


def _may_be_for_machine(line: str) -> bool:
    """Whether this line, or the beginning of one, can be a line for the machine."""
    bare = line.lstrip(_ORNAMENTS)
    if not line.strip():
        return True
    if len(line) - len(bare) > _MOST_ORNAMENTS:
        return False
    return any(word.startswith(bare[: len(word)]) for word in _MACHINE_WORDS)


def _machine_line(line: str) -> re.Match[str] | None:
    if not _may_be_for_machine(line):
        return None
    return _MACHINE_LINE.match(line.lstrip(_ORNAMENTS))


def _figure_in(text: str) -> float | None:
    found = _FIGURE.search(text)
    if found is None:
        return None
    figure = float(found["number"].replace(",", "."))
    if found["percent"] or (figure > 1 and not found["of"]):
        figure /= 100
    elif found["of"]:
        figure /= max(int(found["of"]), 1)
    return min(max(figure, 0.0), 1.0)
