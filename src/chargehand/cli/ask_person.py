"""Asks the person at the terminal: shows questions with numbered choices and reads answers while the run continues."""

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
from chargehand.presentation.questions_and_typed_answers import (
    answer_in,
    objection_to,
    question_lines,
)
from chargehand.roles.plan_approval import ABOUT_PLAN, APPROVE, APPROVE_WITH
from chargehand.sync_async_bridge import in_thread

#: typed as the whole line: answer in an editor, or let the supervisor's model answer
EDITOR, SUPERVISOR = "e", "s"
#: longer arguments are shown in the editor as indented JSON; in characters
LONGEST_ROW = 80


class Prompt(Protocol):
    """Shows questions and reads answers: as plain terminal lines, or in the live view."""

    def listening(self) -> AbstractContextManager[None]: ...

    def show(self, question: Question, others: int = 0) -> None:
        """Show a question; `others` is the number of other open questions."""

    def hide(self) -> None:
        """Remove the question: it was answered, here or elsewhere."""

    def object(self, words: str) -> None:
        """Say why the typed text is not a valid answer."""

    async def line(self) -> str | None:
        """The next typed line; None at the end of the input."""

    async def edited(self, text: str, edit: Callable[[str], Awaitable[str]]) -> str:
        """Edit a text with `edit`, which has the terminal to itself meanwhile; returns the edited text."""


class QuestionSource(Protocol):
    """The open questions of a run: led in this process, followed in a journal, or on a server."""

    async def next(self) -> tuple[Question, int] | None:
        """The question to ask next, and the number of other open questions; None if no question is open."""

    async def is_open(self, question: str) -> bool:
        """Whether a question still waits for an answer."""

    async def answer(self, question: str, text: str) -> None:
        """Send an answer. Raises `ChargehandError` if the answer is refused."""

    async def delegate(self, question: str) -> None:
        """Let the supervisor's model answer."""

    async def wait_change(self) -> None:
        """Wait until the run or its questions may have changed since this was called last."""


class AskingRun(QuestionSource, Protocol):
    """A run with its open questions."""

    async def is_stuck(self) -> bool:
        """Whether nothing continues until a person answers an open question."""


class TerminalPrompt:
    """Asks with plain lines on the terminal. Reading is asynchronous and can be cancelled."""

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
        # Lines typed too late were meant for this question, not for the next one.
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
    """Drop all unread lines, but keep the mark for the end of the input."""
    late = [lines.get_nowait() for _ in range(lines.qsize())]
    if None in late:
        lines.put_nowait(None)


async def ask_until_stuck(source: AskingRun, prompt: Prompt | None) -> None:
    """Ask all questions if there is a `prompt`. Returns once only a person who is not here can continue the run."""
    if prompt is not None:
        await ask_all(source, prompt)
        say("the input has ended, so nobody can answer here; questions stay open")
    while not await source.is_stuck():
        await source.wait_change()


async def ask_all(source: QuestionSource, prompt: Prompt) -> None:
    """Ask all questions, one at a time. Returns at the end of the input."""
    with prompt.listening():
        while True:
            # Not a list of questions: it can change while a question is being answered.
            while (found := await source.next()) is not None:
                if not await _is_asked(source, prompt, *found):
                    return
            await source.wait_change()


async def _is_asked(
    source: QuestionSource, prompt: Prompt, question: Question, others: int
) -> bool:
    """Ask a question until it is answered, here or elsewhere; False at the end of the input."""
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
        except ChargehandError as error:  # for example, somebody else has answered it
            say(str(error))
    return text is not None


async def ask(
    question: Question,
    prompt: Prompt,
    delegate: Callable[[str], Awaitable[None]],
    others: int = 0,
) -> str | None:
    """Show a question and return a valid answer; None at the end of the input.

    `e` opens an editor for the answer; `s` lets the supervisor's model answer, through `delegate`. If the edited text
    is not a valid answer, the editor opens with it the next time. An editor that is closed without saving answers
    nothing. An edited plan is shown again before it is approved.
    """
    plan, draft = "", _draft_of(question)
    prompt.show(question, others)
    try:
        while (typed := await prompt.line()) is not None:
            # A choice takes precedence over a key: `E` can be one of the choices N, E, S and W.
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
    """The initial text of the editor: the plan or the arguments of a call, if editable; otherwise the default."""
    evidence = None if question.evidence.blob else question.evidence.read()
    if question.about == ABOUT_PLAN and isinstance(evidence, dict):
        return msgspec.convert(evidence["plan"], Plan).to_json()
    if question.about == "approval" and isinstance(evidence, dict):
        return f"{question.telling}: {_in_lines(evidence.get('arguments', '{}'))}"
    return question.default or ""


def _in_lines(arguments: str) -> str:
    """Arguments as JSON for an editor; long ones in several lines."""
    with suppress(msgspec.DecodeError):
        if len(arguments) > LONGEST_ROW:
            return msgspec.json.format(arguments, indent=2)
    return arguments


def _with_plan(question: Question, text: str) -> Question:
    """The question with the edited plan. Raises `UsageError` if the text is not a plan."""
    evidence = {**question.evidence.read(), "plan": msgspec.to_builtins(Plan.from_json(text))}
    return replace(question, evidence=Value.of(evidence))


async def _edit(text: str) -> str:
    return await in_thread(click.edit, text) or ""
