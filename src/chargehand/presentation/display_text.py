"""Text for people: escapes control characters, shortens, aligns and formats."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from chargehand.decisions.task_and_state_words import counted, state_words, task_name
from chargehand.facts.answer import Answer
from chargehand.facts.plan import Plan, Task, each_words

_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters, which a terminal would obey
    r"|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
    # writing direction and zero-width characters, which can hide text
    r"|[\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)
_FORBIDDEN = re.compile(_CONTROLS)
#: an instant as reasons for waits contain it
_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?\+00:00")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def clean(text: str) -> str:
    """Replace characters that a terminal would obey by visible escapes (`\\x1b`, `\\u202e`).

    Text from models, tools and files can contain anything: colours, titles, backspaces, reversed text.
    """
    return _FORBIDDEN.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: "re.Match[str]") -> str:
    code = ord(found[0])
    is_short = code < 0x100
    return f"\\x{code:02x}" if is_short else found[0].encode("ascii", "backslashreplace").decode()


def clean_json(data: bytes) -> bytes:
    """Write the characters that a terminal would obey as `\\u…` in JSON. The decoded data stays the same."""
    text = data.decode()
    if text.isascii() and "\x7f" not in text:
        return data
    return _FORBIDDEN.sub(_json_escaped, text).encode()


def ascii_json(text: str) -> str:
    """Write all non-ASCII characters as `\\u…` in JSON. The decoded data stays the same."""
    return _BEYOND_ASCII.sub(_json_escaped, text)


def _json_escaped(found: "re.Match[str]") -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def one_line(text: str, most: int = 100) -> str:
    """The text in one line of at most `most` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def answer_words(answer: Answer) -> str:
    """An answer as text, with its contradictions and gaps."""
    parts = [clean(output_words(answer.output)), *doubt_lines(answer)]
    return "\n".join(part for part in parts if part)


def doubt_lines(answer: Answer) -> list[str]:
    """The contradictions and gaps of an answer."""
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
    bare = [claim.text for claim in answer.claims if not claim.tasks]
    unfounded = (
        [f"{counted(len(bare), 'claim')} without a basis: {one_line(bare[0], 200)}"] if bare else []
    )
    return contradictions + unfounded + gaps


def _gap_words(task: str) -> str:
    """The name of what is missing: a task by its id, or the result of a system task."""
    known = {"@plan": "the plan", "@answer": "the answer"}
    return known.get(task.partition(":")[0]) or clean(task_name(task))


def output_words(output: Any) -> str:
    """An output as text: a string unchanged, None or `{}` as an empty string, everything else as indented JSON."""
    if output is None or output == {}:
        return ""
    if isinstance(output, str):
        return output
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def outline(plan: Plan) -> str:
    """A plan as text: each task with its worker, needs and acceptance criterion."""
    head = [f"Goal: {one_line(plan.goal, 500)}"] if plan.goal else []
    if plan.instruction:
        head.append(f"Answer: {one_line(plan.instruction, 500)}")
    head.append(f"{counted(len(plan.tasks), 'task')}, combined by {plan.strategy.value}:")
    return "\n".join([*head, "", task_outline(plan.tasks)])


def task_outline(tasks: Iterable[Task]) -> str:
    """Tasks as text, each with its worker, needs and acceptance criterion."""
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
    """A table as text. Columns are as wide as their contents; the last one gets the rest of `width`."""
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
    """The width of a text in terminal columns: some characters take two columns, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut_to(text: str, width: int, mark: str = "…") -> str:
    """Cut a text to at most `width` terminal columns; `mark` shows the cut."""
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
    """An amount of money, with more digits if it is small; a dash if it is zero or unknown."""
    if not money:
        return "–"
    return f"${money:.2f}" if money >= 0.1 else f"${money:.4f}"


def clock_words(at: datetime) -> str:
    """The local time of day."""
    return at.astimezone().strftime("%H:%M:%S")


def with_local_times(text: str) -> str:
    """The text with its instants in UTC as local times: the time of day, with the date unless it is today's."""
    return _INSTANT.sub(_local, text)


def _local(found: re.Match[str]) -> str:
    at, now = datetime.fromisoformat(found[0]).astimezone(), datetime.now(UTC).astimezone()
    return clock_words(at) if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"
