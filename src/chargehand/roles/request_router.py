"""The router: one request goes to one worker, in words that suit that worker."""

from msgspec import json

from chargehand.errors import WorkerError
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value
from chargehand.models.base import system, user
from chargehand.roles.data_fences import asked
from chargehand.roles.durable_model_calls import ModelCaller, ask_for
from chargehand.roles.json_reply_check import decoded, record
from chargehand.roles.plan_drafts import describe_roster, known_as, objection_to_task
from chargehand.roles.prompts import prompt
from chargehand.roles.roster import Roster

#: what the model answers if no worker is the right one, where somebody takes such requests
UNCLEAR = "unclear"


async def route(
    caller: ModelCaller,
    roster: Roster,
    request: str,
    earlier: Value | None = None,
    default: str = "",
) -> Plan:
    """A plan of one task: the request, rewritten for the worker that it suits best.

    `default` names the worker that gets a request as it is when it is not clear whose it is. Raises
    `WorkerError` with the last objection if the model cannot choose.
    """
    workers = [worker.name for worker in roster]
    if default and default not in workers:
        have = ", ".join(workers)
        raise WorkerError(f"the default worker {default!r} is not on the roster ({have})")
    unclear = (
        f'If no worker clearly fits, answer with the worker "{UNCLEAR}": {default} takes such '
        "requests as they are."
        if default
        else "If several could do it, choose the one whose description says most of it."
    )
    lines = describe_roster(roster)
    chosen = await ask_for(
        caller,
        "route",
        (
            system(prompt("route", caller.resources.prompts, roster=lines, unclear=unclear)),
            user(f"Route this.\n{asked(request, None if earlier is None else earlier.read())}"),
        ),
        record(
            worker={"type": "string", "enum": [*workers, UNCLEAR] if default else workers},
            task={"type": "string", "description": "the request, rewritten for this worker"},
            why={"type": "string", "description": "why this worker, in one sentence"},
        ),
        lambda told: objection_to_task(told["task"]) if told["worker"] in workers else None,
        read=lambda text: _chosen_in(text, request, workers, default),
    )
    is_unclear = chosen["worker"] not in workers
    task = Task(
        id="t1",
        description=request if is_unclear else chosen["task"].strip(),
        worker=default if is_unclear else chosen["worker"],
    )
    return Plan(goal=request, tasks=[task])


def _chosen_in(text: str, request: str, workers: list[str], default: str) -> str:
    """The choice as it was asked for: a name of other case or alone is taken, another is the default's."""
    told = decoded(text)
    word = told.get("worker", "") if isinstance(told, dict) else told or text
    name = known_as(word, workers) or (UNCLEAR if default else "")
    if not name:
        return text
    more = told if isinstance(told, dict) else {}
    task = more.get("task") if isinstance(more.get("task"), str) else request
    return json.encode({"worker": name, "task": task, "why": str(more.get("why", ""))}).decode()
