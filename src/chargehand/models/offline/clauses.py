"""A request taken apart into the things it asks for."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(\[]?\w)|\n+")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|St|No|Inc|Ltd|Co|U\.S|approx)\.$")
_VERBS = (
    "find|get|give|tell|show|list|search|look|calculate|compute|work out|determine|estimate|convert|"
    "translate|book|reserve|buy|purchase|order|send|write|draft|create|make|generate|draw|paint|"
    "summari[sz]e|compare|check|review|read|count|sort|rank|analy[sz]e|explain|describe|provide|"
    "retrieve|fetch|play|set|turn|add|remove|delete|update|plan|schedule|predict|identify|extract|"
    "could you|can you|would you|please|what|who|when|where|which|how|i need|i want|i would like|"
    "i'd like|i also|let me|(?:is|are|was|were|does|do|did|has|have) (?:the|an?|its?|they|there|any)"
)
_JOINT = re.compile(
    rf"(?:,\s*|\s+)(?:and then|then|and also|also|and finally|finally|after that|afterwards|and|but)"
    rf",?\s+(?=(?:{_VERBS})\b)"
    rf"|;\s*|\s*\bas well as\s+(?=(?:{_VERBS})\b)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_QUOTED = re.compile(r"\"[^\"\n]{1,500}\"|“[^”\n]{1,500}”|(?<!\w)'[^'\n]{2,500}'(?!\w)")


class Clause(NamedTuple):
    """A part of a request, and where in it the part begins."""

    text: str
    start: int


def sentences(text: str) -> Iterator[Clause]:
    """The sentences of a text; a full stop after an abbreviation ends none."""
    begin = 0
    for end in _END.finditer(text):
        piece = text[begin : end.start()]
        if "\n" not in end[0] and _ABBREVIATION.search(piece):
            continue
        yield from _trimmed(piece, begin)
        begin = end.end()
    yield from _trimmed(text[begin:], begin)


def clauses(text: str) -> list[Clause]:
    """The things that a request asks for, one after the other; what is quoted stays whole."""
    shielded = _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), text)
    found: list[Clause] = []
    for sentence in sentences(shielded):
        begin = 0
        for joint in _JOINT.finditer(sentence.text):
            found += _trimmed(sentence.text[begin : joint.start()], sentence.start + begin)
            begin = joint.end()
        found += _trimmed(sentence.text[begin:], sentence.start + begin)
    return [Clause(text[start : start + len(part)], start) for part, start in found]


def _trimmed(piece: str, start: int) -> Iterator[Clause]:
    bullet = _BULLET.match(piece)
    lead = bullet.end() if bullet else len(piece) - len(piece.lstrip())
    if rest := piece[lead:].rstrip():
        yield Clause(rest, start + lead)
