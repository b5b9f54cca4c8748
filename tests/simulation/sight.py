"""What must hold of a process after each of its rounds: nobody is late, no place is empty or taken twice.

Rules like those in `invariants`, judged by what really runs in the process and what is journaled.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from chargehand.facts.events import Approach
from tests.simulation.scenario import Crew
from tests.simulation.sizes import Offer
from tests.simulation.story import RunStory
from tests.simulation.tasks import TaskStory

#: attempts of one worker that come to nothing in a row before it may be passed over for a while
PATIENCE = 5


class Start(Struct, frozen=True):
    """An attempt that a process has just begun."""

    run: str
    task: str
    worker: str


class Sight(Struct, frozen=True, kw_only=True):
    """A process as it stands after a round: what it leads, and what really runs in it."""

    now: datetime
    crew: Crew
    #: places of the pool
    parallel: int
    #: and of each worker
    capacity: Mapping[str, int]
    #: workers that get nothing
    away: Collection[str]
    live_run: Mapping[str, RunStory]
    #: attempts that hold a place, by worker
    busy: Counter[str]
    #: likewise, by run, without what is left from an earlier lead of it
    busy_runs: Counter[str]
    starts: Sequence[Start]
    is_draining: bool
    #: attempts in a row, by worker, that came to nothing here
    troubles: Counter[str]
    #: attempts and system tasks that really run here
    running: int
    #: what the kernel believes to be running
    held: int


def i28_places_are_not_overfilled(sight: Sight) -> str:
    if sight.held != sight.running:
        return f"{sight.held} attempts are taken for running, {sight.running} are"
    total = sum(sight.busy.values())
    if total > sight.parallel:
        return f"{total} attempts in a pool of {sight.parallel}"
    for worker, count in sight.busy.items():
        if count > sight.capacity[worker]:
            return f"{worker} holds {count} of {sight.capacity[worker]}"
    for run in sight.live_run.values():
        if sight.busy_runs[run.run] > run.limits.parallel:
            return f"{run.run} holds {sight.busy_runs[run.run]} of {run.limits.parallel}"
    return ""


def i48_who_is_away_gets_nothing(sight: Sight) -> str:
    given = [start for start in sight.starts if start.worker in sight.away]
    return f"{given[0].task} is given to {given[0].worker}, who is away" if given else ""


def i09_due_retries_are_not_left(sight: Sight) -> str:
    for run in sight.live_run.values():
        for task in run.everything():
            due_at = task.parked_until if task.retry is None else task.retry.due_at
            if due_at is not None and due_at <= sight.now:
                return f"{task.task.id} was due {sight.now - due_at} ago"
    return ""


def i29_passed_deadlines_are_noticed(sight: Sight) -> str:
    for run in sight.live_run.values():
        if run.finished is not None or run.requested is None:
            continue
        if not run.has_plan and run.requested.approach is Approach.GIVEN:
            continue
        if run.stop:
            is_late = run.ends_at is not None and run.ends_at <= sight.now
            if is_late and not run.is_closed and run.stop != "cancelled":
                return f"the time for the answer of {run.run} passed unnoticed"
            continue
        if run.work_ends_at is not None and run.work_ends_at <= sight.now:
            return f"the deadline of {run.run} passed unnoticed"
        if run.work_ends_at is None and run.active_until(sight.now) >= run.limits.active:
            return f"{run.run} has been active for {run.active_until(sight.now)}"
        for task in run.tasks.values():
            own = task.task.deadline
            is_over = own is not None and run.began_at + own <= sight.now
            is_known = task.is_expired or task.is_removed or task.task.id in run.mapped
            if is_over and not task.ending and not is_known:
                return f"the deadline of {task.task.id} passed unnoticed"
    return ""


def i29_a_stop_is_heeded_within_its_grace(sight: Sight) -> str:
    for run in sight.live_run.values():
        for task in run.opened():
            if task.told_at is not None and task.told_at + run.limits.grace <= sight.now:
                return f"{task.task.id} was told to stop at {task.told_at}, and is called running"
    return ""


def i30_duties_are_taken_up_at_once(sight: Sight) -> str:
    if sight.is_draining:
        return ""
    for run in sight.live_run.values():
        if run.is_paused:
            continue
        left = [] if run.finished is not None else run.owes()
        left += [
            system_task.task.id
            for system_task in run.system_tasks.values()
            if _waits_for_nothing(system_task)
        ]
        left += [id_ for id_ in run.mapped if run.collects(run.tasks[id_])]
        if left:
            return f"{left[0]} of {run.run} could be done, and is not"
    return ""


def _waits_for_nothing(system_task: TaskStory) -> bool:
    is_free = (
        system_task.retry is None
        and system_task.parked_until is None
        and system_task.question is None
    )
    return not system_task.ending and system_task.open is None and is_free


def i41_patience_ends(sight: Sight) -> str:
    for run in sight.live_run.values():
        for task in run.everything():
            if task.question is None or task.asked_at is None or task.question.patience is None:
                continue
            if task.asked_at + task.question.patience <= sight.now:
                return f"the patience of {task.question.id} is over, and nothing came of it"
    return ""


def i30_no_place_is_left_empty(sight: Sight) -> str:
    if sight.is_draining or sum(sight.busy.values()) >= sight.parallel:
        return ""
    for run, task, worker in _fit(sight):
        return f"{task.task.id} of {run.run} is ready, and {worker} has room"
    return ""


def waiting_for_a_place(sight: Sight) -> list[Offer]:
    """What waits for nothing but a place of the pool."""
    if sight.is_draining or sum(sight.busy.values()) < sight.parallel:
        return []
    return [(run.run, task.task.id, len(task.attempts)) for run, task, _ in _fit(sight)]


def _fit(sight: Sight) -> Iterator[tuple[RunStory, TaskStory, str]]:
    """What could begin if the pool had a place, and by whom."""
    for run, task in _ready(sight):
        if sight.busy_runs[run.run] >= run.limits.parallel:
            continue
        for place in sight.crew.able(task.task):
            worker = place.worker
            may_rest = sight.troubles[worker] >= PATIENCE
            if worker in sight.away or may_rest:
                continue
            if sight.busy[worker] < sight.capacity[worker]:
                yield run, task, worker


def i30_the_more_urgent_is_not_passed_over(sight: Sight) -> str:
    if not sight.starts:
        return ""
    for run, task in _ready(sight):
        urgency = run.urgency(task.task.id, of_unfinished_only=True)
        able = {place.worker for place in sight.crew.able(task.task)}
        for start in sight.starts:
            other = sight.live_run.get(start.run)
            if start.worker not in able or other is None:
                continue
            if other is not run and sight.busy_runs[run.run] >= run.limits.parallel:
                continue  # it could not have had that place
            if other is not run and run.began_at > other.began_at:
                continue  # the other has waited longer, which counts as well
            if urgency > other.urgency(start.task, of_unfinished_only=False):
                return f"{start.task} of {start.run} started before {task.task.id} of {run.run}"
    return ""


def _ready(sight: Sight) -> Iterator[tuple[RunStory, TaskStory]]:
    for run in sight.live_run.values():
        if run.finished is None and not run.stop and not run.is_paused:
            for task in run.ready():
                yield run, task


AFTER_ROUND: tuple[Callable[[Sight], str], ...] = (
    i28_places_are_not_overfilled,
    i48_who_is_away_gets_nothing,
    i09_due_retries_are_not_left,
    i29_passed_deadlines_are_noticed,
    i29_a_stop_is_heeded_within_its_grace,
    i30_duties_are_taken_up_at_once,
    i41_patience_ends,
    i30_no_place_is_left_empty,
    i30_the_more_urgent_is_not_passed_over,
)
