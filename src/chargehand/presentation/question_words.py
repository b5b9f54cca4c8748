"""A question as people read it, and what a typed line answers."""

from collections.abc import Iterator

from chargehand.facts.outcome import Question
from chargehand.presentation.live_frame import choice_lines, evidence_lines
from chargehand.presentation.plain_text import clean


def answer_in(question: Question, line: str) -> str | None:
    """What a typed line answers: a choice by its number, or any text that the question accepts."""
    if not line:
        return question.default  # None: it must be said
    if line.isdigit() and 1 <= int(line) <= len(question.choices):
        return question.choices[int(line) - 1]
    return line if question.accepts(line) else None


def question_lines(question: Question) -> Iterator[str]:
    """A question for reading: the text, what it is about, its choices by number."""
    yield f"? {clean(question.text)}"
    yield from (f"    {line}" for line in evidence_lines(question)[:40])
    yield from (f"  {line}" for line in choice_lines(question))
