"""Copies of a process that a worker makes with `os.fork`: they answer for no attempt, and lead no run."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.children_at_work import (
    PATIENCE,
    FakeLine,
    brief_of,
    children_of,
    copy_process,
    copy_process_async,
    copy_process_in_a_task,
    outcome_in,
    read,
    report_from_a_copy,
    say_the_end_of_another,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="only POSIX systems fork")


# In worker processes


@pytest.mark.parametrize("function", [copy_process, copy_process_async, copy_process_in_a_task])
async def test_a_copy_of_a_worker_process_never_answers_for_the_next_attempt(
    function: Callable[..., Any],
) -> None:
    async with children_of(function, most=1) as children, asyncio.timeout(PATIENCE):
        assert read(await outcome_in(children, brief_of())) == "of the first attempt"
        assert read(await outcome_in(children, brief_of())) == "of the second attempt"


async def test_what_is_said_for_another_attempt_is_not_heard() -> None:
    async with children_of(say_the_end_of_another, most=1) as children:
        assert read(await outcome_in(children, brief_of())) == "of attempt 1"
        assert read(await outcome_in(children, brief_of())) == "of attempt 2"


async def test_a_copy_of_a_worker_process_cannot_speak_for_its_attempt() -> None:
    line = FakeLine()
    async with children_of(report_from_a_copy) as children:
        met = read(await outcome_in(children, brief_of(line)))
    assert len(met) == 2
    assert all("is a copy of process" in words for words in met)
    assert not line.notes


# In the process of the supervisor

#: each makes a copy whose code comes back, and returns the exit code of that copy
RUN = """
import asyncio, os, sys, warnings
import chargehand as ch
warnings.simplefilter("ignore", DeprecationWarning)
home = os.getpid()

def end_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def returns(brief=None):
    return end_of(pid) if (pid := os.fork()) else "of the copy"

async def raises(brief):
    if pid := os.fork():
        return end_of(pid)
    raise ValueError("in the copy")

async def exits(brief):
    return end_of(pid) if (pid := os.fork()) else sys.exit(0)

async def waits(brief):
    if pid := os.fork():
        return end_of(pid)
    await asyncio.Event().wait()

async def in_a_step(brief):
    return await brief.step("fork", returns)

def in_a_thread(brief):
    return end_of(pid) if (pid := os.fork()) else "of the copy"

forked = []

async def in_a_hook(brief):
    return forked[0]

def hook(run, event):
    if not forked:
        pid = os.fork()
        forked.append(end_of(pid) if pid else "of the copy")

async def other(brief):
    assert os.getpid() == home, "a copy works for another task"
    return "done"

boss = ch.Supervisor([
    ch.worker("copied", "Makes a copy")(globals()[sys.argv[2]]), ch.worker("other", "Works")(other)
], journal=sys.argv[1])
if sys.argv[2] == "in_a_hook":
    boss.on(ch.events.AttemptStarted)(hook)
tasks = [ch.Task(id="copied", description="d", worker="copied")]
tasks += [ch.Task(id=f"t{n}", description="d", worker="other") for n in range(5)]
result = boss.run_sync(ch.Plan(goal="g", tasks=tasks))
print(os.getpid() == home, result.status, result.tasks["copied"].output)
"""


@pytest.mark.parametrize(
    "way", ["returns", "raises", "exits", "waits", "in_a_step", "in_a_thread", "in_a_hook"]
)
def test_a_copy_of_the_supervisors_process_ends_when_its_code_comes_back(
    way: str, tmp_path: Path
) -> None:
    run = [sys.executable, "-c", RUN, str(tmp_path / "runs.db"), way]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "True succeeded 70\n", done.stderr
    said = [line for line in done.stderr.splitlines() if "is a copy of process" in line]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("chargehand: ")


USED = """
import asyncio, os, sys, warnings
import chargehand as ch
from chargehand.errors import ForkedCopy
warnings.simplefilter("ignore", DeprecationWarning)

@ch.worker("w", "Works")
def w(brief):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    refused = 0
    for use in (
        lambda: brief.progress("copied"),
        lambda: brief.wait(brief.step("pid", os.getpid)),
        lambda: asyncio.run(brief.step("pid", os.getpid)),
        lambda: boss.run_sync(plan),
    ):
        try:
            use()
        except ForkedCopy as error:
            refused += 1
    os._exit(refused)

plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="d", worker="w")])
boss = ch.Supervisor([w], journal=sys.argv[1])
print(boss.run_sync(plan).tasks["t"].output)
"""


def test_a_copy_of_the_supervisors_process_is_refused_whatever_it_uses_of_a_run(
    tmp_path: Path,
) -> None:
    run = [sys.executable, "-c", USED, str(tmp_path / "runs.db")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "4\n", done.stderr


MULTIPROCESSING = """
import multiprocessing, sys, warnings
import chargehand as ch
warnings.simplefilter("ignore", DeprecationWarning)
context = multiprocessing.get_context("fork")

def double(number):
    return 2 * number

@ch.worker("w", "Works")
async def w(brief):
    with context.Pool(1) as pool:
        return pool.map(double, [1, 2, 3])

plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="d", worker="w")])
print(ch.Supervisor([w], journal=sys.argv[1]).run_sync(plan).tasks["t"].output)
"""


SIGNALLED = """
import os, signal, sys, warnings
import chargehand as ch
warnings.simplefilter("ignore", DeprecationWarning)

@ch.worker("w", "Works")
def w(brief):
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, b"x")
        while True:
            pass  # not `pause`: a signal that came just before it would be waited for
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    return -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="d", worker="w")])
print(ch.Supervisor([w], journal=sys.argv[1]).run_sync(plan).tasks["t"].output)
"""


def test_a_signal_to_a_copy_ends_the_copy_and_interrupts_no_run(tmp_path: Path) -> None:
    run = [sys.executable, "-c", SIGNALLED, str(tmp_path / "runs.db")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("15\n", "")


HEEDED = """
import asyncio, os, signal, sys, warnings
from chargehand.server.mcp.server import _heeding_signals
warnings.simplefilter("ignore", DeprecationWarning)

def end_a_copy():
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, b"x")
        while True:
            pass
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    return -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def main():
    heard = []
    called = asyncio.Event()
    def then(sign):
        heard.append(int(sign))
        called.set()
    with _heeding_signals(then):
        ended = await asyncio.to_thread(end_a_copy)
        os.kill(os.getpid(), signal.SIGINT)  # its own, which comes after that of the copy
        await called.wait()
    print(ended, heard)

asyncio.run(main())
"""


def test_a_signal_to_a_copy_is_not_heard_by_the_mcp_server() -> None:
    run = [sys.executable, "-c", HEEDED]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("15 [2]\n", "")


def test_a_worker_may_use_multiprocessing(tmp_path: Path) -> None:
    run = [sys.executable, "-c", MULTIPROCESSING, str(tmp_path / "runs.db")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout, done.stderr) == ("[2, 4, 6]\n", "")
