"""The supervisor's own work in a trial: planners, refiners and answerers that fail like anybody else.

They see the run as it stands, as system tasks do in earnest, and go on from what is written down already.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from chargehand.decisions.schedule import Schedule
from chargehand.decisions.system_tasks import is_planned
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts.events import (
    Approach,
    Event,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    TaskAdded,
    TaskRewritten,
)
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, NeedsInput
from chargehand.facts.plan import Plan
from tests.simulation.attempt import (
    NO_INSTANT,
    Attempt,
    Move,
    Sleep,
    Tell,
    Work,
    mishap,
    pause,
    question_of,
    take,
)
from tests.simulation.changes import Standing, draw_more
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.scenario import (
    SECOND,
    Crew,
    Order,
    StepScript,
    thought,
)

NO_MORE = Cancelled(reason="the run takes no plan any more")

_Said = Generator[Move, bool, bool]


class Wish(Struct, frozen=True):
    """What somebody asked for, and who is there to do it."""

    order: Order
    crew: Crew


def supervise(
    attempt: Attempt,
    args: Mapping[str, Any],
    wish: Wish,
    thoughts: Sequence[StepScript],
    dice: Dice,
) -> Work:
    """One attempt at a system task, from its first thought to what comes of it."""
    pace = 20 if dice.hits(FaultKind.SLOW_WORKER) else 1
    first = thought(attempt.run, attempt.task, "look")
    seen = _seen(attempt, first, args)
    for step in (first, *thoughts):
        yield Sleep(pace * dice.between(SECOND // 50, 2 * SECOND))
        trouble = yield from take(attempt, step, dice, seen)
        if trouble is not None:
            return trouble
    yield from pause(dice)
    unclear = f"{attempt.run}/{attempt.task}/meant"
    is_first = attempt.task == "@plan" and not attempt.live_run.schedule.version
    if is_first and attempt.answer(unclear) is None and dice.hits(FaultKind.UNCLEAR):
        return NeedsInput(question=question_of(unclear, (), dice))
    when = dice.random.choice(("before", "after", "never"))
    failure = None if when == "never" else mishap(dice)
    if failure is not None and when == "before":
        return failure
    outcome = yield from _act(attempt, args, wish, seen, dice)
    return failure or outcome


def _seen(attempt: Attempt, first: StepScript, args: Mapping[str, Any]) -> dict[str, Any]:
    """What the system task saw when it first looked: it must not decide anew because the run moved on."""
    known = attempt.find(first)
    if known is not None and isinstance(known.outcome, Done):
        seen: dict[str, Any] = known.outcome.value.read()
        return seen
    schedule = attempt.live_run.schedule
    target = schedule.nodes.get(args.get("task", ""))
    return {"version": schedule.version, "words": target and target.task.description}


def _act(
    attempt: Attempt, args: Mapping[str, Any], wish: Wish, seen: Mapping[str, Any], dice: Dice
) -> Work:
    if attempt.worker == "@answerer":
        yield Sleep(dice.between(SECOND // 50, 10 * SECOND))
        return Done()
    if "task" in args:
        return (yield from _rewrite(attempt, args, seen, dice))
    if "because" in args:
        return (yield from _plan_again(attempt, wish, seen, dice, args["because"]))
    if wish.order.approach is Approach.STREAM:
        return (yield from _dictate(attempt, wish.order.plan, dice))
    return (yield from _write_plan(attempt, wish.order, dice))


def _say(event: Event, dice: Dice) -> _Said:
    yield Sleep(dice.between(SECOND // 100, SECOND))
    return (yield Tell(event))


def _write_plan(attempt: Attempt, order: Order, dice: Dice) -> Work:
    if attempt.live_run.schedule.version:
        return Done()  # adopted just before the process ended that had it written
    plan = order.plan
    if order.approach is not Approach.WHOLE:
        first = next(task for task in plan.tasks if not task.all_needs)
        plan = Plan(goal="a trial", tasks=[first])
    is_adopted = yield from _say(PlanAdopted(plan=plan, at=NO_INSTANT), dice)
    return Done() if is_adopted else NO_MORE


def _dictate(attempt: Attempt, plan: Plan, dice: Dice) -> Work:
    schedule = attempt.live_run.schedule
    if schedule.version and not schedule.is_being_planned:
        return Done()
    events: list[Event] = [
        TaskAdded(task=task, at=NO_INSTANT) for task in plan.tasks if task.id not in schedule.nodes
    ]
    if not schedule.version:
        events.insert(0, PlanOpened(goal=plan.goal, at=NO_INSTANT))
    for event in events:
        if not (yield from _say(event, dice)):
            return NO_MORE
        if dice.hits(FaultKind.PLANNER_GIVES_UP):
            return Failed(kind=ErrorClass.LOGIC, message="no more of a plan")
    if dice.hits(FaultKind.PLAN_NOT_SEALED):
        return Done()
    is_sealed = yield from _say(PlanSealed(at=NO_INSTANT), dice)
    return Done() if is_sealed else NO_MORE


def _plan_again(
    attempt: Attempt, wish: Wish, seen: Mapping[str, Any], dice: Dice, because: str
) -> Work:
    is_step = because == "step"
    schedule = attempt.live_run.schedule
    if schedule.version > seen["version"]:
        return Done()  # changed just before the process ended that planned it
    now = _standing(schedule, f"p{attempt.task[6:]}.{attempt.number}")
    room = schedule.limits.tasks - len(now.settled) - len(now.unsettled)
    is_enough = dice.random.random() < 0.4 if is_step else dice.hits(FaultKind.NO_OTHER_WAY)
    if is_enough or room < 1:
        return Done()
    count = 1 if is_step else min(room, dice.random.randint(1, 3))
    replaced = [task for task in now.lost if dice.random.random() < 0.7]
    change = PlanAmended(
        version=seen["version"] + 1,
        added=draw_more(dice, wish.crew, now, (), count),
        replaced=() if is_step else tuple(replaced),
        is_step=is_step,
        is_steered=because == "steer",
        at=NO_INSTANT,
    )
    is_changed = yield from _say(change, dice)
    return NO_MORE if is_step and not is_changed else Done()


def _standing(schedule: Schedule, fresh_id: str) -> Standing:
    nodes = {id_: node for id_, node in schedule.nodes.items() if is_planned(id_)}
    return Standing(
        version=schedule.version,
        settled=tuple(id_ for id_, node in nodes.items() if node.state.is_settled),
        unsettled=tuple(id_ for id_, node in nodes.items() if not node.state.is_settled),
        lost=tuple(id_ for id_, node in nodes.items() if _came_to_nothing(node)),
        needs={},
        fresh_id=fresh_id,
    )


def _came_to_nothing(node: TaskNode) -> bool:
    return node.state.is_settled and node.state is not TaskState.DONE


def _rewrite(
    attempt: Attempt, args: Mapping[str, Any], seen: Mapping[str, Any], dice: Dice
) -> Work:
    words = attempt.live_run.schedule.nodes[args["task"]].task.description
    if words != seen["words"] or dice.hits(FaultKind.NOT_REWRITTEN):
        return Done()
    better = TaskRewritten(
        task=args["task"],
        attempt=args["attempt"],
        description=f"{words}, better than at attempt {args['attempt']}",
        at=NO_INSTANT,
    )
    yield from _say(better, dice)
    return Done()
