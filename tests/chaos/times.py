"""B1, B3, B5: clocks that jump, and an event loop that stands still."""

import asyncio
import os
import random
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import chargehand as ch
from chargehand.errors import NotLeading
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    DeadlinePassed,
    Event,
    RetryDue,
    RetryPlanned,
)
from chargehand.facts.outcome import Failed

from .disks import hearing
from .kills import ROOT, Lives, kill_group, wait
from .leaders import acks, poll
from .needs import Needs, require
from .oracle import Runs, Verdict, check_ended

HOUR = 3600.0


class Wall:
    """A wall clock that one process sees and a test moves."""

    def __init__(self, folder: Path, name: str = "ahead") -> None:
        if sys.platform != "linux":
            raise Needs("needs Linux, whose loader can put a clock before the real one")
        require("gcc")
        self._library = folder / "clockshim.so"
        self._ahead = folder / name
        source = Path(__file__).with_name("clockshim.c")
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._library), str(source), "-ldl"],
            check=True,
        )
        self.move(0.0)

    def move(self, seconds: float) -> None:
        """Set the clock this far from the real one."""
        with self._ahead.open("r+b" if self._ahead.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))

    @property
    def env(self) -> dict[str, str]:
        """What a process must be started with to see it."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIM": str(self._ahead)}

    def start(self, folder: Path, kind: str) -> "subprocess.Popen[bytes]":
        """Begin a life of the timed client under this clock."""
        env = {**os.environ, **self.env}
        with (folder / "stderr").open("ab") as told:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.timed", str(folder), kind],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )


def events_of(runs: Runs) -> list[Event]:
    (entries,) = runs.values()
    return [entry.event for entry in entries]


def b1_trial(seed: int, folder: Path) -> Verdict:
    """The wall clock goes back, or forth, by an hour in mid-run: no timeout and no wait notices."""
    rng = random.Random(f"B1 {seed}")
    folder.mkdir(parents=True)
    wall = Wall(folder)
    lives = Lives(folder)
    verdict = lives.verdict
    life = wall.start(folder, "short")
    wanted = rng.randint(4, 10)
    poll(lambda: len(lives.lines()) > wanted or life.poll() is not None)
    wall.move(rng.choice([-HOUR, -HOUR, HOUR]))
    verdict.fired += life.poll() is None
    verdict.must(wait(life) == 0, f"it did not end well: {lives.told()}")
    seen = [line["wall"] for line in lives.lines() if "wall" in line]
    verdict.must(abs(seen[-1] - seen[0]) > HOUR / 2, "the clock has not moved: nothing was tried")
    runs = lives.look()
    check_ended(runs, verdict, "partial")
    _check_timers(events_of(runs), verdict)
    verdict.acknowledged += sum("ack" in line for line in lives.lines())
    return verdict


def _check_timers(events: list[Event], verdict: Verdict) -> None:
    """Attempts are stopped after their 0.3 s, waits last as planned, the deadline is kept."""
    started = {(e.task, e.attempt): e.at for e in events if isinstance(e, AttemptStarted)}
    due = {(e.task, e.attempt): e.due_at for e in events if isinstance(e, RetryPlanned)}
    requested_at = events[0].at
    for event in events:
        if isinstance(event, AttemptFinished) and event.task == "slow":
            verdict.must(isinstance(event.outcome, Failed), "the slow one was not stopped")
            took = (event.at - started[event.task, event.attempt]).total_seconds()
            verdict.must(0.29 < took < 1.3, f"a timeout of 0.3 s came after {took:.2f} s")
        if isinstance(event, RetryDue):
            late = (event.at - due[event.task, event.attempt]).total_seconds()
            verdict.must(0 <= late < 1.0, f"a retry was {late:.2f} s late")
        if isinstance(event, DeadlinePassed):
            after = (event.at - requested_at).total_seconds()
            verdict.must(1.19 < after < 2.2, f"a deadline of 1.2 s passed after {after:.2f} s")
    verdict.must(any(isinstance(event, DeadlinePassed) for event in events), "no deadline passed")
    verdict.must(bool(due), "nothing was tried again")
    span = (events[-1].at - requested_at).total_seconds()
    verdict.must(span < 60.0, f"the run is said to have taken {span:.0f} s")


def b3_trial(seed: int, folder: Path) -> Verdict:
    """Killed while a retry is due, started again hours later: it comes once, and at once."""
    rng = random.Random(f"B3 {seed}")
    folder.mkdir(parents=True)
    wall = Wall(folder)
    lives = Lives(folder)
    verdict = lives.verdict
    life = wall.start(folder, "long")
    # The task `patient` fails at once and is due again in an hour.
    poll(lambda: any(e["task"] == "patient" for e in acks(lives.lines(), RetryPlanned.__name__)))
    kill_group(life)
    lives.look()
    wall.move(rng.uniform(1.0, 30.0) * HOUR)
    before = len(lives.lines())
    verdict.fired += 1
    life = wall.start(folder, "long")
    came = poll(lambda: any(e["task"] == "patient" for e in acks(lives.lines(), "RetryDue")), 15.0)
    verdict.must(came, "the retry never came")
    lines = lives.lines()
    opened = next(line["steady"] for line in lines[before:] if "steady" in line)
    fired = next(
        line["steady"]
        for line in lines[before:]
        if "ack" in line and line["ack"]["kind"] == "RetryDue" and line["ack"]["task"] == "patient"
    )
    verdict.figures["late_s"] = fired - opened
    verdict.must(fired - opened < 1.0, f"the retry came {fired - opened:.2f} s after the start")
    verdict.must(wait(life) == 0, f"it did not end well: {lives.told()}")
    runs = lives.look()
    times = [e for e in events_of(runs) if isinstance(e, RetryDue) and e.task == "patient"]
    verdict.must(len(times) == 1, f"the retry came {len(times)} times")
    verdict.acknowledged += sum("ack" in line for line in lives.lines())
    return verdict


def b5_trial(seed: int, folder: Path) -> Verdict:
    """A worker blocks the event loop for longer than the lease: it is told, and nobody takes the run."""
    folder.mkdir(parents=True)
    verdict = Verdict()
    path = folder / "runs.db"
    blocked = threading.Event()

    @ch.worker("blocker", "Blocks the event loop")
    async def blocker(brief: ch.Brief) -> str:
        blocked.set()
        time.sleep(2.0)
        return "done"

    async def run() -> ch.RunResult:
        journal = ch.open_journal(path, lease=timedelta(seconds=0.6))
        boss = ch.Supervisor([blocker], journal=journal)
        task = ch.Task(id="t", description="Block the loop for the test", worker="blocker")
        result = await boss.run(ch.Plan(goal="block", tasks=[task]), key="k")
        await journal.close()
        return result

    async def steal(tries: list[str]) -> None:
        journal = ch.open_journal(path, lease=timedelta(seconds=0.6))
        (head,) = await journal.heads()
        while len(tries) < 15:
            try:
                await journal.leases.lead(head.stream)
                tries.append("stolen")
            except NotLeading:
                tries.append("refused")
            await asyncio.sleep(0.1)
        await journal.close()

    def thief() -> None:
        blocked.wait(10.0)
        asyncio.run(steal(tries))

    tries: list[str] = []
    with hearing() as heard:
        thread = threading.Thread(target=thief)
        thread.start()
        result = asyncio.run(run())
        thread.join()
    verdict.fired += 1
    verdict.must(set(tries) == {"refused"}, f"while it was blocked others got {set(tries)}")
    verdict.must(result.status is ch.RunStatus.SUCCEEDED, f"it ended as {result.status}")
    verdict.must(result.tasks["t"].attempts == 1, "the attempt was taken for lost")
    verdict.must(heard.has("event_loop_blocked"), "nobody was told of the stall")
    verdict.must(heard.has("in blocker"), "what blocks was not named by its stack")
    return verdict
