"""A question as people read it, and what a typed line answers."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.plain_text import clean, one_line, outline
from chargehand.roles.plan_review import ABOUT_PLAN, APPROVE, HOW_TO_ANSWER, REJECT, PlanProposal

#: what a plan is answered with, in one key or word
_PLAN_ANSWERS = {"y": APPROVE, "yes": APPROVE, "n": REJECT, "no": REJECT}
#: what a question is about that asks whether a tool may be called
ABOUT_APPROVAL = "approval"
#: lines of the evidence of a question; a plan is shown whole
MOST_LINES = 40


def answer_in(question: Question, line: str) -> str | None:
    """What a typed line answers: a choice by its number, or any text that the question accepts."""
    if not line:
        return question.default  # None: it must be said
    if question.about == ABOUT_PLAN and line.lower() in _PLAN_ANSWERS:
        return _PLAN_ANSWERS[line.lower()]
    if line.isdigit() and 1 <= int(line) <= len(question.choices):
        return question.choices[int(line) - 1]
    meant = question.as_spelled(line)
    return meant if question.accepts(meant) else None


def question_lines(question: Question) -> Iterator[str]:
    """A question for reading: the text, what it is about, its choices by number."""
    yield f"? {asked_text(question)}"
    evidence = evidence_lines(question)
    if question.about != ABOUT_PLAN:
        evidence = first_lines(evidence, MOST_LINES)
    yield from (f"    {line}".rstrip() for line in evidence)
    yield from (f"  {line}" for line in choice_lines(question))


def asked_text(question: Question) -> str:
    """What is asked. Of a plan, how it is answered stands among the choices."""
    return clean(question.text.removesuffix(HOW_TO_ANSWER)).strip()


def choice_lines(question: Question) -> list[str]:
    """How a question can be answered: choices by number, and what else."""
    if question.about == ABOUT_PLAN:
        return ["y  carry it out", "n  reject it", "or say what should be different"]
    lines = [
        f"{number}  {one_line(choice, 200)}"
        + ("  (Enter alone)" if choice == question.default else "")
        for number, choice in enumerate(question.choices, 1)
    ]
    if question.telling:
        what = "an amount" if question.about == ABOUT_BUDGET else "JSON"
        lines.append(f"or {one_line(question.telling)}: followed by {what}")
    if not question.choices and question.default is not None:
        lines.append(f"Enter alone answers: {one_line(question.default)}")
    return lines


def evidence_lines(question: Question) -> list[str]:
    """What a question is about: a plan as an outline, a tool call with its arguments, all else as indented JSON.

    A question about the budget says it all in its text.
    """
    if question.about == ABOUT_BUDGET:
        return []
    shown = None if question.evidence.blob else question.evidence.read()
    if shown is None:
        return []
    if question.about == ABOUT_PLAN:
        return list(_proposal_lines(msgspec.convert(shown, PlanProposal)))
    if question.about == ABOUT_APPROVAL and isinstance(shown, dict):
        return _call_lines(shown)
    return _json_lines(shown)


def first_lines(lines: list[str], most: int) -> list[str]:
    """At most so many lines; that there are more is said."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more lines"]


def _call_lines(call: dict[str, Any]) -> list[str]:
    """The tool, then its arguments; those that are no JSON as they are."""
    given = call.get("arguments")
    with suppress(msgspec.DecodeError):
        given = msgspec.json.decode(given) if isinstance(given, str) else given
    return [f"{one_line(str(call.get('tool', '')))}, called with:", *_json_lines(given)]


def _json_lines(shown: Any) -> list[str]:
    text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
    return [clean(line) for line in text.splitlines()]


def _proposal_lines(proposal: PlanProposal) -> Iterator[str]:
    if proposal.reason:
        yield f"because {one_line(proposal.reason, 500)}"
    yield from outline(proposal.plan).splitlines()
    for words, tasks in (("removed", proposal.removed), ("replaced", proposal.replaced)):
        if tasks:
            yield f"{words}: {clean(', '.join(tasks))}"
