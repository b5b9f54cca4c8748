"""Thousands of cancels at once, some twice, some as the run ends: everything ends, once, and nothing is left over."""

import asyncio
from pathlib import Path

import pytest
from benchmarks.cancel_storm import Aftermath, main, storm

import chargehand as ch
from chargehand.facts.events import AttemptFinished, AttemptStarted, CancelRequested, RunFinished
from chargehand.testing import FakeClock, run_virtual


def all_is_over(after: Aftermath, runs: int) -> None:
    assert after.statuses.total() == runs
    assert set(after.statuses) == {"cancelled", "succeeded"}, "both sides of the race were won"
    assert after.contradictions == 0
    assert after.orphans == 0, "an attempt goes on that nobody waits for"
    assert after.unsettled == 0


async def test_g4_ten_thousand_cancels_leave_nothing_behind() -> None:
    after = await storm(None, 9_100)
    assert after.cancels > 10_000
    all_is_over(after, 9_100)


async def test_g4_nor_do_they_in_a_durable_journal(tmp_path: Path) -> None:
    all_is_over(await storm(tmp_path / "runs.db", 1_000), 1_000)


def test_the_benchmark_tells_how_long_it_took(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--runs", "20"]) == 0
    assert "22 cancels until all have ended, durable journal" in capsys.readouterr().out


def test_a_run_that_is_cancelled_many_times_is_cancelled_once() -> None:
    @ch.worker("waiter", "Waits for ever")
    async def wait(brief: ch.Brief) -> None:
        await asyncio.Event().wait()

    async def story() -> list[object]:
        async with ch.Supervisor([wait], clock=FakeClock()) as boss:
            tasks = [
                ch.Task(id=f"t{n}", description="Wait for ever", worker="waiter") for n in range(50)
            ]
            run = await boss.submit(ch.Plan(goal="Wait", tasks=tasks))
            await asyncio.sleep(1)
            await asyncio.gather(*(run.cancel() for _ in range(200)))
            await run.cancel()
            await run.wait()
            return [entry.event async for entry in boss.journal.read(run.id)]

    events = run_virtual(story())
    kinds = [type(event) for event in events]
    assert kinds.count(CancelRequested) == 1
    assert kinds.count(RunFinished) == 1
    assert kinds.count(AttemptStarted) == kinds.count(AttemptFinished) == 50
    assert kinds[-1] is RunFinished
