"""What a worker does through `brief.step` is done once, whatever happens to the process."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from tests.guide.conftest import make_plan, make_task


async def test_a_resumed_run_does_not_repeat_finished_tasks_or_steps(tmp_path: Path) -> None:
    calls: list[str] = []
    may_finish = asyncio.Event()

    def fetch(page: int) -> str:
        calls.append(f"fetch {page}")
        return f"page {page}"

    @ch.worker("reader", "Reads two pages")
    async def read(brief: ch.Brief) -> list[str]:
        first = await brief.step("fetch", fetch, 1, effect="pure")
        await may_finish.wait()
        second = await brief.step("fetch", fetch, 2, effect="pure")
        return [first, second]

    journal = tmp_path / "runs.db"
    async with ch.Supervisor([read], journal=journal) as boss:
        fetched = asyncio.Event()
        boss.on(ch.events.StepFinished)(lambda run, event: fetched.set())
        run = await boss.submit(make_plan(make_task("only", "reader")))
        await fetched.wait()
        await boss.stop(grace=timedelta(0))
        with pytest.raises(ch.RunInterrupted):
            await run.wait()

    may_finish.set()
    async with ch.Supervisor([read], journal=journal) as boss:
        result = await boss.resume(run.id)
    assert result.answer.output == ["page 1", "page 2"]
    assert calls == ["fetch 1", "fetch 2"]


async def test_resuming_a_finished_run_gives_its_result_again(tmp_path: Path) -> None:
    calls: list[str] = []

    @ch.worker("writer", "Writes")
    async def write(brief: ch.Brief) -> str:
        calls.append(brief.task.id)
        return "text"

    async with ch.Supervisor([write], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(make_plan(make_task("only", "writer")))
        again = await boss.resume(first.id)
    assert again.answer.output == "text"
    assert calls == ["only"]


async def test_a_once_step_in_doubt_asks_instead_of_running_again(tmp_path: Path) -> None:
    """The process ended after the step began, and nobody saw it end."""
    charges: list[int] = []
    hang = asyncio.Event()

    async def charge(amount: int) -> str:
        charges.append(amount)
        await hang.wait()
        return "receipt"

    @ch.worker("cashier", "Charges a card")
    async def cashier(brief: ch.Brief) -> object:
        return await brief.step("charge", charge, 5, effect="once")

    journal = tmp_path / "runs.db"
    async with ch.Supervisor([cashier], journal=journal) as boss:
        begun = asyncio.Event()
        boss.on(ch.events.StepStarted)(lambda run, event: begun.set())
        run = await boss.submit(make_plan(make_task("pay", "cashier")))
        await begun.wait()
        await boss.stop(grace=timedelta(0))

    async with ch.Supervisor([cashier], journal=journal) as boss:
        resumed = asyncio.create_task(boss.resume(run.id))
        question = await wait_for_question(boss, run.id)
        assert "charge" in question.text
        assert question.evidence.read() == {
            "step": "charge",
            "worker": "cashier",
            "given": [[5], {}],
        }
        await boss.answer(question.id, 'it ran: "receipt 7"')
        result = await resumed
    assert result.answer.output == "receipt 7"
    assert charges == [5]


async def test_a_keyed_step_gets_the_same_key_in_every_attempt() -> None:
    keys: list[str] = []

    async def send(text: str, *, key: str) -> str:
        keys.append(key)
        if len(keys) == 1:
            raise ConnectionError("no reply")
        return "sent"

    @ch.worker("sender", "Sends")
    async def sender(brief: ch.Brief) -> object:
        return await brief.step("send", send, "hello", effect="keyed")

    retry = ch.RetryPolicy(first=timedelta(milliseconds=1))
    async with ch.Supervisor([sender], retry=retry) as boss:
        result = await boss.run(make_plan(make_task("only", "sender")))
    assert result.answer.output == "sent"
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_plain_function_can_do_steps_too() -> None:
    @ch.worker("adder", "Adds")
    def adder(brief: ch.Brief) -> int:
        return brief.wait(brief.step("add", lambda a, b: a + b, 1, 2, effect="pure"))  # type: ignore[no-any-return]

    async with ch.Supervisor([adder]) as boss:
        result = await boss.run(make_plan(make_task("only", "adder")))
    assert result.answer.output == 3


async def test_a_worker_asks_a_person_and_goes_on_with_the_answer() -> None:
    @ch.worker("painter", "Paints")
    async def paint(brief: ch.Brief) -> str:
        colour = await brief.ask("Which colour?", choices=["red", "blue"])
        return f"painted {colour}"

    async with ch.Supervisor([paint]) as boss:
        run = await boss.submit(make_plan(make_task("only", "painter")))
        question = await wait_for_question(boss, run.id)
        with pytest.raises(ch.UsageError, match="choose one of 'red', 'blue'"):
            await boss.answer(question.id, "green")
        await boss.answer(question.id, "red")
        assert (await run.wait()).answer.output == "painted red"


async def test_a_changed_roster_must_be_accepted(tmp_path: Path) -> None:
    @ch.worker("slow", "Waits")
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(3600)

    @ch.worker("slow", "Answers at once")
    async def quick(brief: ch.Brief) -> str:
        return "here"

    journal = tmp_path / "runs.db"
    async with ch.Supervisor([slow], journal=journal) as boss:
        run = await boss.submit(make_plan(make_task("only", "slow")))
        await boss.stop(grace=timedelta(0))
    async with ch.Supervisor([quick], journal=journal) as boss:
        with pytest.raises(ch.errors.RosterMismatch, match="accept=True"):
            await boss.resume(run.id)
        assert (await boss.resume(run.id, accept=True)).answer.output == "here"


async def wait_for_question(boss: ch.Supervisor, run: str) -> ch.Question:
    async with asyncio.timeout(20):
        while True:
            questions = (await boss.look(run)).questions
            if questions:
                return questions[0]
            await asyncio.sleep(0)
