"""Questions to the person at the terminal: shown with numbered choices, read while the run goes on."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from chargehand.cli.output import say
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.plain_text import clean, one_line


class TerminalPrompt:
    """The lines that a person types. Reading them blocks nothing, and can be broken off."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._begun = b""

    @contextmanager
    def listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())

    async def line(self) -> str | None:
        """The next line; None once there will be no more."""
        return await self._lines.get()

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._lines.put_nowait(None)
            return
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._lines.put_nowait(line.decode(errors="replace").strip())


async def ask(question: Question, terminal: TerminalPrompt) -> str | None:
    """Show a question and return a text that answers it; None if nobody is there to type one."""
    for line in question_lines(question):
        say(line)
    while (typed := await terminal.line()) is not None:
        answer = answer_in(question, typed)
        if answer is not None:
            return answer
        say(f"{one_line(typed)!r} is none of the choices; type a number or one of the words above")
    return None


def answer_in(question: Question, line: str) -> str | None:
    """What a typed line answers: a choice by its number, or any text that the question accepts."""
    if not line:
        return question.default
    if line.isdigit() and 1 <= int(line) <= len(question.choices):
        return question.choices[int(line) - 1]
    return line if question.accepts(line) else None


def question_lines(question: Question) -> Iterator[str]:
    """A question for reading: the text, what it is about, its choices by number."""
    yield f"? {clean(question.text)}"
    shown = question.evidence.read() if not question.evidence.blob else None
    if shown is not None:
        evidence = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
        yield from (f"    {clean(line)}" for line in evidence.splitlines()[:40])
    for number, choice in enumerate(question.choices, 1):
        mark = "  (taken if you press Enter)" if choice == question.default else ""
        yield f"  {number}  {clean(choice)}{mark}"
    if question.telling:
        what = "an amount" if question.about == ABOUT_BUDGET else "JSON"
        yield f"  or {clean(question.telling)}: followed by {what}"
    if not question.choices and question.default is not None:
        yield f"  Enter alone answers: {one_line(question.default)}"
