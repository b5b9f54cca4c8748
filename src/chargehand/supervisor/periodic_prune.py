"""Retention of a supervisor that serves: prunes its journal now and then, in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chargehand.clock import Clock
from chargehand.facts.retention import Retention
from chargehand.facts.sizes import shown_size
from chargehand.journal.base import Journal
from chargehand.journal.prune import Pruner

#: seconds between the end of one pruning and the next
INTERVAL = 600.0

log = logging.getLogger("chargehand.retention")


@asynccontextmanager
async def pruning(
    journal: Journal, retention: Retention | None, clock: Clock
) -> AsyncIterator[None]:
    """Delete what the policy excludes while the body runs: at once, then every ten minutes."""
    if retention is None:
        yield
        return
    task = asyncio.create_task(_prune_forever(Pruner(journal, retention), clock))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _prune_forever(pruner: Pruner, clock: Clock) -> None:
    told: set[str] = set()
    while True:
        try:
            gone = size = 0
            async for run in pruner.prune(clock.now()):
                gone, size = gone + 1, size + run.size
                log.info("run_pruned run=%s nested=%d why=%s", run.run, run.nested, run.why)
            for run_id in [run for run in pruner.damaged if run not in told]:
                told.add(run_id)
                log.warning(
                    "prune_kept_damaged run=%s error=%s; see what is left of it with chargehand verify, delete it with "
                    "chargehand prune --damaged",
                    run_id,
                    pruner.damaged[run_id],
                )
            if gone:
                log.info("runs_pruned runs=%d size=%s", gone, shown_size(size))
        except Exception as error:  # noqa: BLE001 - serving goes on, and what could not be deleted is tried again
            log.warning("prune_failed error=%s; trying again", error)
        await asyncio.sleep(INTERVAL)
