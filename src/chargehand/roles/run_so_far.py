"""Where a run stands, as the supervisor sees it when it has to decide: remembered, so that it asks the same again."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.system_tasks import is_of_plan
from chargehand.decisions.taint_sources import sources_of
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.engines.brief import Brief
from chargehand.facts.events import Effect
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value
from chargehand.roles.data_fences import cut, fenced, words_of
from chargehand.roles.system_task_context import PlanningContext

#: characters of one result that are shown, and of all
LONGEST, SHORTEST, ALL_TOGETHER = 1_000, 120, 24_000
LONGEST_CAUSE = 400


class Seen(Struct, frozen=True):
    """A task and what came of it so far."""

    id: str
    worker: str
    description: str
    state: str
    #: the beginning of its result, or why there is none
    came: str = ""

    def __str__(self) -> str:
        return f"- {self.id} ({self.worker}): {self.description}"


class RunSummary(Struct, frozen=True):
    """The plan at one moment."""

    version: int
    tasks: tuple[Seen, ...] = ()
    #: what people wanted of the run after its request
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> list[Seen]:
        return [task for task in self.tasks if task.state == TaskState.DONE]

    @property
    def lost(self) -> list[Seen]:
        """What came to nothing, and was not made up for yet."""
        return [task for task in self.tasks if task.state in (TaskState.FAILED, TaskState.SKIPPED)]

    @property
    def open(self) -> list[Seen]:
        """What runs or waits."""
        settled = [*self.done, *self.lost]
        return [task for task in self.tasks if task not in settled]

    def in_words(self) -> str:
        """All of it as data, the results each between fences of their own."""
        told = _listed("Done", self.done)
        told += "".join(fenced(f"result of {task.id}", task.came) for task in self.done)
        lost = "\n".join(f"{task}\n  {task.state}: {task.came}" for task in self.lost)
        told += f"Came to nothing:\n{fenced('failures', lost)}" if lost else ""
        told += _listed("Still running or waiting", self.open)
        return told + "".join(fenced("note", note) for note in self.notes)


async def remembered(brief: Brief, name: str, look: Callable[[], Awaitable[Any]]) -> Any:
    """What `look` saw when this system task first looked.

    A system task that is resumed must ask its model what it asked before, though the run has moved on.
    """

    async def run(_: str) -> Done:
        return Done(Value.of(await look()))

    return (await brief.durable(name, [], run, effect=Effect.PURE)).value.read()


async def situation_of(brief: Brief, seat: PlanningContext) -> RunSummary:
    """Where the run stood when this system task began."""

    async def look() -> RunSummary:
        schedule, results = seat.live_run.schedule, seat.live_run.results
        shown = [node for node in schedule.nodes.values() if is_of_plan(node)]
        share = max(SHORTEST, min(LONGEST, ALL_TOGETHER // max(1, len(shown))))
        tasks = [await _seen(seat, node, share) for node in shown]
        brief.distrust(*sources_of(seat.live_run, *(task.id for task in tasks)))
        return RunSummary(schedule.version, tuple(tasks), tuple(results.notes))

    return msgspec.convert(await remembered(brief, "situation", look), RunSummary)


async def _seen(seat: PlanningContext, node: TaskNode, share: int) -> Seen:
    task = node.task
    came = ""
    value = seat.live_run.results.outputs.get(task.id)
    if node.state is TaskState.DONE and value is not None:
        came = cut(words_of((await seat.bring(value)).read()), share)
    elif node.cause is not None:
        came = cut(str(node.cause), LONGEST_CAUSE)
    elif node.state is TaskState.SKIPPED:
        came = f"because of {node.why}" if node.why else "there was no time left"
    return Seen(task.id, task.worker or task.skill, task.description, node.state.value, came)


def _listed(title: str, tasks: Sequence[Seen]) -> str:
    lines = "\n".join(map(str, tasks))
    return f"{title}:\n{lines}\n" if lines else ""
