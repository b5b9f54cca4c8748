"""The refiner: a task that failed for what it says is said better, by a model that sees what went wrong."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.decisions.taint_sources import sources_of
from chargehand.decisions.task_graph import TaskNode
from chargehand.engines.brief import Brief
from chargehand.errors import StepMismatch, WorkerError
from chargehand.facts.events import TaskRewritten
from chargehand.facts.outcome import NOTHING_DONE, Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Plan, Reach, Task
from chargehand.facts.value import Value
from chargehand.models.base import Turn, system, user
from chargehand.roles.crew_data_catalog import blocks_of, reach_of, remembered_material
from chargehand.roles.data_fences import cut, fenced
from chargehand.roles.durable_model_calls import DurableModelCaller, ask_for
from chargehand.roles.json_reply_check import record
from chargehand.roles.plan_drafts import objection_to_task
from chargehand.roles.prompts import prompt
from chargehand.roles.run_so_far import remembered
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext

#: of the attempt that are shown, the last ones
MOST_STEPS = 30
LONGEST_FAILURE, LONGEST_NOTE = 2_000, 300
_SCHEMA = record(description={"type": "string", "description": "the task, said better"})


class Mishap(Struct, frozen=True):
    """A task and how its last attempt failed."""

    description: str
    worker: str
    failure: str
    steps: tuple[str, ...]
    needs: tuple[str, ...]


async def refine(brief: Brief, seat: PlanningContext, resources: Resources) -> Outcome:
    """The system task behind `@refine:<task>:<attempt>`: have a failed task rewritten before its next try."""
    id_, attempt = brief.task.args["task"], brief.task.args["attempt"]
    node = seat.live_run.schedule.nodes[id_]

    async def look() -> Mishap:
        brief.distrust(*sources_of(seat.live_run, id_))
        return _mishap(seat, node)

    seen = msgspec.convert(await remembered(brief, "mishap", look), Mishap)
    if node.task.description != seen.description:
        return _rewritten(node.task.description)  # just before the process ended that had it done
    try:
        blocks = await blocks_of(brief)
        told = await remembered_material(
            brief, seat.roster, seen.description, resources.redactor, blocks
        )
        reach = await reach_of(seat.roster, resources.redactor)
        caller = DurableModelCaller(brief, resources)
        words = await _better_words(caller, seat, seen, told.fenced, reach)
    except StepMismatch:
        raise
    except WorkerError as error:
        message = f"no better words for {id_}: {error}"
        return Failed(kind=ErrorClass(error.kind), message=message, error="NotRefined")
    event = TaskRewritten(
        task=id_, description=words, attempt=attempt, taint=brief.taint, at=seat.now()
    )
    if await seat.propose(event) is None:
        brief.progress(f"{id_} stays as it is: the run has moved on meanwhile")
        return NOTHING_DONE
    return _rewritten(words)


async def _better_words(
    caller: DurableModelCaller,
    seat: PlanningContext,
    seen: Mishap,
    material: str,
    reach: Mapping[str, Reach],
) -> str:
    # What was missing before may be named again, as in "there is no a.csv, use b.csv".
    known = _missing_in(seen.description, seen.worker, reach)

    def examine(answer: Any) -> str | None:
        words = " ".join(answer["description"].split()).casefold()
        if words and words == " ".join(seen.description.split()).casefold():
            return "This is what failed, word for word; say it so that it can be done."
        missing = _missing_in(answer["description"], seen.worker, reach) - known
        return objection_to_task(answer["description"]) or "; ".join(sorted(missing)) or None

    answer = await ask_for(
        caller,
        "refine",
        _turns(caller.resources, seat, seen, material),
        _SCHEMA,
        examine,
    )
    return str(answer["description"]).strip()


def _missing_in(description: str, worker: str, reach: Mapping[str, Reach]) -> set[str]:
    """What is said of the files and tables that words name and that this worker cannot find."""
    task = Task(id="t", description=description, worker=worker)
    missing = Plan(goal="", tasks=[task]).check(reach=reach).warnings
    return {each.message for each in missing if each.kind in ("missing_file", "missing_table")}


def _turns(
    resources: Resources, seat: PlanningContext, seen: Mishap, material: str
) -> tuple[Turn, Turn]:
    known = seen.worker in {worker.name for worker in seat.roster}
    about = " ".join(seat.roster[seen.worker].description.split()) if known else ""
    words = prompt("refine", resources.prompts, worker=seen.worker, about=about)
    inputs = f"It is handed the results of: {', '.join(seen.needs)}\n" if seen.needs else ""
    steps = fenced("record", "\n".join(seen.steps)) if seen.steps else ""
    failure = fenced("failure", seen.failure)
    return system(words), user(
        f"{material}{fenced('task', seen.description)}{inputs}{failure}{steps}"
    )


def _mishap(seat: PlanningContext, node: TaskNode) -> Mishap:
    failure = node.last_failure or node.cause
    log = seat.live_run.results.steps.get(node.task.id)
    records = [] if log is None else [*(log.before or log.lineage.values())][-MOST_STEPS:]
    return Mishap(
        description=node.task.description,
        worker=node.worker or node.task.worker,
        failure=cut(str(failure or "nothing is known of it"), LONGEST_FAILURE),
        steps=tuple(_step_in_words(each) for each in records),
        needs=tuple(need.key for need in node.task.all_needs),
    )


def _step_in_words(step: StepRecord) -> str:
    match step.outcome:
        case None:
            came = "not ended"
        case Failed():
            came = f"failed: {step.outcome}"
        case Done(value=value):
            # To the engine, a tool that refused is a step like any other.
            data: Any = None if value.blob else value.read()
            is_error = isinstance(data, dict) and data.get("is_error")
            came = f"failed: {data.get('text', '')}" if is_error else "done"
    return cut(f"{step.name}: {' '.join(came.split())}", LONGEST_NOTE)


def _rewritten(words: str) -> Done:
    return Done(Value.of({"description": words}))
