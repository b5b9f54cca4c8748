"""What the engine costs: no-op tasks that need nothing, from 100 to 100,000 of them.

Beside it, in the same run: bare asyncio, which only makes the tasks and gathers them; and a bare
loop that also writes two events a task in a hash chain, group commit, flushed: the least that a
durable engine can cost. Where PostgreSQL is installed, 10,000 tasks are also led on a server that is started for this,
without a pooler.
"""

import argparse
import asyncio
import hashlib
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import apsw
import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import bare, fan, live_run, warm_up
from benchmarks.measure import (
    Figure,
    Sample,
    folder_on_disk,
    middle,
    options_for,
    report,
    sampled,
)
from tests.postgres_server import programs, running_server

JOURNALS = ("memory", "durable")
POSTGRES = "PostgreSQL"
#: the size that the bars are of
HELD_AT = 10_000
CPU_BARS = {"memory": 0.03, "durable": 0.06, POSTGRES: 0.15}
RATE_BARS = {"durable": 12_000, POSTGRES: 3_000}
FLAT_BAR = 1.3


async def measure(sizes: Sequence[int], rounds: int, parallel: int) -> list[Figure]:
    """All figures, each the median over all rounds."""
    await warm_up()
    taken = await _samples(sizes, rounds, parallel)
    figures = []
    cpu: dict[tuple[str, int], float] = {}
    for size in sizes:
        least = taken["bare", size].cpu
        figures.append(_cpu_figure("bare asyncio", size, taken["bare", size], None))
        for journal in JOURNALS:
            cpu[journal, size] = taken[journal, size].cpu / size
            figures += _figures_of(journal, size, taken[journal, size], least)
    if (POSTGRES, HELD_AT) in taken:
        least = taken["bare", HELD_AT].cpu
        figures += _figures_of(POSTGRES, HELD_AT, taken[POSTGRES, HELD_AT], least)
    reference = taken["reference", HELD_AT]
    figures.append(_cpu_figure("bare loop, two events a task, FULL", HELD_AT, reference, None))
    if {1_000, 100_000} <= set(sizes):
        figures += [
            Figure(
                name=f"{journal}: cost of a task, 100,000 ÷ 1,000",
                value=cpu[journal, 100_000] / cpu[journal, 1_000],
                bar=FLAT_BAR,
            )
            for journal in JOURNALS
        ]
    return figures


async def _samples(
    sizes: Sequence[int], rounds: int, parallel: int
) -> dict[tuple[str, int], Sample]:
    """Everything takes turns with everything else, so that a noisy minute falls on all alike."""
    taken: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
    with ExitStack() as open_servers:
        has_postgres = HELD_AT in sizes and programs() is not None
        server = open_servers.enter_context(running_server()) if has_postgres else None
        for _ in range(rounds):
            folder = open_servers.enter_context(folder_on_disk())
            reference = folder / "reference.db"
            taken["reference", HELD_AT].append(await group_commit_loop(HELD_AT, reference))
            for size in sizes:
                plan = fan(size)
                for turn in range(max(1, min(10, HELD_AT // size))):
                    journal = folder / f"{size}-{turn}.db"
                    taken["bare", size].append(await bare(size))
                    taken["memory", size].append(await live_run(plan, None, parallel))
                    taken["durable", size].append(await live_run(plan, journal, parallel))
            if server is not None:
                plan = fan(HELD_AT)
                taken[POSTGRES, HELD_AT].append(await live_run(plan, server.dsn, parallel))
    return {what: middle(samples) for what, samples in taken.items()}


def _figures_of(journal: str, size: int, taken: Sample, least: float) -> list[Figure]:
    is_held = size == HELD_AT
    rate = Figure(
        name=f"{journal}, {size:,} tasks: tasks a second",
        value=size / taken.wall,
        bar=RATE_BARS.get(journal) if is_held else None,
        is_floor=True,
    )
    bar = CPU_BARS[journal] if is_held else None
    return [_cpu_figure(journal, size, taken, bar, taken.cpu / least), rate]


def _cpu_figure(
    who: str, size: int, taken: Sample, bar: float | None, ratio: float | None = None
) -> Figure:
    return Figure(
        name=f"{who}, {size:,} tasks: CPU a task",
        value=taken.cpu / size * 1000,
        unit="ms",
        bar=bar,
        ratio=ratio,
    )


async def group_commit_loop(size: int, path: Path) -> Sample:
    """As many no-op tasks on bare asyncio, two chained events each, whatever has come in per flush."""
    database = apsw.Connection(str(path))
    database.pragma("journal_mode", "wal")
    database.pragma("synchronous", "full")
    database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, hash BLOB, payload BLOB)")
    try:
        return (await sampled(lambda: _start_and_write(size, database)))[0]
    finally:
        database.close()


async def _start_and_write(size: int, database: apsw.Connection) -> None:
    encode = msgspec.json.Encoder().encode
    ended: list[str] = []
    previous = b""
    seq = 0

    async def work(name: str) -> None:
        ended.append(name)

    def write(kind: str, names: Sequence[str]) -> None:
        nonlocal previous, seq
        rows = []
        for name in names:
            payload = encode({"kind": kind, "task": name, "at": time.time()})
            previous = hashlib.blake2b(previous + payload, digest_size=16).digest()
            seq += 1
            rows.append((seq, previous, payload))
        with database:
            database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)

    for start in range(0, size, 1_000):
        names = [f"t{n}" for n in range(start, min(start + 1_000, size))]
        write("started", names)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(work(name))
        write("finished", ended)
        ended.clear()


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--sizes", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000], metavar="N"
        )
        parser.add_argument("--rounds", type=int, default=5, help="small sizes: ten times a round")
        parser.add_argument("--parallel", type=int, default=1_000, help="places in the pool")

    options = options_for(__doc__, argv, add)
    figures = asyncio.run(measure(options.sizes, options.rounds, options.parallel))
    return report(figures, options)


if __name__ == "__main__":
    sys.exit(main())
