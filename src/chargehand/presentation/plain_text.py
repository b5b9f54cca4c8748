"""What is shown to people: without control characters, short, aligned."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from chargehand.decisions.display_names import state_words, task_name
from chargehand.facts.answer import Answer
from chargehand.facts.plan import Plan, Task, each_words

_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # what a terminal would take for a command
    r"|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
    # order of reading, and what has no width: text can hide in it
    r"|[\ud800-\udfff]"  # halves of characters, which cannot be written out
)
_FORBIDDEN = re.compile(_CONTROLS)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def clean(text: str) -> str:
    """The text with visible escapes (`\\x1b`, `\\u202e`) for what a terminal would obey instead of showing.

    Models, tools and files write what they like: colours, titles, backspaces, reversed text.
    """
    return _FORBIDDEN.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: "re.Match[str]") -> str:
    code = ord(found[0])
    is_short = code < 0x100
    return f"\\x{code:02x}" if is_short else found[0].encode("ascii", "backslashreplace").decode()


def clean_json(data: bytes) -> bytes:
    """JSON in which what a terminal might obey is written as `\\u…`; as data it is the same."""
    text = data.decode()
    if text.isascii() and "\x7f" not in text:
        return data
    return _FORBIDDEN.sub(_json_escaped, text).encode()


def ascii_json(text: str) -> str:
    """JSON in which every character beyond ASCII is written as `\\u…`; as data it is the same."""
    return _BEYOND_ASCII.sub(_json_escaped, text)


def _json_escaped(found: "re.Match[str]") -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def one_line(text: str, most: int = 100) -> str:
    """The text in one line of at most so many characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def answer_words(answer: Answer) -> str:
    """An answer as people read it, with what speaks against it and what is missing."""
    parts = [clean(output_words(answer.output)), *doubt_lines(answer)]
    return "\n".join(part for part in parts if part)


def doubt_lines(answer: Answer) -> list[str]:
    """What speaks against an answer, and what is missing from it."""
    contradictions = [
        f"contradiction: {one_line(pair.first.text, 300)} ({', '.join(pair.first.tasks)}) | "
        f"{one_line(pair.second.text, 300)} ({', '.join(pair.second.tasks)})"
        for pair in answer.contradictions
    ]
    gaps = [
        f"missing: {_gap_words(gap.task)} ({state_words(gap.state)})"
        + (f": {one_line(gap.why, 300)}" if gap.why else "")
        for gap in answer.gaps
    ]
    return contradictions + gaps


def _gap_words(task: str) -> str:
    """What is missing: a task by its id, or what the supervisor itself should have done."""
    known = {"@plan": "the plan", "@answer": "the answer"}
    return known.get(task.partition(":")[0]) or clean(task_name(task))


def output_words(output: Any) -> str:
    """An output: a text as it is, everything else as indented JSON, nothing as nothing."""
    if output is None or output == {}:
        return ""
    if isinstance(output, str):
        return output
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def outline(plan: Plan) -> str:
    """A plan for reading: every task with its worker, what it needs, what makes it good."""
    head = [f"Goal: {one_line(plan.goal, 500)}"] if plan.goal else []
    if plan.instruction:
        head.append(f"Answer: {one_line(plan.instruction, 500)}")
    head.append(f"{counted(len(plan.tasks), 'task')}, combined by {plan.strategy.value}:")
    return "\n".join([*head, "", task_outline(plan.tasks)])


def task_outline(tasks: Iterable[Task]) -> str:
    """Tasks for reading, each with its worker, what it needs, what makes it good."""
    return "\n".join("\n".join(_task_lines(task)) for task in tasks)


def _task_lines(task: Task) -> Iterable[str]:
    yield f"  {clean(task.id)}  {clean(task.worker or f'anybody who can: {task.skill}')}"
    yield f"      {one_line(task.description, 400)}"
    if task.needs:
        needs = [need.task + (" (optional)" if need.optional else "") for need in task.all_needs]
        yield f"      after {clean(', '.join(needs))}"
    if words := each_words(task):
        yield f"      {one_line(words, 300)}"
    if task.accept:
        yield f"      good when {one_line(task.accept, 300)}"
    if task.optional:
        yield "      optional"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Columns side by side, as wide as they need to be; the last one gets what is left."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(cell_width, column)) for column in columns[:-1]]
    left = max(20, width - sum(widths) - 2 * len(widths))
    lines = [head, *rows]
    return "\n".join(
        "  ".join(
            [
                *(
                    cell + " " * (size - cell_width(cell))
                    for cell, size in zip(line, widths, strict=False)
                ),
                one_line(line[-1], left),
            ]
        ).rstrip()
        for line in lines
    )


def cell_width(text: str) -> int:
    """How many columns of a terminal the text takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut_to(text: str, width: int, mark: str = "…") -> str:
    """The text in at most so many columns of a terminal; where it was cut is marked."""
    if cell_width(text) <= width:
        return text
    left = max(width - cell_width(mark), 0)
    kept = 0
    for character in text:
        left -= cell_width(character)
        if left < 0:
            break
        kept += 1
    return (text[:kept].rstrip() + mark if mark else text[:kept]) if width > 0 else ""


def money_words(money: float | None) -> str:
    """An amount with as many digits as it takes to see something; a dash for none, and for one that is unknown."""
    if not money:
        return "–"
    return f"${money:.2f}" if money >= 0.1 else f"${money:.4f}"


def clock_words(at: datetime) -> str:
    """The time of day here."""
    return at.astimezone().strftime("%H:%M:%S")


def counted(number: int, noun: str) -> str:
    """So many of these."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
