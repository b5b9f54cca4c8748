"""The output of `chargehand show`: the tasks of a run, its answer, gaps and open questions."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from chargehand.cli.find_run import FoundRun
from chargehand.cli.options import again, resume_words, with_resume_words
from chargehand.cli.suggested_commands import with_journal
from chargehand.decisions.group_conversation import SpokenTurn
from chargehand.decisions.rule_answer import IN_PART, item_in_words
from chargehand.decisions.schedule import RunState
from chargehand.decisions.task_and_state_words import counted, state_words
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.trace import Trace
from chargehand.errors import UnknownQuestion, UsageError
from chargehand.facts.answer import Answer, Gap
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Approach, RunStatus
from chargehand.facts.outcome import NO_USAGE, Question, Usage
from chargehand.facts.plan import item_of
from chargehand.facts.value import Value
from chargehand.patterns.groups.messages import told_in
from chargehand.presentation.display_text import (
    answer_words,
    clean,
    money_words,
    one_line,
    output_words,
    with_local_times,
)
from chargehand.presentation.live_frame import MARK_IN_PART, MARKS, Line, StyledText
from chargehand.presentation.progress_lines import (
    ANSWERED,
    failed_items_words,
    gain_of,
    gain_words,
    item_counts,
    over_budget_words,
    sureness,
    task_counts,
    told_states,
    waited_words,
)
from chargehand.presentation.questions_and_typed_answers import question_lines
from chargehand.presentation.run_status import (
    INTERRUPTED,
    answered_words,
    process_words,
    status_words,
)
from chargehand.presentation.stack_lines import stack_lines
from chargehand.presentation.trace_lines import timeline_lines
from chargehand.result import RunResult, TaskResult
from chargehand.supervisor_factory import Choice, journal_place

#: states in which time counts if a process leads the run; a run that waits or is paused has come to its last event
_UNDER_WAY = (RunState.PLANNING, RunState.RUNNING, RunState.STOPPING)
#: most gaps shown with a task
MOST_GAPS = 5
_STYLES = {
    "succeeded": "done",
    "partial": "failed",
    "failed": "failed",
    "cancelled": "failed",
    "waiting": "needs",
}


def shown(
    standing: FoundRun, journal: str, width: int = 100, now: datetime | None = None
) -> Iterator[Line]:
    """A run as styled lines."""
    result, choice = standing.result, Choice(journal=journal)
    faster = gain_words(result)
    # A submitted run has no events, and so no trace.
    trace = _trace_until(now, result) if standing.submission is None else Trace()
    waited = waited_words(result) if standing.submission is None else ""
    yield (
        StyledText(f"run {result.id}: ", "bold"),
        StyledText(
            status_words(standing.status, standing.answered),
            _STYLES.get(standing.status, "running"),
        ),
        StyledText(f" after {shown_length(trace.wall)}{waited}{faster}"),
    )
    if result.halt is not None:
        yield _line(one_line(str(result.halt), 300))
    yield _line(f"request: {one_line(result.request, 500)}")
    usage = result.usage
    if usage.calls or usage.money:
        tokens = usage.tokens_in + usage.tokens_out
        spent = f"{counted(usage.calls, 'call')}, {tokens:,} tokens, {money_words(usage.money)}"
        yield _line(f"spent: {spent}{over_budget_words(result)}")
    yield _line(f"tasks: {task_counts(result)}")
    efforts = _efforts(result, trace) if standing.submission is None else {}
    for id_, task in result.tasks.items():
        yield from _task_lines(id_, task, standing, efforts.get(id_))
    marks = {id_: _mark(task) for id_, task in result.tasks.items()}
    timeline = timeline_lines(trace, width, marks) if efforts else []
    if timeline:
        yield from (_line(""), _line("timeline:"), *timeline)
    for id_, text in standing.answered.items():
        goes_on = answered_words(result, id_)
        yield _line(f"\n{clean(id_)} is answered: {one_line(text, 200)}; {goes_on}")
    for question in standing.asked:
        yield from map(_line, _asked(question, standing, choice))
    words = answer_words(_answer_so_far(result)) if standing.submission is None else ""
    if words:
        is_ended = isinstance(result.status, RunStatus)
        head = [
            word for word in ("answer" if is_ended else "answer so far", sureness(result)) if word
        ]
        yield (StyledText(f"\n{', '.join(head)}:", "bold"),)
        yield _line(words)
    yield from map(_line, _what_next(standing, choice))


def _task_lines(
    id_: str, task: TaskResult, standing: FoundRun, spent: "_Effort | None"
) -> Iterator[Line]:
    icon, style = _mark(task)
    state = IN_PART if task.gaps else told_states(standing.result)(task)
    took = "" if spent is None else str(spent)
    yield (
        StyledText(f"{icon} ", style),
        StyledText(f"{clean(id_)}  {state}", style if task.error or task.gaps else "ink"),
        StyledText(f"{_how(task)}{took}"),
    )
    for words in _words(task):
        yield _line(f"      {one_line(words, 300)}", "dim")
    if task.state is TaskState.DONE and SpokenTurn.of(task.task) is None:
        said = one_line(output_words(task.output), 200)
        if said:
            yield _line(f"      → {said}")
    for gap in task.gaps[:MOST_GAPS]:
        yield _line(f"      missing: {one_line(gap, 300)}")
    if len(task.gaps) > MOST_GAPS:
        yield _line("      …; the answer lists all that is missing")
    yield from map(_line, _unneeded_items(task))
    if counts := item_counts(task, standing.result):
        yield _line(f"      {counts}")
    is_waiting = task.waits_for is not None and task.waits_for.question not in standing.answered
    if is_waiting and standing.submission is None:
        yield _line(f"      {one_line(with_local_times(str(task.waits_for)), 300)}")
    if task.error is not None and task.error.stack:
        yield from (_line(f"      {line}") for line in stack_lines(task.error.stack))
    policy = standing.result.policy_of(id_)
    if policy is not None and task.state is not TaskState.DONE:
        yield _line(f"      {one_line(policy.words(), 400)}")


def _unneeded_items(task: TaskResult) -> Iterator[str]:
    """The failed items of a task that is done without them (`at_least`): no gaps name them."""
    failed = task.failed_items if task.state is TaskState.DONE and not task.gaps else []
    if not failed:
        return
    yield f"      {failed_items_words(len(failed), len(task.items))}:"
    for each in failed[:MOST_GAPS]:
        item = item_in_words(each.index, Value.of(each.item))
        yield f"        {one_line(f'{item}: {each.error}', 300)}"
    if len(failed) > MOST_GAPS:
        yield f"        and {len(failed) - MOST_GAPS:,} more"


def _mark(task: TaskResult) -> tuple[str, str]:
    """The icon of a task and its style."""
    return MARK_IN_PART if task.gaps else MARKS[task.state][:2]


def _answer_so_far(result: RunResult) -> Answer:
    """The answer. Its gaps describe the states of tasks in the same words as the list of tasks."""
    told = told_states(result)

    def as_listed(gap: Gap) -> Gap:
        task = result.tasks.get(gap.task)
        if task is None or gap.state != state_words(task.state):
            return gap
        gap = replace(gap, state=told(task))
        if gap.state == ANSWERED and task.question is not None:
            return replace(gap, why=answered_words(result, task.question.id))
        return gap

    return replace(result.answer, gaps=tuple(map(as_listed, result.answer.gaps)))


def _what_next(standing: FoundRun, choice: Choice) -> Iterator[str]:
    """The report, if the run has ended; otherwise how to continue it."""
    result = standing.result
    if isinstance(result.status, RunStatus):
        yield f"\n{clean(str(result.report))}"
    elif standing.submission is not None:
        details = journal_place(choice.journal).command("status")
        yield f"\nit is waiting for a server to start it; for details: {details}"
        yield f"cancel it with: {again('cancel', result.id, choice)}"
    elif result.parked:
        why = with_resume_words(result.parked, result, choice)
        yield f"\nit is parked: {one_line(why, 400)}"
    elif result.status is RunState.PAUSED:
        yield f"\nit is paused; continue it with: {again('unpause', result.id, choice)}"
    elif result.approach is Approach.POOL:
        yield "\nno single process leads it: it continues as workers of its pool take its tasks"
    elif not standing.asked:
        if standing.status == INTERRUPTED:
            yield f"\nno process leads it; continue it with: {resume_words(result, choice)}"
        elif standing.leader is not None:
            yield f"\n{process_words(standing.leader)} leads it; follow it with: {again('watch', result.id, choice)}"


class _Effort(Struct):
    """Time and usage of all attempts at a task, including its items."""

    began_at: datetime
    ended_at: datetime
    usage: Usage = NO_USAGE

    def __str__(self) -> str:
        money = f", {money_words(self.usage.money)}" if self.usage.money else ""
        calls = f", {counted(self.usage.calls, 'call')}" if self.usage.calls else ""
        return f", {shown_length(self.ended_at - self.began_at)}{calls}{money}"


def _trace_until(now: datetime | None, result: RunResult) -> Trace:
    """The trace of a run. If a process works on the run right now, it lasts until now, not until the last event."""
    trace = result.trace
    if not _is_under_way(result) or trace.ended_at is None:
        return trace
    return replace(trace, ended_at=max(trace.ended_at, now or datetime.now(UTC)))


def _is_under_way(result: RunResult) -> bool:
    return result.status in _UNDER_WAY and result.leader is not None


def _efforts(result: RunResult, trace: Trace) -> dict[str, _Effort]:
    efforts: dict[str, _Effort] = {}
    until = trace.ended_at if _is_under_way(result) else None
    for span in trace.attempts:
        item = item_of(span.task)
        task = span.task if item is None else item[0]
        told = result.tasks.get(task)
        is_running = told is not None and told.state is TaskState.RUNNING
        end = span.ended_at or (until if is_running else None) or span.began_at
        known = efforts.setdefault(task, _Effort(span.began_at, end))
        known.ended_at = max(known.ended_at, end)
        known.usage += span.usage
    return efforts


def _line(text: str, style: str = "ink") -> Line:
    return (StyledText(text, style),)


def _words(task: TaskResult) -> list[str]:
    """The description of a task; for a turn of a group conversation, its messages."""
    said = told_in(task.task, task.output if task.state is TaskState.DONE else None)
    is_turn = SpokenTurn.of(task.task) is not None
    return [str(message) for message in said] if is_turn else [task.task.description]


def _how(task: TaskResult) -> str:
    """The worker of a task, its attempts, and why it is not done."""
    worker = task.task.worker if task.worker.startswith("@") else task.worker
    by = f", {clean(worker)}" if worker else ""
    tries = f", attempt {task.attempts}" if task.attempts > 1 else ""
    is_plain = task.state in (TaskState.DONE, TaskState.RUNNING, TaskState.READY)
    return by + tries + ("" if is_plain or not task.why else f": {one_line(task.why, 200)}")


def _asked(question: Question, standing: FoundRun, choice: Choice) -> Iterator[str]:
    result = standing.result
    yield ""
    yield from map(with_journal, question_lines(question))
    yield f"  answer it: {again('answer', question.id, choice)} TEXT"
    if standing.leader is not None:
        yield f"  follow it: {again('watch', result.id, choice)}"
    elif result.approach is not Approach.POOL:
        yield f"  then:      {resume_words(result, choice)}"


def shown_json(standing: FoundRun) -> dict[str, Any]:
    """The run as one JSON object."""
    result = standing.result
    return {
        "run": result.id,
        "status": standing.status,
        "halt": result.halt,
        "request": result.request,
        "seconds": _seconds(standing),
        "speedup": gain_of(result),
        "usage": asdict(result.usage),  # all fields, also those that are 0
        "over_budget": result.over_budget,
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


def _seconds(standing: FoundRun) -> float:
    result = standing.result  # a submitted run has no events, and so no trace
    wall = result.wall if standing.submission is not None else _trace_until(None, result).wall
    return wall.total_seconds()


def ended_json(result: RunResult) -> dict[str, Any]:
    """The result of a run as one JSON object."""
    answer = result.answer
    return {
        "run": result.id,
        "status": result.status.value,
        "answer": answer.output,
        "claims": answer.claims,
        "gaps": answer.gaps,
        "confidence": answer.confidence,
        "usage": asdict(result.usage),  # all fields, also those that are 0
        "over_budget": result.over_budget,
        "questions": result.questions,
    }


def question_meant(asked: Sequence[Question], run: str, id_: str) -> Question:
    """The question with this id; without an id, the only open question."""
    if id_:
        found = next((each for each in asked if each.id == id_), None)
        if found is None:
            raise UnknownQuestion(id_)
        return found
    if len(asked) != 1:
        if not asked:
            raise UsageError(f"run {run} has no open question")
        ids = ", ".join(question.id for question in asked)
        raise UsageError(
            f"open questions of run {run}: {ids}; give the id of the one that you answer"
        )
    return asked[0]
