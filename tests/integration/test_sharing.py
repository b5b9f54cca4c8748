"""Two of something at once: supervisors on one journal object, runs of one key, callers of one call."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.journal.verify import verified
from chargehand.models.base import (
    Abilities,
    ModelReply,
    ModelRequest,
    ModelSettings,
    StopReason,
    Text,
    user,
)
from chargehand.models.gateway import ModelGateway, ModelSource
from chargehand.models.shared_calls import SharedCalls
from tests.guide.conftest import make_plan, make_task

WORDS = "Find facts about Moby-Dick in the catalogue"


class Held:
    """A worker that works until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        @ch.worker("librarian", "Finds facts about books")
        async def look_up(_: ch.Brief) -> str:
            self.begun.set()
            await self.go.wait()
            return "135 chapters"

        self.worker = look_up


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "runs.db"


def other_plan(goal: str) -> ch.Plan:
    task = ch.Task(id="t9", description="Find facts about Emma", worker="librarian")
    return ch.Plan(goal=goal, tasks=[task])


async def test_a_conflict_names_the_run_of_the_key_and_what_differs(place: Path | None) -> None:
    @ch.worker("librarian", "Finds facts about books")
    async def look_up(_: ch.Brief) -> str:
        return "135 chapters"

    plan = make_plan(make_task("a", "librarian"), make_task("b", "librarian"))
    longer = make_plan(make_task("a", "librarian"), make_task("c", "librarian"))
    async with ch.Supervisor([look_up], model="offline", journal=place) as boss:
        known = {
            "planned": await boss.run(plan, key="planned"),
            "asked": await boss.run(WORDS, key="asked"),
        }
        for key, other, differs in (
            ("planned", longer, "another plan (it differs in tasks b, c)"),
            ("planned", other_plan("Other"), f"another request ({plan.goal!r}, and now 'Other')"),
            ("planned", WORDS, "a plan, and now with a request without a plan"),
            ("asked", "Find Emma", f"another request ({WORDS!r}, and now 'Find Emma')"),
            (
                "asked",
                f"{WORDS}, and tell what it is about in one sentence of at most fifty words",
                "another request ('…out Moby-Dick in the catalogue', and now '…out Moby-Dick in the catalogue, and tell what it is about in…')",
            ),
        ):
            with pytest.raises(ch.errors.KeyConflict) as refused:
                await boss.run(other, key=key)
            assert (refused.value.run, refused.value.differs) == (known[key].id, differs)
            assert f"for run {known[key].id} with {differs}; use a new key" in str(refused.value)


async def test_a_key_in_use_for_another_request_is_a_conflict_and_the_live_run_goes_on(
    place: Path | None,
) -> None:
    held = Held()
    plan = make_plan(make_task("a", "librarian"))
    firsts: list[str | ch.Plan] = [WORDS, plan]
    others: list[str | ch.Plan] = ["Find facts about Emma", other_plan(WORDS), other_plan("Other")]
    async with ch.Supervisor([held.worker], model="offline", journal=place) as boss:
        for first in firsts:
            held.begun.clear()
            held.go.clear()
            key = f"key {first!r:.20}"
            running = asyncio.create_task(boss.run(first, key=key))
            await held.begun.wait()
            for other in others:
                with pytest.raises(ch.errors.KeyConflict):
                    await boss.run(other, key=key)
            again = asyncio.create_task(boss.run(first, key=key))
            held.go.set()
            assert (await running).status == "succeeded"
            assert (await again).id == running.result().id


Act = Callable[[ch.Supervisor, ch.Plan, str], Awaitable[object]]
OTHERS: dict[str, Act] = {
    "the same key": lambda boss, plan, _: boss.run(plan, key="k"),
    "resume": lambda boss, _, run: boss.resume(run),
    "stream": lambda boss, plan, _: _drained(boss.stream(plan, key="k")),
}


async def _drained(stream: AsyncIterator[object]) -> list[object]:
    return [each async for each in stream]


