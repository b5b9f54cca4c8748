"""The one answer to a request, put together from the results of several tasks: each thing once."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from chargehand.models.offline.conversation import parts_of
from chargehand.models.offline.team import FINDING, bare

#: how a worker that goes by these rules begins what does not surely answer its task
PASSAGES = "Passages that may help, no answer:"
#: the same, where they say different things
DISPUTE = "Passages that do not agree:"

#: no line of data can look like this: its borders are marked
_HEADING = re.compile(
    r"^(?:Result of \S+ \((?P<about>.*)\)|Notes @\d+)(?:, part \d+ of \d+)?:\nBEGIN (?P<name>.+)$",
    re.MULTILINE,
)
#: the name of a task; unlike a citation, it has no file and no line
_MARK = re.compile(r"\s*\[@?[\w-]+\]")
#: a line of a document
_QUOTED = re.compile(r"\[[^\[\]]+(?<!\.csv)(?<!\.tsv):\d+\]")
_MACHINE_LINES = ("CONFIDENCE:", "CONTRADICTION:")


class Part(Struct, frozen=True):
    """What one task came to: its statements, each with its citations."""

    task: str
    about: str
    statements: tuple[str, ...]

    @property
    def sureness(self) -> float:
        """1 for what was computed; less for quotes, which may be wrong, and least for mere passages."""
        if {PASSAGES, DISPUTE} & {*self.statements}:
            return 0.3
        return 0.9 if any(map(_QUOTED.search, self.statements)) else 1.0

    @property
    def disputes(self) -> list[tuple[str, str]]:
        """The statements that do not agree, in pairs."""
        if DISPUTE not in self.statements:
            return []
        first, *others = self.statements[self.statements.index(DISPUTE) + 1 :]
        return [(first, other) for other in others]

    def claim(self, statement: str) -> dict[str, Any]:
        return {"text": statement, "tasks": [self.task]}

    def marked(self, statement: str) -> str:
        """The statement with the mark of its task; notes have marks of their own."""
        is_marked = self.task.startswith("@") and _MARK.search(statement)
        return statement if is_marked or statement.endswith(":") else f"{statement} [{self.task}]"


def results_in(asked: str) -> list[Part]:
    """The results that an answer is to be made of; none if no answer is asked for.

    None of them says what a later one says: that one has taken it up.
    """
    parts = list(_parts(asked))
    written = [part for part in parts if not part.about.startswith(FINDING)]
    seen: set[str] = set()
    kept: list[Part] = []
    for part in reversed(written or parts):
        new = [line for line in part.statements if line not in seen]
        seen.update(new)
        if new:
            kept.append(Part(part.task, part.about, tuple(dict.fromkeys(new))))
    return kept[::-1]


def _parts(asked: str) -> Iterator[Part]:
    about = {found["name"]: bare(found["about"] or "") for found in _HEADING.finditer(asked)}
    for name, text in parts_of(asked).data if about else ():
        lines = [line.strip() for line in text.split("\n")]
        said = [line for line in lines if line and not line.startswith(_MACHINE_LINES)]
        if name in about:
            yield Part(name, about[name], tuple(said))


def composed(parts: Sequence[Part]) -> tuple[str, ...]:
    """The answer in words: every statement with the task it rests on, and how sure that is."""
    lines: list[str] = []
    for part in parts:
        if len(parts) > 1 and part.about:
            lines += ["", f"{part.about.rstrip(' .?!:')}:"]
        lines += map(part.marked, part.statements)
    for part in parts:
        pairs = [(part.marked(a), part.marked(b)) for a, b in part.disputes]
        lines += (f"CONTRADICTION: {a} | {b}" for a, b in pairs)
    return (*lines[not lines[0] :], f"CONFIDENCE: {confidence_in(parts):.2f}")


def claims_in(parts: Sequence[Part]) -> dict[str, Any]:
    """What an answer of a given shape says beside itself: its statements, which of them disagree, how sure it is."""
    said = [(part, line) for part in parts for line in part.statements if not line.endswith(":")]
    pairs = [(part, pair) for part in parts for pair in part.disputes]
    return {
        "claims": [part.claim(line) for part, line in said],
        "contradictions": [{"first": p.claim(a), "second": p.claim(b)} for p, (a, b) in pairs],
        "confidence": confidence_in(parts),
    }


def confidence_in(parts: Sequence[Part]) -> float:
    """How sure its parts are, on average: more than that rules cannot tell."""
    return sum(part.sureness for part in parts) / max(1, len(parts))
