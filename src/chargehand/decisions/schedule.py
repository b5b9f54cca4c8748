"""The schedule of one run: an event goes in, commands come out.

`apply` takes exactly the events that the journal stores, so recovery is replay: apply the stored events to a
new `Schedule`, then ask it for the `outstanding` commands. Decisions that others must be able to read (a
retry, a failed or skipped task, the end of the run) are returned as `Record` commands. They are written in
the same group as the event that caused them, and change the state only when they are applied as events.
Replay therefore never decides anything again.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.deadlines import CANCELLED, OUT_OF_TIME, Deadlines
from chargehand.decisions.duration_estimates import Estimates, WorkTimes, least_time
from chargehand.decisions.hedging import LAST, Hedges, may_begin
from chargehand.decisions.plan_amendment import Amendments
from chargehand.decisions.questions import budget_after, is_answer, patience, unanswered
from chargehand.decisions.retry import (
    Again,
    GiveUp,
    History,
    Verdict,
    draw_for,
    judge,
    question_about,
    set_aside,
)
from chargehand.decisions.system_tasks import (
    ANSWER,
    COLLECTOR,
    LISTER,
    PLAN,
    PLANNER,
    REFINER,
    Planning,
    answering,
    asking_for_more,
    drafting,
    has_results,
    hedged,
    is_hedge,
    is_system_task,
    is_void,
    listing,
    missing_of,
    of_plan,
    refining,
)
from chargehand.decisions.task_graph import (
    Membership,
    TaskGraph,
    TaskNode,
    TaskState,
    check_nodes,
    shown_state,
)
from chargehand.errors import Fault, InternalError
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptHeldUp,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    AttemptWentOn,
    BudgetChanged,
    CancelRequested,
    DeadlinePassed,
    Event,
    HedgeDue,
    ItemsListed,
    PersonAsked,
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
    RunPaused,
    RunReleased,
    RunRequested,
    RunStatus,
    RunSteered,
    RunUnpaused,
    StartMissed,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.failure_policy import (
    ABOUT_BUDGET,
    ABOUT_FAILURE,
    GO_ON_WITHOUT,
    TRY_AGAIN,
    OnFailure,
    Recourse,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput, Question
from chargehand.facts.plan import Strategy, Task, item_id, item_of
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import (
    Command,
    OfferAttempt,
    Rank,
    Record,
    SetTimer,
    StopAttempt,
    WithdrawOffer,
)
from chargehand.facts.value import Value

_S = TaskState
_CANCELLED = "the run was cancelled, or the task was removed from the plan"
TRANSITIONS: dict[tuple[TaskState, TaskState], str] = {
    (_S.WAITING, _S.READY): "its needs are met; with `for_each`: all its items have ended",
    (_S.WAITING, _S.ASKING): (
        "it is the system task that asks a person whether the run may spend more"
    ),
    (_S.WAITING, _S.FAILED): (
        "its deadline has passed; with `for_each`: its items could not be listed, or too few of them are done"
    ),
    (_S.WAITING, _S.SKIPPED): "a required need failed or was skipped, or the run was stopped",
    (_S.WAITING, _S.CANCELLED): _CANCELLED,
    (_S.READY, _S.READY): "in a pool, it was given to another worker",
    (_S.READY, _S.RUNNING): "an attempt was started",
    (_S.READY, _S.FAILED): (
        "its deadline has passed, or it can no longer finish before the deadline"
    ),
    (_S.READY, _S.SKIPPED): "the run was stopped",
    (_S.READY, _S.CANCELLED): (
        f"{_CANCELLED}; or it is a hedge or an `@refine` task that is no longer needed"
    ),
    (_S.RUNNING, _S.RETRYING): (
        "the attempt failed, or was lost, preempted or parked; or chargehand stopped the attempt. In the last case, the "
        "task moves straight on to `cancelled` or `failed`"
    ),
    (_S.RUNNING, _S.ASKING): "the attempt asks a person",
    (_S.RUNNING, _S.DONE): "the attempt returned a result",
    (_S.RUNNING, _S.CANCELLED): "it is a hedge that failed or was slower than the first attempt",
    (_S.RETRYING, _S.READY): "the wait is over, and it is tried again",
    (_S.RETRYING, _S.ASKING): "a person is asked what to do about the failure",
    (_S.RETRYING, _S.FAILED): (
        "its failure policy allows no further try, its deadline has passed, or its attempt was stopped because the run "
        "was stopped"
    ),
    (_S.RETRYING, _S.SKIPPED): "the run was stopped during the wait",
    (_S.RETRYING, _S.CANCELLED): _CANCELLED,
    (_S.ASKING, _S.READY): (
        "the question was answered; or, in a pool, it was given to another worker"
    ),
    (_S.ASKING, _S.DONE): "it asked whether the run may spend more, and the budget was changed",
    (_S.ASKING, _S.FAILED): (
        "no answer came in time, the answer was to give up, or its deadline has passed"
    ),
    (_S.ASKING, _S.SKIPPED): "the run was stopped",
    (_S.ASKING, _S.CANCELLED): _CANCELLED,
}
"""Which state of a task leads to which, and when. `Schedule.check` raises after any other change."""

for _before, _after in TRANSITIONS:
    _before.next_bits |= _after.bit


class RunState(StrEnum):
    """The state of a run that has not ended; a run that has ended has a `RunStatus`."""

    SUBMITTED = "submitted"  #: stored with `post`; no process has started it yet
    PLANNING = "planning"  #: there is no plan yet, or it is still being written
    RUNNING = "running"  #: a task is running, ready or due for a retry
    WAITING = "waiting"  #: all remaining work waits for a person, or for a model provider that is unavailable
    PAUSED = "paused"  #: a person has paused the run; nothing new is started
    STOPPING = "stopping"  #: the run was cancelled, or its time or budget is used up; running attempts are told to stop


__all__ = ["RULES", "TRANSITIONS", "RunState", "Schedule"]

#: version of the scheduling rules; stored with each run in `RunRequested`
RULES = 1

#: events about a whole run or its plan
_OfRun: TypeAlias = (
    RunRequested
    | RunLed
    | RunReleased
    | RunPaused
    | RunUnpaused
    | RunSteered
    | RunFinished
    | BudgetChanged
    | CancelRequested
    | WorkStopped
    | PlanAdopted
    | PlanOpened
    | TaskAdded
    | PlanSealed
    | PlanAmended
)

#: causes of tasks that fail although no attempt failed
EXPIRED = Failed(kind=ErrorClass.TIMEOUT, message="its deadline has passed")

TOO_LATE = Failed(
    kind=ErrorClass.TIMEOUT,
    message="it was not started: there was less time left than it takes at least",
)
#: reason of a run that pauses although no person paused it
SPENT = "the budget is used up"

NO_ITEMS = Failed(kind=ErrorClass.LOGIC, message="its items could not be listed")

UNANSWERED = Failed(kind=ErrorClass.TIMEOUT, message="nobody answered its question in time")


def unanswered_by(event: QuestionExpired, question: Question | None) -> Failed:
    """The cause of a task that fails because its question expired. `why` quotes the question, hence its taint."""
    if not event.why:
        return UNANSWERED
    taint = () if question is None else question.taint
    return Failed(kind=ErrorClass.DENIED, message=event.why, taint=taint)


def too_few(task: Task, items: Sequence[TaskNode], done: int) -> Failed:
    """The cause of a task with `for_each` that fails because too few of its items are done."""
    wanted = "none could be done" if task.at_least is None else f"at_least={task.at_least}"
    lost = [item for item in items if item.state is not TaskState.DONE]
    causes = [item.cause for item in lost if item.cause is not None]
    first = f"; {lost[0].task.id}: {lost[0].cause or lost[0].state.value}" if lost else ""
    return Failed(
        kind=causes[0].kind if causes else ErrorClass.LOGIC,
        message=f"{done} of {len(items)} items are done, {wanted}{first}",
        taint=tuple(dict.fromkeys(source for cause in causes for source in cause.taint)),
    )


def lost_too_often(losses: int, most: int, event: AttemptLost | AttemptPreempted) -> Failed:
    """The cause of a task that fails because it may be killing its workers. It quotes how the last one ended."""
    reason, taint = (event.reason, event.taint) if isinstance(event, AttemptLost) else ("", ())
    last = f" (the last time: {' '.join(reason.split())[:LONGEST_REASON]})" if reason else ""
    return Failed(
        kind=ErrorClass.RESOURCE,
        message=f"its worker was lost {losses} times without getting on{last}; it may be killing them; "
        f"Limits(losses={most}) sets how often it may be lost",
        taint=taint,
    )


USUAL_RETRY = RetryPolicy()

#: characters of a reason that is quoted
LONGEST_REASON = 300

#: beginning of the reason when a timer reports an attempt lost
SILENT = "it did not stop within"


class HaltRequest(Struct, frozen=True):
    """A person's wish to cancel, stop or pause a run."""

    #: cancelled, stopped or paused
    what: str
    by: str
    reason: str

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"{self.what}{by}" + (f": {self.reason}" if self.reason else "")


