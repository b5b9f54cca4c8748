"""A plan of plain functions, run from start to answer."""

import asyncio

import chargehand as ch
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task


@ch.worker("counter", "Counts the words of a text")
async def count(brief: ch.Brief) -> int:
    return len(brief.args["text"].split())


@ch.worker("adder", "Adds up the numbers it is handed")
async def add(brief: ch.Brief) -> int:
    return sum(brief.inputs.values())


@ch.worker("sleeper", "Sleeps for a minute")
async def sleep(brief: ch.Brief) -> None:
    await asyncio.sleep(60)


async def test_each_task_gets_the_outputs_of_the_tasks_it_needs() -> None:
    plan = make_plan(
        make_task("first", "counter", args={"text": "one two three"}),
        make_task("second", "counter", args={"text": "four five"}),
        make_task("sum", "adder", "first", "second"),
    )
    async with ch.Supervisor([count, add]) as boss:
        result = await boss.run(plan)
    assert result.status == "succeeded"
    assert result.tasks["sum"].output == 5
    assert result.answer.output == 5


def test_run_sync_needs_no_event_loop() -> None:
    plan = make_plan(make_task("only", "counter", args={"text": "a b"}))
    assert ch.Supervisor([count]).run_sync(plan).answer.output == 2


async def test_run_sync_works_inside_a_running_loop() -> None:
    """As in a notebook, whose loop is taken."""
    plan = make_plan(make_task("only", "counter", args={"text": "a b"}))
    assert ch.Supervisor([count]).run_sync(plan).status is ch.RunStatus.SUCCEEDED


def test_independent_tasks_run_at_once_and_the_speedup_is_measured() -> None:
    async def main() -> ch.RunResult:
        async with ch.Supervisor([sleep], clock=FakeClock()) as boss:
            return await boss.run(make_plan(*(make_task(f"t{n}", "sleeper") for n in range(10))))

    result = run_virtual(main())
    assert result.wall.total_seconds() == 60
    assert result.speedup == 10


def test_a_task_starts_as_soon_as_its_own_needs_are_met() -> None:
    """No layer waits for its slowest member: `b2` starts while `a1` still runs."""

    @ch.worker("timed", "Takes as long as it is told")
    async def timed(brief: ch.Brief) -> None:
        await asyncio.sleep(brief.args["seconds"])

    async def main() -> ch.RunResult:
        plan = make_plan(
            make_task("a1", "timed", args={"seconds": 100}),
            make_task("a2", "timed", args={"seconds": 1}),
            make_task("b1", "timed", "a1", args={"seconds": 1}),
            make_task("b2", "timed", "a2", args={"seconds": 100}),
        )
        async with ch.Supervisor([timed], clock=FakeClock()) as boss:
            return await boss.run(plan)

    assert run_virtual(main()).wall.total_seconds() == 101


async def test_a_need_can_ask_for_a_part_of_an_output_under_a_name_of_its_own() -> None:
    @ch.worker("maker", "Makes a report")
    async def make(brief: ch.Brief) -> dict[str, object]:
        return {"title": "Tides", "facts": {"count": 3}}

    @ch.worker("reader", "Returns what it was handed")
    async def read(brief: ch.Brief) -> dict[str, object]:
        return brief.inputs

    plan = make_plan(
        make_task("report", "maker"),
        make_task("read", "reader", ch.Need("report", output="facts.count", name="how_many")),
    )
    async with ch.Supervisor([make, read]) as boss:
        result = await boss.run(plan)
    assert result.answer.output == {"how_many": 3}


async def test_every_event_can_be_watched_as_it_becomes_durable() -> None:
    plan = make_plan(make_task("only", "counter", args={"text": "a b"}))
    async with ch.Supervisor([count]) as boss:
        kinds = [type(event).__name__ async for event in boss.stream(plan)]
    assert kinds == [
        "RunRequested",
        "RunLed",
        "PlanAdopted",
        "AttemptStarted",
        "AttemptFinished",
        "RunFinished",
    ]


async def test_a_hook_is_called_for_the_events_it_asks_for() -> None:
    heard: list[str] = []
    async with ch.Supervisor([count]) as boss:

        @boss.on(ch.events.AttemptFinished)
        def note(run: str, event: ch.Event) -> None:
            heard.append(type(event).__name__)

        await boss.run(make_plan(make_task("only", "counter", args={"text": "a"})))
    assert heard == ["AttemptFinished"]


async def test_a_submitted_run_goes_on_while_the_caller_does_something_else() -> None:
    plan = make_plan(make_task("only", "counter", args={"text": "a b"}))
    async with ch.Supervisor([count]) as boss:
        run = await boss.submit(plan, priority=9)
        other = await boss.run(plan)
        result = await run.wait()
    assert (result.id, result.status) == (run.id, "succeeded")
    assert other.id != run.id


async def test_the_same_key_gives_the_same_run() -> None:
    plan = make_plan(make_task("only", "counter", args={"text": "a b"}))
    async with ch.Supervisor([count]) as boss:
        first = await boss.run(plan, key="monday")
        again = await boss.run(plan, key="monday")
    assert first.id == again.id


async def test_the_trace_tells_who_did_what_and_what_the_end_waited_for() -> None:
    plan = make_plan(
        make_task("first", "counter", args={"text": "one"}),
        make_task("sum", "adder", "first"),
    )
    async with ch.Supervisor([count, add]) as boss:
        trace = (await boss.run(plan)).trace
    assert [(span.task, span.worker, span.ending) for span in trace.attempts] == [
        ("first", "counter", "done"),
        ("sum", "adder", "done"),
    ]
    assert trace.critical_path == ["first", "sum"]
