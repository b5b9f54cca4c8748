"""Ctrl-C once stops gently, twice cancels; SIGTERM and SIGHUP stop gently."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.interrupt_signals import counting_signals

SCRIPT = """
import sys, time, asyncio
import chargehand as ch

@ch.worker("quick", "Takes a moment")
async def quick(brief: ch.Brief) -> str:
    await asyncio.sleep(float(sys.argv[2]))
    return "done"

boss = ch.Supervisor([quick], journal=sys.argv[1], parallel=1)
boss.on(ch.events.AttemptStarted)(lambda run, event: print("started", run, flush=True))
boss.on(ch.events.AttemptFinished)(lambda run, event: print("finished", flush=True))
plan = ch.Plan(
    goal="g",
    tasks=[ch.Task(id=f"t{n}", description="Take a moment", worker="quick") for n in range(50)],
)
try:
    print(boss.run_sync(plan).status.value)
except ch.RunInterrupted as error:
    print("interrupted", error.run)
"""


@ch.worker("quick", "Takes a moment")
async def at_once(brief: ch.Brief) -> str:
    return "done later"


def start(folder: Path, seconds: float) -> "subprocess.Popen[str]":
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / "runs.db"), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_c10_one_signal_lets_what_runs_end_and_starts_nothing_new(
    tmp_path: Path, sign: signal.Signals
) -> None:
    process = start(tmp_path, 0.2)
    assert process.stdout is not None
    run = process.stdout.readline().split()[1]
    process.send_signal(sign)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == f"interrupted {run}"
    assert out.count("finished") >= 1
    assert out.count("started") < 10
    async with ch.Supervisor([at_once], journal=tmp_path / "runs.db") as boss:
        result = await boss.resume(run)
    outputs = [each.output for each in result.tasks.values()]
    assert result.status == "succeeded"
    assert outputs.count("done") == out.count("finished")  # what was acknowledged is kept


def test_a_second_signal_cancels(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("started")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "Interrupt again" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out.splitlines()[-1] == "cancelled", err


def test_a_closed_terminal_interrupts_once_however_often_it_is_told() -> None:
    times: list[int] = []
    with counting_signals(times.append):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)  # from the shell, too
        assert times == [1]
        signal.raise_signal(signal.SIGTERM)
    assert times == [1, 2]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_process_started_with_nohup_outlives_its_terminal() -> None:
    times: list[int] = []
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with counting_signals(times.append):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, usual)
    assert times == []
