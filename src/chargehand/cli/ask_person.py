"""Questions to the person at the terminal: shown with numbered choices, read while the run goes on."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

import click
import msgspec
from msgspec.structs import replace

from chargehand.cli.output import say
from chargehand.errors import ChargehandError, UsageError
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.presentation.question_words import answer_in, objection_to, question_lines
from chargehand.roles.plan_review import ABOUT_PLAN, APPROVE, APPROVE_WITH

#: typed alone: answer in an editor, or have the supervisor's model answer
EDITOR, SUPERVISOR = "e", "s"
#: characters of arguments that an editor shows in one line
LONGEST_ROW = 80


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


class QuestionSource(Protocol):
    """A run that asks: led in this process, followed in a journal, or at a server."""

    async def next(self) -> tuple[Question, int] | None:
        """The question that is to be asked next, and how many others are open; None if none is."""

    async def is_open(self, question: str) -> bool:
        """Whether nobody has answered a question yet."""

    async def answer(self, question: str, text: str) -> None:
        """Give an answer. Raises `ChargehandError` if it is not taken."""

    async def delegate(self, question: str) -> None:
        """Have the supervisor's model answer."""

    async def wait_change(self) -> None:
        """Wait until something may have been asked or answered."""


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
        for line in question_lines(question, has_enter=True, has_editor=True):
            say(line)

    def hide(self) -> None:
        # What was typed too late was meant for this question, not for the next.
        drop_lines(self._lines)

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


def drop_lines(lines: "asyncio.Queue[str | None]") -> None:
    """Forget lines that nobody has read yet, but not that there will be no more."""
    late = [lines.get_nowait() for _ in range(lines.qsize())]
    if None in late:
        lines.put_nowait(None)


async def ask_all(source: QuestionSource, prompt: Prompt) -> None:
    """Ask what is to be asked, one after another, for as long as a person is there to answer."""
    with prompt.listening():
        while True:
            # Not a list of them: the next may have come while one was answered elsewhere.
            while (found := await source.next()) is not None:
                if not await _is_asked(source, prompt, *found):
                    return
            await source.wait_change()


async def _is_asked(
    source: QuestionSource, prompt: Prompt, question: Question, others: int
) -> bool:
    """Ask until it is answered, here or elsewhere; False if nobody is there to answer."""
    asking = asyncio.ensure_future(ask(question, prompt, source.delegate, others))
    try:
        while not asking.done() and await source.is_open(question.id):
            changing = asyncio.ensure_future(source.wait_change())
            await asyncio.wait([asking, changing], return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
        text = asking.result() if asking.done() else ""
    finally:
        asking.cancel()
        await asyncio.wait([asking])
    if text:
        try:
            await source.answer(question.id, text)
        except ChargehandError as error:  # such as: it was answered elsewhere, and by whom
            say(str(error))
    return text is not None


async def ask(
    question: Question,
    prompt: Prompt,
    delegate: Callable[[str], Awaitable[None]],
    others: int = 0,
) -> str | None:
    """Show a question and return a text that answers it; None if nobody is there to type one.

    `e` opens an editor for the answer, `s` has the supervisor's model answer through `delegate`. What was
    written in the editor and is no answer is the draft of the next try. An editor that is left without saving
    answers nothing. A plan that was edited is shown again before it is approved.
    """
    plan, draft = "", _draft_of(question)
    prompt.show(question, others)
    try:
        while (typed := await prompt.line()) is not None:
            # A choice goes before a key, as a question spells it: `E` is one of N, E, S and W.
            is_choice = question.as_spelled(typed) in question.choices
            if typed == SUPERVISOR and not is_choice:
                try:
                    await delegate(question.id)
                except ChargehandError as error:
                    prompt.object(str(error))
                continue
            if typed == EDITOR and not is_choice:
                typed = (await prompt.edited(draft, _edit)).strip()
                if not typed:
                    prompt.object("nothing was saved in the editor; the question stays open")
                    continue
                draft = typed
                if question.about == ABOUT_PLAN:
                    try:
                        question, plan = _with_plan(question, typed), typed
                        prompt.show(question, others)
                    except UsageError as error:
                        prompt.object(f"{error}; the plan is unchanged; e opens your text again")
                    continue
            answer = answer_in(question, typed)
            if answer is not None:
                return f"{APPROVE_WITH}: {plan}" if plan and answer == APPROVE else answer
            prompt.object(objection_to(question, typed))
        return None
    finally:
        prompt.hide()


def _draft_of(question: Question) -> str:
    """What the editor begins with: the arguments of a call that may be changed, else the default."""
    evidence = None if question.evidence.blob else question.evidence.read()
    if question.about == ABOUT_PLAN and isinstance(evidence, dict):
        return msgspec.convert(evidence["plan"], Plan).to_json()
    if question.about == "approval" and isinstance(evidence, dict):
        return f"{question.telling}: {_in_lines(evidence.get('arguments', '{}'))}"
    return question.default or ""


def _in_lines(arguments: str) -> str:
    """Arguments as JSON for an editor; in several lines if one would be too long to read."""
    with suppress(msgspec.DecodeError):
        if len(arguments) > LONGEST_ROW:
            return msgspec.json.format(arguments, indent=2)
    return arguments


def _with_plan(question: Question, text: str) -> Question:
    """The question with the plan that an editor made of it. Raises `UsageError` if that is none."""
    evidence = {**question.evidence.read(), "plan": msgspec.to_builtins(Plan.from_json(text))}
    return replace(question, evidence=Value.of(evidence))


async def _edit(text: str) -> str:
    return await asyncio.to_thread(click.edit, text) or ""
