"""Retention at work: finds the runs that a policy deletes, deletes them, and clears away what they leave."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from chargehand.decisions.retention import (
    ExpiredRun,
    FinishedRun,
    RunAge,
    expired,
    finished_runs,
    next_to_fit,
)
from chargehand.errors import JournalDamaged, UnknownRun
from chargehand.facts.events import RunRequested
from chargehand.facts.retention import Retention
from chargehand.journal.base import Journal, Mail
from chargehand.journal.hash_chain import EPOCH

#: ids of runs that are tasks of others begin so; a run of a pool may, too
NESTED = "n"
#: how often a run is tried to be deleted while others begin all the time
TRIES = 5
#: runs whose sizes are asked for at once
AT_ONCE = 50
#: seconds between two pieces of work, in which appends of others are written; more if pieces take long
PAUSE = 0.005
#: so many times as long as it worked it rests
REST = 1


class PrunedRun(Struct, frozen=True):
    """A run that was deleted, or would be."""

    run: str
    ended_at: datetime
    #: runs nested in it, which go with it
    nested: int
    #: in bytes, about: its events, its board, and the blobs that it names
    size: int
    why: str


class _Submission(Struct):
    """What retention must know of a request that waits to be taken up."""

    requested: RunRequested


class Pruner:
    """Deletes runs of one journal by one policy. Made once, it asks little of the journal again and again.

    Damaged runs are kept, unless `with_damaged`: what is left of them may be all that there is.
    """

    def __init__(
        self, journal: Journal, retention: Retention, *, with_damaged: bool = False
    ) -> None:
        self._journal = journal
        self._retention = retention
        self._with_damaged = with_damaged
        #: runs that were due and are kept because they are damaged, and what is wrong with each
        self.damaged: dict[str, str] = {}
        #: first events, which never change
        self._requests: dict[str, RunRequested] = {}
        #: open runs that were looked at
        self._known: set[str] = set()

    async def due(self, now: datetime) -> list[PrunedRun]:
        """What `prune` would delete now, the oldest first. Sizes are estimates."""
        return [_told(run, size) for run, size in await self._due(now)]

    async def prune(self, now: datetime) -> AsyncIterator[PrunedRun]:
        """Delete what is due and clear it away, in small pieces; yields each run once it is deleted.

        A run that another process prunes at the same time, or that has become needed, is left out.
        """
        tried: set[str] = set()
        while True:
            due = [(run, size) for run, size in await self._due(now) if run.run not in tried]
            tried |= {run.run for run, _ in due}
            for run, size in due:
                began = time.monotonic()
                if await self._forget(run):
                    yield _told(run, size)
                await _rest(began)
            began = time.monotonic()
            async for _ in self._journal.storage.sweep():
                await _rest(began)
                began = time.monotonic()
            # Sizes are estimates, so what is used is looked at again; age and count are met at once.
            if not due or self._retention.max_size is None:
                return

    async def _forget(self, run: ExpiredRun) -> bool:
        for _ in range(TRIES):
            if await self._journal.storage.forget(run.members, known=self._known):
                return True
            # Perhaps a run has begun since, which may need this one.
            found = {each.run: each for each in await self._finished()}.get(run.run)
            if found is None or found.is_needed or found.members != run.members:
                return False
            await asyncio.sleep(PAUSE)
        return False

    async def _due(self, now: datetime) -> list[tuple[ExpiredRun, int]]:
        runs = await self._finished()
        found = expired(runs, self._retention, now)
        due = await self._sized([run for run in found if await self._may_go(run)])
        if self._retention.max_size is None:
            return due
        used = await self._journal.storage.used()
        excess = used - sum(size for _, size in due) - self._retention.max_size
        taken = {*self.damaged, *(run.run for run, _ in due)}
        oldest = next_to_fit(runs, taken, self._retention)
        while excess > 0 and oldest:
            some, oldest = oldest[:AT_ONCE], oldest[AT_ONCE:]
            for run, size in await self._sized(some):
                if excess > 0 and await self._may_go(run):
                    due.append((run, size))
                    excess -= size
        return due

    async def _may_go(self, run: ExpiredRun) -> bool:
        """Whether all events of this run and of those nested in it are there as they were written."""
        if self._with_damaged:
            return True
        if run.run in self.damaged:
            return False
        try:
            for member in run.members:
                async for _ in self._journal.streams.rows(member):
                    pass
        except JournalDamaged as error:
            self.damaged[run.run] = str(error)
            return False
        except UnknownRun:
            return False  # another process has deleted it meanwhile
        return True

    async def _sized(self, runs: list[ExpiredRun]) -> list[tuple[ExpiredRun, int]]:
        members = [member for run in runs for member in run.members]
        sizes: dict[str, int] = {}
        for first in range(0, len(members), AT_ONCE):
            some = members[first : first + AT_ONCE]
            sizes |= await self._journal.storage.sizes(some)
        return [(run, sum(sizes[member] for member in run.members)) for run in runs]

    async def _finished(self) -> list[FinishedRun]:
        """All finished runs, the newest first."""
        heads = await self._journal.heads(forgotten=False)
        ages = [RunAge(each.stream, each.is_ended, each.changed_at or EPOCH) for each in heads]
        self._known = {age.run for age in ages if not age.is_ended}
        asked = {age.run for age in ages if not age.is_ended or age.run.startswith(NESTED)}
        self._requests = {run: kept for run, kept in self._requests.items() if run in asked}
        if new := sorted(asked - self._requests.keys()):
            self._requests |= await self._journal.storage.requests(new)
        waiting = _submitted(await self._journal.mail.unread())
        return finished_runs(ages, self._requests, [each.reuses for each in waiting])


async def _rest(began: float) -> None:
    """Leave the journal to others, longer after a piece that took long: they may be busy."""
    await asyncio.sleep(max(PAUSE, REST * (time.monotonic() - began)))


def _submitted(letters: Iterable[Mail]) -> list[RunRequested]:
    found: list[RunRequested] = []
    for letter in letters:
        if letter.subject == "submit":
            try:
                found.append(msgspec.json.decode(letter.body, type=_Submission).requested)
            except msgspec.MsgspecError:
                continue  # no one can take it up either
    return found


def _told(run: ExpiredRun, size: int) -> PrunedRun:
    return PrunedRun(run.run, run.ended_at, len(run.members) - 1, size, run.why)
