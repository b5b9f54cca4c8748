"""For each: what a mapped task is done for is listed before, and what came of each item is put together after."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chargehand.decisions.rule_answer import LONGEST_ITEM, cut, item_in_words, why_not_done
from chargehand.decisions.taint_sources import sources_of
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.engines.brief import Brief
from chargehand.errors import Fault, WorkerError
from chargehand.facts.events import ItemsListed
from chargehand.facts.outcome import NOTHING_DONE, Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import FILES, Task, item_id
from chargehand.facts.value import MOST_BYTES, Value, canonical, part_of
from chargehand.roles.json_reply_check import objection_to
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext
from chargehand.sync_async_bridge import in_thread
from chargehand.tools.base import Tool
from chargehand.tools.data_catalog import held_now, lists_files
from chargehand.tools.safe_open import matches

#: of items in one event: one more event for each so many bytes
BYTES_AT_ONCE = 32_768
#: items that came to nothing and are named as gaps
MOST_GAPS = 20


async def list_items(brief: Brief, seat: PlanningContext, _: Resources) -> Outcome:
    """The system task behind `@items:<task>`: write down what a task with `for_each` is to be done for."""
    id_ = brief.task.args["task"]
    node = seat.live_run.schedule.nodes[id_]
    try:
        items = await _items(seat, node)
    except WorkerError as error:
        return Failed(kind=ErrorClass(error.kind), message=str(error), error="NoItems")
    most = seat.live_run.schedule.limits.items
    others = others_in(seat, id_)
    if others + len(items) > most:
        return _too_many(len(items), others, most)
    for first, part in _in_parts(items):
        stored = tuple([await seat.store(value) for value in part])
        event = ItemsListed(task=id_, first=first, items=stored, at=seat.now())
        if await seat.propose(event) is not None:
            continue
        if node.state.is_settled or seat.live_run.schedule.stop_reason:
            brief.progress(f"{id_} is not mapped: the run has moved on meanwhile")
            return NOTHING_DONE
        return _too_many(len(items), others_in(seat, id_), most)  # another list was faster
    if not items and isinstance(node.task.for_each, dict):
        brief.progress(_no_file(node.task))
    return Done(Value.of({"items": len(items)}))


async def collect(brief: Brief, seat: PlanningContext, _: Resources) -> Outcome:
    """The last attempt of a task with `for_each`: one list, with an entry for each item in order."""
    task, live_run = brief.task, seat.live_run
    nodes = [
        live_run.schedule.nodes[item_id(task.id, index)]
        for index in range(live_run.schedule.mapped[task.id])
    ]
    brief.distrust(*sources_of(live_run, *(node.task.id for node in nodes)))
    parts: list[bytes] = []
    for node in nodes:
        value = live_run.results.outputs.get(node.task.id)
        parts.append(b"null" if value is None else bytes((await seat.bring(value)).json))
    size = sum(map(len, parts)) + len(parts) + 1
    if size > MOST_BYTES:
        words = f"the results of {len(parts):,} items have {size:,} bytes, and {MOST_BYTES:,} are the most"
        return Failed(kind=ErrorClass.RESOURCE, message=words, error="TooLarge", is_final=True)
    together = Value(json=msgspec.Raw(b"[" + b",".join(parts) + b"]"))
    whole = sum(node.state is TaskState.DONE and not node.gaps for node in nodes)
    if task.at_least is not None and whole >= task.at_least:
        return Done(together)
    if not nodes and isinstance(task.for_each, dict):
        return Done(together, gaps=(f"{_no_file(task)}; if none is fine, set at_least=0",))
    return Done(together, gaps=tuple(_gaps(live_run.results.items, task, nodes)))


def others_in(seat: PlanningContext, task: str) -> int:
    """How many items other tasks of the run have."""
    return sum(len(items) for id_, items in seat.live_run.schedule.listed.items() if id_ != task)


def _too_many(count: int, others: int, most: int) -> Failed:
    so_far = f" beside {others:,} of other tasks" if others else ""
    words = f"{count:,} items{so_far} are more than Limits(items={most}) allows; raise it, or list fewer"
    return Failed(kind=ErrorClass.LOGIC, message=words, error="TooManyItems")


async def _items(seat: PlanningContext, node: TaskNode) -> list[Value]:
    over, task = node.task.for_each, node.task
    if isinstance(over, dict):
        return await _files(seat, task, over[FILES])
    if isinstance(over, list):
        return [Value.of(item, node.taint) for item in over]
    need = next(need for need in task.all_needs if need.key == over)
    value = seat.live_run.results.outputs.get(need.task)
    if value is None:
        why = why_not_done(seat.live_run.schedule.nodes[need.task])
        raise WorkerError(f"there are no items: {need.task} was not done: {why}")
    found = part_of(await seat.bring(value), need.output, need.task).read()
    if isinstance(found, str):  # as models answer that are not held to a shape
        found = objection_to(found, {"type": "array"})[0] or found
    if not isinstance(found, list):
        words = cut(canonical(found).decode(), LONGEST_ITEM)
        raise WorkerError(
            f"for_each={over!r} needs a list, and the output of {need.task} is none: {words}; "
            "have that task return a list, or name the part of its output that is one: Need(…, output=…)"
        )
    return [Value.of(item, value.taint) for item in found]


async def _files(seat: PlanningContext, task: Task, pattern: str) -> list[Value]:
    """The paths of the files that fit, as the tools of the task's worker take them; else those of the crew."""
    workers = list(seat.roster)
    own = [each for each in workers if each.name == task.worker or task.skill in each.skills]
    for group in (own, workers):
        holders = _file_tools(group)
        if holders:
            found: list[Value] = await in_thread(_listed, holders, pattern)
            return found
    raise WorkerError(_no_tool(pattern))


