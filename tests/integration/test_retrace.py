"""The simulator is held to what happens: finished runs, simulated with their real lengths."""

import asyncio
import json
from datetime import timedelta
from random import Random

import pytest

import chargehand as ch
from chargehand.decisions.dispatch import Place
from chargehand.decisions.past_run_simulation import PastRunSimulation, retrace
from chargehand.errors import UsageError
from chargehand.facts.events import Event
from chargehand.journal.memory import MemoryJournal
from chargehand.testing import FakeClock, run_virtual

ALLOWED = 0.001


async def toil(brief: ch.Brief) -> str:
    """Take the seconds that the task says; fail as often as it says."""
    await asyncio.sleep(float(brief.task.args["seconds"]))
    if brief.attempt <= int(brief.task.args.get("failures", 0)):
        raise ConnectionError("the line is dead")
    if brief.task.args.get("broken"):
        raise ValueError("this cannot be done")
    return "done"


CREW = [
    ch.worker("lone", "Does one thing at a time", capacity=1)(toil),
    ch.worker("pair", "Does two things at a time", capacity=2, skills=["sums"])(toil),
    ch.worker("other", "Does three things at a time", capacity=3, skills=["sums"])(toil),
]
PLACES = [worker.place for worker in CREW]


def drawn_plan(dice: Random, tasks: int) -> ch.Plan:
    """Tasks for all of the crew, some that fail at first, some for good, some needs optional."""
    drawn = []
    for number in range(tasks):
        earlier = dice.sample(range(number), min(number, dice.choice((0, 1, 1, 2, 3))))
        skilled = dice.random() < 0.3
        drawn.append(
            ch.Task(
                id=f"t{number}",
                description=f"Produce the result of t{number}",
                worker="" if skilled else dice.choice(("lone", "pair", "other")),
                skill="sums" if skilled else "",
                needs=[ch.Need(f"t{need}", optional=dice.random() < 0.4) for need in earlier],
                optional=dice.random() < 0.2,
                priority=dice.choice((0, 0, 0, 2)),
                args={
                    "seconds": round(dice.lognormvariate(1, 0.8), 3),
                    "failures": dice.choice((0, 0, 0, 1, 2)),
                    "broken": dice.random() < 0.05,
                },
            )
        )
    return ch.Plan(goal="See what becomes of it", tasks=drawn)


async def events_in(journal: MemoryJournal) -> list[list[Event]]:
    heads = await journal.heads()
    return [[entry.event async for entry in journal.read(head.stream)] for head in heads]


def led_then_retraced(seed: int) -> PastRunSimulation:
    """One to three runs on one pool of a few places, then the same in the simulator."""
    dice = Random(seed)
    parallel = dice.choice((1, 2, 3, 4, 6))
    plans = [drawn_plan(dice, dice.randint(3, 25)) for _ in range(dice.choice((1, 1, 2, 3)))]

    async def main() -> list[list[Event]]:
        journal = MemoryJournal()
        async with ch.Supervisor(
            CREW, journal=journal, parallel=parallel, clock=FakeClock()
        ) as boss:
            runs = []
            for plan in plans:
                runs.append(await boss.submit(plan, priority=dice.choice((0, 0, 1))))
                await asyncio.sleep(dice.random() * 5)
            for run in runs:
                await run.wait()
            return await events_in(journal)

    return retrace(run_virtual(main()), PLACES, parallel=parallel)


@pytest.mark.parametrize("seed", range(25))
def test_a_run_retraced_takes_as_long_as_it_took(seed: int) -> None:
    assert led_then_retraced(seed).ratio == pytest.approx(1, abs=ALLOWED)


def test_a_request_in_words_is_retraced_with_its_planning_and_its_answer() -> None:
    tasks = [
        {"id": "t1", "worker": "slow", "needs": [], "description": "Measure the first tower"},
        {"id": "t2", "worker": "slow", "needs": ["t1"], "description": "Measure the second tower"},
    ]
    told = [{**task, "accept": "", "optional": False} for task in tasks]
    script = {"goal": "", "instruction": "", "strategy": "merge", "tasks": told}

    @ch.worker("slow", "Measures towers")
    async def slow(brief: ch.Brief) -> str:
        await asyncio.sleep(2)
        return "324 m"

    async def main() -> list[list[Event]]:
        journal = MemoryJournal()
        mind = ch.ScriptedModel(
            [json.dumps(script), "Both. [t1] [t2]\nCONFIDENCE: 0.9"], latency=timedelta(seconds=3)
        )
        async with ch.Supervisor([slow], model=mind, journal=journal, clock=FakeClock()) as boss:
            result = await boss.run("How high are the towers?", approach="whole")
            assert result.status == "succeeded"
            return await events_in(journal)

    retraced = retrace(run_virtual(main()), [slow.place], parallel=4)
    assert retraced.happened >= timedelta(seconds=10)
    assert retraced.ratio == pytest.approx(1, abs=ALLOWED)
    assert [span.task for span in retraced.simulation.spans] == ["@plan", "t1", "t2", "@answer"]


async def test_a_run_on_the_real_clock_is_retraced_as_well() -> None:
    journal = MemoryJournal()
    tasks = [
        ch.Task(
            id=f"t{n}",
            description=f"Produce the result of t{n}",
            worker="other",
            needs=[f"t{n - 3}"] if n > 2 else [],
            args={"seconds": 0.02 + n % 3 / 100},
        )
        for n in range(9)
    ]
    async with ch.Supervisor(CREW, journal=journal, parallel=2) as boss:
        await boss.run(ch.Plan(goal="Take a moment", tasks=tasks))
    retraced = retrace(await events_in(journal), PLACES, parallel=2)
    # Not held to 5 %: how late a busy machine wakes us is no work of the simulator's.
    assert 0.5 < retraced.ratio <= 1 + ALLOWED


def test_what_a_larger_pool_would_have_given_can_be_seen() -> None:
    tasks = [
        ch.Task(id=f"t{n}", description="Sum it up", worker="other", args={"seconds": 5})
        for n in range(3)
    ]

    async def main() -> list[list[Event]]:
        journal = MemoryJournal()
        async with ch.Supervisor(CREW, journal=journal, parallel=1, clock=FakeClock()) as boss:
            await boss.run(ch.Plan(goal="Sum up", tasks=tasks))
            return await events_in(journal)

    assert retrace(run_virtual(main()), PLACES, parallel=3).ratio == pytest.approx(1 / 3, abs=0.01)


def test_what_has_not_ended_cannot_be_retraced() -> None:
    place = Place(worker="anybody")
    with pytest.raises(UsageError, match="no run"):
        retrace([], [place], parallel=1)
    with pytest.raises(UsageError, match="has ended"):
        retrace([[]], [place], parallel=1)
