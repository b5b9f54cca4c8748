"""How worker processes end: by themselves, by a signal, by a limit, with their parent; and that none is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chargehand.engines import child_protocol as frames
from chargehand.engines.base import Job, Lost
from chargehand.engines.child_processes import Children, importable
from chargehand.errors import UsageError
from chargehand.facts.outcome import (
    ErrorClass,
    Failed,
)
from chargehand.facts.value import Value
from tests.integration.children_at_work import (
    MODULE,
    PATIENCE,
    ROOT,
    FakeLine,
    HeldPipe,
    brief_of,
    children_of,
    close_everything,
    crash,
    die_leaving_a_program,
    echo_input,
    exit_hard,
    hold_and_spin,
    is_there,
    kill_itself,
    never,
    of_size,
    outcome_in,
    outcome_of_one,
    pid,
    read,
    spin,
    spin_async,
    spin_until,
    start_and_leave_session,
    take_memory,
)

#: whose kernel limits address space, and ends a process together with its parent
IS_LINUX = sys.platform == "linux"


@pytest.fixture
def pipe(tmp_path: Path) -> HeldPipe:
    return HeldPipe(tmp_path / "pipe")


# Deaths


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (exit_hard, ["exit code 7", "about to go"]),
        (kill_itself, ["SIGKILL"]),
        (crash, ["SIGSEGV", "Fatal Python error"]),
        (close_everything, ["closed the pipe"]),
    ],
)
async def test_an_attempt_whose_child_dies_is_lost_and_the_next_gets_a_new_child(
    function: Callable[..., Any], told: list[str]
) -> None:
    async with children_of(function) as children:
        for _ in range(2):
            outcome = await outcome_in(children, brief_of())
            assert isinstance(outcome, Lost), outcome
            assert all(word in outcome.reason for word in told), outcome.reason
            assert len(outcome.reason) < 5_000


async def test_what_a_dead_child_had_started_ends_with_it(pipe: HeldPipe) -> None:
    outcome = await outcome_of_one(die_leaving_a_program, brief_of(args={"pipe": pipe.path}))
    assert isinstance(outcome, Lost)
    await pipe.wait_let_go()


async def test_a_program_that_left_the_group_does_not_keep_a_death_secret() -> None:
    line = FakeLine()
    async with children_of(start_and_leave_session) as children:
        outcome = await outcome_in(children, brief_of(line))
        assert not children._all  # nor are its pipes kept open
    outside = int(line.notes[0][0])
    if IS_LINUX:  # elsewhere what left its group is out of reach
        assert not is_there(outside)
    else:
        os.kill(outside, signal.SIGKILL)
    assert isinstance(outcome, Lost)
    assert "exit code 7" in outcome.reason


async def test_an_idle_child_that_was_killed_is_replaced() -> None:
    async with children_of(pid) as children:
        first = read(await outcome_in(children, brief_of()))
        (child,) = children._all
        os.kill(first, signal.SIGKILL)
        await asyncio.wait_for(asyncio.shield(child.gone), PATIENCE)
        assert read(await outcome_in(children, brief_of())) != first


# Cancelling and closing


@pytest.mark.parametrize("function", [spin, spin_async])
async def test_cancelling_kills_an_endless_loop(function: Callable[..., Any]) -> None:
    line = FakeLine()
    async with children_of(function) as children:
        attempt = asyncio.create_task(outcome_in(children, brief_of(line)))
        process = int(await line.wait_noted())
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        assert not is_there(process)  # reaped, too


async def test_cancelling_kills_what_the_child_had_started(pipe: HeldPipe) -> None:
    line = FakeLine()
    brief = brief_of(line, args={"pipe": pipe.path})
    async with children_of(hold_and_spin) as children:
        attempt = asyncio.create_task(outcome_in(children, brief))
        await line.wait_noted()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await pipe.wait_let_go()


async def test_after_a_cancellation_the_next_attempt_gets_a_new_child() -> None:
    line = FakeLine()
    async with children_of(spin_until) as children:
        attempt = asyncio.create_task(
            outcome_in(children, brief_of(line, args={"file": "there/is/none"}))
        )
        await line.wait_noted()
        attempt.cancel()
        await asyncio.wait({attempt})
        assert read(await outcome_in(children, brief_of(args={"file": str(ROOT)}))) == "seen"


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
async def test_an_attempt_may_be_cancelled_while_its_child_starts(turns: int) -> None:
    async with children_of(pid) as children:
        attempt = asyncio.create_task(outcome_in(children, brief_of()))
        for _ in range(turns):
            await asyncio.sleep(0)
        attempt.cancel()
        await asyncio.wait({attempt})
        assert attempt.cancelled()
        assert read(await outcome_in(children, brief_of())) != os.getpid()


async def test_children_are_used_again() -> None:
    async with children_of(pid) as children:
        seen = {read(await outcome_in(children, brief_of())) for _ in range(5)}
    assert len(seen) == 1


async def test_no_more_children_are_started_than_allowed() -> None:
    async with children_of(pid, most=2) as children:
        outcomes = await asyncio.gather(*(outcome_in(children, brief_of()) for _ in range(8)))
    assert len({read(outcome) for outcome in outcomes}) <= 2


async def test_closing_leaves_no_process_behind() -> None:
    line = FakeLine()
    idle, busy = Children(importable(pid), 1), Children(importable(spin), 1)
    first = read(await outcome_in(idle, brief_of()))
    attempt = asyncio.create_task(outcome_in(busy, brief_of(line)))
    second = int(await line.wait_noted())
    await asyncio.gather(idle.close(), busy.close())
    assert not is_there(first)
    assert not is_there(second)
    assert await attempt == Lost("its process was ended, because its engine was closed")
    late = brief_of()
    with pytest.raises(UsageError, match="closed"):
        await idle.call(late, Job(late, never))


@pytest.mark.parametrize("state", ["busy", "idle", "stuck"] if IS_LINUX else ["busy", "idle"])
async def test_a_child_ends_when_its_parent_is_killed(state: str, pipe: HeldPipe) -> None:
    code = f"import asyncio, {MODULE} as m; asyncio.run(m.lead({state!r}, {pipe.path!r}))"
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await parent.stdout.readline() == b"ready\n"
    parent.kill()
    await pipe.wait_let_go()
    await parent.wait()


@pytest.mark.parametrize("function", [spin, spin_async])
def test_a_busy_child_ends_when_its_parent_hangs_up(function: Callable[..., Any]) -> None:
    """Without the kernel's help, as on macOS."""
    setup = frames.Setup(path=sys.path, argv=[""], pythonpath=None)
    attempt = frames.AttemptFrame(run="r1", task=brief_of().task, attempt=1, worker="w", values={})
    child = start_child(importable(function))
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(frames.pack(setup) + frames.pack(attempt))
    child.stdin.flush()
    assert child.stdout.read(len(frames.HELLO)) == frames.HELLO
    size, _ = frames.read_head(child.stdout.read(frames.HEAD_BYTES))
    note = frames.from_child(child.stdout.read(size))
    assert isinstance(note, frames.NoteProgress)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == -signal.SIGKILL


