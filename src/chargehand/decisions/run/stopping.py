"""Ending work early: of one attempt, of a run whose time or money is over, or for a while."""

from datetime import datetime

from chargehand.decisions.duties import ANSWER
from chargehand.decisions.graph import Node, TaskState
from chargehand.decisions.hours import CANCELLED, OUT_OF_TIME
from chargehand.decisions.run.settlement import Settlement
from chargehand.facts.commands import Command, OfferAttempt, SetTimer, StopAttempt
from chargehand.facts.events import AttemptLost


class Stopping(Settlement):
    """Stops attempts and runs, and pauses them."""

    def _stop(self, node: Node, reason: str, at: datetime) -> list[Command]:
        grace = self.limits.grace
        silent = f"it did not stop within {grace.total_seconds():g} s of being told to"
        lost = AttemptLost(task=node.task.id, attempt=node.attempt, reason=silent, at=at + grace)
        return [StopAttempt(node.task.id, node.attempt, reason, grace), SetTimer(at + grace, lost)]

    def _halt(self, node: Node, ending: TaskState, at: datetime) -> list[Command]:
        if node.is_open:
            return self._stop(node, self._stop_reason, at)
        if node.state.is_settled:
            return []
        withdrawn = self._withdraw(node)
        if node.is_live:
            self._live -= 1
        node.state = ending
        node.stopped = OUT_OF_TIME if self._hours.is_closed else self._stop_words
        node.is_parked = False
        node.question = None
        self._unsettled -= 1
        return withdrawn

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
                commands.append(self._offer_of(node))  # an answer perhaps; it is done at once
        return commands + self._end_if_settled(at)

    def _run_out(self, at: datetime) -> list[Command]:
        """The run's time is over: all of it, or all but what composing the answer may take."""
        if self._hours.has_time_to_answer():
            return [*self._stop_all(OUT_OF_TIME, at), *self._hours.close(at)]
        self._hours.is_closed = True
        if not self._stop_reason:
            return self._stop_all(OUT_OF_TIME, at)
        answer = self.nodes.get(ANSWER)
        halted = [] if answer is None else self._halt(answer, TaskState.SKIPPED, at)
        return halted + self._end_if_settled(at)

    def _pause(self, at: datetime) -> list[Command]:
        """Take back all offers. Whoever carries this out stops running attempts at a safe point."""
        # One that is short pauses by itself; if it was paused before that, or is after, a person wants it.
        self._is_halted = self.is_paused or not self.is_short
        if self.is_paused:
            return []
        self.paused_at = at
        self._hours.glass.stop(at)
        return [command for node in self.nodes.values() for command in self._withdraw(node)]

    def _unpause(self, at: datetime) -> list[Command]:
        self._is_halted = False
        if self.is_short:
            return []  # no person keeps it from going on any more, but the want of money does
        self.paused_at = None
        if self._live or not self._is_all_there():
            self._hours.glass.go_on(at)
        ready = [node for node in self.nodes.values() if node.state is TaskState.READY]
        return [self._offer_of(node) for node in ready]

    def _unless_paused(self, commands: list[Command]) -> list[Command]:
        """The commands without offers while the run is paused; what is ready is offered when it goes on."""
        if not self.is_paused:
            return commands
        return [command for command in commands if type(command) is not OfferAttempt]
