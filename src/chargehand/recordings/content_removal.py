"""Removes texts and values from recorded events, and keeps their structure, times and costs.

This is an allowlist: a field that is not named here is content and is removed.
"""

import re
from typing import Any

import msgspec

from chargehand.decisions.budget import NESTED, OVER_BUDGET
from chargehand.decisions.deadlines import CANCELLED, OUT_OF_TIME
from chargehand.decisions.run_outputs_and_steps import MODEL_CALL
from chargehand.decisions.schedule import SILENT
from chargehand.facts.events import Event, decode, encode
from chargehand.facts.failure_policy import (
    ABOUT_BUDGET,
    ABOUT_FAILURE,
    GIVE_UP,
    GO_ON_WITHOUT,
    RAISE_TO,
    STOP,
    TRY_AGAIN,
)
from chargehand.facts.value import canonical, digest_of

#: replaces a removed text
LEFT_OUT = "(left out)"
#: fields whose texts are kept: names, kinds, durations and timestamps
# fmt: off
_KEPT = frozenset({
    "active", "approach", "at", "avoid", "cap", "cause", "crew", "deadline", "deadline_at",
    "digest", "due_at", "effect", "epoch", "error", "expect", "first", "grace", "how", "id",
    "is", "key", "kind", "least", "mean", "missing", "namespace", "node", "parent",
    "patience", "question", "removed", "replaced", "reported", "retry_after", "reused", "run",
    "skill", "status", "steps", "strategy", "task", "then", "timeout", "version", "worker",
})
# fmt: on
#: fields that are records, whose fields are checked one by one; all other objects are emptied
_RECORDS = frozenset(
    {
        "added",
        "cause",
        "limits",
        "needs",
        "on_failure",
        "outcome",
        "plan",
        "reserve",
        "retry",
        "task",
    }
    | {"tasks", "usage"}
)
#: fields that are records by name of a worker or an error class
_BY_NAME = frozenset({"kinds", "paces", "policies"})
#: fields that are removed completely
_DROPPED = frozenset({"earlier", "evidence", "members", "output", "source", "stack", "taint"})
#: fields that decisions compare, so they are replaced by digests. Names of steps and inputs are content, because
#: functions and models invent them
_COMPARED = frozenset({"args", "description", "name"})
#: step names that chargehand gives: a model call, a nested run, a tool call
_OUR_STEPS = re.compile(rf"{MODEL_CALL}|{NESTED}|tool [\w.-]{{1,64}}")
#: texts that chargehand writes and decisions depend on
_WORDS = {
    "reason": frozenset({OVER_BUDGET, OUT_OF_TIME, CANCELLED}),
    "text": frozenset({TRY_AGAIN, GO_ON_WITHOUT, GIVE_UP, STOP}),
    "by": frozenset({"default"}),
}
_MARK = re.compile(r"\(left out [0-9a-f]{12}\)")
_BEGINNINGS = {"reason": SILENT, "text": RAISE_TO}


def without_content(event: Event) -> Event:
    """The event without its texts and values. Idempotent."""
    return decode(msgspec.json.encode(_fields(msgspec.json.decode(encode(event)))))


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    if isinstance(given.get("for_each"), str):
        given = given | {"for_each": _mapped_over(given)}
    return {name: _kept(name, value) for name, value in given.items() if name not in _DROPPED}


def _kept(name: str, value: Any) -> Any:
    if name == "name" and _OUR_STEPS.fullmatch(value):
        return value
    if name in _COMPARED and value:
        return _mark(value)
    if name == "for_each":
        return _for_each(value)
    if isinstance(value, dict):
        return _record(name, value)
    if isinstance(value, list):
        return [_kept(name, each) for each in value]
    if not isinstance(value, str) or not value or name in _KEPT:
        return value
    beginning = _BEGINNINGS.get(name)
    is_ours = value in _WORDS.get(name, ()) or (beginning and value.startswith(beginning))
    return value if is_ours else LEFT_OUT


def _record(name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "question":
        return _question(given)
    if name == "about":
        return _about(given)
    if name in _BY_NAME:
        return {
            key: _fields(each) if isinstance(each, dict) else _kept("steps", each)
            for key, each in given.items()
        }
    return _fields(given) if name in _RECORDS else {}


def _mark(value: Any) -> Any:
    """The mark for a removed value: equal for equal values. The mark of a mark is the mark itself."""
    mark = f"{LEFT_OUT[:-1]} {digest_of(canonical(value))[:12]})"
    if isinstance(value, str):
        return value if _MARK.fullmatch(value) else mark
    return value if set(value) == {LEFT_OUT} else {LEFT_OUT: mark}


def _mapped_over(task: dict[str, Any]) -> Any:
    """The need that a task is mapped over: a task id is kept; an input name is replaced by its mark."""
    needs = [need for need in task.get("needs", ()) if isinstance(need, dict)]
    over = task["for_each"]
    return _mark(over) if any(over == need.get("name") for need in needs) else over


def _for_each(over: Any) -> Any:
    """What a task is mapped over: the name of a need, or a list or object whose values are removed."""
    if isinstance(over, list):
        return [LEFT_OUT] * len(over)
    return dict.fromkeys(over, LEFT_OUT) if isinstance(over, dict) else over


def _question(given: dict[str, Any]) -> dict[str, Any]:
    """A question without its text. The choices of a question about a failure or a budget are kept for decisions."""
    names = ["id", "about", "patience"]
    if given.get("about") in (ABOUT_BUDGET, ABOUT_FAILURE):
        names += ["choices", "telling", "default"]
    if given.get("about") == ABOUT_BUDGET:
        names.append("evidence")  # the cap and the amount spent
    kept = {name: given[name] for name in names if name in given}
    if "default" in given:
        kept.setdefault("default", LEFT_OUT)
    return kept | {"text": LEFT_OUT}


def _about(given: dict[str, Any]) -> dict[str, Any]:
    """The input of a step: only the id of the nested run is kept, if it has one."""
    data = given.get("json")
    return {"json": {"run": data["run"]}} if isinstance(data, dict) and "run" in data else {}
