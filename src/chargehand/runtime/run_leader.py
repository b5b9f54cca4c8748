"""The loop: drain the inbox, decide, write to the journal, and only then act.

Journal first, act second: a crash in between replays the events and acts then, while the other
order could act on a decision that was never recorded.

`Runtime`, at the end, is the loop. It is composed of the parts before it:

- `PendingMessages`: what the next round decides about
- `LedRuns`: the runs that are led here, who waits for them, and how one is let go
- `RunOpener`: begins runs and takes over those of others
- `WorkerMembers`: workers that join and leave
- `WaitingRuns`: what happens to runs that wait for people
- `AttemptWriter`: has the steps of attempts written, within the budget
- `RunsBelow`: what nested supervisors may ask
- `BatchWriter`: writes what a round decided, and tells listeners and hooks
"""

import asyncio
import contextlib
import logging
import os
import shlex
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
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


#: a submitted run that this many processes have died with is parked until a person resumes it
MOST_DEATHS = 2


class BegunRun(NamedTuple):
    """A run that has just become ours."""

    ending: "asyncio.Future[LiveRun]"
    written: "asyncio.Future[Event | None]"
    #: how many processes have led it, including this one
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


class PendingMessages:
    """What the next round decides about: what was reported and proposed, and places that are free."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: list[RunMessage] = []
        #: those of the round under way
        self._taken: list[RunMessage] = []
        #: set when the loop may have something to do
        self.wake = asyncio.Event()
        #: a place may have become free since the last round
        self.is_freed = False
        self._is_over = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_over(self) -> bool:
        """Whether there is no next round; an event loop may be closed without a word."""
        return self._is_over or self._loop.is_closed()

    def post(self, run: str, event: Event, mail: int = 0) -> None:
        """Have this event written in the next round."""
        self._add(RunMessage(run, event, mail=mail))

    def propose(self, run: str, event: Event, mail: int = 0) -> "asyncio.Future[Event | None]":
        """`post`, and what was written, once it is durable; None if it was refused."""
        ticket: asyncio.Future[Event | None] = self._loop.create_future()
        if self._is_over:
            ticket.set_result(None)
        else:
            self._add(RunMessage(run, event, ticket=ticket, mail=mail))
        return ticket

    def note_free_place(self) -> None:
        """A place may be free: decide anew, although nothing was reported."""
        self.is_freed = True
        self.wake.set()

    def take(self) -> list[RunMessage]:
        """All of it, for one round."""
        self._taken, self._messages = self._messages, []
        self.is_freed = False
        return self._taken

    def end(self) -> None:
        """Nothing is written any more: answer all tickets with None, also those of a round that failed."""
        self._is_over = True
        for message in (*self._taken, *self._messages):
            answer_ticket(message.ticket, None)

    def _add(self, message: RunMessage) -> None:
        self._messages.append(message)
        self.wake.set()


def answer_ticket(ticket: object, event: Event | None) -> None:
    """Resolve a ticket with the event that was written; None: nothing was."""
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(event)


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
        """Around the writing of what was decided: `written_so_far` waits for that."""
        self._writing = writing = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._writing = None
            writing.set_result(None)

    async def written_so_far(self) -> None:
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
        """Wait until it is done and return its result. Raises the error of the journal if that is full or read-only.

        A caller that is cancelled does not cancel it.
        """
        while not done.done():
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
        return done.result()


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
    #: raises `UsageError` for a command of another process that this supervisor cannot carry out
    refuse_unkept: Callable[[Event], None] = lambda _: None


class LedRuns:
    """The runs that are led here, and who waits for the end of each.

    A run stops being led here in one of these ways, each from left to right:

    | how                                | attempts stop | `RunReleased`   | lease released      | callers get            |
    |------------------------------------|---------------|-----------------|---------------------|------------------------|
    | it ends                            | they ended    | –               | with its last event | the run                |
    | `let_go`                           | yes           | by the loop     | yes [1]             | it, `RunInterrupted`   |
    | `abandon`: the loop has failed     | yes           | without it      | yes                 | the error              |
    | `BatchWriter._lose`: led elsewhere | yes           | –               | –                   | `NotLeading`           |
    | broken off, its end not written    | –             | –               | yes                 | the error              |
    | `RunOpener._give_back`             | none began    | –               | yes                 | the run, or the error  |

    In each of them, the kernel closes the run before its callers hear. [1] unless those who stand by take the
    run over when this process ends.
    """

    def __init__(self, parts: RuntimeParts, pending: PendingMessages) -> None:
        self._kernel = parts.kernel
        self._leases = parts.journal.leases
        self._journal = parts.journal
        self._engine = parts.engine
        self._clock = parts.clock
        self._pending = pending
        self._endings: dict[str, asyncio.Future[LiveRun]] = {}
        self._listeners = Listeners(parts.texts)
        #: by run: what becomes of its questions; they wait where nothing is said
        self._asking: dict[str, Asking] = {}
        #: by run: attempts that wait for the budget of a run above
        self._starving: Counter[str] = Counter()
        #: by run that is led for a task of another: whether it waits for people, and whom to tell
        self._above: dict[str, tuple[bool, Callable[[bool], None]]] = {}
        #: runs that are being let go, to be resumed
        self._leaving: set[str] = set()
        #: all are being let go
        self.is_stopping = False
        #: when it stops, those who stand by go on with its runs and nobody has to resume them
        self.is_serving = False

    def __bool__(self) -> bool:
        return bool(self._endings)

    def leads(self, run: str) -> bool:
        return run in self._endings

    def ending(self, run: str) -> "asyncio.Future[LiveRun]":
        """Done when a run that is led here has ended; fails if it is led here no longer."""
        return self._endings[run]

    def asking(self, run: str) -> Asking:
        return self._asking.get(run, WAITING)

    @property
    def with_policies(self) -> Set[str]:
        """Those whose questions do not simply wait."""
        return self._asking.keys()

    def listen(self, run: str, *, tokens: bool = False) -> "asyncio.Queue[Heard]":
        """Every event of a run from now on, once it is durable, and its answer as it grows.

        With `tokens`, also what models write for its tasks.
        """
        return self._listeners.add(run, tokens=tokens)

    def told(self, run: str) -> int:
        """How many events of a run came before the next that a listener hears."""
        return self._listeners.told[run]

    def tell(self, run: str, events: Sequence[Event]) -> None:
        """These events of a run are durable."""
        self._listeners.tell(run, events)

    def say(self, run: str, piece: str | None) -> None:
        """Tell a piece of the answer; None: it begins anew."""
        heard = AnswerPiece(text=piece or "", begins_anew=piece is None, at=self._clock.now())
        self._listeners.say(run, heard)

    def expect(self, run: str, asking: Asking, told: int = 0) -> "asyncio.Future[LiveRun]":
        """Register a run that is led from now on; `told` is the number of events that are already written."""
        if asking is not WAITING:
            self._asking[run] = asking
        future: asyncio.Future[LiveRun] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._endings[run] = future
        self._listeners.told[run] = told
        return future

    def resolve(self, run: str, ending: LiveRun | BaseException) -> None:
        """Stop leading this run: give the run, or the error, to everyone who waits for its end."""
        future = self._endings.pop(run, None)
        self._starving.pop(run, None)
        self._above.pop(run, None)
        self._asking.pop(run, None)
        if future is not None and not future.done():
            if isinstance(ending, LiveRun):
                future.set_result(ending)
            else:
                future.set_exception(ending)
        self._listeners.end(run)
        self._pending.wake.set()

    def stop_attempts(self, run: str, live_run: LiveRun, why: str) -> None:
        for node in live_run.schedule.nodes.values():
            if node.is_open:
                self._engine.stop(run, node.task.id, node.attempt, why)

    async def let_go(
        self, run: str, why: str = "stopped gently", ending: LiveRun | None = None
    ) -> None:
        """Lead a run no longer, and leave it to be resumed: its attempts are stopped, not ended.

        Whoever waits for it gets the run as it stands, or without an `ending` is told to resume it.
        """
        live_run = self._kernel.runs.get(run)
        if live_run is None or run in self._leaving:
            return
        self._leaving.add(run)
        try:
            self.stop_attempts(run, live_run, why)
            released = RunReleased(node=self._leases.node, reason=why, at=self._clock.now())
            await self._pending.propose(run, released)
            if self.leads(run):
                self._kernel.close(run)
                if not (self.is_serving and self._kernel.is_draining):
                    await self._release(run, live_run.schedule.epoch)
                how = "resume it with this id: what is done is kept"
                self.resolve(run, ending or RunInterrupted(run, how))
        finally:
            self._leaving.discard(run)

    async def _release(self, run: str, epoch: int) -> None:
        """Let another lead this run. A journal that cannot be written is waited for, unless all stops."""
        while True:
            try:
                await self._leases.release(run, epoch)
            except (JournalFull, JournalBusy, JournalReadOnly) as error:
                if self.is_stopping:
                    log.warning(
                        "lease_not_released run=%s error=%s; it ends with this process", run, error
                    )
                    return
                log.warning("lease_not_released run=%s error=%s; trying again", run, error)
                await asyncio.sleep(RETRY_WRITE.total_seconds())
            except (JournalError, UsageError) as error:
                log.warning("lease_not_released run=%s error=%s", run, error)
                return
            else:
                return

    def is_let_go(self, run: str) -> bool:
        """Whether its attempts are stopped to be done by who resumes it."""
        return run in self._leaving

    def close_released(self, entries: Mapping[str, Sequence[Event]]) -> None:
        """Close the runs that are being let go and of which that was written: the next round must not decide
        about them any more, and what this one has started is not done."""
        for run in self._leaving.intersection(entries):
            if any(type(event) is RunReleased for event in entries[run]):
                live_run = self._kernel.runs.get(run)
                if live_run is not None:
                    self.stop_attempts(run, live_run, "its run was let go")
                self._kernel.close(run)

    async def abandon(self, error: BaseException) -> None:
        """The loop has failed or was cancelled: leave all runs to be resumed at once, here or elsewhere."""
        left = {run: self._kernel.runs.get(run) for run in self._endings}
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if is_cancelled and left:
            log.warning("runtime_cancelled; the event loop ends: resume %s", ", ".join(left))
        why = "the event loop of its supervisor ended"
        for run, live_run in left.items():
            if live_run is not None:
                self.stop_attempts(run, live_run, why)
        try:
            for run, live_run in left.items():
                self._kernel.close(run)
                if live_run is not None:
                    await self._write_release(
                        run, live_run.schedule.epoch, why if is_cancelled else str(error)
                    )
        finally:  # also if this is cancelled: nobody waits for what does not come
            for run in left:
                told = (
                    error
                    if isinstance(error, Exception)
                    else RunInterrupted(run, f"{why}; resume it")
                )
                self.resolve(run, told)

    async def _write_release(self, run: str, epoch: int, why: str) -> None:
        """Let go of a run without the loop that would write it down, as far as the journal can."""
        released = RunReleased(node=self._leases.node, reason=why, at=self._clock.now())
        with contextlib.suppress(JournalError, UsageError):
            await self._journal.append(run, [released], epoch=epoch)
            await self._leases.release(run, epoch)

    def tell_above(self, run: str, tell: Callable[[bool], None]) -> None:
        """Call `tell(True)` when this run can only wait for people, and `tell(False)` when it continues."""
        self._above[run] = (False, tell)
        self.tell_waits([run])

    def tell_waits(self, runs: Iterable[str]) -> None:
        """Tell the runs above that one of these runs has started or stopped waiting for people."""
        for run in self._above.keys() & runs:
            was, tell = self._above[run]
            waits = self._waits(run)
            if waits is not was:
                self._above[run] = (waits, tell)
                tell(waits)

    def _waits(self, run: str) -> bool:
        """Whether it waits for people: for an answer, or with all its attempts for the budget of a run above."""
        live_run = self._kernel.runs.get(run)
        if live_run is None:
            return False
        schedule = live_run.schedule
        is_starving = 0 < schedule.open_attempts == self._starving[run]
        return is_starving or schedule.state is RunState.WAITING

    @contextlib.contextmanager
    def starving(self, run: str) -> Iterator[None]:
        """Around the time in which an attempt waits for the budget of a run above."""
        self._starving[run] += 1
        self.tell_waits([run])
        try:
            yield
        finally:
            self._starving[run] -= 1
            self.tell_waits([run])


class RunOpener:
    """Begins runs, and takes over those that others have left."""

    def __init__(
        self,
        parts: RuntimeParts,
        pending: PendingMessages,
        runs: LedRuns,
        commands: CommandInbox,
        blocked: BlockedWrites,
    ) -> None:
        self._kernel = parts.kernel
        self._journal = parts.journal
        self._leases = parts.journal.leases
        self._clock = parts.clock
        self._pending = pending
        self._runs = runs
        self._commands = commands
        self._blocked = blocked
        #: done when the run that was begun last is written down
        self._begun: asyncio.Future[Event | None] | None = None
        self._claims: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_gone(self) -> bool:
        """Whether what it has begun is led no longer."""
        return self._pending.is_over

    def claim(self, run: str) -> asyncio.Lock:
        """To be held while a run is begun or taken over: two callers at once would both lead it."""
        lock = self._claims.get(run)
        if lock is None:
            lock = self._claims[run] = asyncio.Lock()
        return lock

    async def begin(
        self,
        requested: RunRequested,
        plan: Plan | None,
        *,
        may_exist: bool = False,
        mail: int = 0,
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> "BegunRun | None":
        """Lead a new run; None if it `may_exist` and somebody has begun it before us.

        Without a plan, making one is its first task.
        """
        if self._kernel.is_draining:
            raise UsageError("the supervisor is stopping and takes no new runs")
        self._blocked.refuse()
        run = requested.run
        taken = await self._taken_over(requested)  # first: the run that it names may not be there
        if may_exist and self._runs.leads(run):
            return None
        async with self._lease(run) as epoch:
            # Looked for while we lead: from now on nobody else can begin it.
            has_begun = may_exist and await self._has_begun(run)
            if mail and epoch > 1 and self._begun is not None:
                # Those who led it before died. What was begun before it must not be decided with it.
                await asyncio.wait([self._begun])
            await self._hold(requested.reuses)
            # It may have been posted where clocks go ahead of ours.
            self._clock.not_before(requested.at)
            letters = await self._commands.letters_for(run) if mail and not has_begun else []
            self._refuse_ending(run)
        if has_begun:
            await self._leases.release(run, epoch)
            return None
        if mail and epoch > MOST_DEATHS:
            await self._park(requested, plan, epoch, mail)
            return None
        ending = self._runs.expect(run, asking)
        opened = self._kernel.open(run, above=above, results=taken.begun())
        opened.reusable, opened.kept, opened.epoch = taken.by_key, taken.results, epoch
        now = self._clock.now()
        self._pending.post(run, requested, mail)
        led = self._kernel.led_by(self._leases.node, epoch, now)
        self._begun = self._pending.propose(run, led)
        if plan is not None:
            self._begun = self._pending.propose(run, PlanAdopted(plan=plan, at=now))
        for event, letter in letters:  # a run that was paused before it began starts nothing
            self._pending.post(run, event, letter)
        return BegunRun(ending, self._begun, epoch)

    async def _park(
        self, requested: RunRequested, plan: Plan | None, epoch: int, mail: int
    ) -> None:
        """Write a submitted run down without deciding anything about it: those who led it before have died.

        Each that leads a run gets a new epoch, and the letter lies there until its first event is stored.
        """
        run, node, now = requested.run, self._leases.node, self._clock.now()
        reason = (
            f"{epoch - 1} processes that took it up ended before its first step; "
            f"chargehand resume {run} tries it again"
        )
        events: list[Event] = [requested, self._kernel.led_by(node, epoch, now)]
        if plan is not None:
            events.append(PlanAdopted(plan=plan, at=now))
        events.append(RunReleased(node=node, reason=reason, is_parked=True, at=now))
        await self._journal.append(run, events, epoch=epoch, taking=[mail])
        await self._leases.release(run, epoch)
        log.error("run_parked run=%s reason=%s", run, reason)

    async def take_over(
        self,
        run: str,
        check: Callable[[LiveRun], None],
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> "BegunRun":
        """Lead a run that another process, or an earlier runtime, has left; `check` may object."""
        if self._kernel.is_draining:
            raise UsageError("the supervisor is stopping and takes over no run")
        # Led first, read second: from the new epoch on nobody else can add to what is read here.
        async with self._lease(run) as epoch:
            history = [entry.event async for entry in self._journal.read(run)]
            if not history:  # its process died between leading it and writing its first event
                raise UnknownRun(run, "it was never begun")
            self._clock.not_before(history[-1].at)
            first = history[0]
            taken = await self._taken_over(first) if type(first) is RunRequested else Takeover()
            letters = await self._commands.letters_for(run)
            is_capped = above is not None or has_caps(_limits_in(history))
            below = await spent_below(self._journal, history) if is_capped else {}
            self._refuse_ending(run)
        # No more waiting up to `RunLed`: a round in between would decide under the old epoch.
        try:
            live_run = self._kernel.open(run, history, above, taken.begun())
        except InternalError:
            await self._leases.release(run, epoch)
            raise
        live_run.reusable, live_run.kept, live_run.epoch = taken.by_key, taken.results, epoch
        if live_run.account is not None:
            for child, spent in below.items():  # they are led again only later
                live_run.account.hold(child, spent)
        ending = self._runs.expect(run, asking, len(history))
        if live_run.schedule.status is not None:  # it has ended while we were on our way
            await self._give_back(run, live_run, epoch)
            return BegunRun(ending, written_already(), epoch)
        try:
            check(live_run)
        except BaseException as error:
            await self._give_back(run, error, epoch)
            raise
        led = self._kernel.led_by(self._leases.node, epoch, self._clock.now(), live_run)
        written = self._pending.propose(run, led)
        for event, mail in letters:  # what was answered in time is no longer due
            self._pending.post(run, event, mail)
        return BegunRun(ending, written, epoch)

    async def _give_back(self, run: str, ending: LiveRun | BaseException, epoch: int) -> None:
        """Lead a run no longer that was taken over for nothing."""
        self._kernel.close(run)
        self._runs.resolve(run, ending)
        await self._leases.release(run, epoch)

    @contextlib.asynccontextmanager
    async def _lease(self, run: str) -> AsyncIterator[int]:
        """Lead a run; whatever goes wrong in here, it is released, so that another may lead it."""
        leading = asyncio.ensure_future(self._leases.lead(run, self))
        try:
            epoch = await asyncio.shield(leading)
        except asyncio.CancelledError:  # the writer leads it all the same
            self._blocked.keep(asyncio.ensure_future(self._undo(run, leading)))
            raise
        try:
            yield epoch
        except BaseException:
            with contextlib.suppress(JournalError, UsageError):
                await asyncio.shield(self._leases.release(run, epoch))
            raise

    async def _undo(self, run: str, leading: "asyncio.Future[int]") -> None:
        """Let go of a run that nobody waits for any more, once it is led."""
        with contextlib.suppress(JournalError, UsageError):
            await self._leases.release(run, await leading)

    def _refuse_ending(self, run: str) -> None:
        """Raise for a run that would not be decided about: the runtime has stopped since it was asked for."""
        if self._kernel.is_draining:
            raise UsageError(f"the supervisor is stopping; run {run} is not led")
        if self._pending.is_over:
            raise RunInterrupted(run, "its supervisor has stopped; resume it")

    async def _taken_over(self, requested: RunRequested) -> Takeover:
        """What this run has of the one that it reuses, or is a fork of."""
        if not requested.reuses:
            return Takeover()
        events: list[Event] = []
        async for entry in self._journal.read(requested.reuses):
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
                await self._journal.decide(run, lambda _: ())

    async def _has_begun(self, run: str) -> bool:
        """Whether the journal knows anything of this run."""
        try:
            async for _ in self._journal.read(run):
                return True
        except UnknownRun:
            pass
        return False


def written_already() -> "asyncio.Future[Event | None]":
    """What stands for the writing of something that needs none."""
    written: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
    written.set_result(None)
    return written


class WorkerMembers:
    """Workers that join and leave while runs are under way."""

    def __init__(self, parts: RuntimeParts, pending: PendingMessages) -> None:
        self._kernel = parts.kernel
        self._dispatch = parts.kernel.dispatch
        self._attempts = parts.attempts
        self._engine = parts.engine
        self._pending = pending
        #: set once nothing runs any more while the supervisor stops
        self.quiet = asyncio.Event()
        #: what goes on although its caller may have given up
        self._leaving: set[asyncio.Task[None]] = set()
        #: by worker that leaves: set when it has nothing to do any more
        self._departures: dict[str, asyncio.Event] = {}
        #: those whose time to end what they have is over
        self._expelled: set[str] = set()

    def join(self, worker: Member) -> None:
        """Give this worker work from now on; one that drains is given work again."""
        if worker.name in self._departures:
            raise UsageError(f"worker {worker.name!r} is still leaving; wait for that first")
        if worker.name not in self._attempts:
            self._attempts.join(worker)
        self._dispatch.join(worker.place)
        self.note_free_place()

    def drain(self, name: str) -> None:
        """Give this worker nothing new."""
        self._dispatch.drain(name)

    async def leave(self, name: str, grace: timedelta) -> None:
        """Give a worker nothing new, let it end what it does for so long, and do the rest anew.

        Returns when it is gone. Plain functions cannot be stopped: for those it waits. A caller who waits no
        longer does not keep the worker.
        """
        leaving = asyncio.create_task(self._leave(name, grace))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        await asyncio.shield(leaving)

    async def _leave(self, name: str, grace: timedelta) -> None:
        idle = self._departures[name] = asyncio.Event()
        if not self._dispatch.leave(name):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), grace.total_seconds())
            self._expelled.add(name)
            for attempt in self._dispatch.held_by(name):
                self._take_away(*attempt)
            if self._dispatch.held_by(name):
                await idle.wait()
        del self._departures[name]
        self._expelled.discard(name)
        await self._attempts.leave(name)

    def note_free_place(self) -> None:
        """A place may be free: decide anew, and let those who leave know that they have nothing left."""
        for name, idle in self._departures.items():
            if not self._dispatch.held_by(name):
                idle.set()
        if self._kernel.is_draining and not self._kernel.busy:
            self.quiet.set()
        self._pending.note_free_place()

    def note_start(self, start: StartAttempt) -> None:
        """An attempt has begun. Its worker's time may have ended since that was decided."""
        if start.worker in self._expelled:
            self._take_away(start.run, start.task, start.attempt)

    def _take_away(self, run: str, task: str, attempt: int) -> None:
        """Stop an attempt at once, to be done anew by another."""
        self._engine.stop(run, task, attempt, "its worker has left")
        self._engine.preempt(run, task, attempt)  # so that it costs the task none of its attempts


