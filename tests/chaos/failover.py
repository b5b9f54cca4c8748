"""B4, H1, H2, H9, H12: the leader of a run dies or freezes; another goes on with the run, if it may.

Clocks may differ, a pooler may stand in between, and the others may be of an older version.
"""

import asyncio
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import chargehand as ch
from chargehand.errors import JournalVersion

from .databases import Database, database
from .kills import ROOT, Life
from .oracle import Runs, Verdict, check_effects
from .team import Launch, Member, Team, plan_for, team
from .times import Wall

#: seconds
LEASE = 1.0
#: seconds that the test itself may be kept from running, where it measures time
STALL = 0.1
#: tasks in flight when a leader is killed, and when one is frozen
KILLED, FROZEN = 200, 60


def h1_trial(seed: int, folder: Path, kind: str) -> Verdict:
    """The leader is killed with 200 tasks in flight: a standby continues within lease + 1 s."""
    rng = random.Random(f"H1 {kind} {seed}")
    folder.mkdir(parents=True)
    with database(kind, folder) as place, team(folder, place, lease=LEASE) as crew:
        run, leader = _in_flight(crew, KILLED)
        _wait(rng.uniform(0.0, LEASE))  # at any moment between two renewals
        leader.send(signal.SIGKILL)
        killed_at, crew.stall = time.monotonic(), 0.0
        crew.must_come(lambda: len(crew.leaders(run)) > 1, "no standby took over")
        crew.go()
        crew.must_come(lambda: crew.has_ended(run), "the run did not end")
        _judge(crew, run, leader, KILLED)
        taken = crew.leaders(run)[-1][1] - killed_at
        if crew.stall > STALL:
            return crew.verdict  # so busy a machine says nothing about us: it is not counted
        crew.verdict.fired += 1
        crew.verdict.figures["takeover_s"] = taken
        crew.verdict.must(taken < LEASE + 1.0, f"a standby took over after {taken:.2f} s")
        return crew.verdict


def h2_trial(seed: int, folder: Path, kind: str) -> Verdict:
    """The leader is frozen past its lease and woken: nothing that it writes is accepted any more.

    It is frozen while its tasks wait, or in the middle of their effects; they may have theirs while it
    is frozen or only when it is awake again.
    """
    rng = random.Random(f"H2 {kind} {seed}")
    moment = rng.choice(["before", "while", "after"])
    folder.mkdir(parents=True)
    with database(kind, folder) as place, team(folder, place, lease=LEASE) as crew:
        run, leader = _in_flight(crew, FROZEN)
        if moment == "before":
            crew.go()
            _wait(rng.uniform(0.0, 0.03))  # all effects together take about 0.05 s
        leader.send(signal.SIGSTOP)
        # Frozen inside a transaction it keeps SQLite's lock, and the others can only wait for it.
        crew.wait(lambda: len(crew.leaders(run)) > 1 or crew.has_ended(run), 4 * LEASE)
        is_taken = len(crew.leaders(run)) > 1
        if moment == "while":
            crew.go()
        _wait(rng.uniform(0.0, 0.3))
        leader.send(signal.SIGCONT)
        if moment == "after":
            _wait(rng.uniform(0.0, 0.1))
            crew.go()
        if is_taken:
            # Only then is it certain that no effect of its comes any more, and a person can know.
            lost = f"run_lost run={run}"
            crew.verdict.fired += crew.must_come(lambda: leader.says(lost), "it never noticed")
        while not crew.wait(lambda: crew.has_ended(run), 2.0):
            if crew.verdict.faults or time.monotonic() > crew.began_at + 90:
                crew.verdict.faults.append("the run did not end")
                break
            crew.answer_doubts(run)
        runs = _judge(crew, run, leader, FROZEN)
        stale = _stale(runs, run, leader) if is_taken else 0
        crew.verdict.figures["stale_accepted"] = stale
        crew.verdict.must(not stale, f"{stale} stale appends were accepted")
        return crew.verdict


def b4_trial(seed: int, folder: Path, kind: str) -> Verdict:
    """The wall clocks of two nodes are up to a minute apart: one leads for several leases, then the other."""
    rng = random.Random(f"B4 {kind} {seed}")
    folder.mkdir(parents=True)
    clocks = [Wall(folder, f"ahead-{number}") for number in range(2)]
    for clock, ahead in zip(clocks, rng.sample([-30.0, 30.0, 0.0], 2), strict=True):
        clock.move(ahead)
    with database(kind, folder) as place, team(folder, place, lease=LEASE) as crew:
        run, leader = _in_flight(crew, FROZEN, *(_launch_with(clock.env) for clock in clocks))
        time.sleep(2.5 * LEASE)
        crew.tail.look()
        crew.verdict.fired += 1
        crew.verdict.must(len(crew.leaders(run)) == 1, f"it was led by {crew.leaders(run)}")
        leader.send(signal.SIGKILL)
        killed_at = time.monotonic()
        crew.must_come(lambda: len(crew.leaders(run)) > 1, "no standby took over")
        crew.go()
        crew.must_come(lambda: crew.has_ended(run), "the run did not end")
        crew.verdict.figures["takeover_s"] = crew.leaders(run)[-1][1] - killed_at
        _judge(crew, run, leader, FROZEN)
        return crew.verdict


