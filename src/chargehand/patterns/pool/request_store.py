"""Reads and changes the pool requests in one journal, on behalf of this process."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.engines.base import Engine
from chargehand.errors import KeyConflict, NotLeading, UnknownRun, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.events import Event
from chargehand.journal.base import Journal, Mail, Tail
from chargehand.notify.run_notices import RunNotices
from chargehand.patterns.pool.leaderless_run import Decision, DecisionTime, LeaderlessRun
from chargehand.runtime.command_inbox import told_by

log = logging.getLogger("chargehand.pool")

#: seconds between tries to change a request that a process leads
AGAIN = 0.1
#: number of these tries
PATIENCE = 50
#: ended requests that stay cached
KEPT = 64


class PoolRequests:
    """Keeps two `LeaderlessRun` objects per request: one for decisions, and a view for reading.

    The first is used only inside the journal's transaction, in the writer thread. The view is used only on
    the event loop, and contains only stored events.
    """

    def __init__(self, journal: Journal, clock: Clock, notices: RunNotices | None = None) -> None:
        self.journal = journal
        self.clock = clock
        #: notifies people of questions and ends
        self._notices = notices
        self._place = str(getattr(journal, "path", ""))
        #: engines with attempts that may have to be stopped
        self.engines: WeakSet[Engine] = WeakSet()
        self._deciding: dict[str, LeaderlessRun] = {}
        self._views: dict[str, LeaderlessRun] = {}
        #: known runs of supervisors, which are not pool requests
        self._led: set[str] = set()

    async def add(self, request: str, events: Sequence[Event]) -> LeaderlessRun:
        """Store a new request; returns its view once it is durable, without reading the journal."""
        await self.journal.append(request, events)
        view = self._views[request] = LeaderlessRun.begun(request, events)
        self._deciding[request] = LeaderlessRun.begun(request, events)
        _trim(self._views)
        _trim(self._deciding)
        return view

    async def decide(
        self, request: str, act: Callable[[LeaderlessRun, DecisionTime], Decision]
    ) -> Decision:
        """Run `act` on the newest state of a request and append its events; returns once they are durable.

        Raises the refusal of the decision, after storing its events. If a process leads the request for a
        moment, for example to cancel it, waits for that process.
        """
        patience = PATIENCE
        while True:
            ledger = await self._ledger(request)
            moves: list[Decision] = []

            def decided(
                tail: Tail, ledger: LeaderlessRun = ledger, moves: list[Decision] = moves
            ) -> list[Event]:
                if not ledger.catch_up(tail):
                    return []
                moves.append(self._decided(ledger, act, tail))
                return moves[0].events

            try:
                await self.journal.decide(request, decided, undo=ledger.void)
            except NotLeading:
                if not patience:
                    raise
                patience -= 1
                await asyncio.sleep(AGAIN)
                continue
            self._stop_attempts(ledger)
            if moves and moves[0].events and self._notices is not None:
                # Only the writer thread may read `ledger`.
                view = await self.view(request)
                for event in moves[0].events:
                    self._notices.hear(request, event, view.schedule, self._place)
            if moves and moves[0].refusal is not None:
                raise moves[0].refusal
            if moves:
                return moves[0]

    async def view(self, request: str) -> LeaderlessRun:
        """The current stored state of a request, for reading only. Raises `UnknownRun` if there is none."""
        view = self._views.get(checks.name(request, "request_id"))
        if view is None:
            view = self._views[request] = LeaderlessRun(request)
            _trim(self._views)
        try:
            async for entry in self.journal.read(request, view.seq):
                if entry.seq == view.seq + 1:  # a concurrent call may have been faster
                    view.read(entry)
                    if entry.seq == 1:
                        self._check_pooled(view)
        except UsageError:
            self._views.pop(request, None)
            raise
        self._stop_attempts(view)
        return view

    async def open(self) -> list[LeaderlessRun]:
        """Views of all requests that have not ended, by priority and then by age."""
        heads = [head for head in await self.journal.heads() if not head.is_ended]
        names = [head.stream for head in heads if head.stream not in self._led]
        views: list[LeaderlessRun] = []
        for name in names:
            with suppress(UnknownRun, _Led):
                views.append(await self.view(name))
        asked = [(view, view.schedule.requested) for view in views if not view.is_ended]
        known = [(view, asked) for view, asked in asked if asked is not None]
        return [view for view, _ in sorted(known, key=lambda each: (-each[1].priority, each[1].at))]

    async def of(self, request: str) -> list[LeaderlessRun]:
        """The view of one request, if it belongs to a pool; of all open requests if `request` is empty."""
        if not request:
            return await self.open()
        with suppress(_Led):
            return [await self.view(request)]
        return []

    async def look_after(self, *requests: str) -> None:
        """Advance these requests: apply mail and due timers, and take back the tasks of dead processes."""
        await self.take_letters(*requests)
        own = self.journal.leases.node
        for request in requests:
            view = await self.view(request)
            is_held = any(holder.node != own for holder in view.holders.values())
            if is_held or view.is_due(self.clock.now()):
                await self.decide(request, LeaderlessRun.reap)

    async def take_letters(self, *requests: str) -> None:
        """Apply the mail for these requests, as a leader would."""
        letters = [each for each in await self.journal.mail.unread() if each.stream in requests]
        for letter in letters:
            event = told_by(letter, self.clock.now())
            with suppress(KeyConflict):  # another process has applied it; mail is applied once
                await self.decide(letter.stream, taking(letter, event))

    def _decided(
        self,
        ledger: LeaderlessRun,
        act: Callable[[LeaderlessRun, DecisionTime], Decision],
        tail: Tail,
    ) -> Decision:
        last_at = ledger.schedule.last_at
        now = self.clock.now()
        at = now if last_at is None else max(now, last_at)  # clocks of processes differ
        before = ledger.seq
        try:
            return act(ledger, DecisionTime(at, self.journal.leases.node, tail.is_alive, tail.take))
        except BaseException as error:
            if isinstance(error, UsageError) and ledger.seq == before:
                return Decision([], error)
            ledger.void()
            raise

    async def _ledger(self, request: str) -> LeaderlessRun:
        known = self._deciding.get(checks.name(request, "request_id"))
        if known is not None and not known.is_void:
            return known
        # Read here, not in the transaction: a long history would block all other writers.
        fresh = LeaderlessRun(request)
        async for entry in self.journal.read(request):
            fresh.read(entry)
        fresh.stops.clear()
        self._check_pooled(fresh)
        current = self._deciding.get(request)
        if current is None or current.is_void:
            self._deciding[request] = fresh
            _trim(self._deciding)
        return self._deciding[request]

    def _check_pooled(self, ledger: LeaderlessRun) -> None:
        if not ledger.is_pooled:
            self._led.add(ledger.request)
            raise _Led(
                f"run {ledger.request!r} belongs to a supervisor, not to a pool; "
                "the pool can read it, but only the supervisor can change it"
            )

    def _stop_attempts(self, ledger: LeaderlessRun) -> None:
        while ledger.stops:
            task, attempt, reason = ledger.stops.popleft()
            for engine in self.engines:
                engine.stop(ledger.request, task, attempt, reason)


class _Led(UsageError):
    """The run belongs to a supervisor, not to a pool."""


def taking(letter: Mail, event: Event | None) -> Callable[[LeaderlessRun, DecisionTime], Decision]:
    """A decision that takes mail and applies its event; None: the mail has no event for a pool."""

    def take(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
        moment.take(letter.id)
        return Decision([]) if event is None else telling(event)(ledger, moment)

    return take


def telling(event: Event) -> Callable[[LeaderlessRun, DecisionTime], Decision]:
    """A decision that applies an event, if it changes anything."""

    def tell(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
        return Decision(ledger.write(replace(event, at=moment.at), moment.node))

    return tell


def _trim(ledgers: dict[str, LeaderlessRun]) -> None:
    """Drop the oldest ended requests from a cache, beyond `KEPT`."""
    ended = [name for name, ledger in ledgers.items() if ledger.is_ended]
    for name in ended[: max(0, len(ended) - KEPT)]:
        del ledgers[name]
