"""The plain dicts that agents of a pool hand to each other: tasks, results, failures."""

from collections.abc import Iterator, Mapping
from reprlib import repr as repr_of
from typing import Any

from chargehand.decisions.run_notes import told_of
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import UsageError
from chargehand.facts.board import Segment
from chargehand.facts.failure_policy import ABOUT_FAILURE
from chargehand.facts.outcome import Question
from chargehand.patterns.pool.pool_run import PoolRun

_STATUS = {
    TaskState.WAITING: "waiting",
    TaskState.READY: "pending",
    TaskState.RUNNING: "running",
    TaskState.RETRYING: "waiting",
    TaskState.ASKING: "asking",
    TaskState.DONE: "completed",
    TaskState.FAILED: "failed",
    TaskState.SKIPPED: "skipped",
    TaskState.CANCELLED: "cancelled",
}
#: importance of a failure
ERROR = 0.9


def tasks_in(ledger: PoolRun) -> Iterator[TaskNode]:
    """The tasks of a request, in the order of its plan."""
    return (node for id_, node in ledger.schedule.nodes.items() if not is_system_task(id_))


def has_failed(node: TaskNode) -> bool:
    """Whether it failed and nobody has said yet what becomes of it, or it was given up."""
    question = node.question
    is_open = question is not None and question.about == ABOUT_FAILURE
    return node.state is TaskState.FAILED or (node.state is TaskState.ASKING and is_open)


def assigned_to(node: TaskNode) -> str:
    """Who has a task, or is to take it; empty for one that anybody with its skill may take."""
    return node.worker if node.state is TaskState.RUNNING else node.task.worker


def task_form(ledger: PoolRun, node: TaskNode) -> dict[str, Any]:
    """A task as agents are given it."""
    requested = ledger.schedule.requested
    priority = 0 if requested is None else requested.priority
    return {
        "task_id": node.task.id,
        "request_id": ledger.request,
        "description": node.task.description,
        "assigned_to": assigned_to(node),
        "skill": node.task.skill,
        "status": "failed" if has_failed(node) else _STATUS[node.state],
        "needs": [need.task for need in node.task.all_needs],
        "priority": priority + node.task.priority,
        "attempts": node.attempt - node.parks,
    }


def failure_form(ledger: PoolRun, node: TaskNode) -> dict[str, Any]:
    """A task that failed, as the insight that tells of it."""
    failure = node.cause or node.last_failure
    at = node.since_at or ledger.schedule.last_at
    error = "" if failure is None else str(failure)
    return {
        "agent_id": node.worker or node.task.worker,
        "content": error,
        "tags": ["error", "failed", ledger.request, node.worker or node.task.worker],
        "segment": Segment.ERRORS.value,
        "importance": ERROR,
        "metadata": {
            "task_id": node.task.id,
            "request_id": ledger.request,
            "worker": node.worker or node.task.worker,
            "description": node.task.description,
            "attempts": node.attempt - node.parks,
            "error": error,
            **({} if failure is None else told_of(failure)),
        },
        "timestamp": "" if at is None else at.isoformat(),
    }


def questions_in(ledger: PoolRun) -> list[dict[str, Any]]:
    """What workers have asked about their tasks, and nobody has answered."""
    return [
        {"task_id": node.task.id, **question_form(node.question)}
        for node in tasks_in(ledger)
        if node.question is not None and not has_failed(node)
    ]


def question_form(question: Question) -> dict[str, Any]:
    """A question as agents are given it."""
    return {"id": question.id, "text": question.text, "choices": list(question.choices)}


def named_in(task: object) -> tuple[str, str]:
    """The request and the task that are meant."""
    if isinstance(task, Mapping):
        request, name = task.get("request_id"), task.get("task_id")
        if isinstance(request, str) and isinstance(name, str) and request and name:
            return request, name
    raise UsageError(
        f"{repr_of(task)} is no task of a pool; give one as delegate or get_assigned_tasks returned it"
    )
