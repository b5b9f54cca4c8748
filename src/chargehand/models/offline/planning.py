"""Plans, choices and turns of a group by rules, in whatever shape a schema asks for them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from chargehand.models.base import ModelRequest, Role, ToolCall
from chargehand.models.offline.assigning import MOST, Step, Team, best_worker, steps_for
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.reading import parts_of
from chargehand.models.offline.schemas import Schema, resolved, type_of

_REQUEST = re.compile(
    r"^(?:request|goal|question|objective|user request): *(.+?)(?:\n\s*\n|\Z)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
#: a task that was done, runs, or came to nothing
_TASK = re.compile(r"^- (?P<id>\S+) \((?P<worker>[^)\n]*)\): (?P<words>.+)$", re.MULTILINE)
_SAID = re.compile(r"t\d+ from (.+) to .+")
#: the name of a message between its borders
_UNHEARD = re.compile(r"Not asked yet: (\[.*\])")
#: characters
LONGEST_GOAL = 1_000
FORM = "A short answer to the request; every statement with its source."
FINISH, UNCLEAR, TO_ALL = "finish", "unclear", "assign_to_all"
_MANAGES = {TO_ALL, "assign_to_one", FINISH}


def is_plan(schema: Schema) -> bool:
    """Whether the schema asks for tasks, each for one of several workers."""
    return _tasks_in(schema) is not None


def is_rewriting(schema: Schema, asked: str) -> bool:
    """Whether a description that failed is to be said better."""
    named = {name for name, _ in parts_of(asked).data}
    return list(schema.get("properties") or ()) == ["description"] and {"task", "failure"} <= named


def planned(schema: Schema, asked: str, prompts: str) -> dict[str, Any]:
    """A plan for the request in `asked`; who the workers are is read from all the `prompts`."""
    found = _tasks_in(schema)
    assert found is not None  # noqa: S101 (callers ask `is_plan` first)
    name, items = found
    worker = resolved(items["properties"]["worker"], schema)
    roster = roster_in(worker["enum"], prompts)
    request = request_in(asked, roster)
    most = min(int(resolved(schema["properties"][name], schema).get("maxItems", MOST)), MOST)
    steps = steps_for(request, roster, most)
    if "replaced" not in schema["properties"]:
        tasks = [_task(n, step, items, schema) for n, step in enumerate(steps)]
        return {**_around(schema, request), name: tasks}
    lost, tasks = _other_way(steps, Team(roster), asked, items, schema)
    why = (
        "who finds things gets what the tables do not hold"
        if lost
        else "the rules of the offline model know no other way"
    )
    return {**_around(schema, why), "replaced": lost, name: tasks[:most]}


def _other_way(
    steps: Sequence[Step], team: Team, asked: str, items: Schema, root: Schema
) -> tuple[list[str], list[dict[str, Any]]]:
    """What failed with whoever reckons is given to whoever finds things; what waited for it follows."""
    failures = "\n".join(text for name, text in parts_of(asked).data if name == "failures")
    lost = {_plain(each["words"]): each for each in _TASK.finditer(failures)}
    kept = {_plain(each["words"]): each["id"] for each in _TASK.finditer(asked)}
    ids: dict[int, Any] = {}
    replaced: list[str] = []
    tasks: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        words = _plain(step.description)
        if words in kept and words not in lost:
            ids[number] = kept[words]
        if words not in lost or any(need not in ids for need in step.needs):
            continue
        is_skipped = failures[lost[words].end() :].lstrip().startswith("skipped:")
        can_move = team.finder is not None and team.reckoner == lost[words]["worker"] != team.finder
        if not (is_skipped or can_move):
            continue
        ids[number] = _id(len(tasks), items["properties"].get("id"), root)
        worker = step.worker if is_skipped else team.finder or step.worker
        task = _task(len(tasks), replace(step, worker=worker, needs=()), items, root)
        if "needs" in items["properties"]:
            task["needs"] = [_need(ids[need], items["properties"], root) for need in step.needs]
        replaced.append(lost[words]["id"])
        tasks.append(task)
    return replaced, tasks


def _around(schema: Schema, request: str) -> dict[str, Any]:
    """What a plan says beside its tasks."""
    told: dict[str, Any] = {}
    goal = request if len(request) <= LONGEST_GOAL else f"{request[:LONGEST_GOAL]}…"
    for key in schema.get("required") or ():
        whole = resolved(schema["properties"].get(key, {}), schema)
        is_free = type_of(whole) == "string" and not whole.get("enum")
        told[key] = (FORM if key == "instruction" else goal) if is_free else _blank(whole)
    return told


# Into the shape that is asked for


def _tasks_in(schema: Schema) -> tuple[str, Schema] | None:
    for name, each in (schema.get("properties") or {}).items():
        array = resolved(each, schema) if isinstance(each, dict) else {}
        items = array.get("items")
        if not isinstance(items, dict):
            continue
        items = resolved(items, schema)
        properties = items.get("properties") or {}
        if "description" in properties and _is_choice(properties.get("worker"), schema):
            return name, items
    return None


def _is_choice(schema: Any, root: Schema) -> bool:
    return isinstance(schema, dict) and bool(resolved(schema, root).get("enum"))


def _task(number: int, step: Step, items: Schema, root: Schema) -> dict[str, Any]:
    properties = items["properties"]
    known: dict[str, Any] = {
        "id": _id(number, properties.get("id"), root),
        "description": step.description,
        "worker": step.worker,
    }
    if "needs" in properties:
        ids = [_id(need, properties.get("id"), root) for need in step.needs]
        known["needs"] = [_need(id_, properties, root) for id_ in ids]
    required = items.get("required") or ()
    rest = {k: _blank(resolved(v, root)) for k, v in properties.items() if k in required}
    return {**rest, **{key: value for key, value in known.items() if key in properties}}


def _id(number: int, schema: Any, root: Schema) -> Any:
    whole = resolved(schema, root) if isinstance(schema, dict) else {}
    if whole.get("enum"):
        return whole["enum"][min(number, len(whole["enum"]) - 1)]
    return number + 1 if type_of(whole) in ("integer", "number") else f"t{number + 1}"


def _need(id_: Any, properties: Schema, root: Schema) -> Any:
    item = resolved(resolved(properties["needs"], root).get("items") or {}, root)
    if type_of(item) != "object":
        return id_
    inner = item.get("properties") or {}
    name = next((key for key in ("task", "id", "from") if key in inner), "task")
    required = item.get("required") or ()
    return {**{k: _blank(inner[k]) for k in required if k in inner}, name: id_}


def _blank(schema: Schema) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        return None
    usual: dict[str, Any] = {"string": "-", "array": [], "object": {}, "boolean": False}
    return usual.get(type_of(schema), 0 if type_of(schema) in ("integer", "number") else None)


# Out of the words that ask for it


def roster_in(workers: Iterable[str], prompts: str) -> dict[str, str]:
    """The workers with what the prompts say of each."""
    return {worker: _described(worker, prompts) for worker in workers}


def _described(worker: str, prompts: str) -> str:
    line = re.search(
        rf"^[-*•\s]*[`\"'*]*{re.escape(worker)}[`\"'*]*\s*(?:[:(–—-]|is)\s*(.+)$",
        prompts,
        re.MULTILINE,
    )
    return line[1] if line else ""


def request_in(asked: str, roster: dict[str, str]) -> str:
    """The request among the words that ask for a plan."""
    parts = parts_of(asked)
    for name, text in parts.data:
        if name.lower() in ("request", "goal", "question"):
            return text.strip()
    plain = f"{parts.head}\n{parts.tail}"
    if named := _REQUEST.search(plain):
        return named[1].strip()
    kept = [
        line
        for line in plain.split("\n")
        if not any(line.lstrip("-*• `").startswith(name) for name in roster)
    ]
    return "\n".join(kept).strip() or plain.strip()


# Choices: who gets a request, who goes on, which of several results is the best


def chosen(schema: Schema, asked: str, prompts: str) -> dict[str, Any] | None:
    """The choice that the schema asks for; None if it asks for none that is known here."""
    properties = schema.get("properties") or {}
    choosers = {
        ("task", "why", "worker"): ("worker", _route),
        ("next", "task", "why"): ("next", _next_step),
        ("next", "why"): ("next", _next_speaker),
        ("chosen", "why"): ("chosen", _best),
    }
    known = choosers.get(tuple(sorted(properties)))
    if known is None:
        return None
    choices: Mapping[str, Any] = properties[known[0]]
    return known[1]([str(each) for each in choices.get("enum") or ()], asked, prompts)


def _route(workers: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    roster = roster_in([each for each in workers if each != UNCLEAR], prompts)
    if not roster:
        return None
    request = request_in(asked, roster)
    worker = best_worker(request, roster)
    words_in_common = Ranking([((worker, 2.0), (roster[worker], 1.0))]).scores(request)[0]
    if UNCLEAR in workers and not words_in_common:
        return {"worker": UNCLEAR, "task": request, "why": "no description has a word of it"}
    return {"worker": worker, "task": request, "why": "its description fits the words best"}


def _next_step(workers: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """The first step of the plan for the request that nobody has taken up yet."""
    roster = roster_in([each for each in workers if each != FINISH], prompts)
    if not roster:
        return None
    taken = {_plain(found["words"]) for found in _TASK.finditer(asked)}
    steps = steps_for(request_in(asked, roster), roster)
    for number, step in enumerate(steps, 1):
        if _plain(step.description) not in taken:
            why = f"it is part {number} of {len(steps)} of what is asked"
            return {"next": step.worker, "task": step.description, "why": why}
    if FINISH not in workers:
        return None
    return {"next": FINISH, "task": "", "why": "all that is asked for was taken up"}


def _next_speaker(choices: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """Whoever was not asked yet and fits the request best; then the word that ends it."""
    roster = roster_in(choices, prompts)
    members = [name for name in choices if roster.get(name)]
    listed = _UNHEARD.search(asked.partition("\n")[0])
    waiting = members if listed is None else msgspec.json.decode(listed[1])
    unheard = {name: roster[name] for name in members if name in waiting}
    if unheard:
        worker = best_worker(request_in(asked, unheard), unheard)
        return {"next": worker, "why": "of those not asked yet, its description fits best"}
    ends = [choice for choice in choices if choice not in members]
    return {"next": ends[0], "why": "everybody was asked"} if ends else None


def _best(ids: Sequence[str], asked: str, _: str) -> dict[str, Any] | None:
    parts = parts_of(asked)
    texts = {name: text for name, text in parts.data if name in ids}
    if not texts:
        return None
    scores = Ranking([((text, 1.0),) for text in texts.values()]).scores(parts.head)
    best = max(range(len(scores)), key=lambda n: (scores[n], -n))
    return {"chosen": list(texts)[best], "why": "it has most of the words of the request"}


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


# Groups: everybody is asked once, and what they said is the answer


def management_calls(request: ModelRequest) -> list[ToolCall]:
    """What a manager calls next, if these are a manager's tools; none if they are not."""
    names = {tool.name for tool in request.tools}
    if not names or not names <= _MANAGES:
        return []
    asked = next((t.text for t in reversed(request.turns) if t.role is Role.USER), "")
    said = _said_in(asked)
    if said and FINISH in names:
        answer = "\n".join(f"{speaker}: {text}" for speaker, text in said)
        return [_call(FINISH, answer=answer)]
    return [_call(TO_ALL, message=request_in(asked, {}))] if TO_ALL in names else []


def _said_in(asked: str) -> list[tuple[str, str]]:
    """Who said what, in order."""
    found = [(_SAID.fullmatch(name), text) for name, text in parts_of(asked).data]
    return [(name[1], text.strip()) for name, text in found if name is not None]


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(f"offline-{name}", name, msgspec.json.encode(arguments).decode())
