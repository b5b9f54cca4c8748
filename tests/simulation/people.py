"""The people of a trial: they cancel, pause, steer and answer, sometimes twice and sometimes never.

All that they say goes by mail to whoever leads the run, and may come before the run has begun.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from chargehand.facts.events import (
    Approach,
    BudgetChanged,
    CancelRequested,
    Event,
    QuestionAnswered,
    RunPaused,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.failure_policy import GO_ON_WITHOUT, TRY_AGAIN
from chargehand.facts.outcome import Question
from tests.simulation.attempt import AGAIN, GIVE_UP, RAN
from tests.simulation.faults import FaultKind
from tests.simulation.scenario import SECOND, Order
from tests.simulation.stage import Stage

#: what may be said of any question, and fits some
_WRONG = (RAN, AGAIN, GIVE_UP, TRY_AGAIN, GO_ON_WITHOUT, "what?")


class People:
    """Whoever has a say in the runs. `wake` has the leader of a run look at its mail."""

    def __init__(self, stage: Stage, wake: Callable[[str], None]) -> None:
        self._stage = stage
        self._dice = stage.dice
        self._wake = wake

    def watch(self, order: Order) -> None:
        """Decide what they will want of a run, and when."""
        run, dice = order.run, self._dice
        if dice.hits(FaultKind.CANCEL):
            at = self._soon(order)
            self._stage.later(at, partial(self.cancel, run))
            if dice.hits(FaultKind.CANCEL_TWICE):
                self._stage.later(at + dice.random.choice((0, SECOND)), partial(self.cancel, run))
        if dice.hits(FaultKind.ANSWER_NOW):
            self._stage.later(self._soon(order), partial(self._stop_work, run))
        # Notes to a run that is made step by step would need to be told apart from its steps.
        while order.approach is not Approach.STEPS and dice.hits(FaultKind.STEERED):
            self._stage.later(self._soon(order), partial(self._steer, run))
        calls = order.limits.calls
        if calls is not None and dice.hits(FaultKind.BUDGET_CHANGED):
            self._stage.later(self._soon(order), partial(self._allow, run, calls + 10))
        self._watch_for_pauses(order)

    def cancel(self, run: str) -> None:
        self._post(run, lambda at: CancelRequested(by="somebody", at=at))

    def ponder(self, run: str, task: str, question: Question) -> None:
        """Read a question, and answer it once, twice or never."""
        dice = self._dice
        if dice.hits(FaultKind.NEVER_ANSWERED):
            return
        texts = [dice.random.choice(question.choices or ("this one",))]
        if question.telling and dice.random.random() < 0.7:
            texts = [f"{question.telling}: {dice.random.randint(40, 100)}"]
        if dice.hits(FaultKind.ANSWERED_TWICE):
            texts.append(dice.random.choice(_WRONG))
        for text in texts:
            delay = dice.between(SECOND // 10, 100 * SECOND)
            self._stage.later(delay, partial(self._answer, run, task, question, text))

    def _watch_for_pauses(self, order: Order) -> None:
        """Have it paused and let go again, a few times."""
        dice, at = self._dice, order.submitted
        while dice.hits(FaultKind.PAUSE) and at < order.submitted + 60 * SECOND:
            at += dice.between(SECOND // 10, 20 * SECOND)
            self._stage.later(at, partial(self._pause, order.run))
            at += dice.between(SECOND // 10, 40 * SECOND)
            self._stage.later(at, partial(self._unpause, order.run))

    def _soon(self, order: Order) -> int:
        return order.submitted + self._dice.between(SECOND // 10, 30 * SECOND)

    def _stop_work(self, run: str) -> None:
        self._post(run, lambda at: WorkStopped(reason="answer now", by="somebody", at=at))

    def _allow(self, run: str, calls: int) -> None:
        self._post(run, lambda at: BudgetChanged(by="somebody", calls=calls, at=at))

    def _steer(self, run: str) -> None:
        self._post(run, lambda at: RunSteered(note="and that, too", by="somebody", at=at))

    def _pause(self, run: str) -> None:
        self._post(run, lambda at: RunPaused(by="somebody", at=at))

    def _unpause(self, run: str) -> None:
        self._post(run, lambda at: RunUnpaused(by="somebody", at=at))

    def _answer(self, run: str, task: str, question: Question, text: str) -> None:
        self._post(
            run,
            lambda at: QuestionAnswered(
                question=question.id, task=task, text=text, by="somebody", at=at
            ),
        )

    def _post(self, run: str, report: Callable[[datetime], Event]) -> None:
        self._stage.ledger.post(run, report)
        self._wake(run)