class WaitingRuns:
    """What waits for people: it is said, given up where nobody is waited for, or let go of."""

    def __init__(
        self,
        kernel: Kernel,
        clock: Clock,
        pending: PendingMessages,
        runs: LedRuns,
        journal_path: str,
    ) -> None:
        self._kernel = kernel
        self._clock = clock
        self._pending = pending
        self._runs = runs
        self._journal_path = journal_path
        #: nobody brings answers any more: the supervisor's `async with` is over
        self._is_left = False
        #: made when something may wait: most runs end before
        self._warnings: WaitWarnings | None = None

    def leave(self) -> None:
        """Let go of runs that wait for people, now and from now on."""
        self._is_left = True
        self._pending.note_free_place()

    def arm(self) -> None:
        """Nothing is to be decided now: have it said in a second what waits, if anything may."""
        is_idle = not self._kernel.busy
        may_wait = is_idle or self._kernel.dispatch.probes_at is not None
        if self._warnings is not None or (may_wait and self._kernel.runs):
            self._wait_warnings().arm(is_idle=is_idle)

    def stir(self) -> None:
        """Something is to be decided again."""
        if self._warnings is not None:
            self._warnings.stir()

    def close(self) -> None:
        if self._warnings is not None:
            self._warnings.close()

    def _wait_warnings(self) -> WaitWarnings:
        if self._warnings is None:
            self._warnings = WaitWarnings(self._kernel, self._clock, self._journal_path)
        return self._warnings

    def mind(self, run: str, event: Event, live_run: LiveRun) -> None:
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
        policy = self._runs.asking(run)
        if policy.mode is not OnQuestion.FAIL:
            return
        for node in asking:
            if node.question is not None and not (policy.is_default and node.question.patience):
                why = f"it asks {node.question.text!r}, and {policy.why}"
                id_, task, now = node.question.id, node.task.id, self._clock.now()
                expired = QuestionExpired(question=id_, task=task, why=why, at=now)
                self._pending.post(run, expired)

    def let_go(self, changed: Set[str], group: asyncio.TaskGroup) -> None:
        """Let go of runs that can only continue once a person has done something.

        After `leave`, these are all such runs; before, only those that `changed` and whose callers do not wait.
        """
        if self._is_left:
            runs = list(self._kernel.runs)
        elif self._runs.with_policies:
            runs = list(self._runs.with_policies & changed)
        else:
            return
        for run in runs:
            live_run = self._kernel.runs.get(run)
            if live_run is None or self._runs.is_let_go(run):
                continue
            policy, waits = self._runs.asking(run), live_run.schedule.state is RunState.WAITING
            if self._is_left and (waits or self._is_stuck(live_run)):
                group.create_task(self._runs.let_go(run, WAITS))
            elif waits and live_run.schedule.is_cut_off:
                is_asking = any(node.question for node in live_run.schedule.nodes.values())
                if policy.on_outage is OnQuestion.RETURN and not (
                    is_asking and policy.mode is OnQuestion.WAIT
                ):
                    group.create_task(self._runs.let_go(run, CUT_OFF, live_run))
            elif policy.mode is OnQuestion.RETURN and waits and not _is_timed(policy, live_run):
                group.create_task(self._runs.let_go(run, WAITS, live_run))

    def _is_stuck(self, live_run: LiveRun) -> bool:
        """Whether nothing will happen in this run by itself: it is paused, or has nobody to work for it."""
        if live_run.schedule.state is RunState.PAUSED:
            return True
        nodes = live_run.schedule.nodes.values()
        goes_on = self._kernel.busy or self._pending or self._kernel.has_probe
        return not goes_on and not any(node.state is TaskState.RETRYING for node in nodes)


