"""Offers, and what follows when a task has come to its end: others are released or skipped, or the run ends."""

from datetime import datetime

from chargehand.decisions.duties import (
    PLAN,
    REFINER,
    answering,
    drafting,
    has_results,
    is_duty,
    is_void,
    missing_of,
)
from chargehand.decisions.estimate import least_time
from chargehand.decisions.graph import Node, TaskState
from chargehand.decisions.hedging import LAST, is_hedge
from chargehand.decisions.hours import CANCELLED
from chargehand.decisions.run.admission import Admission
from chargehand.facts.commands import Command, OfferAttempt, Rank, Record, WithdrawOffer
from chargehand.facts.events import Pace, RunFinished, RunStatus, TaskSkipped
from chargehand.facts.plan import Task


class Settlement(Admission):
    """Offers what may start, takes on what the supervisor does itself, and puts tasks where they stay."""

    def _offer(self, node: Node) -> Command:
        if not node.is_live:
            self._live += 1
            if self._hours.glass.stands_still and not self.is_paused and self.last_at is not None:
                self._hours.glass.go_on(self.last_at)
        node.state = TaskState.READY
        node.since_at = self.last_at
        node.is_parked = False
        node.question = None
        node.due_at = None
        return self._offer_of(node)

    def _offer_of(self, node: Node) -> OfferAttempt:
        task = node.task
        latest = node.deadline - node.path if self._estimates_known else node.deadline
        urgency = LAST if is_hedge(task.id) else -node.urgency - self._priority
        rank = Rank(urgency, node.deadline, latest, -node.path, node.order)
        number, latest_at = node.attempt + 1, self._latest_start(node)
        return OfferAttempt(task.id, number, task.worker, task.skill, rank, node.avoid, latest_at)

    def _latest_start(self, node: Node) -> datetime | None:
        """When a task must have begun to be done in time, if it has a deadline and that is known."""
        task, requested = node.task, self._request_of_run
        if task.deadline is None and requested.deadline_at is None:
            return None
        # What was begun before, or may be taken over from another run, may take less.
        if node.attempt or requested.reuses or is_duty(task.id):
            return None
        least, ends_at = least_time(task, requested.paces), self.work_ends_at(task.id)
        return None if least is None or ends_at is None else ends_at - least

    def _withdraw(self, node: Node) -> list[Command]:
        return [WithdrawOffer(node.task.id)] if node.state is TaskState.READY else []

    def _note_idle(self, at: datetime) -> None:
        if not self._live and self._unsettled and self._is_all_there():
            self._hours.glass.stop(at)

    def _settle(self, node: Node, state: TaskState, at: datetime) -> list[Command]:
        """Put a node where it stays, and release what may go on without anything more."""
        if node.is_live:
            self._live -= 1
        node.state = state
        node.is_parked = False
        self._unsettled -= 1
        commands: list[Command] = []
        if not self._stop_reason:
            for dependent in node.dependents:
                is_optional = node.is_waived or node.task.id in dependent.optional_needs
                if state is TaskState.DONE or is_optional:
                    dependent.unmet -= 1
                    if not dependent.unmet and not (
                        dependent.is_doomed or dependent.state.is_settled
                    ):
                        commands.append(self._offer(dependent))
                elif not dependent.is_doomed and not dependent.state.is_settled:
                    commands.append(self._doom(dependent, node, at))
            if is_duty(node.task.id):
                commands += self._discharge(node)
            if self._request_of_run.drafts:
                commands += self._draft()
            self._note_idle(at)
        if not self._unsettled:
            commands += self._end_if_settled(at)
        return commands

    def _doom(self, dependent: Node, node: Node, at: datetime) -> Command:
        dependent.is_doomed = True
        root = node.why if node.state is TaskState.SKIPPED else node.task.id
        why = f"it needs {node.task.id}, which {_WORDS[node.state]}"
        return Record(TaskSkipped(task=dependent.task.id, cause=root, why=why, at=at))

    def _end_if_settled(self, at: datetime) -> list[Command]:
        if self._unsettled or self.status is not None or not (self._is_sealed or self._stop_reason):
            return []
        duty = self._next_duty()
        if duty is not None:
            return [self._take_on(duty)]
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
            worker: Pace(count, total / count, least)
            for worker, (count, total, least) in self._times.items()
            if not is_duty(worker)
        }
        return [
            Record(
                RunFinished(
                    status=status, reason=self._stop_reason, missing=missing, paces=paces, at=at
                )
            )
        ]

    def _take_on(self, duty: Task) -> Command:
        """Do something ourselves; it is offered at once."""
        node = self._graph.add([duty])[0]
        self._unsettled += 1
        return self._offer(node)

    def _next_duty(self) -> Task | None:
        """What we must do ourselves before a run of which nothing is left to do can end."""
        requested = self._request_of_run
        if self._stop_reason == CANCELLED or self._hours.is_closed:
            return None
        step = None if self._stop_reason else self._planning.step(requested, self.version)
        return step or answering(self.nodes, requested)

    def _draft(self) -> list[Command]:
        """Begin with the answer while stragglers are under way: nothing else is left to start."""
        if not self._is_sealed or self._live > self._open:
            return []
        duty = drafting(self.nodes, self._drafts + 1)
        if duty is None:
            return []
        self._drafts += 1
        return [self._take_on(duty)]

    def _discharge(self, node: Node) -> list[Command]:
        """Go on after something that we did ourselves."""
        task = node.task
        if task.worker == REFINER:
            target = self.nodes[task.args["task"]]
            if target.state is not TaskState.RETRYING or not target.is_unclear:
                return []
            target.is_unclear = False  # rewritten or not, it is tried again
            return [self._offer(target)]
        if task.id == PLAN:
            self._is_sealed = True
        if not task.id.startswith(PLAN):
            return []
        again = self._planning.after_planning(self._request_of_run, self.version)
        return [] if again is None else [self._take_on(again)]

    def _plan_again(self, node: Node) -> list[Command]:
        """See whether there is another way, now that a task has come to nothing."""
        if self._stop_reason:
            return []
        again = self._planning.after_failure(node, self._request_of_run, self.version)
        return [] if again is None else [self._take_on(again)]


_WORDS = {
    TaskState.FAILED: "failed",
    TaskState.SKIPPED: "was skipped",
    TaskState.CANCELLED: "was cancelled",
}
