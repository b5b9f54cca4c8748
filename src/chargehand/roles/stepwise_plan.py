"""Step by step: after each result the supervisor chooses who goes on, and with what, or that it is enough."""

import re
from typing import Any

from chargehand.engines.brief import Brief
from chargehand.facts.events import PlanAmended, RunRequested
from chargehand.facts.outcome import NOTHING_DONE, Done, Outcome
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value
from chargehand.models.base import Turn, system, user
from chargehand.roles import plan_drafts
from chargehand.roles.data_fences import asked
from chargehand.roles.durable_model_calls import DurableModelCaller, ModelCaller, ask_for
from chargehand.roles.json_reply_check import record
from chargehand.roles.prompts import prompt
from chargehand.roles.roster import Roster
from chargehand.roles.run_so_far import RunSummary, situation_of
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext

FINISH = "finish"
_NOTHING_YET = RunSummary(version=0)


async def first_step(
    caller: ModelCaller, roster: Roster, request: str, earlier: Value | None = None
) -> Plan:
    """A plan of one task: where to begin. Raises `WorkerError` if the model cannot choose."""
    workers = [worker.name for worker in roster]
    chosen = await ask_for(
        caller,
        "step",
        _turns(caller.resources, roster, request, earlier, _NOTHING_YET),
        _schema(workers),
        lambda chosen: _objection_to(chosen, _NOTHING_YET),
    )
    task = Task(id="t1", description=chosen["task"].strip(), worker=chosen["next"])
    return Plan(goal=request, tasks=[task])


async def next_step(
    brief: Brief, seat: PlanningContext, resources: Resources, requested: RunRequested
) -> Outcome:
    """Add the one task that comes next, or none if there is enough to answer from."""
    situation = await situation_of(brief, seat)
    schedule = seat.live_run.schedule
    if schedule.version > situation.version:
        return NOTHING_DONE  # added just before the process ended that chose it
    if len(situation.tasks) >= requested.limits.tasks:
        cap = requested.limits.tasks
        brief.progress(f"no further step: {cap} tasks are the cap")
        return Done(gaps=(f"no further step was chosen: Limits(tasks={cap}) is reached",))
    earlier = await seat.bring(requested.earlier)
    caller = DurableModelCaller(brief, resources)
    (id_,) = plan_drafts.fresh_ids(1, schedule.nodes)

    def change(chosen: Any) -> PlanAmended:
        return PlanAmended(
            version=situation.version + 1,
            added=(_step(id_, chosen, situation),),
            reason=chosen["why"],
            is_step=True,
            taint=brief.taint,
            at=seat.now(),
        )

    def examine(chosen: Any) -> str | None:
        if chosen["next"] == FINISH:
            return None
        faults = schedule.check_amendment(change(chosen))
        return _objection_to(chosen, situation) or (
            plan_drafts.faults_in_words(faults) if faults else None
        )

    chosen = await ask_for(
        caller,
        "step",
        _turns(resources, seat.roster, requested.request, earlier, situation),
        _schema([*(worker.name for worker in seat.roster), FINISH]),
        examine,
    )
    if chosen["next"] == FINISH:
        brief.progress(f"no further step: {chosen['why']}")
        return NOTHING_DONE
    written = await seat.propose(change(chosen))
    return plan_drafts.NO_MORE if written is None else NOTHING_DONE


def _turns(
    resources: Resources, roster: Roster, request: str, earlier: Value | None, situation: RunSummary
) -> tuple[Turn, Turn]:
    words = prompt("step", resources.prompts, roster=plan_drafts.describe_roster(roster))
    before = None if earlier is None else earlier.read()
    used = dict.fromkeys(task.worker for task in situation.tasks)
    left = [worker.name for worker in roster if worker.name not in used]
    told = f"Workers used so far: {', '.join(used) or 'none'}\nNot used yet: {', '.join(left) or 'none'}\n"
    return system(words), user(
        f"Choose the next step.\n{told}{asked(request, before)}{situation.in_words()}"
    )


def _schema(choices: list[str]) -> dict[str, Any]:
    return record(
        next={"type": "string", "enum": choices},
        task={"type": "string", "description": "what this worker is to do; empty to finish"},
        why={"type": "string", "description": "why this comes next, in one sentence"},
    )


def _step(id_: str, chosen: Any, situation: RunSummary) -> Task:
    """The chosen step; it is handed the results it names, or all that there are."""
    description = chosen["task"].strip()
    done = [task.id for task in situation.done]
    named = [
        each for each in done if re.search(rf"(?<![\w.:-]){re.escape(each)}(?![\w-])", description)
    ]
    return Task(id=id_, description=description, worker=chosen["next"], needs=tuple(named or done))


def _objection_to(chosen: Any, situation: RunSummary) -> str | None:
    words = chosen["task"].strip()
    for task in situation.done:
        if (task.worker, task.description.casefold()) == (chosen["next"], words.casefold()):
            return f"{task.id} has done exactly this. Go on from its result, or finish."
    return plan_drafts.objection_to_task(words)
