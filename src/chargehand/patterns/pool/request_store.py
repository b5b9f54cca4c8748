"""All requests of the pools in one journal, as this process sees them and adds to them."""

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
from chargehand.patterns.pool.pool_run import Decision, DecisionTime, PoolRun
from chargehand.runtime.command_inbox import told_by

log = logging.getLogger("chargehand.pool")

#: seconds after which it is tried again to add to a request that somebody leads
AGAIN = 0.1
#: how often that is tried
PATIENCE = 50
#: ended requests that are remembered, so that they need not be read again
KEPT = 64


class PoolRequests:
    """Two ledgers of each request: one that what is decided here goes by, and one to look at.

    The first is touched only inside the journal's transaction, by the thread that writes; the second
    only on the event loop, and it knows only what is stored.
    """

    def __init__(self, journal: Journal, clock: Clock, notices: RunNotices | None = None) -> None:
        self.journal = journal
        self.clock = clock
        #: how people are told that they are needed
        self._notices = notices
        self._place = str(getattr(journal, "path", ""))
        #: where attempts run that may have to be stopped
        self.engines: WeakSet[Engine] = WeakSet()
        self._deciding: dict[str, PoolRun] = {}
        self._views: dict[str, PoolRun] = {}
        #: runs that supervisors lead; none of ours
        self._led: set[str] = set()

    async def add(self, request: str, events: Sequence[Event]) -> PoolRun:
        """Store a new request; returns its view once that is durable. Nothing has to be read for it."""
        await self.journal.append(request, events)
        view = self._views[request] = PoolRun.begun(request, events)
        self._deciding[request] = PoolRun.begun(request, events)
        _trim(self._views)
        _trim(self._deciding)
        return view

    async def decide(
        self, request: str, act: Callable[[PoolRun, DecisionTime], Decision]
    ) -> Decision:
        """Have something decided at the end of a request's stream; returns once that is durable.

        Raises what `act` gave as its refusal, after storing what it gave beside it. Whoever leads the
        request for a moment, to cancel it perhaps, is waited for.
        """
        patience = PATIENCE
        while True:
            ledger = await self._ledger(request)
            moves: list[Decision] = []

            def decided(
                tail: Tail, ledger: PoolRun = ledger, moves: list[Decision] = moves
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
                view = await self.view(request)  # the ledger itself is not ours to read
                for event in moves[0].events:
                    self._notices.hear(request, event, view.schedule, self._place)
            if moves and moves[0].refusal is not None:
                raise moves[0].refusal
            if moves:
                return moves[0]

    async def view(self, request: str) -> PoolRun:
        """The request as it is stored by now; to be read only. Raises `UnknownRun` if there is none."""
        view = self._views.get(checks.name(request, "request_id"))
        if view is None:
            view = self._views[request] = PoolRun(request)
            _trim(self._views)
        try:
            async for entry in self.journal.read(request, view.seq):
                if entry.seq == view.seq + 1:  # another call may have been faster
                    view.read(entry)
                    if entry.seq == 1:
                        self._check_pooled(view)
        except UsageError:
            self._views.pop(request, None)
            raise
        self._stop_attempts(view)
        return view

    async def open(self) -> list[PoolRun]:
        """Views of all requests that have not ended, the oldest first."""
        heads = [head for head in await self.journal.heads() if not head.is_ended]
        names = [head.stream for head in heads if head.stream not in self._led]
        views: list[PoolRun] = []
        for name in names:
            with suppress(UnknownRun, _Led):
                views.append(await self.view(name))
        asked = [(view, view.schedule.requested) for view in views if not view.is_ended]
        known = [(view, asked) for view, asked in asked if asked is not None]
        return [view for view, _ in sorted(known, key=lambda each: (-each[1].priority, each[1].at))]

    async def of(self, request: str) -> list[PoolRun]:
        """The view of one request, if it is a pool's; of all that have not ended, if none is named."""
        if not request:
            return await self.open()
        with suppress(_Led):
            return [await self.view(request)]
        return []

    async def look_after(self, *requests: str) -> None:
        """Have these requests go on by themselves: take what others have sent, and from the dead what they had."""
        await self.take_letters(*requests)
        own = self.journal.leases.node
        for request in requests:
            view = await self.view(request)
            is_held = any(holder.node != own for holder in view.holders.values())
            if is_held or view.is_due(self.clock.now()):
                await self.decide(request, PoolRun.reap)

    async def take_letters(self, *requests: str) -> None:
        """Take what others have sent to these requests, as their leader would."""
        letters = [each for each in await self.journal.mail.unread() if each.stream in requests]
        for letter in letters:
            event = told_by(letter, self.clock.now())
            with suppress(KeyConflict):  # another process has taken it: what it says is said once
                await self.decide(letter.stream, taking(letter, event))

    def _decided(
        self, ledger: PoolRun, act: Callable[[PoolRun, DecisionTime], Decision], tail: Tail
    ) -> Decision:
        last_at = ledger.schedule.last_at
        now = self.clock.now()
        at = now if last_at is None else max(now, last_at)  # other processes have other clocks
        before = ledger.seq
        try:
            return act(ledger, DecisionTime(at, self.journal.leases.node, tail.is_alive, tail.take))
        except BaseException as error:
            if isinstance(error, UsageError) and ledger.seq == before:
                return Decision([], error)
            ledger.void()
            raise

    async def _ledger(self, request: str) -> PoolRun:
        known = self._deciding.get(checks.name(request, "request_id"))
        if known is not None and not known.is_void:
            return known
        # Folded here and not in the transaction: a long history would keep all others waiting.
        fresh = PoolRun(request)
        async for entry in self.journal.read(request):
            fresh.read(entry)
        fresh.stops.clear()
        self._check_pooled(fresh)
        current = self._deciding.get(request)
        if current is None or current.is_void:
            self._deciding[request] = fresh
            _trim(self._deciding)
        return self._deciding[request]

    def _check_pooled(self, ledger: PoolRun) -> None:
        if not ledger.is_pooled:
            self._led.add(ledger.request)
            raise _Led(
                f"run {ledger.request!r} belongs to a supervisor, not to a pool; "
                "the pool can read it, but only the supervisor can change it"
            )

    def _stop_attempts(self, ledger: PoolRun) -> None:
        while ledger.stops:
            task, attempt, reason = ledger.stops.popleft()
            for engine in self.engines:
                engine.stop(ledger.request, task, attempt, reason)


class _Led(UsageError):
    """A run that somebody leads was taken for a request of a pool."""


def taking(letter: Mail, event: Event | None) -> Callable[[PoolRun, DecisionTime], Decision]:
    """The decision to take a letter, together with what it says; None: it says nothing to a pool."""

    def take(ledger: PoolRun, moment: DecisionTime) -> Decision:
        moment.take(letter.id)
        return Decision([]) if event is None else telling(event)(ledger, moment)

    return take


def telling(event: Event) -> Callable[[PoolRun, DecisionTime], Decision]:
    """The decision to take in what is said to have happened, if it says anything new."""

    def tell(ledger: PoolRun, moment: DecisionTime) -> Decision:
        return Decision(ledger.write(replace(event, at=moment.at), moment.node))

    return tell


def _trim(ledgers: dict[str, PoolRun]) -> None:
    """Forget the oldest of those that have ended, if there are many."""
    ended = [name for name, ledger in ledgers.items() if ledger.is_ended]
    for name in ended[: max(0, len(ended) - KEPT)]:
        del ledgers[name]
