"""How soon everything has ended when thousands of runs are cancelled at once, some twice, some as they end.

Of the runs, a third waits for a slot in the pool, a third would run for ever, and a third ends in the
very moment it is cancelled. From the first cancel to the result of the last run.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import warm_up
from benchmarks.measure import Figure, folder_on_disk, options_for, report

import chargehand as ch

BAR = 10.0
#: of so many runs, one is cancelled a second time
TWICE = 10
#: of the event loop, in which whoever was told to stop has done so
TURNS = 1_000


@dataclass
class Aftermath:
    """What was left of it all."""

    cancels: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    #: runs that say one thing and did another
    contradictions: int = 0
    #: attempts that still run
    orphans: int = 0
    #: runs in the journal that have not ended
    unsettled: int = 0


class Crowd:
    """Workers, each held back until it is let go or stopped."""

    def __init__(self, places: int) -> None:
        self.inside = 0
        self.is_full = asyncio.Event()
        self._places = places
        #: by run
        self.gates: dict[str, asyncio.Event] = {}

    async def is_gone(self) -> bool:
        """Whether all have ended, or do so within a few turns of the event loop: they were told to."""
        for _ in range(TURNS):
            if not self.inside:
                break
            await asyncio.sleep(0)
        return not self.inside

    def worker(self) -> ch.FunctionWorker:
        @ch.worker("waiter", "Waits until it is let go")
        async def wait(brief: ch.Brief) -> str:
            self.inside += 1
            gate = self.gates[brief.run] = asyncio.Event()
            if self.inside == self._places:
                self.is_full.set()
            try:
                await gate.wait()
                await asyncio.sleep(0)  # it may still be stopped here
                return "let go"
            finally:
                self.inside -= 1

        return wait


async def storm(journal: Path | None, runs: int, seed: int = 7) -> Aftermath:
    """Submit so many runs, cancel them all and a tenth of them twice, and look at what is left."""
    places = max(1, 2 * runs // 3)
    chance, crowd, after = random.Random(seed), Crowd(places), Aftermath()
    limits = ch.Limits(parallel=runs)
    async with ch.Supervisor(
        [crowd.worker()], journal=journal, parallel=places, limits=limits
    ) as boss:
        task = ch.Task(id="wait", description="Wait until you are let go", worker="waiter")
        plan = ch.Plan(goal="Be cancelled", tasks=[task])
        all_runs = await asyncio.gather(*(boss.submit(plan) for _ in range(runs)))
        await crowd.is_full.wait()
        storming = [*all_runs, *chance.sample(all_runs, runs // TWICE)]
        chance.shuffle(storming)
        after.cancels = len(storming)
        begun_at = time.perf_counter()
        await asyncio.gather(*(_cancel(run, crowd, chance) for run in storming))
        results = await asyncio.gather(*(run.wait() for run in all_runs))
        after.orphans = 0 if await crowd.is_gone() else crowd.inside
        after.seconds = time.perf_counter() - begun_at
        for result in results:
            after.statuses[str(result.status)] += 1
            is_done = result.tasks["wait"].state is ch.TaskState.DONE
            after.contradictions += is_done is not (result.tasks["wait"].output == "let go")
            after.contradictions += result.status == "succeeded" and not is_done
            stored = await boss.look(result.id)
            after.unsettled += stored.status != result.status
    return after


async def _cancel(run: ch.Run, crowd: Crowd, chance: random.Random) -> None:
    """Cancel a run; every other one that is at work is let go in the same moment, before or after."""
    gate = crowd.gates.get(run.id)
    order = chance.randrange(4)
    if gate is not None and order == 0:
        gate.set()
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
    cancelling = asyncio.ensure_future(run.cancel("the storm"))
    if gate is not None and order == 1:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        gate.set()
    await cancelling


def measure(runs: int) -> list[Figure]:
    asyncio.run(warm_up())
    with folder_on_disk() as folder:
        told = [
            ("memory journal", asyncio.run(storm(None, runs))),
            ("durable journal", asyncio.run(storm(folder / "runs.db", runs))),
        ]
    return [
        Figure(
            name=f"{after.cancels:,} cancels until all have ended, {where}",
            value=after.seconds,
            unit="s",
            bar=BAR,
            note=", ".join(f"{count:,} {status}" for status, count in after.statuses.items()),
        )
        for where, after in told
    ]


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--runs", type=int, default=9_100, metavar="N")

    options = options_for(__doc__, argv, add)
    return report(measure(options.runs), options)


if __name__ == "__main__":
    sys.exit(main())
