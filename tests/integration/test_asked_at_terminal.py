"""Questions at the command line that come and go faster than they are asked."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.cli import ask_person
from chargehand.cli.event_display import RunView, WatchOptions
from chargehand.cli.interactive_run import RunSession
from chargehand.errors import JournalBusy, UnknownRun
from chargehand.facts.events import PersonAsked, QuestionAnswered
from chargehand.facts.outcome import Question
from chargehand.facts.value import Value
from chargehand.presentation.questions_and_typed_answers import (
    answer_in,
    evidence_lines,
    objection_to,
    question_lines,
)
from chargehand.supervisor_factory import Choice

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


class Desk:
    """A prompt with lines that are typed beforehand, and an editor that saves these texts in turn."""

    def __init__(self, lines: list[str], saved: list[str]) -> None:
        self.lines = lines
        self.saved = saved
        #: what the editor began with
        self.drafts: list[str] = []
        self.objections: list[str] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        yield

    def show(self, question: Question, others: int = 0) -> None: ...

    def hide(self) -> None: ...

    def object(self, words: str) -> None:
        self.objections.append(words)

    async def line(self) -> str | None:
        return self.lines.pop(0) if self.lines else None

    async def edited(self, text: str, edit: Callable[[str], Awaitable[str]]) -> str:
        self.drafts.append(text)
        return self.saved.pop(0)


APPROVAL = Question(
    id="r1:a:1",
    text="May clerk call pay?",
    about="approval",
    choices=("approve", "reject"),
    telling="approve with",
    evidence=Value.of({"tool": "pay", "arguments": '{"amount":9}'}),
)


def test_a_tool_call_is_shown_with_its_arguments() -> None:
    """Not as JSON within JSON, and without the digest, which says nothing to people."""
    assert evidence_lines(APPROVAL) == ["pay, called with:", "{", '  "amount": 9', "}"]
    broken = replace(APPROVAL, evidence=Value.of({"tool": "pay", "arguments": '{"\x1b[2J'}))
    assert evidence_lines(broken) == ["pay, called with:", '"{\\"\\u001b[2J"']


def test_what_is_left_out_of_the_arguments_is_said() -> None:
    call = {"tool": "pay", "arguments": json.dumps({f"to{n}": n for n in range(60)})}
    long = replace(APPROVAL, evidence=Value.of(call))
    lines = list(question_lines(long))
    assert "    … 24 more lines; to see all: chargehand show r1 --json" in lines
    assert sum(line.startswith('      "to') for line in lines) == 37
    asked = list(question_lines(long, has_enter=True, has_editor=True))
    assert "    … 24 more lines; e shows all" in asked


def test_a_text_among_the_arguments_is_shown_line_by_line_after_the_short_ones() -> None:
    """Behind a text of forty lines, nobody would look for the recipient."""
    body = "Dear \\n,\n" + "x" * 250 + "\nbye\n"
    call = {"tool": "mail", "arguments": json.dumps({"body": body, "to": "eva"})}
    assert evidence_lines(replace(APPROVAL, evidence=Value.of(call))) == [
        "mail, called with:",
        "{",
        '  "to": "eva",',
        r'  "body": "Dear \\n,\n',
        "      " + "x" * 200,
        "      " + "x" * 50 + r"\n",
        r'      bye\n"',
        "}",
    ]


NUMBERS = Question(id="r1:a:1", text="How many?", choices=("10", "5", "1", "2"), default="5")


@pytest.mark.parametrize(
    ("choices", "line", "answer"),
    [
        (NUMBERS.choices, "1", "1"),
        (NUMBERS.choices, "10", "10"),
        (NUMBERS.choices, "3", None),
        (("3 days", "1 week"), "1", None),
        (("$20", "-1"), "2", None),
        (("red", "blue"), "2", "blue"),
        (("red", "blue"), "BLUE", "blue"),
        (("red", "blue"), "3", None),
        (("red", "blue"), "²", None),
        (("red", "blue"), "1" * 5000, None),
        (("v1", "v2"), "2", "v2"),
    ],
)
def test_a_choice_in_its_own_words_goes_before_the_number_of_another(
    choices: tuple[str, ...], line: str, answer: str | None
) -> None:
    """Choices that are numbers themselves have no numbers: `1` of 10, 5, 1 and 2 would mean two of them."""
    assert answer_in(replace(NUMBERS, choices=choices, default=None), line) == answer


def test_choices_that_are_numbers_are_listed_without_numbers() -> None:
    assert list(question_lines(NUMBERS))[1:] == [
        "  -  10",
        "  -  5  (the default)",
        "  -  1",
        "  -  2",
    ]
    assert objection_to(NUMBERS, "3") == "'3' is none of the choices; type one of the choices above"


def test_enter_is_named_only_where_it_answers() -> None:
    """`show`, and a command in a pipe, list a question that is answered elsewhere."""
    free = Question(id="r1:b:1", text="Why?", default="no reason")
    assert list(question_lines(free)) == ["? Why?", "  the default: no reason"]
    asked = list(question_lines(free, has_enter=True))
    assert asked == ["? Why?", "  Enter alone answers: no reason"]
    assert "  -  5  (Enter alone)" in list(question_lines(NUMBERS, has_enter=True))


@pytest.mark.parametrize("key", ["e", "s"])
async def test_a_choice_goes_before_the_key_of_the_same_letter(key: str) -> None:
    compass = Question(id="r1:a:1", text="Where to?", choices=("N", "E", "S", "W"))
    assert await ask_person.ask(compass, Desk([key], []), nobody) == key.upper()


async def test_an_editor_shows_long_arguments_in_several_lines() -> None:
    arguments = json.dumps({"body": "x" * 90, "to": "eva"})
    long = replace(APPROVAL, evidence=Value.of({"tool": "mail", "arguments": arguments}))
    desk = Desk(["e"], [""])
    await ask_person.ask(long, desk, nobody)
    head, _, told = desk.drafts[0].partition(": ")
    assert (head, json.loads(told)) == ("approve with", json.loads(arguments))
    assert len(told.splitlines()) == 4


async def nobody(question: str) -> None:
    raise AssertionError(question)


async def test_what_was_written_and_is_no_answer_is_the_draft_of_the_next_try() -> None:
    begun, broken = 'approve with: {"amount":9}', 'approve with: {"amount":'
    desk = Desk(["e", "e"], [broken, 'approve with: {"amount":8}'])
    assert await ask_person.ask(APPROVAL, desk, nobody) == 'approve with: {"amount":8}'
    assert desk.drafts == [begun, broken]
    plain = Question(id="r1:b:1", text="What is it called?")
    other = Desk(["e"], ["Bob"])
    assert await ask_person.ask(plain, other, nobody) == "Bob"
    assert other.drafts == [""], "the draft of one question is not that of another"


@pytest.mark.parametrize(
    "question", [APPROVAL, replace(APPROVAL, about="plain", default="approve")]
)
async def test_an_editor_that_is_left_without_saving_answers_nothing(question: Question) -> None:
    """Not even where Enter alone would take the default."""
    desk = Desk(["e"], [""])
    assert await ask_person.ask(question, desk, nobody) is None
    assert desk.objections == ["nothing was saved in the editor; the question stays open"]


async def test_a_plan_with_a_fault_is_the_draft_of_the_next_try() -> None:
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Do it", worker="clerk")])
    question = Question(
        id="r1:@plan:1", text="Go?", about="plan", evidence=Value.of({"plan": plan_facts(plan)})
    )
    desk = Desk(["e", "e", "y"], ["{no plan", plan.to_json().replace("Do it", "Do that")])
    answer = await ask_person.ask(question, desk, nobody)
    assert desk.drafts[1] == "{no plan"
    assert answer is not None
    assert "Do that" in answer


def plan_facts(plan: ch.Plan) -> object:
    return json.loads(plan.to_json())


class AllAnsweredError(Exception):
    """Nothing more will be asked."""


class Source:
    """Questions that are asked in turn; the first answer to each is refused as if the journal were busy."""

    def __init__(self, *questions: Question) -> None:
        self.open = {question.id: question for question in questions}
        self.answers: list[tuple[str, str]] = []
        self.refused: set[str] = set()

    async def next(self) -> tuple[Question, int] | None:
        first = next(iter(self.open.values()), None)
        return None if first is None else (first, len(self.open) - 1)

    async def is_open(self, question: str) -> bool:
        return question in self.open

    async def answer(self, question: str, text: str) -> None:
        if question not in self.refused:
            self.refused.add(question)
            raise JournalBusy("runs.db is locked")
        self.answers.append((question, text))
        del self.open[question]

    async def delegate(self, question: str) -> None:
        raise AssertionError(question)

    async def wait_change(self) -> None:
        raise AllAnsweredError


async def test_a_question_whose_answer_was_not_taken_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(ask_person, "say", said.append)
    source = Source(APPROVAL, replace(APPROVAL, id="r1:b:1"))
    desk = Desk(["1", "1", "2", "2"], [])
    with pytest.raises(AllAnsweredError):
        await ask_person.ask_all(source, desk)
    assert source.answers == [("r1:a:1", "approve"), ("r1:b:1", "reject")]
    assert said == ["runs.db is locked"] * 2
