"""Shows the events of a run and of the runs nested in it, and keeps their open questions."""

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
from chargehand.presentation.nested_paths import NestedPaths
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.result import RunResult
from chargehand.supervisor_factory import Choice
from chargehand.terminal_detection import is_terminal

if TYPE_CHECKING:
    from chargehand.cli.live_screen import LiveScreen


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How to show a run, and what to do about its questions."""

    choice: Choice
    as_json: bool = False
    quiet: bool = False
    summary: bool = False
    report: bool = False
    #: whether to ask questions at this terminal
    asks_here: bool = False
    #: whether to stop following a run when it only waits for a person
    returns: bool = False
    #: whether to show the stack trace of each failure
    verbose: bool = False
    #: file for the result, instead of stdout
    file: str = ""
    #: whether to show the live view instead of one line per change
    is_live: bool = False

    def with_choice(self, choice: Choice) -> "WatchOptions":
        """These options, with the crew and journal of `choice`."""
        return replace(self, choice=choice)


class RunView:
    """Shows the events of a run, and keeps its open questions."""

    def __init__(self, manner: WatchOptions, run: str = "") -> None:
        self.run = run
        #: open questions of this run and of the runs nested in it, by id
        self.open: dict[str, Question] = {}
        #: the part of the answer that was streamed to stdout
        self.streamed = ""
        self.changed = asyncio.Event()
        self._manner = manner
        self.screen = _live_screen(manner) if manner.is_live else None
        self._lines = ProgressLines(output.say, verbose=manner.verbose)
        self._is_within_line = False
        self._below: dict[str, ProgressLines] = {}
        self._paths = NestedPaths()
        self._streams = not (manner.as_json or manner.quiet or manner.file) and is_terminal(
            sys.stdout
        )

    def hear(self, heard: Event | AnswerPiece) -> None:
        """Show an event of the run itself, or a piece of its answer."""
        if not isinstance(heard, AnswerPiece):
            self._end_line()
            self._paths.hear("", heard)
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
        """Show an event of a nested run; `where` is the path of its supervisor."""
        self._paths.hear(run, event)
        path = self._paths.of(run, where)
        if self.screen is not None:
            self.screen.hear_below(path, run, event)
        elif not self._manner.as_json and not self._manner.quiet:
            lines = self._below.get(run)
            if lines is None:
                lines = self._below[run] = ProgressLines(
                    output.say, path.whole, verbose=self._manner.verbose
                )
            lines.hear(event)
        self._note(event)

    def catch_up(self, result: RunResult, asked: Iterable[Question]) -> None:
        """Take over the state and the open questions of a run that is resumed here."""
        self._lines.catch_up(result)
        if self.screen is not None:
            self.screen.catch_up(result)
        self.open = {question.id: question for question in asked}

    def _hear_json(self, heard: Event | AnswerPiece) -> None:
        if self._manner.quiet:
            return  # only one object is printed, at the end
        data = msgspec.json.encode(heard) if isinstance(heard, AnswerPiece) else encode(heard)
        # Each line names its run, which is an older one with an idempotency key or `resume`.
        named = {"run": self.run, **msgspec.json.decode(data, type=dict[str, msgspec.Raw])}
        output.as_json(named)

    def _hear_piece(self, heard: AnswerPiece) -> None:
        if not self._streams:
            return
        if self.screen is not None:
            self.screen.close()  # only the answer is left to show
        if heard.begins_anew and self.streamed:
            self._end_line()
            output.say("the answer was cut off and starts again:")
            self.streamed = ""
        output.piece(heard.text)
        self.streamed += heard.text
        self._is_within_line = not self.streamed.endswith("\n")

    def _end_line(self) -> None:
        """End the current line of the answer, so that other output starts on its own line."""
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
