"""Nesting: a supervisor as a worker. What goes down with a task, and what comes up of it."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from chargehand.decisions.task_graph import TaskState
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.answer import Gap
from chargehand.facts.events import RunStatus
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.result import RunResult
from chargehand.roles.data_fences import fenced
from chargehand.supervisor.requests import RunOptions, RunParent

NESTED_FAILED = "NestedRunFailed"
#: the levels of a path
BETWEEN = " › "
_AT_ONCE = timedelta(milliseconds=1)


def request_from(brief: Brief) -> str | Plan:
    """What a nested supervisor is asked: the task's own plan if it brings one, else its words and inputs."""
    task = brief.task
    plan = task.args.get("plan")
    if plan is not None:
        return Plan.from_json(plan if isinstance(plan, str) else canonical(plan))
    return words_from(brief)


def words_from(brief: Brief) -> str:
    """A task in words, with what it is given: whoever reads them needs no brief."""
    task = brief.task
    lines = [task.description]
    if task.args:
        lines.append(f"Given: {canonical(task.args).decode()}")
    lines += [fenced(name, value) for name, value in brief.inputs.items()]
    lines += [f"Not available: {name} ({why})" for name, why in brief.missing.items()]
    if task.accept:
        lines.append(f"It is accepted if: {task.accept}")
    return "\n".join(lines)


def origin_of(brief: Brief, name: str) -> RunParent:
    """Whose task the nested run is. The same try has the same run, however often its process dies.

    Raises `UsageError` where the limit of depth forbids it.
    """
    depth = brief.depth + 1
    limits = brief.limits
    if depth >= limits.levels:
        whose, where = "Limits(depth=…) of a supervisor above", "where it is set"
        if limits.depth is None or not brief.depth:
            usual = "the default " if limits.depth is None else ""
            whose, where = f"{usual}Limits(depth={limits.levels})", "at the top"
        raise UsageError(
            f"{name} would lead a run at depth {depth}, and {whose} allows runs at depths 0 to "
            f"{limits.levels - 1}; nest less deeply, or raise it {where}"
        )
    id_ = digest_of(f"{brief.run}\0{brief.task.id}\0{brief.tries}".encode())[:15]
    return RunParent(run=f"n{id_}", parent=brief.run, depth=depth, taint=brief.taint)


def terms_for(brief: Brief, limits: Limits, now: datetime) -> RunOptions:
    """On what terms the nested run is led: its own limits, within what is left to the task above."""
    depth = brief.limits.depth
    if limits.depth is not None:  # counted from this level on, and never more than the top allows
        depth = min(brief.limits.levels, brief.depth + 1 + limits.depth)
    caps = [cap for cap in (limits.money, brief.limits.money) if cap is not None]
    # Kept by the account above in any case; said here so that nobody below asks what has no price.
    own = replace(limits, depth=depth, money=min(caps, default=None))
    terms = RunOptions(limits=own, priority=brief.task.priority)
    if brief.ends_at is not None:
        left = max(brief.ends_at - now, _AT_ONCE)
        terms["deadline"] = left if limits.deadline is None else min(left, limits.deadline)
    return terms


def outcome_from(result: RunResult, name: str) -> Outcome:
    """What a nested run means to the task above it. Gaps come up by name, errors with their path."""
    gaps = tuple(f"{name}{BETWEEN}{_place(result, gap)}" for gap in result.answer.gaps)
    match result.status:
        case RunStatus.PARTIAL if _was_failed(result):
            return _failure(result, name, gaps)
        case RunStatus.SUCCEEDED | RunStatus.PARTIAL:
            value = Value.of(result.answer.output, result.taint)
            is_whole = result.status is RunStatus.SUCCEEDED
            return Done(value, gaps=() if is_whole else gaps)
        case RunStatus.CANCELLED:
            return Cancelled(reason=f"{name} was cancelled")
        case _:
            return _failure(result, name, gaps)


def _was_failed(result: RunResult) -> bool:
    """Whether a task failed that was to fail its run, whatever else was done by then."""
    failed = (id_ for id_, task in result.tasks.items() if task.state is TaskState.FAILED)
    return any(result.reason == f"{id_} failed" for id_ in failed)


def _place(result: RunResult, gap: Gap) -> str:
    task = result.tasks.get(gap.task)
    error = None if task is None else task.error
    if error is not None and error.error == NESTED_FAILED:
        return f"{gap.task}{BETWEEN}{error.message}"
    is_path = task is not None and task.state is TaskState.DONE
    return f"{gap.task}{BETWEEN if is_path else ': '}{gap.why}"


def _failure(result: RunResult, name: str, gaps: tuple[str, ...]) -> Failed:
    causes = [
        task.error
        for task in result.tasks.values()
        if task.state is TaskState.FAILED and task.error is not None
    ]
    first = causes[0] if causes else None
    return Failed(
        kind=ErrorClass.LOGIC if first is None else first.kind,
        message="; ".join(gaps[:5]) or f"{name}: {result.reason or 'there was no result'}",
        error=NESTED_FAILED,
        stack="" if first is None else first.stack,
        taint=result.taint,
        is_final=True,  # every level has tried what it could; trying again above multiplies that
    )
