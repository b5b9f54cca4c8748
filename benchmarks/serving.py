"""How serving supervisors share posted runs: how evenly, how fast, and that nothing is done twice.

The servers are processes of their own that serve one journal, first in an SQLite file, then in a PostgreSQL server that is
started for this, without a pooler. Each figure is of all runs, from the first post to the last end. The share is that of the
server that led the fewest runs, as a part of what an even share would be.
"""

import argparse
import asyncio
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import fan, noop
from benchmarks.measure import Figure, folder_on_disk, options_for, report
from tests.postgres_server import programs, running_server

import chargehand as ch
from chargehand.facts.events import AttemptFinished, AttemptStarted, RunFinished, RunLed
from chargehand.journal.base import Journal

#: the least part of an even share that each server leads
SHARE = 0.5
#: seconds between two looks at what has ended; looking at every change would slow down the servers
LOOK = 0.1


def supervisor(journal: Journal) -> ch.Supervisor:
    return ch.Supervisor([noop], journal=journal, parallel=100)


async def serve(place: str, namespace: str) -> None:
    """What a server does until SIGTERM."""
    journal = ch.open_journal(place, namespace=namespace)
    boss = supervisor(journal)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(boss.stop(0)))
    await boss.serve()
    await journal.close()


@contextmanager
def servers(place: str, namespace: str, count: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--serve", place, "--namespace", namespace]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for server in started:
            server.send_signal(signal.SIGTERM)
        for server in started:
            server.wait(60)


async def post_and_wait(journal: Journal, count: int, runs: int, tasks: int) -> float:
    """Seconds from the first post to the last end."""
    boss = supervisor(journal)
    while sum(bool(each.offer) for each in await journal.processes.alive()) < count:
        await asyncio.sleep(LOOK)
    start = time.perf_counter()
    await asyncio.gather(*(boss.post(fan(tasks)) for _ in range(runs)))
    while sum(head.is_ended for head in await journal.heads()) < runs:
        await asyncio.sleep(LOOK)
    return time.perf_counter() - start


async def shares(journal: Journal, runs: int, tasks: int) -> Counter[str]:
    """Runs by the process that led them. Fails if a run was led twice, or a task done twice."""
    found: Counter[str] = Counter()
    for head in await journal.heads():
        events = [entry.event async for entry in journal.read(head.stream)]
        (leader,) = (event.node for event in events if isinstance(event, RunLed))
        starts = Counter(event.task for event in events if isinstance(event, AttemptStarted))
        ends = Counter(event.task for event in events if isinstance(event, AttemptFinished))
        assert starts == ends == Counter(f"t{n}" for n in range(tasks)), head.stream
        assert isinstance(events[-1], RunFinished), head.stream
        found[leader] += 1
    assert sum(found.values()) == runs
    return found


async def shared_runs(place: str, count: int, runs: int, tasks: int) -> tuple[float, Counter[str]]:
    """How long the servers take, and how many runs each of them led."""
    namespace = secrets.token_hex(8) if place.startswith("postgresql:") else ""
    journal = ch.open_journal(place, namespace=namespace)
    try:
        with servers(place, namespace, count):
            seconds = await post_and_wait(journal, count, runs, tasks)
        return seconds, await shares(journal, runs, tasks)
    finally:
        await journal.close()


def figures_of(name: str, place: str, options: argparse.Namespace) -> tuple[float, list[Figure]]:
    """The seconds that it took, and the figures."""
    count, runs, tasks = options.servers, options.runs, options.tasks
    seconds, led = asyncio.run(shared_runs(place, count, runs, tasks))
    parts = sorted(led.values(), reverse=True)
    least = min(parts) if len(parts) == count else 0
    title = f"{name}, {count} servers, {runs:,} runs of {tasks}"
    return seconds, [
        Figure(name=f"{title}: runs a second", value=runs / seconds, unit="/s"),
        Figure(name=f"{title}: tasks a second", value=runs * tasks / seconds, unit="/s"),
        Figure(
            name=f"{title}: least share ÷ even share",
            value=least * count / runs,
            bar=SHARE,
            is_floor=True,
            note="led " + ", ".join(str(part) for part in parts) + "; none twice",
        ),
    ]


def measure(options: argparse.Namespace) -> list[Figure]:
    with folder_on_disk() as folder:
        sqlite, figures = figures_of("SQLite", str(folder.resolve() / "runs.db"), options)
    if options.sqlite_only or programs() is None:
        return figures
    with running_server() as server:
        postgres, more = figures_of("PostgreSQL", server.dsn, options)
    ratio = Figure(name="PostgreSQL ÷ SQLite: seconds", value=postgres / sqlite, unit="×")
    return [*figures, *more, ratio]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--tasks", type=int, default=10, help="of each run")
    parser.add_argument("--sqlite-only", action="store_true")
    parser.add_argument("--serve", metavar="PLACE", help=argparse.SUPPRESS)
    parser.add_argument("--namespace", default="", help=argparse.SUPPRESS)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(__doc__, argv, add_options)
    if options.serve:
        asyncio.run(serve(options.serve, options.namespace))
        return 0
    return report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