class AttemptWriter:
    """Has what attempts report written down. A step waits here while there is nothing left to spend on it."""

    def __init__(
        self, kernel: Kernel, clock: Clock, pending: PendingMessages, runs: LedRuns
    ) -> None:
        self._kernel = kernel
        self._clock = clock
        self._pending = pending
        self._runs = runs

    def post(self, run: str, event: Event) -> None:
        self._pending.post(run, event)

    def propose(self, run: str, event: Event) -> "asyncio.Future[Event | None]":
        return self._pending.propose(run, event)

    def account_of(self, run: str) -> Account | None:
        """The budget account of this run; None if it has no caps. It asks a person for more if the run is to."""
        live_run = self._kernel.runs.get(run)
        account = None if live_run is None else live_run.account
        requested = None if live_run is None else live_run.schedule.requested
        if account is not None:
            account.stop_work = partial(self._stop_work, run)
            if requested is not None and requested.asks_budget:
                account.plead = partial(self._plead, run)
        return account

    async def wait_for_room(self, brief: Brief, step: StepStarted) -> None:
        """Return when a step that was refused for want of money may be proposed again.

        Calls reserve their worst case and cost less: what is under way may still leave room. Once
        nothing is, the run's work is stopped.
        """
        live_run = self._kernel.runs.get(brief.run)
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
            self._stop_work(brief.run, short)
            if short.account is not account and short.account.stop_work is not None:
                short.account.stop_work(short)  # it is the run above that has nothing left
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
        with self._runs.starving(brief.run):
            await changed.wait()

    def _stop_work(self, run: str, short: Shortage) -> None:
        """Start nothing more in this run, whose cap leaves nothing for the next call."""
        stopped = WorkStopped(reason=OVER_BUDGET, by=str(short), at=self._clock.now())
        self._pending.post(run, stopped)

    def _plead(self, run: str, short: Shortage) -> None:
        """Ask a person whether this run may spend more."""
        live_run = self._kernel.runs.get(run)
        if live_run is not None:
            task = next_asking_for_more(live_run.schedule.nodes)
            question = budget_question(run, task, short)
            asked = PersonAsked(task=task, attempt=0, question=question, at=self._clock.now())
            self._pending.post(run, asked)


