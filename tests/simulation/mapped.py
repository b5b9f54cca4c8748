"""Tasks with `for_each` in a trial: who maps them, who lists and collects their items, and what must hold of them."""

import msgspec
from msgspec.structs import replace

from chargehand.decisions.system_tasks import COLLECTOR
from chargehand.facts.events import AttemptFinished, AttemptStarted, ItemsListed
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Task, item_id
from chargehand.facts.value import Value
from tests.simulation.attempt import NO_INSTANT, Attempt, Sleep, Tell, Work, mishap, pause
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.ledger import Entry
from tests.simulation.scenario import SECOND
from tests.simulation.story import RunStory

# drawing


def list_items(attempt: Attempt, mapped: str, dice: Dice) -> Work:
    """What the lister does: write down items, perhaps in parts, perhaps others than at its last try."""
    chance, schedule = dice.of_items, attempt.live_run.schedule
    yield Sleep(dice.between(SECOND // 50, 2 * SECOND))
    yield from pause(dice)
    failure = mishap(dice)
    if failure is not None and chance.random() < 0.5:
        return failure
    first = 0
    for _ in range(chance.randint(1, 2)):
        items = tuple(Value.of(f"{mapped} {first + n}") for n in range(chance.randint(0, 3)))
        event = ItemsListed(task=mapped, first=first, items=items, at=NO_INSTANT)
        yield Sleep(dice.between(SECOND // 100, SECOND))
        if not (yield Tell(event)):
            node = schedule.nodes[mapped]
            if node.state.is_settled or schedule.stop_reason:
                return Done()
            dice.note(FaultKind.TOO_MANY_ITEMS)
            return Failed(kind=ErrorClass.LOGIC, message="too many items")
        first += len(items)
    return failure or Done(Value.of({"items": first}))


def collect(attempt: Attempt, task: Task, dice: Dice) -> Work:
    """What the collector does: one list of what came of the items, with a gap for each that is missing."""
    schedule, outputs = attempt.live_run.schedule, attempt.live_run.results.outputs
    yield Sleep(dice.between(SECOND // 50, 2 * SECOND))
    failure = mishap(dice)
    if failure is not None:
        return failure
    ids = [item_id(task.id, index) for index in range(schedule.mapped[task.id])]
    found = [outputs[id_].digest if id_ in outputs else None for id_ in ids]
    lost = [id_ for id_, digest in zip(ids, found, strict=True) if digest is None]
    if lost:
        dice.note(FaultKind.ITEM_LOST)
    gaps = tuple(lost) if task.at_least is None else ()
    return replace(Done(Value.of({"items": found})), gaps=gaps)


# rules, like those in `invariants`, which calls them


def i50_a_mapped_task_is_collected_and_its_items_are_done(run: RunStory, entry: Entry) -> str:
    """Nobody but the collector has it, and only behind all its items; no item is for the collector."""
    event = entry.event
    assert isinstance(event, AttemptStarted)
    task = run.find(event.task)
    is_mapped = task.task.for_each is not None
    if is_mapped != (event.worker == COLLECTOR):
        return f"{event.task} is given to {event.worker}"
    if is_mapped and not run.collects(task):
        return f"{event.task} is put together before its items have ended, or too few are done"
    return ""


def i50_every_item_is_in_the_list_once_and_in_order(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, AttemptFinished)
    is_whole = isinstance(event.outcome, Done) and run.find(event.task).task.for_each is not None
    if not is_whole or not isinstance(event.outcome, Done):
        return ""
    told = msgspec.json.decode(event.outcome.value.json)["items"]
    recorded = [item.output or None for item in run.items_of(event.task)]
    return "" if told == recorded else f"{event.task} is made of {told}, recorded is {recorded}"


def i50_items_are_listed_in_order_and_capped(run: RunStory, entry: Entry) -> str:
    event = entry.event
    assert isinstance(event, ItemsListed)
    task = run.tasks[event.task]
    if task.ending or event.task in run.mapped:
        return f"items of {event.task} are listed, which has ended or is mapped already"
    if event.first not in (0, len(run.listed.get(event.task, ()))):
        return f"items of {event.task} are listed from {event.first} on"
    others = sum(len(items) for id_, items in run.listed.items() if id_ != event.task)
    total = others + event.first + len(event.items)
    return f"{total} items, the cap is {run.limits.items}" if total > run.limits.items else ""


def i50_too_few_items_fail_their_task_at_once(run: RunStory) -> str:
    for id_ in run.mapped:
        task = run.tasks[id_]
        if task.is_short and not task.ending:
            return f"{id_} can come to nothing any more, and nothing is said of it"
    return ""
