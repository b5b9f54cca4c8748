"""What a task costs in memory: the resident size after small and large runs, each in a new process."""

import argparse
import asyncio
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import fan, noop, warm_up
from benchmarks.measure import (
    Figure,
    folder_on_disk,
    in_fresh_process,
    options_for,
    report,
    resident_bytes,
)

import chargehand as ch

#: kB a task
BAR = 4.0


async def held_by_a_run(size: int, *, is_durable: bool) -> dict[str, int]:
    """Bytes held while the plan and the result of a run are still there, and at the most before."""
    await warm_up()
    with folder_on_disk() as folder:
        boss = ch.Supervisor(
            [noop],
            journal=folder / "runs.db" if is_durable else None,
            limits=ch.Limits(tasks=size, parallel=1_000),
            parallel=1_000,
        )
        async with boss:
            plan = fan(size)
            result = await boss.run(plan)
            assert result.status == "succeeded", result.status
            now = resident_bytes()
    unit = 1 if sys.platform == "darwin" else 1024
    return {"now": now, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def measure(small: int, large: int) -> list[Figure]:
    figures = []
    for journal in ("memory", "durable"):
        low, high = (
            in_fresh_process(__file__, "--one", str(size), "--journal", journal)
            for size in (small, large)
        )
        for kind, words in (("now", "after the run"), ("peak", "at the most")):
            figures.append(
                Figure(
                    name=f"{journal}: growth a task, {words}",
                    value=(high[kind] - low[kind]) / (large - small) / 1000,
                    unit="kB",
                    bar=BAR,
                    note=f"{low[kind] / 1e6:.0f} → {high[kind] / 1e6:.0f} MB, "
                    f"{small:,} → {large:,} tasks",
                )
            )
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--sizes", type=int, nargs=2, default=[10_000, 100_000], metavar="N")
        parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
        parser.add_argument("--journal", default="memory", help=argparse.SUPPRESS)

    options = options_for(__doc__, argv, add)
    if options.one:
        is_durable = options.journal == "durable"
        print(json.dumps(asyncio.run(held_by_a_run(options.one, is_durable=is_durable))))
        return 0
    return report(measure(*options.sizes), options)


if __name__ == "__main__":
    sys.exit(main())
