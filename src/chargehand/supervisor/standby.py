"""Failover: a supervisor that serves takes up runs whose leader has died."""

import asyncio
import logging
from collections.abc import Sequence

from chargehand.clock import Clock
from chargehand.decisions.live_run import LiveRun
from chargehand.errors import ChargehandError, JournalBusy, NotLeading, UnknownRun
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    RunLed,
    RunReleased,
    RunRequested,
    StepFinished,
)
from chargehand.facts.on_question import WAITING
from chargehand.journal.base import Journal
from chargehand.runtime import Runtime
from chargehand.runtime.loop import MOST_DEATHS
from chargehand.supervisor.run_start import RunStart

#: seconds between two looks for runs that nobody leads any more
LOOK = 0.5
_PROGRESS = (StepFinished, AttemptFinished)

log = logging.getLogger("chargehand")


class Standby:
    """Takes up runs whose leader died or lost its lease.

    A run that was released waits until it is resumed. One that needs workers which are not on
    our roster is named in the log and left to others.
    """

    def __init__(self, journal: Journal, start: RunStart, clock: Clock) -> None:
        self._journal = journal
        self._start = start
        self._clock = clock
        #: runs that are not for us, which is said once
        self._left: set[str] = set()

    async def watch(self, runtime: Runtime) -> None:
        """Take up abandoned runs until the runtime stops."""
        while not runtime.kernel.is_draining:
            try:
                for run in await self._journal.leases.abandoned():
                    if run not in self._left and not runtime.kernel.is_draining:
                        await self._take(runtime, run)
            except JournalBusy as error:
                log.warning("standby_waits error=%s", error)
            await asyncio.sleep(LOOK)

    async def _take(self, runtime: Runtime, run: str) -> None:
        try:
            history = [entry.event async for entry in self._journal.read(run)]
            first = history[0] if history else None
            if not isinstance(first, RunRequested) or first.parent:
                self._left.add(run)  # it is taken up with the run above it
            elif deaths_without_progress(history) >= MOST_DEATHS:
                await self._park(run, history)
            else:
                seen = LiveRun(run)
                seen.replay(history)
                # Before it leads: a run that it led and let go of again would wait to be resumed.
                self._start.check_roster(seen, accept=False)
                began, _ = await self._start.rejoin(runtime, run, accept=False, asking=WAITING)
                began.when_ended(began.ignore_failure)
                log.warning("run_taken_over run=%s; its leader is gone", run)
        except (NotLeading, UnknownRun):
            return  # another was faster
        except JournalBusy:
            raise
        except ChargehandError as error:  # it needs other workers, or cannot be read
            self._left.add(run)
            log.warning("run_not_taken_over run=%s reason=%s", run, error)

    async def _park(self, run: str, history: Sequence[Event]) -> None:
        """Let go of a run that ends the processes that lead it."""
        leases = self._journal.leases
        epoch = await leases.lead(run)
        reason = (
            f"{MOST_DEATHS} processes that led it ended before it came further; "
            f"chargehand resume {run} tries it again"
        )
        at = max(self._clock.now(), history[-1].at)
        parked = RunReleased(node=leases.node, reason=reason, is_parked=True, at=at)
        await self._journal.append(run, [parked], epoch=epoch)
        await leases.release(run, epoch)
        log.error("run_parked run=%s reason=%s", run, reason)


def deaths_without_progress(history: Sequence[Event]) -> int:
    """How many processes in a row led this run and ended without one finished step or a word."""
    deaths = 0
    for event in reversed(history):
        if isinstance(event, (*_PROGRESS, RunReleased)):
            break
        deaths += isinstance(event, RunLed)
    return deaths
