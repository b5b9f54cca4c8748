"""What a journal tells of past runs to a supervisor that is about to lead one."""

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
from chargehand.journal.open_journal import open_journal, open_to_read

log = logging.getLogger("chargehand")

#: how many of the newest runs the estimates are made of
LEARNED_RUNS = 50
#: that a message about a key names: characters of a request, tasks of a plan
REQUEST, MOST_TASKS = 60, 5


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
    """For each nested run: the usage that the history of the run above does not contain."""
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
                    if differs := _request_difference(before, requested, plan):
                        raise KeyConflict(key, requested.run, differs)
                    if plan is None:
                        return True
                case PlanAdopted() as adopted if plan is not None:
                    if adopted.plan.digest != plan.digest:
                        raise KeyConflict(key, requested.run, _plan_difference(adopted.plan, plan))
                    return True
    except UnknownRun:
        return False
    return False


def _request_difference(before: RunRequested, now: RunRequested, plan: Plan | None) -> str:
    """How the request of a run differs from the one that has the same key now; empty if it does not."""
    if before.approach.is_given is not (plan is not None):
        kinds = ("a plan", "a request without a plan")
        was, is_now = kinds if before.approach.is_given else reversed(kinds)
        return f"{was}, and now with {is_now}"
    if before.request == now.request:
        return ""
    # Of two long requests, the part that differs.
    pairs = enumerate(zip(before.request, now.request, strict=False))
    shorter = min(len(before.request), len(now.request))
    begin = max(0, next((at for at, (a, b) in pairs if a != b), shorter) - REQUEST // 2)
    was, is_now = (_part(each.request, begin) for each in (before, now))
    return f"another request ({was!r}, and now {is_now!r})"


def _part(text: str, begin: int) -> str:
    before, after = "…" if begin else "", "…" if len(text) > begin + REQUEST else ""
    return f"{before}{text[begin : begin + REQUEST]}{after}"


def _plan_difference(before: Plan, now: Plan) -> str:
    """How the plan differs from the recorded plan with the same key."""
    fields = [
        name for name in Plan.__struct_fields__ if getattr(before, name) != getattr(now, name)
    ]
    old, new = ({task.id: task for task in each.tasks} for each in (before, now))
    tasks = [id_ for id_ in dict.fromkeys([*old, *new]) if old.get(id_) != new.get(id_)]
    more = f" and {len(tasks) - MOST_TASKS} more" if len(tasks) > MOST_TASKS else ""
    where = f"tasks {', '.join(tasks[:MOST_TASKS])}{more}" if tasks else ", ".join(fields)
    return f"another plan (it differs in {where})" if where else "another plan"


class JournalHandle:
    """Where a supervisor keeps its runs: a journal that it opened by its path, or one it was handed."""

    def __init__(
        self,
        where: "str | os.PathLike[str] | Journal | None" = None,
        *,
        may_be_read_only: bool = False,
    ) -> None:
        self._open = open_to_read if may_be_read_only else open_journal
        #: None: somebody else opened the journal, or it is in memory
        self.path = where if isinstance(where, (str, os.PathLike)) else None
        self.current = self._open(where)
        #: whether no other supervisor can have this journal: it is in memory, and was made here
        self.is_private = where is None
        self._is_closed = False
        if where is None:
            log.info(
                "journal_in_memory; runs end with this process: pass journal='runs.db' to keep them"
            )

    def move(self, path: "str | os.PathLike[str]") -> None:
        """Keep runs in this file from now on."""
        if self.path is None or Path(self.path).absolute() != Path(path).absolute():
            self.path, self.current, self.is_private = path, self._open(path), False

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
        journal = self._open(self.path)
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
            # Kept when it is whole: a second run must not begin with half of it, nor go on with what an error left.
            found: dict[str, Pace] = {}
            for head in (await journal.heads(forgotten=False))[:LEARNED_RUNS]:
                if head.is_ended:
                    # `runs` and `verify` name a damaged one; retention may delete one meanwhile.
                    with suppress(JournalDamaged, UnknownRun):
                        async for entry in journal.read(head.stream, after=head.seq - 1):
                            if isinstance(entry.event, RunFinished):
                                found = learn(found, entry.event.paces.items())
            self._paces = found
        return self._paces

    def hear(self, event: Event) -> None:
        """Learn from a run that has just ended."""
        if isinstance(event, RunFinished) and self._paces is not None:
            self._paces = learn(self._paces, event.paces.items())
