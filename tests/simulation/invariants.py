"""What must hold whatever breaks. Each rule is a small function that returns its complaint, or nothing.

A rule's name starts with the number of the invariant that it states a part of. Rules know only the
journal and what really happened in the world of the trial, never the schedule's own state.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    Event,
    HedgeDue,
    ItemsListed,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    QuestionAnswered,
    QuestionExpired,
    RetryDue,
    RetryPlanned,
    RunFinished,
    RunPaused,
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
from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.facts.plan import Task
from tests.simulation import beside, mapped, oversight, plans, recourse
from tests.simulation.ledger import Entry
from tests.simulation.recourse import waits
from tests.simulation.story import RunStory
from tests.simulation.tasks import TaskStory

#: judges a new entry by the story up to it
Rule: TypeAlias = Callable[[RunStory, Entry], str]


# attempts


def i05_one_live_attempt(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    task = run.find(event.task)
    if task.open is not None:
        return f"{event.task} has attempt {task.open.number} open already"
    if event.attempt != len(task.attempts) + 1:
        return f"attempt {event.attempt} of {event.task} follows {len(task.attempts)}"
    return ""


def i06_an_ended_run_stays_ended(run: RunStory, entry: Entry) -> str:
    return "" if run.finished is None else f"{_kind(entry)} after the run had ended"


def i06_an_ended_task_stays_ended(run: RunStory, entry: Entry) -> str:
    task = run.find(_task_of(entry.event))
    return f"{_kind(entry)} of {task.task.id}, which is {task.ending}" if task.ending else ""


def i06_an_attempt_ends_once(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptFinished | AttemptLost | AttemptPreempted | AttemptParked)
    task = run.find(event.task)
    if task.open is None or task.open.number != event.attempt:
        return f"{_kind(entry)} of attempt {event.attempt} of {event.task}, which is not open"
    return ""


def i06_every_failure_is_judged(run: RunStory) -> str:
    for task in run.everything():
        if task.is_unjudged:
            return f"an attempt of {task.task.id} failed, and nothing came of it"
    return ""


def i07_only_the_leaseholder_is_heard(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, (AttemptFinished, StepStarted, StepFinished))
    attempt = run.find(event.task).open
    if attempt is None or attempt.number != event.attempt:
        return f"{_kind(entry)} accepted from attempt {event.attempt} of {event.task}"
    if (attempt.epoch, attempt.author) != (entry.epoch, entry.author):
        return f"{_kind(entry)} accepted in epoch {entry.epoch} from one of epoch {attempt.epoch}"
    return ""


def i08_tries_and_losses_are_capped(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    task = run.find(event.task)
    tries, most = len(task.failures), _attempts(run, task)
    if tries >= most and run.terms_of(task) is None:
        return f"{event.task} starts after {tries} failures of {most}"
    if task.losses > run.limits.losses:
        return f"{event.task} starts after {task.losses} losses of {run.limits.losses}"
    return ""


def i08_a_task_is_given_up_for_a_reason(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, TaskFailed)
    task = run.find(event.task)
    if run.terms_of(task) is not None:
        return ""  # see `recourse`
    if run.is_told_to_stop(task) or task.losses > run.limits.losses or task.is_too_late:
        return ""
    if task.is_short:
        return ""  # see `mapped`
    if task.question is not None:
        return ""  # it has expired; see i41
    if not task.is_unjudged or not task.failures:
        return f"{event.task} is given up although no attempt of it just failed"
    failure = task.failures[-1]
    if _is_final(failure) or len(task.failures) >= _attempts(run, task):
        return ""
    deadline_at = run.deadline_of(task.task)
    if deadline_at is not None and event.at + waits(task)[1] >= deadline_at:
        return ""
    return f"{event.task} is given up after {len(task.failures)} of {_attempts(run, task)} tries"


def i09_retry_waits_as_the_policy_says(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, RetryPlanned)
    task = run.find(event.task)
    if not task.is_unjudged:
        return f"a retry of {event.task} without a failure"
    low, high = waits(task)
    wait = event.due_at - event.at
    if not low <= wait <= high:
        return f"{event.task} waits {wait}, not between {low} and {high}"
    deadline_at = run.deadline_of(task.task)
    if deadline_at is not None and event.due_at >= deadline_at and not task.told:
        return f"{event.task} is to be tried again at or after its deadline"
    return ""


def i09_no_try_before_it_is_due(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, (AttemptStarted, RetryDue))
    planned = run.find(event.task).last_retry
    if planned is not None and event.at < planned.due_at:
        return f"{event.task} is tried again {planned.due_at - event.at} before its wait is over"
    return ""


def i11_what_is_final_is_not_tried_again(run: RunStory, entry: Entry) -> str:
    task = run.find(_task_of(entry.event))
    if run.terms_of(task) is not None:
        return ""  # see `recourse`
    is_final = any(_is_final(failure) for failure in task.failures)
    return f"{task.task.id} goes on after a failure that is final" if is_final else ""


def _is_final(failure: Failed) -> bool:
    return failure.is_final or failure.kind in (ErrorClass.DENIED, ErrorClass.CANCELLED)


def _attempts(run: RunStory, task: TaskStory) -> int:
    is_nonsense = any(failure.kind is ErrorClass.LOGIC for failure in task.failures)
    most = task.task.limits.attempts or run.limits.attempts
    if is_nonsense and task.task.id.startswith("@"):
        # A model that talked nonsense in spite of all objections is not asked again, but for the answer.
        return min(most, 2) if task.task.id == "@answer" else 1
    return most


# effects


def i12_an_outcome_has_an_intent(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepFinished)
    is_known = event.key in run.steps
    return "" if is_known else f"step {event.name} of {event.task} ended without having begun"


def i13_a_step_keeps_its_key(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepStarted)
    for key, step in run.steps.items():
        told = step.intent
        is_same = (told.task, told.name, told.ordinal) == (event.task, event.name, event.ordinal)
        if is_same and key != event.key:
            return f"step {event.name} {event.ordinal} of {event.task} has two keys"
    return ""


def i16_no_intent_after_a_stop(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StepStarted)
    task = run.find(event.task)
    if run.is_told_to_stop(task):
        return f"{event.task} begins step {event.name} although it was told to stop"
    return ""


# journal and leadership


def i18_entries_follow_each_other(run: RunStory, entry: Entry) -> str:
    last = run.last
    if last is None:
        return "" if entry.seq == 1 else f"the first entry has number {entry.seq}"
    if entry.seq != last.seq + 1:
        return f"entry {entry.seq} follows {last.seq}"
    if entry.event.at < last.event.at:
        return f"{_kind(entry)} is {last.event.at - entry.event.at} older than the one before it"
    return ""


def i23_one_author_an_epoch(run: RunStory, entry: Entry) -> str:
    if run.last is not None and entry.epoch < run.last.epoch:
        return f"epoch {entry.epoch} after epoch {run.last.epoch}"
    author = run.authors.get(entry.epoch, entry.author)
    return "" if author == entry.author else f"{author} and {entry.author} in one epoch"


# bounds


def i29_nothing_starts_too_late(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    task = run.find(event.task)
    if run.is_told_to_stop(task):
        return f"{event.task} starts although it was told to stop: {run.stop or 'its plan or time'}"
    if event.task in run.mapped:
        return ""  # it is made of the items that were in time
    deadline_at = run.deadline_of(task.task)
    if deadline_at is not None and event.at >= deadline_at:
        return f"{event.task} starts at or after its deadline"
    if event.attempt == 1 and _is_too_late(run, task.task, event.at):
        return f"{event.task} starts although it cannot be done before its deadline"
    return ""


def i29_only_what_cannot_be_in_time_is_not_started(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, StartMissed)
    if run.find(event.task).attempts:
        return f"{event.task} is not started, though it was before"
    is_so = _is_too_late(run, run.find(event.task).task, event.at)
    return "" if is_so else f"{event.task} is not started, though there was time enough"


def _is_too_late(run: RunStory, task: Task, at: datetime) -> bool:
    deadline_at = run.deadline_of(task)
    if deadline_at is None or task.expect is None:
        return False
    return at >= deadline_at - task.expect


def i29_time_was_really_over(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, DeadlinePassed)
    assert run.requested is not None
    if event.task:
        own = run.tasks[event.task].task.deadline
        is_over = own is not None and event.at >= run.began_at + own
    elif run.ends_at is not None:
        is_over = event.at >= run.ends_at
    else:
        is_over = run.active_until(event.at) >= run.limits.active
    return "" if is_over else f"the time of {event.task or 'the run'} was not over yet"


# people and ending


def i41_each_question_has_one_decision(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, (QuestionAnswered, QuestionExpired))
    task = run.find(event.task)
    if task.question is None or task.question.id != event.question or task.asked_at is None:
        return f"a decision on {event.question}, which is not open"
    if isinstance(event, QuestionAnswered) and event.by != "default":
        is_fit = task.question.accepts(event.text)
        return "" if is_fit else f"{event.text!r} is not an answer to {event.question}"
    patience = task.question.patience
    if patience is None or event.at < task.asked_at + patience:
        return f"{event.question} is decided for want of an answer, too early"
    is_default = isinstance(event, QuestionAnswered)
    if is_default != (task.question.default is not None):
        return f"{event.question}: the default was not used, or made up"
    return ""


def i42_the_end_tells_the_truth(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, RunFinished)
    running = [task.task.id for task in run.everything() if not task.ending]
    if running or run.owes():
        return f"the run ends before {', '.join([*running, *run.owes()])}"
    if not run.is_sealed and not run.stop:
        return "the run ends before its plan is whole"
    missing = {*_missing_tasks(run), *oversight.missing_duties(run, event.missing)}
    if set(event.missing) != missing:
        return f"{event.missing} are said to be missing, {missing} are"
    is_any_done = any(task.ending == "done" for task in run.planned.values())
    is_void = not is_any_done and any(
        not (task.is_removed or task.is_replaced) for task in run.planned.values()
    )
    if run.stop == "cancelled":
        expected = "cancelled"
    elif not missing and run.is_sealed and not is_void:
        expected = "succeeded"
    else:
        expected = "partial" if is_any_done else "failed"
    return "" if event.status == expected else f"the run is called {event.status}, not {expected}"


def _missing_tasks(run: RunStory) -> list[str]:
    return [
        id_
        for id_, task in run.planned.items()
        if (task.ending != "done" or task.has_gaps)
        and not task.task.optional
        and not task.is_removed
        and not task.is_replaced
    ]


def i43_a_settled_run_has_ended(run: RunStory) -> str:
    if run.finished is not None or not (run.is_sealed or run.stop):
        return ""
    is_open = any(not task.ending for task in run.everything()) or run.owes() or run.notes
    return "" if is_open else "all tasks have ended, and the run has not"


def i44_cancel_counts_once(run: RunStory, _: Entry) -> str:
    return "" if run.stop != "cancelled" else "cancelled twice"


_ENDS_ONCE = (i06_an_attempt_ends_once,)
_STARTS = (
    mapped.i50_a_mapped_task_is_collected_and_its_items_are_done,
    plans.i01_needs_come_first,
    i05_one_live_attempt,
    i06_an_ended_task_stays_ended,
    i08_tries_and_losses_are_capped,
    i09_no_try_before_it_is_due,
    i11_what_is_final_is_not_tried_again,
    i29_nothing_starts_too_late,
    beside.i46_a_hedge_is_begun_once_and_beside_something,
    oversight.i30_nothing_starts_while_paused,
    *oversight.STARTS,
)
EVERY_ENTRY: tuple[Rule, ...] = (
    i06_an_ended_run_stays_ended,
    i18_entries_follow_each_other,
    i23_one_author_an_epoch,
)
BY_KIND: dict[type[Event], tuple[Rule, ...]] = {
    AttemptStarted: _STARTS,
    AttemptFinished: (
        *_ENDS_ONCE,
        beside.i46_one_result_is_taken,
        beside.i49_enough_have_agreed,
        plans.i03_inputs_are_the_recorded_outputs,
        mapped.i50_every_item_is_in_the_list_once_and_in_order,
        i06_an_ended_task_stays_ended,
        i07_only_the_leaseholder_is_heard,
    ),
    AttemptLost: _ENDS_ONCE,
    AttemptPreempted: _ENDS_ONCE,
    AttemptParked: _ENDS_ONCE,
    CancelRequested: (i44_cancel_counts_once,),
    DeadlinePassed: (i29_time_was_really_over,),
    HedgeDue: (beside.i46_only_stragglers_are_hedged,),
    ItemsListed: (mapped.i50_items_are_listed_in_order_and_capped,),
    PersonAsked: (
        i06_an_ended_task_stays_ended,
        recourse.i08_failures_are_dealt_with_as_was_said,
    ),
    PlanAdopted: plans.CHANGES,
    PlanAmended: plans.CHANGES,
    QuestionAnswered: (i41_each_question_has_one_decision,),
    QuestionExpired: (i41_each_question_has_one_decision,),
    RetryDue: (
        i06_an_ended_task_stays_ended,
        i09_no_try_before_it_is_due,
        beside.i09_the_parked_wait_until_they_are_due,
    ),
    RetryPlanned: (
        i06_an_ended_task_stays_ended,
        recourse.i08_failures_are_dealt_with_as_was_said,
        i09_retry_waits_as_the_policy_says,
        i11_what_is_final_is_not_tried_again,
    ),
    RunFinished: (
        i42_the_end_tells_the_truth,
        oversight.i26_nothing_is_reserved_at_the_end,
        oversight.i43_step_by_step_ends_with_a_choice_of_nothing,
    ),
    StepFinished: (
        i07_only_the_leaseholder_is_heard,
        i12_an_outcome_has_an_intent,
        oversight.i25_nobody_pays_more_than_was_reserved,
    ),
    StepStarted: (
        i07_only_the_leaseholder_is_heard,
        i13_a_step_keeps_its_key,
        i16_no_intent_after_a_stop,
        beside.i46_a_hedge_changes_nothing,
        oversight.i25_spent_and_reserved_stay_within_the_cap,
    ),
    TaskAdded: plans.CHANGES,
    TaskRewritten: (
        i06_an_ended_task_stays_ended,
        oversight.i27_only_what_failed_for_its_words_is_rewritten,
    ),
    TaskFailed: (
        i06_an_ended_task_stays_ended,
        i08_a_task_is_given_up_for_a_reason,
        recourse.i08_failures_are_dealt_with_as_was_said,
    ),
    TaskSkipped: (i06_an_ended_task_stays_ended, plans.i04_only_the_hopeless_are_skipped),
    RunPaused: (oversight.i30_pauses_take_turns,),
    StartMissed: (i29_only_what_cannot_be_in_time_is_not_started,),
    RunUnpaused: (oversight.i30_pauses_take_turns,),
    WorkStopped: (oversight.i29_work_is_stopped_once_and_not_too_early,),
}
AFTER_APPEND: tuple[Callable[[RunStory], str], ...] = (
    plans.i04_the_hopeless_are_skipped_at_once,
    i06_every_failure_is_judged,
    mapped.i50_too_few_items_fail_their_task_at_once,
    beside.i46_a_hedge_ends_with_what_it_is_beside,
    oversight.i25_a_run_is_paused_while_it_asks_for_more,
    i43_a_settled_run_has_ended,
)


# small questions


def _kind(entry: Entry) -> str:
    return type(entry.event).__name__


def _task_of(event: Event) -> str:
    return str(getattr(event, "task", ""))
