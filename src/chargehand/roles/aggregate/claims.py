"""Claims: the statements of an answer, sentence by sentence, and the tasks that each rests on."""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from chargehand.decisions.rule_answer import cut
from chargehand.facts.answer import Claim
from chargehand.roles.aggregate.source_marks import INSIDE, SourceMarks

_BRACKETS = rf"(?:[ \t]*{INSIDE.replace('(?P<inside>', '(?:')})*"
_END = re.compile(
    rf"[.!?…]+[\"'”’)*_`]*{_BRACKETS}(?=\s|$)|[。！？]+[\"”’」]*{_BRACKETS}",
)
_GOES_ON = re.compile(r"\s+[a-z]")
_ABBREVIATED = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St|No|Fig|e\.g|i\.e|etc|vs|approx|cf|ca)\.$")
_BULLET = re.compile(r"^\s*(?:[-*+•>]|\d+[.)])\s+")
_WORD = re.compile(r"\w")
_FENCES = ("```", "~~~")


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
        elif not (is_code or bare.startswith("#") or _states_nothing(bare, marks)):
            yield from sentences_of(_BULLET.sub("", bare))


def _states_nothing(line: str, marks: SourceMarks) -> bool:
    is_frame = line.startswith("|") or line.endswith(":")
    return is_frame and not marks.tasks_in(line)


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
