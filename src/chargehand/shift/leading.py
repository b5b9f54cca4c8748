"""A shift: leads runs, its own and those that others have left, with those who take part."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

from chargehand.clock import Clock
from chargehand.decisions.budget import Account, has_caps
from chargehand.decisions.desk import Desk, Led, Message
from chargehand.errors import InternalError, JournalError, UnknownRun, UsageError
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    PlanAdopted,
    RunLed,
    RunReleased,
    RunRequested,
)
from chargehand.facts.limits import Limits
from chargehand.facts.on_question import WAITING, Asking
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.mailroom import Mailroom
from chargehand.records import spent_below
from chargehand.roles.office import Office
from chargehand.roles.roster import Member, Roster
from chargehand.shift.counter import Hooks
from chargehand.shift.rounds import Rounds

log = logging.getLogger("chargehand")

#: of processes that took up one submitted run; after so many it is parked until a person resumes it
MOST_DEATHS = 2


class Leading(NamedTuple):
    """A run that has just become ours."""

    ending: "asyncio.Future[Led]"
    written: "asyncio.Future[Event | None]"


class Shift(Rounds):
    """Leads runs from its first until it is told to close."""

    def __init__(
        self,
        desk: Desk,
        journal: Journal,
        roster: Roster,
        office: Office,
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        super().__init__(desk, journal, roster, office, clock, hooks)
        self._mailroom = Mailroom(journal.mail, roster, clock, self)
        self._task = self.loop.create_task(self._work(), name="chargehand shift")

    async def begin(
        self,
        requested: RunRequested,
        plan: Plan | None,
        *,
        may_exist: bool = False,
        mail: int = 0,
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> "Leading | None":
        """Lead a new run; None if it `may_exist` and somebody has begun it before us.

        Without a plan, making one is its first task.
        """
        if self.desk.is_draining:
            raise UsageError("the supervisor is stopping and takes no new runs")
        run = requested.run
        reusable = await self._reusable(requested)  # first: the run that it names may not be there
        if may_exist and self.leads(run):
            return None
        async with self._lease(run) as epoch:
            # Looked for while we lead: from now on nobody else can begin it.
            has_begun = may_exist and await self.has_begun(run)
        if has_begun:
            await self.journal.leases.release(run, epoch)
            return None
        if mail and epoch > MOST_DEATHS:
            await self._park(requested, plan, epoch, mail)
            return None
        ending = self._expect(run, asking)
        opened = self.desk.open(run, above=above)
        opened.reusable, opened.epoch = reusable, epoch
        now = self._clock.now()
        self._post(Message(run, requested, mail=mail))
        led = self._propose(run, RunLed(node=self.journal.leases.node, epoch=epoch, at=now))
        if plan is None:
            return Leading(ending, led)
        return Leading(ending, self._propose(run, PlanAdopted(plan=plan, at=now)))

    async def _park(
        self, requested: RunRequested, plan: Plan | None, epoch: int, mail: int
    ) -> None:
        """Write a submitted run down without deciding anything about it: those who led it before have died.

        Each that leads a run gets a new epoch, and the letter lies there until its first event is stored.
        """
        run, node, now = requested.run, self.journal.leases.node, self._clock.now()
        reason = (
            f"{epoch - 1} processes that took it up ended before its first step; "
            f"chargehand resume {run} tries it again"
        )
        events: list[Event] = [requested, RunLed(node=node, epoch=epoch, at=now)]
        if plan is not None:
            events.append(PlanAdopted(plan=plan, at=now))
        events.append(RunReleased(node=node, reason=reason, is_parked=True, at=now))
        await self.journal.append(run, events, epoch=epoch, taking=[mail])
        await self.journal.leases.release(run, epoch)
        log.error("run_parked run=%s reason=%s", run, reason)

    async def take_over(
        self,
        run: str,
        check: Callable[[Led], None],
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> "Leading":
        """Lead a run that another process, or an earlier shift, has left; `check` may object."""
        if self.desk.is_draining:
            raise UsageError("the supervisor is stopping and takes up no run")
        # Led first, read second: from the new epoch on nobody else can add to what is read here.
        async with self._lease(run) as epoch:
            history = [entry.event async for entry in self.journal.read(run)]
            if not history:  # its process died between leading it and writing its first event
                raise UnknownRun(run, "it was never begun")
            self._clock.not_before(history[-1].at)
            first = history[0]
            reusable = await self._reusable(first) if type(first) is RunRequested else {}
            letters = await self._mailroom.letters_for(run)
            is_capped = above is not None or has_caps(_limits_in(history))
            below = await spent_below(self.journal, history) if is_capped else {}
        # No more waiting up to `RunLed`: a round in between would decide under the old epoch.
        try:
            led = self.desk.open(run, history, above)
        except InternalError:
            await self.journal.leases.release(run, epoch)
            raise
        led.reusable = reusable
        if led.account is not None:
            for child, spent in below.items():  # they are led again only later
                led.account.hold(child, spent)
        ending = self._expect(run, asking)
        self._told[run] = len(history)
        if led.schedule.status is not None:  # it has ended while we were on our way
            self.desk.close(run)
            self._settle(run, led)
            await self.journal.leases.release(run, epoch)
            return Leading(ending, self.written_already())
        try:
            check(led)
        except BaseException as error:
            self.desk.close(run)
            self._settle(run, error)
            await self.journal.leases.release(run, epoch)
            raise
        node = self.journal.leases.node
        written = self._propose(run, RunLed(node=node, epoch=epoch, at=self._clock.now()))
        for event, mail in letters:  # what was answered in time is no longer due
            self._post(Message(run, event, mail=mail))
        return Leading(ending, written)

    @contextlib.asynccontextmanager
    async def _lease(self, run: str) -> AsyncIterator[int]:
        """Lead a run; whatever goes wrong in here, it is released, so that another may lead it."""
        epoch = await self.journal.leases.lead(run, self)
        try:
            yield epoch
        except BaseException:
            with contextlib.suppress(JournalError, UsageError):
                await asyncio.shield(self.journal.leases.release(run, epoch))
            raise

    async def _reusable(self, requested: RunRequested) -> dict[str, Value]:
        """What the run that this one goes by has brought forth, by the key of all it rests on."""
        results: dict[str, Value] = {}
        if requested.reuses:
            async for entry in self.journal.read(requested.reuses):
                event = entry.event
                if type(event) is AttemptFinished and event.key and type(event.outcome) is Done:
                    results[event.key] = event.outcome.value
        return results

    def written_already(self) -> "asyncio.Future[Event | None]":
        """What stands for the writing of something that needs none."""
        written: asyncio.Future[Event | None] = self.loop.create_future()
        written.set_result(None)
        return written

    async def has_begun(self, run: str) -> bool:
        """Whether the journal knows anything of this run."""
        try:
            async for _ in self.journal.read(run):
                return True
        except UnknownRun:
            pass
        return False

    def close(self) -> None:
        """End when nothing is led any more. Say it when no caller is left."""
        self._is_closing = True
        self._wake.set()

    def leave_waiting(self) -> None:
        """Let go of runs that wait for people, now and from now on: nobody is there to bring answers."""
        self.is_left = self._is_freed = True
        self._wake.set()

    async def closed(self) -> None:
        """Return when the shift has ended."""
        await asyncio.wait([self._task])

    async def drain(self, grace: timedelta) -> None:
        """Start nothing new, let what runs end for so long, and leave the rest to be resumed.

        So do all shifts below this one, at the same time.
        """
        self.desk.is_draining = True
        below = [each.drain(grace) for each in self._below]
        await asyncio.gather(self._quieten(grace), *below)
        self.is_stopping = True
        for run, led in self.desk.runs.items():
            self._stop_all(run, led, "the supervisor is stopping")
        for run in list(self.desk.runs):
            await self.let_go(run)

    async def _quieten(self, grace: timedelta) -> None:
        if self.desk.busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), grace.total_seconds())

    def join(self, worker: Member) -> None:
        """Give this worker work from now on; one that drains is given work again."""
        if worker.name in self._departures:
            raise UsageError(f"worker {worker.name!r} is still leaving; wait for that first")
        if worker.name not in self._bench:
            self._bench.join(worker)
        self.desk.dispatch.join(worker.place)
        self._look_around()

    def drain_worker(self, name: str) -> None:
        """Give this worker nothing new."""
        self.desk.dispatch.drain(name)

    async def part(self, name: str, grace: timedelta) -> None:
        """Give a worker nothing new, let it end what it does for so long, and do the rest anew.

        Returns when it is gone. Plain functions cannot be stopped: for those it waits.
        """
        idle = self._departures[name] = asyncio.Event()
        if not self.desk.dispatch.leave(name):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), grace.total_seconds())
            self._expelled.add(name)
            for attempt in self.desk.dispatch.held_by(name):
                self._take_away(*attempt)
            if self.desk.dispatch.held_by(name):
                await idle.wait()
        del self._departures[name]
        self._expelled.discard(name)
        await self._bench.leave(name)


def _limits_in(history: Sequence[Event]) -> Limits:
    first = history[0]
    return first.limits if type(first) is RunRequested else Limits()
