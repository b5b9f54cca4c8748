"""One pool request: its state, computed from its events, the decisions that may change it, its tasks as plain dicts.

A pool request has no leader. Each process applies the events to the same `Schedule` as a leader would,
and appends events inside a transaction of the journal, so no other process can interfere.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from reprlib import repr as repr_of
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.events_as_notes import told_of
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import InternalError, TaskTaken, UsageError
from chargehand.facts.board import Segment
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    Event,
    RetryHow,
    RetryPlanned,
)
from chargehand.facts.failure_policy import ABOUT_FAILURE
from chargehand.facts.outcome import Done, ErrorClass, Failed, Question
from chargehand.facts.scheduler_commands import (
    Command,
    OfferAttempt,
    Rank,
    StopAttempt,
)
from chargehand.journal.base import Entry, Tail

ENDINGS = (AttemptFinished, AttemptLost, AttemptPreempted, AttemptParked)
GONE = "the process that had it has died, or was silent for too long"
#: prefix of the ids of all pool requests
REQUEST = "request_"
#: importance of a failure
ERROR = 0.9
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


class Holder(Struct, frozen=True):
    """The worker and the process that are doing a task."""

    node: str
    worker: str
    attempt: int
    since_at: datetime


def _nothing_to_take(mail: int) -> None:
    raise InternalError(f"mail {mail} is to be taken where there is none")


class DecisionTime(Struct, frozen=True):
    """The time of a decision, the deciding process, and which processes are alive."""

    at: datetime
    node: str
    is_alive: Callable[[str], bool]
    #: takes mail in the same transaction
    take: Callable[[int], None] = _nothing_to_take


class Decision(Struct, frozen=True):
    """The result of a decision: the events to append, and an error if the decision was refused."""

    events: list[Event]
    refusal: UsageError | None = None


class LeaderlessRun:
    """The state of a request after its first `seq` events. Reads no clock and does no I/O."""

    def __init__(self, request: str) -> None:
        self.request = request
        self.seq = 0
        #: it may contain events that were never stored, so it must be dropped
        self.is_void = False
        self.live_run = LiveRun(request)
        #: holders of the running tasks, by task
        self.holders: dict[str, Holder] = {}
        #: tasks whose attempt was lost or preempted
        self.given_back: set[str] = set()
        #: attempts to stop: task, attempt, reason
        self.stops: deque[tuple[str, int, str]] = deque()
        #: offered tasks by worker or skill, each with the number of its next attempt
        self._queues: dict[str, list[tuple[Rank, int, str]]] = {}

    @property
    def schedule(self) -> Schedule:
        return self.live_run.schedule

    @property
    def is_pooled(self) -> bool:
        """Whether it is a request of a pool, not a run of a supervisor."""
        requested = self.schedule.requested
        return requested is not None and requested.approach is Approach.POOL

    @property
    def is_ended(self) -> bool:
        return self.schedule.status is not None

    def node(self, task: str) -> TaskNode:
        """The state of a task. Raises `UsageError` if there is no such task."""
        node = self.schedule.nodes.get(task)
        if node is None:
            raise UsageError(
                f"request {self.request!r} has no task {task!r}; tasks come from delegate and "
                "get_assigned_tasks"
            )
        return node

    # reading events

    @classmethod
    def begun(cls, request: str, events: Sequence[Event]) -> "LeaderlessRun":
        """A new request, of which exactly these events were just stored."""
        ledger = cls(request)
        for event in events:
            ledger._take_in(event, "")  # the author matters only for attempts
        return ledger

    def read(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        self._take_in(entry.event, entry.author)

    def catch_up(self, tail: Tail) -> bool:
        """Apply all new entries; returns False, and becomes void, if this state is ahead of the journal."""
        if self.is_void or tail.seq < self.seq:
            self.is_void = True
            return False
        for entry in tail.read(self.seq):
            self.read(entry)
        return True

    def void(self) -> None:
        """Mark this state as void, because its last events could not be stored."""
        self.is_void = True

    # deciding

    def write(self, event: Event, node: str) -> list[Event]:
        """Apply an event and everything that follows from it; returns the events to store."""
        last_at = self.schedule.last_at
        if last_at is not None and event.at < last_at:  # from the clock of another process
            event = replace(event, at=last_at)
        written: list[Event] = []
        commands = self.live_run.take(event, written)
        for each in written:
            self._note(each, node)
        self._carry(commands)
        self.seq += len(written)
        return written

    def tick(self, moment: DecisionTime) -> list[Event]:
        """Fire all due timers; returns the events to store."""
        written: list[Event] = []
        while (due := self.live_run.timers.pop(moment.at)) is not None:
            written += self.write(due[1], moment.node)
        return written

    def is_due(self, at: datetime) -> bool:
        """Whether a timer is due."""
        due_at = self.live_run.timers.next_due()
        return due_at is not None and due_at <= at

    def reap(self, moment: DecisionTime) -> Decision:
        """Fire due timers, and mark the attempts of dead processes as lost."""
        written = self.tick(moment)
        lives = {holder.node: moment.is_alive(holder.node) for holder in self.holders.values()}
        for task, holder in list(self.holders.items()):
            if not lives[holder.node]:
                written += self._lose(task, holder, moment)
        return Decision(written)

    def claim(self, task: str, worker: str, moment: DecisionTime) -> Decision:
        """Start a task, unless a live process is doing it."""
        node = self.node(task)
        written = self._free(task, moment)
        if node.state is not TaskState.READY or self.schedule.is_paused:
            return Decision(written, self._why_not(node))
        started = AttemptStarted(
            task=task,
            attempt=node.attempt + 1,
            worker=worker,
            why="it took the task from the pool",
            at=moment.at,
        )
        return Decision(written + self.write(started, moment.node))

    def next_for(self, names: Sequence[str]) -> str | None:
        """The most urgent task that is waiting for one of these workers or skills."""
        if self.schedule.is_paused:
            return None
        found = [queue[0] for name in names if (queue := self._queue(name))]
        return min(found)[2] if found else None

    def urgency_of(self, task: str) -> int:
        """The urgency of a task, or of a task that needs it, across all requests; larger goes first."""
        requested = self.schedule.requested
        return self.node(task).urgency + (0 if requested is None else requested.priority)

    def goes_on(self, names: Collection[str]) -> bool:
        """Whether these workers or skills can make progress without an answer or a decision."""
        if self.is_ended or self.holders or self.schedule.is_paused:
            return not self.is_ended
        nodes = self.schedule.nodes.values()
        return any(
            node.state is TaskState.RETRYING
            or (node.state is TaskState.READY and (node.task.worker or node.task.skill) in names)
            for node in nodes
        )

    @property
    def due_at(self) -> datetime | None:
        """When the next retry of a task is due."""
        nodes = self.schedule.nodes.values()
        dues = [node.due_at for node in nodes if node.state is TaskState.RETRYING and node.due_at]
        return min(dues, default=None)

    def settle(
        self, task: str, worker: str, outcome: Done | Failed, moment: DecisionTime
    ) -> Decision:
        """Record the outcome of a task that a worker did without claiming it first."""
        move = self.claim(task, worker, moment)
        if move.refusal is not None:
            return move
        attempt = self.node(task).attempt
        finished = AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=moment.at)
        return Decision(move.events + self.write(finished, moment.node))

    def reassign(self, task: str, worker: str, moment: DecisionTime) -> Decision:
        """Give a task that failed, or that no worker is doing, to another worker."""
        node = self.node(task)
        written = self._free(task, moment)
        if node.state not in (TaskState.READY, TaskState.ASKING, TaskState.RETRYING):
            return Decision(written, self._why_not(node))
        failure = node.last_failure
        is_wrong = failure is not None and failure.kind is ErrorClass.LOGIC
        planned = RetryPlanned(
            task=task,
            attempt=node.attempt,
            due_at=moment.at,
            # After a logic error, no recorded steps are reused; after other errors, they are.
            how=RetryHow.AFRESH if is_wrong else RetryHow.AGAIN,
            worker=worker,
            at=moment.at,
        )
        return Decision(written + self.write(planned, moment.node))

    # implementation

    def _take_in(self, event: Event, author: str) -> None:
        self.seq += 1
        commands = self.live_run.read(event)
        self._note(event, author)
        self._carry(commands)

    def _note(self, event: Event, author: str) -> None:
        """Update the holders of tasks."""
        if type(event) is AttemptStarted:
            holder = Holder(author, event.worker, event.attempt, event.at)
            self.holders[event.task] = holder
            self.given_back.discard(event.task)
        elif isinstance(event, ENDINGS):
            self.holders.pop(event.task, None)
            if isinstance(event, (AttemptLost, AttemptPreempted)):
                self.given_back.add(event.task)
        elif type(event) is RetryPlanned:
            self.given_back.discard(event.task)

    def _carry(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, StopAttempt):
                self.stops.append((command.task, command.attempt, command.reason))
            elif isinstance(command, OfferAttempt):
                queue = self._queues.setdefault(command.worker or command.skill, [])
                heappush(queue, (command.rank, command.attempt, command.task))

    def _queue(self, name: str) -> list[tuple[Rank, int, str]]:
        """The heap of offered tasks of a worker or skill; outdated entries at its top are removed."""
        queue = self._queues.get(name, [])
        while queue and not self._is_offered(name, queue[0][2], queue[0][1]):
            heappop(queue)
        return queue

    def _is_offered(self, name: str, task: str, attempt: int) -> bool:
        node = self.schedule.nodes[task]
        is_meant = name == (node.task.worker or node.task.skill)
        return is_meant and node.state is TaskState.READY and node.attempt + 1 == attempt

    def _free(self, task: str, moment: DecisionTime) -> list[Event]:
        """Fire due timers, and take the task back if its process is dead."""
        written = self.tick(moment)
        holder = self.holders.get(task)
        if holder is not None and not moment.is_alive(holder.node):
            written += self._lose(task, holder, moment)
        return written

    def _lose(self, task: str, holder: Holder, moment: DecisionTime) -> list[Event]:
        lost = AttemptLost(task=task, attempt=holder.attempt, reason=GONE, at=moment.at)
        return self.write(lost, moment.node)

    def _why_not(self, node: TaskNode) -> UsageError:
        """Why a task cannot be started or reassigned now."""
        task = node.task.id
        holder = self.holders.get(task)
        if holder is not None:
            return TaskTaken(task, holder.worker, holder.since_at, is_done=False)
        if node.state is TaskState.DONE:
            return TaskTaken(task, node.worker, node.since_at, is_done=True)
        if node.state is TaskState.ASKING and node.question is not None:
            return UsageError(
                f"task {task!r} waits for an answer to {node.question.id}; SupervisorAgent.answer "
                "gives it, and reassign_task takes the task away"
            )
        if self.schedule.is_paused and not node.state.is_settled:
            return UsageError(f"request {self.request!r} is paused; unpause it first")
        way_out = {
            TaskState.WAITING: "it can be taken once the tasks it needs are done",
            TaskState.RETRYING: "it can be taken once its provider may be called again",
        }.get(node.state, "delegate again what is still wanted")
        return UsageError(f"task {task!r} is {node.state.value}; {way_out}")


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
