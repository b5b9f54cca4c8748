"""The one answer to a request, put together from the results of several tasks: each thing once."""

import re
from collections.abc import Sequence

from msgspec import Struct

from chargehand.models.offline.conversation import parts_of
from chargehand.models.offline.steps_and_workers import FINDING, bare

#: how a worker that goes by these rules begins what does not surely answer its task, or says different things
PASSAGES = "Passages that may help, no answer:"
DISPUTE = "Passages that do not agree:"

#: no line of data can look like this: its borders are marked
_HEADING = re.compile(
    r"(?m)^(?:Result of \S+ \((?P<about>.*)\)|Notes @\d+)(?:, part \d+ of \d+)?:\nBEGIN (?P<name>.+)$"
)
#: the name of a task; unlike a citation, it has no file and no line
_MARK = re.compile(r"\s*\[@?[\w-]+\]")
#: a line of a document
_QUOTED = re.compile(r"\[[^\[\]]+(?<!\.csv)(?<!\.tsv):\d+\]")
_MACHINE = re.compile("CONFIDENCE:|CONTRADICTION:")


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

    def marked(self, statement: str) -> str:
        """The statement with the mark of its task; notes have marks of their own."""
        is_marked = self.task.startswith("@") and _MARK.search(statement)
        return statement if is_marked or statement.endswith(":") else f"{statement} [{self.task}]"


def results_in(asked: str) -> list[Part]:
    """The results that an answer is to be made of, without what later ones took up; none if no answer is asked for."""
    about = {found["name"]: bare(found["about"] or "") for found in _HEADING.finditer(asked)}
    parts = [(name, text) for name, text in parts_of(asked).data if name in about]
    written = [part for part in parts if not about[part[0]].startswith(FINDING)]
    seen: set[str] = set()
    kept: list[Part] = []
    for name, text in reversed(written or parts):
        lines = dict.fromkeys(line.strip() for line in text.split("\n"))
        new = [line for line in lines if line not in {"", *seen} and not _MACHINE.match(line)]
        said = {line for line in new if not line.endswith(":")}
        seen |= said
        kept += [Part(name, about[name], tuple(new))] if said else []
    return kept[::-1]


def composed(parts: Sequence[Part]) -> tuple[str, ...]:
    """The answer in words: every statement with the task it rests on, and how sure that is."""
    lines: list[str] = []
    for part in parts:
        if len(parts) > 1 and part.about:
            lines += ["", f"{part.about.rstrip(' .?!:')}:"]
        lines += map(part.marked, part.statements)
    for part in [part for part in parts if DISPUTE in part.statements]:
        sides = part.statements[part.statements.index(DISPUTE) + 1 :]
        first, *others = map(part.marked, sides)  # there are some: a part without any is not kept
        lines += (f"CONTRADICTION: {first} | {other}" for other in others)
    sureness = sum(part.sureness for part in parts) / len(parts)
    return (*lines[not lines[0] :], f"CONFIDENCE: {sureness:.2f}")
