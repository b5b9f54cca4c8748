"""The supervisor at its edges: threads, large values, capacities, loops, odd endings."""

import asyncio
import logging
import threading
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task


async def test_the_stream_of_a_run_that_has_ended_tells_its_story_and_ends() -> None:
    @ch.worker("quick", "Does it")
    async def quick(brief: ch.Brief) -> str:
        return "done"

    plan = make_plan(make_task("a", "quick"))
    async with ch.Supervisor([quick]) as boss:
        first = [event async for event in boss.stream(plan, key="mine")]
        again = [event async for event in boss.stream(plan, key="mine")]
    assert again == first
    assert isinstance(again[0], ch.events.RunRequested)
    assert isinstance(again[-1], ch.events.RunFinished)


async def test_a_stream_that_joins_a_run_under_way_tells_it_from_its_beginning() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @ch.worker("slow", "Takes its time")
    async def slow(brief: ch.Brief) -> str:
        begun.set()
        await go.wait()
        return "done"

    plan = make_plan(make_task("a", "slow"), make_task("b", "slow", "a"))
    async with ch.Supervisor([slow]) as boss:
        run = await boss.submit(plan, key="mine")
        await begun.wait()
        heard = []
        async for event in boss.stream(plan, key="mine"):
            heard.append(event)
            go.set()
        result = await run.wait()
        story = [entry.event async for entry in boss.journal.read(run.id)]
    assert result.status == "succeeded"
    assert heard == story


@pytest.mark.parametrize("how", ["break", "aclose", "error"])
async def test_breaking_off_a_stream_cancels_the_run(how: str) -> None:
    @ch.worker("slow", "Never ends by itself")
    async def slow(brief: ch.Brief) -> str:
        await asyncio.Event().wait()
        return "done"

    async def listen(boss: ch.Supervisor) -> None:
        stream = boss.stream(make_plan(make_task("a", "slow")))
        async for event in stream:
            if isinstance(event, ch.events.AttemptStarted):
                if how == "error":
                    raise LookupError
                break
        if how == "aclose":
            await stream.aclose()  # type: ignore[attr-defined] # it is a generator

    ended: asyncio.Future[ch.events.RunFinished] = asyncio.get_running_loop().create_future()
    async with ch.Supervisor([slow]) as boss:
        boss.on(ch.events.RunFinished)(lambda _, event: ended.set_result(event))
        with suppress(LookupError):
            await listen(boss)
        assert (await asyncio.wait_for(ended, 10)).status == "cancelled"


async def test_breaking_off_at_the_end_changes_nothing() -> None:
    @ch.worker("quick", "Does it")
    async def quick(brief: ch.Brief) -> str:
        return "done"

    boss = ch.Supervisor([quick])
    async with boss:
        async with aclosing(boss.stream(make_plan(make_task("a", "quick")))) as stream:  # type: ignore[type-var] # likewise
            async for event in stream:
                if isinstance(event, ch.events.RunRequested):
                    run = event.run
                if isinstance(event, ch.events.RunFinished):
                    break
        assert (await boss.look(run)).status == "succeeded"


async def test_an_error_beside_a_run_that_waits_for_a_person_is_heard() -> None:
    @ch.worker("painter", "Paints")
    async def paint(brief: ch.Brief) -> str:
        return await brief.ask("Which colour?")

    async def err() -> None:
        async with ch.Supervisor([paint]) as boss:
            asked = asyncio.Event()
            boss.on(ch.events.AttemptFinished)(lambda _, __: asked.set())
            await boss.submit(make_plan(make_task("wall", "painter")))
            await asked.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await err()


async def test_a_plain_function_runs_in_a_thread_and_does_not_block_the_loop() -> None:
    may_end = threading.Event()

    @ch.worker("blocker", "Blocks until it is told")
    def block(brief: ch.Brief) -> str:
        assert may_end.wait(20)
        return threading.current_thread().name

    @ch.worker("freer", "Tells it")
    async def free(brief: ch.Brief) -> None:
        may_end.set()

    async with ch.Supervisor([block, free]) as boss:
        result = await boss.run(make_plan(make_task("a", "blocker"), make_task("b", "freer")))
    assert result.tasks["a"].output.startswith("chargehand-worker")


