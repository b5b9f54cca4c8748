"""The JSON of events in the API: as with `--json`, but with large values cut to a preview."""

from typing import Any

import msgspec
from msgspec import Raw

from chargehand.decisions.trace import step_kind
from chargehand.decisions.trace_types import StepKind
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    ItemsListed,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    RunRequested,
    StepFinished,
    StepStarted,
    TaskAdded,
    encode,
)
from chargehand.facts.outcome import Done, Failed, NeedsInput
from chargehand.facts.value import Value

#: most characters of a value in an event; clients fetch the rest on demand
PREVIEW = 200
#: most characters of an error's stack trace, and most bytes of a task's arguments
MOST_STACK, MOST_ARGS = 2_000, 2_000


def event_json(run: str, seq: int, event: Event) -> bytes:
    """The JSON of an event, with its number and its run."""
    fields = msgspec.json.decode(encode(event), type=dict[str, Raw])
    return msgspec.json.encode({"seq": seq, "run": run, **fields, **_cut(event)})


def preview_of(value: Value) -> dict[str, Any]:
    """The size of a value, its beginning and its taint."""
    told: dict[str, Any] = {"size": value.size if value.blob else len(value.json), "preview": ""}
    if not value.blob:
        told["preview"] = preview_words(value)
    if value.taint:
        told["taint"] = value.taint
    return told


def preview_words(value: Value, most: int = PREVIEW) -> str:
    """The beginning of a value that is not a blob: of a string its text, otherwise of its JSON."""
    json = bytes(value.json)
    if json[:1] == b'"':
        return str(value.read())[:most]
    return json[: 4 * most].decode("utf-8", "ignore")[:most]


def _cut(event: Event) -> dict[str, Any]:
    """The fields of an event that contain values, with previews instead of the values."""
    match event:
        case StepStarted():
            return {"about": preview_of(event.about), "step": _step(event)}
        case StepFinished() | AttemptFinished():
            return {"outcome": _outcome(event.outcome)}
        case RunRequested():
            # Without `source`: clients need not know where the crew is on this machine.
            return {"earlier": preview_of(event.earlier), "source": {}}
        case ItemsListed():
            return {"items": [preview_of(each) for each in event.items]}
        case PersonAsked():
            return {"question": _question(event.question)}
        case PlanAdopted():
            plan = msgspec.to_builtins(event.plan)
            return {"plan": {**plan, "tasks": [_task(each) for each in plan["tasks"]]}}
        case TaskAdded():
            return {"task": _task(msgspec.to_builtins(event.task))}
        case PlanAmended() if event.added:
            return {"added": [_task(each) for each in msgspec.to_builtins(event.added)]}
        case _:
            return {}


def _step(event: StepStarted) -> dict[str, str]:
    """The kind of a step, and its model or nested run, so that clients can name it without its arguments."""
    about = None if event.about.blob else event.about.read()
    kind = step_kind(event.name, about)
    told = {"kind": kind.value}
    if isinstance(about, dict):
        if kind is StepKind.MODEL:
            told["model"] = next(iter(about["models"]), "")
        elif kind is StepKind.RUN:
            told["run"] = str(about["run"])
    return told


def _outcome(outcome: Any) -> dict[str, Any]:
    told = _fields(outcome)
    if isinstance(outcome, Done):
        told["value"] = preview_of(outcome.value)
    elif isinstance(outcome, NeedsInput):
        told["question"] = _question(outcome.question)
    elif isinstance(outcome, Failed) and outcome.stack:
        told["stack"] = outcome.stack[-MOST_STACK:]
    return told


def _question(question: Any) -> dict[str, Any]:
    return {**_fields(question), "evidence": preview_of(question.evidence)}


def _fields(record: object) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Raw])


def _task(task: dict[str, Any]) -> dict[str, Any]:
    for field in ("args", "for_each"):
        given = task.get(field)
        if isinstance(given, (dict, list)):
            value = Value.of_record(given)
            if len(value.json) > MOST_ARGS:
                task[field] = preview_of(value)
    return task
