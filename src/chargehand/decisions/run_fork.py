"""Forks: which results a new run keeps when it starts from an event of a recorded run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.budget import NESTED
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.run_outputs_and_steps import Takeover
from chargehand.decisions.system_tasks import is_of_plan, is_system_task
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import Fault, PlanRefused, UsageError
from chargehand.facts.events import (
    AttemptFinished,
    Effect,
    Event,
    PlanAdopted,
    PlanAmended,
    RunRequested,
    StepStarted,
    TaskAdded,
)
from chargehand.facts.outcome import NO_USAGE, Done, Failed
from chargehand.facts.plan import Plan, Task, item_id, item_of

#: fields of a task that its result does not depend on
_MANNER = frozenset(
    {"deadline", "expect", "hedge", "limits", "on_failure", "optional", "priority", "at_least"}
)
_HARMLESS = (Effect.PURE, Effect.IDEMPOTENT)


class ForkChanges(Struct, frozen=True, kw_only=True):
    """How a fork differs from the run that it starts from."""

    #: a new plan
    plan: Plan | None = None
    #: tasks in place of those with the same ids, or new ones
    tasks: Sequence[Task] = ()
    #: tasks that are done again as they are, and items of `for_each`, as `count[2]`
    redo: Collection[str] = ()
    #: what the answer should look like
    instruction: str | None = None
    #: by worker that has changed: how
    workers: Mapping[str, str] = {}


class ForkPlan(Struct, frozen=True, kw_only=True):
    """The plan of a fork, and which results it reuses."""

    requested: RunRequested
    #: the number of the event that the fork starts from
    seq: int
    plan: Plan
    #: tasks whose recorded results are kept, items included
    keeps: tuple[str, ...]
    #: tasks that were in progress; they continue after their recorded steps
    continues: tuple[str, ...]
    #: by task that runs again: why
    redone: dict[str, str]
    #: by task that runs again: steps with side effects, which would happen again
    effects: dict[str, tuple[str, ...]]
    #: by task that runs again: its nested run
    nested: dict[str, str]


def fork_plan(run: str, events: Sequence[Event], at: int | None, changes: ForkChanges) -> ForkPlan:
    """Decide what a fork at this event keeps. Raises `UsageError` if the run cannot be forked there."""
    seq = len(events) if at is None else at
    if not 1 <= seq <= len(events):
        raise UsageError(
            f"run {run} has {len(events)} events, and no event {seq}; give at= a number from 1 to "
            f"{len(events)}; chargehand replay {run} --events lists them"
        )
    past = LiveRun(run)
    past.replay(events[:seq])
    requested = past.schedule.requested
    if requested is None:
        raise UsageError(f"run {run} does not begin with a request, and cannot be forked")
    plan = _changed_plan(run, past, changes)
    written = _as_written(events[:seq])
    workers = changes.workers if at is None else {}
    redone: dict[str, str] = {}
    keeps: list[str] = []
    continues: list[str] = []
    #: tasks that run again but keep the items that are done
    in_part: set[str] = set()
    for task in plan.tasks:
        node = past.schedule.nodes.get(task.id)
        why = _why_changed(task, node, written, changes, workers)
        why = why or _why_needs(task, redone)
        if why:
            redone[task.id] = why
        elif node is not None and node.state is TaskState.DONE and task.id in past.results.outputs:
            if why := _why_items(past, task, changes.redo):
                redone[task.id] = why
                in_part.add(task.id)
            else:
                keeps.append(task.id)
        else:
            redone[task.id] = "it was not done yet"
            in_part.add(task.id)
            if task.id in past.results.steps and task.id not in past.results.nested:
                continues.append(task.id)  # a nested run has its own id, so it starts again
    kept, going = set(keeps), set(continues)
    for id_ in [*past.results.outputs, *_failed_items(past, kept)]:
        item = item_of(id_)
        if item is not None and item[0] in kept | in_part and id_ not in changes.redo:
            keeps += [id_] if not isinstance(_over(plan, item[0]), dict) else []
    return ForkPlan(
        requested=requested,
        seq=seq,
        plan=plan,
        keeps=tuple(keeps),
        continues=tuple(continues),
        redone=redone,
        effects=_effects(events, seq, set(redone), going),
        nested={task: nested for task, nested in _nested(run, events).items() if task in redone},
    )


def takeover(requested: RunRequested, events: Iterable[Event]) -> Takeover:
    """What a run takes over from the run that it reuses. For a fork, pass the events up to its `fork_seq`."""
    if not requested.fork_seq:
        finished = (each for each in events if isinstance(each, AttemptFinished) and each.key)
        # A result with gaps is not taken over: another try may close them, or a rejected call may be allowed.
        return Takeover(
            {
                each.key: Done(each.outcome.value)
                for each in finished
                if isinstance(each.outcome, Done) and not each.outcome.gaps
            }
        )
    past = LiveRun(requested.reuses)
    past.replay(events)
    outputs, steps, nodes = past.results.outputs, past.results.steps, past.schedule.nodes
    results: dict[str, Done | Failed] = {}
    for task in requested.keeps:
        if task in outputs:
            results[task] = Done(outputs[task], gaps=nodes[task].gaps)
        elif task in nodes and (cause := nodes[task].cause) is not None:
            results[task] = replace(cause, usage=NO_USAGE)
    return Takeover(
        results=results,
        steps={task: steps[task] for task in requested.continues if task in steps},
    )


def _changed_plan(run: str, past: LiveRun, changes: ForkChanges) -> Plan:
    schedule, requested = past.schedule, past.schedule.requested
    if changes.plan is not None and (changes.tasks or changes.instruction is not None):
        raise UsageError("give a fork either a whole plan, or changed tasks and an instruction")
    if changes.plan is not None:
        plan = changes.plan
    else:
        known = {node.task.id: node.task for node in _planned(schedule.nodes)}
        tasks = known | {task.id: task for task in changes.tasks}
        instruction = schedule.instruction if changes.instruction is None else changes.instruction
        plan = Plan(
            goal="" if requested is None else requested.request,
            tasks=tuple(tasks.values()),
            instruction=instruction,
            strategy=schedule.strategy,
        )
    if not plan.tasks:
        raise UsageError(
            f"run {run} has no plan at that event; fork it at a later one, or give a plan"
        )
    known_ids = {task.id for task in plan.tasks}
    items = {id_ for id_ in past.schedule.nodes if (i := item_of(id_)) and i[0] in known_ids}
    lost = [id_ for id_ in changes.redo if id_ not in known_ids | items]
    if lost:
        raise PlanRefused([Fault("unknown_task", id_, "there is no such task") for id_ in lost])
    return plan


def _failed_items(past: LiveRun, tasks: Iterable[str]) -> list[str]:
    """The items of these tasks with `for_each` that are not done."""
    nodes, counts = past.schedule.nodes, past.schedule.mapped
    items = (item_id(task, index) for task in tasks for index in range(counts.get(task, 0)))
    return [id_ for id_ in items if nodes[id_].state is not TaskState.DONE]


def _why_items(past: LiveRun, task: Task, redo: Collection[str]) -> str:
    """Why items of a done task with `for_each` run again; empty if none does."""
    nodes, count = past.schedule.nodes, past.schedule.mapped.get(task.id, 0)
    asked = [id_ for id_ in redo if (item := item_of(id_)) and item[0] == task.id]
    if asked:
        return f"you asked for {len(asked)} of its items"
    failed = _failed_items(past, [task.id])
    is_enough = task.at_least is not None and count - len(failed) >= task.at_least
    if is_enough and not nodes[task.id].gaps and all(nodes[id_].cause for id_ in failed):
        return ""
    return f"{len(failed)} of its items failed" if failed else ""


def _planned(nodes: Mapping[str, TaskNode]) -> list[TaskNode]:
    """The tasks of the current plan, and removed or replaced tasks that one of them still needs."""
    wanted = {id_ for id_, node in nodes.items() if is_of_plan(node)}
    waiting = list(wanted)
    while waiting:
        needs = nodes[waiting.pop()].task.all_needs
        fresh = [need.task for need in needs if need.task not in wanted]
        wanted.update(fresh)
        waiting += fresh
    return [node for id_, node in nodes.items() if id_ in wanted]


def _as_written(events: Iterable[Event]) -> dict[str, Task]:
    """The tasks as they were planned, before retries changed their worker or description."""
    written: dict[str, Task] = {}
    for event in events:
        match event:
            case PlanAdopted():
                written |= {task.id: task for task in event.plan.tasks}
            case TaskAdded():
                written[event.task.id] = event.task
            case PlanAmended():
                written |= {task.id: task for task in event.added}
            case _:
                pass
    return written


def _why_changed(
    task: Task,
    node: TaskNode | None,
    written: Mapping[str, Task],
    changes: ForkChanges,
    workers: Mapping[str, str],
) -> str:
    """Why the recorded result of a task is no longer valid for this task; empty if it is."""
    if node is None:
        return "it is new"
    before = (_rests_on(node.task), _rests_on(written.get(task.id, node.task)))
    now = _rests_on(task)
    if now not in before:
        parts = [part for part, value in now.items() if before[0].get(part) != value]
        return f"another {', '.join(parts) or 'task'}"
    if task.id in changes.redo:
        return "you asked for it"
    who = node.worker or task.worker
    return f"{who}: {workers[who]}" if who in workers else ""


def _why_needs(task: Task, redone: Mapping[str, str]) -> str:
    changed = [need.task for need in task.all_needs if need.task in redone]
    return f"it needs {', '.join(changed)}" if changed else ""


def _rests_on(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(task)
    return {name: value for name, value in fields.items() if name not in _MANNER and value}


def _over(plan: Plan, task: str) -> Any:
    return next((each.for_each for each in plan.tasks if each.id == task), None)


def _nested(run: str, events: Sequence[Event]) -> dict[str, str]:
    whole = LiveRun(run)
    whole.replay(events)
    return whole.results.nested


def effects_in(events: Iterable[Event]) -> tuple[str, ...]:
    """The names of the steps that may have changed something outside."""
    begun = (each for each in events if isinstance(each, StepStarted) and each.name != NESTED)
    return tuple(dict.fromkeys(each.name for each in begun if each.effect not in _HARMLESS))


def _effects(
    events: Sequence[Event], seq: int, redone: Collection[str], going: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """By task that runs again: its steps that may have changed something outside."""
    found: dict[str, dict[str, None]] = {}
    for number, event in enumerate(events, 1):
        if not isinstance(event, StepStarted) or event.effect in _HARMLESS or event.name == NESTED:
            continue
        item = item_of(event.task)
        task = event.task if item is None else item[0]
        is_kept = task in going and number <= seq
        if task in redone and not is_kept and not is_system_task(task):
            found.setdefault(task, {})[event.name] = None
    return {task: tuple(names) for task, names in found.items()}


def with_fork(requested: RunRequested, fork: ForkPlan) -> RunRequested:
    """The first event of a fork: it names the run and the event that it starts from."""
    return replace(
        requested,
        reuses=fork.requested.run,
        fork_seq=fork.seq,
        keeps=fork.keeps,
        continues=fork.continues,
    )
