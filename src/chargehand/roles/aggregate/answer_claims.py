"""Claims of an answer, sentence by sentence, and the marks that name the tasks each rests on."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from chargehand.decisions.rule_answer import cut
from chargehand.facts.answer import Claim

#: whatever stands in brackets; most of it is no mark
INSIDE = r"\[(?P<inside>[^\[\]\n]{1,400})\]"

_GROUP = re.compile(rf"[ \t]*{INSIDE}")
_BETWEEN = re.compile(r"[\s,;&+]+")
_FILLERS = {"and", "task", "tasks", "see"}
_LINE = re.compile(r":\d+$")
_DIGITS = re.compile(r"\d+")

_BRACKETS = rf"(?:[ \t]*{INSIDE.replace('(?P<inside>', '(?:')})*"
_END = re.compile(
    rf"[.!?…]+[\"'”’)*_`]*{_BRACKETS}(?=\s|$)|[。！？]+[\"”’」]*{_BRACKETS}",
)
_GOES_ON = re.compile(r"\s+[a-z]")
_ABBREVIATED = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Fig|e\.g|i\.e|etc|vs|approx|cf|ca)\.$")
_BULLET = re.compile(r"^\s*(?:[-*+•>]|\d+[.)])\s+")
_WORD = re.compile(r"\w")
_FENCES = ("```", "~~~")


class SourceMarks:
    """Tells marks from other words in brackets: citations of files, links, remarks."""

    def __init__(self, known: Mapping[str, tuple[str, ...]]) -> None:
        #: ids that may be named, and the tasks that each stands for
        self._known = known
        self._shapes = {_DIGITS.sub("0", id_) for id_ in known if _DIGITS.search(id_)}

    def read(self, inside: str) -> tuple[str, ...] | None:
        """The tasks that these words between brackets name; None: they are no mark.

        An id that does not exist but looks like those that do is a mark that names nothing.
        """
        words = [word for word in _BETWEEN.split(inside) if word]
        ids = [word for word in words if word in self._known or word.lower() not in _FILLERS]
        if not ids or not all(map(self._is_id, ids)):
            return None
        return self.tasks_of(ids)

    def tasks_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The tasks that these ids stand for, each once; what is unknown stands for nothing."""
        found = (self._known.get(id_) or self._known.get(_LINE.sub("", id_), ()) for id_ in ids)
        return tuple(dict.fromkeys(task for tasks in found for task in tasks))

    def part(self, text: str) -> tuple[str, tuple[str, ...], list[str]]:
        """The text without its marks, the tasks they name, and what else stands in brackets."""
        tasks: list[str] = []
        others: list[str] = []

        def strip(group: re.Match[str]) -> str:
            named = self.read(group["inside"])
            if named is None:
                others.append(group["inside"])
                return group[0]
            tasks.extend(named)
            return ""

        bare = _GROUP.sub(strip, text).strip()
        return bare, tuple(dict.fromkeys(tasks)), others

    def tasks_in(self, text: str) -> tuple[str, ...]:
        """The tasks that the marks in this text name."""
        return self.part(text)[1]

    def _is_id(self, word: str) -> bool:
        # A model may add the line that it read: [t1:3].
        bare = _LINE.sub("", word)
        return (
            word in self._known
            or bare in self._known
            or _DIGITS.sub("0", word) in self._shapes
            or _DIGITS.sub("0", bare) in self._shapes
        )


def claims_in(
    lines: Sequence[str], marks: SourceMarks, citing: Callable[[str], tuple[str, ...]]
) -> tuple[Claim, ...]:
    """What these lines of an answer state. Headings, code and bare tables state nothing.

    A statement without marks rests on the tasks whose results give the same citation; if there are
    none either, on nothing that is known.
    """
    claims: list[Claim] = []
    for sentence in _sentences(lines, marks):
        text, tasks, others = marks.part(sentence)
        if _WORD.search(text):
            cited = dict.fromkeys(task for other in others for task in citing(other))
            claims.append(Claim(cut(text, 1000), tasks or tuple(cited)))
        elif claims and tasks:  # marks on a line of their own
            joined = dict.fromkeys((*claims[-1].tasks, *tasks))
            claims[-1] = replace(claims[-1], tasks=tuple(joined))
    return tuple(claims)


def _sentences(lines: Sequence[str], marks: SourceMarks) -> Iterator[str]:
    is_code = False
    for line in lines:
        bare = line.strip()
        if bare.startswith(_FENCES):
            is_code = not is_code
            continue
        is_frame = bare.startswith("|") or bare.endswith(":")
        states_nothing = bare.startswith("#") or (is_frame and not marks.tasks_in(bare))
        if not (is_code or states_nothing):
            yield from sentences_of(_BULLET.sub("", bare))


def sentences_of(line: str) -> Iterator[str]:
    """The sentences of a line, each with the brackets that stand behind it."""
    start = 0
    for end in _END.finditer(line):
        said = line[start : end.end()]
        is_abbreviated = _ABBREVIATED.search(line[: end.start() + 1]) is not None
        if not is_abbreviated and not _GOES_ON.match(line, end.end()):
            yield said.strip()
            start = end.end()
    if line[start:].strip():
        yield line[start:].strip()
