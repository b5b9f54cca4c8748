"""Questions at the command line that come and go faster than they are asked."""

import asyncio
import os
import sys
from datetime import UTC, datetime

import pytest

import chargehand as ch
from chargehand.cli import ask_person
from chargehand.cli.run_session import RunSession
from chargehand.cli.run_view import RunView, WatchOptions
from chargehand.errors import UnknownRun
from chargehand.facts.events import PersonAsked, QuestionAnswered
from chargehand.facts.outcome import Question
from chargehand.settings import Choice

AT = datetime(2026, 1, 1, tzinfo=UTC)


@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    return brief.task.id


def test_a_question_is_asked_that_came_while_another_was_answered_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are heard at once, so that only one change is noticed."""
    asked: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(ask_person, "say", asked.put_nowait)
    stdin, typing = os.pipe()
    keyboard = os.fdopen(stdin)
    monkeypatch.setattr(sys, "stdin", keyboard)
    manner = WatchOptions(choice=Choice(), asks_here=True, quiet=True)
    view = RunView(manner, "r1")

    async def until_asked(words: str) -> None:
        async with asyncio.timeout(10):
            while words not in await asked.get():
                pass

    async def start() -> None:
        view.hear(
            PersonAsked(at=AT, task="a", attempt=0, question=Question(id="r1:a:1", text="Red?"))
        )
        await until_asked("Red?")
        view.hear(QuestionAnswered(at=AT, task="a", question="r1:a:1", text="yes", by="eva"))
        view.hear(
            PersonAsked(at=AT, task="b", attempt=0, question=Question(id="r1:b:1", text="Blue?"))
        )
        await until_asked("Blue?")

    session = RunSession(ch.Supervisor([clerk]), view, manner)
    with pytest.raises(UnknownRun):  # it was never begun
        session.conduct(start)
    assert list(view.open) == ["r1:b:1"]
    os.close(typing)
    keyboard.close()


def test_lines_say_of_how_many_questions_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(ask_person, "say", said.append)
    ask_person.TerminalPrompt().show(Question(id="r1:a:1", text="Red?"), others=1)
    ask_person.TerminalPrompt().show(Question(id="r1:b:1", text="Blue?"))
    assert said == ["question 1 of 2:", "? Red?", "? Blue?"]
