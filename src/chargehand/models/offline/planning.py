"""A plan by rules: the clauses of a request, each for the worker whose description fits it."""

import re
from typing import Any

from msgspec import Struct

from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.reading import parts_of
from chargehand.models.offline.slots import Schema, resolved, type_of
from chargehand.models.offline.words import term, term_set, terms, words

MOST = 12
_REQUEST = re.compile(
    r"^(?:request|goal|question|objective|user request): *(.+?)(?:\n\s*\n|\Z)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
_BACK = re.compile(
    r"\b(?:it|its|them|this|that|these|those|they|their|result|results|findings|above|"
    r"based on|both|each of|the same)\b",
    re.IGNORECASE,
)
_THEN = re.compile(r"\b(?:then|after that|afterwards|finally|next|once)\b\W*$", re.IGNORECASE)
_WRITES = term_set("write summary report compose combine merge edit answer")
_REVIEWS = term_set("review check verify critic proofread")


class Step(Struct, frozen=True):
    """A task in the making; it needs the steps of these numbers."""

    description: str
    worker: str
    needs: tuple[int, ...]


def is_plan(schema: Schema) -> bool:
    """Whether the schema asks for tasks, each for one of several workers."""
    return _tasks_in(schema) is not None


def planned(schema: Schema, asked: str, prompts: str) -> dict[str, Any]:
    """A plan for the request in `asked`; who the workers are is read from all the `prompts`."""
    found = _tasks_in(schema)
    assert found is not None  # noqa: S101 (callers ask `is_plan` first)
    name, items = found
    worker = resolved(items["properties"]["worker"], schema)
    roster = {each: _described(each, prompts) for each in worker["enum"]}
    request = _request_in(asked, roster)
    steps = steps_for(request, roster, min(_most(schema, name), MOST))
    plan: dict[str, Any] = {name: [_task(n, step, items, schema) for n, step in enumerate(steps)]}
    for key, each in schema.get("properties", {}).items():
        if key not in plan and key in (schema.get("required") or ()):
            plan[key] = request if type_of(resolved(each, schema)) == "string" else _blank(each)
    return plan


def steps_for(request: str, roster: dict[str, str], most: int = MOST) -> list[Step]:
    """The steps of a request: side by side, unless one speaks of what came before it."""
    names = list(roster)
    ranking = Ranking([((name, 2.0), (roster[name], 1.0)) for name in names])
    writer = next((name for name in names if _does(name, roster, _WRITES)), None)
    parts = [part for part in clauses(request) if terms(part.text)][:most]
    steps: list[Step] = []
    for part in parts:
        scores = ranking.scores(part.text)
        best = max(range(len(names)), key=lambda n: (scores[n], -n))
        lead = request[max(0, part.start - 20) : part.start]
        refers = bool(steps) and bool(_BACK.search(part.text) or _THEN.search(lead.strip(" ,")))
        needs = _open_ends(steps) if refers else ()
        worker = names[best] if scores[best] or not refers else writer or names[best]
        description = part.text[0].upper() + part.text[1:]
        if refers:
            description = f"{description.rstrip('.')} (this goes on from: {steps[-1].description})"
        steps.append(Step(description[:1000], worker, needs))
    return _finished(steps or [Step(request, names[0], ())], request, roster, most)


def _finished(steps: list[Step], request: str, roster: dict[str, str], most: int) -> list[Step]:
    """With a last word from a writer, and from a reviewer, where the roster has them."""
    writer = next((name for name in roster if _does(name, roster, _WRITES)), None)
    reviewer = next((name for name in roster if _does(name, roster, _REVIEWS)), None)
    used = [step.worker for step in steps]
    goal = request if len(request) <= 500 else f"{request[:499]}…"
    if writer and used[-1] != writer and writer != reviewer and len(steps) < most:
        text = f"Put the results together into one answer to: {goal}"
        steps = [*steps, Step(text, writer, _open_ends(steps))]
    if reviewer and reviewer not in used and len(steps) < most:
        text = f"Check the answer for gaps and contradictions against the request: {goal}"
        steps = [*steps, Step(text, reviewer, _open_ends(steps))]
    return steps


def _does(name: str, roster: dict[str, str], verbs: frozenset[str]) -> bool:
    first = [*words(name), *words(roster[name])[:4]]
    return any(term(word) in verbs for word in first)


def _open_ends(steps: list[Step]) -> tuple[int, ...]:
    """The steps that nothing needs yet."""
    needed = {need for step in steps for need in step.needs}
    return tuple(n for n in range(len(steps)) if n not in needed)


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


def _described(worker: str, prompts: str) -> str:
    line = re.search(
        rf"^[-*•\s]*[`\"'*]*{re.escape(worker)}[`\"'*]*\s*(?:[:(–—-]|is)\s*(.+)$",
        prompts,
        re.MULTILINE,
    )
    return line[1] if line else ""


def _request_in(asked: str, roster: dict[str, str]) -> str:
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
