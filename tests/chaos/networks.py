"""H3, H11: links between supervisors and their database are cut, and healed, in network namespaces.

The database listens on TCP inside a namespace that is made here, and each supervisor has one of its own,
with one link to it. The trial itself reaches the database through its Unix socket, over no link.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.postgres_server import programs, server_in

from .databases import Database
from .kills import ROOT, Life
from .needs import Needs, require
from .oracle import Verdict
from .team import Launch, Member, Team, plan_for, team

LEASE = 1.0
TASKS = 200
PREFIX = "chargehand"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A namespace for the database and one for each of several nodes, each with a link to it."""

    def __init__(self, nodes: int) -> None:
        self._name = f"{PREFIX}-{os.getpid()}"
        self.database = f"{self._name}-db"
        self.nodes = [f"{self._name}-{number}" for number in range(nodes)]
        for space in (self.database, *self.nodes):
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for number, space in enumerate(self.nodes):
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", f"v{number}")
            ip("-n", space, "link", "set", f"v{number}", "netns", self.database)
            ip("-n", space, "addr", "add", f"10.77.{number}.2/30", "dev", "eth0")
            ip("-n", self.database, "addr", "add", f"10.77.{number}.1/30", "dev", f"v{number}")
            ip("-n", space, "link", "set", "eth0", "up")
            self.heal(number)

    def cut(self, node: int) -> None:
        """Nothing gets through any more, and nobody is told."""
        ip("-n", self.database, "link", "set", f"v{node}", "down")

    def heal(self, node: int) -> None:
        ip("-n", self.database, "link", "set", f"v{node}", "up")

    def dsn(self, node: int) -> str:
        return f"postgresql://test@10.77.{node}.1/postgres"

    def inside(self, space: str) -> list[str]:
        """What is put before a command that is to run there."""
        return ["nsenter", f"--net=/run/netns/{space}"]

    def close(self) -> None:
        for space in (*self.nodes, self.database):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """A network while this is open."""
    require("ip")
    require("nsenter")
    if os.geteuid() != 0:
        raise Needs("needs root, to make network namespaces")
    if programs() is None:
        raise Needs("needs PostgreSQL; get it with: apt-get install postgresql")
    _clear_away()
    try:
        made = Network(nodes)
    except subprocess.CalledProcessError as error:
        raise Needs(f"needs network namespaces: {error.stderr.decode().strip()}") from error
    try:
        yield made
    finally:
        made.close()


def _clear_away() -> None:
    """Delete the namespaces of this process, and of those that were killed."""
    for place in Path("/run/netns").glob(f"{PREFIX}-*"):
        pid = place.name.split("-")[1]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            subprocess.run(["ip", "netns", "del", place.name], check=False, capture_output=True)


@contextlib.contextmanager
def distant_team(folder: Path, net: Network) -> Iterator[Team]:
    """One supervisor on each node of a network, and their database."""
    folder.mkdir(parents=True)
    with (
        server_in(net.inside(net.database), "10.77.0.0/16") as server,
        team(folder, Database(server.dsn), lease=LEASE, pause=0.04) as crew,
    ):
        for number, space in enumerate(net.nodes):
            crew.start(_launch_in(net.inside(space)), place=net.dsn(number))
        yield crew


def _launch_in(inside: list[str]) -> Launch:
    """Starts a process that serves in a namespace."""

    def launch(arguments: tuple[str, str], output: Path) -> Life:
        command = [*inside, sys.executable, "-m", "tests.chaos.serving", *arguments]
        with output.open("ab") as told:
            return subprocess.Popen(
                command, cwd=ROOT, stdout=told, stderr=told, start_new_session=True
            )

    return launch


def h3_trial(seed: int, folder: Path) -> Verdict:
    """The leader is cut off: it starts nothing once its lease is over, and serves again when it is healed."""
    rng = random.Random(f"H3 {seed}")
    with network(2) as net, distant_team(folder, net) as crew:
        run = crew.post(plan_for("porter", TASKS), parallel=8)
        wanted = rng.randint(10, 80)
        crew.must_come(lambda: crew.count("began", run) > wanted, "nothing began")
        leader = crew.leader(run)
        place = crew.members.index(leader)
        net.cut(place)
        cut_at = time.monotonic()
        crew.verdict.fired += not crew.has_ended(run)
        crew.must_come(lambda: len(crew.leaders(run)) > 1, "no standby took over")
        time.sleep(rng.uniform(0.0, 2.0))
        net.heal(place)
        crew.must_come(lambda: crew.has_ended(run), "the run did not end")
        taken_at = crew.leaders(run)[-1][1]
        crew.verdict.figures["takeover_s"] = taken_at - cut_at
        _check_dispatches(crew, run, leader, min(cut_at + LEASE, taken_at))
        _check_healed(crew, leader)
        return crew.verdict


def _check_dispatches(crew: Team, run: str, leader: Member, demoted_at: float) -> None:
    late = [
        line["began"]
        for line in crew.tail.lines
        if "began" in line and line["run"] == run and leader.wrote(line) and line["at"] > demoted_at
    ]
    crew.verdict.figures["late_dispatches"] = len(late)
    crew.verdict.must(not late, f"the leader started {late} after it was cut off")


def _check_healed(crew: Team, leader: Member) -> None:
    """Alone, the one that was cut off serves the next run, without help."""
    healed_at = time.monotonic()
    for member in crew.members:
        if member is not leader:
            member.send(signal.SIGKILL)
    run = crew.post(plan_for("porter", 5))
    crew.must_come(lambda: crew.has_ended(run), "it did not serve again")
    crew.verdict.figures["serves_again_s"] = time.monotonic() - healed_at
    crew.judge(*{str(line["run"]) for line in crew.tail.lines if "ended" in line})


def h11_trial(seed: int, folder: Path) -> Verdict:
    """Links are cut one by one until all are, and healed in any order: nothing breaks, and all runs end."""
    rng = random.Random(f"H11 {seed}")
    with network(3) as net, distant_team(folder, net) as crew:
        runs = [crew.post(plan_for("porter", TASKS // 2), parallel=8) for _ in range(3)]
        crew.must_come(lambda: len(crew.leaders(runs[-1])) > 0, "nothing was led")
        for change in (net.cut, net.heal):
            for node in rng.sample(range(3), 3):
                change(node)
                crew.verdict.fired += change == net.cut
                time.sleep(rng.uniform(0.0, 1.0))
        healed_at = time.monotonic()
        crew.must_come(lambda: crew.has_ended(*runs), "the runs did not end", 60.0)
        crew.verdict.figures["ended_s"] = time.monotonic() - healed_at
        crew.judge(*runs)
        return crew.verdict
