"""What an item of a task with `for_each` costs, next to plain tasks that do the same."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import (
    Figure,
    Sample,
    folder_on_disk,
    middle,
    options_for,
    report,
    sampled,
)

import chargehand as ch


@ch.worker("lister", "Lists numbers")
async def lister(brief: ch.Brief) -> list[int]:
    return list(range(brief.args["size"]))


@ch.worker("noop", "Does nothing")
async def noop(_: ch.Brief) -> None:
    return None


def plans(size: int) -> tuple[ch.Plan, ch.Plan]:
    """The same work as plain tasks, and as items of one task."""
    first = ch.Task(id="list", description="List them", worker="lister", args={"size": size})
    words = "Do nothing for one of them"
    plain = [
        ch.Task(id=f"t{number}", description=words, worker="noop", needs=["list"])
        for number in range(size)
    ]
    mapped = ch.Task(id="each", description=words, worker="noop", for_each="list")
    return (
        ch.Plan(goal="Do nothing", tasks=[first, *plain]),
        ch.Plan(goal="Do nothing", tasks=[first, mapped]),
    )


async def measure(size: int, repeats: int) -> list[Figure]:
    figures = []
    limits = ch.Limits(tasks=size + 1, items=size)
    with folder_on_disk() as folder:
        for name, journal in (("memory", None), ("durable", folder / "runs.db")):
            samples: tuple[list[Sample], list[Sample]] = ([], [])
            async with ch.Supervisor([lister, noop], journal=journal, limits=limits) as boss:
                for _ in range(repeats):  # in turn, so that a noisy moment falls on both alike
                    for plan, taken in zip(plans(size), samples, strict=True):
                        taken.append((await sampled(partial(boss.run, plan)))[0])
            plain, each = (middle(taken).cpu for taken in samples)
            what = f"{name}, {size:,}"
            figures += [
                Figure(name=f"{what} items: CPU an item", value=each / size * 1e3, unit="ms"),
                Figure(name=f"{what}: item ÷ plain task", value=each / plain, bar=1.2),
            ]
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--size", type=int, default=5_000, metavar="N")
        parser.add_argument("--repeats", type=int, default=5)

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(measure(options.size, options.repeats)), options)


if __name__ == "__main__":
    sys.exit(main())
