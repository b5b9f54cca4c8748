"""Asks the person at the terminal of a script the questions of its runs: `answer_questions(boss, result)`."""

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

from chargehand.facts.outcome import Question
from chargehand.journal.postgres_address import is_dsn, place_of
from chargehand.presentation.display_text import clean
from chargehand.presentation.questions_and_typed_answers import (
    answer_in,
    objection_to,
    question_lines,
)
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.terminal_detection import is_interactive


def ask_at_terminal(question: Question) -> str | None:
    """Show a question on stderr and read its answer; None if no person is at the terminal."""
    if not is_interactive():
        return None
    for line in question_lines(question, has_enter=True):
        _say(line)
    for line in sys.stdin:
        if (answer := answer_in(question, line.strip())) is not None:
            return answer
        _say(objection_to(question, line.strip()))
    return None


def answer_questions(
    boss: Supervisor,
    result: RunResult,
    answer: Callable[[Question], str | None] = ask_at_terminal,
    *,
    output: Any = None,
) -> RunResult:
    """Answer the open questions of a run and resume it, until it ends.

    result = boss.run_sync("…", on_question="return")
    result = answer_questions(boss, result)

    If `answer` returns None, the question stays open, and the result of the waiting run is returned. `output` is the
    output type that the run was started with.
    """
    while result.questions:
        for question in result.questions:
            text = answer(question)
            if text is None:
                return result
            boss.answer_sync(question.id, text)
        result = boss.resume_sync(result.id, on_question="return", output=output)
    return result


def waiting_lines(result: RunResult, journal: str | os.PathLike[str], crew: str = "") -> list[str]:
    """The open questions of a run, and the commands that answer them and resume the run.

    `crew` is for `chargehand resume --crew`: the `FILE.py:NAME` of the supervisor, or a TOML file. A run that was
    started on the command line knows its crew.
    """
    where = os.fspath(journal)
    kept = ["--journal", place_of(where) if is_dsn(where) else where]
    lines: list[str] = []
    for question in result.questions:
        lines += question_lines(question)
        command = shlex.join(["chargehand", "answer", question.id])
        lines.append(f"answer it:  {command} TEXT {shlex.join(kept)}")
    if lines:
        named = crew or ("" if result.source.get("crew") else "FILE.py:NAME")
        chosen = ["--crew", named] if named else []
        lines.append(
            f"then:       {shlex.join(['chargehand', 'resume', result.id, *chosen, *kept])}"
        )
    return lines


def _say(line: str) -> None:
    print(clean(line), file=sys.stderr, flush=True)
