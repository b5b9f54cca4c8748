"""Budgets hold however wide a run is: what is spent and reserved never passes a cap."""

import asyncio
import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chargehand as ch
from chargehand.decisions.budget import Account
from chargehand.facts.outcome import NO_USAGE
from chargehand.models.base import Abilities, ModelReply, StopReason, Text
from chargehand.testing import FakeClock, run_virtual

RUNS = int(os.environ.get("CHARGEHAND_BUDGET_RUNS", "60"))
WIDTH = 50
#: room came between the refusal of a call and the look at why it was refused
ONCE_BROKEN = 528


def wide(width: int) -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{number}", description=f"Say number {number}", worker="mind")
        for number in range(width)
    ]
    return ch.Plan(goal="Say numbers", tasks=tasks)


def said(dice: random.Random) -> Any:
    def line(_: object) -> ModelReply:
        usage = ch.Usage(calls=1, tokens_in=dice.randint(1, 60), tokens_out=dice.randint(1, 40))
        return ModelReply(parts=(Text("a number"),), stop=StopReason.END, usage=usage)

    return line


def budgeted(seed: int) -> tuple[ch.RunResult, ch.ScriptedModel, ch.Limits, Account]:
    dice = random.Random(seed)
    limits = dice.choice(
        [
            ch.Limits(calls=dice.randint(1, WIDTH + 10)),
            ch.Limits(tokens=dice.randint(500, 60_000)),
            ch.Limits(calls=dice.randint(5, 30), tokens=dice.randint(500, 60_000)),
        ]
    )
    latency = timedelta(milliseconds=dice.choice([0, 1, 50]))
    model = ch.ScriptedModel([said(dice)] * (WIDTH + 10), latency=latency)
    mind = ch.Worker("mind", "Says numbers", settings=ch.ModelSettings(max_tokens=50))
    accounts: list[Account] = []

    async def story() -> ch.RunResult:
        boss = ch.Supervisor(
            [mind], model=model, clock=FakeClock(), parallel=dice.choice([1, 8, WIDTH])
        )
        async with boss:
            run = await boss.submit(wide(WIDTH), limits=limits)
            runtime = boss._runtimes.current
            assert runtime is not None
            account = runtime.kernel.runs[run.id].account
            assert account is not None
            accounts.append(account)
            boss.on(ch.events.StepStarted)(lambda *_: _within(account, limits))
            return await run.wait()

    return run_virtual(story()), model, limits, accounts[0]


def _within(account: Account, limits: ch.Limits) -> None:
    held = account.spent + account.reserved
    assert limits.calls is None or held.calls <= limits.calls
    assert limits.tokens is None or held.tokens_in + held.tokens_out <= limits.tokens


def test_g6_a_cap_reached_in_mid_flight_is_never_passed() -> None:
    for seed in (*range(RUNS), ONCE_BROKEN):
        result, model, limits, account = budgeted(seed)
        _within(account, limits)
        assert account.reserved == NO_USAGE, f"seed {seed}: something is still reserved"
        sent = len(model.requests)
        assert limits.calls is None or sent <= limits.calls, f"seed {seed}: {sent} calls"
        assert result.usage.calls == sent
        done = sum(task.state == "done" for task in result.tasks.values())
        assert done == sent, f"seed {seed}: what was paid for is kept"
        if done < WIDTH:
            assert result.status == ("partial" if done else "failed")
            assert result.reason == "over budget"
            assert len(result.answer.gaps) == WIDTH - done


def test_nine_calls_are_nine_and_not_sixteen() -> None:
    """Sixteen at once under a limit of nine: others have made all sixteen."""
    model = ch.ScriptedModel(["yes"] * 16, latency=timedelta(milliseconds=50))
    boss = ch.Supervisor([ch.Worker("mind", "Says yes")], model=model, clock=FakeClock())
    result = run_virtual(boss.run(wide(16), limits=ch.Limits(calls=9)))
    assert len(model.requests) == 9
    assert result.usage.calls == 9
    assert sum(task.state == "done" for task in result.tasks.values()) == 9
    assert result.reason == "over budget"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "from another supervisor"])
