"""Live streams: what 500 readers of one run cost the runs themselves, one of them slow.

`python benchmarks/sse.py` leads chains of tasks without a reader, then with 500 streams in another process, of which
one reads nothing. It compares the dispatch latency (from the moment when a task's needs are met to its start), the
memory, and the time from a stop to the end of the last stream.
"""

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, options_for, report

import chargehand as ch
from chargehand.server.http.web_server import WebOptions, WebServer

CHAINS, LENGTH = 20, 100
#: seconds that a link of the first chain takes, and how much longer one of each next chain does: if all ended at once,
#: one pause would delay them all, and a hundredth of them would say nothing
WORK, LATER = 0.02, 0.001
MOST_RATIO, MOST_P99, MOST_STOP, MOST_MEMORY = 2.0, 0.050, 0.5, 128.0

READERS = """
import asyncio, sys, time
port, token, run, count = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

async def read(slow):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    head = f"GET /api/v1/runs/{run}/events HTTP/1.1\\r\\nHost: localhost\\r\\nAuthorization: Bearer {token}\\r\\n\\r\\n"
    writer.write(head.encode())
    first = await reader.read(65536)
    assert b" 200 " in first, first
    if slow:
        await asyncio.sleep(3600)
    last = b""
    while data := await reader.read(65536):
        last = (last + data)[-200:]
        if b"event: bye" in last:
            return time.time()
    return 0

async def main():
    slow = asyncio.ensure_future(read(True))
    tasks = [asyncio.ensure_future(read(False)) for _ in range(count - 1)]
    print("ready", flush=True)
    ends = await asyncio.gather(*tasks)
    print(sum(map(bool, ends)), max(ends), flush=True)
    slow.cancel()

asyncio.run(main())
"""


@ch.worker("worker", "Works for a moment")
async def worker(brief: ch.Brief) -> str:
    chain = int(brief.task.id.partition(".")[0][1:])
    await asyncio.sleep(WORK + chain * LATER)
    return brief.task.id * 20


@ch.worker("sitter", "Keeps the run open")
async def sitter(brief: ch.Brief) -> str:
    await brief.ask("Go on?")
    return "gone on"


def chains() -> ch.Plan:
    """Chains of tasks that begin once a person says so, and a task that keeps the run open after them."""
    tasks = [
        ch.Task(
            id=f"c{chain}.{link}",
            description=f"Work on link {link} of chain {chain}",
            worker="worker",
            needs=[f"c{chain}.{link - 1}" if link else "begin"],
        )
        for chain in range(CHAINS)
        for link in range(LENGTH)
    ]
    begin = ch.Task(id="begin", description="Ask whether to begin", worker="sitter")
    end = ch.Task(id="end", description="Ask whether to end", worker="sitter", needs=["begin"])
    return ch.Plan(goal="Chains", tasks=[begin, *tasks, end])


async def begun(boss: ch.Supervisor, run: str) -> None:
    """Have the chains of a run begin."""
    while not (asked := (await boss.look(run)).questions):
        await asyncio.sleep(0.01)
    await boss.answer(asked[0].id, "yes")


async def latencies(boss: ch.Supervisor, run: str) -> list[float]:
    """Seconds from the end of each link to the start of the next, once all links are done."""
    signal = boss.journal.boards.signal
    ends: dict[str, float] = {}
    found: list[float] = []
    count, seq = 0, 0
    while count < CHAINS * LENGTH:
        known = signal.count
        async for entry in boss.journal.read(run, seq):
            seq, event = entry.seq, entry.event
            if isinstance(event, ch.events.AttemptFinished):
                ends[event.task] = event.at.timestamp()
                count += 1
            elif isinstance(event, ch.events.AttemptStarted) and "." in event.task:
                chain, _, link = event.task.partition(".")
                before = ends.get(f"{chain}.{int(link) - 1}")
                if before is not None:
                    found.append(event.at.timestamp() - before)
        await signal.wait(since=known)
    return found


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def memory() -> float:
    """Megabytes of this process at their most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measured(folder: Path, streams: int) -> list[Figure]:
    limits = ch.Limits(tasks=CHAINS * LENGTH + 2)
    boss = ch.Supervisor([worker, sitter], journal=folder / "runs.db", parallel=64, limits=limits)
    web = WebServer(boss, WebOptions(port=0, token_file=str(folder / "tokens.json")))
    serving = asyncio.ensure_future(boss.serve())
    listening = asyncio.ensure_future(web.run())
    unwatched = (await boss.submit(chains())).id
    await begun(boss, unwatched)
    alone = p99(await latencies(boss, unwatched))
    before = memory()
    port, token = web.url.rpartition(":")[2].strip("/"), web.owner.token if web.owner else ""
    run = (await boss.submit(chains())).id
    command = [sys.executable, "-c", READERS, port, token, run, str(streams)]
    readers = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert readers.stdout is not None
    await readers.stdout.readline()
    while web.api.streams.count < streams:
        await asyncio.sleep(0.05)
    await begun(boss, run)
    crowded = p99(await latencies(boss, run))
    grown = memory() - before
    began = time.time()
    web.stop()
    byes, last_at = (await readers.stdout.readline()).decode().split()
    stopped = float(last_at) - began
    await readers.wait()
    await listening
    await boss.stop(0)
    await serving
    await boss.close()
    ratio = crowded / max(alone, 0.001)  # below a millisecond there is nothing to compare
    heard = f"{byes} of {streams - 1} heard the good-bye"
    return [
        Figure(name="dispatch p99 without a reader", value=alone * 1e3, unit="ms"),
        Figure(
            name=f"dispatch p99 with {streams} streams",
            value=crowded * 1e3,
            unit="ms",
            bar=MOST_P99 * 1e3,
        ),
        Figure(
            name="with streams ÷ without, counted from 1 ms", value=ratio, unit="×", bar=MOST_RATIO
        ),
        Figure(name="memory of the server", value=grown, unit="MB", bar=MOST_MEMORY),
        Figure(
            name="from the stop to the last good-bye",
            value=stopped,
            unit="s",
            bar=MOST_STOP,
            note=heard,
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(
        __doc__, argv, lambda parser: parser.add_argument("--streams", type=int, default=500)
    )
    with tempfile.TemporaryDirectory() as folder:
        return report(asyncio.run(measured(Path(folder), options.streams)), options)


if __name__ == "__main__":
    sys.exit(main())
