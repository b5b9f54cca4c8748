"""Values that no border may take badly: of Python, the command line, MCP and HTTP alike."""

import json
from collections.abc import Callable
from datetime import timedelta

import chargehand as ch

#: fields of a task
TASK_FIELDS = (
    *("id", "description", "worker", "skill", "accept", "priority", "deadline", "expect"),
    *("output", "limits", "on_failure", "optional", "hedge", "args", "needs"),
)
#: how a run is to be done
RUN_OPTIONS = ("priority", "deadline", "limits", "key", "after", "reuse", "source", "output")


class Slippery:
    """Looks like a number and like a model, and is neither."""

    def __index__(self) -> int:
        raise RuntimeError("not today")

    def __float__(self) -> float:
        raise RuntimeError("nor tomorrow")

    def model_dump(self, mode: str = "") -> object:
        raise RuntimeError("nor ever")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("unlike anything")

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        raise RuntimeError("no name")


def _knot() -> list[object]:
    knot: list[object] = []
    knot.append(knot)
    return knot


def _deep() -> object:
    deep: object = 1
    for _ in range(700):
        deep = [deep]
    return deep


HOSTILE: dict[str, Callable[[], object]] = {
    "the longest timedelta": lambda: timedelta.max,
    "below zero": lambda: timedelta(days=-1),
    "infinity": lambda: float("inf"),
    "NaN": lambda: float("nan"),
    "a huge number": lambda: 10**400,
    "True": lambda: True,
    "a lone surrogate": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "a megabyte and more": lambda: "x" * 1_000_001,
    "bytes": lambda: b"\xff",
    "an object": object,
    "an object that raises": Slippery,
    "a knot": _knot,
    "deep lists": _deep,
    "a list of everything": lambda: [None, float("nan"), "\udfff", object()],
    "a dict of objects": lambda: {object(): object()},
    "a class": lambda: ch.Task,
}


def as_json(value: object) -> bytes:
    """The JSON that comes nearest to a value, as a hostile client writes it: also what is no JSON at all."""

    def told(each: object) -> object:
        return each.total_seconds() if isinstance(each, timedelta) else f"<{type(each).__name__}>"

    try:
        return json.dumps(value, default=told).encode()
    except ValueError:  # a knot
        return b"[" * 5_000
    except TypeError:  # keys that are no texts
        return b'{"\\ud800": null, "": {}}'
