"""The loop: drain the inbox, decide, write to the journal, and only then act.

Journal first, act second: a crash in between replays the events and acts then, while the other
order could act on a decision that was never recorded.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakSet, WeakValueDictionary

from msgspec import Struct

from chargehand.clock import Clock
from chargehand.decisions.budget import OVER_BUDGET, Account, Shortage
from chargehand.decisions.kernel import Batch, Kernel, RunMessage, StopAct
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.questions import budget_question, next_asking_for_more
from chargehand.decisions.run_fork import takeover
from chargehand.decisions.run_outputs_and_steps import Takeover
from chargehand.decisions.schedule import RunState
from chargehand.decisions.task_graph import TaskState
from chargehand.engines.base import NOT_ITS_TASK, Ending, Engine, Job, JournalHost, end_of
from chargehand.engines.brief import Brief, Drainable, Fenced, SharedBoard
from chargehand.engines.text_streams import TextStreams
from chargehand.errors import (
    InternalError,
    JournalBusy,
    JournalError,
    JournalFull,
    JournalReadOnly,
    KeyConflict,
    NotJSON,
    NotLeading,
    RunInterrupted,
    UnknownRun,
    UsageError,
    WorkerError,
    WrongLoop,
)
from chargehand.facts.answer import AnswerPiece, TaskPiece
from chargehand.facts.events import (
    AttemptFinished,
    AttemptHeldUp,
    AttemptParked,
    Event,
    PersonAsked,
    PlanAdopted,
    QuestionExpired,
    RetryPlanned,
    RunLed,
    RunPaused,
    RunReleased,
    RunRequested,
    StepStarted,
    WorkStopped,
)
from chargehand.facts.limits import Limits, has_caps
from chargehand.facts.on_question import WAITING, Asking, OnQuestion
from chargehand.facts.outcome import NO_USAGE, NeedsInput, failed_by
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import PreemptAttempt, StartAttempt
from chargehand.fork_guard import end_copy, refuse_copy
from chargehand.journal.base import Journal
from chargehand.notify.run_notices import RunNotices
from chargehand.past_runs import spent_below
from chargehand.roles.roster import Member, Roster
from chargehand.runtime.attempt_factory import AttemptFactory
from chargehand.runtime.command_inbox import CommandInbox
from chargehand.runtime.log_lines import log_events
from chargehand.runtime.loop_watchdog import Watchdog
from chargehand.runtime.wait_warnings import SILENCE, WaitWarnings
from chargehand.sync_async_bridge import outside_task

log = logging.getLogger("chargehand")

T = TypeVar("T")

Hook: TypeAlias = Callable[[str, Any], object]

Hooks: TypeAlias = dict[type[Any], list[Hook]]

Heard: TypeAlias = Event | AnswerPiece | TaskPiece | None
"""What listeners hear; None: there is no more."""


#: of processes that took up one submitted run; after so many it is parked until a person resumes it
MOST_DEATHS = 2


class Leading(NamedTuple):
    """A run that has just become ours."""

    ending: "asyncio.Future[LiveRun]"
    written: "asyncio.Future[Event | None]"
    #: how many have led it, with us
    epoch: int


#: how often a journal that is full, locked or read-only is tried again
RETRY_WRITE = timedelta(seconds=1)
#: seconds between two checks whether a lease has to be renewed
RENEWAL = 0.0625

#: why a process lets go of a run that it could still lead
WAITS = "it waits for a person"
CUT_OFF = "its provider serves no calls"

#: after these, and after an attempt that asks, what waits is looked at although other work goes on
NEEDS_PERSON = frozenset(
    {AttemptHeldUp, AttemptParked, PersonAsked, RetryPlanned, RunLed, RunPaused}
)


#: it may take long until these are over
NO_ROOM = (JournalFull, JournalReadOnly)


class BlockedWrites:
    """The runs whose events cannot be written just now, and why."""

    def __init__(self) -> None:
        self._errors: dict[str, JournalError] = {}
        #: set while nothing can be written for want of room or of the right to write
        self._is_stalled = asyncio.Event()
        #: done when what was decided last is written; None if it is
        self._writing: asyncio.Future[None] | None = None
        #: work that somebody has given up waiting for; it goes on
        self._left: set[asyncio.Task[Any]] = set()

    def add(self, run: str, error: JournalError) -> None:
        self._errors[run] = error
        if isinstance(error, NO_ROOM):
            self._is_stalled.set()

    def remove(self, run: str) -> None:
        if self._errors:
            self._errors.pop(run, None)
            if self._no_room is None:
                self._is_stalled.clear()

    @property
    def error(self) -> JournalError | None:
        """Why nothing can be written just now; None if it can."""
        return next(iter(self._errors.values()), None)

    @property
    def _no_room(self) -> JournalError | None:
        return next((each for each in self._errors.values() if isinstance(each, NO_ROOM)), None)

    def refuse(self) -> None:
        """Raise the error of the journal if what is begun now would wait for long."""
        error = self._no_room
        if error is not None:
            raise type(error)(*error.args)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Around the writing of what was decided: `settled` waits for that."""
        self._writing = writing = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._writing = None
            writing.set_result(None)

    async def settled(self) -> None:
        """Return once what was decided so far is written. Raises the error of the journal if that waits for room."""
        if self._writing is not None:
            await self.unless_stalled(self._writing)

    def keep(self, work: "asyncio.Task[Any]") -> None:
        """Let this go on although nobody may wait for it any more."""
        self._left.add(work)
        work.add_done_callback(self._forget)

    def _forget(self, work: "asyncio.Task[Any]") -> None:
        self._left.discard(work)
        if not work.cancelled():
            work.exception()  # who still waits has it

    async def unless_stalled(self, done: "asyncio.Future[T]") -> T:
        """What this returns, once it is done. Raises the error of the journal if that waits for room."""
        stalled = asyncio.ensure_future(self._is_stalled.wait())
        try:
            waited: set[asyncio.Future[Any]] = {done, stalled}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stalled.cancel()
        error = self._no_room
        if not done.done() and error is not None:
            fact = str(error).partition("; ")[0]
            raise type(error)(
                f"{fact}; this is not stored yet: it waits, and takes effect when the journal can be written "
                "again, unless this process ends before"
            )
        return await done


