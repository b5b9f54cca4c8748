"""The plain dicts that pool agents exchange: tasks, failures, questions, insights, blocks."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from reprlib import repr as repr_of
from typing import Any

from chargehand.decisions.events_as_notes import told_of
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.board import Block, Note, Segment
from chargehand.facts.failure_policy import ABOUT_FAILURE
from chargehand.facts.outcome import Done, ErrorClass, Failed, Question
from chargehand.facts.value import Value
from chargehand.patterns.pool.leaderless_run import LeaderlessRun
from chargehand.roles.data_fences import words_of

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

#: prefix of the ids of all pool requests
REQUEST = "request_"
#: the keys of an insight that an agent writes
_ASKED = ("agent_id", "content", "tags", "segment", "importance", "metadata", "timestamp")
#: metadata key of a note: the time that its author gave
SAID_AT = "said_at"
#: metadata key of a note about a conflict: the id of the conflict
SETTLES = "settles"
#: metadata key of a note about a conflict: the task that is kept, or whose result is kept
KEPT = "kept"


def tasks_in(ledger: LeaderlessRun) -> Iterator[TaskNode]:
    """The tasks of a request, in the order of its plan."""
    return (node for id_, node in ledger.schedule.nodes.items() if not is_system_task(id_))


def has_failed(node: TaskNode) -> bool:
    """Whether a task failed for good, or failed and waits for a decision."""
    question = node.question
    is_open = question is not None and question.about == ABOUT_FAILURE
    return node.state is TaskState.FAILED or (node.state is TaskState.ASKING and is_open)


def assigned_to(node: TaskNode) -> str:
    """The worker that does a task or is to do it; empty if any worker with its skill may take it."""
    return node.worker if node.state is TaskState.RUNNING else node.task.worker


def task_form(ledger: LeaderlessRun, node: TaskNode) -> dict[str, Any]:
    """A task as a plain dict."""
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


def failure_form(ledger: LeaderlessRun, node: TaskNode) -> dict[str, Any]:
    """A failed task, in the form of an insight."""
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


def questions_in(ledger: LeaderlessRun) -> list[dict[str, Any]]:
    """The open questions of workers about their tasks."""
    return [
        {"task_id": node.task.id, **question_form(node.question)}
        for node in tasks_in(ledger)
        if node.question is not None and not has_failed(node)
    ]


def question_form(question: Question) -> dict[str, Any]:
    """A question as a plain dict."""
    return {"id": question.id, "text": question.text, "choices": list(question.choices)}


def named_in(task: object) -> tuple[str, str]:
    """The ids of the request and the task in a task dict."""
    if isinstance(task, Mapping):
        request, name = task.get("request_id"), task.get("task_id")
        if isinstance(request, str) and isinstance(name, str) and request and name:
            return request, name
    raise UsageError(
        f"{repr_of(task)} is not a task of a pool; give one as delegate or get_assigned_tasks returned it"
    )


def insight_of(note: Note) -> dict[str, Any]:
    """A note as a plain dict."""
    metadata = dict(note.metadata)
    for own, known in (("request_id", "run"), ("task_id", "task")):
        if known in metadata:
            metadata.setdefault(own, metadata[known])
    said_at = metadata.pop(SAID_AT, "")
    return {
        "id": note.id,
        "agent_id": note.author,
        "content": note.content,
        "tags": list(note.tags),
        "segment": str(note.segment),
        "importance": note.importance,
        "metadata": metadata,
        "timestamp": said_at or note.at.isoformat(),
    }


def block_of(block: Block) -> dict[str, Any]:
    """A version of a block as a plain dict."""
    return {
        "label": block.label,
        "value": block.value,
        "version": block.version,
        "agent_id": block.author,
        "timestamp": block.at.isoformat(),
    }


class InsightWriting:
    """Validates an insight before anything is stored."""

    def __init__(self, insight: object) -> None:
        if not isinstance(insight, Mapping) or "content" not in insight:
            raise UsageError("an insight is a dict with its content: {'content': …, 'tags': […]}")
        unknown = sorted({str(name) for name in insight} - {*_ASKED})
        if unknown:
            raise UsageError(
                f"an insight has no {', '.join(unknown)}; it has {', '.join(_ASKED)}: put the rest "
                "into metadata"
            )
        self.author = checks.name(insight.get("agent_id") or "unknown", "agent_id")
        self.content = insight["content"]
        self.tags = checks.names(insight.get("tags") or (), "tags")
        self.segment = checks.name(insight.get("segment") or Segment.NOTES, "segment")
        self.importance = float(checks.amount(insight.get("importance", 0.5), "importance", most=1))
        metadata = insight.get("metadata") or {}
        checks.instance(metadata, "metadata", Mapping)
        self.metadata = {checks.text(k, "metadata: a name"): v for k, v in metadata.items()}
        if insight.get("timestamp"):
            self.metadata[SAID_AT] = _moment(insight["timestamp"])

    @property
    def is_report(self) -> bool:
        """Whether it may report the result or the failure of a task."""
        return self.segment in (Segment.RESULTS, Segment.ERRORS)

    @property
    def request(self) -> str:
        """The request that it refers to; empty if there is none."""
        named = self.metadata.get("request_id")
        known = [tag for tag in self.tags if tag.startswith(REQUEST)]
        return named if isinstance(named, str) else next(iter(known), "")

    @property
    def task(self) -> str:
        """The task that it reports on. Raises `UsageError` if there is none."""
        named = self.metadata.get("task_id")
        if not isinstance(named, str) or not named:
            raise UsageError(
                f"the insight reports on a task of request {self.request} without naming it; give "
                "metadata={'task_id': …}, or a segment other than 'results' and 'errors'"
            )
        return named

    @property
    def outcome(self) -> Done | Failed:
        """The outcome of the task that it reports."""
        value = Value.of(self.content)
        if self.segment == Segment.RESULTS:
            return Done(value)
        return Failed(kind=ErrorClass.LOGIC, message=words_of(self.content))


def _moment(given: object) -> str:
    """A timestamp in ISO 8601. Raises `UsageError` if it has no time zone."""
    moment = given if isinstance(given, datetime) else None
    if isinstance(given, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(given)
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"timestamp={repr_of(given)} is not a moment; give a datetime with its time zone, or one "
            "in ISO 8601: '2026-03-01T12:00:00+00:00'"
        )
    return moment.isoformat()
