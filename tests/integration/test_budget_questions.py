"""A run that has nothing left to spend asks whether it may have more, if it is told to ask."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.presentation.questions_and_typed_answers import question_lines
from chargehand.testing import FakeClock, run_virtual


def wide(width: int) -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{n}", description=f"Say number {n}", worker="mind") for n in range(width)
    ]
    return ch.Plan(goal="Say numbers", tasks=tasks)


def crew(replies: int = 40, **more: object) -> tuple[ch.Supervisor, ch.ScriptedModel]:
    model = ch.ScriptedModel(["yes"] * replies)
    return ch.Supervisor([ch.Worker("mind", "Says yes")], model=model, **more), model  # type: ignore[arg-type]


@asynccontextmanager
async def asked_of(
    boss: ch.Supervisor, plan: ch.Plan, limits: ch.Limits
) -> AsyncIterator[tuple[ch.Run, Callable[[], "asyncio.Future[ch.Question]"]]]:
    """A run under way, and how to wait for its next question."""
    asked: asyncio.Queue[ch.Question] = asyncio.Queue()
    boss.on(ch.events.PersonAsked)(lambda _, event: asked.put_nowait(event.question))
    async with boss:
        run = await boss.submit(plan, limits=limits, on_budget="ask")
        yield run, lambda: asyncio.ensure_future(asked.get())


async def test_a_run_asks_once_however_many_calls_lack_money_and_goes_on_with_more() -> None:
    boss, model = crew()
    async with asked_of(boss, wide(16), ch.Limits(calls=9)) as (run, question):
        asked = await question()
        assert asked.text == (
            "The budget is used up: 9 of 9 calls spent. May the run spend more? "
            "Type 'raise to: 10' (or more) to set the budget to 10 calls and go on. "
            "Type 'stop' to get an answer made of what there is. "
            "Until somebody answers, the run waits and nothing new starts."
        )
        assert list(question_lines(asked))[1:] == [
            "  1  stop  (the default)",
            "  or raise to: followed by an amount",
        ]
        assert asked.evidence.read() == {"limit": "calls", "cap": 9, "spent": 9}
        while (seen := await boss.look(run.id)).status != "waiting":
            await asyncio.sleep(0)
        assert [each.id for each in seen.questions] == [asked.id]
        assert len(model.requests) == 9
        await boss.answer(asked.id, "raise to: 16")
        result = await run.wait()
    assert result.status == "succeeded"
    assert len(model.requests) == 16, "nothing is paid for twice"
    assert result.usage.calls == 16


async def test_a_run_asks_again_when_the_new_budget_is_used_up() -> None:
    boss, _ = crew()
    async with asked_of(boss, wide(4), ch.Limits(calls=1)) as (run, question):
        first = await question()
        await boss.answer(first.id, "raise to: 2")
        second = await question()
        assert second.id != first.id
        await boss.answer(second.id, "raise to: 4")
        assert (await run.wait()).status == "succeeded"


async def test_whoever_is_asked_is_told_of_an_amount_and_that_nobody_paused_the_run() -> None:
    boss, _ = crew()
    paused: list[ch.events.RunPaused] = []
    boss.on(ch.events.RunPaused)(lambda _, event: paused.append(event))
    async with asked_of(boss, wide(4), ch.Limits(calls=3)) as (run, question):
        asked = await question()
        assert "  or raise to: followed by an amount" in question_lines(asked)
        await boss.answer(asked.id, "raise to: 4")
        await run.wait()
    said: list[str] = []
    for event in paused:
        ProgressLines(said.append).hear(event)
    assert [line.partition("  ")[2] for line in said] == ["paused: the budget is used up"]


@pytest.mark.parametrize("limits", [{"tokens": 1000}, {"calls": 0}, {"tokens": 1}])
def test_what_a_cap_stopped_names_the_cap_what_is_left_and_what_was_wanted(
    limits: dict[str, int],
) -> None:
    boss, model = crew()
    result = boss.run_sync(wide(2), limits=ch.Limits(**limits))
    (name, cap), *_ = limits.items()
    assert (result.status, result.reason, len(model.requests)) == ("failed", "over budget", 0)
    for gap in result.answer.gaps:
        assert f"Limits({name}={cap}) leaves {cap}, and the next call reserves " in gap.why


async def test_a_person_may_say_that_it_is_enough() -> None:
    boss, model = crew()
    async with asked_of(boss, wide(4), ch.Limits(calls=3)) as (run, question):
        await boss.answer((await question()).id, "stop")
        result = await run.wait()
    assert (result.status, result.reason) == ("partial", "over budget")
    assert len(model.requests) == 3
    assert len(result.answer.gaps) == 1


async def test_what_is_no_amount_is_refused_and_the_question_stays_open() -> None:
    boss, _ = crew()
    async with asked_of(boss, wide(2), ch.Limits(calls=1)) as (run, question):
        asked = await question()
        for text in ("raise to", "raise to: much", "raise to: -1", "raise to: true", "yes"):
            with pytest.raises(UsageError):
                await boss.answer(asked.id, text)
        with pytest.raises(UsageError, match="has nothing left to spend; answer its question"):
            await boss.unpause(run.id)
        await boss.answer(asked.id, "raise to: 2")
        assert (await run.wait()).status == "succeeded"


async def test_an_amount_that_raises_nothing_is_refused_with_what_would() -> None:
    """Less than before would only ask again, and the cap would have been lowered by the way."""
    boss, _ = crew()
    async with asked_of(boss, wide(4), ch.Limits(calls=3)) as (run, question):
        asked = await question()
        for amount in (1, 2, 3):
            with pytest.raises(UsageError, match="does not raise the budget; give more than 3"):
                await boss.answer(asked.id, f"raise to: {amount}")
        await boss.answer(asked.id, "raise to: 4")
        assert (await run.wait()).usage.calls == 4


async def test_raising_the_budget_by_other_means_answers_the_question() -> None:
    boss, _ = crew()
    async with asked_of(boss, wide(2), ch.Limits(calls=1)) as (run, question):
        await question()
        await boss.change_budget(run.id, calls=2)
        result = await run.wait()
    assert result.status == "succeeded"
    assert result.questions == []


async def test_a_late_answer_is_told_what_was_asked_instead_of_its_question() -> None:
    boss, _ = crew()
    limits = ch.Limits(calls=1, tokens=100_000)
    async with asked_of(boss, wide(3), limits) as (run, question):
        first = await question()
        await boss.change_budget(run.id, tokens=200_000)
        second = await question()
        words = f"budget of its run was changed, which closed it; {second.id} was asked instead"
        with pytest.raises(ch.errors.UnknownQuestion, match=words):
            await boss.answer(first.id, "raise to: 4")
        await boss.answer(second.id, "raise to: 4")
        assert (await run.wait()).status == "succeeded"
        with pytest.raises(ch.errors.UnknownQuestion, match=words):
            await boss.answer(first.id, "raise to: 4")


async def test_the_question_survives_the_process_and_so_does_what_was_paid_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    boss, model = crew(journal=path)
    async with asked_of(boss, wide(3), ch.Limits(calls=2)) as (run, question):
        asked = await question()
        with pytest.raises(ch.errors.RunInterrupted):
            await asyncio.gather(run.wait(), boss.stop(timedelta(0)))
    await boss.close()
    other, again = crew(journal=path)
    async with other:
        await other.answer(asked.id, "raise to: 3")
        result = await other.resume(run.id)
    await other.close()
    assert result.status == "succeeded"
    assert (len(model.requests), len(again.requests)) == (2, 1)


def test_a_deadline_ends_a_run_that_waits_for_money() -> None:
    boss, _ = crew(clock=FakeClock())
    limits = ch.Limits(calls=1, deadline=timedelta(minutes=5))
    result = run_virtual(boss.run(wide(2), limits=limits, on_budget="ask", on_question="wait"))
    assert (result.status, result.reason) == ("partial", "out of time")
    assert len(result.answer.gaps) == 1


def test_waiting_for_money_is_no_active_time() -> None:
    clock = FakeClock()
    boss, _ = crew(clock=clock)

    async def story() -> ch.RunResult:
        async with asked_of(boss, wide(2), ch.Limits(calls=1)) as (run, question):
            asked = await question()
            await asyncio.sleep(timedelta(hours=5).total_seconds())
            await boss.answer(asked.id, "raise to: 2")
            return await run.wait()

    assert run_virtual(story()).status == "succeeded"


async def test_a_run_above_is_asked_when_one_below_lacks_what_is_its_budget() -> None:
    below, model = crew()
    below = ch.Supervisor([ch.Worker("mind", "Says yes")], model=model, name="team")
    task = ch.Task(
        id="all", description="Say numbers", worker="team", args={"plan": wide(3).to_json()}
    )
    boss = ch.Supervisor([below], model=model)
    async with asked_of(boss, ch.Plan(goal="g", tasks=[task]), ch.Limits(calls=2)) as (run, ask):
        question = await ask()
        assert question.id.startswith(f"{run.id}:@budget")
        await boss.answer(question.id, "raise to: 3")
        result = await run.wait()
    assert result.status == "succeeded"
    assert len(model.requests) == 3


def two_levels() -> tuple[ch.Supervisor, ch.Supervisor, ch.Plan, ch.ScriptedModel]:
    """A supervisor, the one that works below it, what is asked of both, and their model."""
    model = ch.ScriptedModel(["yes"] * 40)
    below = ch.Supervisor([ch.Worker("mind", "Says yes")], model=model, name="team")
    task = ch.Task(
        id="all", description="Say numbers", worker="team", args={"plan": wide(3).to_json()}
    )
    return ch.Supervisor([below], model=model), below, ch.Plan(goal="g", tasks=[task]), model


async def test_a_run_below_that_waits_for_money_is_paused_with_the_run_above() -> None:
    boss, below, plan, model = two_levels()
    is_paused, is_left = asyncio.Event(), asyncio.Event()
    below.on(ch.events.RunPaused)(lambda *_: is_paused.set())
    below.on(ch.events.AttemptPreempted)(lambda *_: is_left.set())
    async with asked_of(boss, plan, ch.Limits(calls=2)) as (run, ask):
        question = await ask()
        await boss.pause(run.id)
        await asyncio.wait_for(is_paused.wait(), 20)
        await boss.answer(question.id, "raise to: 3")
        await asyncio.wait_for(is_left.wait(), 20)
        assert (await boss.look(run.id)).status == "paused"
        assert len(model.requests) == 2
        await boss.unpause(run.id)
        assert (await run.wait()).status == "succeeded"
    assert len(model.requests) == 3


async def test_what_is_done_below_is_kept_when_a_person_says_that_it_is_enough() -> None:
    boss, _, plan, _ = two_levels()
    async with asked_of(boss, plan, ch.Limits(calls=2)) as (run, ask):
        await boss.answer((await ask()).id, "stop")
        result = await run.wait()
    assert (result.status, result.tasks["all"].state) == ("partial", "done")
    assert [gap.state for gap in result.answer.gaps] == ["done in part"]


async def test_a_run_below_is_cancelled_with_the_run_above_that_asks_for_more() -> None:
    boss, below, plan, _ = two_levels()
    ended: list[str] = []
    below.on(ch.events.RunFinished)(lambda _, event: ended.append(event.status))
    async with asked_of(boss, plan, ch.Limits(calls=2)) as (run, ask):
        await ask()
        await boss.cancel(run.id)
        assert (await run.wait()).status == "cancelled"
    assert ended == ["cancelled"]


async def test_a_wish_that_is_neither_is_refused() -> None:
    boss, _ = crew()
    with pytest.raises(UsageError, match="on_budget='beg' is neither 'stop' nor 'ask'"):
        await boss.run(wide(1), on_budget="beg")


async def test_a_run_that_a_person_pauses_while_it_asks_stays_so_when_it_may_spend_more() -> None:
    boss, model = crew()
    async with asked_of(boss, wide(3), ch.Limits(calls=1)) as (run, question):
        asked = await question()
        await boss.pause(run.id, "lunch")
        await boss.answer(asked.id, "raise to: 3")
        assert (await boss.look(run.id)).status == "paused"
        assert len(model.requests) == 1
        await boss.unpause(run.id)
        result = await run.wait()
    assert result.status == "succeeded"
    first, second = result.trace.pauses
    assert (first.reason, second.reason) == ("the budget is used up", "lunch")
    assert first.ended_at == second.at
    assert second.ended_at is not None


@pytest.mark.parametrize("text", ["0.5", "1.5", "1e400", "1" + "0" * 30, "NaN"])
async def test_an_amount_that_no_budget_can_be_is_refused_with_what_can(text: str) -> None:
    boss, _ = crew()
    async with asked_of(boss, wide(2), ch.Limits(calls=1)) as (run, question):
        asked = await question()
        with pytest.raises(UsageError, match="choose one of 'stop', 'raise to: …'"):
            await boss.answer(asked.id, f"raise to: {text}")
        await boss.answer(asked.id, "raise to: 2.0")
        assert (await run.wait()).status == "succeeded"
