"""Failure is a value: the run goes on, and says what is missing."""

import asyncio
from datetime import timedelta

import pytest

import chargehand as ch
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task


@ch.worker("works", "Does what it should")
async def works(brief: ch.Brief) -> dict[str, list[str]]:
    return {"had": sorted(brief.inputs), "lacked": sorted(brief.missing)}


@ch.worker("breaks", "Raises an error")
async def breaks(brief: ch.Brief) -> None:
    raise ValueError("the file is empty")


def run(plan: ch.Plan, *workers: ch.FunctionWorker, **options: object) -> ch.RunResult:
    async def main() -> ch.RunResult:
        async with ch.Supervisor([works, breaks, *workers], clock=FakeClock()) as boss:
            return await boss.run(plan, **options)  # type: ignore[arg-type]  # spelled by each test

    return run_virtual(main())


def test_finished_work_is_kept_when_another_task_fails() -> None:
    result = run(make_plan(make_task("good", "works"), make_task("bad", "breaks")))
    assert result.status == "partial"
    assert result.tasks["good"].state == "done"
    assert result.tasks["bad"].state == "failed"
    assert [gap.task for gap in result.answer.gaps] == ["bad"]


def test_a_failed_need_skips_the_tasks_behind_it_and_names_the_cause() -> None:
    result = run(
        make_plan(
            make_task("t1", "breaks"),
            make_task("t2", "works"),
            make_task("t3", "works", "t1"),
            make_task("t4", "works", "t2"),
        )
    )
    assert result.tasks["t3"].state == "skipped"
    assert "t1" in result.tasks["t3"].why
    assert result.tasks["t4"].state == "done"


def test_an_optional_need_lets_the_task_run_and_tells_it_what_is_missing() -> None:
    result = run(
        make_plan(
            make_task("t1", "breaks"),
            make_task("t2", "works"),
            make_task("t5", "works", "t2", ch.Need("t1", optional=True)),
        )
    )
    assert result.tasks["t5"].output == {"had": ["t2"], "lacked": ["t1"]}


def test_a_run_succeeds_without_its_optional_tasks() -> None:
    plan = make_plan(make_task("main", "works"), make_task("extra", "breaks", optional=True))
    assert run(plan).status == "succeeded"


def test_a_network_error_is_tried_again_after_a_wait() -> None:
    @ch.worker("flaky", "Fails twice")
    async def flaky(brief: ch.Brief) -> int:
        if brief.attempt < 3:
            raise ConnectionError("connection reset")
        return brief.attempt

    result = run(make_plan(make_task("only", "flaky")), flaky)
    assert result.tasks["only"].output == 3
    assert timedelta(seconds=1.5) <= result.wall <= timedelta(seconds=3)


def test_a_worker_can_say_how_its_failure_is_to_be_treated() -> None:
    @ch.worker("throttled", "Is told to come back in a minute")
    async def throttled(brief: ch.Brief) -> str:
        if brief.attempt == 1:
            raise ch.WorkerError("slow down", kind="resource", retry_after=timedelta(minutes=1))
        return "done"

    result = run(make_plan(make_task("only", "throttled")), throttled)
    assert result.wall >= timedelta(minutes=1)
    assert result.status == "succeeded"


def test_what_is_denied_is_not_tried_again() -> None:
    @ch.worker("locked_out", "May not")
    async def locked_out(brief: ch.Brief) -> None:
        raise PermissionError("no access to the archive")

    result = run(make_plan(make_task("only", "locked_out")), locked_out)
    assert result.tasks["only"].attempts == 1
    assert result.tasks["only"].error is not None
    assert result.tasks["only"].error.kind is ch.ErrorClass.DENIED


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("out of it")])
def test_not_even_a_worker_that_tries_to_exit_takes_the_supervisor_down(
    error: BaseException,
) -> None:
    @ch.worker("quits", "Leaves")
    async def quits(brief: ch.Brief) -> None:
        raise error

    result = run(make_plan(make_task("bad", "quits"), make_task("good", "works")), quits)
    assert result.tasks["bad"].state == "failed"
    assert result.tasks["good"].state == "done"


@pytest.mark.parametrize("thing", [object(), {1: {2j}}, float("nan"), [float("inf")], b"bytes"])
def test_what_json_cannot_hold_is_a_typed_failure(thing: object) -> None:
    @ch.worker("odd", "Returns something odd")
    async def odd(brief: ch.Brief) -> object:
        return thing

    error = run(make_plan(make_task("only", "odd")), odd).tasks["only"].error
    assert error is not None
    assert error.error == "NotJSON"


def test_a_deadline_ends_the_run_with_what_there_is() -> None:
    @ch.worker("slow", "Takes an hour")
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(3600)

    plan = make_plan(
        make_task("quick", "works"), make_task("long", "slow"), make_task("after", "works", "long")
    )
    result = run(plan, slow, deadline=timedelta(minutes=5))
    assert result.wall == timedelta(minutes=5)
    assert result.status == "partial"
    assert {id_: each.state.value for id_, each in result.tasks.items()} == {
        "quick": "done",
        "long": "failed",
        "after": "skipped",
    }


def test_deadline_beats_retry() -> None:
    @ch.worker("down", "Is never reached")
    async def down(brief: ch.Brief) -> None:
        raise ch.WorkerError("down", kind="network", retry_after=timedelta(hours=2))

    plan = make_plan(make_task("only", "down", deadline=timedelta(hours=1)))
    result = run(plan, down)
    assert result.wall < timedelta(seconds=1)
    assert "no time left" in result.tasks["only"].why


def test_an_attempt_that_takes_too_long_is_stopped() -> None:
    @ch.worker("slow", "Takes an hour", timeout=timedelta(seconds=10))
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(3600)

    plan = make_plan(make_task("only", "slow", limits=ch.TaskLimits(attempts=1)))
    result = run(plan, slow)
    assert result.wall == timedelta(seconds=10)
    assert result.tasks["only"].why == "timeout: it took longer than 10 s"


async def test_cancelling_ends_everything_and_twice_changes_nothing() -> None:
    @ch.worker("slow", "Takes an hour")
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(3600)

    async with ch.Supervisor([slow]) as boss:
        run = await boss.submit(make_plan(make_task("a", "slow"), make_task("b", "slow", "a")))
        await run.cancel("no longer needed")
        await run.cancel()
        result = await run.wait()
        await boss.cancel(run.id)
    assert result.status == "cancelled"
    assert {each.state.value for each in result.tasks.values()} == {"cancelled"}


async def test_cancelling_the_caller_cancels_the_run() -> None:
    @ch.worker("slow", "Takes an hour")
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(3600)

    async with ch.Supervisor([slow]) as boss:
        started = asyncio.Event()
        runs: list[str] = []

        @boss.on(ch.events.AttemptStarted)
        def note(run: str, event: ch.Event) -> None:
            runs.append(run)
            started.set()

        caller = asyncio.create_task(boss.run(make_plan(make_task("a", "slow"))))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (await boss.look(runs[0])).status == "cancelled"
