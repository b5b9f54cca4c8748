"""A client whose run is made of waits: timeouts, retries and a deadline. Started by `times.py`."""

import asyncio
import logging
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec

import chargehand as ch
from chargehand.facts.events import KINDS, encode

from .client import Log

SHORT = timedelta(seconds=0.2)


@ch.worker("slow", "Takes longer than it may", timeout=timedelta(seconds=0.3))
async def slow(brief: ch.Brief) -> None:
    await asyncio.sleep(30)


@ch.worker("shaky", "Is refused by the network twice")
async def shaky(brief: ch.Brief) -> int:
    if brief.attempt < 3:
        raise ConnectionError("the other side hung up")
    return brief.attempt


@ch.worker("patient", "Is told to come back in an hour")
async def patient(brief: ch.Brief) -> str:
    if brief.attempt == 1:
        raise ch.WorkerError("quota used up", kind="resource", retry_after=timedelta(hours=1))
    return "done"


@ch.worker("late", "Never ends by itself")
async def late(brief: ch.Brief) -> None:
    await asyncio.sleep(600)


def task(id_: str, *needs: str, deadline: float | None = None) -> ch.Task:
    return ch.Task(
        id=id_,
        description="Wait for the test",
        worker=id_.split("-")[0],
        needs=needs,
        deadline=None if deadline is None else timedelta(seconds=deadline),
    )


PLANS = {
    "short": [task("shaky"), task("slow"), task("shaky-2", "shaky"), task("late", deadline=1.2)],
    "long": [task("patient"), task("shaky")],
}


class SteadyLog(Log):
    """Notes the steady clock and the wall clock with every event."""

    def acknowledge(self, run: str, event: ch.Event) -> None:
        ack = msgspec.Raw(encode(event))
        self.add(run=run, ack=ack, steady=time.monotonic(), wall=time.time())


async def main(folder: Path, kind: str) -> None:
    log = SteadyLog(folder / "log")
    boss = ch.Supervisor(
        [slow, shaky, patient, late],
        journal=folder / "runs.db",
        retry=ch.RetryPolicy(first=SHORT, cap=2 * SHORT),
        limits=ch.Limits(attempts=3, active=timedelta(days=3)),
    )
    boss.on(*KINDS.values())(log.acknowledge)
    log.add(steady=time.monotonic())
    async with boss:
        await boss.run(ch.Plan(goal=kind, tasks=PLANS[kind]), key=kind)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
