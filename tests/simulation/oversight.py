"""What must hold of what the supervisor does itself, of the time for the answer, and of the budget.

Rules like those in `invariants`, which calls them.
"""

import itertools
from collections.abc import Sequence

from chargehand.facts.events import (
    Approach,
    AttemptStarted,
    PlanAdopted,
    PlanAmended,
    RetryHow,
    RunFinished,
    RunPaused,
    RunUnpaused,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskRewritten,
    WorkStopped,
)
from tests.simulation.ledger import Entry
from tests.simulation.story import RunStory

# when a system task falls due


def i27_no_duty_is_begun_that_is_not_owed(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    is_new = event.task.startswith("@") and event.task not in run.system_tasks
    if not is_new or event.task.startswith("@draft"):
        return ""
    owed = run.owes()
    if event.task in owed or event.task in run.hedges:
        return ""
    if run.notes and event.task == run.next_planning and not run.is_planning and not run.stop:
        return ""  # a note and a failure at the same time may lead to two plannings, or to one
    return f"{event.task} is begun, owed is {owed or 'nothing'}"


def i27_drafts_are_few_and_of_something_new(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    assert run.requested is not None
    if not event.task.startswith("@draft") or event.task in run.system_tasks:
        return ""
    drafts = [
        system_task for id_, system_task in run.system_tasks.items() if id_.startswith("@draft")
    ]
    done = [task for task in run.planned.values() if task.ending == "done"]
    if not run.requested.drafts or event.task != f"@draft:{len(drafts) + 1}":
        return f"{event.task} is begun unasked, or out of turn"
    if (
        not run.is_sealed
        or "@answer" in run.system_tasks
        or any(not draft.ending for draft in drafts)
    ):
        return f"{event.task} is begun while the plan, another draft or the answer is being written"
    return f"{event.task} of {len(done)} results" if len(drafts) >= len(done) else ""


def i27_plannings_are_capped(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    assert run.requested is not None
    if not event.task.startswith("@plan") or run.requested.approach is Approach.STEPS:
        return ""
    count, most = len({*run.plannings, event.task}), run.most_plannings
    return f"planning number {count}, the cap is {most}" if count > most else ""


def i01_the_answer_comes_last(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    if event.task != "@answer":
        return ""
    running = [task.task.id for task in run.everything() if not task.ending and not task.is_answer]
    return f"the answer is composed before {running[0]} has ended" if running else ""


def i29_no_task_once_the_answer_is_composed(run: RunStory, entry: Entry) -> str:
    is_added = isinstance(entry.event, (PlanAdopted, PlanAmended, TaskAdded))
    is_late = is_added and "@answer" in run.system_tasks
    return "the plan is changed although the answer is being made of it" if is_late else ""


def i09_better_words_come_before_the_next_try(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    system_task = run.rewriting(run.find(event.task))
    return f"{event.task} is tried again before {system_task} has ended" if system_task else ""


STARTS = (
    i27_no_duty_is_begun_that_is_not_owed,
    i27_drafts_are_few_and_of_something_new,
    i27_plannings_are_capped,
    i01_the_answer_comes_last,
    i09_better_words_come_before_the_next_try,
)


def i27_only_what_failed_for_its_words_is_rewritten(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, TaskRewritten)
    task = run.tasks[event.task]
    planned = task.last_retry
    if task.open is not None:
        return f"{event.task} gets other words while it runs"
    if planned is None or planned.how is not RetryHow.REWRITTEN:
        return f"{event.task} gets other words, and did not fail for those it had"
    if planned.attempt != event.attempt or task.attempts[-1].number != event.attempt:
        return f"{event.task} gets words for attempt {event.attempt}, which is long past"
    return ""


# pauses


def i25_a_run_is_paused_while_it_asks_for_more(run: RunStory) -> str:
    is_on = run.asks_for_more and not run.is_paused
    return "it asks for more to spend, and goes on meanwhile" if is_on else ""


def i30_nothing_starts_while_paused(run: RunStory, entry: Entry) -> str:
    assert isinstance(entry.event, AttemptStarted)
    return f"{entry.event.task} starts in a run that is paused" if run.is_paused else ""


def i30_pauses_take_turns(run: RunStory, entry: Entry) -> str:
    assert isinstance(entry.event, RunPaused | RunUnpaused)
    is_pause = isinstance(entry.event, RunPaused)
    if is_pause and run.stop:
        return "a run is paused that is stopping"
    if is_pause and run.asks_for_more:
        return ""  # a person wants it, too
    return "a pause begins or ends twice" if is_pause == run.is_paused else ""


# the time for the answer


def i29_work_is_stopped_once_and_not_too_early(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, WorkStopped)
    if run.stop:
        return "the work is stopped twice"
    if event.by:
        return ""
    is_time = run.work_ends_at is not None and event.at >= run.work_ends_at
    return "" if is_time else "the work is stopped before its time was over"


def i43_step_by_step_ends_with_a_choice_of_nothing(run: RunStory, _: Entry) -> str:
    assert run.requested is not None
    if run.requested.approach is not Approach.STEPS or run.stop:
        return ""
    began_with = list(run.plannings.values())
    if began_with[-1] != run.version:
        return "the run ends although nobody has looked at its last result"
    is_one_each = all(one < two for one, two in itertools.pairwise(began_with))
    return "" if is_one_each else f"after one result two choices were made: {began_with}"


def missing_duties(run: RunStory, told: Sequence[str]) -> list[str]:
    """Without which of its own works the supervisor cannot call a run a success."""
    requested = run.requested
    assert requested is not None
    missing = [
        system_task
        for number, system_task in enumerate(run.plannings)
        if run.system_tasks[system_task].ending != "done"
        and requested.approach is not Approach.GIVEN
        and (number == 0 or requested.approach is Approach.STEPS)
    ]
    if requested.approach is not Approach.GIVEN and not run.plannings:
        missing.append("@plan")
    if requested.approach is Approach.STEPS and run.stop and run.next_planning in told:
        missing.append(run.next_planning)  # it was to be the next, and then there was no next
    is_answered = run.find("@answer").ending == "done"
    has_results = any(task.ending == "done" for task in run.planned.values())
    if requested.answers and (requested.shape is not None or has_results) and not is_answered:
        missing.append("@answer")
    return missing


# the budget


def i25_spent_and_reserved_stay_within_the_cap(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepStarted)
    assert run.requested is not None
    if run.calls is None:
        return ""
    is_kept_back = run.requested.answers and event.task != "@answer"
    cap = run.calls - is_kept_back
    held = run.purse.spent + run.purse.reserved + event.reserve.calls
    return f"{held} calls are spent or reserved, the cap is {cap}" if held > cap else ""


def i25_nobody_pays_more_than_was_reserved(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepFinished)
    if run.calls is None:
        return ""
    held = run.purse.spent + run.purse.reserved
    return f"{held} calls, the cap was {run.most_calls}" if held > run.most_calls else ""


def i26_nothing_is_reserved_at_the_end(run: RunStory, entry: Entry) -> str:
    assert isinstance(entry.event, RunFinished)
    return f"{run.purse.reserved} calls are still reserved" if run.purse.reserved else ""
