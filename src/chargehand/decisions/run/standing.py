"""Where one run stands: what its events have come to, and the questions that can be asked of it."""

from datetime import datetime, timedelta
from enum import StrEnum

from chargehand.decisions.amendment import Part, amendment_faults
from chargehand.decisions.duties import ANSWER, PLAN, Planning, is_duty
from chargehand.decisions.estimate import Times
from chargehand.decisions.graph import Graph, Node, TaskState, check_nodes
from chargehand.decisions.hours import CANCELLED, Hours
from chargehand.decisions.retry import RetryPolicy
from chargehand.errors import Fault, InternalError
from chargehand.facts.events import PlanAmended, RunRequested, RunStatus
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Strategy
from chargehand.facts.policy import OnFailure


class RunState(StrEnum):
    """Where a run stands that has not ended; an ended one has a `RunStatus`."""

    PLANNING = "planning"  #: there is no plan yet, or it is still being written
    RUNNING = "running"  #: something is running, ready or due
    WAITING = "waiting"  #: all that is left waits for a person, or for a provider that stays away
    PAUSED = "paused"  #: a person wants nothing new to be started for now
    STOPPING = "stopping"  #: cancelled or out of time; open attempts are told to stop


class Standing:
    """Everything that is known of one run. Nothing here changes it."""

    def __init__(self, retry: RetryPolicy | None = None) -> None:
        self.requested: RunRequested | None = None
        self.status: RunStatus | None = None
        #: why it ended so, where its tasks do not tell
        self.reason = ""
        #: why nobody begins it before a person resumes it
        self.parked = ""
        self.epoch = 0
        self.version = 0
        self.instruction = ""
        self.strategy = Strategy.MERGE
        self.last_at: datetime | None = None
        #: since when nothing new is started, because a person wants it so
        self.paused_at: datetime | None = None
        self._retry = retry or RetryPolicy()
        self._graph = Graph(lambda _: 1.0, lambda _: float("inf"))
        #: all tasks by id, in plan order; to be read only
        self.nodes = self._graph.nodes
        self._estimates_known = False
        #: of the run, on top of that of its tasks
        self._priority = 0
        self._is_sealed = False
        self._stop_reason = ""
        #: the same, and which cap or who it was, for the gaps
        self._stop_words = ""
        self._unsettled = 0
        self._live = 0
        self._open = 0
        self._hours = Hours()
        self._planning = Planning()
        self._drafts = 0
        self._times: dict[str, Times] = {}
        self._amended: set[Part] = set()
        self._replans = 0
        self._has_hedged_tasks = False
        self._short: Node | None = None
        #: paused because a person wants it so, and not only for want of money
        self._is_halted = False

    @property
    def state(self) -> RunState | RunStatus:
        if self.status is not None:
            return self.status
        if self._stop_reason:
            return RunState.STOPPING
        if self.is_paused:
            return RunState.WAITING if self.is_short and not self._open else RunState.PAUSED
        if self.is_cut_off:
            return RunState.WAITING
        if self.is_being_planned and not self._is_unclear():
            return RunState.PLANNING
        if self._live or not self._unsettled or self._has_parked():
            return RunState.RUNNING
        return RunState.WAITING

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing goes on because a provider was waited for in vain for long."""
        return not self._live and any(n.is_parked and n.is_long for n in self.nodes.values())

    @property
    def stop_reason(self) -> str:
        """Why no further task is started; empty if that is not so."""
        return self._stop_reason

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def is_short(self) -> bool:
        """Whether a person is to say if more may be spent; it is paused until then."""
        return self._short is not None

    @property
    def is_being_planned(self) -> bool:
        """Whether tasks may still be added to its first plan."""
        return self.status is None and not self._stop_reason and not self._is_sealed

    @property
    def limits(self) -> Limits:
        """The caps that the run was requested under."""
        return self._request_of_run.limits

    @property
    def busy(self) -> timedelta:
        """The time of all finished attempts, one after another."""
        return sum((total for _, total, _ in self._times.values()), _NO_TIME)

    @property
    def is_winding_up(self) -> bool:
        """Whether the work was stopped for an answer of what there is."""
        return self._stop_reason not in ("", CANCELLED)

    def work_ends_at(self, task: str) -> datetime | None:
        """When an attempt of this task will be stopped at the latest, if that is known."""
        deadline = self._graph.deadline_of(self.nodes[task].task)
        ends = [] if deadline == float("inf") else [self._instant(deadline)]
        stops_at = self._hours.ends_at if task == ANSWER else self._hours.work_ends_at()
        return min([*ends, stops_at] if stops_at is not None else ends, default=None)

    def why_not_steered(self) -> str:
        """Why a note to this run would change nothing any more; empty if it can."""
        requested = self._request_of_run
        if requested.approach.is_given and not requested.answers:
            return "its plan was given and it has no model that could change it"
        if self._stop_reason or self.status is not None:
            return "it is stopping, or has ended"
        return "its answer is being composed already" if ANSWER in self.nodes else ""

    def policy_of(self, task: str) -> OnFailure | None:
        """What was said to be done when this task fails: by the plan, else by its worker, else for all."""
        node, policies = self.nodes[task], self._request_of_run.policies
        if node.task.on_failure is not None or not policies or is_duty(task):
            return node.task.on_failure
        worker = node.failed_first or node.worker or node.task.worker
        return policies.get(worker) or policies.get("")

    def check_amendment(self, event: PlanAmended) -> list[Fault]:
        """Everything that speaks against this change of plan."""
        if self._stop_reason or self.status is not None or not self._is_sealed:
            return [Fault("ended", "", "the run is stopping, has ended, or has no whole plan yet")]
        if ANSWER in self.nodes:
            return [Fault("ended", "", "the answer is being composed from what there is")]
        return list(
            amendment_faults(
                self.nodes, event, self.version, self.limits, self._amended, self._replans
            )
        )

    def check(self) -> None:
        """State the invariants; the tests call this after every event."""
        counts = check_nodes(self.nodes.values(), self.limits, is_stopping=bool(self._stop_reason))
        assert counts == (self._live, self._unsettled, self._open), "the counts are off"
        if self.status is not None:
            assert not self._unsettled, "the run ended before its tasks"

    def _has_parked(self) -> bool:
        return any(node.is_parked for node in self.nodes.values())

    def _is_unclear(self) -> bool:
        """Whether a person is to say better what is wanted before there can be a plan."""
        return PLAN in self.nodes and self.nodes[PLAN].state is TaskState.ASKING

    def _is_all_there(self) -> bool:
        """Whether nobody is just now writing on the plan."""
        is_parked = PLAN in self.nodes and self.nodes[PLAN].is_parked
        return self._is_sealed or is_parked or self._is_unclear()

    def _holds(self, task: str, attempt: int) -> bool:
        node = self.nodes.get(task)
        return node is not None and node.is_open and node.attempt == attempt

    def _is_told_to_stop(self, task: str) -> bool:
        node = self.nodes[task]
        if task == ANSWER and self._stop_reason != CANCELLED and not self._hours.is_closed:
            return node.is_expired
        return bool(self._stop_reason) or node.is_expired or node.is_removed

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


_NO_TIME = timedelta(0)