async def test_the_place_of_a_thread_that_was_given_up_stays_taken_until_it_ends() -> None:
    may_end = threading.Event()
    started: list[str] = []

    @ch.worker("stuck", "Hangs in a thread", capacity=1, timeout=timedelta(milliseconds=20))
    def stuck(brief: ch.Brief) -> str:
        started.append(brief.task.id)
        if brief.task.id == "a":
            assert may_end.wait(20)
        return "ended"

    once = ch.TaskLimits(attempts=1)
    plan = make_plan(make_task("a", "stuck", limits=once), make_task("b", "stuck", limits=once))
    async with ch.Supervisor([stuck]) as boss:
        failed = asyncio.Event()
        boss.on(ch.events.TaskFailed)(lambda run, event: failed.set())
        run = await boss.submit(plan)
        await failed.wait()
        assert started == ["a"]
        may_end.set()
        result = await run.wait()
    assert started == ["a", "b"]
    assert result.tasks["a"].state == "failed"
    assert result.tasks["b"].output == "ended"


async def test_large_outputs_travel_through_the_blob_store(tmp_path: Path) -> None:
    text = "chargehand " * 20_000

    @ch.worker("maker", "Makes a long text")
    async def make(brief: ch.Brief) -> dict[str, str]:
        return {"text": text}

    @ch.worker("measure", "Measures it")
    async def measure(brief: ch.Brief) -> int:
        return len(brief.inputs["made"]["text"])

    plan = make_plan(make_task("made", "maker"), make_task("length", "measure", "made"))
    async with ch.Supervisor([make, measure], journal=tmp_path / "runs.db") as boss:
        result = await boss.run(plan)
    assert result.answer.output == len(text)
    assert result.tasks["made"].output == {"text": text}
    assert (tmp_path / "runs.db").stat().st_size < len(text)


def test_no_more_attempts_run_at_once_than_worker_pool_and_run_allow() -> None:
    running: dict[str, int] = {"small": 0, "large": 0}
    most: dict[str, int] = {"small": 0, "large": 0, "all": 0}

    def made(name: str, capacity: int | None) -> ch.FunctionWorker:
        @ch.worker(name, "Counts how many of it run", capacity=capacity)
        async def counted(brief: ch.Brief) -> None:
            running[name] += 1
            most[name] = max(most[name], running[name])
            most["all"] = max(most["all"], sum(running.values()))
            await asyncio.sleep(1)
            running[name] -= 1

        return counted

    async def main() -> None:
        workers = [made("small", 2), made("large", None)]
        async with ch.Supervisor(workers, parallel=5, clock=FakeClock()) as boss:
            tasks = [make_task(f"{kind}{n}", kind) for n in range(8) for kind in ("small", "large")]
            await boss.run(make_plan(*tasks))
            assert most == {"small": 2, "large": 3, "all": 5}
            most.update(small=0, large=0, all=0)
            await boss.run(make_plan(*tasks), limits=ch.Limits(parallel=1))
            assert most["all"] == 1

    run_virtual(main())


def test_a_higher_priority_starts_first() -> None:
    order: list[str] = []

    @ch.worker("noter", "Notes when it is called")
    async def note(brief: ch.Brief) -> None:
        order.append(brief.task.id)
        await asyncio.sleep(1)

    async def main() -> None:
        async with ch.Supervisor([note], parallel=1, clock=FakeClock()) as boss:
            tasks = [make_task("low", "noter"), make_task("high", "noter", priority=3)]
            first = await boss.submit(make_plan(make_task("first", "noter")))
            later = await boss.submit(make_plan(*tasks))
            await first.wait()
            await later.wait()

    run_virtual(main())
    assert order == ["first", "high", "low"]


async def test_a_skill_finds_a_worker_and_a_retry_goes_to_another() -> None:
    @ch.worker("weak", "Fails", skills=["sums"])
    async def weak(brief: ch.Brief) -> str:
        raise ValueError("too hard")

    @ch.worker("strong", "Works", skills=["sums"])
    async def strong(brief: ch.Brief) -> str:
        return "42"

    task = ch.Task(id="t", description="Add it all up", skill="sums")
    async with ch.Supervisor([weak, strong]) as boss:
        result = await boss.run(make_plan(task))
    assert result.answer.output == "42"
    assert result.tasks["t"].worker == "strong"


async def test_one_supervisor_is_not_used_from_two_loops_at_once() -> None:
    release = threading.Event()

    @ch.worker("waiter", "Waits")
    def wait(brief: ch.Brief) -> None:
        assert release.wait(20)

    boss = ch.Supervisor([wait])
    run = await boss.submit(make_plan(make_task("t", "waiter")))
    try:
        with pytest.raises(ch.errors.WrongLoop):
            await asyncio.to_thread(boss.run_sync, make_plan(make_task("t", "waiter")))
    finally:
        release.set()
        await run.wait()


