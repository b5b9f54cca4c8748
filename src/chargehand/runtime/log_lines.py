"""What happens to runs, as lines of the logger `chargehand`: named as the events, one line each."""

import logging
import re
from collections.abc import Sequence

from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    Event,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
    RetryPlanned,
    RunLed,
    RunPaused,
    RunReleased,
    RunRequested,
    RunSteered,
    RunUnpaused,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.outcome import Done, Failed, NeedsInput

log = logging.getLogger("chargehand")

#: what a line says of each kind; `run_finished` is told where the run is let go of
FIELDS: dict[type[Event], tuple[str, ...]] = {
    RunRequested: ("request", "priority"),
    RunLed: ("node", "epoch"),
    RunReleased: ("reason",),
    RunPaused: ("by", "reason"),
    RunUnpaused: ("by",),
    RunSteered: ("by", "note"),
    CancelRequested: ("by", "reason"),
    WorkStopped: ("by", "reason"),
    DeadlinePassed: ("task",),
    AttemptStarted: ("task", "attempt", "worker"),
    AttemptFinished: ("task", "attempt", "outcome"),
    AttemptLost: ("task", "attempt", "reason"),
    AttemptPreempted: ("task", "attempt"),
    AttemptParked: ("task", "attempt", "due_at", "why"),
    RetryPlanned: ("task", "due_at", "worker"),
    PersonAsked: ("task", "question"),
    QuestionAnswered: ("task", "question", "by"),
    QuestionExpired: ("task", "question", "why"),
    TaskRewritten: ("task", "description"),
    TaskFailed: ("task", "cause"),
    TaskSkipped: ("task", "why"),
}
NAMES = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in FIELDS}
#: characters of a text
LONGEST = 300


def log_events(run: str, events: Sequence[Event]) -> None:
    """Write a line for each of these, with the stack of a failure at level DEBUG."""
    for event in events:
        fields = FIELDS.get(type(event))
        if fields is None:
            continue
        told = " ".join(f"{name}={_said(getattr(event, name))}" for name in fields)
        log.info("%s run=%s %s", NAMES[type(event)], run, told)
        outcome = getattr(event, "outcome", None)
        if isinstance(outcome, Failed) and outcome.stack:
            log.debug("attempt_stack run=%s %s\n%s", run, told, outcome.stack.rstrip())


def _said(value: object) -> str:
    """As `repr` where it is a text: a line break or an escape in one must not make a second line."""
    match value:
        case Done():
            return "done"
        case Failed():
            error = _said(value.error)
            return f"failed kind={value.kind} error={error} message={value.message[:LONGEST]!r}"
        case NeedsInput(question=question):
            return f"asks question={question.id} text={question.text[:LONGEST]!r}"
        case str():
            return value if value.isalnum() else repr(value[:LONGEST])
        case int():
            return str(value)
        case _:
            return _other(value)


def _other(value: object) -> str:
    isoformat = getattr(value, "isoformat", None)
    if isoformat is not None:
        return str(isoformat())
    return str(getattr(value, "id", "")) or type(value).__name__.lower()
