"""The coordinator: reads everything, writes nothing, and says how it stands."""

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from chargehand import errors
from chargehand.clock import Clock, SystemClock
from chargehand.decisions.coordination.board_conflicts import BoardWatch
from chargehand.decisions.coordination.conflicts import Conflict, conflicts_in
from chargehand.decisions.coordination.observed_run import RunWatch
from chargehand.decisions.coordination.progress_counts import Progress
from chargehand.decisions.coordination.trouble_search import HealthCheck
from chargehand.decisions.coordination.troubles import Health, Symptom, Trouble, WorkerPulse
from chargehand.decisions.system_tasks import ANSWER
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.board import board_of_run
from chargehand.facts.events import AttemptFinished, Event
from chargehand.facts.outcome import Done
from chargehand.journal.base import Head, Journal, Tail, load_value
from chargehand.journal.open_journal import open_journal
from chargehand.journal.postgres_address import is_dsn
from chargehand.usable_path import checked_path

#: how long an attempt may be silent whose worker nobody knows
PATIENCE = timedelta(minutes=5)
#: how soon those who follow look again
EVERY = timedelta(milliseconds=100)


class _Ended(Struct, frozen=True):
    """What is kept of a run that has ended."""

    seq: int
    progress: Progress
    conflicts: tuple[Conflict, ...]


