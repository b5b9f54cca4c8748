"""One run: an event goes in, commands come out.

`apply` takes exactly the events that the journal stores, so recovery is replay: fold the stored
events through a new `Schedule`, then ask it for what is `outstanding`. Decisions that others must
be able to read (a retry, a task given up or skipped, the end) come out as `Record` commands, are
journaled in the same group as the event that caused them, and change the state only when they are
applied in turn. So replay never decides anything again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from chargehand.decisions.amendment import part_of
from chargehand.decisions.asking import patience
from chargehand.decisions.estimate import Estimates
from chargehand.decisions.graph import Graph, Node, TaskState
from chargehand.decisions.hedging import is_hedge
from chargehand.decisions.hours import CANCELLED
from chargehand.decisions.run.attempts import Attempts
from chargehand.decisions.run.standing import RunState
from chargehand.decisions.run.verdicts import TOO_LATE, unanswered_by
from chargehand.facts.commands import Command, Record, SetTimer, WithdrawOffer
from chargehand.facts.events import (
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
    RetryPlanned,
    RunFinished,
    RunLed,
    RunPaused,
    RunReleased,
    RunRequested,
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
from chargehand.facts.plan import Task
from chargehand.facts.policy import ABOUT_BUDGET

__all__ = ["RULES", "RunState", "Schedule"]

RULES = 1
"""Version of the decisions in this room; a run is led by the rules it was requested under."""


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
"""What happens to a run as a whole, and to its plan."""


class Schedule(Attempts):
    """Decides what one run does next. Holds no clock, no I/O, no outputs and no task of the event loop."""

    def apply(self, event: Event) -> list[Command]:
        """Take in what has happened and say what is to be done about it."""
        before, self.last_at = self.last_at, event.at
        commands = self._change_task(event, before)
        if self._hours.glass.is_late:
            self._hours.glass.is_late = False
            commands = [*commands, *self._hours.active_timer()]
        return commands if self.paused_at is None else self._unless_paused(commands)

    def _change_task(self, event: Event, before: datetime | None) -> list[Command]:
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
                return self._fail(self.nodes[event.task], TOO_LATE, event.at)
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
                return self._stop_all(CANCELLED, event.at)
            case WorkStopped():
                stopped = self._stop_all(event.reason, event.at, event.by)
                return [*stopped, *self._hours.close(event.at)]
            case RunRequested():
                return self._request(event)
            case RunLed():
                return self._be_led(event, before)
            case RunReleased():
                self.parked = event.reason if event.is_parked else ""
                return []
            case BudgetChanged():
                return self._have_more(event)
            case RunPaused():
                return self._pause(event.at)
            case RunUnpaused():
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
                return [] if self.nodes else self._hours.timers()
            case TaskAdded():
                return self._add_tasks([event.task], seal=False, at=event.at)
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
        """What is to be done now by a process that has only just read the events so far."""
        if self.status is not None or self.last_at is None:
            return []
        commands: list[Command] = self._hours.timers()
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
        self._graph = Graph(
            estimates.seconds,
            lambda task: (
                run_deadline
                if task.deadline is None
                else min(run_deadline, start + task.deadline.total_seconds())
            ),
        )
        self.nodes = self._graph.nodes
        self._hours.requested = event
        planning = self._planning.first(event)
        return [] if planning is None else [*self._hours.timers(), self._take_on(planning)]

    def _be_led(self, event: RunLed, before: datetime | None) -> list[Command]:
        if self.epoch and before is not None and not self._hours.glass.stands_still:
            # Nobody led the run meanwhile: a run that is resumed on Monday has not been active
            # since Friday.
            self._hours.glass.leave_out(event.at - before)
        self.epoch, self.parked = event.epoch, ""
        for node in self.nodes.values():
            node.is_long = False  # whoever leads it now waits anew for whom it is parked
        return [
            Record(
                AttemptLost(
                    task=node.task.id,
                    attempt=node.attempt,
                    reason="the process that led the run ended",
                    at=event.at,
                )
            )
            # Hedges first: the end of what they were begun beside would end them, too.
            for node in sorted(self.nodes.values(), key=lambda node: not is_hedge(node.task.id))
            if node.is_open
        ]

    def _add_tasks(self, tasks: Sequence[Task], *, seal: bool, at: datetime) -> list[Command]:
        is_first = not self.nodes
        fresh = self._graph.add(tasks)
        for node in fresh:
            node.since_at = at
        self._unsettled += len(fresh)
        self._is_sealed = self._is_sealed or seal
        self._has_hedged_tasks |= any(task.hedge for task in tasks)
        self._estimates_known = self._estimates_known or any(node.task.expect for node in fresh)
        commands: list[Command] = self._hours.timers() if is_first and seal else []
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

    def _taint(self, tasks: Sequence[Task], sources: tuple[str, ...]) -> None:
        if sources:
            for task in tasks:
                self.nodes[task.id].taint = sources

    def _lost_need(self, node: Node) -> Node | None:
        """A required need of a new task that has come to nothing already."""
        for need in node.task.all_needs:
            upstream = self.nodes[need.task]
            is_lost = upstream.state.is_settled and upstream.state is not TaskState.DONE
            if is_lost and not (need.optional or upstream.is_waived):
                return upstream
        return None

    def _amend(self, event: PlanAmended) -> list[Command]:
        self.version = event.version
        self._replans += not (event.is_step or event.is_steered)
        tasks = [node.task for node in self.nodes.values()]
        self._amended.add(part_of(self.nodes, tasks))
        for task in event.replaced:
            self.nodes[task].is_replaced = True
        commands: list[Command] = []
        for task in event.removed:
            node = self.nodes[task]
            node.is_removed = True
            if node.is_open:
                commands += self._stop(node, "the plan was changed", event.at)
            else:
                commands += self._halt(node, TaskState.CANCELLED, event.at)
        commands += self._add_tasks(event.added, seal=False, at=event.at)
        self._taint(event.added, event.taint)
        self._note_idle(event.at)
        return commands + self._end_if_settled(event.at)

    def _task_timer(self, node: Node) -> SetTimer:
        assert node.task.deadline is not None
        due_at = self._request_of_run.at + node.task.deadline
        return SetTimer(due_at, DeadlinePassed(task=node.task.id, at=due_at))