def test_an_idle_child_ends_well_when_its_parent_hangs_up() -> None:
    child = start_child(f"{MODULE}:pid")
    said, _ = child.communicate(timeout=PATIENCE)
    assert (said, child.returncode) == (frames.HELLO, 0)


def start_child(target: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "chargehand.engines.child_main", target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


# Limits


async def test_a_frame_that_is_too_large_is_refused_on_its_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with children_of(echo_input) as children:
        monkeypatch.setattr(frames, "MOST_BYTES", 10_000)
        large, small = (brief_of(values={"text": Value.of("x" * n)}) for n in (20_000, 10))
        outcome = await outcome_in(children, large)
        assert isinstance(outcome, Failed)
        assert "write them to a file" in outcome.message
        assert read(await outcome_in(children, small)) == "x" * 10


async def test_a_frame_that_is_too_large_is_refused_on_its_way_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "MOST_BYTES", 10_000)
    async with children_of(of_size) as children:
        outcome = await outcome_in(children, brief_of(args={"size": 20_000}))
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.error) == (ErrorClass.LOGIC, "UsageError")
        assert read(await outcome_in(children, brief_of(args={"size": 10}))) == "x" * 10


@pytest.mark.skipif(not IS_LINUX, reason="needs a kernel that limits address space")
async def test_a_child_gets_no_more_memory_than_allowed() -> None:
    async with children_of(take_memory, memory=2**30) as children:
        outcome = await outcome_in(children, brief_of(args={"size": 2**32}))
        assert isinstance(outcome, Failed), outcome
        assert (outcome.kind, outcome.error) == (ErrorClass.RESOURCE, "MemoryError")
        assert read(await outcome_in(children, brief_of(args={"size": 1_000}))) == 1_000


@pytest.mark.skipif(not IS_LINUX, reason="needs a kernel that limits address space")
async def test_a_limit_that_cannot_be_set_means_no_work() -> None:
    outcome = await outcome_of_one(pid, memory=2**70)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorClass.DENIED


async def test_an_attempt_gets_no_more_processor_time_than_allowed() -> None:
    outcome = await outcome_of_one(spin, cpu=timedelta(seconds=1))
    assert isinstance(outcome, Failed), outcome
    assert outcome.kind is ErrorClass.RESOURCE


def test_no_process_at_all_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="at least one"):
        Children("a:b", 0)