class Schedule:
    """Decides what one run does next. Holds no clock and no outputs; does no I/O."""

    def __init__(self, retry: RetryPolicy | None = None) -> None:
        self.requested: RunRequested | None = None
        self.status: RunStatus | None = None
        #: why the run ended this way, if its tasks do not show it
        self.reason = ""
        #: why the run is parked: no process leads it before a person resumes it; empty: it is not parked
        self.parked = ""
        self.epoch = 0
        #: the last `RunLed` with a changed crew that a person accepted
        self.accepted: RunLed | None = None
        #: who cancelled, stopped or paused the run last, and why
        self.halt: HaltRequest | None = None
        #: when the last leader started to lead the run
        self.led_at: datetime | None = None
        #: the process that leads the run, or died leading it; empty: none ever did, or it released the run
        self.leader = ""
        self.version = 0
        self.instruction = ""
        self.strategy = Strategy.MERGE
        self.last_at: datetime | None = None
        #: since when the run is paused
        self.paused_at: datetime | None = None
        self._own_retry = self._retry = retry or USUAL_RETRY
        self._graph = TaskGraph(lambda _: 1.0, lambda _: float("inf"))
        #: all tasks by id, in plan order; to be read only
        self.nodes = self._graph.nodes
        self._estimates_known = False
        #: priority of the run, added to that of its tasks
        self._priority = 0
        self._is_sealed = False
        self._stop_reason = ""
        #: the stop reason with the cap or the person behind it, for the gaps
        self._stop_words = ""
        #: numbers of tasks that are not settled, live, running
        self._unsettled = 0
        self._live = 0
        self._open = 0
        #: tasks that wait for a provider: whether the wait has reached its limit
        self.parked_tasks: dict[str, bool] = {}
        #: running tasks whose nested run only waits for people
        self.held_up_tasks: set[str] = set()
        #: tasks whose description is to be rewritten before the next try
        self.unclear_tasks: set[str] = set()
        #: the first change of a task's state that `TRANSITIONS` does not allow; empty: none
        self._illegal = ""
        self._deadlines = Deadlines()
        self._planning = Planning()
        self._drafts = 0
        self._times = WorkTimes()
        self._amendments = Amendments()
        self._hedges = Hedges()
        #: by task with `for_each`: the items that are listed so far
        self.listed: dict[str, list[Value]] = {}
        #: by task with `for_each` whose items are tasks by now: how many; it waits for them, then collects the results
        self.mapped: dict[str, int] = {}
        self._short: TaskNode | None = None
        #: whether a person paused the run, and not only the empty budget
        self._is_halted = False

    @property
    def state(self) -> RunState | RunStatus:
        if self.status is not None:
            return self.status
        if self._stop_reason:
            return RunState.STOPPING
        if self.is_paused:
            # What is held up waits for the same budget, below.
            is_idle = self._open == len(self.held_up_tasks)
            return RunState.WAITING if self.is_short and is_idle else RunState.PAUSED
        if self.is_cut_off:
            return RunState.WAITING
        if self.is_being_planned and not self._is_unclear():
            return RunState.PLANNING
        if self._moving or not self._unsettled or self.parked_tasks:
            return RunState.RUNNING
        return RunState.WAITING

    @property
    def is_cut_off(self) -> bool:
        """Whether the run cannot continue because its provider was unavailable for too long."""
        return not self._moving and any(self.parked_tasks.values())

    @property
    def stop_reason(self) -> str:
        """Why the run is stopping and starts no further task; empty if it is not stopping."""
        return self._stop_reason

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def open_attempts(self) -> int:
        """How many attempts are running."""
        return self._open

    @property
    def is_short(self) -> bool:
        """Whether the run waits for a person to raise the budget; it is paused until then."""
        return self._short is not None

    @property
    def shortage_question(self) -> str:
        """The id of the open question whether the run may spend more; empty if there is none."""
        asked = None if self._short is None else self._short.question
        return "" if asked is None else asked.id

    @property
    def is_being_planned(self) -> bool:
        """Whether the first plan is not complete yet: tasks may still be added to it."""
        return self.status is None and not self._stop_reason and not self._is_sealed

    @property
    def limits(self) -> Limits:
        """The limits in the request of the run."""
        return self._request_of_run.limits

    @property
    def busy(self) -> timedelta:
        """The total time of all successful attempts."""
        return self._times.total

    @property
    def is_winding_up(self) -> bool:
        """Whether the work was stopped so that an answer is composed from the results so far."""
        return self._stop_reason not in ("", CANCELLED)

    def work_ends_at(self, task: str) -> datetime | None:
        """When an attempt at this task is stopped at the latest, if that is known."""
        deadline = self._graph.deadline_of(self.nodes[task].task)
        ends = [] if deadline == float("inf") else [self._instant(deadline)]
        stops_at = self._deadlines.ends_at if task == ANSWER else self._deadlines.work_ends_at()
        return min([*ends, stops_at] if stops_at is not None else ends, default=None)

    def why_not_steered(self) -> str:
        """Why the run can no longer be steered; empty if it can."""
        if self.status is not None:
            return f"it has ended ({self.status})"
        if self._stop_reason:
            return "it is stopping"
        if self._request_of_run.approach is Approach.POOL:
            return (
                "it belongs to a pool, in which no process leads it and no model changes its plan"
            )
        return "its answer is being composed already" if ANSWER in self.nodes else ""

    def policy_of(self, task: str) -> OnFailure | None:
        """The failure policy of this task: its own, else that of its worker, else that of the run."""
        node, policies = self.nodes[task], self._request_of_run.policies
        if node.task.on_failure is not None or not policies or is_system_task(task):
            return node.task.on_failure
        worker = node.failed_first or node.worker or node.task.worker
        return policies.get(worker) or policies.get("")

    def _terms_of(self, task: str) -> OnFailure | None:
        """The failure policy for attempts at this task.

        The policy of a task with `for_each` is for its items and for the task as a whole. An attempt that
        collects the results is retried as usual, without asking a person.
        """
        return None if task in self.mapped else self.policy_of(task)

    def may_begin(self, step: StepStarted) -> bool:
        """Whether a step may start, apart from the budget."""
        is_open = self.status is None and self._holds(step.task, step.attempt)
        return is_open and not self._is_told_to_stop(step.task) and may_begin(step)

    def check_amendment(self, event: PlanAmended) -> list[Fault]:
        """All faults of a proposed plan change."""
        if self._stop_reason or self.status is not None or not self._is_sealed:
            return [Fault("ended", "", "the run is stopping, has ended, or has no whole plan yet")]
        if ANSWER in self.nodes:
            return [Fault("ended", "", "the answer is being composed from what there is")]
        return list(self._amendments.faults(event, self.nodes, self.version, self.limits))

    def check(self) -> None:
        """Check the invariants; the tests call this after every event."""
        assert not self._illegal, self._illegal
        counts = check_nodes(self.nodes.values(), self.limits, is_stopping=bool(self._stop_reason))
        assert counts == (self._live, self._unsettled, self._open), "the counts are off"
        for states, tasks in (
            (TaskState.RETRYING, self.parked_tasks),
            (TaskState.RUNNING, self.held_up_tasks),
        ):
            for task in tasks:
                assert self.nodes[task].state is states, f"{self.nodes[task]} waits for others"
        if self.status is not None:
            assert not self._unsettled, "the run ended before its tasks"

    def live_tasks(self) -> list[str]:
        """The tasks through which the run can continue by itself, in plan order."""
        idle = {*self.parked_tasks, *self.held_up_tasks}
        return [id_ for id_, node in self.nodes.items() if node.state.is_live and id_ not in idle]

    @property
    def _moving(self) -> int:
        """How many live tasks wait neither for a provider nor for people."""
        return self._live - len(self.parked_tasks) - len(self.held_up_tasks)

    def _move(self, node: TaskNode, state: TaskState) -> None:
        """Change the state of a task. No other code does."""
        before = node.state
        if not before.next_bits & state.bit:
            self._illegal = self._illegal or f"{node} became {state.value}"
        self._live += state.is_live - before.is_live
        self._unsettled -= state.is_settled
        node.state = state

    def _is_unclear(self) -> bool:
        """Whether the planner waits for a person to clarify the request."""
        return PLAN in self.nodes and self.nodes[PLAN].state is TaskState.ASKING

    def _is_all_there(self) -> bool:
        """Whether no planner is writing the first plan at the moment."""
        return self._is_sealed or PLAN in self.parked_tasks or self._is_unclear()

    def _holds(self, task: str, attempt: int) -> bool:
        node = self.nodes.get(task)
        return node is not None and node.is_open and node.attempt == attempt

    def _is_told_to_stop(self, task: str) -> bool:
        node = self.nodes[task]
        is_expired = task in self._deadlines.expired_tasks
        if self._stop_reason != CANCELLED and self._sums_up(task):
            return is_expired
        is_removed = node.membership is Membership.REMOVED
        return bool(self._stop_reason) or is_expired or is_removed

    def _sums_up(self, task: str) -> bool:
        """Whether this task only uses existing results, so that it runs even if the work is stopped."""
        if task == ANSWER:
            return not self._deadlines.is_closed
        return task in self.mapped and self.nodes[task].membership is Membership.PLANNED

    def state_of(self, task: str) -> TaskState:
        """The state of a task as people see it: a task that waits for its items is shown in their state."""
        return shown_state(self.nodes[task], self.nodes)

    def worker_of(self, task: str) -> str:
        """The last worker of a task; for a task with `for_each`, that of its items."""
        node = self.nodes[task]
        if node.worker != COLLECTOR:
            return node.worker
        had = (item.worker for item in self._items_of(node) if item.worker)
        return next(had, node.task.worker or node.task.skill)

    @property
    def _may_hedge(self) -> bool:
        return self._request_of_run.hedges and not self._stop_reason

    def _instant(self, seconds: float) -> datetime:
        start = self._request_of_run.at
        return start + timedelta(seconds=seconds - start.timestamp())

    @property
    def _request_of_run(self) -> RunRequested:
        if self.requested is None:
            raise InternalError("a run's first event must be RunRequested")
        return self.requested

    # Events of the run and its plan.

    def apply(self, event: Event) -> list[Command]:
        """Apply an event and return the commands that follow from it."""
        before, self.last_at = self.last_at, event.at
        commands = self._change_task(event, before)
        if self._deadlines.active_time.is_late:
            self._deadlines.active_time.is_late = False
            commands = [*commands, *self._deadlines.active_timer()]
        return commands if self.paused_at is None else self._unless_paused(commands)

    def _change_task(self, event: Event, before: datetime | None) -> list[Command]:
        match event:
            case AttemptFinished():
                return self._finish(event)
            case AttemptStarted():
                return self._start(event)
            case StepFinished():
                # It makes progress, so the task is not the reason why its workers are lost.
                self.nodes[event.task].losses = 0
                return []
            case StepStarted() | ProgressNoted() | ResultRefused():
                return []
            case AttemptLost() | AttemptPreempted():
                return self._lose(event)
            case AttemptParked():
                return self._park(event)
            case AttemptHeldUp():
                return self._hold_up(self.nodes[event.task], event.at)
            case AttemptWentOn():
                return self._go_on(self.nodes[event.task], event.at)
            case RetryPlanned():
                return self._plan_retry(event)
            case RetryDue():
                return [self._try_again(self.nodes[event.task])]
            case TaskRewritten():
                return self._rewrite(event)
            case ItemsListed():
                known = self.listed.setdefault(event.task, [])
                known[event.first :] = event.items
                return []
            case HedgeDue():
                return self._hedge(self.nodes[event.task])
            case PersonAsked() if event.question.about == ABOUT_BUDGET:
                return self._ask_for_more(event)
            case PersonAsked():
                return self._await_answer(self.nodes[event.task], event.question, event.at)
            case TaskFailed():
                return self._give_up(event)
            case TaskSkipped():
                return self._skip(event)
            case DeadlinePassed():
                return self._expire(event)
            case StartMissed():
                return self._miss_start(self.nodes[event.task], event.at)
            case QuestionAnswered():
                return self._go_by(event)
            case QuestionExpired():
                node = self.nodes[event.task]
                return self._fail(node, unanswered_by(event, node.question), event.at)
            case _:
                return self._change_run(event, before)

    def _change_run(self, event: _OfRun, before: datetime | None) -> list[Command]:
        match event:
            case CancelRequested():
                self.halt = HaltRequest("cancelled", event.by, event.reason)
                return self._stop_all(CANCELLED, event.at)
            case WorkStopped():
                if event.by:
                    self.halt = HaltRequest("stopped", event.by, event.reason)
                stopped = self._stop_all(event.reason, event.at, event.by)
                return [*stopped, *self._deadlines.close(event.at)]
            case RunRequested():
                return self._request(event)
            case RunLed():
                return self._be_led(event, before)
            case RunReleased():
                self.leader, self.parked = "", event.reason if event.is_parked else ""
                return []
            case BudgetChanged():
                return self._have_more(event)
            case RunPaused():
                self.halt = HaltRequest("paused", event.by, event.reason)
                return self._pause(event.at)
            case RunUnpaused():
                self.halt = None
                return self._unpause(event.at)
            case RunSteered():
                planning = self._planning.after_note(self.version)
                return [] if planning is None else [self._take_on(planning)]
            case PlanAdopted():
                self.version = event.plan.version
                self.instruction, self.strategy = event.plan.instruction, event.plan.strategy
                commands = self._add_tasks(event.plan.tasks, seal=True, at=event.at)
                self._taint(event.plan.tasks, event.plan.taint)
                return commands
            case PlanOpened():
                self.version = 1
                self.instruction, self.strategy = event.instruction, event.strategy
                return [] if self.nodes else self._deadlines.timers()
            case TaskAdded():
                commands = self._add_tasks([event.task], seal=False, at=event.at)
                self._taint([event.task], event.taint)
                return commands
            case PlanSealed():
                self._is_sealed = True
                self._note_idle(event.at)
                return self._end_if_settled(event.at)
            case PlanAmended():
                return self._amend(event)
            case RunFinished():
                self.status, self.reason = event.status, event.reason
                return []

    def outstanding(self) -> list[Command]:
        """The commands that a process must carry out after it has applied all events so far."""
        if self.status is not None or self.last_at is None:
            return []
        commands: list[Command] = self._deadlines.timers()
        for node in self.nodes.values():
            if node.state is TaskState.READY:
                commands.append(self._offer_of(node))
            elif node.state is TaskState.RETRYING and node.due_at is not None:
                retry = RetryDue(task=node.task.id, attempt=node.attempt, at=node.due_at)
                commands.append(SetTimer(node.due_at, retry))
            elif node.state is TaskState.ASKING:
                commands += patience(node)
            if node.task.deadline is not None and not node.state.is_settled:
                commands.append(self._task_timer(node))
        return self._unless_paused(commands + self._end_if_settled(self.last_at))

    def _request(self, event: RunRequested) -> list[Command]:
        self.requested = event
        estimates = Estimates(event.paces)
        self._estimates_known = bool(event.paces)
        self._priority = event.priority
        start = event.at.timestamp()
        run_deadline = float("inf") if event.deadline_at is None else event.deadline_at.timestamp()
        self._graph = TaskGraph(
            estimates.seconds,
            lambda task: (
                run_deadline
                if task.deadline is None
                else min(run_deadline, start + task.deadline.total_seconds())
            ),
        )
        self.nodes = self._graph.nodes
        self._deadlines.requested = event
        planning = self._planning.first(event)
        return [] if planning is None else [*self._deadlines.timers(), self._take_on(planning)]

    def _be_led(self, event: RunLed, before: datetime | None) -> list[Command]:
        if self.epoch and before is not None and not self._deadlines.active_time.stands_still:
            # No process led the run since the last event: a run that is resumed on Monday was not active
            # since Friday.
            self._deadlines.active_time.leave_out(event.at - before)
        self.epoch, self.led_at, self.leader, self.parked = event.epoch, event.at, event.node, ""
        self._retry = event.retry or self._own_retry
        self.accepted = event if event.crew else self.accepted
        self.parked_tasks = dict.fromkeys(self.parked_tasks, False)  # the new leader waits again
        return [
            Record(
                AttemptLost(
                    task=node.task.id,
                    attempt=node.attempt,
                    reason="the process that led the run ended",
                    at=event.at,
                )
            )
            # Hedges first: the end of the first attempt would also end its hedge.
            for node in sorted(self.nodes.values(), key=lambda node: not is_hedge(node.task.id))
            if node.is_open
        ]

    def _add_tasks(self, tasks: Sequence[Task], *, seal: bool, at: datetime) -> list[Command]:
        is_first = not self.nodes
        fresh = self._add_nodes(tasks)
        for node in fresh:
            node.since_at = at
        self._is_sealed = self._is_sealed or seal
        self._hedges.are_wanted |= any(task.hedge for task in tasks)
        self._estimates_known = self._estimates_known or any(node.task.expect for node in fresh)
        commands: list[Command] = self._deadlines.timers() if is_first and seal else []
        for node in self._lifted():
            if node.state is TaskState.READY:  # it is in the queue with its old rank
                commands += [WithdrawOffer(node.task.id), self._offer_of(node)]
        for node in fresh:
            if node.task.deadline is not None:
                commands.append(self._task_timer(node))
            lost = self._lost_need(node)
            if lost is not None:
                commands.append(self._doom(node, lost, at))
            elif not node.unmet:
                commands.append(self._begin(node))
        return commands

    def _lifted(self) -> Iterator[TaskNode]:
        """The older nodes that the newest nodes made more urgent, and their items."""
        for node in self._graph.lifted:
            yield node
            if node.task.id in self.mapped:
                items = self._items_of(node)
                self._graph.weigh_items(items, node)
                yield from items

    def _add_nodes(self, tasks: Sequence[Task]) -> list[TaskNode]:
        fresh = self._graph.add(tasks)
        self._unsettled += len(fresh)
        return fresh

    def _taint(self, tasks: Sequence[Task], sources: tuple[str, ...]) -> None:
        if sources:
            for task in tasks:
                self.nodes[task.id].taint = sources

    def _lost_need(self, node: TaskNode) -> TaskNode | None:
        """A required need of a new task that has already ended without a result."""
        for need in node.task.all_needs:
            upstream = self.nodes[need.task]
            is_lost = upstream.state.is_settled and upstream.state is not TaskState.DONE
            if is_lost and not (need.optional or upstream.is_waived):
                return upstream
        return None

    def _amend(self, event: PlanAmended) -> list[Command]:
        self.version = event.version
        self._amendments.apply(event, self.nodes)
        for task in event.replaced:
            if self.nodes[task].membership is Membership.PLANNED:
                self.nodes[task].membership = Membership.REPLACED
        commands: list[Command] = []
        for task in event.removed:
            node = self.nodes[task]
            for each in (node, *self._items_of(node)):
                each.membership = Membership.REMOVED
                if each.is_open:
                    commands += self._stop(each, "the plan was changed", event.at)
                else:
                    commands += self._halt(each, TaskState.CANCELLED, event.at)
        commands += self._add_tasks(event.added, seal=False, at=event.at)
        self._taint(event.added, event.taint)
        self._note_idle(event.at)
        return commands + self._end_if_settled(event.at)

    def _task_timer(self, node: TaskNode) -> SetTimer:
        assert node.task.deadline is not None
        due_at = self._request_of_run.at + node.task.deadline
        return SetTimer(due_at, DeadlinePassed(task=node.task.id, at=due_at))

    # Reports: late, repeated and outdated reports change nothing.

    def admit(self, event: Event) -> Event | None:
        """The event to record when `event` is reported.

        It is `event` itself, another event in its place (a late result becomes `ResultRefused`), or None if
        the report says nothing new. Changes no state.
        """
        if self.status is not None:
            return None
        match event:
            case AttemptFinished():
                return event if self._holds(event.task, event.attempt) else self._refusal(event)
            case (
                AttemptLost()
                | AttemptPreempted()
                | AttemptParked()
                | StepFinished()
                | ProgressNoted()
            ):
                return event if self._holds(event.task, event.attempt) else None
            case AttemptHeldUp() | AttemptWentOn():
                is_new = (event.task in self.held_up_tasks) is isinstance(event, AttemptWentOn)
                return event if is_new and self._holds(event.task, event.attempt) else None
            case StepStarted():
                return event if self.may_begin(event) else None
            case HedgeDue():
                return event if self._is_straggling(event) else None
            case AttemptStarted() | StartMissed():
                node = self.nodes[event.task]
                is_next = node.state is TaskState.READY and event.attempt == node.attempt + 1
                return event if is_next else None
            case RetryDue():
                node = self.nodes[event.task]
                is_due = node.state is TaskState.RETRYING and event.attempt == node.attempt
                return event if is_due else None
            case DeadlinePassed():
                return event if self._is_over(event) else None
            case QuestionAnswered():
                return event if is_answer(self.nodes, event) else None
            case QuestionExpired():
                return unanswered(self.nodes, event)
            case CancelRequested():
                return event if self._stop_reason != CANCELLED else None
            case WorkStopped():
                return None if self._stop_reason else event
            case RunPaused():
                return None if self._stop_reason or self._is_halted else event
            case RunUnpaused():
                return event if self._is_halted else None
            case PersonAsked():
                is_known = self._short is not None or event.task in self.nodes
                return None if self._stop_reason or is_known else event
            case RunSteered():
                return None if self.why_not_steered() else event
            case _:
                return event if self._admits_plan(event) else None

    def _admits_plan(self, event: Event) -> bool:
        """Whether a report about the plan is valid and says something new; other events always do."""
        match event:
            case TaskRewritten():
                return self._is_rewritable(event)
            case ItemsListed():
                return self._may_list(event)
            case PlanAmended():
                return not self.check_amendment(event)
            case PlanAdopted() | PlanOpened():
                # A run has one plan; later changes must amend it.
                return not self._stop_reason and not self.version
            case TaskAdded():
                return self._may_add(event.task)
            case PlanSealed():
                return not self._stop_reason and not self._is_sealed
            case _:
                return True

    def is_moot(self, event: Event) -> bool:
        """Whether a decision is outdated by an earlier one: a run that stops settles many tasks at once."""
        match event:
            case AttemptFinished() | AttemptLost():
                return not self._holds(event.task, event.attempt)
            case RetryPlanned() | PersonAsked() | TaskFailed() | TaskSkipped():
                return self.nodes[event.task].state.is_settled
            case _:
                return False

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

    def _may_add(self, task: Task) -> bool:
        is_open = bool(self.version) and not self._is_sealed and not self._stop_reason
        has_room = len(of_plan(self.nodes)) < self.limits.tasks
        needs = [need.task for need in task.all_needs]
        is_known = all(need in self.nodes for need in needs) and of_plan(needs) == needs
        is_new = task.id not in self.nodes and not is_system_task(task.id)
        return is_open and has_room and is_known and is_new

    def _may_list(self, event: ItemsListed) -> bool:
        node = self.nodes.get(event.task)
        is_waiting = node is not None and node.state is TaskState.WAITING
        is_next = event.first in (0, len(self.listed.get(event.task, ())))
        # If the list of this task is started again, its earlier items do not count twice.
        others = sum(len(items) for id_, items in self.listed.items() if id_ != event.task)
        has_room = others + event.first + len(event.items) <= self.limits.items
        return is_waiting and event.task not in self.mapped and is_next and has_room

    def _is_rewritable(self, event: TaskRewritten) -> bool:
        node = self.nodes.get(event.task)
        if node is None or node.state is not TaskState.RETRYING:
            return False
        return event.task in self.unclear_tasks and node.attempt == event.attempt

    def _is_straggling(self, event: HedgeDue) -> bool:
        is_open = self._holds(event.task, event.attempt)
        is_free = is_open and not self._is_told_to_stop(event.task) and not self.is_paused
        return is_free and event.task not in self._hedges.beside

    def _is_over(self, event: DeadlinePassed) -> bool:
        if event.task:
            return not self.nodes[event.task].state.is_settled and not self._is_told_to_stop(
                event.task
            )
        return self._deadlines.are_over(event.at, self._stop_reason)

    # Offers, and the decisions that follow when a task has settled.

    def _begin(self, node: TaskNode) -> Command:
        """Start a task whose needs are met: offer it, or have its items listed first."""
        if node.task.for_each is None:
            return self._offer(node)
        node.unmet = 1  # until its items are known
        return self._take_on(listing(node.task.id))

    def _offer(self, node: TaskNode) -> Command:
        is_idle = not node.state.is_live or self._unpark(node)
        self._move(node, TaskState.READY)
        if (
            is_idle
            and self._deadlines.active_time.stands_still
            and not self.is_paused
            and self.last_at is not None
        ):
            self._deadlines.active_time.go_on(self.last_at)
        node.since_at = self.last_at
        node.question = None
        node.due_at = None
        return self._offer_of(node)

    def _unpark(self, node: TaskNode) -> bool:
        """Whether the task was parked until now."""
        return self.parked_tasks.pop(node.task.id, None) is not None

    def _offer_of(self, node: TaskNode) -> OfferAttempt:
        task = node.task
        latest = node.deadline - node.path if self._estimates_known else node.deadline
        urgency = LAST if is_hedge(task.id) else -node.urgency - self._priority
        rank = Rank(urgency, node.deadline, latest, -node.path, node.order)
        number, latest_at = node.attempt + 1, self._latest_start(node)
        if task.id in self.mapped:
            return OfferAttempt(task.id, number, COLLECTOR, "", rank)
        return OfferAttempt(task.id, number, task.worker, task.skill, rank, node.avoid, latest_at)

    def _latest_start(self, node: TaskNode) -> datetime | None:
        """When a task must start at the latest to meet its deadline; None if there is none or it is not known."""
        task, requested = node.task, self._request_of_run
        if task.deadline is None and requested.deadline_at is None:
            return None
        # A task that was started before, or whose result may be reused, may take less time.
        is_own = is_system_task(task.id) and not is_hedge(task.id)
        if node.attempt or requested.reuses or is_own:
            return None
        least, ends_at = least_time(task, requested.paces), self.work_ends_at(task.id)
        return None if least is None or ends_at is None else ends_at - least

    def _withdraw(self, node: TaskNode) -> list[Command]:
        return [WithdrawOffer(node.task.id)] if node.state is TaskState.READY else []

    def _note_idle(self, at: datetime) -> None:
        if not self._moving and self._unsettled and self._is_all_there():
            self._deadlines.active_time.stop(at)

    def _settle(self, node: TaskNode, state: TaskState, at: datetime) -> list[Command]:
        """Move a task to a final state, and start or skip the tasks that need it."""
        if self.parked_tasks:
            self._unpark(node)
        self._move(node, state)
        commands = self._drop_rewriting(node, at)
        if not self._stop_reason:
            for dependent in node.dependents:
                is_optional = node.is_waived or node.task.id in dependent.optional_needs
                if state is TaskState.DONE or is_optional:
                    dependent.unmet -= 1
                    if not dependent.unmet and not (
                        dependent.is_doomed or dependent.state.is_settled
                    ):
                        commands.append(self._begin(dependent))
                elif not dependent.is_doomed and not dependent.state.is_settled:
                    commands.append(self._doom(dependent, node, at))
            if is_system_task(node.task.id):
                commands += self._discharge(node)
            if self._request_of_run.drafts:
                commands += self._draft()
        if node.membership is Membership.ITEM:
            commands += self._count_off(node, at)
        if not self._stop_reason:
            self._note_idle(at)
        if not self._unsettled:
            commands += self._end_if_settled(at)
        return commands

    def _drop_rewriting(self, node: TaskNode, at: datetime) -> list[Command]:
        """Cancel the rewriting of a task that has ended, unless it has started."""
        task = node.task.id
        if task not in self.unclear_tasks:
            return []
        self.unclear_tasks.remove(task)
        refiner = self.nodes.get(refining(task, node.attempt).id)
        if refiner is None or refiner.attempt:
            return []
        return self._halt(refiner, TaskState.CANCELLED, at)

    def _doom(self, dependent: TaskNode, node: TaskNode, at: datetime) -> Command:
        root = node.why if node.state is TaskState.SKIPPED else node.task.id
        dependent.why = root
        why = f"it needs {node.task.id}, which {_WORDS[node.state]}"
        return Record(TaskSkipped(task=dependent.task.id, cause=root, why=why, at=at))

    def _end_if_settled(self, at: datetime) -> list[Command]:
        if self._unsettled or self.status is not None or not (self._is_sealed or self._stop_reason):
            return []
        system_task = self._next_system_task()
        if system_task is not None:
            return [self._take_on(system_task)]
        missing = missing_of(self.nodes, self._request_of_run, self.strategy)
        if self._stop_reason == CANCELLED:
            status = RunStatus.CANCELLED
        elif not missing and self._is_sealed and not is_void(self.nodes):
            status = RunStatus.SUCCEEDED
        elif has_results(self.nodes):
            status = RunStatus.PARTIAL
        else:
            status = RunStatus.FAILED
        paces = {
            worker: pace
            for worker, pace in self._times.paces().items()
            if not is_system_task(worker)
        }
        return [
            Record(
                RunFinished(
                    status=status, reason=self._stop_reason, missing=missing, paces=paces, at=at
                )
            )
        ]

    def _take_on(self, system_task: Task) -> Command:
        """Add a system task and offer it at once."""
        return self._offer(self._add_nodes([system_task])[0])

    def _next_system_task(self) -> Task | None:
        """The system task that must run before the run can end, now that no task is left; None if there is none."""
        requested = self._request_of_run
        if self._stop_reason == CANCELLED or self._deadlines.is_closed:
            return None
        step = None if self._stop_reason else self._planning.step(requested, self.version)
        return step or answering(self.nodes, requested)

    def _draft(self) -> list[Command]:
        """Draft the answer while the last attempts are running and no other task is left to start."""
        if not self._is_sealed or self._moving > self._open:
            return []
        system_task = drafting(self.nodes, self._drafts + 1)
        if system_task is None:
            return []
        self._drafts += 1
        return [self._take_on(system_task)]

    def _discharge(self, node: TaskNode) -> list[Command]:
        """Continue after a system task has ended."""
        task = node.task
        if task.worker == REFINER:
            target = self.nodes[task.args["task"]]
            is_unclear = target.task.id in self.unclear_tasks
            if target.state is not TaskState.RETRYING or not is_unclear:
                return []
            self.unclear_tasks.remove(target.task.id)  # it is retried even if the rewriting failed
            return [self._offer(target)]
        if task.worker == LISTER:
            return self._expand(self.nodes[task.args["task"]], node)
        if task.id == PLAN:
            self._is_sealed = True
        if not task.id.startswith(PLAN):
            return []
        again = self._planning.after_planning(self._request_of_run, self.version)
        return [] if again is None else [self._take_on(again)]

    def _plan_again(self, node: TaskNode) -> list[Command]:
        """Plan again after a task failed, if that may help."""
        # Another plan does not help if time has run out.
        if self._stop_reason or node.task.id in self._deadlines.expired_tasks:
            return []
        again = self._planning.after_failure(node, self._request_of_run, self.version)
        return [] if again is None else [self._take_on(again)]

    # Stopping and pausing.

    def _stop(self, node: TaskNode, reason: str, at: datetime) -> list[Command]:
        grace = self.limits.grace
        silent = f"{SILENT} {grace.total_seconds():g} s of being told to"
        lost = AttemptLost(task=node.task.id, attempt=node.attempt, reason=silent, at=at + grace)
        return [StopAttempt(node.task.id, node.attempt, reason, grace), SetTimer(at + grace, lost)]

    def _halt(self, node: TaskNode, ending: TaskState, at: datetime) -> list[Command]:
        if node.is_open:
            return self._stop(node, self._stop_reason, at)
        if node.state.is_settled:
            return []
        withdrawn = self._withdraw(node)
        self._unpark(node)
        self._move(node, ending)
        node.stopped = OUT_OF_TIME if self._deadlines.is_closed else self._stop_words
        node.question = None
        if node.membership is Membership.ITEM:
            self._mapped_by(node).unmet -= 1
        return withdrawn + self._drop_rewriting(node, at)

    def _stop_all(self, reason: str, at: datetime, detail: str = "") -> list[Command]:
        self._stop_reason = reason
        self._stop_words = f"{reason} ({detail})" if detail else reason
        self._short, self._is_halted = None, False
        was_paused, self.paused_at = self.is_paused, None
        ending = TaskState.CANCELLED if reason == CANCELLED else TaskState.SKIPPED
        commands: list[Command] = []
        for node in self.nodes.values():
            if self._is_told_to_stop(node.task.id):
                commands += self._halt(node, ending, at)
            elif was_paused and node.state is TaskState.READY:
                commands.append(self._offer_of(node))  # such as the answer; it may start now
        for task in self.mapped:
            if not self.nodes[task].unmet:
                commands += self._collect(self.nodes[task], at)
        return commands + self._end_if_settled(at)

    def _run_out(self, at: datetime) -> list[Command]:
        """End the run's time; if the run had no deadline, the time for composing the answer is added."""
        if self._deadlines.has_time_to_answer():
            return [*self._stop_all(OUT_OF_TIME, at), *self._deadlines.close(at)]
        self._deadlines.is_closed = True
        if not self._stop_reason:
            return self._stop_all(OUT_OF_TIME, at)
        answer = self.nodes.get(ANSWER)
        halted = [] if answer is None else self._halt(answer, TaskState.SKIPPED, at)
        return halted + self._end_if_settled(at)

    def _pause(self, at: datetime) -> list[Command]:
        """Pause the run: withdraw all offers. The kernel preempts the running attempts."""
        # An empty budget pauses the run once by itself. Any other pause, before or after, comes from a person.
        self._is_halted = self.is_paused or not self.is_short
        if self.is_paused:
            return []
        self.paused_at = at
        self._deadlines.active_time.stop(at)
        return [command for node in self.nodes.values() for command in self._withdraw(node)]

    def _unpause(self, at: datetime) -> list[Command]:
        self._is_halted = False
        if self.is_short:
            return []  # the person no longer pauses the run, but the empty budget still does
        self.paused_at = None
        if self._moving or not self._is_all_there():
            self._deadlines.active_time.go_on(at)
        ready = [node for node in self.nodes.values() if node.state is TaskState.READY]
        return [self._offer_of(node) for node in ready]

    def _unless_paused(self, commands: list[Command]) -> list[Command]:
        """The commands without offers while the run is paused; `_unpause` offers the ready tasks."""
        if not self.is_paused:
            return commands
        return [command for command in commands if type(command) is not OfferAttempt]

    # Failures, retries and questions.

    def _judge(self, node: TaskNode, failure: Failed, at: datetime) -> list[Command]:
        node.tries += 1
        node.last_failure = failure
        node.failed_first = node.failed_first or node.worker
        before, node.failures = node.failures, (*node.failures, failure.kind)
        is_mapped = node.task.id in self.mapped
        history = History(
            tries=node.tries,
            attempts=self._attempts_of(node, failure),
            at=at,
            deadline_at=self.work_ends_at(node.task.id),
            has_others=bool(node.task.skill) and not is_mapped,
            worker=node.worker,
            has_untried=bool(node.task.skill) and not is_mapped and node.worker not in node.avoid,
            refines=self._request_of_run.refines
            and not (is_mapped or is_system_task(node.task.id)),
            terms=self._terms_of(node.task.id),
            before=before,
        )
        draw = draw_for(self._request_of_run.seed, node.task.id, node.attempt)
        verdict = judge(self._retry, failure, history, draw)
        if is_mapped and isinstance(verdict, GiveUp):
            return self._fail(node, verdict.cause, at)
        return self._conclude(node, verdict, at)

    def _conclude(self, node: TaskNode, verdict: Verdict, at: datetime) -> list[Command]:
        """Record the verdict about a failed task."""
        task, attempt = node.task.id, node.attempt
        if isinstance(verdict, Again):
            planned = RetryPlanned(
                task=task,
                attempt=attempt,
                due_at=verdict.due_at,
                how=verdict.how,
                worker=verdict.worker,
                at=at,
            )
            return [Record(planned)]
        if isinstance(verdict, GiveUp):
            failed = TaskFailed(task=task, cause=verdict.cause, then=verdict.then, at=at)
            return [Record(failed)]
        run, terms = self._request_of_run.run, self.policy_of(task)
        question = question_about(run, node, terms, self._item_of(task))
        return [Record(PersonAsked(task=task, attempt=attempt, question=question, at=at))]

    def _attempts_of(self, node: TaskNode, failure: Failed) -> int:
        most = node.task.limits.attempts or self.limits.attempts
        is_nonsense = ErrorClass.LOGIC in (failure.kind, *node.failures)
        if is_nonsense and is_system_task(node.task.id):
            # The attempt told the model what was wrong, several times. Only the answer gets another attempt.
            return min(most, 2) if node.task.id == ANSWER else 1
        return most

    def _plan_retry(self, event: RetryPlanned) -> list[Command]:
        node = self.nodes[event.task]
        node.due_at = event.due_at
        node.granted += self._terms_of(event.task) is not None
        if event.worker:
            node.task = replace(node.task, worker=event.worker, skill="")
        match event.how:
            case RetryHow.AFRESH:
                node.lineage += 1
            case RetryHow.REWRITTEN:
                node.lineage += 1
                self.unclear_tasks.add(event.task)
            case RetryHow.ELSEWHERE:
                node.avoid = (*node.avoid, node.worker)
            case RetryHow.AGAIN:
                pass
        if event.due_at <= event.at:
            return [self._try_again(node)]
        return [
            SetTimer(
                event.due_at, RetryDue(task=event.task, attempt=event.attempt, at=event.due_at)
            )
        ]

    def _try_again(self, node: TaskNode) -> Command:
        if node.task.id not in self.unclear_tasks:
            return self._offer(node)
        node.due_at = None
        return self._take_on(refining(node.task.id, node.attempt))

    def _rewrite(self, event: TaskRewritten) -> list[Command]:
        node = self.nodes[event.task]
        node.task = replace(node.task, description=event.description)
        node.taint = tuple(dict.fromkeys((*node.taint, *event.taint)))
        return []

    def _miss_start(self, node: TaskNode, at: datetime) -> list[Command]:
        """Fail a task that can no longer meet its deadline; a hedge is only cancelled."""
        if is_hedge(node.task.id):
            return [*self._withdraw(node), *self._settle(node, TaskState.CANCELLED, at)]
        return self._fail(node, TOO_LATE, at)

    def _fail(self, node: TaskNode, cause: Failed, at: datetime) -> list[Command]:
        # In a run that is stopping, the failure has no further consequences.
        terms = None if self._stop_reason else self.policy_of(node.task.id)
        return self._conclude(node, set_aside(cause, terms, may_ask=False), at)

    def _give_up(self, event: TaskFailed) -> list[Command]:
        node = self.nodes[event.task]
        withdrawn = self._withdraw(node)
        node.cause = event.cause
        node.question = None
        node.recourse = event.then
        if event.then is Recourse.FAIL_RUN and not self._stop_reason:
            return withdrawn + self._fail_run(node, event.at)
        # Plan again before the task settles: otherwise the run could end first.
        is_item = node.membership is Membership.ITEM  # its task counts for all items
        again = [] if node.is_waived or is_item else self._plan_again(node)
        return withdrawn + again + self._settle(node, TaskState.FAILED, event.at)

    def _fail_run(self, node: TaskNode, at: datetime) -> list[Command]:
        """Stop the run because of this task; the answer is composed from the results so far."""
        # Set the reason before the task settles, so that dependent tasks are stopped like all others.
        self._stop_reason = self._stop_words = f"{node.task.id} failed"
        settled = self._settle(node, TaskState.FAILED, at)
        return [*settled, *self._stop_all(self._stop_reason, at), *self._deadlines.close(at)]

    def _skip(self, event: TaskSkipped) -> list[Command]:
        node = self.nodes[event.task]
        node.why = event.cause
        return self._settle(node, TaskState.SKIPPED, event.at)

    def _stopped(self, node: TaskNode, at: datetime) -> list[Command]:
        if self._stop_reason == CANCELLED or node.membership is Membership.REMOVED:
            return self._settle(node, TaskState.CANCELLED, at)
        if self._stop_reason in ("", OUT_OF_TIME):
            return self._fail(node, EXPIRED, at)
        why = f"it was stopped: {self._stop_words}"
        return self._fail(node, Failed(kind=ErrorClass.CANCELLED, message=why), at)

    def _expire(self, event: DeadlinePassed) -> list[Command]:
        if not event.task:
            return self._run_out(event.at)
        if event.task in self.mapped:
            return []  # its items have the same deadline; the results that are in time are collected
        node = self.nodes[event.task]
        self._deadlines.expired_tasks.add(event.task)
        if node.is_open:
            return self._stop(node, "its deadline has passed", event.at)
        return self._fail(node, EXPIRED, event.at)

    def _await_answer(self, node: TaskNode, question: Question, at: datetime) -> list[Command]:
        self._move(node, TaskState.ASKING)
        node.question = question
        self._note_idle(at)
        if question.patience is not None:
            node.due_at = at + question.patience
        return patience(node)

    def _go_by(self, event: QuestionAnswered) -> list[Command]:
        node = self.nodes[event.task]
        question, failure = node.question, node.last_failure
        if question is not None and question.about == ABOUT_BUDGET:
            return [Record(budget_after(question, event))]
        if question is None or question.about != ABOUT_FAILURE or failure is None:
            return [self._offer(node)]
        if event.text == TRY_AGAIN:
            node.losses = 0
            how = RetryHow.AFRESH if failure.kind is ErrorClass.LOGIC else RetryHow.AGAIN
            return self._conclude(node, Again(event.at, how), event.at)
        then = Recourse.WITHOUT if event.text == GO_ON_WITHOUT else Recourse.FAIL
        return self._conclude(node, GiveUp(failure, then), event.at)

    def _ask_for_more(self, event: PersonAsked) -> list[Command]:
        """Pause because the budget is used up, until a person has answered whether the run may spend more."""
        node = self._add_nodes([asking_for_more(event.task)])[0]
        self._move(node, TaskState.ASKING)
        node.question, node.since_at = event.question, event.at
        self._short = node
        why = SPENT
        paused = [] if self.is_paused else [Record(RunPaused(reason=why, at=event.at))]
        return [*patience(node), *paused]

    def _have_more(self, event: BudgetChanged) -> list[Command]:
        node, self._short = self._short, None
        if node is None:
            return []
        node.question = None
        settled = self._settle(node, TaskState.DONE, event.at)
        if self._is_halted:
            return settled
        return [*settled, Record(RunUnpaused(by=event.by, at=event.at))]

    # Tasks with `for_each`: their items are listed and done, and the results are collected.

    def _expand(self, node: TaskNode, listed: TaskNode) -> list[Command]:
        """Add a task for each listed item; fail the task if its items could not be listed."""
        if node.state.is_settled:
            return []
        at = self.last_at
        assert at is not None
        if listed.state is not TaskState.DONE:
            return self._fail(node, listed.cause or NO_ITEMS, at)
        task, count = node.task, len(self.listed.get(node.task.id, ()))
        self.mapped[task.id] = node.unmet = count
        items = self._graph.add_items((task.for_item(index) for index in range(count)), node)
        self._unsettled += count
        commands: list[Command] = []
        for item in items:
            if item.task.deadline is not None:
                commands.append(self._task_timer(item))
            commands.append(self._offer(item))
        return commands if items else self._collect(node, at)

    def _items_of(self, node: TaskNode) -> list[TaskNode]:
        id_ = node.task.id
        return [self.nodes[item_id(id_, index)] for index in range(self.mapped.get(id_, 0))]

    def _item_of(self, task: str) -> Value | None:
        """The item that a task is for; None if it is no task for an item."""
        found = item_of(task)
        return None if found is None else self.listed[found[0]][found[1]]

    def _mapped_by(self, item: TaskNode) -> TaskNode:
        found = item_of(item.task.id)
        assert found is not None
        return self.nodes[found[0]]

    def _count_off(self, item: TaskNode, at: datetime) -> list[Command]:
        node = self._mapped_by(item)
        node.unmet -= 1
        return [] if node.unmet else self._collect(node, at)

    def _collect(self, node: TaskNode, at: datetime) -> list[Command]:
        """After all items have settled: collect the results if enough items are done, else fail the task."""
        if node.state is not TaskState.WAITING:
            return []
        items = self._items_of(node)
        done = sum(item.state is TaskState.DONE for item in items)
        if self._stop_reason and not done:
            return self._halt(node, TaskState.SKIPPED, at)
        least = node.task.at_least if node.task.at_least is not None else min(1, len(items))
        if done < least and not self._stop_reason:
            return self._fail(node, too_few(node.task, items, done), at)
        return [self._offer(node)]

    # Attempts and hedges.

    def _start(self, event: AttemptStarted) -> list[Command]:
        node = self.nodes[event.task]
        self._move(node, TaskState.RUNNING)
        node.attempt = event.attempt
        node.worker = event.worker
        node.started_at = event.at
        self._open += 1
        self._planning.has_begun |= event.worker == PLANNER
        if not self._hedges.are_wanted:
            return []
        self._hedges.watched.discard(event.task)
        return self._watch(node)

    def _finish(self, event: AttemptFinished) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        outcome = event.outcome
        beside = self._part(event)
        if type(outcome) is Done:
            assert node.started_at is not None
            self._times.add(node.worker, event.at - node.started_at)
            node.gaps = outcome.gaps
            return [*beside, *self._settle(node, TaskState.DONE, event.at), *self._watch_all()]
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        return [*beside, *self._come_to_nothing(node, event)]

    def _close_attempt(self, node: TaskNode, at: datetime) -> None:
        """End an attempt; the caller sets the next state of the task."""
        if self.held_up_tasks and node.task.id in self.held_up_tasks:
            self._go_on(node, at)
        node.since_at = at
        self._open -= 1

    def _hold_up(self, node: TaskNode, at: datetime) -> list[Command]:
        """The nested run of an attempt only waits for people now."""
        self.held_up_tasks.add(node.task.id)
        self._note_idle(at)
        return []

    def _go_on(self, node: TaskNode, at: datetime) -> list[Command]:
        """The nested run of an attempt continues by itself, and so does this run."""
        self.held_up_tasks.discard(node.task.id)
        if self._deadlines.active_time.stands_still and not self.is_paused:
            self._deadlines.active_time.go_on(at)
        return []

    def _come_to_nothing(self, node: TaskNode, event: AttemptFinished) -> list[Command]:
        outcome, is_stopped = event.outcome, self._is_told_to_stop(event.task)
        node.due_at = None
        if isinstance(outcome, NeedsInput) and not is_stopped:
            return self._await_answer(node, outcome.question, event.at)
        self._move(node, TaskState.RETRYING)
        if is_stopped:
            return self._stopped(node, event.at)
        if isinstance(outcome, Cancelled):
            outcome = Failed(
                kind=ErrorClass.CANCELLED,
                message=outcome.reason or "it was cancelled",
                taint=outcome.taint,
            )
        assert isinstance(outcome, Failed)
        if event.reused:  # the run that recorded it has already decided about it
            return self._conclude(node, GiveUp(outcome), event.at)
        return self._judge(node, outcome, event.at)

    def _lose(self, event: AttemptLost | AttemptPreempted) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        beside = self._part(event)
        self._move(node, TaskState.RETRYING)
        # Preemptions because of a pause do not count: they say nothing about the task or its worker.
        node.losses += not (self.is_paused and type(event) is AttemptPreempted)
        node.due_at = None
        if self._is_told_to_stop(event.task):
            return [*beside, *self._stopped(node, event.at)]
        if node.losses > self.limits.losses:
            node.last_failure = lost_too_often(node.losses, self.limits.losses, event)
            if event.task in self.mapped:
                return [*beside, *self._fail(node, node.last_failure, event.at)]
            terms = self.policy_of(event.task)
            aside = set_aside(node.last_failure, terms, may_ask=True)
            return [*beside, *self._conclude(node, aside, event.at)]
        return [*beside, self._offer(node)]

    def _park(self, event: AttemptParked) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        beside = self._part(event)
        self._move(node, TaskState.RETRYING)
        node.parks += 1
        if self._is_told_to_stop(event.task):
            return [*beside, *self._stopped(node, event.at)]
        node.due_at = event.due_at
        node.waits_for = event.why
        self.parked_tasks[event.task] = event.is_long
        self._note_idle(event.at)
        retry = RetryDue(task=event.task, attempt=event.attempt, at=event.due_at)
        return [*beside, SetTimer(event.due_at, retry)]

    def _watch(self, node: TaskNode) -> list[Command]:
        if not self._may_hedge or node.task.id in self.mapped:
            return []
        return self._hedges.watch(node, self._times, self._request_of_run.paces)

    def _watch_all(self) -> list[Command]:
        """Watch open attempts: one more finished attempt may make the usual duration known."""
        if not self._hedges.are_wanted or not self._may_hedge:
            return []
        opened = [node for node in self.nodes.values() if node.is_open]
        return [command for node in opened for command in self._watch(node)]

    def _hedge(self, node: TaskNode) -> list[Command]:
        fresh = self._add_nodes([self._hedges.begin(node)])[0]
        fresh.avoid, fresh.taint = (*node.avoid, node.worker), node.taint
        return [self._offer(fresh)]

    def _part(
        self, event: AttemptFinished | AttemptLost | AttemptPreempted | AttemptParked
    ) -> list[Command]:
        """After an attempt or its hedge has ended, settle the other one."""
        if not self._hedges.beside:
            return []
        if is_hedge(event.task):
            return self._win(event) if isinstance(event, AttemptFinished) else []
        hedge = self.nodes.get(self._hedges.part(event.task))
        if hedge is None or hedge.state.is_settled:
            return []
        if not hedge.is_open:
            withdrawn = self._withdraw(hedge)
            return [*withdrawn, *self._settle(hedge, TaskState.CANCELLED, event.at)]
        return self._end_beside(hedge, Cancelled(reason="the first attempt has ended"), event.at)

    def _win(self, event: AttemptFinished) -> list[Command]:
        """A hedge is done before the first attempt: its result becomes the task's result."""
        outcome, node = event.outcome, self.nodes[hedged(event.task)]
        is_beside = self._hedges.beside.get(node.task.id) == event.task
        if not isinstance(outcome, Done) or not node.is_open or not is_beside:
            return []
        self._hedges.part(node.task.id)
        return self._end_beside(node, Done(outcome.value, gaps=outcome.gaps), event.at)

    def _end_beside(self, node: TaskNode, outcome: Done | Cancelled, at: datetime) -> list[Command]:
        task, attempt = node.task.id, node.attempt
        ended = AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=at)
        stop = StopAttempt(task, attempt, "the other attempt was faster", self.limits.grace)
        return [Record(ended), stop]


_WORDS = {
    TaskState.FAILED: "failed",
    TaskState.SKIPPED: "was skipped",
    TaskState.CANCELLED: "was cancelled",
}