class RunsBelow:
    """What nested supervisors may ask of this runtime. They stop together with it."""

    def __init__(self, parts: RuntimeParts, runs: LedRuns, writer: AttemptWriter) -> None:
        self.journal = parts.journal
        self.clock = parts.clock
        self.account_of = writer.account_of
        self.post = writer.post
        self.asking = runs.asking
        self._kernel = parts.kernel
        self._runs = runs
        self._runtimes: WeakSet[Drainable] = WeakSet()

    def is_leaving(self, run: str) -> bool:
        return self._runs.is_stopping or self._runs.is_let_go(run) or not self._runs.leads(run)

    def winding_up(self, run: str) -> str:
        live_run = self._kernel.runs.get(run)
        is_winding_up = live_run is not None and live_run.schedule.is_winding_up
        return live_run.schedule.stop_reason if live_run is not None and is_winding_up else ""

    def take_in(self, below: Drainable) -> None:
        if self._kernel.is_draining:
            raise Fenced("the supervisor is stopping")
        self._runtimes.add(below)

    async def drain(self, grace: timedelta) -> None:
        """Have all of them start nothing new, and let go of what they lead."""
        await asyncio.gather(*(each.drain(grace) for each in self._runtimes))


class BatchWriter:
    """Writes what a round decided, and tells those who want to hear of it."""

    def __init__(
        self,
        parts: RuntimeParts,
        runs: LedRuns,
        members: WorkerMembers,
        waits: WaitingRuns,
        blocked: BlockedWrites,
        journal_path: str,
    ) -> None:
        self._kernel = parts.kernel
        self._journal = parts.journal
        self._leases = parts.journal.leases
        self._clock = parts.clock
        self._hooks = parts.hooks
        self._notices = parts.notices
        self._runs = runs
        self._members = members
        self._waits = waits
        self._blocked = blocked
        self._journal_path = journal_path
        self._home = os.getpid()

    async def write(self, batch: Batch) -> None:
        """Return once the batch is durable and our lease holds, so that it may be carried out."""
        writes = [
            self._append(run, events, batch.mail.get(run, []), batch)
            for run, events in batch.entries.items()
        ]
        if len(writes) == 1:
            await writes[0]
        else:  # one that fails leaves the others to be told
            for failed in await asyncio.gather(*writes, return_exceptions=True):
                if failed is not None:
                    raise failed
        waits = 0
        while self._kernel.runs and not self._leases.is_valid():
            # Our lease may have run out unseen, for instance while the machine was asleep. What
            # was written is ours, but nothing may be started before the lease is renewed. It never
            # will be if the disk has failed since or another leads: appending nothing to runs that are
            # still led finds out.
            await asyncio.sleep(RENEWAL)
            waits += 1
            if waits * RENEWAL == SILENCE:
                log.warning(
                    "lease_not_renewed; nothing is started before the journal has renewed it"
                )
            led = [run for run in batch.entries if run in self._kernel.runs]
            for run in led or [next(iter(self._kernel.runs))]:
                await self._append(run, [], [], batch)

    async def _append(self, run: str, events: list[Event], mail: list[int], batch: Batch) -> None:
        live_run = batch.ended.get(run) or self._kernel.runs.get(run) or batch.broken[run][0]
        is_told = False
        while True:
            try:
                await self._journal.append(run, events, epoch=live_run.schedule.epoch, taking=mail)
            except NotLeading as error:
                self._lose(run, error, batch)
                return
            except KeyConflict:
                # Taken before, by an earlier runtime; what came of it is ours to write.
                mail = await self._unread(mail)
            except NotJSON as error:
                # Nothing of it was stored. The run ends in words that can be, or is led no longer.
                events.clear()
                if run not in batch.broken:
                    self._kernel.break_off(run, error, batch, self._clock.now())
                else:
                    batch.ended.pop(run, None)
            except (JournalFull, JournalBusy, JournalReadOnly) as error:
                # Nothing was acknowledged and nothing is acted upon, so waiting loses nothing.
                if self._runs.is_stopping:
                    raise
                is_new = bool(events) and type(events[0]) is RunRequested and not mail
                if is_new and isinstance(error, NO_ROOM):
                    # Nothing of this run is stored: its caller hears at once that it was not begun.
                    self._lose(run, error, batch)
                    with contextlib.suppress(JournalError):
                        await self._leases.release(run, live_run.epoch)
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

    async def _unread(self, mail: list[int]) -> list[int]:
        """Those of these letters, of which one at least was taken, that are still unread."""
        unread: set[int] = set()
        with contextlib.suppress(JournalError):
            unread = {letter.id for letter in await self._journal.mail.unread()}
        left = [each for each in mail if each in unread]
        return left if len(left) < len(mail) else []

    def _publish(self, run: str, events: list[Event], live_run: LiveRun) -> None:
        if log.isEnabledFor(logging.INFO):
            log_events(run, events)
        self._runs.tell(run, events)
        for event in events:
            for hook in self._hooks.get(type(event), ()):
                self._call_hook(hook, run, event)
            if type(event) is AttemptFinished:
                if type(event.outcome) is NeedsInput:
                    self._waits.mind(run, event, live_run)
                if live_run.account is not None and event.outcome.usage != NO_USAGE:
                    for over in live_run.account.new_overruns():
                        log.warning("cap_passed run=%s; workers reported usage: %s", run, over)
            elif type(event) in NEEDS_PERSON:
                self._waits.mind(run, event, live_run)
            if self._notices is not None:
                try:
                    self._notices.hear(run, event, live_run.schedule, self._journal_path)
                except Exception:
                    log.exception("notice_failed run=%s event=%s", run, type(event).__name__)

    def _call_hook(self, hook: Hook, run: str, event: Event) -> None:
        try:
            with outside_task():
                hook(run, event)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a hook's SystemExit must not end the runs
            log.exception("hook_failed run=%s event=%s", run, type(event).__name__)
        finally:
            end_copy(self._home)

    def _lose(self, run: str, error: JournalError, batch: Batch) -> None:
        """This run is led here no longer: stop all that is done for it, and say so."""
        if isinstance(error, NotLeading):
            kept = f" --journal {shlex.quote(self._journal_path)}" if self._journal_path else ""
            log.warning(
                "run_lost run=%s; another process has taken it over, and this process has stopped its work on it; see "
                "which one leads it with: chargehand show %s%s",
                *(run, run, kept),
            )
        else:
            log.warning("run_lost run=%s error=%s", run, error)
        self._blocked.remove(run)
        live_run = batch.ended.pop(run, None) or self._kernel.runs.get(run)
        unwritten = {id(event) for event in batch.entries.get(run, ())}
        batch.tickets = [
            (ticket, None if id(event) in unwritten else event) for ticket, event in batch.tickets
        ]
        ours = [act for act in batch.acts if act.run == run]
        batch.acts = [act for act in batch.acts if act.run != run]
        self._kernel.free_unstarted(run, (act for act in ours if isinstance(act, StartAttempt)))
        self._members.note_free_place()
        if live_run is not None:
            is_led = isinstance(error, NotLeading)
            why = "another process leads the run" if is_led else f"the run was not begun: {error}"
            self._runs.stop_attempts(run, live_run, why)
        self._kernel.close(run)
        self._runs.resolve(run, error)

    async def part_with_broken(self, batch: Batch) -> None:
        """Tell of runs about which a decision raised; those that could not be ended are let go of."""
        for run, (live_run, mistake) in batch.broken.items():
            log.error("run_broken_off run=%s error=%s", run, mistake)
            if run not in batch.ended:
                with contextlib.suppress(JournalError):
                    await self._leases.release(run, live_run.schedule.epoch or live_run.epoch)
                self._runs.resolve(run, mistake)


