"""A question as people read it, and what a typed line answers."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.plain_text import clean, counted, one_line, outline, task_outline
from chargehand.roles.plan_review import ABOUT_PLAN, APPROVE, HOW_TO_ANSWER, REJECT, PlanProposal

#: what a plan is answered with, in one key or word
_PLAN_ANSWERS = {"y": APPROVE, "yes": APPROVE, "n": REJECT, "no": REJECT}
#: what a question is about that asks whether a tool may be called
ABOUT_APPROVAL = "approval"
#: lines of the evidence of a question; a plan is shown whole
MOST_LINES = 40
#: characters of one of these lines: a longer one goes on in the next
LONGEST_LINE = 200
#: characters of a choice
LONGEST_CHOICE = 1_000
#: digits of the number of a choice
MOST_DIGITS = 6

#: a line of JSON as far as the next line break in one of its texts, unless nothing follows that
_TEXT_LINE = re.compile(r"(?:(?!\\n)(?:\\.|[^\\]))*(?:\\n(?:\",?$)?|$)")


def answer_in(question: Question, line: str) -> str | None:
    """What a typed line answers: a choice, a choice by its number, or any text that the question accepts.

    A choice in its own words goes before the number of another.
    """
    if not line:
        return question.default  # None: it must be said
    if question.about == ABOUT_PLAN and line.lower() in _PLAN_ANSWERS:
        return _PLAN_ANSWERS[line.lower()]
    meant = question.as_spelled(line)
    if question.accepts(meant):
        return meant
    is_number = line.isdecimal() and len(line) <= MOST_DIGITS
    return question.choice_at(int(line)) if is_number else None


def objection_to(question: Question, line: str) -> str:
    """Why a typed line is no answer, and what is one."""
    if not question.choices:
        return "an empty line is not an answer; type some text"
    ways = "a number or one of the words" if question.is_numbered else "one of the choices"
    return f"{one_line(f'{line!r} {question.objection(line)}', 400)}; type {ways} above"


def question_lines(
    question: Question, *, has_enter: bool = False, has_editor: bool = False
) -> Iterator[str]:
    """A question for reading: the text, what it is about, its choices by number.

    `has_enter`, `has_editor`: whether it is answered right below, and whether `e` opens an editor there.
    """
    yield f"? {asked_text(question)}"
    evidence = evidence_lines(question)
    if question.about != ABOUT_PLAN:
        evidence = _first_lines(evidence, MOST_LINES, _all_words(question, has_editor=has_editor))
    yield from (f"    {line}".rstrip() for line in evidence)
    yield from (f"  {line}" for line in choice_lines(question, has_enter=has_enter))


def asked_text(question: Question) -> str:
    """What is asked. Of a plan, how it is answered stands among the choices."""
    return clean(question.text.removesuffix(HOW_TO_ANSWER)).strip()


def choice_lines(question: Question, *, has_enter: bool) -> list[str]:
    """How a question can be answered: choices by number, and what else.

    `has_enter`: whether the Enter key alone takes the default here.
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


def _first_lines(lines: list[str], most: int, to_see_all: str) -> list[str]:
    """At most so many lines; that there are more is said, and what shows them."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more lines; {to_see_all}"]


def _all_words(question: Question, *, has_editor: bool) -> str:
    """What shows all of the evidence."""
    if has_editor and question.about == ABOUT_APPROVAL:
        return "e shows all"
    return f"to see all: chargehand show {question.id.partition(':')[0]} --json"


def _call_lines(call: dict[str, Any]) -> list[str]:
    """The tool, then its arguments; those that are no JSON as they are.

    Short arguments come first: behind a long text, nobody would look for the recipient of a mail.
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
    """A line of JSON in rows that can be read: a new one for each line of a text, further in than the first."""
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
    if proposal.is_change:  # it has no goal of its own
        if added := proposal.plan.tasks:
            yield f"{counted(len(added), 'new task')}:"
            yield from task_outline(added).splitlines()
    else:
        yield from outline(proposal.plan).splitlines()
    for words, tasks in (("removed", proposal.removed), ("replaced", proposal.replaced)):
        if tasks:
            yield f"{words}: {clean(', '.join(tasks))}"
