"""What a wide fan-in costs: thousands of no-op tasks, and one that needs the outputs of all of them."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import bare, fan, fan_in, live_run, warm_up
from benchmarks.measure import Figure, folder_on_disk, options_for, report


async def measure(size: int) -> list[Figure]:
    """The cost of a task, beside that of the same tasks with nobody waiting for them."""
    await warm_up()
    figures = []
    least = (await bare(size)).cpu
    with folder_on_disk() as folder:
        for journal, is_durable in (("memory", False), ("durable", True)):
            alone = await live_run(fan(size), folder / "alone.db" if is_durable else None, 1_000)
            joined = await live_run(
                fan_in(size), folder / "joined.db" if is_durable else None, 1_000
            )
            name = f"{journal}, {size:,} → 1"
            figures += [
                Figure(
                    name=f"{name}: CPU a task",
                    value=joined.cpu / size * 1000,
                    unit="ms",
                    ratio=joined.cpu / least,
                ),
                Figure(name=f"{name}: fan-in ÷ fan-out", value=joined.cpu / alone.cpu),
            ]
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=10_000, metavar="N")

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(measure(options.size)), options)


if __name__ == "__main__":
    sys.exit(main())
