"""Assertions about results: that a run succeeded, or which tasks are missing; and half of a budget."""

from collections.abc import Iterable

from chargehand.decisions.task_graph import TaskState
from chargehand.errors import UsageError
from chargehand.facts.events import RunStatus
from chargehand.facts.limits import Limits
from chargehand.result import RunResult

_LONGEST = 300


def assert_succeeded(result: RunResult) -> None:
    """Fail unless the run succeeded; the message says which tasks are not done, and why."""
    if result.status is not RunStatus.SUCCEEDED:
        raise AssertionError(f"the run did not succeed: {_told(result)}")


def assert_partial(result: RunResult, *, missing: Iterable[str]) -> None:
    """Fail unless the run is partial and its answer names exactly the tasks in `missing` as gaps.

    This is what a run must return if a worker fails or the budget is too small: its results, and what is missing.
    """
    if isinstance(missing, str):
        raise UsageError(f"missing={missing!r} is a text; give a list of tasks: [{missing!r}]")
    wanted, named = set(missing), {gap.task for gap in result.answer.gaps}
    if result.status is not RunStatus.PARTIAL:
        raise AssertionError(f"the run is not partial: {_told(result)}")
    if named != wanted:
        raise AssertionError(
            f"the answer names {_names(named)} as missing, and not {_names(wanted)}: {_told(result)}"
        )
    if not result.answer.output:
        raise AssertionError(f"the answer is empty: {_told(result)}")


def half_budget(result: RunResult, of: str = "calls") -> Limits:
    """Limits of half the `calls`, `tokens` or `money` that this run used.

        boss.run(request, limits=half_budget(result))

    A call reserves its maximum cost, so half of the tokens or of the money may not suffice for any call. Raises
    `UsageError` if the run used only one call or token, or none.
    """
    usage = result.usage
    used = {
        "calls": usage.calls,
        "tokens": usage.tokens_in + usage.tokens_out,
        "money": usage.money,
    }
    if of not in used:
        raise UsageError(f"half_budget: of={of!r} is none of {', '.join(used)}")
    if not used[of]:
        raise UsageError(f"run {result.id} used no {of}, so that there is nothing to halve")
    if of == "money":
        return Limits(money=usage.money / 2)
    if used[of] == 1:
        raise UsageError(
            f"run {result.id} used a single one of its {of}, and half of one is none; {of}=1 would limit nothing. "
            "Halve a run that uses two or more"
        )
    half = int(used[of]) // 2
    return Limits(calls=half) if of == "calls" else Limits(tokens=half)


def _told(result: RunResult) -> str:
    status = getattr(result.status, "value", result.status)
    lines = [f"{status}{f' ({result.reason})' if result.reason else ''}"]
    for id_, task in result.tasks.items():
        if task.state is TaskState.DONE:
            continue
        why = f": {str(task.error.message)[:_LONGEST]}" if task.error is not None else ""
        lines.append(f"task {id_!r} is {task.state.value}{why}")
    lines += [f"gap {gap.task!r}: {gap.why[:_LONGEST]}" for gap in result.answer.gaps]
    lines += [f"it asks a person: {question.text[:_LONGEST]}" for question in result.questions]
    return "\n  - ".join(lines)


def _names(tasks: set[str]) -> str:
    return ", ".join(sorted(map(repr, tasks))) or "nothing"