async def test_g7_a_budget_is_raised_while_calls_wait_for_it(
    elsewhere: bool, tmp_path: Path
) -> None:
    """Four calls of which two are allowed: the others wait for room, get it, and nobody is stopped."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def line(_: object) -> str:
        asked.set()
        await go.wait()
        return "yes"

    model = ch.ScriptedModel([line] * 4)
    mind = ch.Worker("mind", "Says yes")
    async with ch.Supervisor([mind], model=model, journal=tmp_path / "runs.db") as boss:
        changed = asyncio.Event()
        boss.on(ch.events.BudgetChanged)(lambda *_: changed.set())
        run = await boss.submit(wide(4), limits=ch.Limits(calls=2))
        await asked.wait()
        other = ch.Supervisor([], journal=tmp_path / "runs.db") if elsewhere else boss
        await other.change_budget(run.id, calls=4)
        await changed.wait()
        go.set()
        result = await run.wait()
        if elsewhere:
            await other.close()
    assert result.status == "succeeded"
    assert len(model.requests) == 4


async def test_g7_a_budget_is_lowered_for_what_comes_next() -> None:
    first = asyncio.Event()

    async def line(_: object) -> str:
        first.set()
        return "yes"

    model = ch.ScriptedModel([line] * 8)
    async with ch.Supervisor([ch.Worker("mind", "Says yes")], model=model, parallel=1) as boss:
        run = await boss.submit(wide(8), limits=ch.Limits(calls=8))
        await first.wait()
        await boss.change_budget(run.id, calls=2)
        result = await run.wait()
    assert len(model.requests) <= 3, "one may have been reserved already"
    assert result.reason == "over budget"


@pytest.mark.parametrize("elsewhere", ["here", "with its crew", "without its crew"])
async def test_a_cap_on_money_that_cannot_be_kept_is_refused_during_a_run_as_at_its_start(
    elsewhere: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def line(_: object) -> str:
        await go.wait()
        return "yes"

    name, path = "openai:nobody-knows", tmp_path / "runs.db"
    model = ch.ScriptedModel([line], name=name, abilities=Abilities())
    mind = ch.Worker("mind", "Says yes", model=model)
    crew = {"here": [mind], "with its crew": [mind], "without its crew": []}[elsewhere]
    async with ch.Supervisor([mind], journal=path) as boss:
        run = await boss.submit(wide(1), limits=ch.Limits(calls=9))
        other = boss if elsewhere == "here" else ch.Supervisor(crew, journal=path)
        with pytest.raises(ch.UsageError, match="give at least one of money, tokens and calls"):
            await other.change_budget(run.id)
        if crew:
            with pytest.raises(
                ch.UsageError, match=f"the price of {name}, which worker 'mind' asks"
            ):
                await other.change_budget(run.id, money=1)
        else:  # it is the leader that knows the workers
            with pytest.raises(ch.UsageError, match="has refused the change of its budget"):
                await other.change_budget(run.id, money=1)
            assert f"the price of {name}" in caplog.text
        await other.change_budget(run.id, calls=8)
        edited = msgspec.structs.replace(wide(1).tasks[0], id="new", limits=ch.TaskLimits(money=1))
        plan = ch.Plan(goal="Say numbers", tasks=[*wide(1).tasks, edited])
        if elsewhere == "here":
            with pytest.raises(ch.UsageError, match=f"the price of {name}"):
                await boss.change_plan(run.id, plan, version=1)
        go.set()
        result = await run.wait()
        if other is not boss:
            await other.close()
    assert result.status == "succeeded"
    assert result.limits.money is None


async def test_g7_there_must_be_a_budget_to_change() -> None:
    hold = asyncio.Event()

    @ch.worker("hand", "Waits")
    async def hand(_: ch.Brief) -> None:
        await hold.wait()

    async with ch.Supervisor([hand]) as boss:
        task = ch.Task(id="t", description="Wait for it", worker="hand")
        run = await boss.submit(ch.Plan(goal="Wait", tasks=[task]))
        with pytest.raises(ch.UsageError, match="without a budget"):
            await boss.change_budget(run.id, calls=4)
        hold.set()
        await run.wait()
        with pytest.raises(ch.UsageError, match="has ended"):
            await boss.change_budget(run.id, calls=4)
