"""What an attempt has to say, as the journal writes it down."""

from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from chargehand.decisions.run_results import StepRecord
from chargehand.engines.base import Ending, Job, Lost, Parking
from chargehand.engines.brief import Brief
from chargehand.facts.argument_checks import LONGEST
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    Event,
    ProgressNoted,
    StepFinished,
    StepStarted,
)
from chargehand.facts.outcome import Cancelled, Done, Failed, tainted
from chargehand.facts.value import plain

_Said = TypeVar("_Said")


def end_of(job: Job, ending: Ending, at: datetime, *, goes_on: bool) -> Event:
    """What came of an attempt. One that was stopped and `goes_on` elsewhere or later was preempted."""
    task, attempt, taint = job.brief.task.id, job.brief.attempt, job.brief.taint
    if type(ending) is Lost:
        return AttemptLost(task=task, attempt=attempt, reason=ending.reason, taint=taint, at=at)
    if type(ending) is Parking:
        return AttemptParked(
            task=task,
            attempt=attempt,
            due_at=at + min(ending.wait, LONGEST),
            why=plain(ending.why),
            is_long=ending.is_long,
            at=at,
        )
    if type(ending) is Cancelled and goes_on:
        return AttemptPreempted(task=task, attempt=attempt, at=at)
    return AttemptFinished(
        task=task,
        attempt=attempt,
        outcome=_written(tainted(ending, taint)),  # type: ignore[arg-type]  # Lost and Parking are gone
        key=job.key if type(ending) is Done else "",
        reused=job.reused,
        at=at,
    )


def step_started(brief: Brief, step: StepRecord, at: datetime) -> StepStarted:
    return StepStarted(
        task=brief.task.id,
        attempt=brief.attempt,
        name=step.name,
        ordinal=step.ordinal,
        effect=step.effect,
        key=step.key,
        digest=step.digest,
        about=step.about,
        reserve=step.reserve,
        at=at,
    )


def step_finished(
    brief: Brief, step: StepRecord, outcome: Done | Failed, at: datetime
) -> StepFinished:
    return StepFinished(
        task=brief.task.id,
        attempt=brief.attempt,
        name=step.name,
        ordinal=step.ordinal,
        key=step.key,
        outcome=outcome if type(outcome) is Done else _written(outcome),
        at=at,
    )


def progress_noted(brief: Brief, text: str, fraction: float | None, at: datetime) -> ProgressNoted:
    task, attempt = brief.task.id, brief.attempt
    return ProgressNoted(task=task, attempt=attempt, text=plain(text), fraction=fraction, at=at)


def _written(outcome: _Said) -> _Said:
    """What was said, in words that can be stored: an error may quote the name of any file."""
    if not isinstance(outcome, Failed):
        return outcome
    message, error, stack = map(plain, (outcome.message, outcome.error, outcome.stack))
    return replace(outcome, message=message, error=error, stack=stack)