class Listeners:
    """Those who hear the events of a run once they are durable, and its answer as it grows."""

    def __init__(self, texts: TextStreams) -> None:
        #: by run: how many of its events listeners could have heard, or find in the journal
        self.told: dict[str, int] = {}
        self._texts = texts
        self._queues: dict[str, list[asyncio.Queue[Heard]]] = {}

    def add(self, run: str, *, tokens: bool) -> "asyncio.Queue[Heard]":
        """What one more listener hears from now on; with `tokens`, also what models write for tasks."""
        queue: asyncio.Queue[Heard] = asyncio.Queue()
        self._queues.setdefault(run, []).append(queue)
        self._texts.add(run, queue, tokens=tokens)
        return queue

    def say(self, run: str, piece: AnswerPiece) -> None:
        """Tell a piece of the answer."""
        self._texts.say(run, piece)

    def tell(self, run: str, events: Sequence[Event]) -> None:
        """These events of a run are durable."""
        if run in self.told:
            self.told[run] += len(events)
        for queue in self._queues.get(run, ()):
            for event in events:
                queue.put_nowait(event)

    def end(self, run: str) -> None:
        """No more is heard of this run here."""
        self.told.pop(run, None)
        for queue in self._queues.pop(run, ()):
            queue.put_nowait(None)
            self._texts.remove(run, queue)


class Alarm:
    """Wakes the loop when the next timer is due."""

    def __init__(self, clock: Clock, wake: asyncio.Event) -> None:
        self._clock = clock
        self._wake = wake
        self._ringer: asyncio.Task[None] | None = None
        self._rings_at: datetime | None = None

    def set(self, due_at: datetime, group: asyncio.TaskGroup) -> None:
        """Ring at this instant, unless it is set to an earlier one."""
        if self._ringer is not None and not self._ringer.done():
            if self._rings_at is not None and self._rings_at <= due_at:
                return
            self._ringer.cancel()
        self._rings_at = due_at
        self._ringer = group.create_task(self._ring(due_at))

    def cancel(self) -> None:
        if self._ringer is not None:
            self._ringer.cancel()

    async def _ring(self, due_at: datetime) -> None:
        await self._clock.sleep_until(due_at)
        self._wake.set()


class RuntimeParts(Struct, frozen=True, kw_only=True):
    """What a runtime is handed."""

    kernel: Kernel
    journal: Journal
    roster: Roster
    attempts: AttemptFactory
    engine: Engine
    clock: Clock
    hooks: Hooks
    notices: RunNotices | None
    texts: TextStreams
    #: raises `UsageError` for what another process wants and cannot be had
    refuse_unkept: Callable[[Event], None] = lambda _: None