@pytest.mark.parametrize("what", OTHERS)
async def test_two_supervisors_on_one_journal_object_do_not_take_runs_from_each_other(
    place: Path | None, what: str
) -> None:
    held, journal = Held(), ch.open_journal(place)
    first, second = (ch.Supervisor([held.worker], journal=journal) for _ in range(2))
    plan = make_plan(make_task("a", "librarian"))
    run = await first.submit(plan, key="k")
    await held.begun.wait()
    with pytest.raises(ch.errors.NotLeading, match="another supervisor in this process"):
        await OTHERS[what](second, plan, run.id)
    held.go.set()
    assert (await run.wait()).status == "succeeded"
    assert (await second.resume(run.id)).status == "succeeded"  # what has ended is for all to read
    await journal.close()


async def test_a_supervisor_reaches_a_run_of_another_on_the_same_journal_object(
    place: Path | None,
) -> None:
    held, journal = Held(), ch.open_journal(place)
    first, second = (ch.Supervisor([held.worker], journal=journal) for _ in range(2))
    run = await first.submit(make_plan(make_task("a", "librarian")))
    await held.begun.wait()
    await second.cancel(run.id)
    assert (await run.wait()).status == "cancelled"
    await journal.close()


async def test_of_two_that_lead_a_run_in_one_commit_only_one_does(tmp_path: Path) -> None:
    class Boss:
        is_gone = False

    journal = ch.open_journal(tmp_path / "runs.db")
    bosses = [Boss(), Boss()]
    leading = [journal.leases.lead("run", boss) for boss in bosses]
    came = await asyncio.gather(*leading, return_exceptions=True)
    assert sorted(type(each).__name__ for each in came) == ["NotLeading", "int"]
    bosses[came.index(1)].is_gone = True
    assert await journal.leases.lead("run", Boss()) == 2
    await journal.close()


