"""Daemons of worker processes and of stdio MCP servers end with them. Real processes, on Linux."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chargehand.engines.base import Lost
from chargehand.subreaper import command_below
from chargehand.tools.base import ToolContext
from chargehand.tools.mcp import mcp_server
from tests.integration.children_at_work import (
    PATIENCE,
    ROOT,
    FakeLine,
    HeldPipe,
    brief_of,
    children_of,
    outcome_in,
    read,
)
from tests.integration.daemons_at_work import (
    start_and_die,
    start_and_return,
    start_and_spin,
    start_one_after_the_other,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere no process can be made to inherit daemons"
)
SERVER = [sys.executable, "-m", "tests.integration.daemons_at_work"]


@pytest.fixture
def pipe(tmp_path: Path) -> HeldPipe:
    """Held open by every daemon of a test, so that its end is the end of all of them."""
    return HeldPipe(tmp_path / "pipe")


async def test_a_daemon_ends_when_its_idle_worker_process_is_let_go(pipe: HeldPipe) -> None:
    async with children_of(start_and_return) as children:
        assert read(await outcome_in(children, brief_of(args={"pipe": pipe.path}))) == "done"
    await pipe.wait_let_go()


async def test_a_daemon_ends_when_its_worker_process_dies(pipe: HeldPipe) -> None:
    async with children_of(start_and_die) as children:
        outcome = await outcome_in(children, brief_of(args={"pipe": pipe.path}))
        assert isinstance(outcome, Lost)
        assert "SIGKILL" in outcome.reason  # as it died itself, whatever stood above it
        await pipe.wait_let_go()


async def test_whatever_is_below_a_daemon_ends_too(pipe: HeldPipe) -> None:
    async with children_of(start_one_after_the_other) as children:
        outcome = await outcome_in(children, brief_of(args={"pipe": pipe.path}))
        assert isinstance(outcome, Lost)
        assert "exit code 5" in outcome.reason
        await pipe.wait_let_go()


async def test_a_daemon_ends_when_its_attempt_is_cancelled(pipe: HeldPipe) -> None:
    line = FakeLine()
    async with children_of(start_and_spin) as children:
        attempt = asyncio.create_task(
            outcome_in(children, brief_of(line, args={"pipe": pipe.path}))
        )
        await line.wait_noted()
        attempt.cancel()
        await asyncio.wait([attempt])
        await pipe.wait_let_go()


LEADS = """
import asyncio, sys
from tests.integration.children_at_work import FakeLine, brief_of, children_of, outcome_in
from tests.integration.daemons_at_work import start_and_spin

async def lead():
    line = FakeLine()
    async with children_of(start_and_spin) as children:
        attempt = asyncio.create_task(outcome_in(children, brief_of(line, args={"pipe": sys.argv[1]})))
        await line.wait_noted()
        print("ready", flush=True)
        await attempt

asyncio.run(lead())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_daemon_ends_when_the_supervisor_is_killed(pipe: HeldPipe, number: int) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEADS, pipe.path, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await parent.stdout.readline() == b"ready\n"
    parent.send_signal(number)
    await pipe.wait_let_go()
    await parent.wait()


@pytest.mark.parametrize("how", ["closed", "dies"])
async def test_a_daemon_ends_with_its_mcp_server(pipe: HeldPipe, how: str) -> None:
    server = mcp_server(command=[*SERVER, pipe.path], cwd=ROOT)
    tools = {tool.name: tool for tool in await server.tools()}
    if how == "closed":
        called = await tools["start"].call(ToolContext(), "{}")
        assert called.value == "started"
        await server.close()
    else:
        with pytest.raises(Exception, match="exit code 3"):
            await tools["die"].call(ToolContext(), "{}")
    await pipe.wait_let_go()
    await server.close()


def below(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command_below(command), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -KILL $$", -signal.SIGKILL),
        ("kill -SEGV $$", -signal.SIGSEGV),
        ("kill -TERM $$", -signal.SIGTERM),
        ("kill -XCPU $$", -signal.SIGXCPU),
        ("echo said; echo told >&2; exit 3", 3),
    ],
)
def test_a_program_below_a_subreaper_ends_as_it_would_alone(script: str, code: int) -> None:
    done = below("/bin/sh", "-c", script)
    assert done.returncode == code
    assert (done.stdout, done.stderr) == (("said\n", "told\n") if "said" in script else ("", ""))


def test_a_program_that_is_not_there_is_named_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        command_below(("no-such-program",))
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(PermissionError, match="plain"):
        command_below((str(tmp_path / "plain"),))
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o755)
    assert command_below(("./run",), cwd=tmp_path)[-1] == "./run"