async def test_f1_a_hook_that_cancels_its_task_harms_no_run() -> None:
    """It runs in no task: there is nothing that it could cancel."""

    @ch.worker("echo", "Echoes")
    async def echo(brief: ch.Brief) -> str:
        await asyncio.sleep(0)
        return brief.task.id

    seen: list[object] = []

    def cancel(run: str, event: object) -> None:
        task = asyncio.current_task()
        seen.append(task)
        if task is not None:
            task.cancel()

    def cancel_blindly(run: str, event: object) -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]  # that is the fault

    async with ch.Supervisor([echo]) as boss:
        boss.on(ch.events.RunRequested, ch.events.AttemptStarted, ch.events.AttemptFinished)(cancel)
        boss.on(ch.events.AttemptStarted)(cancel_blindly)
        plan = make_plan(make_task("a", "echo"), make_task("b", "echo", "a"))
        first, second = await asyncio.gather(boss.run(plan), boss.run(plan))
    assert first.status == second.status == "succeeded"
    assert set(seen) == {None}
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_still_cancels_a_run_with_hooks() -> None:
    begun = asyncio.Event()

    @ch.worker("slow", "Never ends by itself")
    async def slow(brief: ch.Brief) -> None:
        await asyncio.Event().wait()

    async with ch.Supervisor([slow]) as boss:
        boss.on(ch.events.AttemptStarted)(lambda _, __: begun.set())
        running = asyncio.create_task(boss.run(make_plan(make_task("t", "slow"))))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


def test_a_supervisor_whose_loop_was_closed_says_so_and_a_new_one_goes_on(tmp_path: Path) -> None:
    """There is nowhere left to await it."""
    ends = iter([False, True])

    @ch.worker("waiter", "Waits, the first time")
    async def wait(brief: ch.Brief) -> str:
        if not next(ends):
            await asyncio.Event().wait()
        return "done"

    async def begin(boss: ch.Supervisor) -> str:
        run = await boss.submit(make_plan(make_task("t", "waiter")))
        await asyncio.sleep(0.05)
        return run.id

    journal = tmp_path / "runs.db"
    boss = ch.Supervisor([wait], journal=journal)
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete(begin(boss))
    loop.close()  # with the supervisor at work in it
    with pytest.raises(ch.errors.WrongLoop, match=r"was closed.*make a new Supervisor"):
        asyncio.run(boss.run(make_plan(make_task("t", "waiter"))))
    asyncio.run(boss.close())
    again = ch.Supervisor([wait], journal=journal)
    assert asyncio.run(again.resume(run)).answer.output == "done"


def test_a_supervisor_can_be_used_in_one_loop_after_another() -> None:
    @ch.worker("echo", "Echoes")
    async def echo(brief: ch.Brief) -> str:
        return brief.task.id

    boss = ch.Supervisor([echo])
    for _ in range(2):
        assert asyncio.run(boss.run(make_plan(make_task("t", "echo")))).status == "succeeded"
    assert boss.run_sync(make_plan(make_task("t", "echo"))).status == "succeeded"


async def test_taint_travels_from_a_source_to_all_that_derives_from_it() -> None:
    @ch.worker("fetcher", "Reads something from outside")
    async def fetch(brief: ch.Brief) -> str:
        brief.distrust("web:example.org")
        return "text"

    @ch.worker("user", "Uses it")
    async def use(brief: ch.Brief) -> int:
        return len(brief.inputs)

    plan = make_plan(
        make_task("out", "fetcher"), make_task("a", "user", "out"), make_task("b", "user")
    )
    async with ch.Supervisor([fetch, use]) as boss:
        result = await boss.run(plan)
    assert result.tasks["a"].taint == ("web:example.org",)
    assert result.tasks["b"].taint == ()


async def test_a_hook_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @ch.worker("echo", "Echoes")
    async def echo(brief: ch.Brief) -> str:
        return brief.task.id

    async with ch.Supervisor([echo]) as boss:

        @boss.on(ch.events.AttemptFinished)
        def fail(run: str, event: ch.Event) -> None:
            raise RuntimeError("a bug of the user's")

        with caplog.at_level(logging.CRITICAL + 1, logger="chargehand"):
            assert (await boss.run(make_plan(make_task("t", "echo")))).status == "succeeded"


def test_a_hook_names_the_kinds_of_events_that_it_hears() -> None:
    boss = ch.Supervisor([])
    with pytest.raises(ch.UsageError, match=r"boss\.on: name at least one kind of event"):
        boss.on()
    with pytest.raises(ch.UsageError, match="is not a kind of event"):
        boss.on(ch.Task)  # type: ignore[type-var]  # the mistake is the point
    with pytest.raises(ch.UsageError, match="None is not a kind of event"):
        boss.on(None)  # type: ignore[arg-type]  # the mistake is the point