def test_a_supervisor_whose_loop_ends_leaves_its_runs_to_be_resumed(
    place: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal object lives on: nothing but the release tells that the run is free."""
    journal = ch.open_journal(place)
    go = threading.Event()

    @ch.worker("librarian", "Finds facts about books")
    async def look_up(_: ch.Brief) -> str:
        if not go.is_set():
            await asyncio.Event().wait()
        return "135 chapters"

    async def leave_it() -> str:
        boss = ch.Supervisor([look_up], journal=journal)
        run = await boss.submit(make_plan(make_task("a", "librarian")))
        return run.id

    with caplog.at_level(logging.WARNING, "chargehand"):
        run = asyncio.run(leave_it())
    assert run in caplog.text
    assert "runtime_failed" not in caplog.text
    go.set()

    async def go_on() -> None:
        heads = {head.stream: head for head in await journal.heads()}
        assert heads[run].owner == ""
        events = [entry.event async for entry in journal.read(run)]
        assert isinstance(events[-1], ch.events.RunReleased)
        assert (await ch.Supervisor([look_up], journal=journal).resume(run)).status == "succeeded"
        await journal.close()

    asyncio.run(go_on())


def test_nothing_is_logged_when_a_loop_ends_after_the_last_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @ch.worker("w", "Works")
    async def work(_: ch.Brief) -> str:
        return "done"

    async def main() -> None:
        run = await ch.Supervisor([work]).submit(make_plan(make_task("a", "w")))
        assert (await run.wait()).status == "succeeded"

    with caplog.at_level(logging.WARNING, "chargehand"):
        asyncio.run(main())
    assert not caplog.records


# run_sync inside a worker


def inner_plan() -> ch.Plan:
    return make_plan(make_task("i", "inner"))


@ch.worker("inner", "Does it")
async def inner(_: ch.Brief) -> int:
    return 1


def test_run_sync_in_an_async_worker_is_refused_at_once_and_says_what_to_do() -> None:
    @ch.worker("outer", "Asks another supervisor")
    async def outer(_: ch.Brief) -> object:
        return ch.Supervisor([inner]).run_sync(inner_plan()).tasks["i"].output

    result = ch.Supervisor([outer]).run_sync(make_plan(make_task("o", "outer")))
    assert result.status == "failed"
    assert "await boss.run(" in str(result.tasks["o"].error)


def test_run_sync_in_a_plain_worker_works() -> None:
    @ch.worker("outer", "Asks another supervisor")
    def outer(_: ch.Brief) -> object:
        return ch.Supervisor([inner]).run_sync(inner_plan()).tasks["i"].output

    result = ch.Supervisor([outer]).run_sync(make_plan(make_task("o", "outer")))
    assert result.tasks["o"].output == 1


def test_a_large_output_and_a_trace_can_be_read_inside_an_async_worker() -> None:
    @ch.worker("inner", "Returns much")
    async def large(_: ch.Brief) -> str:
        return "x" * 100_000

    @ch.worker("outer", "Asks another supervisor")
    async def outer(_: ch.Brief) -> object:
        result = await ch.Supervisor([large]).run(inner_plan())
        return [len(result.tasks["i"].output), result.trace.run == result.id]

    result = ch.Supervisor([outer]).run_sync(make_plan(make_task("o", "outer")))
    assert result.tasks["o"].output == [100_000, True]


# shared calls


class Slow:
    """A model that answers when it is let go, and counts how often it was asked."""

    name = "slow:one"
    account = "slow"
    abilities = Abilities(is_real=False)

    def __init__(self) -> None:
        self.asked, self.stopped = 0, 0
        self.go = asyncio.Event()

    async def ask(self, _: ModelRequest) -> ModelReply:
        self.asked += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return ModelReply(parts=(Text("hi"),), stop=StopReason.END)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelReply]:
        yield await self.ask(request)


REQUEST = ModelRequest(turns=(user("x"),), settings=ModelSettings(temperature=0))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("leaving", [[0], [1], [0, 1], [1, 2], [0, 2]])
async def test_a_shared_call_goes_on_while_anybody_wants_it(leaving: list[int]) -> None:
    board, model = ModelGateway(), Slow()
    callers = [asyncio.create_task(board.ask([model], REQUEST)) for _ in range(3)]
    await turns()
    for number in leaving:
        callers[number].cancel()
    await turns()
    model.go.set()
    came = await asyncio.gather(*callers, return_exceptions=True)
    for number, call in enumerate(came):
        assert isinstance(call, asyncio.CancelledError) is (number in leaving)
    calls = [call for call in came if not isinstance(call, BaseException)]
    assert [call.reply.text for call in calls] == ["hi"] * (3 - len(leaving))
    assert [call.source for call in calls].count(
        ModelSource.CALL
    ) == 1  # somebody pays, and only once
    assert (model.asked, model.stopped) == (1, 0)


async def test_a_shared_call_that_nobody_wants_any_more_is_cancelled() -> None:
    board, model = ModelGateway(), Slow()
    callers = [asyncio.create_task(board.ask([model], REQUEST)) for _ in range(2)]
    await turns()
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    assert (model.asked, model.stopped) == (1, 1)
    model.go.set()
    assert (await board.ask([model], REQUEST)).reply.text == "hi"
    assert model.asked == 2


async def test_a_failed_shared_call_fails_for_all_who_wait_and_is_not_kept() -> None:
    shared: SharedCalls[int] = SharedCalls()
    go = asyncio.Event()

    async def fail() -> int:
        await go.wait()
        raise ValueError("no")

    async def succeed() -> int:
        return 7

    callers = [asyncio.create_task(shared.join("k", fail())) for _ in range(3)]
    await turns()
    go.set()
    came = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(each) for each in came] == [ValueError] * 3
    assert await shared.join("k", succeed()) == (7, True)


@pytest.mark.parametrize("key", ["", "  ", "b\0x", "two\nlines"])
async def test_a_key_that_could_be_taken_for_none_or_another_is_refused(
    key: str, place: Path
) -> None:
    """Under an empty key, a second run was written into the first."""
    held = Held()
    held.go.set()
    async with ch.Supervisor([held.worker], journal=place) as boss:
        for begin in (boss.run, boss.submit, boss.post):
            with pytest.raises(ch.errors.UsageError, match="key"):
                await begin(make_plan(make_task("a", "librarian")), key=key)
        assert await boss.journal.heads() == []


async def test_a_run_within_another_is_found_by_verify(place: Path | None) -> None:
    held = Held()
    held.go.set()
    async with ch.Supervisor([held.worker], journal=place) as boss:
        result = await boss.run(make_plan(make_task("a", "librarian")))
        journal = boss.journal
        assert [each.faults async for each in verified(journal)] == [()]
        first, *_ = [entry.event async for entry in journal.read(result.id)]
        await journal.append(result.id, [first])
        ((fault,),) = [each.faults async for each in verified(journal)]
        assert "another run begins within this one" in fault
