"""Watching a run: what is heard of it and of the runs nested in it is shown, and its questions kept."""

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from chargehand.cli import output
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
    RunRequested,
    encode,
)
from chargehand.facts.outcome import NeedsInput, Question
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.result import RunResult
from chargehand.settings import Choice
from chargehand.terminal_detection import is_terminal

if TYPE_CHECKING:
    from chargehand.cli.live_screen import LiveScreen


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a run is shown, and what is done about its questions."""

    choice: Choice
    as_json: bool = False
    quiet: bool = False
    summary: bool = False
    report: bool = False
    #: a question is asked at this terminal
    asks_here: bool = False
    #: a run that is only followed is left once all that remains of it waits for a person
    returns: bool = False
    #: the stack of each failure, too
    verbose: bool = False
    #: where the result goes instead of stdout
    file: str = ""
    #: painted at the bottom of the terminal, instead of a line for each change
    is_live: bool = False

    def with_choice(self, choice: Choice) -> "WatchOptions":
        """The same for a run of this crew and journal."""
        return replace(self, choice=choice)


class RunView:
    """Hears everything that happens to a run, shows it, and keeps its open questions."""

    def __init__(self, manner: WatchOptions, run: str = "") -> None:
        self.run = run
        #: by id, of this run and of those nested in it
        self.open: dict[str, Question] = {}
        #: of the answer, as far as it was shown while it grew
        self.streamed = ""
        self.changed = asyncio.Event()
        self._manner = manner
        self.screen = _live_screen(manner) if manner.is_live else None
        self._lines = ProgressLines(output.say, verbose=manner.verbose)
        self._is_within_line = False
        self._below: dict[str, ProgressLines] = {}
        self._streams = not (manner.as_json or manner.quiet or manner.file) and is_terminal(
            sys.stdout
        )

    def hear(self, heard: Event | AnswerPiece) -> None:
        """Hear something of the run itself."""
        if not isinstance(heard, AnswerPiece):
            self._end_line()
        if isinstance(heard, RunRequested):
            self.run = heard.run
        if self._manner.as_json:
            self._hear_json(heard)
        elif isinstance(heard, AnswerPiece):
            self._hear_piece(heard)
        elif self.screen is not None:
            self.screen.hear(heard)
        elif not self._manner.quiet:
            self._lines.hear(heard)
        if not isinstance(heard, AnswerPiece):
            self._note(heard)

    def hear_below(self, where: str, run: str, event: Event) -> None:
        """Hear something of a run nested in it, led by the supervisor of this name."""
        if self.screen is not None:
            self.screen.hear_below(where, run, event)
        elif not self._manner.as_json and not self._manner.quiet:
            lines = self._below.get(run)
            if lines is None:
                lines = self._below[run] = ProgressLines(
                    output.say, where, verbose=self._manner.verbose
                )
            lines.hear(event)
        self._note(event)

    def catch_up(self, result: RunResult, asked: Iterable[Question]) -> None:
        """Know how a run stands that goes on here, and what it still asks."""
        self._lines.catch_up(result)
        if self.screen is not None:
            self.screen.catch_up(result)
        self.open = {question.id: question for question in asked}

    def _hear_json(self, heard: Event | AnswerPiece) -> None:
        if self._manner.quiet:
            return  # one object at the end says it all
        data = msgspec.json.encode(heard) if isinstance(heard, AnswerPiece) else encode(heard)
        # Every line says whose it is, also where a key or `resume` leads to an older run.
        named = {"run": self.run, **msgspec.json.decode(data, type=dict[str, msgspec.Raw])}
        output.as_json(named)

    def _hear_piece(self, heard: AnswerPiece) -> None:
        if not self._streams:
            return
        if self.screen is not None:
            self.screen.close()  # the work is over: the answer has the terminal to itself
        if heard.begins_anew and self.streamed:
            self._end_line()
            output.say("the answer was cut off and starts again:")
            self.streamed = ""
        output.piece(heard.text)
        self.streamed += heard.text
        self._is_within_line = not self.streamed.endswith("\n")

    def _end_line(self) -> None:
        """What else is told begins on a line of its own, also where stdout and stderr are one screen."""
        if self._is_within_line:
            output.piece("\n")
            self._is_within_line = False

    def _note(self, event: Event) -> None:
        match event:
            case (
                AttemptFinished(outcome=NeedsInput(question=question))
                | PersonAsked(question=question)
            ):
                self.open[question.id] = question
            case QuestionAnswered() | QuestionExpired():
                self.open.pop(event.question, None)
            case _:
                pass
        self.changed.set()


def _live_screen(manner: WatchOptions) -> "LiveScreen":
    from chargehand.cli.live_screen import LiveScreen  # here: it takes a while to import

    return LiveScreen(verbose=manner.verbose)
