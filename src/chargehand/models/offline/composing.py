"""The one answer to a request, put together from the results of several tasks: each thing once."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from chargehand.models.offline.assigning import FINDING, bare
from chargehand.models.offline.reading import parts_of

#: how a worker that goes by these rules begins what does not surely answer its task
PASSAGES = "Passages that may help, no answer:"
#: the same, where they say different things
DISPUTE = "Passages that do not agree:"

#: no line of data can look like this: its borders are marked
_HEADING = re.compile(
    r"^(?:Result of \S+ \((?P<about>.*)\)|Notes @\d+)(?:, part \d+ of \d+)?:\nBEGIN (?P<name>.+)$",
    re.MULTILINE,
)
_CITED = re.compile(r"(?:\s*\[[^\[\]\n]+\])+$")
_BRACKETS = re.compile(r"\[[^\[\]\n]+\]")
#: unlike a citation, it has no file and no line
_MARK = re.compile(r"\[@?[\w-]+\]")
#: a line of a document
_QUOTED = re.compile(r"\[[^\[\]]+(?<!\.csv)(?<!\.tsv):\d+\]")
_CLAIMS = {"answer", "claims", "contradictions", "confidence"}


class Part(Struct, frozen=True):
    """What one task came to: its statements, each with its citations."""

    task: str
    about: str
    statements: tuple[str, ...]

    @property
    def sureness(self) -> float:
        """1 for what was computed; less for quotes, which may be wrong, and least for mere passages."""
        if any(statement in (PASSAGES, DISPUTE) for statement in self.statements):
            return 0.3
        quotes = [statement for statement in self.statements if _QUOTED.search(statement)]
        return 0.9 if quotes else 1.0


def is_composition(asked: str) -> bool:
    """Whether this asks for an answer from results, by the headings over them."""
    return _HEADING.search(asked) is not None


def is_shape(schema: dict[str, Any]) -> bool:
    """Whether the schema is that of an answer with its claims."""
    return set(schema.get("properties") or ()) == _CLAIMS


def composed(asked: str) -> str:
    """The answer in words: every statement with the task it rests on, and how sure that is."""
    parts = _distinct(asked)
    lines: list[str] = []
    for part in parts:
        if len(parts) > 1 and part.about:
            lines += ["", f"{part.about.rstrip(' .?!:')}:"]
        lines += part.statements
    pairs = [f"CONTRADICTION: {a} | {b}".replace("\n", " ") for a, b in _disputes(parts)]
    return "\n".join([*lines, *pairs, f"CONFIDENCE: {confidence_in(asked):.2f}"]).strip()


def claims_in(asked: str) -> list[dict[str, Any]]:
    """The statements that the answer makes, each with the tasks it rests on."""
    return [
        {"text": _unmarked(statement), "tasks": [part.task]}
        for part in _distinct(asked)
        for statement in part.statements
        if not statement.endswith(":")
    ]


def contradictions_in(asked: str) -> list[dict[str, Any]]:
    """The statements that do not agree, in pairs."""
    parts = _distinct(asked)
    tasks = {statement: part.task for part in parts for statement in part.statements}
    sides = {line: {"text": _unmarked(line), "tasks": [task]} for line, task in tasks.items()}
    return [{"first": sides[a], "second": sides[b]} for a, b in _disputes(parts)]


def _disputes(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    for part in parts:
        if DISPUTE in part.statements:
            sides = part.statements[part.statements.index(DISPUTE) + 1 :]
            yield from ((sides[0], side) for side in sides[1:])


def confidence_in(asked: str) -> float:
    """How sure its parts are, on average: more than that rules cannot tell."""
    parts = _distinct(asked)
    return sum(part.sureness for part in parts) / max(1, len(parts))


def _distinct(asked: str) -> list[Part]:
    """The parts, none of them saying what a later one says: that one has taken it up."""
    seen: set[str] = set()
    kept: list[Part] = []
    parts = list(_parts(asked))
    written = [part for part in parts if not part.about.startswith(FINDING)]
    for part in reversed(written or parts):
        new = [line for line in part.statements if _unmarked(line) not in seen]
        seen.update(map(_unmarked, new))
        if new:
            kept.append(Part(part.task, part.about, tuple(dict.fromkeys(new))))
    return kept[::-1]


def _parts(asked: str) -> Iterator[Part]:
    about = {found["name"]: bare(found["about"] or "") for found in _HEADING.finditer(asked)}
    for name, text in parts_of(asked).data:
        if name not in about:
            continue
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        marked = tuple(_marked(line, name) for line in lines if not _is_machine_line(line))
        yield Part(name, about[name], marked)


def _marked(line: str, name: str) -> str:
    """The line with the mark of its task; notes have marks of their own."""
    has_marks = name.startswith("@") and any(map(_MARK.fullmatch, _BRACKETS.findall(line)))
    is_marked = has_marks or f"[{name}]" in line
    return line if is_marked or line.endswith(":") else f"{line} [{name}]"


def _unmarked(line: str) -> str:
    """The line without marks: what it says, and what it cites for that."""
    cited = _CITED.search(line)
    if cited is None:
        return line
    kept = [mark for mark in _BRACKETS.findall(cited[0]) if not _MARK.fullmatch(mark)]
    return " ".join([line[: cited.start()], *kept])


def _is_machine_line(line: str) -> bool:
    return line.startswith(("CONFIDENCE:", "CONTRADICTION:"))
