"""One run as the coordinator sees it: states of tasks, open attempts, results, conflicts."""

from collections import Counter
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.coordination.progress_counts import Load, Progress, progress_of
from chargehand.decisions.coordination.troubles import WorkerPulse
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.run_outputs_and_steps import RunResults
from chargehand.decisions.system_tasks import ANSWER, hedged, is_hedge, is_system_task
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts import events
from chargehand.facts.answer import Answer, Contradiction
from chargehand.facts.outcome import Done, Failed, Question

#: bytes of a result; longer results may use different words without contradicting each other
COMPARED = 1000


class Hold(Struct):
    """An attempt that a worker has, or had."""

    task: str
    attempt: int
    worker: str
    since_at: datetime
    #: when it last showed activity
    last_at: datetime
    #: the process that recorded its start
    node: str = ""


class Clash(Struct, frozen=True, kw_only=True):
    """One task that two attempts had."""

    task: str
    first: Hold
    second: Hold
    at: datetime
    #: why the result of the first was refused; empty: both held it at once
    refused: str = ""


class RunWatch:
    """A fold over the events of one run, for views of many runs. It keeps no long outputs."""

    def __init__(self, run: str, pulse: WorkerPulse | None = None) -> None:
        self.run = run
        #: number of the last event that was applied
        self.seq = 0
        self._live_run = LiveRun(run, results=RunResults(longest=COMPARED))
        self.schedule = self._live_run.schedule
        #: results that are short enough to be compared
        self.outputs = self._live_run.results.outputs
        #: by task: its nested run
        self.nested = self._live_run.results.nested
        #: open attempts
        self.holds: dict[tuple[str, int], Hold] = {}
        #: by task: when its result came
        self.ended: dict[str, datetime] = {}
        self.clashes: list[Clash] = []
        #: contradictions that the composed answer names
        self.contradictions: tuple[Contradiction, ...] = ()
        self._pulse = pulse or WorkerPulse()
        self._done: dict[str, Load] = {}
        #: by task: all its attempts, open or not
        self._given: dict[str, list[Hold]] = {}
        #: tasks whose hedge was faster
        self._won: set[str] = set()

    # queries

    @property
    def last_at(self) -> datetime | None:
        """When the last event of the run happened."""
        return self.schedule.last_at

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.schedule.status is not None

    @property
    def is_pooled(self) -> bool:
        """Whether the run belongs to a pool, so that no process leads it and any worker may take its tasks."""
        requested = self.schedule.requested
        return requested is not None and requested.approach is events.Approach.POOL

    def nodes(self) -> list[TaskNode]:
        """The tasks of the plan and their items, without system tasks and hedges."""
        return [node for task, node in self.schedule.nodes.items() if not is_system_task(task)]

    def asking(self) -> list[tuple[TaskNode, Question]]:
        """The open questions to people, with the tasks that ask them, system tasks included."""
        nodes = self.schedule.nodes.values()
        return [(node, node.question) for node in nodes if node.question is not None]

    def progress(self) -> Progress:
        """The progress of this run."""
        states = Counter(node.state for node in self.nodes())
        return progress_of(states, self._loads(), {self.schedule.state.value: 1})

    def began_at(self, task: str) -> datetime | None:
        """When the first attempt at a task began; None if there was none."""
        given = self._given.get(task)
        return given[0].since_at if given else None

    def worker_of(self, node: TaskNode) -> str:
        """The worker of a task: that of its last attempt, or the planned one if the task waits for its next attempt."""
        is_moved = node.state in (TaskState.WAITING, TaskState.READY, TaskState.RETRYING)
        if is_moved and node.task.worker:
            return node.task.worker
        return node.worker or node.task.worker

    # events

    def apply(self, seq: int, event: events.Event, author: str = "") -> None:
        """Apply the next event of the run; `author` is the node that wrote it."""
        self.seq = seq
        self._live_run.replay((event,))
        match event:
            case events.AttemptStarted():
                self._start(event, author)
            case events.AttemptFinished():
                self._finish(event)
            case events.AttemptLost():
                self._fail(event.task, event.attempt, event.at, f"lost: {event.reason}")
            case events.AttemptPreempted() | events.AttemptParked():
                self._let_go(event.task, event.attempt, event.at)
            case events.StepStarted() | events.StepFinished() | events.ProgressNoted():
                self._hear(event.task, event.attempt, event.at)
            case events.ResultRefused():
                self._refuse(event)
            case _:
                pass  # only the schedule needs it

    def _start(self, event: events.AttemptStarted, author: str) -> None:
        if is_system_task(event.task) and not is_hedge(event.task):
            return
        hold = Hold(event.task, event.attempt, event.worker, event.at, event.at, author)
        given = self._given.setdefault(event.task, [])
        self.clashes += [
            Clash(task=event.task, first=before, second=hold, at=event.at)
            for before in given
            if (before.task, before.attempt) in self.holds
        ]
        given.append(hold)
        self.holds[event.task, event.attempt] = hold
        self._tally(event.worker, event.at)

    def _finish(self, event: events.AttemptFinished) -> None:
        outcome = event.outcome
        if event.task == ANSWER:
            self._read_answer(outcome)
        if isinstance(outcome, Failed):
            self._fail(event.task, event.attempt, event.at, str(outcome))
            return
        hold = self._let_go(event.task, event.attempt, event.at)
        if hold is None or not isinstance(outcome, Done):
            return
        self.ended[event.task] = event.at
        if is_hedge(event.task):
            self._won.add(hedged(event.task))
        if event.task in self._won:
            return  # the result is that of the other attempt
        self._tally(hold.worker, event.at, Load(completed=1, busy=event.at - hold.since_at))
        self._pulse.done(hold.worker, event.at)

    def _fail(self, task: str, attempt: int, at: datetime, why: str) -> None:
        hold = self._let_go(task, attempt, at)
        if hold is not None:
            self._tally(hold.worker, at, Load(failed=1))
            self._pulse.failed(hold.worker, at, f"{self.run}/{task}", why)

    def _refuse(self, event: events.ResultRefused) -> None:
        given = self._given.get(event.task, [])
        first = next((hold for hold in given if hold.attempt == event.attempt), None)
        if first is None or first is given[-1]:
            return  # it was only late: no other attempt had the task
        clash = Clash(
            task=event.task, first=first, second=given[-1], at=event.at, refused=event.why
        )
        self.clashes.append(clash)

    def _let_go(self, task: str, attempt: int, at: datetime) -> Hold | None:
        hold = self.holds.pop((task, attempt), None)
        if hold is not None:
            self._tally(hold.worker, at)
        return hold

    def _hear(self, task: str, attempt: int, at: datetime) -> None:
        hold = self.holds.get((task, attempt))
        if hold is not None:
            hold.last_at = at
            self._tally(hold.worker, at)

    def _read_answer(self, outcome: object) -> None:
        if isinstance(outcome, Done) and not outcome.value.blob:
            self.contradictions = msgspec.convert(outcome.value.read(), Answer).contradictions

    def _tally(self, worker: str, at: datetime, done: Load | None = None) -> None:
        self._done[worker] = self._done.get(worker, Load()) + replace(done or Load(), last_at=at)

    def _loads(self) -> dict[str, Load]:
        running = Counter(hold.worker for hold in self.holds.values())
        return {name: replace(load, running=running[name]) for name, load in self._done.items()}
