"""One run: an event goes in, commands come out.

`apply` takes exactly the events that the journal stores, so recovery is replay: fold the stored
events through a new `Schedule`, then ask it for what is `outstanding`. Decisions that others must
be able to read (a retry, a task given up or skipped, the end) come out as `Record` commands, are
journaled in the same group as the event that caused them, and change the state only when they are
applied in turn. So replay never decides anything again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from chargehand.decisions.amendment import amendment_faults, unfinished
from chargehand.decisions.estimate import Estimates
from chargehand.decisions.graph import Graph, Node, TaskState, check_nodes
from chargehand.decisions.hourglass import Hourglass
from chargehand.decisions.retry import Again, History, RetryPolicy, draw_for, judge
from chargehand.errors import Fault, InternalError
from chargehand.facts.commands import (
    Command,
    OfferAttempt,
    Rank,
    Record,
    SetTimer,
    StopAttempt,
    WithdrawOffer,
)
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    Event,
    Pace,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    ProgressNoted,
    QuestionAnswered,
    QuestionExpired,
    ResultRefused,
    RetryDue,
    RetryHow,
    RetryPlanned,
    RunFinished,
    RunLed,
    RunReleased,
    RunRequested,
    RunStatus,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput
from chargehand.facts.plan import Task

RULES = 1
"""Version of the decisions in this room; a run is led by the rules it was requested under."""


class RunState(StrEnum):
    """Where a run stands that has not ended; an ended one has a `RunStatus`."""

    PLANNING = "planning"  #: there is no plan yet, or it is still being written
    RUNNING = "running"  #: something is running, ready or due
    WAITING = "waiting"  #: all that is left waits for a person
    STOPPING = "stopping"  #: cancelled or out of time; open attempts are told to stop


class Schedule:
    """Decides what one run does next. Holds no clock, no I/O, no outputs and no task of the event loop."""

    def __init__(self, retry: RetryPolicy | None = None) -> None:
        self.requested: RunRequested | None = None
        self.status: RunStatus | None = None
        self.epoch = 0
        self.version = 0
        self.last_at: datetime | None = None
        self._retry = retry or RetryPolicy()
        self._graph = Graph(lambda _: 1.0, lambda _: float("inf"))
        self.nodes = self._graph.nodes
        #: all tasks by id, in plan order; to be read only
        self._estimates_known = False
        self._priority = 0
        #: of the run, on top of that of its tasks
        self._is_sealed = False
        self._stop_reason = ""
        self._unsettled = 0
        self._live = 0
        self._open = 0
        self._glass = Hourglass()
        self._paces: dict[str, tuple[int, timedelta]] = {}
        self._amended: set[frozenset[str]] = set()

    # what is asked of it

    @property
    def state(self) -> RunState | RunStatus:
        if self.status is not None:
            return self.status
        if self._stop_reason:
            return RunState.STOPPING
        if not self._is_sealed:
            return RunState.PLANNING
        return RunState.RUNNING if self._live or not self._unsettled else RunState.WAITING

    @property
    def limits(self) -> Limits:
        """The caps that the run was requested under."""
        return self._request_of_run.limits

    @property
    def busy(self) -> timedelta:
        """The time of all finished attempts, one after another."""
        return sum((total for _, total in self._paces.values()), _NO_TIME)

    def admit(self, event: Event) -> Event | None:
        """What is to be written down when somebody reports `event`.

        That is the event itself, another in its place (a late result becomes `ResultRefused`), or
        nothing if it says nothing new. Changes no state.
        """
        if self.status is not None:
            return None
        match event:
            case AttemptFinished():
                return event if self._holds(event.task, event.attempt) else self._refusal(event)
            case AttemptLost() | AttemptPreempted() | StepFinished() | ProgressNoted():
                return event if self._holds(event.task, event.attempt) else None
            case StepStarted():
                is_open = self._holds(event.task, event.attempt)
                return event if is_open and not self._is_told_to_stop(event.task) else None
            case AttemptStarted():
                node = self.nodes[event.task]
                is_due = node.state is TaskState.READY and event.attempt == node.attempt + 1
                return event if is_due else None
            case RetryDue():
                node = self.nodes[event.task]
                is_due = node.state is TaskState.RETRYING and event.attempt == node.attempt
                return event if is_due else None
            case DeadlinePassed():
                return event if self._is_over(event) else None
            case QuestionAnswered():
                return event if self._is_answer(event) else None
            case QuestionExpired():
                return self._unanswered(event)
            case CancelRequested():
                return event if self._stop_reason != "cancelled" else None
            case PlanAmended():
                return None if self.check_amendment(event) else event
            case PlanAdopted() | PlanOpened():
                # A run has one plan; whatever comes later amends it.
                return None if self._stop_reason or self.version else event
            case TaskAdded() | PlanSealed():
                return None if self._stop_reason else event
            case _:
                return event

    def apply(self, event: Event) -> list[Command]:
        """Take in what has happened and say what is to be done about it."""
        before, self.last_at = self.last_at, event.at
        commands = self._change(event, before)
        if self._glass.is_late:
            self._glass.is_late = False
            commands = [*commands, *self._active_timer()]
        return commands

    def _change(self, event: Event, before: datetime | None) -> list[Command]:
        match event:
            case AttemptFinished():
                return self._finish(event)
            case AttemptStarted():
                return self._start(event)
            case StepFinished():
                # It gets somewhere, so losing its worker time and again is not its own doing.
                self.nodes[event.task].losses = 0
                return []
            case StepStarted() | ProgressNoted() | ResultRefused():
                return []
            case AttemptLost() | AttemptPreempted():
                return self._lose(event)
            case RetryPlanned():
                return self._plan_retry(event)
            case RetryDue():
                return [self._offer(self.nodes[event.task])]
            case TaskFailed():
                return self._give_up(event)
            case TaskSkipped():
                return self._skip(event)
            case DeadlinePassed():
                return self._expire(event)
            case QuestionAnswered():
                return self._answered(event)
            case QuestionExpired():
                return self._fail(self.nodes[event.task], _NOBODY_ANSWERED, event.at)
            case CancelRequested():
                return self._stop_all("cancelled", event.at)
            case RunRequested():
                return self._request(event)
            case RunLed():
                return self._be_led(event, before)
            case RunReleased():
                return []
            case PlanAdopted():
                self.version = event.plan.version
                return self._add_tasks(event.plan.tasks, seal=True, at=event.at)
            case PlanOpened():
                self.version = 1
                return self._timers()
            case TaskAdded():
                return self._add_tasks([event.task], seal=False, at=event.at)
            case PlanSealed():
                self._is_sealed = True
                self._note_idle(event.at)
                return self._end_if_settled(event.at)
            case PlanAmended():
                return self._amend(event)
            case RunFinished():
                self.status = event.status
                return []

    def outstanding(self) -> list[Command]:
        """What is to be done now by a process that has only just read the events so far."""
        if self.status is not None or self.last_at is None:
            return []
        commands: list[Command] = self._timers()
        for node in self.nodes.values():
            if node.state is TaskState.READY:
                commands.append(self._offer_of(node))
            elif node.state is TaskState.RETRYING and node.due_at is not None:
                retry = RetryDue(task=node.task.id, attempt=node.attempt, at=node.due_at)
                commands.append(SetTimer(node.due_at, retry))
            elif node.state is TaskState.ASKING:
                commands += self._patience(node)
            if node.task.deadline is not None and not node.state.is_settled:
                commands.append(self._task_timer(node))
        return commands + self._end_if_settled(self.last_at)

    def check_amendment(self, event: PlanAmended) -> list[Fault]:
        """Everything that speaks against this change of plan."""
        if self._stop_reason or self.status is not None or not self._is_sealed:
            return [Fault("ended", "", "the run is stopping, has ended, or has no whole plan yet")]
        return list(amendment_faults(self.nodes, event, self.version, self.limits, self._amended))

    def check(self) -> None:
        """State the invariants; the tests call this after every event."""
        counts = check_nodes(self.nodes.values(), self.limits, is_stopping=bool(self._stop_reason))
        assert counts == (self._live, self._unsettled, self._open), "the counts are off"
        if self.status is not None:
            assert not self._unsettled, "the run ended before its tasks"

    # attempts

    def _start(self, event: AttemptStarted) -> list[Command]:
        node = self.nodes[event.task]
        node.state = TaskState.RUNNING
        node.attempt = event.attempt
        node.is_open = True
        node.worker = event.worker
        node.started_at = event.at
        self._open += 1
        return []

    def _finish(self, event: AttemptFinished) -> list[Command]:
        node = self.nodes[event.task]
        node.is_open = False
        self._open -= 1
        outcome = event.outcome
        if type(outcome) is Done:
            self._learn(node, event.at)
            return self._settle(node, TaskState.DONE, event.at)
        node.state = TaskState.RETRYING
        node.due_at = None
        if isinstance(outcome, NeedsInput) and not self._is_told_to_stop(event.task):
            node.state = TaskState.ASKING
            node.question = outcome.question
            self._live -= 1
            self._note_idle(event.at)
            if outcome.question.patience is not None:
                node.due_at = event.at + outcome.question.patience
            return self._patience(node)
        if self._is_told_to_stop(event.task):
            return self._stopped(node, event.at)
        if isinstance(outcome, Cancelled):
            outcome = Failed(
                kind=ErrorClass.CANCELLED, message=outcome.reason or "it was cancelled"
            )
        assert isinstance(outcome, Failed)
        return self._judge(node, outcome, event.at)

    def _judge(self, node: Node, failure: Failed, at: datetime) -> list[Command]:
        node.tries += 1
        deadline = self._graph.deadline_of(node.task)
        history = History(
            tries=node.tries,
            attempts=node.task.limits.attempts or self.limits.attempts,
            at=at,
            deadline_at=None if deadline == float("inf") else self._instant(deadline),
            has_others=bool(node.task.skill),
        )
        draw = draw_for(self._request_of_run.seed, node.task.id, node.attempt)
        verdict = judge(self._retry, failure, history, draw)
        if isinstance(verdict, Again):
            planned = RetryPlanned(
                task=node.task.id,
                attempt=node.attempt,
                due_at=verdict.due_at,
                how=verdict.how,
                at=at,
            )
            return [Record(planned)]
        return self._fail(node, verdict.cause, at)

    def _plan_retry(self, event: RetryPlanned) -> list[Command]:
        node = self.nodes[event.task]
        node.due_at = event.due_at
        match event.how:
            case RetryHow.AFRESH | RetryHow.REWRITTEN:
                node.lineage += 1
            case RetryHow.ELSEWHERE:
                node.avoid = (*node.avoid, node.worker)
            case RetryHow.AGAIN:
                pass
        if event.due_at <= event.at:
            return [self._offer(node)]
        return [
            SetTimer(
                event.due_at, RetryDue(task=event.task, attempt=event.attempt, at=event.due_at)
            )
        ]

    def _lose(self, event: AttemptLost | AttemptPreempted) -> list[Command]:
        node = self.nodes[event.task]
        node.is_open = False
        self._open -= 1
        node.losses += 1
        node.state = TaskState.RETRYING
        node.due_at = None
        if self._is_told_to_stop(event.task):
            return self._stopped(node, event.at)
        if node.losses > self.limits.losses:
            why = f"its worker was lost {node.losses} times without getting on; it may be killing them"
            return self._fail(node, Failed(kind=ErrorClass.RESOURCE, message=why), event.at)
        return [self._offer(node)]

    def _stopped(self, node: Node, at: datetime) -> list[Command]:
        if self._stop_reason == "cancelled" or node.is_removed:
            return self._settle(node, TaskState.CANCELLED, at)
        return self._fail(node, _OUT_OF_TIME, at)

    def _learn(self, node: Node, at: datetime) -> None:
        assert node.started_at is not None
        count, total = self._paces.get(node.worker, (0, _NO_TIME))
        self._paces[node.worker] = (count + 1, total + (at - node.started_at))

    # settling

    def _settle(self, node: Node, state: TaskState, at: datetime) -> list[Command]:
        """Put a node where it stays, and release what may go on without anything more."""
        if node.state.is_live:
            self._live -= 1
        node.state = state
        self._unsettled -= 1
        commands: list[Command] = []
        if not self._stop_reason:
            for dependent in node.dependents:
                if state is TaskState.DONE or node.task.id in dependent.optional_needs:
                    dependent.unmet -= 1
                    if not dependent.unmet and not (
                        dependent.is_doomed or dependent.state.is_settled
                    ):
                        commands.append(self._offer(dependent))
                elif not dependent.is_doomed and not dependent.state.is_settled:
                    commands.append(self._doom(dependent, node, at))
            self._note_idle(at)
        if not self._unsettled:
            commands += self._end_if_settled(at)
        return commands

    def _doom(self, dependent: Node, node: Node, at: datetime) -> Command:
        dependent.is_doomed = True
        root = node.why if node.state is TaskState.SKIPPED else node.task.id
        why = f"it needs {node.task.id}, which {_WORDS[node.state]}"
        return Record(TaskSkipped(task=dependent.task.id, cause=root, why=why, at=at))

    def _fail(self, node: Node, cause: Failed, at: datetime) -> list[Command]:
        return [Record(TaskFailed(task=node.task.id, cause=cause, at=at))]

    def _give_up(self, event: TaskFailed) -> list[Command]:
        node = self.nodes[event.task]
        withdrawn = self._withdraw(node)
        node.cause = event.cause
        node.question = None
        return withdrawn + self._settle(node, TaskState.FAILED, event.at)

    def _skip(self, event: TaskSkipped) -> list[Command]:
        node = self.nodes[event.task]
        node.why = event.cause
        return self._settle(node, TaskState.SKIPPED, event.at)

    def _end_if_settled(self, at: datetime) -> list[Command]:
        if self._unsettled or self.status is not None or not (self._is_sealed or self._stop_reason):
            return []
        required = [
            node for node in self.nodes.values() if not node.task.optional and not node.is_removed
        ]
        missing = tuple(node.task.id for node in required if node.state is not TaskState.DONE)
        if self._stop_reason == "cancelled":
            status = RunStatus.CANCELLED
        elif not missing and self._is_sealed:
            status = RunStatus.SUCCEEDED
        elif any(node.state is TaskState.DONE for node in self.nodes.values()):
            status = RunStatus.PARTIAL
        else:
            status = RunStatus.FAILED
        paces = {
            worker: Pace(count, total / count) for worker, (count, total) in self._paces.items()
        }
        return [
            Record(
                RunFinished(
                    status=status, reason=self._stop_reason, missing=missing, paces=paces, at=at
                )
            )
        ]

    # stopping

    def _expire(self, event: DeadlinePassed) -> list[Command]:
        if not event.task:
            return self._stop_all("out of time", event.at)
        node = self.nodes[event.task]
        if node.is_open:
            node.is_expired = True
            return self._stop(node, "its deadline has passed", event.at)
        return self._fail(node, _OUT_OF_TIME, event.at)

    def _stop_all(self, reason: str, at: datetime) -> list[Command]:
        self._stop_reason = reason
        ending = TaskState.CANCELLED if reason == "cancelled" else TaskState.SKIPPED
        commands: list[Command] = []
        for node in self.nodes.values():
            if node.is_open:
                commands += self._stop(node, reason, at)
            elif not node.state.is_settled:
                commands += self._withdraw(node)
                if node.state.is_live:
                    self._live -= 1
                node.state = ending
                node.question = None
                self._unsettled -= 1
        return commands + self._end_if_settled(at)

    def _stop(self, node: Node, reason: str, at: datetime) -> list[Command]:
        grace = self.limits.grace
        silent = f"it did not stop within {grace.total_seconds():g} s of being told to"
        lost = AttemptLost(task=node.task.id, attempt=node.attempt, reason=silent, at=at + grace)
        return [StopAttempt(node.task.id, node.attempt, reason, grace), SetTimer(at + grace, lost)]

    def _withdraw(self, node: Node) -> list[Command]:
        return [WithdrawOffer(node.task.id)] if node.state is TaskState.READY else []

    # offers

    def _offer(self, node: Node) -> Command:
        if not node.state.is_live:
            self._live += 1
            if self._glass.stands_still and self.last_at is not None:
                self._glass.go_on(self.last_at)
        node.state = TaskState.READY
        node.question = None
        node.due_at = None
        return self._offer_of(node)

    def _offer_of(self, node: Node) -> OfferAttempt:
        task = node.task
        latest = node.deadline - node.path if self._estimates_known else node.deadline
        rank = Rank(-node.urgency - self._priority, node.deadline, latest, -node.path, node.order)
        return OfferAttempt(task.id, node.attempt + 1, task.worker, task.skill, rank, node.avoid)

    # questions

    def _patience(self, node: Node) -> list[Command]:
        if node.due_at is None or node.question is None:
            return []
        expired = QuestionExpired(question=node.question.id, task=node.task.id, at=node.due_at)
        return [SetTimer(node.due_at, expired)]

    def _answered(self, event: QuestionAnswered) -> list[Command]:
        return [self._offer(self.nodes[event.task])]

    def _unanswered(self, event: QuestionExpired) -> Event | None:
        node = self._asks(event.task, event.question)
        if node is None or node.question is None:
            return None
        if node.question.default is None:
            return event
        return QuestionAnswered(
            question=event.question,
            task=event.task,
            text=node.question.default,
            by="default",
            at=event.at,
        )

    def _is_answer(self, event: QuestionAnswered) -> bool:
        node = self._asks(event.task, event.question)
        return node is not None and node.question is not None and node.question.accepts(event.text)

    def _asks(self, task: str, question: str) -> Node | None:
        node = self.nodes.get(task)
        is_open = node is not None and node.question is not None and node.question.id == question
        return node if is_open else None

    # the run

    def _request(self, event: RunRequested) -> list[Command]:
        self.requested = event
        estimates = Estimates(event.paces)
        self._estimates_known = bool(event.paces)
        self._priority = event.priority
        start = event.at.timestamp()
        run_deadline = float("inf") if event.deadline_at is None else event.deadline_at.timestamp()
        self._graph = Graph(
            estimates.seconds,
            lambda task: (
                run_deadline
                if task.deadline is None
                else min(run_deadline, start + task.deadline.total_seconds())
            ),
        )
        self.nodes = self._graph.nodes
        return []

    def _be_led(self, event: RunLed, before: datetime | None) -> list[Command]:
        if self.epoch and before is not None and not self._glass.stands_still:
            # Nobody led the run meanwhile: a run that is resumed on Monday has not been active
            # since Friday.
            self._glass.leave_out(event.at - before)
        self.epoch = event.epoch
        return [
            Record(
                AttemptLost(
                    task=node.task.id,
                    attempt=node.attempt,
                    reason="the process that led the run ended",
                    at=event.at,
                )
            )
            for node in self.nodes.values()
            if node.is_open
        ]

    def _add_tasks(self, tasks: Sequence[Task], *, seal: bool, at: datetime) -> list[Command]:
        is_first = not self.nodes
        fresh = self._graph.add(tasks)
        self._unsettled += len(fresh)
        self._is_sealed = self._is_sealed or seal
        self._estimates_known = self._estimates_known or any(node.task.expect for node in fresh)
        commands: list[Command] = self._timers() if is_first and seal else []
        for node in self._graph.lifted:
            if node.state is TaskState.READY:  # it waits in the queue under its old rank
                commands += [WithdrawOffer(node.task.id), self._offer_of(node)]
        for node in fresh:
            if node.task.deadline is not None:
                commands.append(self._task_timer(node))
            lost = self._lost_need(node)
            if lost is not None:
                commands.append(self._doom(node, lost, at))
            elif not node.unmet:
                commands.append(self._offer(node))
        return commands

    def _lost_need(self, node: Node) -> Node | None:
        """A required need of a new task that has come to nothing already."""
        for need in node.task.all_needs:
            upstream = self.nodes[need.task]
            is_lost = upstream.state.is_settled and upstream.state is not TaskState.DONE
            if is_lost and not need.optional:
                return upstream
        return None

    def _amend(self, event: PlanAmended) -> list[Command]:
        self.version = event.version
        self._amended.add(unfinished(self.nodes))
        commands: list[Command] = []
        for task in event.removed:
            node = self.nodes[task]
            node.is_removed = True
            if node.is_open:
                commands += self._stop(node, "the plan was changed", event.at)
            else:
                commands += self._withdraw(node)
                if node.state.is_live:
                    self._live -= 1
                node.state = TaskState.CANCELLED
                node.question = None
                self._unsettled -= 1
        commands += self._add_tasks(event.added, seal=False, at=event.at)
        self._note_idle(event.at)
        return commands + self._end_if_settled(event.at)

    # time

    def _timers(self) -> list[Command]:
        deadline_at = self._request_of_run.deadline_at
        if deadline_at is not None:
            return [SetTimer(deadline_at, DeadlinePassed(at=deadline_at))]
        return self._active_timer()

    def _active_timer(self) -> list[Command]:
        if self._request_of_run.deadline_at is not None:
            return []
        due_at = self._glass.runs_out_at(self._request_of_run.at, self.limits.active)
        return [SetTimer(due_at, DeadlinePassed(at=due_at))]

    def _task_timer(self, node: Node) -> SetTimer:
        assert node.task.deadline is not None
        due_at = self._request_of_run.at + node.task.deadline
        return SetTimer(due_at, DeadlinePassed(task=node.task.id, at=due_at))

    def _is_over(self, event: DeadlinePassed) -> bool:
        if event.task:
            return not self.nodes[event.task].state.is_settled and not self._is_told_to_stop(
                event.task
            )
        if self._stop_reason:
            return False
        if self._request_of_run.deadline_at is not None:
            return event.at >= self._request_of_run.deadline_at
        return self._glass.has_run_out(self._request_of_run.at, self.limits.active, event.at)

    def _note_idle(self, at: datetime) -> None:
        if not self._live and self._unsettled and self._is_sealed:
            self._glass.stop(at)

    # small questions

    def _holds(self, task: str, attempt: int) -> bool:
        node = self.nodes.get(task)
        return node is not None and node.is_open and node.attempt == attempt

    def _is_told_to_stop(self, task: str) -> bool:
        node = self.nodes[task]
        return bool(self._stop_reason) or node.is_expired or node.is_removed

    def _refusal(self, event: AttemptFinished) -> Event | None:
        node = self.nodes.get(event.task)
        if node is None:
            return None
        return ResultRefused(
            task=event.task,
            attempt=event.attempt,
            reported=type(event.outcome).__name__,
            why=f"the task is {node.state.value} at attempt {node.attempt}",
            at=event.at,
        )

    def _instant(self, seconds: float) -> datetime:
        start = self._request_of_run.at
        return start + timedelta(seconds=seconds - start.timestamp())

    @property
    def _request_of_run(self) -> RunRequested:
        if self.requested is None:
            raise InternalError("a run's first event must be RunRequested")
        return self.requested


_NO_TIME = timedelta(0)
_OUT_OF_TIME = Failed(kind=ErrorClass.TIMEOUT, message="its deadline has passed")
_NOBODY_ANSWERED = Failed(kind=ErrorClass.TIMEOUT, message="nobody answered its question in time")
_WORDS = {
    TaskState.FAILED: "failed",
    TaskState.SKIPPED: "was skipped",
    TaskState.CANCELLED: "was cancelled",
}
