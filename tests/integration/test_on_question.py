"""Open questions where nobody may be there: waited for aloud, returned, answered by a model, or failed."""

import asyncio
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

COLOURS = ["red", "blue"]


@ch.worker("painter", "Paints a wall")
async def paint(brief: ch.Brief) -> str:
    return f"a {await brief.ask('Which colour?', choices=COLOURS)} wall"


@ch.worker("quick", "Is done at once")
async def quick(_: ch.Brief) -> str:
    return "done"


def wall(*others: ch.Task) -> ch.Plan:
    return make_plan(make_task("wall", worker="painter"), *others)


def boss_of(*workers: Any, **terms: Any) -> ch.Supervisor:
    return ch.Supervisor([paint, quick, *workers], **terms)


async def test_q02_a_run_that_only_waits_for_a_person_returns_with_its_question(
    tmp_path: Path,
) -> None:
    """Nobody is there to answer, but the journal keeps the run: it returns, and can go on later."""
    boss = boss_of(journal=tmp_path / "runs.db")
    asked = await boss.run(wall(make_task("other", worker="quick")))
    assert (asked.status, asked.tasks["other"].state) == ("waiting", "done")
    (question,) = asked.questions
    await boss.answer(question.id, "red")
    result = await boss.resume(asked.id)
    assert (result.status, result.tasks["wall"].output) == ("succeeded", "a red wall")
    await boss.close()


@pytest.mark.parametrize("where", ["run", "supervisor", "stream", "submit", "resume"])
async def test_return_holds_wherever_it_is_said(where: str) -> None:
    boss = boss_of(on_question="return" if where == "supervisor" else None)
    if where == "stream":
        heard = [each async for each in boss.stream(wall(), on_question="return")]
        assert isinstance(heard[-1], ch.events.RunReleased)
        return
    if where == "submit":
        result = await (await boss.submit(wall(), on_question="return")).wait()
    elif where == "supervisor":
        result = await boss.run(wall())
    else:
        result = await boss.run(wall(), on_question="return")
    if where == "resume":
        result = await boss.resume(result.id, on_question="return")
    assert (result.status, len(result.questions)) == ("waiting", 1)


async def test_a_question_below_returns_with_the_run_above() -> None:
    inner = ch.Supervisor(
        [paint], name="painters", description="Paint walls", plan_for=lambda _: wall()
    )
    top = ch.Supervisor([inner])
    plan = make_plan(make_task("a", worker="painters"))
    asked = await top.run(plan, on_question="return")
    assert asked.status == "waiting"
    await top.answer(asked.questions[0].id, "blue")
    result = await top.resume(asked.id)
    assert result.status == "succeeded"


def test_q03_with_a_journal_in_memory_the_task_fails_and_names_the_way_out() -> None:
    result = run_virtual(boss_of(clock=FakeClock()).run(wall(make_task("b", worker="quick"))))
    assert (result.status, result.tasks["b"].output) == ("partial", "done")
    error = result.tasks["wall"].error
    assert error is not None
    assert "Which colour?" in error.message
    assert "journal='runs.db'" in error.message


def test_q03_virtual_time_that_nothing_ends_is_an_error() -> None:
    with pytest.raises(ch.UsageError, match=r"boss\.answer"):
        run_virtual(boss_of(clock=FakeClock()).run(wall(), on_question="wait"))


@pytest.mark.parametrize("patience", [None, timedelta(hours=1)])
def test_fail_takes_the_default_at_once(patience: timedelta | None) -> None:
    @ch.worker("asker", "Asks")
    async def ask(brief: ch.Brief) -> str:
        return await brief.ask("Which?", choices=COLOURS, default="blue", patience=patience)

    boss = boss_of(ask, clock=FakeClock())
    plan = make_plan(make_task("t", worker="asker"))
    result = run_virtual(boss.run(plan, on_question="fail"))
    assert (result.output, result.wall < timedelta(minutes=1)) == ("blue", True)


