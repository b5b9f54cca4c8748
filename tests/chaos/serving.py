"""A process that serves a journal, and writes down what it was promised and what it did.

It leads runs that are posted and takes up runs whose leader is gone. `FOLDER/log` has its lines, as
those of the client: one file for all processes of a trial, so that its order is that of what happened.
"""

import asyncio
import logging
import secrets
import sys
import time
from pathlib import Path

import msgspec

import chargehand as ch
from chargehand.facts.events import KINDS, RunFinished, RunLed

from .client import Log


class ServingOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How a process is to serve."""

    #: a file or a DSN
    place: str
    namespace: str = ""
    lease: float = 1.0
    patience: float = 4.0
    #: seconds after each effect of a porter
    pause: float = 0.02


log: Log
folder: Path
pause: float


def has_gone() -> bool:
    return (folder / "go").exists()


def happen(run: str, step: str) -> str:
    """An effect on the world: a line in the log."""
    token = secrets.token_hex(4)
    log.add(run=run, ran=step, token=token, at=time.monotonic())
    return token


@ch.worker("clerk", "Has one effect, waits until the file `go` is there, has another")
async def clerk(brief: ch.Brief) -> str:
    task = brief.task.id
    log.add(run=brief.run, began=task, at=time.monotonic())
    await brief.step("first/once", happen, brief.run, f"{task}/first/once", effect="once")
    log.add(run=brief.run, ready=task)
    await going.wait()
    await brief.step("second/once", happen, brief.run, f"{task}/second/once", effect="once")
    return task


@ch.worker("porter", "Has three effects that may be repeated, with pauses")
async def porter(brief: ch.Brief) -> str:
    task = brief.task.id
    log.add(run=brief.run, began=task, at=time.monotonic())
    for name in ("a", "b", "c"):
        step = f"{name}/idempotent"
        await brief.step(step, happen, brief.run, f"{task}/{step}", effect="idempotent")
        await asyncio.sleep(pause)
    return task


class Going:
    """Waits for the file `go`: one task looks for all that wait."""

    def __init__(self) -> None:
        self._there = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        await self._there.wait()

    async def _look(self) -> None:
        while not has_gone():
            await asyncio.sleep(0.01)
        self._there.set()


going: Going
WORKERS = [clerk, porter]


def hear_led(run: str, event: RunLed) -> None:
    log.add(run=run, led=event.node, at=time.monotonic())


def hear_finished(run: str, event: RunFinished) -> None:
    log.add(run=run, ended=event.status.value, at=time.monotonic())


async def serve(options: ServingOptions) -> None:
    global going  # an asyncio event belongs to the loop it is made in
    going = Going()
    journal = ch.open_journal(
        options.place,
        namespace=options.namespace,
        lease=options.lease,
        patience=options.patience,
    )
    boss = ch.Supervisor(WORKERS, journal=journal, limits=ch.Limits(parallel=500))
    boss.on(*KINDS.values())(log.acknowledge)
    boss.on(RunLed)(hear_led)
    boss.on(RunFinished)(hear_finished)
    log.add(serving=journal.leases.node)
    await boss.serve()
    await journal.close()


def main() -> None:
    global log, folder, pause  # effects are plain functions, which have nobody else to ask
    logging.basicConfig(level=logging.WARNING)
    folder = Path(sys.argv[1])
    options = msgspec.json.decode(sys.argv[2], type=ServingOptions)
    pause = options.pause
    log = Log(folder / "log")
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
