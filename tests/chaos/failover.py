"""H1, H2: the leader of a run is killed, or frozen past its lease and woken; another goes on with the run."""

import functools
import random
import signal
import time
from pathlib import Path

from .databases import database
from .oracle import Runs, Verdict
from .team import Member, Team, plan_for, team

#: seconds
LEASE = 1.0
#: tasks in flight
COUNT = 200


def h1_trial(seed: int, folder: Path, kind: str) -> Verdict:
    """The leader is killed with 200 tasks in flight: a standby continues within lease + 1 s."""
    rng = random.Random(f"H1 {kind} {seed}")
    folder.mkdir(parents=True)
    with database(kind, folder) as place, team(folder, place, lease=LEASE) as crew:
        run, leader = _in_flight(crew)
        _wait(rng.uniform(0.0, LEASE))  # at any moment between two renewals
        leader.send(signal.SIGKILL)
        killed_at = time.monotonic()
        crew.verdict.fired += 1
        crew.must_come(lambda: len(crew.leaders(run)) > 1, "no standby took over")
        crew.go()
        crew.must_come(lambda: crew.has_ended(run), "the run did not end")
        _judge(crew, run, leader)
        taken = crew.leaders(run)[-1][1] - killed_at
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
        run, leader = _in_flight(crew)
        if moment == "before":
            crew.go()
            _wait(rng.uniform(0.0, 0.06))  # all effects together take about 0.1 s
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
        runs = _judge(crew, run, leader)
        stale = _stale(runs, run, leader) if is_taken else 0
        crew.verdict.figures["stale_accepted"] = stale
        crew.verdict.must(not stale, f"{stale} stale appends were accepted")
        return crew.verdict


def _in_flight(crew: Team) -> tuple[str, Member]:
    """A run with all its tasks in flight, each with one effect behind it; and who leads it."""
    crew.start()
    crew.start()
    run = crew.post(plan_for("clerk", COUNT))
    crew.must_come(lambda: crew.count("ready", run) == COUNT, "the tasks did not begin")
    return run, crew.leader(run)


def _wait(seconds: float) -> None:
    """Let the fault come at another moment each time."""
    time.sleep(seconds)


def _judge(crew: Team, run: str, leader: Member) -> Runs:
    runs = crew.judge(run)
    effects = crew.count("ran", run)
    crew.verdict.must(effects == 2 * COUNT, f"{effects} effects of {2 * COUNT}")
    nodes = [node for node, _ in crew.leaders(run)]
    crew.verdict.must(len(nodes) <= 2 and nodes[0] == leader.node, f"it was led by {nodes}")
    return runs


def _stale(runs: Runs, run: str, leader: Member) -> int:
    """Entries of the old leader after the first one of another."""
    authors = [entry.author for entry in runs[run]]
    taken = next(place for place, author in enumerate(authors) if author != leader.node)
    return authors[taken:].count(leader.node)


h1_sqlite = functools.partial(h1_trial, kind="sqlite")
h1_postgres = functools.partial(h1_trial, kind="postgres")
h2_sqlite = functools.partial(h2_trial, kind="sqlite")
h2_postgres = functools.partial(h2_trial, kind="postgres")
