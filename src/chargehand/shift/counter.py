"""The counter of a shift: where runs are known by their endings, and everything is handed in."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from chargehand.clock import Clock
from chargehand.decisions.desk import Desk, Led, Message
from chargehand.engines.base import Engine
from chargehand.engines.local import LocalEngine
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.events import Event
from chargehand.facts.on_question import WAITING, Asking
from chargehand.journal.base import Journal
from chargehand.roles.office import Office
from chargehand.roles.roster import Roster
from chargehand.shift.announcer import Announcer
from chargehand.workbench import Workbench

log = logging.getLogger("chargehand")

Hook: TypeAlias = Callable[[str, Any], object]
Hooks: TypeAlias = dict[type[Any], list[Hook]]
Heard: TypeAlias = Event | AnswerPiece | None
"""What listeners hear; None: there is no more."""


class Drains(Protocol):
    """Something at work that can be stopped gently."""

    async def drain(self, grace: timedelta) -> None: ...


class Counter:
    """Takes in what is said to have happened, and tells those who wait or listen."""

    def __init__(
        self,
        desk: Desk,
        journal: Journal,
        roster: Roster,
        office: Office,
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.desk = desk
        self.journal = journal
        self._clock = clock
        #: shifts of other supervisors that work for tasks of this one
        self._below: WeakSet[Drains] = WeakSet()
        #: by run that is led for a task of another: whether it waits for people, and whom to tell
        self._above: dict[str, tuple[bool, Callable[[bool], None]]] = {}
        #: runs that are being let go, to be resumed
        self._left: set[str] = set()
        #: by worker that leaves: set when it has nothing to do any more
        self._departures: dict[str, asyncio.Event] = {}
        #: those whose time to end what they have is over
        self._expelled: set[str] = set()
        self._hooks = hooks
        self._notices = office.notices
        #: of the journal, for other processes; a journal in memory has none
        self._place = str(getattr(journal, "path", ""))
        self._engine: Engine = LocalEngine()
        self._bench = Workbench(roster, office, journal.blobs, clock, desk.dispatch.most)
        self._inbox: list[Message] = []
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._is_freed = False
        self._is_closing = False
        #: the supervisor's `async with` is over: nobody brings answers any more
        self.is_left = False
        self.is_stopping = False
        self.is_over = False
        self._unanswered: list[object] = []
        self._runs: dict[str, asyncio.Future[Led]] = {}
        self._claims: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: by run: how many of its events listeners could have heard, or find in the journal
        self._told: dict[str, int] = {}
        self._listeners: dict[str, list[asyncio.Queue[Heard]]] = {}
        #: by run: what becomes of its questions; they wait where nothing is said
        self._asking: dict[str, Asking] = {}
        self._announcer = Announcer(desk, clock, self._place)
        self._ringer: asyncio.Task[None] | None = None
        self._rings_at: datetime | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is done here any more; an event loop may be closed without a word."""
        return self.is_over or self.loop.is_closed()

    async def propose(self, run: str, event: Event, mail: int = 0) -> Event | None:
        """Have something written down; returns what was, or None if it was refused."""
        return await self._propose(run, event, mail)

    def _propose(self, run: str, event: Event, mail: int = 0) -> "asyncio.Future[Event | None]":
        ticket: asyncio.Future[Event | None] = self.loop.create_future()
        if self.is_over:
            ticket.set_result(None)
        else:
            self._post(Message(run, event, ticket=ticket, mail=mail))
        return ticket

    def claim(self, run: str) -> asyncio.Lock:
        """To be held while a run is begun or taken over: two callers at once would both lead it."""
        lock = self._claims.get(run)
        if lock is None:
            lock = self._claims[run] = asyncio.Lock()
        return lock

    def asking(self, run: str) -> Asking:
        return self._asking.get(run, WAITING)

    def ending(self, run: str) -> "asyncio.Future[Led]":
        """Done when a run that is led here has ended; fails if it is led here no longer."""
        return self._runs[run]

    def leads(self, run: str) -> bool:
        return run in self._runs

    def listen(self, run: str) -> "asyncio.Queue[Heard]":
        """Every event of a run from now on, once it is durable, and its answer as it grows."""
        queue: asyncio.Queue[Heard] = asyncio.Queue()
        self._listeners.setdefault(run, []).append(queue)
        return queue

    def told(self, run: str) -> int:
        """How many events of a run came before the next that a listener hears."""
        return self._told[run]

    def tell(self, run: str, piece: str | None) -> None:
        heard = AnswerPiece(text=piece or "", begins_anew=piece is None, at=self._clock.now())
        for queue in self._listeners.get(run, ()):
            queue.put_nowait(heard)

    def _post(self, message: Message) -> None:
        self._inbox.append(message)
        self._wake.set()

    def _expect(self, run: str, asking: Asking) -> "asyncio.Future[Led]":
        if asking is not WAITING:
            self._asking[run] = asking
        future: asyncio.Future[Led] = self.loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._runs[run] = future
        self._told[run] = 0
        return future

    def _settle(self, run: str, ending: Led | BaseException) -> None:
        future = self._runs.pop(run, None)
        self._above.pop(run, None)
        self._asking.pop(run, None)
        self._told.pop(run, None)
        if future is not None and not future.done():
            if isinstance(ending, Led):
                future.set_result(ending)
            else:
                future.set_exception(ending)
        for queue in self._listeners.pop(run, ()):
            queue.put_nowait(None)
        self._wake.set()

    def _stop_all(self, run: str, led: Led, why: str) -> None:
        for node in led.schedule.nodes.values():
            if node.is_open:
                self._engine.stop(run, node.task.id, node.attempt, why)

    def _look_around(self) -> None:
        """A place may be free: decide anew, and let those who leave know that they have nothing left."""
        for name, idle in self._departures.items():
            if not self.desk.dispatch.held_by(name):
                idle.set()
        self._is_freed = True
        self._wake.set()
