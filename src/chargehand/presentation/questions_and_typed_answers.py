"""Formats questions as text, and interprets typed answers."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from chargehand.decisions.task_and_state_words import counted
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.display_text import clean, one_line, outline, task_outline
from chargehand.roles.plan_approval import ABOUT_PLAN, APPROVE, HOW_TO_ANSWER, REJECT, PlanProposal

#: short answers to a question about a plan
_PLAN_ANSWERS = {"y": APPROVE, "yes": APPROVE, "n": REJECT, "no": REJECT}
#: `Question.about` of the approval of a tool call
ABOUT_APPROVAL = "approval"
#: most lines of the evidence of a question; a plan is shown whole
MOST_LINES = 40
#: most characters of such a line; longer lines are wrapped
LONGEST_LINE = 200
#: most characters of a choice
LONGEST_CHOICE = 1_000
#: most digits of the number of a choice
MOST_DIGITS = 6

#: a part of a JSON line, up to and including an escaped line break in a string; one at the end does not split
_TEXT_LINE = re.compile(r"(?:(?!\\n)(?:\\.|[^\\]))*(?:\\n(?:\",?$)?|$)")


def answer_in(question: Question, line: str) -> str | None:
    """The answer that a typed line means: a choice, a choice by number, or another accepted text; otherwise None.

    The text of a choice takes precedence over the number of another choice.
    """
    if not line:
        return question.default  # None if there is no default
    if question.about == ABOUT_PLAN and line.lower() in _PLAN_ANSWERS:
        return _PLAN_ANSWERS[line.lower()]
    meant = question.as_spelled(line)
    if question.accepts(meant):
        return meant
    is_number = line.isdecimal() and len(line) <= MOST_DIGITS
    return question.choice_at(int(line)) if is_number else None


def objection_to(question: Question, line: str) -> str:
    """Why a typed line is not a valid answer, and what to type instead."""
    if not question.choices:
        return "an empty line is not an answer; type some text"
    ways = "a number or one of the words" if question.is_numbered else "one of the choices"
    return f"{one_line(f'{line!r} {question.objection(line)}', 400)}; type {ways} above"


def question_lines(
    question: Question, *, has_enter: bool = False, has_editor: bool = False
) -> Iterator[str]:
    """A question as lines: the text, the evidence, the numbered choices.

    `has_enter`: the answer is typed right below. `has_editor`: `e` opens an editor there.
    """
    yield f"? {asked_text(question)}"
    evidence = evidence_lines(question)
    if question.about != ABOUT_PLAN:
        evidence = _first_lines(evidence, MOST_LINES, _all_words(question, has_editor=has_editor))
    yield from (f"    {line}".rstrip() for line in evidence)
    yield from (f"  {line}" for line in choice_lines(question, has_enter=has_enter))


def asked_text(question: Question) -> str:
    """The text of a question, without `HOW_TO_ANSWER`: for a plan, the choices say it."""
    return clean(question.text.removesuffix(HOW_TO_ANSWER)).strip()


def choice_lines(question: Question, *, has_enter: bool) -> list[str]:
    """The possible answers to a question: numbered choices, and others.

    `has_enter`: the Enter key alone gives the default.
    """
    if question.about == ABOUT_PLAN:
        return ["y  carry it out", "n  reject it", "or say what should be different"]
    default = "  (Enter alone)" if has_enter else "  (the default)"
    lines = [
        f"{number if question.is_numbered else '-'}  {one_line(choice, LONGEST_CHOICE)}"
        + (default if choice == question.default else "")
        for number, choice in enumerate(question.choices, 1)
    ]
    if question.telling:
        what = "an amount" if question.about == ABOUT_BUDGET else "JSON"
        lines.append(f"or {one_line(question.telling)}: followed by {what}")
    if not question.choices and question.default is not None:
        words = "Enter alone answers" if has_enter else "the default"
        lines.append(f"{words}: {one_line(question.default)}")
    return lines


def evidence_lines(question: Question) -> list[str]:
    """The evidence of a question: a plan as an outline, a tool call with its arguments, otherwise indented JSON.

    Empty for a question about the budget, whose text is sufficient.
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


def _first_lines(lines: list[str], most: int, to_see_all: str) -> list[str]:
    """At most `most` lines; the last one counts the others and says how to see them."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more lines; {to_see_all}"]


def _all_words(question: Question, *, has_editor: bool) -> str:
    """How to see all of the evidence."""
    if has_editor and question.about == ABOUT_APPROVAL:
        return "e shows all"
    return f"to see all: chargehand show {question.id.partition(':')[0]} --json"


def _call_lines(call: dict[str, Any]) -> list[str]:
    """A tool call: the tool, then its arguments; arguments that are not JSON are shown as a string.

    Short arguments come first: after a long text, the recipient of a mail would be overlooked.
    """
    given = call.get("arguments")
    with suppress(msgspec.DecodeError):
        given = msgspec.json.decode(given) if isinstance(given, str) else given
    if isinstance(given, dict):
        given = dict(sorted(given.items(), key=lambda each: len(_json_lines(each[1])) > 1))
    return [f"{one_line(str(call.get('tool', '')))}, called with:", *_json_lines(given)]


def _json_lines(shown: Any) -> list[str]:
    text = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
    return [row for line in text.split("\n") for row in _rows_of(clean(line))]


def _rows_of(line: str) -> Iterator[str]:
    """Split a line of JSON into readable rows, at line breaks in strings; all rows but the first are indented."""
    rows = [
        piece[start : start + LONGEST_LINE]
        for piece in _TEXT_LINE.findall(line)
        for start in range(0, len(piece), LONGEST_LINE)
    ]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    yield from (f"{indent}{row}" if number else row for number, row in enumerate(rows))


def _proposal_lines(proposal: PlanProposal) -> Iterator[str]:
    if proposal.reason:
        yield f"because {one_line(proposal.reason, 500)}"
    if proposal.is_change:  # a change has no goal of its own
        if added := proposal.plan.tasks:
            yield f"{counted(len(added), 'new task')}:"
            yield from task_outline(added).splitlines()
    else:
        yield from outline(proposal.plan).splitlines()
    for words, tasks in (("removed", proposal.removed), ("replaced", proposal.replaced)):
        if tasks:
            yield f"{words}: {clean(', '.join(tasks))}"
