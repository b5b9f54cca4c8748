"""A request taken apart into the things it asks for."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_VERBS = (
    "find|get|give|tell|show|list|search|look|calculate|compute|work out|determine|estimate|convert|"
    "translate|book|reserve|buy|purchase|order|send|write|draft|create|make|generate|draw|paint|"
    "summari[sz]e|compare|check|review|read|count|sort|rank|analy[sz]e|explain|describe|provide|"
    "retrieve|fetch|play|set|turn|add|remove|delete|update|plan|schedule|predict|identify|extract|"
    "could you|can you|would you|please|what|who|when|where|which|how|i need|i want|i would like|"
    "i'd like|i also|let me|(?:is|are|was|were|does|do|did|has|have) (?:the|an?|its?|they|there|any)"
)
_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(\[]?\w)|\n+")
_JOINT = re.compile(
    rf"(?i){_END.pattern}|;\s*|(?:,\s*|\s+)(?:and then|then|and also|also|and finally|finally|after that|afterwards"
    rf"|and|but|as well as),?\s+(?=(?:{_VERBS})\b)"
)
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|St|No|Inc|Ltd|Co|U\.S|approx)\.$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_QUOTED = re.compile(r"\"[^\"\n]{1,500}\"|“[^”\n]{1,500}”|(?<!\w)'[^'\n]{2,500}'(?!\w)")


class Clause(NamedTuple):
    """A part of a request, and what joins it to the part before it."""

    text: str
    joint: str


def sentences(text: str) -> list[str]:
    """The sentences of a text; a full stop after an abbreviation ends none."""
    return [part.text for part in _parts(text, _END.finditer(text))]


def clauses(text: str) -> list[Clause]:
    """The things that a request asks for, one after the other; what is quoted stays whole."""
    shielded = _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), text)
    return list(_parts(text, _JOINT.finditer(shielded)))


def _parts(text: str, borders: Iterator[re.Match[str]]) -> Iterator[Clause]:
    begin, joint = 0, ""
    for border in [*borders, None]:
        piece = text[begin : border.start() if border else None]
        if border and "\n" not in border[0] and _ABBREVIATION.search(piece):
            continue
        if rest := _BULLET.sub("", piece).strip():
            yield Clause(rest, joint)
        if border:
            begin, joint = border.end(), border[0]
