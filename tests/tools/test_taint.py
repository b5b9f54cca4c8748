"""What a worker is told rests on what others have read, whichever way it came: the fast ways of it."""

import asyncio
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import WorkerError
from chargehand.facts.value import Value

WEB = "web:evil.test"
SEEN: list[tuple[str, ...]] = []


@ch.worker("reads", "Reads a page")
async def reads(brief: ch.Brief) -> str:
    brief.distrust(WEB)
    return "Tell everybody."


@ch.worker("fails", "Fails in the words of a page")
async def fails(brief: ch.Brief) -> str:
    brief.distrust(WEB)
    raise WorkerError("Tell everybody.", kind="denied")


@ch.worker("copies", "Returns what it was handed, as an outcome of its own")
async def copies(brief: ch.Brief) -> ch.Done:
    return ch.Done(Value.of(str(brief.inputs)))


@ch.worker("steps", "Reads in a step")
async def steps(brief: ch.Brief) -> str:
    async def read(_: str) -> ch.Done:
        return ch.Done(Value.of("Tell everybody.", (WEB,)))

    done = await brief.durable("read", [], read, effect=ch.Effect.PURE)
    return str(done.value.read())


@ch.worker("asks", "Asks in the words of a page")
async def asks(brief: ch.Brief) -> str:
    brief.distrust(WEB)
    return await brief.ask("Tell everybody?")


@ch.worker("slow", "Reads a page, and does not come to an end")
async def slow(brief: ch.Brief) -> str:
    brief.distrust(WEB)
    await asyncio.sleep(60)
    return "never"


@ch.worker("stops", "Stops itself in the words of a page")
async def stops(brief: ch.Brief) -> ch.Cancelled:
    brief.distrust(WEB)
    return ch.Cancelled(reason="Tell everybody.")


@ch.worker("looks", "Notes what it knows of its sources")
async def looks(brief: ch.Brief) -> str:
    SEEN.append(brief.taint)
    return "looked"


CREW = [reads, fails, copies, steps, asks, slow, stops, looks]


def plan(*tasks: ch.Task, **more: Any) -> ch.Plan:
    return ch.Plan(goal="Tell the news", tasks=tasks, **more)


def task(id_: str, worker: str, *needs: "str | ch.Need", **more: Any) -> ch.Task:
    return ch.Task(
        id=id_, description="Write the letter to Ann", worker=worker, needs=needs, **more
    )


def run(made: ch.Plan, crew: Any = CREW, **more: Any) -> ch.RunResult:
    SEEN.clear()
    return ch.Supervisor(crew, limits=ch.Limits(attempts=1)).run_sync(made, **more)


@pytest.mark.parametrize("worker", ["reads", "fails", "steps", "asks", "slow", "stops"])
def test_whoever_comes_after_knows_what_was_read(worker: str) -> None:
    first = task("a", worker, optional=True, limits=ch.TaskLimits(timeout=0.05))
    result = run(plan(first, task("b", "looks", ch.Need("a", optional=True))))
    assert SEEN == [(WEB,)]
    assert result.tasks["a"].taint == (WEB,)
    assert result.tasks["b"].taint == (WEB,)
    assert result.taint == (WEB,)


def test_an_outcome_made_by_hand_forgets_nothing() -> None:
    run(plan(task("a", "reads"), task("b", "copies", "a"), task("c", "looks", "b")))
    assert SEEN == [(WEB,)]


def test_whoever_needs_nothing_of_it_is_not_tainted_by_it() -> None:
    run(plan(task("a", "reads"), task("b", "looks")))
    assert SEEN == [()]


def test_a_plan_carries_the_taint_of_who_wrote_it() -> None:
    made = plan(task("a", "looks"), taint=(WEB,))
    result = run(ch.Plan.from_json(made.to_json()))
    assert SEEN == [(WEB,)]
    assert result.taint == (WEB,)


@pytest.mark.parametrize("worker", ["reads", "fails"])
def test_it_comes_up_from_a_run_below(worker: str) -> None:
    below = ch.Supervisor(CREW, name="below", description="Reads")
    first = task("a", "below", optional=True, args={"plan": plan(task("x", worker)).to_json()})
    run(plan(first, task("b", "looks", ch.Need("a", optional=True))), [below, looks])
    assert SEEN == [(WEB,)]


def test_it_goes_down_into_a_run_below() -> None:
    below = ch.Supervisor([looks], name="below", description="Looks")
    second = task("b", "below", "a", args={"plan": plan(task("x", "looks")).to_json()})
    run(plan(task("a", "reads"), second), [below, reads])
    assert SEEN == [(WEB,)]


@pytest.mark.parametrize("worker", ["reads", "fails"])
def test_it_goes_on_into_the_run_after(worker: str) -> None:
    SEEN.clear()
    boss = ch.Supervisor(CREW)
    before = boss.run_sync(plan(task("a", worker)))
    after = boss.run_sync(plan(task("b", "looks")), after=before.id)
    assert SEEN == [(WEB,)]
    assert after.taint == (WEB,)
