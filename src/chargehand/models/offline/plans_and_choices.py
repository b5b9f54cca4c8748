"""Plans, choices and turns of a group by rules, in the shapes that the supervisor asks for."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chargehand.models.base import ModelRequest, ToolCall
from chargehand.models.offline.conversation import asked_in, parts_of
from chargehand.models.offline.steps_and_workers import LONGEST, MOST, Team

#: a task that was done, runs, or came to nothing
_TASK = re.compile(
    r"(?m)^- (?P<id>\S+) \((?P<worker>[^)\n]*)\): (?P<words>.+)(?:\n  skipped: because of (?P<cause>\S+))?"
)
#: the name of a message between its borders
_SAID = re.compile(r"t\d+ from (.+) to .+")
#: what a person wants of a plan that was sent back: rules cannot follow it, and it is no task
_NOTES = re.compile(r"\n\nAdded later: .*", re.DOTALL)
_UNHEARD = re.compile(r"Not asked yet: (\[.*\])")
FORM = "A short answer to the request; every statement with its source."
FINISH, UNCLEAR, TO_ALL = "finish", "unclear", "assign_to_all"
_MANAGES = {TO_ALL, "assign_to_one", FINISH}

Schema = dict[str, Any]


def is_plan(schema: Schema) -> bool:
    """Whether the schema asks for tasks, each for one of several workers."""
    told = _task_schema(schema)
    return {"id", "description", "worker"} <= told.keys() and bool(told["worker"].get("enum"))


def planned(schema: Schema, asked: str, prompts: str) -> dict[str, Any]:
    """A plan for the request in `asked`; who the workers are is read from all the `prompts`."""
    properties = _task_schema(schema)
    team = Team(roster_in(properties["worker"]["enum"], prompts))
    ids = properties["id"].get("enum") or [f"t{number}" for number in range(1, MOST + 1)]
    if "replaced" in schema["properties"]:
        return _changed(schema, asked, team, ids)
    request = _NOTES.sub("", request_in(asked))
    tasks = [
        _task(properties, ids[n], step.description, step.worker, [ids[need] for need in step.needs])
        for n, step in enumerate(team.steps_for(request, min(len(ids), MOST)))
    ]
    whole = {"goal": request[:LONGEST], "instruction": FORM, "strategy": "merge", "tasks": tasks}
    return {key: whole[key] for key in whole if key in schema["properties"]}


def _changed(schema: Schema, asked: str, team: Team, ids: Sequence[str]) -> dict[str, Any]:
    """What failed with whoever reckons is given to whoever finds things; what waited for it follows."""
    made: dict[str, dict[str, Any]] = {}
    failures = "\n".join(text for name, text in parts_of(asked).data if name == "failures")
    for lost in _TASK.finditer(failures):
        can_move = team.finder and team.reckoner == lost["worker"] != team.finder
        if len(made) < len(ids) and (lost["cause"] in made if lost["cause"] else can_move):
            worker = lost["worker"] if lost["cause"] else team.finder
            needs = [made[lost["cause"]]["id"]] if lost["cause"] else []
            id_ = ids[len(made)]
            made[lost["id"]] = _task(_task_schema(schema), id_, lost["words"], worker, needs)
    why = "who finds things gets what the tables do not hold"
    why = why if made else "the rules of the offline model know no other way"
    whole = {"reason": why, "replaced": [*made], "removed": [], "tasks": [*made.values()]}
    return {key: whole[key] for key in whole if key in schema["properties"]}


def _task_schema(schema: Schema) -> dict[str, Any]:
    """The properties of a task of the plan that is asked for; none if no plan is."""
    told: Any = schema
    for key in ("properties", "tasks", "items", "properties"):
        told = told.get(key) if isinstance(told, dict) else None
    return {k: v for k, v in told.items() if isinstance(v, dict)} if isinstance(told, dict) else {}


def _task(properties: Schema, id_: str, told: str, worker: str, needs: list[str]) -> Schema:
    usual = {name: each["default"] for name, each in properties.items() if "default" in each}
    return {**usual, "id": id_, "description": told, "worker": worker, "needs": needs}


def roster_in(workers: Iterable[str], prompts: str) -> dict[str, str]:
    """The workers with what the prompts say of each."""
    told = dict(reversed(re.findall(r"^- ([^:\n]+): (.+)$", prompts, re.MULTILINE)))
    return {worker: told.get(worker, "") for worker in workers}


def request_in(asked: str) -> str:
    """The request among the words that ask for a plan."""
    parts = parts_of(asked)
    return dict(parts.data).get("request") or f"{parts.head}\n{parts.tail}".strip()


def chosen(schema: Schema, asked: str, prompts: str) -> dict[str, Any] | None:
    """The choice that the schema asks for; None if it asks for none that is known here."""
    properties = schema.get("properties") or {}
    choosers = {
        ("task", "why", "worker"): ("worker", _route),
        ("next", "task", "why"): ("next", _next_step),
        ("next", "why"): ("next", _next_speaker),
    }
    name, choose = choosers.get(tuple(sorted(properties)), ("", None))
    told = properties.get(name)
    choices = [str(each) for each in told.get("enum") or ()] if isinstance(told, dict) else []
    can_choose = choose and {*choices} - {UNCLEAR, FINISH}
    return choose(choices, asked, prompts) if choose and can_choose else None


def _route(choices: Sequence[str], asked: str, prompts: str) -> dict[str, Any]:
    team = Team(roster_in([each for each in choices if each != UNCLEAR], prompts))
    request = request_in(asked)
    if UNCLEAR in choices and not team.best_for(request):
        return {"worker": UNCLEAR, "task": request, "why": "no description has a word of it"}
    return {"worker": team.worker_for(request), "task": request, "why": "its description fits best"}


def _next_step(choices: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """The first step of the plan for the request that nobody has taken up yet."""
    team = Team(roster_in([each for each in choices if each != FINISH], prompts))
    steps = team.steps_for(request_in(asked))
    for number, step in enumerate(steps, 1):
        if f"): {step.description}\n" not in asked:
            why = f"it is part {number} of {len(steps)} of what is asked"
            return {"next": step.worker, "task": step.description, "why": why}
    end = {"next": FINISH, "task": "", "why": "all that is asked for was taken up"}
    return end if FINISH in choices else None


def _next_speaker(choices: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """Whoever was not asked yet and fits the request best; then the word that ends it."""
    roster = {name: told for name, told in roster_in(choices, prompts).items() if told}
    listed = _UNHEARD.search(asked.partition("\n")[0])
    waiting = list(roster) if listed is None else msgspec.json.decode(listed[1])
    if unheard := {name: told for name, told in roster.items() if name in waiting}:
        worker = Team(unheard).worker_for(request_in(asked))
        return {"next": worker, "why": "of those not asked yet, its description fits best"}
    ends = [choice for choice in choices if choice not in roster]
    return {"next": ends[0], "why": "everybody was asked"} if ends else None


def management_calls(request: ModelRequest) -> list[ToolCall]:
    """What a manager calls next, to ask everybody once; none if these are no manager's tools."""
    names = {tool.name for tool in request.tools}
    if not names or not names <= _MANAGES:
        return []
    asked = asked_in(request)
    found = [(_SAID.fullmatch(name), text.strip()) for name, text in parts_of(asked).data]
    said = [f"{name[1]}: {text}" for name, text in found if name is not None]
    ending, asking = {"answer": "\n".join(said)}, {"message": request_in(asked)}
    name, arguments = (FINISH, ending) if said and FINISH in names else (TO_ALL, asking)
    call = ToolCall(f"offline-{name}", name, msgspec.json.encode(arguments).decode())
    return [call] if name in names else []
