"""A16, C8: several processes on one journal, and leaders that stop or die."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chargehand.facts.events import AttemptLost, AttemptStarted, RunLed, RunReleased

from .fork_server import ForkedProcess
from .kills import Lives, kill_group, start, wait
from .needs import require
from .oracle import Line, Verdict, check_ended


def poll(is_so: Callable[[], bool], patience: float = 20.0) -> bool:
    """Wait for what another process does; False if it never comes."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def acks(lines: list[Line], kind: str) -> list[dict[str, Any]]:
    return [line["ack"] for line in lines if "ack" in line and line["ack"]["kind"] == kind]


def a16_trial(seed: int, folder: Path) -> Verdict:
    """Two processes lead runs of their own and want to lead one more, both; now and then one is killed."""
    rng = random.Random(f"A16 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    keys = {"one": [f"a{n}" for n in range(5)], "two": [f"b{n}" for n in range(5)]}

    def begin(name: str) -> ForkedProcess:
        return start(folder, shape="small", keys=keys[name], shared="both", pause=0.005)

    running = {name: begin(name) for name in keys}
    lives.verdict.fired += 1
    if rng.random() < 0.5:
        victim = rng.choice([*keys])
        wanted = rng.randint(10, 400)
        poll(lambda: len(lives.lines()) > wanted, 10.0)
        kill_group(running[victim])
        running[victim] = begin(victim)
    for name, life in running.items():
        ended = wait(life)
        lives.verdict.must(ended == 0, f"{name} ended with {ended}")
    lives.finish(shape="small", keys=[*keys["one"], *keys["two"], "both"])
    lives.verdict.figures["refused"] = sum("refused" in line for line in lives.lines())
    return lives.verdict


def zombie_trial(seed: int, folder: Path) -> Verdict:
    """A leader is stopped for longer than its lease, another takes over, the first wakes up."""
    rng = random.Random(f"A16 zombie {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    how: dict[str, Any] = {
        "shape": "small",
        "keys": [],
        "shared": "both",
        "lease": 0.5,
        "patience": 1.0,
    }
    first = start(folder, pause=0.02, **how)
    wanted = rng.randint(8, 60)
    poll(lambda: len(lives.lines()) > wanted or first.poll() is not None, 10.0)
    os.killpg(first.pid, signal.SIGSTOP)
    try:
        second = start(folder, pause=0.02, **how)
        has_taken_over = poll(
            lambda: (
                len({event["node"] for event in acks(lives.lines(), RunLed.__name__)}) > 1
                or any(line.get("by") == "JournalBusy" for line in lives.lines())
                or second.poll() is not None
            )
        )
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    lives.verdict.must(has_taken_over, "the second never took over")
    # Stopped in the middle of a transaction it keeps SQLite's lock, and the other can only wait.
    lives.verdict.fired += len({event["node"] for event in acks(lives.lines(), "RunLed")}) > 1
    ended = wait(first), wait(second)
    lives.verdict.must(ended == (0, 0), f"they ended with {ended}: {lives.told()}")
    return lives.finish(is_certain=False, **how)


def c8_trial(seed: int, folder: Path) -> Verdict:
    """A process dies right after it has begun to lead: another leads soon, and once."""
    rng = random.Random(f"C8 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    verdict = lives.verdict
    first = start(folder, shape="small", pause=0.05)
    # Either at once when it leads, known by its lock beside the journal, or when it has said so.
    if rng.random() < 0.5:
        poll(lambda: any(folder.glob("runs.db-node-*")))
    else:
        poll(lambda: bool(acks(lives.lines(), RunLed.__name__)))
    kill_group(first)
    verdict.fired += 1
    lives.look()
    died_at = time.monotonic()
    led_before = len(acks(lives.lines(), RunLed.__name__))
    second = start(folder, shape="small", pause=0.01)
    poll(
        lambda: len(acks(lives.lines(), RunLed.__name__)) > led_before or second.poll() is not None
    )
    verdict.figures["reclaimed_s"] = time.monotonic() - died_at
    verdict.must(wait(second) == 0, "the second did not lead it to its end")
    # The lease is 10 s; that its holder is dead is known at once, so nobody has to wait for it.
    verdict.must(
        verdict.figures["reclaimed_s"] < 5.0,
        f"it was led again after {verdict.figures['reclaimed_s']:.1f} s",
    )
    runs = lives.look()
    live_run = [
        entry for entries in runs.values() for entry in entries if isinstance(entry.event, RunLed)
    ]
    verdict.must(len(live_run) <= 2, f"it was led {len(live_run)} times")
    verdict.acknowledged += sum("ack" in line for line in lives.lines())
    check_ended(runs, verdict)
    return verdict


def c8_clearing_trial(seed: int, folder: Path) -> Verdict:
    """The one that clears a dead leader away is killed while it does so: the next still need not wait."""
    require("strace")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    first = start(folder, shape="small", pause=0.05)
    poll(lambda: bool(acks(lives.lines(), RunLed.__name__)))
    kill_group(first)
    (file,) = folder.glob("runs.db-node-*")
    trace = folder.with_name(f"{folder.name}.strace")
    inject = "inject=unlink:delay_exit=5000000"
    second = start(folder, ["-o", str(trace), "-e", "trace=unlink", "-e", inject], shape="small")
    lives.verdict.fired += poll(lambda: not file.exists())  # it stands still right after that
    kill_group(second)
    trace.unlink()
    lives.look()
    return lives.finish(shape="small")


def c10_trial(seed: int, folder: Path) -> Verdict:
    """SIGTERM to a script in the middle of `run_sync`: it ends well, and the run goes on later."""
    rng = random.Random(f"C10 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    script = start(folder, sync=True, pause=0.02)
    wanted = rng.randint(5, 150)
    poll(lambda: len(lives.lines()) > wanted or script.poll() is not None)
    os.kill(script.pid, signal.SIGTERM)
    told_at = time.monotonic()
    ended = wait(script)
    lives.verdict.figures["stopped_s"] = time.monotonic() - told_at
    lives.verdict.must(ended == 0, f"it ended with {ended}")
    is_interrupted = any("interrupted" in line for line in lives.lines())
    lives.verdict.fired += is_interrupted
    runs = lives.look()
    if is_interrupted:
        (kinds,) = ([type(entry.event) for entry in entries] for entries in runs.values())
        lives.verdict.must(RunReleased in kinds, "it was not let go of")
        # What was on its way may still be written down after that, but nothing is begun any more.
        after = kinds[kinds.index(RunReleased) :] if RunReleased in kinds else []
        lives.verdict.must(AttemptStarted not in after, "something was begun after the end")
        lives.verdict.must(AttemptLost not in kinds, "attempts were lost that had time to end")
    return lives.finish(pause=0.02)