class Runtime:
    """Leads runs in one event loop, from the first until it is closed."""

    def __init__(self, parts: RuntimeParts) -> None:
        kernel, journal, clock = parts.kernel, parts.journal, parts.clock
        #: empty for a journal in memory
        journal_path = str(getattr(journal, "path", ""))
        self.loop = asyncio.get_running_loop()
        self._home = os.getpid()
        self.kernel = kernel
        self.clock = clock
        self._engine = parts.engine
        self._attempts = parts.attempts
        self._pending = PendingMessages()
        self._blocked = BlockedWrites()
        self._alarm = Alarm(clock, self._pending.wake)
        self.runs = LedRuns(parts, self._pending)
        self.members = WorkerMembers(parts, self._pending)
        self._waits = WaitingRuns(kernel, clock, self._pending, self.runs, journal_path)
        self._writer = BatchWriter(
            parts, self.runs, self.members, self._waits, self._blocked, journal_path
        )
        self._commands = CommandInbox(journal, parts.roster, clock, self, parts.refuse_unkept)
        self.opener = RunOpener(parts, self._pending, self.runs, self._commands, self._blocked)
        writer = AttemptWriter(kernel, clock, self._pending, self.runs)
        self._below = RunsBelow(parts, self.runs, writer)
        self._host = JournalHost(
            writer,
            clock,
            parts.attempts.spill,
            partial(_board_for, journal, clock),
            nesting=self._below,
            planning=self,
            texts=parts.texts,
        )
        self._is_closing = False
        #: in the supervisor's `async with`, or while it serves: submitted runs are taken up
        self.is_open = False
        #: finds the processes that share submitted runs with this one
        self.find_peers: Callable[[], Awaitable[Sequence[str]]] | None = None
        #: set once `drain` has let go of everything
        self.drained = asyncio.Event()
        #: why nothing is led here any more, if nobody wanted that
        self.failure: BaseException | None = None
        self._task = self.loop.create_task(self._work(), name="chargehand runtime")

    @property
    def is_gone(self) -> bool:
        """Whether nothing is done here any more."""
        return self._pending.is_over

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

    # Commands.

    def propose(self, run: str, event: Event, mail: int = 0) -> "asyncio.Future[Event | None]":
        """Have something written down; returns what was, or None if it was refused."""
        return self._pending.propose(run, event, mail)

    async def command(self, run: str, event: Event) -> Event | None:
        """`propose` for somebody who waits for a reply: raises the error of the journal if nothing can be written.

        What was proposed is then not forgotten: it is written once that is possible. Raises `RunInterrupted` if
        the runtime has failed meanwhile.
        """
        written = await self._blocked.unless_stalled(self._pending.propose(run, event))
        if written is None and self.failure is not None:
            how = f"its supervisor has failed ({self.failure!r}); resume it, and repeat the command"
            raise RunInterrupted(run, how)
        return written

    async def open_letters(self, run: str) -> None:
        """Take in what other processes have posted to this run before a command that comes later.

        Raises the error of the journal if nothing can be written: the command would wait for long.
        """
        self._blocked.refuse()
        opening = self.loop.create_task(self._commands.open_letters(run))
        self._blocked.keep(opening)
        await self._blocked.unless_stalled(opening)

    async def written_so_far(self) -> None:
        """Return once the journal has all that was decided so far. Raises its error if that waits for room."""
        await self._blocked.written_so_far()

    @property
    def journal_error(self) -> JournalError | None:
        """Why nothing can be written just now; None if it can."""
        return self._blocked.error

    def say(self, run: str, piece: str | None) -> None:
        self.runs.say(run, piece)

    @property
    def is_serving(self) -> bool:
        return self.runs.is_serving

    async def peers(self) -> Sequence[str]:
        """The processes that share submitted runs with this one, and itself, in order."""
        return () if self.find_peers is None else await self.find_peers()

    # Its end.

    def close(self) -> None:
        """End when nothing is led any more. Say it when no caller is left."""
        self._is_closing = True
        self._pending.wake.set()

    def leave_waiting(self) -> None:
        """Let go of runs that wait for people, now and from now on: nobody is there to bring answers."""
        self._waits.leave()

    async def closed(self) -> None:
        """Return when the runtime has ended."""
        await asyncio.wait([self._task])

    async def drain(self, grace: timedelta) -> None:
        """Start nothing new, let what runs end for so long, and leave the rest to be resumed.

        So do all runtimes below this one, at the same time.
        """
        self.kernel.is_draining = True
        try:
            await asyncio.gather(self._quieten(grace), self._below.drain(grace))
            self.runs.is_stopping = True
            for run, live_run in self.kernel.runs.items():
                self.runs.stop_attempts(run, live_run, "the supervisor is stopping")
            for run in list(self.kernel.runs):
                await self.runs.let_go(run)
        finally:
            self.drained.set()

    async def _quieten(self, grace: timedelta) -> None:
        if self.kernel.busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.members.quiet.wait(), grace.total_seconds())

    # The loop.

    async def _work(self) -> None:
        watchdog = Watchdog.watch()
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._commands.watch())
                try:
                    await self._rounds(group)
                finally:
                    watch.cancel()
                    self._alarm.cancel()
                    self._waits.close()
        except BaseExceptionGroup as group_error:
            await self._fail(_first(group_error))
        except BaseException as error:
            await self._fail(error)
            raise
        finally:
            self._pending.end()
            self.members.quiet.set()  # nor does anybody have to wait for what ran to end
            await self._engine.close()
            await self._attempts.close()
            watchdog.release()

    async def _rounds(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wait(group)
            end_copy(self._home)
            if self._is_closing and not self.runs and not self._pending:
                return
            batch = self.kernel.decide(self._pending.take(), self.clock.now())
            if batch.entries:
                with self._blocked.writing():
                    await self._writer.write(batch)
            self._carry_out(batch)
            if batch.broken:
                await self._writer.part_with_broken(batch)
            self._waits.let_go(batch.entries.keys(), group)

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        pending = self._pending
        while not (pending or pending.is_freed or (self._is_closing and not self.runs)):
            due_at = self.kernel.next_due()
            if due_at is not None:
                if due_at <= self.clock.now():
                    return
                self._alarm.set(due_at, group)
            self._waits.arm()
            pending.wake.clear()
            await pending.wake.wait()
            self._waits.stir()

    def _carry_out(self, batch: Batch) -> None:
        for ticket, event in batch.tickets:
            answer_ticket(ticket, event)
        for worker, size in batch.sizes.items():
            self._attempts.fit(worker, size)
        for act in batch.acts:
            if type(act) is StartAttempt:
                self._begin_attempt(act)
            elif type(act) is StopAct:
                self._engine.stop(act.run, act.task, act.attempt, act.reason)
            elif type(act) is PreemptAttempt:
                self._engine.preempt(act.run, act.task, act.attempt)
        self.runs.close_released(batch.entries)
        self.runs.tell_waits(batch.entries)
        for run, live_run in batch.ended.items():
            log.info("run_finished run=%s status=%s", run, live_run.schedule.status)
            self.runs.resolve(run, live_run)

    async def _fail(self, error: BaseException) -> None:
        """Nothing is led here any more. Runs that are left open can be resumed at once, here or elsewhere."""
        if not isinstance(error, asyncio.CancelledError):
            self.failure = error
            log.error("runtime_failed error=%r", error)
        await self.runs.abandon(error)

    # Attempts.

    def _begin_attempt(self, act: StartAttempt) -> None:
        live_run = self.kernel.runs[act.run]
        try:
            job = self._attempts.job(act, live_run, self._host, self.runs.asking(act.run))
        except Exception as error:  # noqa: BLE001 - of this attempt; the others go on
            self._refuse_start(act, error)
            return
        job.grace = live_run.schedule.limits.grace.total_seconds()
        self._engine.start(job, self)
        self.members.note_start(act)

    def _refuse_start(self, act: StartAttempt, error: Exception) -> None:
        """An attempt that was decided on could not be made ready: it has failed."""
        outcome = failed_by(error)
        now = self.clock.now()
        event = AttemptFinished(task=act.task, attempt=act.attempt, outcome=outcome, at=now)
        self._pending.post(act.run, event)
        self.kernel.free_place(act.run, act.task, act.attempt)
        self.members.note_free_place()

    def report(self, job: Job, outcome: Ending) -> None:
        is_preempted = getattr(job.brief, "is_preempted", False)  # a worker may even delete it
        goes_on = is_preempted or self.kernel.is_draining or self.runs.is_let_go(job.run)
        event = end_of(job, outcome, self.clock.now(), goes_on=goes_on)
        self._pending.post(job.run, event)

    def freed(self, job: Job) -> None:
        self.kernel.free_place(job.run, job.task, job.attempt)
        self.members.note_free_place()


def _board_for(journal: Journal, clock: Clock, brief: Brief) -> SharedBoard:
    # Imported when the first worker asks for it: most runs have no use for a board.
    from chargehand.roles.board import BriefBoard

    return BriefBoard(journal, clock, brief)


def _limits_in(history: Sequence[Event]) -> Limits:
    first = history[0]
    return first.limits if type(first) is RunRequested else Limits()


def _is_timed(policy: Asking, live_run: LiveRun) -> bool:
    """Whether time settles what it asks, and nobody said not to wait for that."""
    asked = [node for node in live_run.schedule.nodes.values() if node.question is not None]
    return policy.is_default and bool(asked) and all(node.due_at for node in asked)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _why_fenced(live_run: LiveRun | None) -> str:
    """Why an attempt is heard no longer: its run is being stopped, or somebody else has the task."""
    reason = "" if live_run is None else live_run.schedule.stop_reason
    return f"the run was stopped: {reason}" if reason else NOT_ITS_TASK
