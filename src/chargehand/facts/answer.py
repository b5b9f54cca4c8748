"""The answer of a run: output, claims, contradictions, candidates and gaps."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

#: the highest confidence of an answer from a model; 1 is for results that were computed or checked
SUREST = 0.99
#: `Answer.by` of an answer that was composed by rules
BY_RULES = "rules"


class Claim(Struct, frozen=True):
    """One statement of an answer, and the tasks that support it."""

    text: str
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        marks = "".join(f"[{task}]" for task in self.tasks)
        return f"{self.text} {marks}" if marks else self.text


class Contradiction(Struct, frozen=True):
    """Two results that cannot both be right. The answer shows both."""

    first: Claim
    second: Claim

    def __str__(self) -> str:
        return f"{self.first} | {self.second}"


class Candidate(Struct, frozen=True):
    """One of the results that the answer was selected from. Candidates that were not chosen are kept."""

    task: str
    output: Any
    is_chosen: bool = False
    why: str = ""


class Gap(Struct, frozen=True):
    """A result that is missing from the answer, with the reason."""

    task: str
    #: in words, such as `failed` or `waiting for an answer`
    state: str
    why: str

    def __str__(self) -> str:
        return f"{self.task} ({self.state}): {self.why}"


class AnswerPiece(Struct, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """A piece of the answer while it is being composed. It is streamed, never stored."""

    text: str
    #: discard the earlier pieces: they belong to a try that was abandoned
    begins_anew: bool = False
    at: datetime


class TaskPiece(Struct, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """A piece of a model's reply for a task, while it is written. It is streamed on request, never stored."""

    task: str
    attempt: int
    #: the model call of the attempt that writes it, counted from 1
    call: int
    text: str
    #: discard the earlier pieces of this call: the reply was interrupted and is written again
    begins_anew: bool = False
    #: characters of this task that are missing before this piece, because the reader was too slow
    skipped: int = 0


class Answer(Struct, frozen=True, kw_only=True):
    """The answer of a run, and what is missing from it."""

    #: text, or JSON that fits the requested schema; None if there is no answer
    output: Any
    claims: tuple[Claim, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    gaps: tuple[Gap, ...] = ()
    #: from 0 to 1: how complete the answer is and, if a model composed it, how sure the model is
    confidence: float = 1.0
    #: the model that composed it, or `rules`
    by: str = BY_RULES

    @property
    def text(self) -> str:
        """The output as text; JSON if it is not text, and nothing if there is no output."""
        if self.output is None:
            return ""
        if isinstance(self.output, str):
            return self.output
        return msgspec.json.encode(self.output).decode()

    def __str__(self) -> str:
        said = [f"contradiction: {pair}" for pair in self.contradictions]
        lines = [self.text, *said, *(f"missing: {gap}" for gap in self.gaps)]
        return "\n".join(line for line in lines if line)