class Coordinator:
    """Monitors all runs of a journal: progress, health and conflicts. Only reads.

    It keeps what it has read, so each call reads only events that are new since the last call. You
    can use it while runs are in progress, even in another process. Use it in one event loop.

        async with ch.Coordinator("runs.db") as coordinator:
            print(await coordinator.progress())

    The boards of runs are included; name other boards in `boards`. `recent` leaves out runs
    that ended longer ago, so that the first call on a long journal is fast. An attempt that is
    silent for longer than `patience` counts as stuck.
    """

    @checks.arguments_checked(clock=Clock)
    def __init__(
        self,
        journal: "Journal | str | os.PathLike[str]",
        clock: Clock | None = None,
        *,
        boards: Sequence[str] = (),
        patience: Duration = PATIENCE,
        recent: Duration | None = None,
    ) -> None:
        self._journal, self._is_ours = _opened(journal)
        self._clock = clock or SystemClock()
        self._patience = checks.duration(patience, "patience")
        self._recent = checks.duration_or_none(recent, "recent", may_be_zero=True)
        self._heads: dict[str, Head] = {}
        self._open: dict[str, RunWatch] = {}
        self._ended: dict[str, _Ended] = {}
        self._unreadable: dict[str, Trouble] = {}
        #: of all that have ended; None: to be added up anew
        self._sum: Progress | None = Progress()
        self._pulse = WorkerPulse()
        self._boards = {name: BoardWatch(name) for name in checks.texts(boards, "boards")}
        self._boards_of_runs: dict[str, BoardWatch] = {}

    async def progress(self, run: str = "") -> Progress:
        """The progress of this run, or of all. Raises `UnknownRun` if there is no such run."""
        if run:
            await self._look_at(run)
            return self._ended[run].progress if run in self._ended else self._open[run].progress()
        await self._look()
        if self._sum is None:
            self._sum = sum((ended.progress for ended in self._ended.values()), Progress())
        return sum((watch.progress() for watch in self._open.values()), self._sum)

    async def health(self) -> Health:
        """The current troubles."""
        far = await self.progress()
        usual = {
            name: (load.completed, load.mean)
            for name, load in far.workers.items()
            if load.mean is not None
        }
        live_run, gone = await self._led_runs(), await self._gone_nodes()
        now = self._clock.now()
        found = HealthCheck(self._open, live_run, usual, now, self._patience, gone)
        told = (*found.troubles(), *self._pulse.troubles(now), *self._unreadable.values())
        return Health(now, told)

    async def conflicts(self, run: str = "") -> list[Conflict]:
        """The conflicts in this run, or in all, with their resolutions by rule; oldest first.

        Finished runs are included; `is_settled` says where nothing is left to do.
        """
        if run:
            await self._look_at(run)
            return list(await self._conflicts_of(run))
        await self._look()
        found = [each for known in self._ended.values() for each in known.conflicts]
        for name in list(self._open):
            found += await self._conflicts_of(name)
        for watch in self._boards.values():
            await self._read_board(watch)
            found += watch.conflicts()
        return sorted(found, key=lambda conflict: conflict.at)

    async def follow(self, run: str = "") -> AsyncIterator[Progress]:
        """Yield the progress now and whenever it changes; for one run, until it ends.

        At most ten times a second.
        """
        signal = self._journal.boards.signal
        before: Progress | None = None
        while True:
            known, looked_at = signal.count, self._clock.now()
            progress = await self.progress(run)
            if progress != before:
                before = progress
                yield progress
            if run and run in self._ended:
                return
            await signal.wait(since=known)
            await self._clock.sleep_until(looked_at + EVERY)

    async def close(self) -> None:
        """Close the journal, if it was opened here. `async with` does this at its end."""
        if self._is_ours:
            await self._journal.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # reading

    async def _look(self) -> None:
        """Read all that has happened since the last look."""
        heads = {head.stream: head for head in await self._journal.heads()}
        self._heads = heads
        oldest = None if self._recent is None else self._clock.now() - self._recent
        for run in [run for run in (*self._open, *self._ended) if run not in heads]:
            self._drop(run)
        for run, head in heads.items():
            at = head.changed_at if head.is_ended else None
            is_old = oldest is not None and at is not None and at < oldest
            if head.is_forgotten or is_old:
                self._drop(run)
            elif self._seq_of(run) < head.seq:
                try:
                    await self._look_at(run)
                except errors.UnknownRun:
                    self._drop(run)  # retention was faster
                except (errors.JournalDamaged, errors.JournalVersion) as error:
                    self._drop(run)
                    self._unreadable[run] = _unreadable(run, str(error))
                await asyncio.sleep(0)  # those who work in this loop are not to wait for all runs

    async def _look_at(self, run: str) -> None:
        """Read what has happened to one run since the last look."""
        if run in self._ended:
            return
        watch = self._open.get(run) or RunWatch(run, self._pulse)
        async for entry in self._journal.read(run, watch.seq):
            if entry.seq == watch.seq + 1:  # another look may have been faster
                watch.apply(entry.seq, await self._with_answer(entry.event), entry.author)
        if run in self._ended:
            return
        self._open.setdefault(run, watch)
        if watch.is_over:
            await self._settle(watch)

    async def _settle(self, watch: RunWatch) -> None:
        """A run has ended: keep what it came to and let go of the rest."""
        run = watch.run
        ended = _Ended(watch.seq, watch.progress(), tuple(await self._conflicts_of(run)))
        if self._open.pop(run, None) is None:
            return  # another look has
        self._boards_of_runs.pop(run, None)
        self._ended[run] = ended
        if self._sum is not None:
            self._sum += ended.progress

    def _seq_of(self, run: str) -> int:
        if run in self._ended:
            return self._ended[run].seq
        return self._open[run].seq if run in self._open else 0

    def _drop(self, run: str) -> None:
        """Leave out a run: retention has deleted it, or it is too old."""
        self._open.pop(run, None)
        self._boards_of_runs.pop(run, None)
        if self._ended.pop(run, None) is not None:
            self._sum = None

    async def _led_runs(self) -> set[str]:
        """The runs that have not ended and that a living process leads."""
        heads = [self._heads[run] for run in self._open if run in self._heads]
        owners = {head.owner: head.stream for head in heads if head.owner}
        living = {node for node, run in owners.items() if await self._living(run, [node])}
        return {head.stream for head in heads if head.owner in living}

    async def _gone_nodes(self) -> set[str]:
        """The processes that had begun with tasks of pools and are no longer there."""
        gone: set[str] = set()
        for run, watch in list(self._open.items()):
            nodes = {hold.node for hold in watch.holds.values()} - {self._journal.leases.node}
            if watch.is_pooled and nodes:
                gone |= nodes - await self._living(run, nodes)
        return gone

    async def _living(self, run: str, nodes: Collection[str]) -> set[str]:
        """Those of these nodes that may be at work in a run. Asked of the journal; nothing is added."""
        known = self._seq_of(run)
        living: set[str] = set()

        def look(tail: Tail) -> Sequence[Event]:
            # More than we know of: they are there, or were a moment ago.
            living.update(node for node in nodes if tail.seq > known or tail.is_alive(node))
            return ()

        try:
            await self._journal.decide(run, look)
        except (errors.NotLeading, errors.UnknownRun):
            return set(nodes)  # somebody leads it, or nobody need any more
        except (errors.JournalFull, errors.JournalReadOnly):  # a decision is a write, even if empty
            return {each.node for each in await self._journal.processes.alive()} & set(nodes)
        return living

    async def _conflicts_of(self, run: str) -> Sequence[Conflict]:
        if run in self._ended:
            return self._ended[run].conflicts
        watch = self._open.get(run)
        if watch is None:
            return ()  # it has been forgotten meanwhile
        board = self._boards_of_runs.setdefault(run, BoardWatch(board_of_run(run), run))
        await self._read_board(board)
        found = [*conflicts_in(watch), *board.conflicts()]
        return sorted(found, key=lambda conflict: conflict.at)

    async def _read_board(self, watch: BoardWatch) -> None:
        try:
            async for entry in self._journal.boards.read(watch.board, watch.seq):
                if entry.seq == watch.seq + 1:
                    watch.apply(entry.seq, entry.event)
        except errors.UnknownRun:
            pass  # retention has deleted it with its run

    async def _with_answer(self, event: Event) -> Event:
        """The event; a composed answer that lies in a blob is brought along."""
        if not isinstance(event, AttemptFinished) or event.task != ANSWER:
            return event
        outcome = event.outcome
        if not isinstance(outcome, Done):
            return event
        value = await load_value(outcome.value, self._journal.blobs)
        return replace(event, outcome=replace(outcome, value=value))


def _opened(journal: "Journal | str | os.PathLike[str]") -> tuple[Journal, bool]:
    """The journal, and whether it was opened here. One that is not there is not made."""
    if not isinstance(journal, (str, os.PathLike)):
        return open_journal(journal), False
    place = os.fspath(journal)
    if not is_dsn(place) and not checked_path(path := place.removeprefix("sqlite:")).exists():
        raise errors.UsageError(
            f"there is no journal at {path}; a coordinator reads one that others write"
        )
    return open_journal(journal), True


def _unreadable(run: str, fact: str) -> Trouble:
    advice = f"chargehand verify {run} says what can be saved"
    return Trouble(kind=Symptom.UNREADABLE, name=run, fact=fact, advice=advice, run=run)
