"""The refiner: a failed task is rewritten by a model that sees what went wrong."""

import json
from typing import Any

import pytest

import chargehand as ch
from chargehand.engines.brief import Fenced
from chargehand.errors import ModelDenied
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    CancelRequested,
    Effect,
    StepFinished,
    StepStarted,
    TaskRewritten,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome
from chargehand.facts.value import Value
from chargehand.roles.shared_resources import Resources
from tests.integration.planner_at_work import LYON, Seated, cut_off, plan_text

DUTY = "@refine:t1:1"
BETTER = "Find the height of the tower Incity in towers.csv, which lies in data/"


def better(words: str = BETTER) -> str:
    return json.dumps({"description": words})


def refused(message: str = "there is no file lyon.txt") -> Failed:
    return Failed(kind=ErrorClass.LOGIC, message=message)


async def after_failure(*script: Any, steps: dict[str, Outcome] | None = None) -> Seated:
    """A run whose only task failed once, and waits for better words."""
    seat = Seated(ch.ScriptedModel([plan_text(LYON), *script]), refines=True)
    await seat.plan()
    at = seat.now()
    seat.tell(AttemptStarted(task="t1", attempt=1, worker="finder", at=at))
    for name, outcome in (steps or {}).items():
        step: dict[str, Any] = {"task": "t1", "attempt": 1, "name": name, "ordinal": 1}
        begun = StepStarted(**step, effect=Effect.PURE, key=name, digest="", at=at)
        seat.tell(begun)
        assert isinstance(outcome, (Done, Failed))
        seat.tell(StepFinished(**step, key=name, outcome=outcome, at=at))
    seat.tell(AttemptFinished(task="t1", attempt=1, outcome=refused(), at=at))
    return seat


def asked_last(seat: Seated) -> tuple[str, str]:
    model = seat.resources.models(None, "")[0]
    assert isinstance(model, ch.ScriptedModel)
    return model.requests[-1].turns[0].text, model.requests[-1].turns[-1].text


async def test_a_failed_task_is_said_better() -> None:
    seat = await after_failure(better())
    outcome = await seat.refine(DUTY)
    assert outcome == Done(Value.of({"description": BETTER}))
    rewritten = [event for event in seat.journal if isinstance(event, TaskRewritten)]
    assert [(each.task, each.description, each.attempt) for each in rewritten] == [
        ("t1", BETTER, 1)
    ]
    assert seat.live_run.schedule.nodes["t1"].task.description == BETTER


async def test_the_model_sees_the_task_its_worker_and_why_it_failed() -> None:
    seat = await after_failure(better())
    await seat.refine(DUTY)
    system, user = asked_last(seat)
    assert "The worker is finder. Finds facts about buildings in files" in system
    assert f"BEGIN task\n{LYON['description']}\nEND task" in user
    assert "BEGIN failure\nlogic: there is no file lyon.txt\nEND failure" in user


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (better(f" {LYON['description'].upper()}"), "This is what failed, word for word"),
        (better("Please handle it"), "too vague"),
        (better("  "), "empty"),
        ("Better: look in data/", "not JSON"),
    ],
)
async def test_words_that_are_no_better_go_back(wrong: str, said: str) -> None:
    seat = await after_failure(wrong, better())
    assert isinstance(await seat.refine(DUTY), Done)
    assert said in asked_last(seat)[1]
    assert seat.live_run.schedule.nodes["t1"].task.description == BETTER


@pytest.mark.parametrize("script", [[better(LYON["description"])] * 3, [cut_off("{")]])
async def test_a_task_for_which_there_are_no_better_words_stays_as_it_is(script: list[Any]) -> None:
    seat = await after_failure(*script)
    outcome = await seat.refine(DUTY)
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("no better words for t1: ")
    assert seat.live_run.schedule.nodes["t1"].task.description == LYON["description"]


async def test_what_the_provider_refuses_is_not_taken_for_bad_words() -> None:
    seat = await after_failure(ModelDenied("no key"))
    with pytest.raises(ModelDenied):
        await seat.refine(DUTY)


async def test_a_task_that_was_rewritten_is_not_rewritten_again() -> None:
    """The process ended after the words had changed and before anybody heard that it was done."""
    seat = await after_failure(better())
    first = await seat.refine(DUTY)
    assert await seat.refine(DUTY) == first
    assert sum(isinstance(event, TaskRewritten) for event in seat.journal) == 1


async def test_better_words_that_were_paid_for_are_not_asked_for_again() -> None:
    seat = await after_failure(better())
    seat.dies_after = 0
    with pytest.raises(Fenced):
        await seat.refine(DUTY)
    seat.dies_after = None
    assert isinstance(await seat.refine(DUTY), Done)


async def test_a_run_that_stops_rewrites_nothing() -> None:
    seat = await after_failure(better())
    seat.tell(CancelRequested(at=seat.now()))
    await seat.refine(DUTY)
    assert seat.live_run.schedule.nodes["t1"].task.description == LYON["description"]


async def test_the_model_sees_what_the_attempt_did() -> None:
    steps: dict[str, Outcome] = {
        "model": Done(Value.of({"reply": "…"})),
        "tool read_file": Done(Value.of({"text": "no such file:\nlyon.txt", "is_error": True})),
        "tool search": Failed(kind=ErrorClass.TIMEOUT, message="too slow"),
    }
    seat = await after_failure(better(), steps=steps)
    await seat.refine(DUTY)
    record = asked_last(seat)[1].partition("BEGIN record\n")[2].partition("\nEND record")[0]
    assert record.split("\n") == [
        "model: done",
        "tool read_file: failed: no such file: lyon.txt",
        "tool search: failed: timeout: too slow",
    ]


async def test_the_offline_model_does_not_pretend_to_know_better() -> None:
    seat = await after_failure()
    seat.resources = Resources(model="offline")
    outcome = await seat.refine(DUTY)
    assert isinstance(outcome, Failed)
    assert seat.live_run.schedule.nodes["t1"].task.description == LYON["description"]
