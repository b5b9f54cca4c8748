"""The workers and the shapes of plans that the benchmarks of the running engine share."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import Sample, sampled

import chargehand as ch


@ch.worker("noop", "Does nothing")
async def noop(_: ch.Brief) -> None:
    pass


@ch.worker("sleeper", "Waits as long as its task says, like a call to a model")
async def sleeper(brief: ch.Brief) -> None:
    await asyncio.sleep(brief.task.args["seconds"])


def task(id_: str, needs: Sequence[str] = (), *, worker: str = "noop") -> ch.Task:
    return ch.Task(id=id_, description="Do nothing at all", worker=worker, needs=needs)


def fan(size: int) -> ch.Plan:
    """Tasks that need nothing."""
    return ch.Plan(goal="fan out", tasks=[task(f"t{n}") for n in range(size)])


def chain(links: int) -> ch.Plan:
    """Tasks that each need the one before."""
    tasks = [task(f"t{n}", [f"t{n - 1}"] if n else []) for n in range(links)]
    return ch.Plan(goal="go link by link", tasks=tasks)


def fan_in(size: int, *, last: str = "noop") -> ch.Plan:
    """Tasks that need nothing, and one of worker `last` that needs them all."""
    sources = [task(f"t{n}") for n in range(size)]
    sink = task("all", [source.id for source in sources], worker=last)
    return ch.Plan(goal="fan in", tasks=[*sources, sink])


async def live_run(plan: ch.Plan, journal: Path | str | None, parallel: int = 100) -> Sample:
    """What `Supervisor.run` takes for this plan; opening and closing the journal is not counted."""
    limits = ch.Limits(tasks=max(len(plan.tasks), 1), parallel=parallel)
    boss = ch.Supervisor([noop, sleeper], journal=journal, limits=limits, parallel=parallel)
    async with boss:
        sample, result = await sampled(lambda: boss.run(plan))
    assert result.status == "succeeded", result.status
    return sample


async def bare(size: int) -> Sample:
    """What bare asyncio takes for as many no-op tasks: the least that any engine on it can take."""

    async def nothing() -> None:
        pass

    async def run() -> None:
        await asyncio.gather(*[asyncio.create_task(nothing()) for _ in range(size)])

    return (await sampled(run))[0]


async def warm_up() -> None:
    """Import what is imported late, so that it is not measured."""
    await live_run(fan(10), None)
