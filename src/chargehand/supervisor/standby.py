"""Failover: a supervisor that serves takes up runs whose leader has died, or whose question was answered since."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from chargehand.clock import Clock
from chargehand.decisions.budget import runs_below
from chargehand.decisions.leader_killing_runs import (
    Written,
    is_led_silently,
    progress_in,
    silent_leaders,
)
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import RunState
from chargehand.errors import (
    ChargehandError,
    JournalBusy,
    JournalDamaged,
    JournalFull,
    JournalReadOnly,
    NotLeading,
    OutOfThreads,
    UnknownRun,
)
from chargehand.facts.events import RunLed, RunReleased, RunRequested
from chargehand.facts.on_question import WAITING
from chargehand.journal.base import Journal
from chargehand.runtime import Runtime
from chargehand.runtime.run_leader import MOST_DEATHS
from chargehand.supervisor.run_start import RunStart

#: seconds between two looks for runs that nobody leads any more
LOOK = 0.5

log = logging.getLogger("chargehand")


class Standby:
    """Takes up runs whose leader died or lost its lease.

    A run that was released waits until it is resumed, or until a question of it is answered. One that needs workers which are not on
    our roster is named in the log and left to others. After two deaths in a row without a finished step, the run
    that was led both times is parked. If several were, each is on trial: they are taken up one at a time, so that
    the next death tells which of them it is.
    """

    def __init__(self, journal: Journal, start: RunStart, clock: Clock) -> None:
        self._journal = journal
        self._start = start
        self._clock = clock
        #: runs that are not for us, which is said once
        self._left: set[str] = set()
        #: the run that is led here to find out whether it ends processes
        self._on_trial = ""

    async def watch(self, runtime: Runtime) -> None:
        """Take up abandoned runs until the runtime stops. Raises what made it fail."""
        while not runtime.kernel.is_draining:
            if runtime.failure is not None:
                raise runtime.failure  # a process that leads nothing must not look as if it served
            try:
                abandoned = [(run, "") for run in await self._journal.leases.abandoned()]
                answered = [(run, "its question was answered") for run in await self._answered()]
                for run, why in [*abandoned, *answered]:
                    # It may be led here: our own lease is over while the journal does not answer in time.
                    is_free = run not in self._left and not runtime.runs.leads(run)
                    if is_free and not runtime.kernel.is_draining:
                        await self._take(runtime, run, why)
            except (JournalBusy, JournalFull, JournalReadOnly, OutOfThreads) as error:
                log.warning("standby_waits error=%s", error)
            await asyncio.sleep(LOOK)

    async def _answered(self) -> list[str]:
        """Runs that were released and have had an answer since, which waits for their next leader."""
        letters = await self._journal.mail.unread()
        answered = {each.stream for each in letters if each.subject == "answer"} - self._left
        if not answered:
            return []
        free = {head.stream for head in await self._journal.heads() if not head.owner}
        roots = {run: await self._root_of(run) for run in sorted(answered & free)}
        # What is asked in a nested run is not looked at again once the run above it is not for us.
        self._left |= {run for run, root in roots.items() if root in self._left}
        return list(dict.fromkeys(roots.values()))

    async def _root_of(self, run: str) -> str:
        """The run that this one is nested in, at the top; itself if it is in none."""
        history = await self._written(run)
        first = history[0][1] if history else None
        if isinstance(first, RunRequested) and first.parent:
            return await self._root_of(first.parent)
        return run

    async def _take(self, runtime: Runtime, run: str, why: str) -> None:
        try:
            history = await self._written(run)
            first = history[0][1] if history else None
            if not isinstance(first, RunRequested) or first.parent:
                self._left.add(run)  # it is taken up with the run above it
                return
            last = history[-1][1]
            if isinstance(last, RunReleased) and last.is_parked:
                return  # since it was looked for
            seen = LiveRun(run)
            seen.replay([event for _, event in history])
            deadly = await self._deadly_leaders(seen, history)
            is_suspect = len(deadly) >= MOST_DEATHS
            if is_suspect and not await self._had_company(run, history, deadly[-MOST_DEATHS:]):
                await self._park(run, history)
                return
            if is_suspect and await self._is_trying(runtime):
                return  # its turn comes
            # Before it leads: a run that it led and let go of again would wait to be resumed.
            self._start.check_roster(seen, accept=False)
            began, _ = await self._start.rejoin(runtime, run, accept=False, asking=WAITING)
            began.when_ended(began.ignore_failure)
            self._on_trial = run if is_suspect else self._on_trial
            how = "; led alone, since it may be what ended it" if is_suspect else ""
            # A server that stops releases its runs in words too, and keeps their leases until it is gone.
            stopped = "the server that led it has stopped"
            gone = stopped if isinstance(last, RunReleased) else "its leader is gone"
            log.warning("run_taken_over run=%s; %s%s", run, why or gone, how)
        except (NotLeading, UnknownRun):
            return  # another was faster
        except (JournalBusy, JournalFull, JournalReadOnly, OutOfThreads):
            raise  # it is looked at again
        except ChargehandError as error:  # it needs other workers, or cannot be read
            self._left.add(run)
            log.warning("run_not_taken_over run=%s reason=%s", run, error)

    async def _written(self, run: str) -> list[Written]:
        return [(entry.author, entry.event) async for entry in self._journal.read(run)]

    async def _deadly_leaders(self, seen: LiveRun, history: Sequence[Written]) -> list[str]:
        """The last processes that ended while they led this run and did something for it, without progress."""
        if _is_idle(seen):
            return []
        silent = silent_leaders(history, progress_in(history))
        if len(silent) < MOST_DEATHS:
            return silent
        return silent_leaders(history, progress_in([*history, *await self._below(history)]))

    async def _below(self, history: Sequence[Written]) -> list[Written]:
        """What happened to the runs nested in this one."""
        found: list[Written] = []
        for run in runs_below(event for _, event in history):
            with suppress(UnknownRun):  # it had no time to begin
                below = await self._written(run)
                found += [*below, *await self._below(below)]
        return found

    async def _had_company(
        self, run: str, history: Sequence[Written], nodes: Sequence[str]
    ) -> bool:
        """Whether another run was led by the same processes, and came no further under them either."""
        since = next(
            event.at for node, event in history if node == nodes[0] and isinstance(event, RunLed)
        )
        for head in await self._journal.heads():
            is_older = head.changed_at is None or head.changed_at < since
            if head.stream == run or head.is_forgotten or is_older:
                continue
            with suppress(UnknownRun, JournalDamaged):  # `verify` names what cannot be read
                other = await self._written(head.stream)
                if await self._is_suspect(head.stream, other, nodes):
                    return True
        return False

    async def _is_suspect(self, run: str, history: Sequence[Written], nodes: Sequence[str]) -> bool:
        first = history[0][1] if history else None
        if not isinstance(first, RunRequested) or first.parent:
            return False  # it is a part of the run above it
        if not is_led_silently([*history, *await self._below(history)], nodes):
            return False
        last = max(place for place, (node, _) in enumerate(history) if node == nodes[-1])
        seen = LiveRun(run)
        seen.replay([event for _, event in history[: last + 1]])
        return not _is_idle(seen)

    async def _is_trying(self, runtime: Runtime) -> bool:
        """Whether this process leads a suspect run that has made no progress yet."""
        live_run = runtime.kernel.runs.get(self._on_trial)
        if live_run is None or _is_idle(live_run):
            self._on_trial = ""
        else:
            history = await self._written(self._on_trial)
            written = [*history, *await self._below(history)]
            if self._journal.leases.node in progress_in(written):
                self._on_trial = ""
        return bool(self._on_trial)

    async def _park(self, run: str, history: Sequence[Written]) -> None:
        """Let go of a run that ends the processes that lead it."""
        leases = self._journal.leases
        epoch = await leases.lead(run)
        reason = (
            f"{MOST_DEATHS} processes that led it ended before it came further; "
            f"chargehand resume {run} tries it again"
        )
        at = max(self._clock.now(), history[-1][1].at)
        parked = RunReleased(node=leases.node, reason=reason, is_parked=True, at=at)
        try:
            await self._journal.append(run, [parked], epoch=epoch)
        finally:
            await asyncio.shield(leases.release(run, epoch))
        log.error("run_parked run=%s reason=%s", run, reason)


def _is_idle(live_run: LiveRun) -> bool:
    """Whether nothing happens in it before a person has done something, so that it ends no process."""
    return live_run.schedule.state in (RunState.WAITING, RunState.PAUSED)
