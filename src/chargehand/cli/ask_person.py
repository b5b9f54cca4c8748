"""Questions to the person at the terminal: shown with numbered choices, read while the run goes on."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import click
import msgspec
from msgspec.structs import replace

from chargehand.cli.output import say
from chargehand.errors import ChargehandError, UsageError
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.presentation.plain_text import one_line
from chargehand.presentation.question_words import answer_in, question_lines
from chargehand.roles.plan_review import ABOUT_PLAN, APPROVE, APPROVE_WITH

#: typed alone: answer in an editor, or have the supervisor's model answer
EDITOR, SUPERVISOR = "e", "s"


class Prompt(Protocol):
    """Where questions are shown and answers typed: lines of a terminal, or the live view."""

    def listening(self) -> AbstractContextManager[None]: ...

    def show(self, question: Question, others: int = 0) -> None:
        """Show a question; so many others are open, too."""

    def hide(self) -> None:
        """The question is answered, here or elsewhere."""

    def object(self, words: str) -> None:
        """Say why what was typed is no answer."""

    async def line(self) -> str | None:
        """The next line; None once there will be no more."""

    async def edited(self, text: str, edit: Callable[[str], Awaitable[str]]) -> str:
        """What an editor, which gets the terminal to itself, makes of a text."""


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

    def show(self, question: Question, others: int = 0) -> None:
        if others:
            say(f"question 1 of {others + 1:,}:")
        for line in question_lines(question):
            say(line)

    def hide(self) -> None: ...

    def object(self, words: str) -> None:
        say(words)

    async def line(self) -> str | None:
        return await self._lines.get()

    async def edited(self, text: str, edit: Callable[[str], Awaitable[str]]) -> str:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        try:
            return await edit(text)
        finally:
            loop.add_reader(sys.stdin.fileno(), self._read)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._lines.put_nowait(None)
            return
        *whole, self._begun = (self._begun + data).split(b"\n")
        for line in whole:
            self._lines.put_nowait(line.decode(errors="replace").strip())


async def ask(
    question: Question,
    prompt: Prompt,
    delegate: Callable[[str], Awaitable[None]],
    others: int = 0,
) -> str | None:
    """Show a question and return a text that answers it; None if nobody is there to type one.

    `e` opens an editor for the answer, `s` has the supervisor's model answer through `delegate`. A plan
    that was edited is shown again before it is approved.
    """
    plan = ""
    prompt.show(question, others)
    try:
        while (typed := await prompt.line()) is not None:
            if typed == SUPERVISOR and typed not in question.choices:
                try:
                    await delegate(question.id)
                except ChargehandError as error:
                    prompt.object(str(error))
                continue
            if typed == EDITOR and typed not in question.choices:
                typed = (await prompt.edited(_draft_of(question), _edit)).strip()
                if question.about == ABOUT_PLAN:
                    try:
                        question, plan = _with_plan(question, typed or plan), typed or plan
                        prompt.show(question, others)
                    except UsageError as error:
                        prompt.object(f"{error}; the plan stays as it was")
                    continue
            answer = answer_in(question, typed)
            if answer is not None:
                return f"{APPROVE_WITH}: {plan}" if plan and answer == APPROVE else answer
            prompt.object(_objection(question, typed))
        return None
    finally:
        prompt.hide()


def _objection(question: Question, typed: str) -> str:
    if not question.choices:
        return "an empty line is not an answer; type a text"
    why = one_line(f"{typed!r} {question.objection(typed)}", 400)
    return f"{why}; type a number or one of the words above"


def _draft_of(question: Question) -> str:
    """What the editor begins with: the arguments of a call that may be changed, else the default."""
    evidence = None if question.evidence.blob else question.evidence.read()
    if question.about == ABOUT_PLAN and isinstance(evidence, dict):
        return msgspec.convert(evidence["plan"], Plan).to_json()
    if question.about == "approval" and isinstance(evidence, dict):
        return f"{question.telling}: {evidence.get('arguments', '{}')}"
    return question.default or ""


def _with_plan(question: Question, text: str) -> Question:
    """The question with the plan that an editor made of it. Raises `UsageError` if that is none."""
    if not text:
        return question
    evidence = {**question.evidence.read(), "plan": msgspec.to_builtins(Plan.from_json(text))}
    return replace(question, evidence=Value.of(evidence))


async def _edit(text: str) -> str:
    return await asyncio.to_thread(click.edit, text) or ""
