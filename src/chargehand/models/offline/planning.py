"""Plans and choices of workers by rules, in whatever shape a schema asks for them."""

import re
from collections.abc import Iterable
from typing import Any

from chargehand.models.offline.assigning import MOST, Step, steps_for
from chargehand.models.offline.reading import parts_of
from chargehand.models.offline.slots import Schema, resolved, type_of

_REQUEST = re.compile(
    r"^(?:request|goal|question|objective|user request): *(.+?)(?:\n\s*\n|\Z)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
LONGEST_GOAL = 1_000
#: characters
FORM = "A short answer to the request; every statement with its source."


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
    steps = steps_for(request, roster, min(_most(schema, name), MOST))
    tasks = [_task(n, step, items, schema) for n, step in enumerate(steps)]
    if "replaced" in schema["properties"]:
        # The plan that failed is the only one that the rules would make.
        tasks, request = [], "the rules of the offline model know no other way"
    return {**_around(schema, request), name: tasks}


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


def _most(schema: Schema, name: str) -> int:
    return int(resolved(schema["properties"][name], schema).get("maxItems", MOST))


def _task(number: int, step: Step, items: Schema, root: Schema) -> dict[str, Any]:
    properties = items["properties"]
    known: dict[str, Any] = {
        "id": _id(number, properties.get("id"), root),
        "description": step.description,
        "worker": step.worker,
    }
    if "needs" in properties:
        known["needs"] = [_need(need, properties, root) for need in step.needs]
    required = items.get("required") or ()
    rest = {k: _blank(resolved(v, root)) for k, v in properties.items() if k in required}
    return {**rest, **{key: value for key, value in known.items() if key in properties}}


def _id(number: int, schema: Any, root: Schema) -> Any:
    whole = resolved(schema, root) if isinstance(schema, dict) else {}
    if whole.get("enum"):
        return whole["enum"][min(number, len(whole["enum"]) - 1)]
    return number + 1 if type_of(whole) in ("integer", "number") else f"t{number + 1}"


def _need(number: int, properties: Schema, root: Schema) -> Any:
    id_ = _id(number, properties.get("id"), root)
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
