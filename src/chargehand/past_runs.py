"""Records: what a journal tells of past runs to a supervisor that is about to lead one."""

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from chargehand.decisions.budget import runs_below, spent_in
from chargehand.decisions.duration_estimates import learn
from chargehand.decisions.live_run import LiveRun, mistake_in
from chargehand.errors import ImportedKey, JournalDamaged, KeyConflict, UnknownRun
from chargehand.facts.events import Event, Pace, PlanAdopted, RunFinished, RunRequested
from chargehand.facts.outcome import Usage
from chargehand.facts.plan import Plan
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.journal.base import IMPORTED, Journal
from chargehand.journal.open_journal import open_journal

log = logging.getLogger("chargehand")

#: how many of the newest runs the estimates are made of
LEARNED_RUNS = 50


async def fold(journal: Journal, run: str, retry: RetryPolicy | None) -> LiveRun:
    """A run as its events tell it. Raises `UnknownRun` if there is none."""
    live_run = LiveRun(run, retry=retry)
    async for entry in journal.read(run):
        try:
            live_run.replay((entry.event,))
        except Exception as error:
            raise mistake_in(run, error) from error
    return live_run


async def spent_below(journal: Journal, history: Sequence[Event]) -> dict[str, Usage]:
    """By run: what runs below one with this history may have spent that it does not tell of itself."""
    spent: dict[str, Usage] = {}
    for run in runs_below(history):
        with suppress(UnknownRun):  # it was about to be begun
            events = [entry.event async for entry in journal.read(run)]
            deeper = await spent_below(journal, events)
            spent[run] = sum(deeper.values(), spent_in(events))
    return spent


async def is_known(journal: Journal, requested: RunRequested, plan: Plan | None, key: str) -> bool:
    """Whether this key was used before, for the same request. Raises `KeyConflict` for another.

    Raises `ImportedKey` if its run came from a recording, unless the run that it is nested in did, too.
    """
    if not await _is_same(journal, requested, plan, key):
        return False
    is_foreign = await _is_imported(journal, requested.run)
    if is_foreign and not (requested.parent and await _is_imported(journal, requested.parent)):
        raise ImportedKey(key, requested.run)
    return True


async def _is_imported(journal: Journal, run: str) -> bool:
    """Whether events of this run came from a recording, and not from a journal."""
    return any(each.key.name == IMPORTED for each in await journal.streams.keys(run))


async def _is_same(journal: Journal, requested: RunRequested, plan: Plan | None, key: str) -> bool:
    try:
        async for entry in journal.read(requested.run):
            match entry.event:
                case RunRequested() as before:
                    is_same_kind = before.approach.is_given is (plan is not None)
                    if not is_same_kind or before.request != requested.request:
                        raise KeyConflict(key)
                    if plan is None:
                        return True
                case PlanAdopted() as adopted if plan is not None:
                    if adopted.plan.digest != plan.digest:
                        raise KeyConflict(key)
                    return True
    except UnknownRun:
        return False
    return False


class JournalHandle:
    """Where a supervisor keeps its runs: a journal that it opened by its path, or one it was handed."""

    def __init__(self, where: "str | os.PathLike[str] | Journal | None" = None) -> None:
        #: None: somebody else opened the journal, or it is in memory
        self.path = where if isinstance(where, (str, os.PathLike)) else None
        self.current = open_journal(where)
        self._is_closed = False
        if where is None:
            log.info(
                "journal_in_memory; runs end with this process: pass journal='runs.db' to keep them"
            )

    def move(self, path: "str | os.PathLike[str]") -> None:
        """Keep runs in this file from now on."""
        if self.path is None or Path(self.path).absolute() != Path(path).absolute():
            self.path, self.current = path, open_journal(path)

    async def close(self) -> None:
        """Let go of the journal, if it was opened here."""
        if self.path is not None:
            self._is_closed = True
            await self.current.close()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Journal]:
        """The journal to read from; results outlive the supervisor, so it may have to be opened again."""
        if not self._is_closed:
            yield self.current
            return
        journal = open_journal(self.path)
        try:
            yield journal
        finally:
            await journal.close()


class PastPaces:
    """What the newest runs taught about each worker's pace."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] | None = None

    async def paces(self, journal: Journal) -> dict[str, Pace]:
        """By worker. The journal is read once; what happens after is heard of."""
        if self._paces is None:
            self._paces = {}
            for head in (await journal.heads(forgotten=False))[:LEARNED_RUNS]:
                if head.is_ended:
                    # `runs` and `verify` name a damaged one; retention may delete one meanwhile.
                    with suppress(JournalDamaged, UnknownRun):
                        async for entry in journal.read(head.stream, after=head.seq - 1):
                            self.hear(entry.event)
        return self._paces

    def hear(self, event: Event) -> None:
        """Learn from a run that has just ended."""
        if isinstance(event, RunFinished) and self._paces is not None:
            self._paces = learn(self._paces, event.paces.items())
