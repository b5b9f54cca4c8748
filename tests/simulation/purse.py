"""What a run has spent and may yet have to pay, told naively: nothing is counted, all is looked at again."""

from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    Event,
    StepFinished,
    StepStarted,
)

StepId = tuple[str, int, str, int]


class Purse:
    """The calls of one run, as journaled."""

    def __init__(self) -> None:
        self._begun: dict[StepId, int] = {}
        self._ended: dict[StepId, int] = {}
        #: attempts that have ended, one way or another
        self._over: set[tuple[str, int]] = set()
        #: by attempts, beside their steps
        self._billed = 0

    @property
    def reserved(self) -> int:
        """What is under way, at its worst."""
        return sum(most for step, most in self._open() if step[:2] not in self._over)

    @property
    def spent(self) -> int:
        """What has ended, and what nobody saw the end of at its worst."""
        unseen = sum(most for step, most in self._open() if step[:2] in self._over)
        return sum(self._ended.values()) + unseen + self._billed

    def take(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._begun[_id_of(event)] = event.reserve.calls
            case StepFinished():
                self._ended[_id_of(event)] = event.outcome.usage.calls
            case AttemptFinished():
                self._over.add((event.task, event.attempt))
                self._billed += event.outcome.usage.calls
            case AttemptLost() | AttemptPreempted():
                self._over.add((event.task, event.attempt))
            case AttemptParked():
                # What it had begun was not let through, and costs nothing.
                mine = (event.task, event.attempt)
                self._begun = {step: most for step, most in self._begun.items() if step[:2] != mine}
            case _:
                pass  # nothing else costs anything

    def _open(self) -> list[tuple[StepId, int]]:
        return [(step, most) for step, most in self._begun.items() if step not in self._ended]


def _id_of(event: StepStarted | StepFinished) -> StepId:
    return event.task, event.attempt, event.name, event.ordinal
