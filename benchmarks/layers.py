"""Whether anything waits that need not: layers with stragglers, and many equal calls at once.

The workers only wait, as one does for a model. The layers are three of ten; each task needs the
one above it only, and in each layer another one takes 13 times as long as the rest.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import live_run, warm_up
from benchmarks.measure import Figure, folder_on_disk, options_for, report

import chargehand as ch

#: so that an engine with barriers between layers takes 2.6 times the critical path
LAYERS, COLUMNS, STRAGGLING = 3, 10, 13
PATH_BAR = 1.15


def layered(call: float) -> ch.Plan:
    tasks = [
        _call(
            f"l{layer}c{column}",
            call * STRAGGLING if column == layer else call,
            [f"l{layer - 1}c{column}"] if layer else [],
        )
        for layer in range(LAYERS)
        for column in range(COLUMNS)
    ]
    return ch.Plan(goal="go through the layers", tasks=tasks)


def equal_calls(count: int, call: float) -> ch.Plan:
    return ch.Plan(goal="call them all", tasks=[_call(f"t{n}", call) for n in range(count)])


def _call(id_: str, seconds: float, needs: Sequence[str] = ()) -> ch.Task:
    return ch.Task(
        id=id_,
        description=f"Wait {seconds} s",
        worker="sleeper",
        needs=needs,
        args={"seconds": seconds},
    )


async def measure(call: float, counts: Sequence[int]) -> list[Figure]:
    await warm_up()
    figures = []
    critical_path = call * (STRAGGLING + LAYERS - 1)
    with folder_on_disk() as folder:
        plan = layered(call)
        taken = await live_run(plan, folder / "layers.db", LAYERS * COLUMNS)
        figures.append(
            Figure(
                name="three layers of ten with stragglers ÷ critical path",
                value=taken.wall / critical_path,
                bar=PATH_BAR,
                note=f"with barriers: {LAYERS * STRAGGLING * call / critical_path:.1f}",
            )
        )
        for count in counts:
            taken = await live_run(equal_calls(count, call), folder / f"{count}.db", count)
            figures.append(
                Figure(
                    name=f"{count:,} calls of {call * 1000:g} ms at once",
                    value=taken.wall * 1000,
                    unit="ms",
                    bar=1.1 * call * 1000 + count,
                )
            )
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--call", type=float, default=0.05, help="seconds that a call takes")
        parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 1_000], metavar="N")

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(measure(options.call, options.counts)), options)


if __name__ == "__main__":
    sys.exit(main())
