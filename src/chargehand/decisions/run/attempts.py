"""Attempts from their start to whatever comes of them, with the second ones beside stragglers."""

from datetime import datetime, timedelta

from chargehand.decisions.duties import PLANNER
from chargehand.decisions.graph import Node, TaskState
from chargehand.decisions.hedging import hedge_of, hedged, is_hedge, patience_with
from chargehand.decisions.retry import set_aside
from chargehand.decisions.run.verdicts import Verdicts
from chargehand.facts.commands import Command, Record, SetTimer, StopAttempt
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    HedgeDue,
    RetryDue,
)
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput


class Attempts(Verdicts):
    """Follows every attempt, and the hedge that may be beside it."""

    def _start(self, event: AttemptStarted) -> list[Command]:
        node = self.nodes[event.task]
        node.state = TaskState.RUNNING
        node.attempt = event.attempt
        node.is_open = True
        node.worker = event.worker
        node.started_at = event.at
        self._open += 1
        self._planning.has_begun |= event.worker == PLANNER
        node.is_watched = False
        return self._watch(node)

    def _finish(self, event: AttemptFinished) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        outcome = event.outcome
        beside = self._part(node, event)
        if type(outcome) is Done:
            self._learn(node, event.at)
            node.gaps = outcome.gaps
            return [*beside, *self._settle(node, TaskState.DONE, event.at), *self._watch_all()]
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        return [*beside, *self._come_to_nothing(node, event)]

    def _close_attempt(self, node: Node, at: datetime) -> None:
        if node.is_held_up:
            self._go_on(node, at)
        node.is_open = False
        node.since_at = at
        self._open -= 1

    def _hold_up(self, node: Node, at: datetime) -> list[Command]:
        """All that is left of the run below an attempt waits for people."""
        node.is_held_up = True
        self._live -= 1
        self._note_idle(at)
        return []

    def _go_on(self, node: Node, at: datetime) -> list[Command]:
        """The run below an attempt moves by itself again, and so does this one."""
        node.is_held_up = False
        self._live += 1
        if self._hours.glass.stands_still and not self.is_paused:
            self._hours.glass.go_on(at)
        return []

    def _come_to_nothing(self, node: Node, event: AttemptFinished) -> list[Command]:
        outcome = event.outcome
        node.state = TaskState.RETRYING
        node.due_at = None
        if isinstance(outcome, NeedsInput) and not self._is_told_to_stop(event.task):
            return self._await_answer(node, outcome.question, event.at)
        if self._is_told_to_stop(event.task):
            return self._stopped(node, event.at)
        if isinstance(outcome, Cancelled):
            outcome = Failed(
                kind=ErrorClass.CANCELLED,
                message=outcome.reason or "it was cancelled",
                taint=outcome.taint,
            )
        assert isinstance(outcome, Failed)
        return self._judge(node, outcome, event.at)

    def _lose(self, event: AttemptLost | AttemptPreempted) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        beside = self._part(node, event)
        # To be paused time and again says nothing of a task, nor of who does it.
        node.losses += not (self.is_paused and type(event) is AttemptPreempted)
        node.state = TaskState.RETRYING
        node.due_at = None
        if self._is_told_to_stop(event.task):
            return [*beside, *self._stopped(node, event.at)]
        if node.losses > self.limits.losses:
            why = f"its worker was lost {node.losses} times without getting on; it may be killing them"
            node.last_failure = Failed(kind=ErrorClass.RESOURCE, message=why)
            terms = self.policy_of(event.task)
            aside = set_aside(node.last_failure, terms, may_ask=True)
            return [*beside, *self._conclude(node, aside, event.at)]
        return [*beside, self._offer(node)]

    def _park(self, event: AttemptParked) -> list[Command]:
        node = self.nodes[event.task]
        self._close_attempt(node, event.at)
        if is_hedge(event.task):
            return self._settle(node, TaskState.CANCELLED, event.at)
        beside = self._part(node, event)
        node.parks += 1
        node.state = TaskState.RETRYING
        if self._is_told_to_stop(event.task):
            return [*beside, *self._stopped(node, event.at)]
        node.due_at = event.due_at
        node.is_parked = True
        node.waits_for, node.is_long = event.why, event.is_long
        self._live -= 1
        self._note_idle(event.at)
        retry = RetryDue(task=event.task, attempt=event.attempt, at=event.due_at)
        return [*beside, SetTimer(event.due_at, retry)]

    def _learn(self, node: Node, at: datetime) -> None:
        assert node.started_at is not None
        took = at - node.started_at
        count, total, least = self._times.get(node.worker, (0, _NO_TIME, took))
        self._times[node.worker] = (count + 1, total + took, min(least, took))

    def _watch(self, node: Node) -> list[Command]:
        """The timer that goes off when an attempt will have taken far too long, once that is known."""
        task, started_at = node.task, node.started_at
        if not task.hedge or node.is_watched or started_at is None or not self._may_hedge:
            return []
        wait = patience_with(task, node.worker, self._times, self._request_of_run.paces)
        if wait is None:
            return []
        node.is_watched = True
        due_at = started_at + wait
        return [SetTimer(due_at, HedgeDue(task=task.id, attempt=node.attempt, at=due_at))]

    def _watch_all(self) -> list[Command]:
        """Now that one more is done, it may be known what is usual."""
        if not self._has_hedged_tasks or not self._may_hedge:
            return []
        opened = [node for node in self.nodes.values() if node.is_open]
        return [command for node in opened for command in self._watch(node)]

    def _hedge(self, node: Node) -> list[Command]:
        hedge = hedge_of(node.task, node.attempt)
        node.hedge = hedge.id
        fresh = self._graph.add([hedge])[0]
        fresh.avoid, fresh.taint = (*node.avoid, node.worker), node.taint
        self._unsettled += 1
        return [self._offer(fresh)]

    def _part(
        self, node: Node, event: AttemptFinished | AttemptLost | AttemptPreempted | AttemptParked
    ) -> list[Command]:
        """An attempt has ended: settle what it was beside of, or what was beside it."""
        if is_hedge(event.task):
            return self._win(event) if isinstance(event, AttemptFinished) else []
        hedge = self.nodes.get(node.hedge)
        node.hedge = ""
        if hedge is None or hedge.state.is_settled:
            return []
        if not hedge.is_open:
            withdrawn = self._withdraw(hedge)
            return [*withdrawn, *self._settle(hedge, TaskState.CANCELLED, event.at)]
        return self._end_beside(hedge, Cancelled(reason="the first attempt has ended"), event.at)

    def _win(self, event: AttemptFinished) -> list[Command]:
        """A hedge is done before the attempt beside which it was begun: its result is the task's."""
        outcome, node = event.outcome, self.nodes[hedged(event.task)]
        if not isinstance(outcome, Done) or not node.is_open or node.hedge != event.task:
            return []
        node.hedge = ""
        return self._end_beside(node, Done(outcome.value, gaps=outcome.gaps), event.at)

    def _end_beside(self, node: Node, outcome: Done | Cancelled, at: datetime) -> list[Command]:
        task, attempt = node.task.id, node.attempt
        ended = AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=at)
        stop = StopAttempt(task, attempt, "the other attempt was faster", self.limits.grace)
        return [Record(ended), stop]


_NO_TIME = timedelta(0)
