"""What must hold of plans: their order is kept, they stay sound graphs, and change only as they may.

Rules like those in `invariants`, which calls them.
"""

from collections.abc import Mapping, Sequence

import msgspec

from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanAdopted,
    PlanAmended,
    TaskAdded,
    TaskSkipped,
)
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Task
from tests.simulation import oversight
from tests.simulation.ledger import Entry
from tests.simulation.story import RunStory


def i01_needs_come_first(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptStarted)
    is_met = run.is_satisfied(run.find(event.task))
    return "" if is_met else f"{event.task} started before its needs were met"


def i02_the_plan_stays_a_sound_graph(run: RunStory, entry: Entry) -> str:
    event = entry.event
    added = _added_by(event)
    needs = {id_: [n.task for n in story.task.all_needs] for id_, story in run.tasks.items()}
    for task in added:
        if task.id in needs:
            return f"the id {task.id} is used again"
        if task.id.startswith("@"):
            return f"the id {task.id} is none for a task of a plan"
        needs[task.id] = [need.task for need in task.all_needs]
    if isinstance(event, PlanAmended):
        for id_ in event.removed:
            if id_ not in run.tasks or run.tasks[id_].ending:
                return f"{id_} is removed although it is not there or has ended"
        for id_ in event.replaced:
            if id_ not in run.tasks or run.tasks[id_].ending in ("", "done"):
                return f"{id_} is replaced although it has not come to nothing"
    for task in added:
        if not set(needs[task.id]) <= needs.keys():
            return f"{task.id} needs what is not in the plan"
        if _reaches(needs, task.id):
            return f"{task.id} needs itself, by way of others"
    return ""


def _reaches(needs: Mapping[str, Sequence[str]], start: str) -> bool:
    seen: set[str] = set()
    here = list(needs[start])
    while here:
        task = here.pop()
        if task == start:
            return True
        if task not in seen:
            seen.add(task)
            here += needs.get(task, ())
    return False


def i03_inputs_are_the_recorded_outputs(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptFinished)
    if not isinstance(event.outcome, Done) or event.task not in run.tasks:
        return ""
    if run.tasks[event.task].task.for_each is not None:
        return ""  # see `mapped`
    told = msgspec.json.decode(event.outcome.value.json)
    task = run.tasks[event.task].task
    inputs = {need.key: run.tasks[need.task].output or None for need in task.all_needs}
    if told["inputs"] != inputs:
        return f"{event.task} worked on {told['inputs']}, recorded is {inputs}"
    if told["words"] != task.description:
        return f"{event.task} was told {told['words']!r}, recorded is {task.description!r}"
    return ""


def i04_only_the_hopeless_are_skipped(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, TaskSkipped)
    if not run.is_hopeless(run.tasks[event.task]):
        return f"{event.task} is skipped although no need of it came to nothing"
    root = run.tasks.get(event.cause)
    if root is None or root.ending not in ("failed", "cancelled"):
        return f"{event.task} is skipped because of {event.cause!r}, which did not fail"
    return ""


def i04_the_hopeless_are_skipped_at_once(run: RunStory) -> str:
    if run.stop:
        return ""
    for task in run.tasks.values():
        if not task.ending and run.is_hopeless(task):
            return f"{task.task.id} still waits for a need that came to nothing"
    return ""


def i27_tasks_and_changes_are_capped(run: RunStory, entry: Entry) -> str:
    event = entry.event
    total = len(run.planned) + len(_added_by(event))
    if total > run.limits.tasks:
        return f"{total} tasks, the cap is {run.limits.tasks}"
    if isinstance(event, PlanAmended):
        if run.changes >= run.limits.replans and not (event.is_step or event.is_steered):
            return f"change number {run.changes + 1}, the cap is {run.limits.replans}"
        if event.version != run.version + 1:
            return f"version {event.version} follows {run.version}"
    return ""


def i29_no_task_after_a_stop(run: RunStory, entry: Entry) -> str:
    added = _added_by(entry.event)
    return f"{added[0].id} is added although the run is {run.stop}" if run.stop and added else ""


CHANGES = (
    i02_the_plan_stays_a_sound_graph,
    i27_tasks_and_changes_are_capped,
    i29_no_task_after_a_stop,
    oversight.i29_no_task_once_the_answer_is_composed,
)


def _added_by(event: Event) -> Sequence[Task]:
    match event:
        case PlanAdopted():
            return event.plan.tasks
        case PlanAmended():
            return event.added
        case TaskAdded():
            return [event.task]
        case _:
            return ()