class Runtime:
    """Leads runs in one event loop, from the first until it is closed."""

    def __init__(self, parts: RuntimeParts) -> None:
        kernel, journal, clock = parts.kernel, parts.journal, parts.clock
        attempts, texts = parts.attempts, parts.texts
        self.loop = asyncio.get_running_loop()
        self._home = os.getpid()
        self.kernel = kernel
        self.journal = journal
        self._clock = clock
        #: runtimes of other supervisors that work for tasks of this one
        self._below: WeakSet[Drainable] = WeakSet()
        #: by run that is led for a task of another: whether it waits for people, and whom to tell
        self._above: dict[str, tuple[bool, Callable[[bool], None]]] = {}
        #: runs that are being let go, to be resumed
        self._left: set[str] = set()
        #: by worker that leaves: set when it has nothing to do any more
        self._departures: dict[str, asyncio.Event] = {}
        #: those whose time to end what they have is over
        self._expelled: set[str] = set()
        self._hooks = parts.hooks
        self._notices = parts.notices
        #: of the journal, for other processes; a journal in memory has none
        self._place = str(getattr(journal, "path", ""))
        self._engine = parts.engine
        self._attempt_factory = attempts
        self._host = JournalHost(
            self, clock, attempts.spill, self._board_for, nesting=self, planning=self, texts=texts
        )
        self._inbox: list[RunMessage] = []
        self._blocked = BlockedWrites()
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._is_freed = False
        self._is_closing = False
        #: the supervisor's `async with` is over: nobody brings answers any more
        self.is_left = False
        #: in the supervisor's `async with`, or while it serves: submitted runs are taken up
        self.is_open = False
        #: it takes runs of others; when it stops, those who stand by go on with them and nobody has to resume them
        self.is_serving = False
        #: finds the processes that share submitted runs with this one
        self.find_peers: Callable[[], Awaitable[Sequence[str]]] | None = None
        #: set once `drain` has let go of everything
        self.drained = asyncio.Event()
        self.is_stopping = self.is_over = False
        #: why nothing is led here any more, if nobody wanted that
        self.failure: BaseException | None = None
        self._unanswered: list[object] = []
        self._runs: dict[str, asyncio.Future[LiveRun]] = {}
        #: done when the run that was begun last is written down
        self._begun: asyncio.Future[Event | None] | None = None
        self._claims: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listeners = Listeners(texts)
        #: by run: what becomes of its questions; they wait where nothing is said
        self._asking: dict[str, Asking] = {}
        #: made when something may wait: most runs end before
        self._warnings: WaitWarnings | None = None
        self._alarm = Alarm(clock, self._wake)
        self._command_inbox = CommandInbox(journal, parts.roster, clock, self, parts.refuse_unkept)
        self._task = self.loop.create_task(self._work(), name="chargehand runtime")

    @property
    def is_gone(self) -> bool:
        """Whether nothing is done here any more; an event loop may be closed without a word."""
        return self.is_over or self.loop.is_closed()

    def refuse_other_loop(self) -> None:
        """Raise `WrongLoop` unless this is the event loop it works in, `ForkedCopy` in another process."""
        refuse_copy(self._home)
        if self.loop.is_closed():
            raise WrongLoop(
                "the event loop of this supervisor was closed while the supervisor was at work; close it "
                "(await boss.close()), make a new Supervisor on the same journal, and resume unfinished runs there"
            )
        if self.loop is not asyncio.get_running_loop():
            raise WrongLoop(
                "this supervisor is at work in another event loop; "
                "await it there, or make a second supervisor on the same journal"
            )

    async def propose(self, run: str, event: Event, mail: int = 0) -> Event | None:
        """Have something written down; returns what was, or None if it was refused."""
        return await self._propose(run, event, mail)

    def _propose(self, run: str, event: Event, mail: int = 0) -> "asyncio.Future[Event | None]":
        ticket: asyncio.Future[Event | None] = self.loop.create_future()
        if self.is_over:
            ticket.set_result(None)
        else:
            self._post(RunMessage(run, event, ticket=ticket, mail=mail))
        return ticket

    async def open_letters(self, run: str) -> None:
        """Take in what other processes have posted to this run before a command that comes later.

        Raises the error of the journal if nothing can be written: the command would wait for long.
        """
        self._blocked.refuse()
        opening = self.loop.create_task(self._command_inbox.open_letters(run))
        self._blocked.keep(opening)
        await self._blocked.unless_stalled(opening)

    async def command(self, run: str, event: Event) -> Event | None:
        """`propose` for somebody who waits for a reply: raises the error of the journal if nothing can be written.

        What was proposed is then not forgotten: it is written once that is possible.
        """
        return await self._blocked.unless_stalled(self._propose(run, event))

    async def settled(self) -> None:
        """Return once the journal has all that was decided so far. Raises its error if that waits for room."""
        await self._blocked.settled()

    @property
    def journal_error(self) -> JournalError | None:
        """Why nothing can be written just now; None if it can."""
        return self._blocked.error

    def claim(self, run: str) -> asyncio.Lock:
        """To be held while a run is begun or taken over: two callers at once would both lead it."""
        lock = self._claims.get(run)
        if lock is None:
            lock = self._claims[run] = asyncio.Lock()
        return lock

    async def peers(self) -> Sequence[str]:
        """The processes that share submitted runs with this one, and itself, in order."""
        return () if self.find_peers is None else await self.find_peers()

    def asking(self, run: str) -> Asking:
        return self._asking.get(run, WAITING)

    def ending(self, run: str) -> "asyncio.Future[LiveRun]":
        """Done when a run that is led here has ended; fails if it is led here no longer."""
        return self._runs[run]

    def leads(self, run: str) -> bool:
        return run in self._runs

    def listen(self, run: str, *, tokens: bool = False) -> "asyncio.Queue[Heard]":
        """Every event of a run from now on, once it is durable, and its answer as it grows.

        With `tokens`, also what models write for its tasks.
        """
        return self._listeners.add(run, tokens=tokens)

    def told(self, run: str) -> int:
        """How many events of a run came before the next that a listener hears."""
        return self._listeners.told[run]

    def say(self, run: str, piece: str | None) -> None:
        heard = AnswerPiece(text=piece or "", begins_anew=piece is None, at=self._clock.now())
        self._listeners.say(run, heard)

    def post(self, run: str, event: Event) -> None:
        """Have this written down in the next batch."""
        self._post(RunMessage(run, event))

    def _post(self, message: RunMessage) -> None:
        self._inbox.append(message)
        self._wake.set()

    def _expect(self, run: str, asking: Asking) -> "asyncio.Future[LiveRun]":
        if asking is not WAITING:
            self._asking[run] = asking
        future: asyncio.Future[LiveRun] = self.loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._runs[run] = future
        self._listeners.told[run] = 0
        return future

    def _settle(self, run: str, ending: LiveRun | BaseException) -> None:
        future = self._runs.pop(run, None)
        self._above.pop(run, None)
        self._asking.pop(run, None)
        if future is not None and not future.done():
            if isinstance(ending, LiveRun):
                future.set_result(ending)
            else:
                future.set_exception(ending)
        self._listeners.end(run)
        self._wake.set()

    def _stop_all(self, run: str, live_run: LiveRun, why: str) -> None:
        for node in live_run.schedule.nodes.values():
            if node.is_open:
                self._engine.stop(run, node.task.id, node.attempt, why)

    def _look_around(self) -> None:
        """A place may be free: decide anew, and let those who leave know that they have nothing left."""
        for name, idle in self._departures.items():
            if not self.kernel.dispatch.held_by(name):
                idle.set()
        self._is_freed = True
        self._wake.set()

    # Leading runs.

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
        if self.kernel.is_draining:
            raise UsageError("the supervisor is stopping and takes no new runs")
        self._blocked.refuse()
        run = requested.run
        taken = await self._taken_over(requested)  # first: the run that it names may not be there
        if may_exist and self.leads(run):
            return None
        async with self._lease(run) as epoch:
            # Looked for while we lead: from now on nobody else can begin it.
            has_begun = may_exist and await self.has_begun(run)
            if mail and epoch > 1 and self._begun is not None:
                # Those who led it before died. What was begun before it must not be decided with it.
                await asyncio.wait([self._begun])
            await self._hold(requested.reuses)
            # It may have been posted where clocks go ahead of ours.
            self._clock.not_before(requested.at)
            letters = await self._command_inbox.letters_for(run) if mail and not has_begun else []
        if has_begun:
            await self.journal.leases.release(run, epoch)
            return None
        if mail and epoch > MOST_DEATHS:
            await self._park(requested, plan, epoch, mail)
            return None
        ending = self._expect(run, asking)
        opened = self.kernel.open(run, above=above, results=taken.begun())
        opened.reusable, opened.kept, opened.epoch = taken.by_key, taken.results, epoch
        now = self._clock.now()
        self._post(RunMessage(run, requested, mail=mail))
        led = self.kernel.led_by(self.journal.leases.node, epoch, now)
        self._begun = self._propose(run, led)
        if plan is not None:
            self._begun = self._propose(run, PlanAdopted(plan=plan, at=now))
        for event, letter in letters:  # a run that was paused before it began starts nothing
            self._post(RunMessage(run, event, mail=letter))
        return Leading(ending, self._begun, epoch)

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
        events: list[Event] = [requested, self.kernel.led_by(node, epoch, now)]
        if plan is not None:
            events.append(PlanAdopted(plan=plan, at=now))
        events.append(RunReleased(node=node, reason=reason, is_parked=True, at=now))
        await self.journal.append(run, events, epoch=epoch, taking=[mail])
        await self.journal.leases.release(run, epoch)
        log.error("run_parked run=%s reason=%s", run, reason)

    async def take_over(
        self,
        run: str,
        check: Callable[[LiveRun], None],
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> "Leading":
        """Lead a run that another process, or an earlier runtime, has left; `check` may object."""
        if self.kernel.is_draining:
            raise UsageError("the supervisor is stopping and takes over no run")
        # Led first, read second: from the new epoch on nobody else can add to what is read here.
        async with self._lease(run) as epoch:
            history = [entry.event async for entry in self.journal.read(run)]
            if not history:  # its process died between leading it and writing its first event
                raise UnknownRun(run, "it was never begun")
            self._clock.not_before(history[-1].at)
            first = history[0]
            taken = await self._taken_over(first) if type(first) is RunRequested else Takeover()
            letters = await self._command_inbox.letters_for(run)
            is_capped = above is not None or has_caps(_limits_in(history))
            below = await spent_below(self.journal, history) if is_capped else {}
        # No more waiting up to `RunLed`: a round in between would decide under the old epoch.
        try:
            live_run = self.kernel.open(run, history, above, taken.begun())
        except InternalError:
            await self.journal.leases.release(run, epoch)
            raise
        live_run.reusable, live_run.kept, live_run.epoch = taken.by_key, taken.results, epoch
        if live_run.account is not None:
            for child, spent in below.items():  # they are led again only later
                live_run.account.hold(child, spent)
        ending = self._expect(run, asking)
        self._listeners.told[run] = len(history)
        if live_run.schedule.status is not None:  # it has ended while we were on our way
            self.kernel.close(run)
            self._settle(run, live_run)
            await self.journal.leases.release(run, epoch)
            return Leading(ending, self.written_already(), epoch)
        try:
            check(live_run)
        except BaseException as error:
            self.kernel.close(run)
            self._settle(run, error)
            await self.journal.leases.release(run, epoch)
            raise
        node = self.journal.leases.node
        led = self.kernel.led_by(node, epoch, self._clock.now(), live_run)
        written = self._propose(run, led)
        for event, mail in letters:  # what was answered in time is no longer due
            self._post(RunMessage(run, event, mail=mail))
        return Leading(ending, written, epoch)

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

    async def _taken_over(self, requested: RunRequested) -> Takeover:
        """What this run has of the one that it reuses, or is a fork of."""
        if not requested.reuses:
            return Takeover()
        events: list[Event] = []
        async for entry in self.journal.read(requested.reuses):
            events.append(entry.event)
            if entry.seq == requested.fork_seq:
                break
        return takeover(requested, events)

    async def _hold(self, run: str) -> None:
        """Raise `UnknownRun` if retention has deleted this run since it was read.

        Asked of the writer while we lead the run that needs it: retention deletes nothing from here on
        that it may need, and what it deleted before is seen.
        """
        if run:
            with contextlib.suppress(NotLeading):  # it is still under way
                await self.journal.decide(run, lambda _: ())

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
        """Return when the runtime has ended."""
        await asyncio.wait([self._task])

    async def drain(self, grace: timedelta) -> None:
        """Start nothing new, let what runs end for so long, and leave the rest to be resumed.

        So do all runtimes below this one, at the same time.
        """
        self.kernel.is_draining = True
        below = [each.drain(grace) for each in self._below]
        await asyncio.gather(self._quieten(grace), *below)
        self.is_stopping = True
        for run, live_run in self.kernel.runs.items():
            self._stop_all(run, live_run, "the supervisor is stopping")
        for run in list(self.kernel.runs):
            await self.let_go(run)
        self.drained.set()

    async def _quieten(self, grace: timedelta) -> None:
        if self.kernel.busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), grace.total_seconds())

    def join(self, worker: Member) -> None:
        """Give this worker work from now on; one that drains is given work again."""
        if worker.name in self._departures:
            raise UsageError(f"worker {worker.name!r} is still leaving; wait for that first")
        if worker.name not in self._attempt_factory:
            self._attempt_factory.join(worker)
        self.kernel.dispatch.join(worker.place)
        self._look_around()

    def drain_worker(self, name: str) -> None:
        """Give this worker nothing new."""
        self.kernel.dispatch.drain(name)

    async def part(self, name: str, grace: timedelta) -> None:
        """Give a worker nothing new, let it end what it does for so long, and do the rest anew.

        Returns when it is gone. Plain functions cannot be stopped: for those it waits.
        """
        idle = self._departures[name] = asyncio.Event()
        if not self.kernel.dispatch.leave(name):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), grace.total_seconds())
            self._expelled.add(name)
            for attempt in self.kernel.dispatch.held_by(name):
                self._take_away(*attempt)
            if self.kernel.dispatch.held_by(name):
                await idle.wait()
        del self._departures[name]
        self._expelled.discard(name)
        await self._attempt_factory.leave(name)

    # The loop.

    async def _work(self) -> None:
        watchdog = Watchdog.watch()
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._command_inbox.watch())
                try:
                    await self._lead(group)
                finally:
                    watch.cancel()
                    self._alarm.cancel()
                    if self._warnings is not None:
                        self._warnings.close()
        except BaseExceptionGroup as group_error:
            await self._fail(_first(group_error))
        except BaseException as error:
            await self._fail(error)
            raise
        finally:
            # Nothing is written any more: whoever waits for that, in a thread perhaps, is told so.
            self.is_over = True
            self._quiet.set()  # nor does anybody have to wait for what ran to end
            for ticket in (*self._unanswered, *(message.ticket for message in self._inbox)):
                _answer(ticket, None)
            await self._engine.close()
            await self._attempt_factory.close()
            watchdog.release()

    async def _lead(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wait(group)
            end_copy(self._home)
            if self._is_closing and not self._runs and not self._inbox:
                return
            messages, self._inbox = self._inbox, []
            self._is_freed = False
            batch = self.kernel.decide(messages, self._clock.now())
            if batch.entries:
                try:
                    with self._blocked.writing():
                        await self._write(batch)
                except BaseException:
                    self._unanswered = [ticket for ticket, _ in batch.tickets]
                    raise
            self._carry_out(batch)
            if batch.broken:
                await self._part_with(batch)
            if self.is_left:
                self._let_wait(self.kernel.runs, group)
            elif self._asking:
                self._let_wait(self._asking.keys() & batch.entries.keys(), group)

    def _let_wait(self, runs: Iterable[str], group: asyncio.TaskGroup) -> None:
        """Let go of those of these runs in which nothing goes on before a person has done something."""
        for run in runs:
            policy, live_run = self.asking(run), self.kernel.runs.get(run)
            if live_run is None or run in self._left:
                continue
            waits = live_run.schedule.state is RunState.WAITING
            if self.is_left and (waits or self._is_stuck(live_run)):
                group.create_task(self.let_go(run, WAITS))
            elif waits and live_run.schedule.is_cut_off:
                is_asking = any(node.question for node in live_run.schedule.nodes.values())
                if policy.on_outage is OnQuestion.RETURN and not (
                    is_asking and policy.mode is OnQuestion.WAIT
                ):
                    group.create_task(self.let_go(run, CUT_OFF, live_run))
            elif policy.mode is OnQuestion.RETURN and waits and not _is_timed(policy, live_run):
                group.create_task(self.let_go(run, WAITS, live_run))

    def _is_stuck(self, live_run: LiveRun) -> bool:
        """Whether nothing will happen in this run by itself: it is paused, or has nobody to work for it."""
        if live_run.schedule.state is RunState.PAUSED:
            return True
        nodes = live_run.schedule.nodes.values()
        goes_on = self.kernel.busy or self._inbox or self.kernel.has_probe
        return not goes_on and not any(node.state is TaskState.RETRYING for node in nodes)

    async def let_go(
        self, run: str, why: str = "stopped gently", ending: LiveRun | None = None
    ) -> None:
        """Lead a run no longer, and leave it to be resumed: its attempts are stopped, not ended.

        Whoever waits for it gets the run as it stands, or without an `ending` is told to resume it.
        """
        live_run = self.kernel.runs.get(run)
        if live_run is None or run in self._left:
            return
        self._left.add(run)
        self._stop_all(run, live_run, why)
        node = self.journal.leases.node
        await self.propose(run, RunReleased(node=node, reason=why, at=self._clock.now()))
        if run in self._runs:
            self.kernel.close(run)
            if not (self.is_serving and self.kernel.is_draining):
                await self.journal.leases.release(run, live_run.schedule.epoch)
            how = "resume it with this id: what is done is kept"
            self._settle(run, ending or RunInterrupted(run, how))
        self._left.discard(run)

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        while not (self._inbox or self._is_freed or (self._is_closing and not self._runs)):
            due_at = self.kernel.next_due()
            if due_at is not None:
                if due_at <= self._clock.now():
                    return
                self._alarm.set(due_at, group)
            self._arm_warnings()
            self._wake.clear()
            await self._wake.wait()
            if self._warnings is not None:
                self._warnings.stir()

    def _arm_warnings(self) -> None:
        """Nothing is to be decided now: have it said in a second what waits, if anything may."""
        is_idle = not self.kernel.busy
        may_wait = is_idle or self.kernel.dispatch.probes_at is not None
        if self._warnings is not None or (may_wait and self.kernel.runs):
            self._wait_warnings().arm(is_idle=is_idle)

    def _wait_warnings(self) -> WaitWarnings:
        if self._warnings is None:
            self._warnings = WaitWarnings(self.kernel, self._clock, self._place)
        return self._warnings

    async def _write(self, batch: Batch) -> None:
        writes = [
            self._append(run, events, batch.mail.get(run, []), batch)
            for run, events in batch.entries.items()
        ]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)
        waits = 0
        while self.kernel.runs and not self.journal.leases.is_valid():
            # Our lease may have run out unseen, for instance while the machine was asleep. What
            # was written is ours, but nothing may be started before the lease is renewed. It never
            # will be if the disk has failed since or another leads: appending nothing finds out.
            await asyncio.sleep(RENEWAL)
            waits += 1
            if waits * RENEWAL == SILENCE:
                log.warning(
                    "lease_not_renewed; nothing is started before the journal has renewed it"
                )
            for run in batch.entries:
                if run in batch.ended or run in self.kernel.runs:
                    await self._append(run, [], [], batch)

    async def _append(self, run: str, events: list[Event], mail: list[int], batch: Batch) -> None:
        live_run = batch.ended.get(run) or self.kernel.runs.get(run) or batch.broken[run][0]
        is_told = False
        while True:
            try:
                await self.journal.append(run, events, epoch=live_run.schedule.epoch, taking=mail)
            except NotLeading as error:
                self._lose(run, error, batch)
                return
            except KeyConflict:
                mail = []  # taken before, by an earlier runtime; what came of it is ours to write
            except NotJSON as error:
                # Nothing of it was stored. The run ends in words that can be, or is led no longer.
                events.clear()
                if run not in batch.broken:
                    self.kernel.break_off(run, error, batch, self._clock.now())
                else:
                    batch.ended.pop(run, None)
            except (JournalFull, JournalBusy, JournalReadOnly) as error:
                # Nothing was acknowledged and nothing is acted upon, so waiting loses nothing.
                if self.is_stopping:
                    raise
                is_new = bool(events) and type(events[0]) is RunRequested and not mail
                if is_new and isinstance(error, NO_ROOM):
                    # Nothing of this run is stored: its caller hears at once that it was not begun.
                    self._lose(run, error, batch)
                    with contextlib.suppress(JournalError):
                        await self.journal.leases.release(run, live_run.epoch)
                    return
                self._blocked.add(run, error)
                if not is_told:
                    log.warning("journal_not_writable run=%s error=%s; trying again", run, error)
                    is_told = True
                await asyncio.sleep(RETRY_WRITE.total_seconds())
            else:
                self._blocked.remove(run)
                self._publish(run, events, live_run)
                return

    def _publish(self, run: str, events: list[Event], live_run: LiveRun) -> None:
        if log.isEnabledFor(logging.INFO):
            log_events(run, events)
        self._listeners.tell(run, events)
        for event in events:
            for hook in self._hooks.get(type(event), ()):
                try:
                    with outside_task():
                        hook(run, event)
                except KeyboardInterrupt:
                    raise
                except BaseException:  # a hook's SystemExit must not end the runs
                    log.exception("hook_failed run=%s event=%s", run, type(event).__name__)
                finally:
                    end_copy(self._home)
            if type(event) is AttemptFinished:
                if type(event.outcome) is NeedsInput:
                    self._mind_person(run, event, live_run)
                if live_run.account is not None and event.outcome.usage != NO_USAGE:
                    for over in live_run.account.new_overruns():
                        log.warning("cap_passed run=%s; workers reported usage: %s", run, over)
            elif type(event) in NEEDS_PERSON:
                self._mind_person(run, event, live_run)
            if self._notices is not None:
                try:
                    self._notices.hear(run, event, live_run.schedule, self._place)
                except Exception:
                    log.exception("notice_failed run=%s event=%s", run, type(event).__name__)

    async def _part_with(self, batch: Batch) -> None:
        """Tell of runs about which a decision raised; those that could not be ended are let go of."""
        for run, (live_run, mistake) in batch.broken.items():
            log.error("run_broken_off run=%s error=%s", run, mistake)
            if run not in batch.ended:
                with contextlib.suppress(JournalError):
                    await self.journal.leases.release(
                        run, live_run.schedule.epoch or live_run.epoch
                    )
                self._settle(run, mistake)

    def _lose(self, run: str, error: JournalError, batch: Batch) -> None:
        """This run is led here no longer: stop all that is done for it, and say so."""
        log.warning("run_lost run=%s error=%s", run, error)
        self._blocked.remove(run)
        live_run = batch.ended.pop(run, None) or self.kernel.runs.get(run)
        unwritten = {id(event) for event in batch.entries[run]}
        batch.tickets = [
            (ticket, None if id(event) in unwritten else event) for ticket, event in batch.tickets
        ]
        ours = [act for act in batch.acts if act.run == run]
        batch.acts = [act for act in batch.acts if act.run != run]
        self.kernel.free_unstarted(run, (act for act in ours if isinstance(act, StartAttempt)))
        self._look_around()
        if live_run is not None:
            self._stop_all(run, live_run, "another process leads the run")
        self.kernel.close(run)
        self._settle(run, error)

    async def _fail(self, error: BaseException) -> None:
        """Nothing is led here any more. Runs that are left open can be resumed at once, here or elsewhere."""
        left = {run: self.kernel.runs.get(run) for run in self._runs}
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if not is_cancelled:
            self.failure = error
            log.error("runtime_failed error=%r", error)
        elif left:
            log.warning("runtime_cancelled; the event loop ends: resume %s", ", ".join(left))
        why = "the event loop of its supervisor ended"
        for run, live_run in left.items():
            told = (
                error if isinstance(error, Exception) else RunInterrupted(run, f"{why}; resume it")
            )
            self.kernel.close(run)
            self._settle(run, told)
            if live_run is not None:
                await self._release(
                    run, live_run.schedule.epoch, why if is_cancelled else str(error)
                )

    async def _release(self, run: str, epoch: int, why: str) -> None:
        """Let go of a run without the loop that would write it down, as far as the journal can."""
        released = RunReleased(node=self.journal.leases.node, reason=why, at=self._clock.now())
        with contextlib.suppress(JournalError, UsageError):
            await self.journal.append(run, [released], epoch=epoch)
            await self.journal.leases.release(run, epoch)

    def _carry_out(self, batch: Batch) -> None:
        for ticket, event in batch.tickets:
            _answer(ticket, event)
        for worker, size in batch.sizes.items():
            self._attempt_factory.fit(worker, size)
        for act in batch.acts:
            if type(act) is StartAttempt:
                try:
                    job = self._job(act)
                except Exception as error:  # noqa: BLE001 - of this attempt; the others go on
                    self._refuse_start(act, error)
                    continue
                self._engine.start(job, self)
                if act.worker in self._expelled:  # since this was decided
                    self._take_away(act.run, act.task, act.attempt)
            elif type(act) is StopAct:
                self._engine.stop(act.run, act.task, act.attempt, act.reason)
            elif type(act) is PreemptAttempt:
                self._engine.preempt(act.run, act.task, act.attempt)
        for run in self._left.intersection(batch.entries):
            if any(type(event) is RunReleased for event in batch.entries[run]):
                self.kernel.close(run)  # now: the next round must not decide about it any more
        self._look_up(batch.entries)
        for run, live_run in batch.ended.items():
            log.info("run_finished run=%s status=%s", run, live_run.schedule.status)
            self._settle(run, live_run)

    def _job(self, act: StartAttempt) -> Job:
        live_run, asking = self.kernel.runs[act.run], self.asking(act.run)
        job = self._attempt_factory.job(act, live_run, self._host, asking)
        job.grace = live_run.schedule.limits.grace.total_seconds()
        return job

    def _refuse_start(self, act: StartAttempt, error: Exception) -> None:
        """An attempt that was decided on could not be made ready: it has failed."""
        outcome = failed_by(error)
        now = self._clock.now()
        event = AttemptFinished(task=act.task, attempt=act.attempt, outcome=outcome, at=now)
        self.post(act.run, event)
        self.kernel.free_place(act.run, act.task, act.attempt)
        self._look_around()

    def _take_away(self, run: str, task: str, attempt: int) -> None:
        """Stop an attempt at once, to be done anew by another."""
        self._engine.stop(run, task, attempt, "its worker has left")
        self._engine.preempt(run, task, attempt)  # so that it costs the task none of its attempts

    # Reports of attempts, and requests of nested supervisors.

    def report(self, job: Job, outcome: Ending) -> None:
        is_preempted = getattr(job.brief, "is_preempted", False)  # a worker may even delete it
        goes_on = is_preempted or self.kernel.is_draining or job.run in self._left
        event = end_of(job, outcome, self._clock.now(), goes_on=goes_on)
        self.post(job.run, event)

    def freed(self, job: Job) -> None:
        self.kernel.free_place(job.run, job.task, job.attempt)
        self._look_around()
        if self.kernel.is_draining and not self.kernel.busy:
            self._quiet.set()

    async def wait_for_room(self, brief: Brief, step: StepStarted) -> None:
        """Return when a step that was refused for want of money may be proposed again.

        Calls reserve their worst case and cost less: what is under way may still leave room. Once
        nothing is, the run's work is stopped.
        """
        live_run = self.kernel.runs.get(brief.run)
        account = self.account_of(brief.run)
        if live_run is None or account is None or not live_run.schedule.may_begin(step):
            raise Fenced(_why_fenced(live_run))
        short = account.shortage(brief.task.id, step.reserve)
        if short is None:
            return  # something was settled since it was refused
        settled = asyncio.Event()
        if account.when_settled(brief.task.id, step.reserve, settled.set):
            await settled.wait()
        elif short.task:
            raise WorkerError(f"{OVER_BUDGET}: {short}", kind="denied")
        elif short.account.plead is None or live_run.schedule.is_winding_up:
            stopped = WorkStopped(reason=OVER_BUDGET, by=str(short), at=self._clock.now())
            self.post(brief.run, stopped)
            raise WorkerError(f"{OVER_BUDGET}: {short}", kind="denied")
        else:
            await self._wait_for_more(brief, account, short)

    async def _wait_for_more(self, brief: Brief, account: Account, short: Shortage) -> None:
        """Have a person asked for more, and let go of the place meanwhile; goes on later from here."""
        assert short.account.plead is not None  # noqa: S101 - for the type checker
        short.account.plead(short)
        if short.account is account:
            brief.is_preempted = True
            raise Fenced("nothing is left to spend before a person has answered")
        # It is a run above that has nothing left, and that is paused; it will go on, or stop this one.
        changed = asyncio.Event()
        short.account.when_changed(changed.set)
        await changed.wait()

    def _plead(self, run: str, short: Shortage) -> None:
        """Ask a person whether this run may spend more."""
        live_run = self.kernel.runs.get(run)
        if live_run is not None:
            task = next_asking_for_more(live_run.schedule.nodes)
            question = budget_question(run, task, short)
            asked = PersonAsked(task=task, attempt=0, question=question, at=self._clock.now())
            self.post(run, asked)

    @property
    def clock(self) -> Clock:
        return self._clock

    def is_leaving(self, run: str) -> bool:
        return self.is_stopping or run in self._left or run not in self._runs

    def is_winding_up(self, run: str) -> bool:
        live_run = self.kernel.runs.get(run)
        return live_run is not None and live_run.schedule.is_winding_up

    def tell_above(self, run: str, tell: Callable[[bool], None]) -> None:
        """Have somebody told when all that is left of a run led here waits for people, and when it goes on."""
        self._above[run] = (False, tell)
        self._look_up([run])

    def _mind_person(self, run: str, event: Event, live_run: LiveRun) -> None:
        """A person may be needed: have that said, or give the question up where nobody is waited for."""
        nodes = live_run.schedule.nodes
        match event:
            case RunLed(epoch=1):
                return  # it has just begun: nobody was asked anything
            case AttemptHeldUp() | AttemptParked() | RetryPlanned() | RunPaused():
                asking = []
            case AttemptFinished() | PersonAsked():
                asking = [nodes[event.task]] if event.task in nodes else []
            case _:
                asking = list(nodes.values())
        self._wait_warnings().expect(run)
        policy = self.asking(run)
        if policy.mode is not OnQuestion.FAIL:
            return
        for node in asking:
            if node.question is not None and not (policy.is_default and node.question.patience):
                why = f"it asks {node.question.text!r}, and {policy.why}"
                id_, task, now = node.question.id, node.task.id, self._clock.now()
                expired = QuestionExpired(question=id_, task=task, why=why, at=now)
                self.post(run, expired)

    def _look_up(self, runs: Iterable[str]) -> None:
        for run in self._above.keys() & runs:
            was, tell = self._above[run]
            live_run = self.kernel.runs.get(run)
            waits = live_run is not None and live_run.schedule.state is RunState.WAITING
            if waits is not was:
                self._above[run] = (waits, tell)
                tell(waits)

    def take_in(self, below: Drainable) -> None:
        if self.kernel.is_draining:
            raise Fenced("the supervisor is stopping")
        self._below.add(below)

    def _board_for(self, brief: Brief) -> SharedBoard:
        # Imported when the first worker asks for it: most runs have no use for a board.
        from chargehand.roles.board import BriefBoard

        return BriefBoard(self.journal, self._clock, brief)

    def account_of(self, run: str) -> Account | None:
        live_run = self.kernel.runs.get(run)
        account = None if live_run is None else live_run.account
        requested = None if live_run is None else live_run.schedule.requested
        if account is not None and requested is not None and requested.asks_budget:
            account.plead = partial(self._plead, run)
        return account


def _limits_in(history: Sequence[Event]) -> Limits:
    first = history[0]
    return first.limits if type(first) is RunRequested else Limits()


def _is_timed(policy: Asking, live_run: LiveRun) -> bool:
    """Whether time settles what it asks, and nobody said not to wait for that."""
    asked = [node for node in live_run.schedule.nodes.values() if node.question is not None]
    return policy.is_default and bool(asked) and all(node.due_at for node in asked)


def _answer(ticket: object, event: Event | None) -> None:
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(event)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _why_fenced(live_run: LiveRun | None) -> str:
    """Why an attempt is heard no longer: its run is being stopped, or somebody else has the task."""
    reason = "" if live_run is None else live_run.schedule.stop_reason
    return f"the run was stopped: {reason}" if reason else NOT_ITS_TASK