async def _heard_later(run: str, event: ch.Event) -> None: ...


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (lambda event: event, r"too many positional arguments"),
        (_heard_later, r"it is async, and hooks are not awaited"),
        (5, r"it is no function"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused_when_it_is_registered(hook: Any, why: str) -> None:
    with pytest.raises(ch.UsageError, match=rf"cannot be called with \(run, event\): {why}"):
        ch.Supervisor([]).on(ch.events.RunFinished)(hook)


async def test_estimates_are_learned_from_past_runs(tmp_path: Path) -> None:
    """With one place, the task with more behind it goes first once the durations are known."""
    order: list[str] = []

    @ch.worker("short", "Takes a moment")
    async def short(brief: ch.Brief) -> None:
        order.append(brief.task.id)

    @ch.worker("long", "Takes longer")
    async def long(brief: ch.Brief) -> None:
        order.append(brief.task.id)
        await asyncio.sleep(0.05)

    plan = make_plan(make_task("s", "short"), make_task("l", "long"))
    for _ in range(2):
        async with ch.Supervisor([short, long], journal=tmp_path / "runs.db", parallel=1) as boss:
            await boss.run(plan)
    assert order == ["s", "l", "l", "s"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ch.worker("", "x")(print),
        lambda: ch.worker("x", " ")(print),
        lambda: ch.FunctionWorker("not a function", "x", "y"),  # type: ignore[arg-type]
        lambda: ch.worker("x", "y", timeout=timedelta(0))(print),
        lambda: ch.Supervisor([ch.worker("x", "y", capacity=0)(print)]),
        lambda: ch.Supervisor([ch.worker("x", "y")(print), ch.worker("x", "z")(print)]),
        lambda: ch.Supervisor([print]),  # type: ignore[list-item]
        lambda: ch.Supervisor([], parallel=-1),
        lambda: ch.Limits(tasks=0),
        lambda: ch.Limits(deadline=timedelta(0)),
        lambda: ch.Limits(money=-1),
        lambda: ch.TaskLimits(timeout=timedelta(seconds=-1)),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(make: object) -> None:
    with pytest.raises(ch.UsageError):
        make()  # type: ignore[operator]


async def test_a_request_in_words_says_what_is_missing() -> None:
    async with ch.Supervisor([]) as boss:
        with pytest.raises(ch.UsageError, match="needs a planner"):
            await boss.run("Write me a poem")


async def test_an_unknown_run_is_named() -> None:
    async with ch.Supervisor([]) as boss:
        with pytest.raises(ch.errors.UnknownRun, match="'nope'"):
            await boss.resume("nope")
        with pytest.raises(ch.errors.UnknownRun):
            await boss.cancel("nope")


async def test_large_results_of_steps_are_replayed_from_the_blob_store(tmp_path: Path) -> None:
    text = "chargehand " * 20_000
    calls: list[str] = []

    async def fetch() -> str:
        calls.append("fetch")
        return text

    @ch.worker("reader", "Reads a long text, and fails once")
    async def read(brief: ch.Brief) -> int:
        found = await brief.step("fetch", fetch, effect="pure")
        if brief.attempt == 1:
            raise ConnectionError("lost the line")
        return len(found)

    retry = ch.RetryPolicy(first=timedelta(milliseconds=1))
    async with ch.Supervisor([read], journal=tmp_path / "runs.db", retry=retry) as boss:
        result = await boss.run(make_plan(make_task("only", "reader")))
    assert result.answer.output == len(text)
    assert calls == ["fetch"]
    assert (tmp_path / "runs.db").stat().st_size < len(text)


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_words_that_are_no_unicode_end_no_other_run(place: str, tmp_path: Path) -> None:
    """An error, a step's error and a word on the way that quote the name of a broken file."""

    def opens() -> None:
        raise OSError("cannot open \udcff")

    @ch.worker("reads", "Reads a file")
    async def reads(brief: ch.Brief) -> None:
        brief.progress("reading \udcff")
        with suppress(OSError):
            await brief.step("open", opens)
        raise ValueError("cannot read \udcff")

    plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="Read it", worker="reads")])
    boss = ch.Supervisor([reads], journal=tmp_path / "runs.db" if place == "file" else None)
    async with boss:
        result = await boss.run(plan, limits=ch.Limits(attempts=1))
    assert str(result.tasks["t"].error).startswith("logic: cannot read \\udcff")
    (attempt,) = result.trace.attempts
    assert "cannot open" in str(attempt.steps[0])
