"""What must hold of second attempts beside stragglers, of quorums, and of attempts that were parked.

Rules like those in `invariants`, which calls them.
"""

from datetime import timedelta

import msgspec

from chargehand.facts.events import AttemptFinished, AttemptStarted, HedgeDue, RetryDue, StepStarted
from chargehand.facts.outcome import Done
from tests.simulation.ledger import Entry
from tests.simulation.story import RunStory

#: that an attempt takes before it can be called a straggler
SHORTEST = timedelta(seconds=1)
VOTE = "vote"


def i46_only_stragglers_are_hedged(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, HedgeDue)
    assert run.requested is not None
    task = run.find(event.task)
    if not run.requested.hedges or not task.task.hedge:
        return f"{event.task} is hedged, and nobody wants that"
    if task.open is None or task.open.number != event.attempt or run.is_told_to_stop(task):
        return f"{event.task} is hedged at attempt {event.attempt}, which is over or to stop"
    if run.hedge_of(task) is not None:
        return f"attempt {event.attempt} of {event.task} is hedged twice"
    is_long = event.at - task.open.at >= SHORTEST
    return "" if is_long else f"{event.task} is called a straggler after {event.at - task.open.at}"


def i46_a_hedge_is_begun_once_and_beside_something(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    hedge = run.hedges.get(event.task)
    if hedge is None:
        return ""
    if hedge.attempts:
        return f"{event.task} is begun twice"
    first = run.tasks[_hedged(event.task)]
    is_beside = first.open is not None and run.hedge_of(first) is hedge
    return "" if is_beside else f"{event.task} is begun, and what it was to be beside has ended"


def i46_a_hedge_changes_nothing(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepStarted)
    is_free = event.effect in ("pure", "idempotent") or event.task not in run.hedges
    return "" if is_free else f"{event.task} begins step {event.name}, which is {event.effect}"


def i46_one_result_is_taken(run: RunStory, entry: Entry) -> str:
    """A task whose second attempt is done has the result of that one, and no other."""
    event = entry.event
    assert isinstance(event, AttemptFinished)
    hedge = run.hedge_of(run.find(event.task))
    if hedge is None or hedge.ending != "done" or not isinstance(event.outcome, Done):
        return ""
    is_same = event.outcome.value.digest == hedge.output
    return "" if is_same else f"{event.task} has another result than its second attempt"


def i46_a_hedge_ends_with_what_it_is_beside(run: RunStory) -> str:
    for id_, hedge in run.hedges.items():
        first = run.tasks[_hedged(id_)]
        is_over = first.open is None or run.hedge_of(first) is not hedge
        if is_over and not hedge.ending:
            return f"{id_} goes on, and what it was beside has ended"
        if hedge.ending == "done" and not is_over:
            return f"{id_} is done, and what it was beside goes on"
    return ""


def _hedged(hedge: str) -> str:
    return hedge.removeprefix("@hedge:").rpartition(":")[0]


# quorums


def i49_enough_have_agreed(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptFinished)
    task = run.find(event.task).task
    if task.worker != VOTE or not isinstance(event.outcome, Done):
        return ""
    says = msgspec.json.decode(event.outcome.value.json)["says"]
    agree = [need.task for need in task.all_needs if run.tasks[need.task].says == says]
    is_enough = len(agree) >= task.args["agree"]
    return "" if is_enough else f"{event.task} says {says!r}, as only {agree} do"


# parked attempts


def i09_the_parked_wait_until_they_are_due(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, RetryDue)
    until = run.find(event.task).parked_until
    is_early = until is not None and event.at < until
    return f"{event.task} is taken up again before it is due" if is_early else ""
