"""Worker processes within limits: of memory, of processor time, and of silence."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import subreaper
from chargehand.engines import child_processes as parents
from chargehand.engines.base import Lost
from chargehand.engines.child_protocol import Beat, FromChild, from_child
from chargehand.errors import UsageError
from tests.integration.children_at_work import (
    FakeLine,
    brief_of,
    children_of,
    is_there,
    outcome_in,
    pid,
    read,
    spin,
    spin_until,
)
from tests.integration.elastic_at_work import (
    be_killed_once,
    be_stuck_until_written_to,
    take_memory,
)
from tests.integration.elastic_at_work import spin as use_processor

BEAT = timedelta(milliseconds=20)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="its kernel keeps such limits")


def plan_for(worker: str, **args: object) -> ch.Plan:
    task = ch.Task(id="only", description="Do what is asked", worker=worker, args=args)
    return ch.Plan(goal="See what happens", tasks=[task])


@needs_linux
async def test_who_takes_too_much_memory_is_told_how_much_there_was() -> None:
    async with ch.Supervisor([take_memory], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(plan_for("glutton", size=2**32))
        again = await boss.run(plan_for("glutton", size=1_000))
    error = result.tasks["only"].error
    assert error is not None
    assert error.kind is ch.ErrorClass.RESOURCE
    assert error.message.startswith("it used more than 1 GB of memory")
    assert again.answer.output == 1_000


async def test_who_takes_too_much_processor_time_is_told_how_much_there_was() -> None:
    async with ch.Supervisor([use_processor], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(plan_for("spinner"))
    error = result.tasks["only"].error
    assert error is not None
    assert error.kind is ch.ErrorClass.RESOURCE
    assert error.message.startswith("it used more than 1 s of processor time")


@pytest.mark.parametrize("limit", ["memory", "cpu_seconds"])
def test_limits_that_nobody_could_keep_are_refused(limit: str) -> None:
    with pytest.raises(UsageError, match="add process=True"):
        ch.worker("w", "Does it", **{limit: 1})(pid)  # type: ignore[arg-type]  # by name
    with pytest.raises(UsageError, match="more than 0"):
        ch.worker("w", "Does it", process=True, **{limit: 0})(pid)  # type: ignore[arg-type]  # by name


async def test_a4_a_worker_process_that_is_killed_is_replaced_and_its_task_done_again(
    tmp_path: Path,
) -> None:
    """A dead worker costs the task none of its attempts: it has only one."""
    killed: list[int] = []

    def kill(_: str, event: ch.events.ProgressNoted) -> None:
        killed.append(int(event.text))
        os.kill(killed[0], signal.SIGKILL)

    async with ch.Supervisor([be_killed_once], limits=ch.Limits(attempts=1)) as boss:
        boss.on(ch.events.ProgressNoted)(kill)
        result = await boss.run(plan_for("mortal", marker=str(tmp_path / "marker")))
        history = [entry.event async for entry in boss.journal.read(result.id)]
    assert result.status == "succeeded"
    assert result.tasks["only"].attempts == 2
    assert result.answer.output not in killed
    (lost,) = (each for each in history if isinstance(each, ch.events.AttemptLost))
    assert "SIGKILL" in lost.reason


# Signs of life


async def test_c1_a_process_that_was_stopped_is_killed_and_its_attempt_lost() -> None:
    line = FakeLine()
    async with children_of(spin, beat=BEAT) as children:
        attempt = asyncio.create_task(outcome_in(children, brief_of(line)))
        process = int(await line.wait_noted())
        os.kill(process, signal.SIGSTOP)
        outcome = await attempt
    assert isinstance(outcome, Lost)
    assert "was stopped and gave no sign of life" in outcome.reason
    assert not is_there(process)


async def test_a_process_that_is_silent_but_lives_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()
    truth = subreaper.is_below_stopped

    def look(process: int) -> bool:
        looked.set()
        return truth(process)

    monkeypatch.setattr(subreaper, "is_below_stopped", look)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = FakeLine()
    async with children_of(be_stuck_until_written_to, beat=BEAT) as children:
        brief = brief_of(line, args={"pipe": str(pipe)})
        attempt = asyncio.create_task(outcome_in(children, brief))
        await line.wait_noted("stuck")
        async with asyncio.timeout(60):
            await looked.wait()
        pipe.write_bytes(b"x")
        assert read(await attempt) == "alive"


async def test_signs_of_life_keep_a_busy_process_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[Beat] = []
    file = tmp_path / "file"

    def hear(data: bytes) -> FromChild:
        frame = from_child(data)
        if isinstance(frame, Beat):
            beats.append(frame)
            if len(beats) == 3:
                file.touch()
        return frame

    monkeypatch.setattr(parents, "from_child", hear)
    async with children_of(spin_until, beat=BEAT) as children:
        brief = brief_of(args={"file": str(file)})
        assert read(await outcome_in(children, brief)) == "seen"
    assert len(beats) >= 3


# Fewer of them


async def test_idle_processes_are_let_go_when_fewer_are_wanted() -> None:
    async with children_of(pid, most=3) as children:
        one = read(await outcome_in(children, brief_of()))
        children.fit(1)
        assert read(await outcome_in(children, brief_of())) == one, "one may stay"
        children.fit(0)
        assert read(await outcome_in(children, brief_of())) != one


async def test_processes_at_work_stay_when_fewer_are_wanted() -> None:
    line = FakeLine()
    async with children_of(spin, most=1) as children:
        attempt = asyncio.create_task(outcome_in(children, brief_of(line)))
        process = int(await line.wait_noted())
        children.fit(0)
        assert is_there(process)
        attempt.cancel()
        await asyncio.wait([attempt])


def test_what_is_not_there_is_not_stopped() -> None:
    assert not subreaper.is_below_stopped(2**22 + 1)
