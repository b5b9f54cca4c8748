"""Outcomes that a worker makes itself: what cannot be true, or cannot be read back, fails that attempt and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from msgspec import Raw

import chargehand as ch
from chargehand.cli import main
from chargehand.engines.base import Job, Lost, Parking, outcome_of
from chargehand.engines.brief import AskedPerson, Brief
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import LONGEST
from chargehand.facts.events import Effect
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput, Parked, Question, Usage
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from tests.guide.conftest import make_plan, make_task
from tests.integration.children_at_work import earn_money, forge_a_step, forge_usage, outcome_of_one

EARNED = Usage(calls=-100, tokens_in=-(10**9), money=-1e9)
ENDLESS = Usage(tokens_in=10**30)
#: values whose bytes are not what they should be, and what is said of them
FORGED = {
    "no UTF-8": Value(json=Raw(b'"\xff"')),
    "JSON of the event": Value(json=Raw(b'1},"gaps":["x"],"q":{"json":2')),
    "two values": Value(json=Raw(b'1,"x":2')),
    "a number that nobody reads": Value(json=Raw(b"1e400")),
    "too deep": Value(json=Raw(b"[" * 500 + b"]" * 500)),
    "a blob that is not there": Value(blob="f" * 32, size=5),
    "a blob elsewhere": Value(blob="../../etc/passwd", size=5),
}


async def ending_of(returned: object) -> object:
    """What an attempt ends with whose worker returns this, or raises it."""

    async def call(_: Job) -> object:
        if isinstance(returned, BaseException):
            raise returned
        return returned

    brief = Brief("r", Task(id="t", description="Forge it", worker="w"), 1, "w", {}, None)
    return await outcome_of(call, Job(brief, cast("Any", None)))


def failure(ending: object) -> Failed:
    assert isinstance(ending, Failed), ending
    assert ending.kind == "logic"
    return ending


# What was spent


def earns_as(kind: str, usage: Usage) -> Callable[[Brief], Awaitable[object]]:
    async def done(_: Brief) -> object:
        return Done(Value.of("x"), usage=usage)

    async def failed(_: Brief) -> object:
        return Failed(kind=cast("Any", "logic"), message="no", usage=usage)

    async def stepwise(brief: Brief) -> object:
        async def run(_: str) -> Done:
            return Done(Value.of(1), usage=usage)

        return (await brief.durable("look", [1], run, effect=Effect.PURE)).value.read()

    async def reserved(brief: Brief) -> object:
        async def run(_: str) -> Done:
            return Done(Value.of(1))

        done = await brief.durable("look", [1], run, effect=Effect.PURE, reserve=usage)
        return done.value.read()

    return {"done": done, "failed": failed, "step": stepwise, "reserve": reserved}[kind]


@pytest.mark.parametrize("usage", [EARNED, ENDLESS], ids=["negative", "endless"])
@pytest.mark.parametrize("kind", ["done", "failed", "step", "reserve"])
async def test_no_worker_lifts_the_caps_of_its_run_by_what_it_says_it_spent(
    kind: str, usage: Usage
) -> None:
    liar = ch.worker("liar", "Says what cannot be true")(earns_as(kind, usage))
    model = ch.ScriptedModel(["yes"] * 9)
    clerk = ch.Worker("clerk", "Answers", model=model)
    tasks = [make_task(f"t{n}", "clerk", ch.Need("liar", optional=True)) for n in range(9)]
    limits = ch.Limits(calls=5, attempts=1)
    async with ch.Supervisor([liar, clerk], limits=limits) as boss:
        result = await boss.run(make_plan(make_task("liar", "liar"), *tasks))
    assert len(model.requests) <= 5
    error = failure(result.tasks["liar"].error)
    assert "is not from 0 to 2**53" in error.message
    assert 0 <= result.usage.calls <= 5
    assert 0 <= result.usage.tokens_in < 10**6
    assert result.usage.money == 0


@pytest.mark.parametrize("function", [earn_money, forge_usage])
async def test_nor_does_one_in_a_process_of_its_own(function: Callable[[Brief], Any]) -> None:
    error = failure(await outcome_of_one(function))
    assert "is not from 0 to 2**53" in error.message


async def test_what_may_be_true_is_counted() -> None:
    spent = Usage(calls=2, tokens_in=2**53, money=0.5)

    @ch.worker("honest", "Says what it spent")
    async def honest(_: Brief) -> object:
        return Done(Value.of("x"), usage=spent)

    async with ch.Supervisor([honest]) as boss:
        result = await boss.run(make_plan(make_task("t", "honest")))
    assert result.usage == spent


# What is stored


@pytest.mark.parametrize("what", FORGED)
def test_a_result_that_no_reader_can_take_in_is_a_failure_and_the_journal_stays_whole(
    what: str, tmp_path: Path
) -> None:
    @ch.worker("forger", "Makes its result by hand")
    async def forger(_: Brief) -> object:
        return Done(FORGED[what])

    @ch.worker("honest", "Works beside it")
    async def honest(_: Brief) -> str:
        return "fine"

    place = tmp_path / "runs.db"

    async def result() -> ch.RunResult:
        plan = make_plan(make_task("bad", "forger"), make_task("good", "honest"))
        async with ch.Supervisor([forger, honest], journal=place) as boss:
            run = await boss.submit(plan, limits=ch.Limits(attempts=1))
            await run.wait()
        async with ch.Supervisor([forger, honest], journal=place) as boss:
            return await boss.look(run.id)

    found = asyncio.run(result())
    assert found.tasks["good"].output == "fine"
    assert "the worker's Done cannot be stored" in failure(found.tasks["bad"].error).message
    assert CliRunner().invoke(main, ["verify", "--journal", str(place)]).exit_code == 0


@pytest.mark.parametrize("what", FORGED)
async def test_a_step_and_a_question_are_held_to_the_same(what: str) -> None:
    question = Question(id="q", text="Fine?", evidence=FORGED[what])
    failure(await ending_of(NeedsInput(question=question)))
    failure(await ending_of(AskedPerson(question)))

    @ch.worker("forger", "Makes the result of a step by hand")
    async def forger(brief: Brief) -> object:
        async def run(_: str) -> Done:
            return Done(FORGED[what])

        done = await brief.durable("look", [1], run, effect=Effect.PURE)
        return done.value.read()

    async with ch.Supervisor([forger], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(make_plan(make_task("t", "forger")))
    assert "the step's Done cannot be stored" in failure(result.tasks["t"].error).message


async def test_a_step_brings_an_outcome_and_nothing_else() -> None:
    @ch.worker("forger", "Returns what is no outcome from a step")
    async def forger(brief: Brief) -> object:
        async def run(_: str) -> Any:
            return "seven"

        return await brief.durable("look", [1], run, effect=Effect.PURE)

    async with ch.Supervisor([forger], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(make_plan(make_task("t", "forger")))
    assert failure(result.tasks["t"].error).message.startswith("a step brings Done(Value.of(…))")


async def test_a_step_that_is_forged_in_a_process_is_refused_there() -> None:
    assert "cannot be stored" in failure(await outcome_of_one(forge_a_step)).message


@pytest.mark.parametrize(
    "returned",
    [
        Lost(cast("str", 5)),
        Cancelled(reason=cast("str", 5)),
        Done(Value.of(1), gaps=cast("tuple[str, ...]", (5,))),
        Done(5, usage=cast("Usage", 5)),
        NeedsInput(question=cast("Question", 5)),
        Parked(cast("timedelta", 5), "later"),
        Parked(timedelta(1), cast("str", 5)),
    ],
    ids=lambda each: repr(each)[:40],
)
async def test_a_field_of_another_type_is_a_failure(returned: object) -> None:
    failure(await ending_of(returned))


@pytest.mark.parametrize("result", ["x", {"a": [1]}, None, 5])
async def test_a_result_with_its_usage_is_any_json(result: object) -> None:
    spent = Usage(calls=1, tokens_in=5)
    assert await ending_of(Done(result, usage=spent)) == Done(Value.of(result), usage=spent)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (Done(1), "its result is a Done, which is an outcome itself"),
        (Cancelled(), "its result is a Cancelled, which is an outcome itself"),
        (b"x", "bytes cannot be stored as JSON"),
    ],
)
async def test_what_is_no_result_fails_its_attempt_and_is_not_tried_again(
    result: object, why: str
) -> None:
    failed = failure(await ending_of(Done(result)))
    assert f"the worker's Done cannot be stored: {why}" in failed.message
    assert failed.is_final


async def test_what_is_made_as_it_should_be_stays_as_it_is() -> None:
    whole = Done(Value(json=Raw(b' {"a": [1]} ')), gaps=("one",))
    assert await ending_of(whole) == Done(Value(json=Raw(b'{"a": [1]}')), gaps=("one",))
    assert await ending_of(Lost("gone")) == Lost("gone")
    assert await ending_of(Parked(LONGEST * 2, "busy")) == Parking(LONGEST, "busy")
    question = Question(id="q", text="Fine?", evidence=Value.of({"a": 1}))
    assert await ending_of(AskedPerson(question)) == NeedsInput(question=question)


async def test_a_step_reserves_what_may_be_true() -> None:
    async def run(_: str) -> Done:
        return Done()

    brief = Brief("r", Task(id="t", description="Forge it", worker="w"), 1, "w", {}, None)
    with pytest.raises(UsageError, match="reserve: calls=-1 is not from 0"):
        await brief.durable("look", [1], run, effect=Effect.PURE, reserve=Usage(calls=-1))


async def test_a_large_result_of_a_run_below_is_handed_on() -> None:
    """It lies in a blob there: only those that a worker names itself are refused."""

    @ch.worker("writer", "Writes much")
    async def writer(_: Brief) -> str:
        return "x" * 100_000

    below = ch.Supervisor(
        [writer], name="below", plan_for=lambda _: make_plan(make_task("leaf", "writer"))
    )
    async with ch.Supervisor([below]) as boss:
        result = await boss.run(make_plan(make_task("t", "below")))
    assert result.tasks["t"].output == "x" * 100_000