def unlistable_files(tasks: Iterable[Task], workers: Iterable[Member]) -> list[Fault]:
    """Faults of the tasks over a pattern of files, if none of these workers has a tool that lists files."""
    patterns = {
        task.id: task.for_each[FILES]
        for task in tasks
        if isinstance(task.for_each, dict) and task.for_each.get(FILES)
    }
    if not patterns or _file_tools(workers):
        return []
    return [Fault("bad_for_each", id_, _no_tool(pattern)) for id_, pattern in patterns.items()]


def _file_tools(workers: Iterable[Member]) -> list[Tool]:
    tools = (tool for worker in workers for tool in getattr(worker, "toolbox", ()))
    return [tool for tool in tools if tool.holds is not None and lists_files(tool.holds)]


def _no_tool(pattern: str) -> str:
    return (
        f"for_each={{'files': {pattern!r}}}: no worker of this crew has a tool that reads files, and the supervisor "
        "itself reads none; give the tools of chargehand.tools.files.files(FOLDER) to an LLM worker, or list "
        "the files in a function worker and name its task: for_each='TASK'"
    )


def _listed(holders: Sequence[Tool], pattern: str) -> list[Value]:
    found: dict[str, Value] = {}
    for tool in holders:
        assert tool.holds is not None  # noqa: S101 - for the type checker
        taint = (f"tool:{tool.name}",) if tool.untrusted else ()
        for file in held_now(tool.holds).files:
            if matches(file.path, pattern):
                found.setdefault(file.path, Value.of(file.path, taint))
    return [found[path] for path in sorted(found)]


def _in_parts(items: Sequence[Value]) -> Iterator[tuple[int, list[Value]]]:
    """The items in parts that fit one event each, with the index of the first; one part if there are none."""
    part: list[Value] = []
    size = first = 0
    for index, item in enumerate(items):
        # A large one lies in a blob, and takes no more room than its digest.
        room = 100 if item.is_large else len(item.json)
        if part and size + room > BYTES_AT_ONCE:
            yield first, part
            part, size, first = [], 0, index
        part.append(item)
        size += room
    yield first, part


def _no_file(task: Task) -> str:
    """Said of a pattern that may be mistyped: an empty list alone would not tell."""
    return f"no file fits for_each={task.for_each}"


def _gaps(items: "dict[str, list[Value]]", task: Task, nodes: Sequence[TaskNode]) -> Iterator[str]:
    """The items that came to nothing, or are done in part, in words."""
    lost = [
        (index, node)
        for index, node in enumerate(nodes)
        if node.state is not TaskState.DONE or node.gaps
    ]
    for index, node in lost[:MOST_GAPS]:
        is_done = node.state is TaskState.DONE
        why = "; ".join(node.gaps) if is_done else why_not_done(node)
        yield f"{item_in_words(index, items[task.id][index])}: {why}"
    if len(lost) > MOST_GAPS:
        yield f"and {len(lost) - MOST_GAPS} more items"
