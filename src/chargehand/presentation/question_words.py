"""A question as people read it, and what a typed line answers."""

from collections.abc import Iterator

import msgspec

from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.plain_text import clean, one_line, outline
from chargehand.roles.plan_review import ABOUT_PLAN, APPROVE, HOW_TO_ANSWER, REJECT, PlanProposal

#: what a plan is answered with, in one key or word
_PLAN_ANSWERS = {"y": APPROVE, "yes": APPROVE, "n": REJECT, "no": REJECT}
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
    most = None if question.about == ABOUT_PLAN else MOST_LINES
    yield from (f"    {line}".rstrip() for line in evidence_lines(question)[:most])
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
    """What a question is about: a plan as an outline, all else as indented JSON."""
    shown = None if question.evidence.blob else question.evidence.read()
    if shown is None:
        return []
    if question.about == ABOUT_PLAN:
        return list(_proposal_lines(msgspec.convert(shown, PlanProposal)))
    text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
    return [clean(line) for line in text.splitlines()]


def _proposal_lines(proposal: PlanProposal) -> Iterator[str]:
    if proposal.reason:
        yield f"because {one_line(proposal.reason, 500)}"
    yield from outline(proposal.plan).splitlines()
    for words, tasks in (("removed", proposal.removed), ("replaced", proposal.replaced)):
        if tasks:
            yield f"{words}: {clean(', '.join(tasks))}"
