"""A1, A2, A3, A5: the process that leads a run is killed, and another goes on with it."""

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .client import lines_of
from .fork_server import ForkedProcess, fork_server
from .needs import require
from .oracle import (
    Line,
    Runs,
    Verdict,
    check_effects,
    check_ended,
    finished_steps,
    read_copy,
    verify,
)

ROOT = Path(__file__).resolve().parents[2]
#: seconds after which a life that should have ended is called stuck; none takes a tenth of it
PATIENCE = 60.0

#: where a kill may hit: how often it is chosen, and about how many there are in one whole run
CALLS = {"pwrite64": (50, 700), "fdatasync": (30, 60), "fsync": (15, 20), "write": (5, 5)}


class Life(Protocol):
    """A process, as `subprocess.Popen` and `ForkedProcess` have it."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def start(folder: Path, strace: Sequence[str] = (), **options: Any) -> ForkedProcess:
    """Begin one life of the client, in a process group of its own; with options of strace, under it."""
    told = msgspec.json.encode(options).decode()
    output = folder / "stderr"
    return fork_server().start(
        "tests.chaos.client", str(folder), told, output=output, strace=strace
    )


def wait(life: Life, patience: float = PATIENCE) -> int | None:
    """How a life ended; None if it had to be ended here, because it was stuck."""
    try:
        return life.wait(patience)
    except subprocess.TimeoutExpired:
        kill_group(life)
        return None


def kill_group(life: Life) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(life.pid, signal.SIGKILL)
    life.wait()


def live(folder: Path, strace: Sequence[str] = (), **options: Any) -> int | None:
    return wait(start(folder, strace, **options))


@dataclass
class Lives:
    """One run and all the lives that it took, each held against what was promised."""

    folder: Path
    verdict: Verdict = field(default_factory=Verdict)
    _finished: list[tuple[int, set[tuple[str, str]]]] = field(default_factory=list)

    def look(self) -> Runs:
        """Check what is on disk between two lives."""
        runs = read_copy(self.folder) if (self.folder / "runs.db").exists() else {}
        lines = lines_of(self.folder / "log")
        found = verify(runs, lines)
        # Each look sees the acknowledgements of all lives; they are counted at the last one.
        found.acknowledged = 0
        self.verdict.add(found)
        self._finished.append((len(lines), finished_steps(runs)))
        return runs

    def lines(self) -> list[Line]:
        return lines_of(self.folder / "log")

    def finish(self, *, is_certain: bool = True, **options: Any) -> Verdict:
        """Live once more, undisturbed, to the end of the run.

        Not `is_certain`: a process that was thought dead may have gone on with the effect it was at.
        """
        ended = live(self.folder, **options)
        self.verdict.must(ended == 0, f"the last life ended with {ended}: {self.told()}")
        runs = self.look()
        lines = lines_of(self.folder / "log")
        self.verdict.acknowledged += sum("ack" in line for line in lines)
        check_ended(runs, self.verdict)
        if is_certain:
            self._check_world(lines)
        self.verdict.figures["resume_s"] = self._last_took(lines)
        return self.verdict

    def _check_world(self, lines: list[Line]) -> None:
        check_effects(lines, self.verdict)
        for length, finished in self._finished:
            again = {(line["run"], line["ran"]) for line in lines[length:] if "ran" in line}
            self.verdict.must(not again & finished, f"ran again: {sorted(again & finished)}")

    def _last_took(self, lines: list[Line]) -> float:
        """How long the last life took, from its first line to its last."""
        starts = [line["born"] for line in lines if "born" in line]
        ends = [line["gone"] for line in lines if "gone" in line]
        return float(ends[-1] - starts[-1]) if ends else 0.0

    def told(self) -> str:
        return (self.folder / "stderr").read_text("utf-8", "replace")[-2000:]


def a1_trial(seed: int, folder: Path, kills: int = 4) -> Verdict:
    """Kill the leader at the n-th write or sync, time and again, and let the next go on."""
    require("strace")
    rng = random.Random(f"A1 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    trace = folder.with_name(f"{folder.name}.strace")
    for life in range(kills):
        call = rng.choices([*CALLS], [weight for weight, _ in CALLS.values()])[0]
        # Later lives have less left to write.
        nth = rng.randint(1, max(CALLS[call][1] // (life + 1), 2))
        ended = live(
            folder,
            [
                "-o",
                f"{trace}",
                "-e",
                f"trace={call}",
                "-e",
                f"inject={call}:signal=KILL:when={nth}",
            ],
        )
        is_fired = ended == -signal.SIGKILL and "+++ killed by SIGKILL +++" in trace.read_text(
            "utf-8", "replace"
        )
        if ended == 0:
            break  # there were fewer calls than that
        lives.verdict.fired += is_fired
        lives.verdict.must(
            is_fired, f"killed at {call} {nth} it ended with {ended}: {lives.told()}"
        )
        lives.look()
    trace.unlink(missing_ok=True)
    return lives.finish()


def effect_trial(seed: int, folder: Path, moment: str) -> Verdict:
    """Kill the leader right before or right after an effect, by its own hand."""
    rng = random.Random(f"{moment} {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    steps = [f"t{task:02}/{effect}" for task in (0, 3) for effect in ("pure", "idempotent")]
    steps += [f"t{task:02}/{effect}" for task in (0, 3) for effect in ("keyed", "once", "once")]
    victim = rng.choice(steps)
    ended = live(folder, shape="small", kill=moment, victim=victim)
    lives.verdict.fired += ended == -signal.SIGKILL
    lives.verdict.must(ended == -signal.SIGKILL, f"{victim}: it ended with {ended}")
    lives.look()
    verdict = lives.finish(shape="small")
    lines = lines_of(folder / "log")
    times = sum(line.get("ran") == victim for line in lines)
    # About the victim's own task: another may have been in the middle of a `once` step, too.
    task = victim.partition("/")[0]
    is_asked = any(f":{task}:" in line.get("asked", "") for line in lines)
    is_once = victim.endswith("/once")
    most = 2 if moment == "after" and not is_once else 1
    verdict.must(times <= most, f"{victim} happened {times} times")
    verdict.must(is_asked == is_once, f"{victim}: a person was {'' if is_asked else 'not '}asked")
    return verdict


def a2_trial(seed: int, folder: Path) -> Verdict:
    return effect_trial(seed, folder, "after")


def a3_trial(seed: int, folder: Path) -> Verdict:
    return effect_trial(seed, folder, "before")


def a5_trial(seed: int, folder: Path, kills: int = 8) -> Verdict:
    """Kill the whole process group again and again, whatever it is at."""
    rng = random.Random(f"A5 {seed}")
    folder.mkdir(parents=True)
    lives = Lives(folder)
    for _ in range(kills):
        life = start(folder, pause=0.02)
        try:
            # Long enough to get somewhere now and then: Python alone takes 0.15 s to start.
            ended: int | None = life.wait(rng.uniform(0.02, 0.4))
        except subprocess.TimeoutExpired:
            kill_group(life)
            ended = None
        if ended is not None:
            lives.verdict.must(ended == 0, f"it ended with {ended}: {lives.told()}")
            break
        lives.verdict.fired += 1
        lives.look()
    return lives.finish(pause=0.02)
