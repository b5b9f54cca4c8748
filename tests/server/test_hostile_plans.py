"""Hostile plans and options over HTTP: each is refused alone, with a 4xx, and the server goes on."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.hostile_values import HOSTILE, RUN_OPTIONS, TASK_FIELDS, as_json
from tests.server.conftest import Reply, Served, serving, task

GOOD = {"goal": "x", "tasks": [task("a")]}
#: stands for the value in a body
HERE = "<the value>"
#: what else `POST runs` takes beside the options of Python
OPTIONS = ("request", "plan", "review_plan", "approach", "on_budget")
LIMITS = ("money", "tokens", "calls", "time")

#: bodies that are JSON, and no run
BODIES: tuple[dict[str, Any], ...] = (
    {"plan": {"goal": "x", "tasks": []}},
    {"plan": {"goal": "x", "tasks": [task("a", "clerk", "a")]}},
    {"plan": {"goal": "x", "tasks": [task("a", "clerk", "b"), task("b", "clerk", "a")]}},
    {"plan": {"goal": "x", "tasks": [task("@plan")]}},
    {"plan": {"goal": "x", "tasks": [task("a"), task("a")]}},
    {"plan": {"goal": "x", "tasks": [task("x" * 5_000)]}},
    {"plan": {"goal": "x", "tasks": [task(f"t{n}") for n in range(5_000)]}},
    {"plan": {"goal": "x", "tasks": [task("a", deadline=-1)]}},
    {"plan": {"goal": "x", "tasks": [task("a", limits={"attempts": -3})]}},
    {"plan": {"goal": "x", "tasks": [{**task("a"), "__class__": "os.system"}]}},
    {"plan": GOOD, "priority": 10**30},
    {"plan": GOOD, "limits": {"money": -1}},
    {"plan": GOOD, "limits": {"time": -1}},
    {"plan": GOOD, "limits": {"time": 1e300}},
    {"plan": GOOD, "key": "k" * 10_000},
    {"plan": GOOD, "key": "\ud800"},
    {"plan": GOOD, "approach": "steps"},
    {"plan": GOOD, "review_plan": True},
    {"plan": GOOD, "source": {"crew": "os:system"}},
    {"plan": GOOD, "output": {"type": "no such type"}},
    {"plan": GOOD, "on_budget": "steal"},
    {"plan": GOOD, "request": "both"},
    {"request": "  "},
    {"request": "words without a model"},
    {},
)

#: what JSON makes of them is a text like any other
TEXTS = ("NUL", "a class", "an object", "an object that raises", "bytes")
LONG = "a megabyte and more"
#: where such a value does no harm, and what it is
HARMLESS = {
    *((name, what) for name in ("goal", "task accept", "task description") for what in TEXTS),
    *((name, LONG) for name in ("goal", "task accept", "task description", "argument")),
    *(("argument", what) for what in (*TEXTS, "True", "a huge number", "below zero")),
    ("argument", "the longest timedelta"),
    *((name, "True") for name in ("task hedge", "task optional")),
}


def with_value(body: object, value: bytes) -> bytes:
    return json.dumps(body).encode().replace(json.dumps(HERE).encode(), value)


def plans(first: str = "clerk") -> Iterator[tuple[str, dict[str, Any]]]:
    """Plans with a place for a hostile value, by what that is."""
    a, b = task("a", first), task("b", "clerk", "a")
    for field in TASK_FIELDS:
        value = [HERE] if field == "needs" else HERE
        yield f"task {field}", {"goal": "x", "tasks": [a, {**b, field: value}]}
    yield "argument", {"goal": "x", "tasks": [a, {**b, "args": {"x": HERE}}]}
    yield "goal", {"goal": HERE, "tasks": [a, b]}
    yield "task", {"goal": "x", "tasks": [a, HERE]}
    yield "tasks", {"goal": "x", "tasks": HERE}
    yield "unknown field", {"goal": "x", "tasks": [a, b], "more": HERE}


def requests() -> Iterator[tuple[str, Any]]:
    """Bodies of `POST runs` with a place for a hostile value, by what that is."""
    yield "body", HERE
    for name, plan in plans():
        yield name, {"plan": plan}
    for name in (*RUN_OPTIONS, *OPTIONS):
        yield f"run {name}", {"plan": GOOD, name: HERE}
    for name in LIMITS:
        yield f"limit {name}", {"plan": GOOD, "limits": {name: HERE}}
    yield "request alone", {"request": HERE}


async def test_hostile_bodies_are_refused_and_begin_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for body in BODIES:
            reply = await served.call("POST", "runs", data=json.dumps(body).encode())
            assert 400 <= reply.status < 500, (body, reply)
            assert reply.json["error"]["message"], body
        assert (await served.get("runs"))["runs"] == []
        assert await served.submit(task("a"))


@asynccontextmanager
async def neighbour_of(served: Served) -> AsyncIterator[str]:
    """A run that waits for a person all the while, and must succeed."""
    run = await served.submit(task("a", "asker"), task("b", "clerk", "a"))
    await served.until(run, "waiting")
    yield run
    (question,) = (await served.get(f"runs/{run}/questions"))["questions"]
    assert (await served.post(f"questions/{question['id']}/answer", {"choice": 1})).status == 200
    await served.until(run, "succeeded")


def is_taken(reply: Reply, what: object) -> bool:
    """Whether a request was taken; if not, the reason was its own."""
    if reply.status < 300:
        return True
    assert 400 <= reply.status < 500, (what, reply)
    assert reply.json["error"]["message"], what
    return False


async def test_every_hostile_value_in_a_request_ends_alone(tmp_path: Path) -> None:
    """What is a text, a number or a choice after all is a run like any other, and succeeds."""
    async with serving(tmp_path) as served, neighbour_of(served):
        taken = {}
        for name, body in requests():
            for what, make in HOSTILE.items():
                reply = await served.call("POST", "runs", data=with_value(body, as_json(make())))
                if is_taken(reply, (name, what)):
                    taken[name, what] = reply.json["id"]
        assert set(taken) == HARMLESS | {("limit money", "the longest timedelta")} | {
            ("run key", what) for what in TEXTS if what != "NUL"
        }
        for run in taken.values():
            await served.until(run, "succeeded")


async def test_every_hostile_value_in_a_changed_plan_is_refused_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, neighbour_of(served) as run:
        taken = set()
        for name, plan in plans("asker"):
            for what, make in HOSTILE.items():
                body = with_value({"plan": plan}, as_json(make()))
                reply = await served.call(
                    "PUT", f"runs/{run}/plan", data=body, headers={"If-Match": "*"}
                )
                if is_taken(reply, (name, what)):
                    taken.add((name, what))
        assert taken == HARMLESS
        for header in ('"', "W/", "\xff", "9" * 150, "1-0"):
            reply = await served.call(
                "PUT", f"runs/{run}/plan", {"plan": GOOD}, headers={"If-Match": header}
            )
            assert not is_taken(reply, header)