def _launch_with(env: dict[str, str]) -> Launch:
    def launch(arguments: tuple[str, str], output: Path) -> Life:
        return _spawn(arguments, output, env)

    return launch


def _spawn(arguments: tuple[str, str], output: Path, env: dict[str, str]) -> Life:
    command = [sys.executable, "-m", "tests.chaos.serving", *arguments]
    with output.open("ab") as told:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=told,
            stderr=told,
            start_new_session=True,
        )


def h12_trial(seed: int, folder: Path, kind: str) -> Verdict:
    """A run of a newer version loses its leader: the older standby leaves it to the newer one."""
    folder.mkdir(parents=True)
    newer = _launch_with({"PYTHONPATH": str(_newer_version(folder))})
    with database(kind, folder) as place, team(folder, place, lease=LEASE) as crew:
        leader = crew.start(newer)
        run = crew.post(plan_for("clerk", 20))
        crew.must_come(lambda: crew.count("ready", run) == 20, "the tasks did not begin")
        older = crew.start()
        leader.send(signal.SIGKILL)
        refused = f"run_not_taken_over run={run}"
        crew.verdict.fired += crew.must_come(lambda: older.says(refused), "it was not refused")
        crew.verdict.must(older.says("upgrade chargehand"), f"it said {older.words[-500:]}")
        crew.verdict.must(len(crew.leaders(run)) == 1, "the older version has led it")
        other = crew.post(plan_for("porter", 2))
        crew.must_come(lambda: crew.has_ended(other), "it serves nothing else any more")
        crew.start(newer)
        crew.go()
        crew.must_come(lambda: crew.has_ended(run), "the newer version did not go on")
        _check_all_newer(place, run, crew.verdict)
        check_effects(crew.tail.look(), crew.verdict)
        return crew.verdict


def _newer_version(folder: Path) -> Path:
    """The package as a newer version may be: its events are of version 2."""
    made = folder / "newer"
    package = Path(ch.__file__).parent
    shutil.copytree(package, made / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    events = made / package.name / "facts" / "events.py"
    text = events.read_text("utf-8")
    for old, new in (
        ("\nVERSION = 1\n", "\nVERSION = 2\n"),
        ("[[bytes], bytes]] = {}", "[[bytes], bytes]] = {1: bytes}"),
    ):
        assert text.count(old) == 1, f"{old!r} is not in facts/events.py any more"
        text = text.replace(old, new)
    events.write_text(text, "utf-8")
    return made


def _check_all_newer(place: Database, run: str, verdict: Verdict) -> None:
    """Nothing of the older version is in the run, which it cannot even read."""

    async def read() -> None:
        async with place.opened() as journal:
            try:
                [entry async for entry in journal.read(run)]
                verdict.faults.append("the older version can read it")
            except JournalVersion:
                return

    asyncio.run(read())


def _in_flight(crew: Team, count: int, *launches: Launch) -> tuple[str, Member]:
    """A run with all its tasks in flight, each with one effect behind it; and who leads it."""
    for launch in launches or (None, None):
        crew.start(launch)
    run = crew.post(plan_for("clerk", count))
    crew.must_come(lambda: crew.count("ready", run) == count, "the tasks did not begin")
    return run, crew.leader(run)


def _wait(seconds: float) -> None:
    """Let the fault come at another moment each time."""
    time.sleep(seconds)


def _judge(crew: Team, run: str, leader: Member, count: int) -> Runs:
    runs = crew.judge(run)
    effects = crew.count("ran", run)
    crew.verdict.must(effects == 2 * count, f"{effects} effects of {2 * count}")
    nodes = [node for node, _ in crew.leaders(run)]
    crew.verdict.must(len(nodes) <= 2 and nodes[0] == leader.node, f"it was led by {nodes}")
    return runs


def _stale(runs: Runs, run: str, leader: Member) -> int:
    """Entries of the old leader after the first one of another."""
    authors = [entry.author for entry in runs[run]]
    taken = next(place for place, author in enumerate(authors) if author != leader.node)
    return authors[taken:].count(leader.node)


b4_sqlite = functools.partial(b4_trial, kind="sqlite")
b4_postgres = functools.partial(b4_trial, kind="postgres")
h1_sqlite = functools.partial(h1_trial, kind="sqlite")
h1_postgres = functools.partial(h1_trial, kind="postgres")
h2_sqlite = functools.partial(h2_trial, kind="sqlite")
h2_postgres = functools.partial(h2_trial, kind="postgres")
h9_trial = functools.partial(h1_trial, kind="pooled")
h12_sqlite = functools.partial(h12_trial, kind="sqlite")
h12_postgres = functools.partial(h12_trial, kind="postgres")
