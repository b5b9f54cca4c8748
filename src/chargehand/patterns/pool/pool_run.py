"""One request of a pool: its events folded, and what may be added to them, decided by the schedule.

Nobody leads such a run. Whoever comes folds the same events through the same `Schedule` as a leader
would, and adds to them inside the journal's own transaction, where nobody can come in between.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import InternalError, TaskTaken, UsageError
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
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.scheduler_commands import (
    Command,
    OfferAttempt,
    Rank,
    StopAttempt,
)
from chargehand.journal.base import Entry, Tail

ENDINGS = (AttemptFinished, AttemptLost, AttemptPreempted, AttemptParked)
GONE = "the process that had it has died, or was silent for too long"


class Holder(Struct, frozen=True):
    """Who has begun a task and not ended it."""

    node: str
    worker: str
    attempt: int
    since_at: datetime


def _nothing_to_take(mail: int) -> None:
    raise InternalError(f"mail {mail} is to be taken where there is none")


class DecisionTime(Struct, frozen=True):
    """When and by whom something is decided, and who else is there then."""

    at: datetime
    node: str
    is_alive: Callable[[str], bool]
    #: takes a letter together with what is decided
    take: Callable[[int], None] = _nothing_to_take


class Decision(Struct, frozen=True):
    """What was decided: what is to be appended, and why no more than that."""

    events: list[Event]
    refusal: UsageError | None = None


class PoolRun:
    """A request as its events tell it, up to the number `seq`. Holds no clock and does no I/O."""

    def __init__(self, request: str) -> None:
        self.request = request
        self.seq = 0
        #: it holds what was never stored, and is of no use any more
        self.is_void = False
        self.live_run = LiveRun(request)
        #: by task that is being done
        self.holders: dict[str, Holder] = {}
        #: tasks that somebody had begun and could not end
        self.given_back: set[str] = set()
        #: attempts that are to be told to stop, and why
        self.stops: deque[tuple[str, int, str]] = deque()
        #: by worker or skill: tasks that were offered, each with the number of its next attempt
        self._queues: dict[str, list[tuple[Rank, int, str]]] = {}

    @property
    def schedule(self) -> Schedule:
        return self.live_run.schedule

    @property
    def is_pooled(self) -> bool:
        """Whether it is a request of a pool, and not a run that a supervisor leads."""
        requested = self.schedule.requested
        return requested is not None and requested.approach is Approach.POOL

    @property
    def is_ended(self) -> bool:
        return self.schedule.status is not None

    def node(self, task: str) -> TaskNode:
        """What is known of a task. Raises `UsageError` if there is none."""
        node = self.schedule.nodes.get(task)
        if node is None:
            raise UsageError(
                f"request {self.request!r} has no task {task!r}; tasks come from delegate and "
                "get_assigned_tasks"
            )
        return node

    # what has happened

    @classmethod
    def begun(cls, request: str, events: Sequence[Event]) -> "PoolRun":
        """A request of which these events, and no more, were just stored."""
        ledger = cls(request)
        for event in events:
            ledger._take_in(event, "")  # whose they are counts only for attempts
        return ledger

    def read(self, entry: Entry) -> None:
        """Take in the next entry of the journal."""
        self._take_in(entry.event, entry.author)

    def catch_up(self, tail: Tail) -> bool:
        """Take in all that is there; False if this ledger knows of what is not."""
        if self.is_void or tail.seq < self.seq:
            self.is_void = True
            return False
        for entry in tail.read(self.seq):
            self.read(entry)
        return True

    def void(self) -> None:
        """What was written here last could not be stored."""
        self.is_void = True

    # what may happen

    def write(self, event: Event, node: str) -> list[Event]:
        """Take in what is said to have happened, with all that follows; returns what is to be stored."""
        last_at = self.schedule.last_at
        if last_at is not None and event.at < last_at:  # by the clock of another process
            event = replace(event, at=last_at)
        written: list[Event] = []
        commands = self.live_run.take(event, written)
        for each in written:
            self._note(each, node)
        self._carry(commands)
        self.seq += len(written)
        return written

    def tick(self, moment: DecisionTime) -> list[Event]:
        """Have all happen that is due by now."""
        written: list[Event] = []
        while (due := self.live_run.timers.pop(moment.at)) is not None:
            written += self.write(due[1], moment.node)
        return written

    def is_due(self, at: datetime) -> bool:
        """Whether something happens by itself now."""
        due_at = self.live_run.timers.next_due()
        return due_at is not None and due_at <= at

    def reap(self, moment: DecisionTime) -> Decision:
        """Take from those who are gone what they had begun."""
        written = self.tick(moment)
        lives = {holder.node: moment.is_alive(holder.node) for holder in self.holders.values()}
        for task, holder in list(self.holders.items()):
            if not lives[holder.node]:
                written += self._lose(task, holder, moment)
        return Decision(written)

    def claim(self, task: str, worker: str, moment: DecisionTime) -> Decision:
        """Begin a task, if nobody who is there has it."""
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
        """The most urgent task that waits for somebody of these names or skills."""
        if self.schedule.is_paused:
            return None
        found = [queue[0] for name in names if (queue := self._queue(name))]
        return min(found)[2] if found else None

    def urgency_of(self, task: str) -> int:
        """How urgent a task is among those of all requests, or one that waits for it; larger goes first."""
        requested = self.schedule.requested
        return self.node(task).urgency + (0 if requested is None else requested.priority)

    def goes_on(self, names: Collection[str]) -> bool:
        """Whether more of it will be done without anybody's word, if those of these names or skills work."""
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
        """When the first of its tasks is tried again."""
        nodes = self.schedule.nodes.values()
        dues = [node.due_at for node in nodes if node.state is TaskState.RETRYING and node.due_at]
        return min(dues, default=None)

    def settle(
        self, task: str, worker: str, outcome: Done | Failed, moment: DecisionTime
    ) -> Decision:
        """Take what somebody says came of a task, who did it without having begun it here."""
        move = self.claim(task, worker, moment)
        if move.refusal is not None:
            return move
        attempt = self.node(task).attempt
        finished = AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=moment.at)
        return Decision(move.events + self.write(finished, moment.node))

    def reassign(self, task: str, worker: str, moment: DecisionTime) -> Decision:
        """Give a task that failed, or that nobody has begun, to another worker."""
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
            # What led to a wrong result is not gone by again; all other steps are.
            how=RetryHow.AFRESH if is_wrong else RetryHow.AGAIN,
            worker=worker,
            at=moment.at,
        )
        return Decision(written + self.write(planned, moment.node))

    # how it is done

    def _take_in(self, event: Event, author: str) -> None:
        self.seq += 1
        commands = self.live_run.read(event)
        self._note(event, author)
        self._carry(commands)

    def _note(self, event: Event, author: str) -> None:
        """Keep who holds what."""
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
        """What waits for somebody of this name, the most urgent first, and nothing else before that."""
        queue = self._queues.get(name, [])
        while queue and not self._is_offered(name, queue[0][2], queue[0][1]):
            heappop(queue)
        return queue

    def _is_offered(self, name: str, task: str, attempt: int) -> bool:
        node = self.schedule.nodes[task]
        is_meant = name == (node.task.worker or node.task.skill)
        return is_meant and node.state is TaskState.READY and node.attempt + 1 == attempt

    def _free(self, task: str, moment: DecisionTime) -> list[Event]:
        """Have all happen that is due, and take the task from a holder who is gone."""
        written = self.tick(moment)
        holder = self.holders.get(task)
        if holder is not None and not moment.is_alive(holder.node):
            written += self._lose(task, holder, moment)
        return written

    def _lose(self, task: str, holder: Holder, moment: DecisionTime) -> list[Event]:
        lost = AttemptLost(task=task, attempt=holder.attempt, reason=GONE, at=moment.at)
        return self.write(lost, moment.node)

    def _why_not(self, node: TaskNode) -> UsageError:
        """Why a task can be neither begun nor given to another now."""
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