def test_a_question_that_waits_for_a_set_time_is_given_it_where_nobody_chose() -> None:
    @ch.worker("asker", "Asks")
    async def ask(brief: ch.Brief) -> str:
        return await brief.ask("Which?", default="blue", patience=timedelta(hours=1))

    boss = boss_of(ask, clock=FakeClock())
    result = run_virtual(boss.run(make_plan(make_task("t", worker="asker"))))
    assert (result.output, result.wall >= timedelta(hours=1)) == ("blue", True)


async def test_q01_leaving_keeps_a_waiting_run_resumable(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        async with boss_of(journal=tmp_path / "runs.db") as boss:
            run = await boss.submit(wall())
        with pytest.raises(ch.RunInterrupted):
            await run.wait()
        async with boss_of(journal=tmp_path / "runs.db") as again:
            (question,) = (await again.look(run.id)).questions
            await again.answer(question.id, "red")
            assert (await again.resume(run.id)).status == "succeeded"


async def test_leaving_does_not_wait_for_a_paused_run_or_one_without_workers() -> None:
    async with asyncio.timeout(20):
        async with boss_of() as boss:
            gate = asyncio.Event()
            boss.on(ch.events.RunPaused)(lambda run, event: gate.set())
            await boss.drain("quick")
            paused = await boss.submit(make_plan(make_task("a", worker="quick")))
            await boss.pause(paused.id)
            await gate.wait()
            lonely = await boss.submit(make_plan(make_task("b", worker="quick")))
        for run in (paused, lonely):
            with pytest.raises(ch.RunInterrupted):
                await run.wait()


# the supervisor's model


def said(can: bool, answer: str) -> str:
    return f'{{"can_answer": {"true" if can else "false"}, "answer": "{answer}"}}'


async def test_the_model_answers_what_a_worker_asks_and_it_is_a_step_of_the_task() -> None:
    boss = boss_of(model=ch.ScriptedModel([said(True, "green"), said(True, "blue")]))
    result = await boss.run(wall(), on_question="supervisor")
    assert result.tasks["wall"].output == "a blue wall"
    assert result.usage.calls == 2  # the first answer was none of the choices
    assert [step.name for step in result.trace.attempts[0].steps] == ["answer_question"] * 2


async def test_what_the_model_cannot_say_is_asked_as_if_there_were_none() -> None:
    boss = boss_of(model=ch.ScriptedModel([said(False, "")]))
    result = await boss.run(wall(), on_question="supervisor")
    assert "journal='runs.db'" in result.tasks["wall"].why


async def test_the_model_never_approves(tmp_path: Path) -> None:
    """Invariant 41: the script has no answer for an approval, so asking it would fail."""
    paid: list[int] = []

    @ch.tool(effect="once", approve=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ch.ScriptedModel([ToolCall("1", "pay", '{"amount": 9}')])
    clerk = ch.Worker("clerk", "Pays bills", tools=[pay], model=model)
    boss = boss_of(clerk, model=ch.ScriptedModel([]), journal=tmp_path / "runs.db")
    plan = make_plan(make_task("rent", worker="clerk"))
    result = await boss.run(plan, on_question="supervisor")
    assert (result.status, result.questions[0].about, paid) == ("waiting", "approval", [])
    await boss.close()


# what workers are told


@pytest.mark.parametrize(
    ("terms", "can_ask"),
    [
        ({}, False),
        ({"on_question": "fail"}, False),
        ({"on_question": "supervisor"}, False),
        ({"on_question": "return"}, True),
        ({"on_question": "wait"}, True),
    ],
)
async def test_a_worker_knows_whether_anybody_can_be_asked(
    terms: dict[str, Any], can_ask: bool
) -> None:
    seen: list[bool] = []

    @ch.worker("looker", "Looks")
    async def look(brief: ch.Brief) -> None:
        seen.append(brief.can_ask)

    plan = make_plan(make_task("t", worker="looker"))
    await boss_of(look).run(plan, **terms)
    below = ch.Supervisor([look], name="below", description="Looks", plan_for=lambda _: plan)
    await ch.Supervisor([below]).run(make_plan(make_task("a", worker="below")), **terms)
    assert seen == [can_ask] * 2


async def test_who_serves_or_is_told_can_bring_answers() -> None:
    seen: list[bool] = []

    @ch.worker("looker", "Looks")
    async def look(brief: ch.Brief) -> None:
        seen.append(brief.can_ask)

    plan = make_plan(make_task("t", worker="looker"))
    async with boss_of(look) as boss:
        await boss.run(plan)
    await boss_of(look, notify="log").run(plan)
    assert seen == [True, True]


@pytest.mark.parametrize("wrong", ["ask", "Wait", "", 7])
def test_anything_else_is_refused(wrong: Any) -> None:
    if wrong == "":
        return  # as None: the default
    with pytest.raises(ch.UsageError, match="'wait', 'return', 'supervisor', 'fail'"):
        boss_of(on_question=wrong)
    with pytest.raises(ch.UsageError, match="on_question"):
        run_virtual(boss_of(clock=FakeClock()).run(wall(), on_question=wrong))


# No silent wait


def test_j9_a_wait_for_a_person_is_said_within_a_second_with_what_ends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    boss = boss_of(clock=FakeClock())

    async def story() -> None:
        async with boss:
            run = await boss.submit(wall())
            await asyncio.sleep(0.9)
            assert not caplog.records
            await asyncio.sleep(1.1)
            (line,) = [each.getMessage() for each in caplog.records]
            (question,) = (await boss.look(run.id)).questions
            assert f"await boss.answer('{question.id}', 'TEXT')" in line
            await asyncio.sleep(3600)
            await boss.answer(question.id, "red")
            await run.wait()

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(story())
    assert len(caplog.records) == 1  # once


def test_j9_a_question_is_said_while_other_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    @ch.worker("slow", "Takes long")
    async def slow(_: ch.Brief) -> None:
        await asyncio.sleep(60)

    boss = boss_of(slow, clock=FakeClock())

    async def story() -> None:
        async with boss:
            run = await boss.submit(wall(make_task("s", worker="slow")))
            await asyncio.sleep(2)
            assert "run_waits" in caplog.text
            await boss.answer((await boss.look(run.id)).questions[0].id, "red")
            await run.wait()

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(story())


@pytest.mark.parametrize("what", ["pause", "worker", "retry"])
def test_j9_other_waits_are_said_too(what: str, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    @ch.worker("shaky", "Fails once")
    async def shaky(_: ch.Brief) -> None:
        nonlocal tries
        tries += 1
        if tries == 1 and what == "retry":
            raise ch.WorkerError("not yet", kind="resource", retry_after=timedelta(seconds=30))

    boss = boss_of(shaky, clock=FakeClock())

    async def story() -> None:
        async with boss:
            if what != "retry":
                await boss.drain("shaky")
            run = await boss.submit(make_plan(make_task("t", worker="shaky")))
            if what == "pause":
                await boss.pause(run.id)
            await asyncio.sleep(2.5)
            said = "\n".join(each.getMessage() for each in caplog.records)
            ends = {
                "pause": r"end the wait with: await boss\.unpause",
                "worker": r"end the wait with a worker .*await boss\.join\(worker\)",
                "retry": "it continues by itself",
            }[what]
            assert re.search(rf"run_waits run={run.id} .*; {ends}", said), said
            if what == "pause":
                await boss.unpause(run.id)
            if what != "retry":
                await boss.join(shaky)
            await run.wait()

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(story())


async def test_j9_the_line_names_the_journal_so_that_it_can_be_pasted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.runtime.wait_warnings.SILENCE", 0.01)
    place = tmp_path / "my runs.db"
    async with boss_of(journal=place) as boss:
        run = await boss.submit(wall())
        async with asyncio.timeout(20):
            while "run_waits" not in caplog.text:
                await asyncio.sleep(0.01)
        (question,) = (await boss.look(run.id)).questions
    assert f"chargehand answer {question.id} TEXT --journal '{place}'" in caplog.text
