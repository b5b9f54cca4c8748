"""One run for reading: where every task stands, the answer, what is missing, what is asked."""

from collections.abc import Iterator, Sequence
from typing import Any

from chargehand.cli.find_run import FoundRun
from chargehand.cli.options import again, resume_words
from chargehand.decisions.schedule import RunState
from chargehand.decisions.task_graph import TaskState
from chargehand.errors import UnknownQuestion, UsageError
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Approach, RunStatus
from chargehand.facts.outcome import Question
from chargehand.patterns.groups.messages import SpokenTurn, told_in
from chargehand.presentation.plain_text import answer_words, clean, one_line
from chargehand.presentation.progress_lines import gain_of, task_counts
from chargehand.presentation.question_words import question_lines
from chargehand.presentation.status_words import process_words
from chargehand.result import RunResult, TaskResult
from chargehand.settings import Choice


def shown(standing: FoundRun, journal: str) -> Iterator[str]:
    """The run in words."""
    result, asked, choice = standing.result, standing.asked, Choice(journal=journal)
    yield f"run {result.id}: {standing.status} after {shown_length(result.wall)}"
    if result.halt is not None:
        yield one_line(str(result.halt), 300)
    yield f"request: {one_line(result.request, 500)}"
    yield f"tasks: {task_counts(result)}"
    for id_, task in result.tasks.items():
        yield f"  {clean(id_)}  {task.state.value}{_how(task)}"
        yield from (f"      {one_line(words, 300)}" for words in _words(task))
        if task.waits_for is not None and standing.submission is None:
            yield f"      {one_line(str(task.waits_for), 300)}"
        if task.error is not None and task.error.stack:
            yield from (f"      {clean(line)}" for line in task.error.stack.rstrip().splitlines())
        policy = result.policy_of(id_)
        if policy is not None and task.state is not TaskState.DONE:
            yield f"      {one_line(policy.words(), 400)}"
    for id_, text in standing.answered.items():
        yield f"\n{clean(id_)} is answered: {one_line(text, 200)}; it goes on when the run is led"
    for question in asked:
        yield from _asked(question, result, choice)
    words = answer_words(result.answer) if standing.submission is None else ""
    if words:
        yield "\nanswer:" if isinstance(result.status, RunStatus) else "\nanswer so far:"
        yield words
    if isinstance(result.status, RunStatus):
        yield f"\n{clean(str(result.report))}"
    elif standing.submission is not None:
        yield "\nit waits for a supervisor to take it up; chargehand status says who may"
        yield f"end it with: {again('cancel', result.id, choice)}"
    elif result.parked:
        yield f"\nit is parked: {one_line(result.parked, 300)}"
    elif result.status is RunState.PAUSED:
        yield f"\nit is paused; let it go on with: {again('unpause', result.id, choice)}"
    elif result.approach is Approach.POOL:
        yield "\nnobody leads it: it goes on as workers of its pool take its tasks"
    elif not asked:
        if standing.status == "interrupted":
            yield f"\nno process leads it; go on with: {resume_words(result, choice)}"
        elif standing.leader is not None:
            yield f"\n{process_words(standing.leader)} leads it; follow it with: {again('watch', result.id, choice)}"


def _words(task: TaskResult) -> list[str]:
    """What is to be done; of a turn in a group, who said what to whom."""
    said = told_in(task.task, task.output if task.state is TaskState.DONE else None)
    is_turn = SpokenTurn.of(task.task) is not None
    return [str(message) for message in said] if is_turn else [task.task.description]


def _how(task: TaskResult) -> str:
    """Who has it, and why it is not done."""
    by = f", {clean(task.worker)}" if task.worker else ""
    tries = f", attempt {task.attempts}" if task.attempts > 1 else ""
    is_plain = task.state in (TaskState.DONE, TaskState.RUNNING, TaskState.READY)
    return by + tries + ("" if is_plain or not task.why else f": {one_line(task.why, 200)}")


def _asked(question: Question, result: RunResult, choice: Choice) -> Iterator[str]:
    yield ""
    yield from question_lines(question)
    yield f"  answer it: {again('answer', question.id, choice)} TEXT"
    if result.approach is not Approach.POOL:
        yield f"  then:      {resume_words(result, choice)}"


def shown_json(standing: FoundRun) -> dict[str, Any]:
    """The run as one JSON object."""
    result = standing.result
    return {
        "run": result.id,
        "status": standing.status,
        "halt": result.halt,
        "request": result.request,
        "seconds": result.wall.total_seconds(),
        "speedup": gain_of(result),
        "usage": result.usage,
        "tasks": {
            id_: {
                "state": task.state.value,
                "worker": task.worker,
                "why": task.why,
                "error": task.error,
                "waits_for": task.waits_for,
                "on_failure": result.policy_of(id_),
            }
            for id_, task in result.tasks.items()
        },
        "answer": result.answer,
        "questions": standing.asked,
        "answered": standing.answered,
    }


def ended_json(result: RunResult) -> dict[str, Any]:
    """What a run came to, as one JSON object."""
    answer = result.answer
    return {
        "run": result.id,
        "status": result.status.value,
        "answer": answer.output,
        "claims": answer.claims,
        "gaps": answer.gaps,
        "confidence": answer.confidence,
        "usage": result.usage,
        "questions": result.questions,
    }


def question_meant(asked: Sequence[Question], run: str, id_: str) -> Question:
    """The question of this id, or the only one that the run asks."""
    if id_:
        found = next((each for each in asked if each.id == id_), None)
        if found is None:
            raise UnknownQuestion(id_)
        return found
    if len(asked) != 1:
        ids = ", ".join(question.id for question in asked) or "nothing"
        raise UsageError(f"run {run} asks {ids}; say which question you answer")
    return asked[0]
