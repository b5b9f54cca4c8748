"""A shift: one supervisor at work in one event loop. Journal, apply, carry out, repeat.

The loop drains its inbox into the desk, appends what the desk wrote as one group, and only then
carries out what the desk asked for. Journal first, act second: a crash in between replays the
events and acts then, while the other order could act on what nobody remembers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.budget import OVER_BUDGET, Account, has_caps
from chargehand.decisions.desk import Desk, Led, Message, Round, Stop
from chargehand.decisions.results import StepRecord
from chargehand.engines.base import Ending, Engine, Job, Lost, Parking
from chargehand.engines.brief import Brief, Fenced, SharedBoard
from chargehand.engines.local import LocalEngine
from chargehand.errors import (
    JournalBusy,
    JournalError,
    JournalFull,
    JournalReadOnly,
    KeyConflict,
    NotLeading,
    RunInterrupted,
    UnknownRun,
    UsageError,
    WorkerError,
)
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.commands import PreemptAttempt, StartAttempt
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    Event,
    PlanAdopted,
    ProgressNoted,
    RunLed,
    RunReleased,
    RunRequested,
    StepFinished,
    StepStarted,
    WorkStopped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, Failed
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.mailroom import Mailroom
from chargehand.records import spent_below
from chargehand.roles.office import Office
from chargehand.roles.roster import Member, Roster
from chargehand.workbench import Workbench

log = logging.getLogger("chargehand")

Hook: TypeAlias = Callable[[str, Any], object]
Hooks: TypeAlias = dict[type[Any], list[Hook]]
Heard: TypeAlias = Event | AnswerPiece | None
"""What listeners hear; None: there is no more."""

RETRY_WRITE = timedelta(seconds=1)
#: how often a journal that is full, locked or read-only is tried again
STALL = 1.0
#: seconds of a blocked event loop that are worth a warning


class Leading(NamedTuple):
    """A run that has just become ours."""

    ending: "asyncio.Future[Led]"
    written: "asyncio.Future[Event | None]"
    #: done once it is durable that we lead it


class Shift:
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
        self.loop = asyncio.get_running_loop()
        self.desk = desk
        self.journal = journal
        self._clock = clock
        self._below: WeakSet[Shift] = WeakSet()
        #: shifts of other supervisors that work for tasks of this one
        self._left: set[str] = set()
        #: runs that are being let go, to be resumed
        self._departures: dict[str, asyncio.Event] = {}
        #: by worker that leaves: set when it has nothing to do any more
        self._expelled: set[str] = set()
        #: those whose time to end what they have is over
        self._hooks = hooks
        self._notices = office.notices
        self._place = str(getattr(journal, "path", ""))
        #: of the journal, for other processes; a journal in memory has none
        self._engine: Engine = LocalEngine()
        self._bench = Workbench(roster, office, journal.blobs, clock, desk.dispatch.most)
        self._mailroom = Mailroom(journal.mail, roster, clock, self)
        self._inbox: list[Message] = []
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._is_freed = False
        self._is_closing = False
        self.is_stopping = False
        self.is_over = False
        self._unanswered: list[object] = []
        self._runs: dict[str, asyncio.Future[Led]] = {}
        self._claims: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listeners: dict[str, list[asyncio.Queue[Heard]]] = {}
        self._ringer: asyncio.Task[None] | None = None
        self._rings_at: datetime | None = None
        self._task = self.loop.create_task(self._work(), name="chargehand shift")

    # runs

    async def begin(
        self,
        requested: RunRequested,
        plan: Plan | None,
        *,
        may_exist: bool = False,
        mail: int = 0,
        above: Account | None = None,
    ) -> "Leading | None":
        """Lead a new run; None if it `may_exist` and somebody has begun it before us.

        Without a plan, making one is its first task.
        """
        if self.desk.is_draining:
            raise UsageError("the supervisor is stopping and takes no new runs")
        run = requested.run
        reusable = await self._reusable(requested)  # first: the run that it names may not be there
        epoch = await self.journal.leases.lead(run)
        # Looked for while we lead: from now on nobody else can begin it.
        if may_exist and await self.has_begun(run):
            await self.journal.leases.release(run, epoch)
            return None
        ending = self._expect(run)
        self.desk.open(run, above=above).reusable = reusable
        now = self._clock.now()
        self._post(Message(run, requested, mail=mail))
        led = self._propose(run, RunLed(node=self.journal.leases.node, epoch=epoch, at=now))
        if plan is None:
            return Leading(ending, led)
        return Leading(ending, self._propose(run, PlanAdopted(plan=plan, at=now)))

    async def take_over(
        self, run: str, check: Callable[[Led], None], above: Account | None = None
    ) -> "Leading":
        """Lead a run that another process, or an earlier shift, has left; `check` may object."""
        if self.desk.is_draining:
            raise UsageError("the supervisor is stopping and takes up no run")
        # Led first, read second: from the new epoch on nobody else can add to what is read here.
        epoch = await self.journal.leases.lead(run)
        history = [entry.event async for entry in self.journal.read(run)]
        if not history:  # its process died between leading it and writing its first event
            await self.journal.leases.release(run, epoch)
            raise UnknownRun(run, "it was never begun")
        self._clock.not_before(history[-1].at)
        first = history[0]
        reusable = await self._reusable(first) if type(first) is RunRequested else {}
        letters = await self._mailroom.letters_for(run)
        is_capped = above is not None or has_caps(_limits_in(history))
        below = await spent_below(self.journal, history) if is_capped else {}
        # No more waiting up to `RunLed`: a round in between would decide under the old epoch.
        led = self.desk.open(run, history, above)
        led.reusable = reusable
        if led.account is not None:
            for child, spent in below.items():  # they are led again only later
                led.account.hold(child, spent)
        ending = self._expect(run)
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

    def claim(self, run: str) -> asyncio.Lock:
        """To be held while a run is begun or taken over: two callers at once would both lead it."""
        lock = self._claims.get(run)
        if lock is None:
            lock = self._claims[run] = asyncio.Lock()
        return lock

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

    # ending

    def close(self) -> None:
        """End when nothing is led any more. Say it when no caller is left."""
        self._is_closing = True
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

    async def let_go(self, run: str, why: str = "stopped gently") -> None:
        """Lead a run no longer, and leave it to be resumed: its attempts are stopped, not ended."""
        led = self.desk.runs.get(run)
        if led is None or run in self._left:
            return
        self._left.add(run)
        self._stop_all(run, led, why)
        node = self.journal.leases.node
        await self.propose(run, RunReleased(node=node, reason=why, at=self._clock.now()))
        if run in self._runs:
            await self._leave(run, led)
        self._left.discard(run)

    def _stop_all(self, run: str, led: Led, why: str) -> None:
        for node in led.schedule.nodes.values():
            if node.is_open:
                self._engine.stop(run, node.task.id, node.attempt, why)

    async def _quieten(self, grace: timedelta) -> None:
        if self.desk.busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), grace.total_seconds())

    async def _leave(self, run: str, led: Led) -> None:
        self.desk.close(run)
        await self.journal.leases.release(run, led.schedule.epoch)
        self._settle(run, RunInterrupted(run, "resume it with this id: what is done is kept"))

    # who takes part

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

    def _take_away(self, run: str, task: str, attempt: int) -> None:
        """Stop an attempt at once, to be done anew by another."""
        self._engine.preempt(run, task, attempt)  # so that it costs the task none of its attempts
        self._engine.stop(run, task, attempt, "its worker has left")

    def _look_around(self) -> None:
        """A place may be free: decide anew, and let those who leave know that they have nothing left."""
        for name, idle in self._departures.items():
            if not self.desk.dispatch.held_by(name):
                idle.set()
        self._is_freed = True
        self._wake.set()

    # the loop

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                watches = [
                    group.create_task(self._mailroom.watch()),
                    group.create_task(self._watch_stalls()),
                ]
                try:
                    await self._lead(group)
                finally:
                    for watch in watches:
                        watch.cancel()
                    if self._ringer is not None:
                        self._ringer.cancel()
        except BaseExceptionGroup as group_error:
            self._fail(_first(group_error))
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            # Nothing is written any more: whoever waits for that, in a thread perhaps, is told so.
            self.is_over = True
            for ticket in (*self._unanswered, *(message.ticket for message in self._inbox)):
                _answer(ticket, None)
            await self._engine.close()
            await self._bench.close()

    async def _lead(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wait(group)
            if self._is_closing and not self._runs and not self._inbox:
                return
            messages, self._inbox = self._inbox, []
            self._is_freed = False
            round_ = self.desk.decide(messages, self._clock.now())
            if round_.entries:
                try:
                    await self._write(round_)
                except BaseException:
                    self._unanswered = [ticket for ticket, _ in round_.tickets]
                    raise
            self._carry_out(round_)

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        while not (self._inbox or self._is_freed or (self._is_closing and not self._runs)):
            due_at = self.desk.next_due()
            if due_at is not None:
                if due_at <= self._clock.now():
                    return
                self._ring_at(due_at, group)
            self._wake.clear()
            await self._wake.wait()

    def _ring_at(self, due_at: datetime, group: asyncio.TaskGroup) -> None:
        if self._ringer is not None and not self._ringer.done():
            if self._rings_at is not None and self._rings_at <= due_at:
                return
            self._ringer.cancel()
        self._rings_at = due_at
        self._ringer = group.create_task(self._ring(due_at))

    async def _ring(self, due_at: datetime) -> None:
        await self._clock.sleep_until(due_at)
        self._wake.set()

    # writing

    async def _write(self, round_: Round) -> None:
        writes = [
            self._append(run, events, round_.mail.get(run, []), round_)
            for run, events in round_.entries.items()
        ]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)
        while self.desk.runs and not self.journal.leases.is_valid():
            # Our lease may have run out unseen, for instance while the machine was asleep. What
            # was written is ours, but nothing may be started before the lease is renewed. It never
            # will be if the disk has failed since or another leads: appending nothing finds out.
            await asyncio.sleep(0.05)
            for run in round_.entries:
                if run in round_.ended or run in self.desk.runs:
                    await self._append(run, [], [], round_)

    async def _append(self, run: str, events: list[Event], mail: list[int], round_: Round) -> None:
        led = round_.ended.get(run) or self.desk.runs[run]
        is_told = False
        while True:
            try:
                await self.journal.append(run, events, epoch=led.schedule.epoch, taking=mail)
            except NotLeading as error:
                self._lose(run, error, round_)
                return
            except KeyConflict:
                mail = []  # taken before, by an earlier shift; what came of it is ours to write
            except (JournalFull, JournalBusy, JournalReadOnly) as error:
                # Nothing was acknowledged and nothing is acted upon, so waiting loses nothing.
                if self.is_stopping:
                    raise
                if not is_told:
                    log.warning("journal_not_writable run=%s error=%s; trying again", run, error)
                    is_told = True
                await asyncio.sleep(RETRY_WRITE.total_seconds())
            else:
                self._publish(run, events, led)
                return

    def _publish(self, run: str, events: list[Event], led: Led) -> None:
        for queue in self._listeners.get(run, ()):
            for event in events:
                queue.put_nowait(event)
        for event in events:
            for hook in self._hooks.get(type(event), ()):
                try:
                    hook(run, event)
                except Exception:
                    log.exception("hook_failed run=%s event=%s", run, type(event).__name__)
            if self._notices is not None:
                self._notices.hear(run, event, led.schedule, self._place)

    def tell(self, run: str, piece: str | None) -> None:
        heard = AnswerPiece(text=piece or "", begins_anew=piece is None, at=self._clock.now())
        for queue in self._listeners.get(run, ()):
            queue.put_nowait(heard)

    def _lose(self, run: str, error: NotLeading, round_: Round) -> None:
        """Another process leads this run now: stop all that is done for it here, and say so."""
        log.warning("run_lost run=%s error=%s", run, error)
        led = round_.ended.pop(run, None) or self.desk.runs.get(run)
        unwritten = {id(event) for event in round_.entries[run]}
        round_.tickets = [
            (ticket, None if id(event) in unwritten else event) for ticket, event in round_.tickets
        ]
        ours = [act for act in round_.acts if act.run == run]
        round_.acts = [act for act in round_.acts if act.run != run]
        self.desk.free_unstarted(run, (act for act in ours if isinstance(act, StartAttempt)))
        self._look_around()
        if led is not None:
            self._stop_all(run, led, "another process leads the run")
        self.desk.close(run)
        self._settle(run, error)

    def _fail(self, error: BaseException) -> None:
        told = error if isinstance(error, (JournalError, Exception)) else RuntimeError(str(error))
        log.error("shift_failed error=%r", error)
        for run in list(self._runs):
            self.desk.close(run)
            self._settle(run, told)

    # carrying out

    def _carry_out(self, round_: Round) -> None:
        for ticket, event in round_.tickets:
            _answer(ticket, event)
        for worker, size in round_.sizes.items():
            self._bench.fit(worker, size)
        for act in round_.acts:
            if type(act) is StartAttempt:
                self._engine.start(self._bench.job(act, self.desk.runs[act.run], self), self)
                if act.worker in self._expelled:  # since this was decided
                    self._take_away(act.run, act.task, act.attempt)
            elif type(act) is Stop:
                self._engine.stop(act.run, act.task, act.attempt, act.reason)
            elif type(act) is PreemptAttempt:
                self._engine.preempt(act.run, act.task, act.attempt)
        for run in self._left.intersection(round_.entries):
            if any(type(event) is RunReleased for event in round_.entries[run]):
                self.desk.close(run)  # now: the next round must not decide about it any more
        for run, led in round_.ended.items():
            log.info("run_finished run=%s status=%s", run, led.schedule.status)
            self._settle(run, led)

    # what the engine tells

    def report(self, job: Job, outcome: Ending) -> None:
        brief = job.brief
        event: Event
        task, attempt, now = brief.task.id, brief.attempt, self._clock.now()
        if type(outcome) is Lost:
            event = AttemptLost(task=task, attempt=attempt, reason=outcome.reason, at=now)
        elif type(outcome) is Parking:
            due_at = now + outcome.wait
            event = AttemptParked(
                task=task, attempt=attempt, due_at=due_at, why=outcome.why, at=now
            )
        elif type(outcome) is Cancelled and (
            brief.is_preempted or self.desk.is_draining or brief.run in self._left
        ):
            event = AttemptPreempted(task=task, attempt=attempt, at=now)
        else:
            key = job.key if type(outcome) is Done else ""
            event = AttemptFinished(
                task=task,
                attempt=attempt,
                outcome=outcome,  # type: ignore[arg-type]  # Lost and Parking are gone
                key=key,
                reused=job.reused,
                at=now,
            )
        self._post(Message(brief.run, event))

    def freed(self, job: Job) -> None:
        brief = job.brief
        self.desk.free_place(brief.run, brief.task.id, brief.attempt)
        self._look_around()
        if self.desk.is_draining and not self.desk.busy:
            self._quiet.set()

    # what briefs say

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        if brief.is_preempted:
            raise Fenced("it makes room for something more urgent")
        event = StepStarted(
            task=brief.task.id,
            attempt=brief.attempt,
            name=step.name,
            ordinal=step.ordinal,
            effect=step.effect,
            key=step.key,
            digest=step.digest,
            about=step.about,
            reserve=step.reserve,
            at=self._clock.now(),
        )
        if not is_urgent:
            self._post(Message(brief.run, event))
            return
        while await self.propose(brief.run, event) is None:
            await self._wait_for_room(brief, event)
            event = replace(event, at=self._clock.now())

    async def _wait_for_room(self, brief: Brief, step: StepStarted) -> None:
        """Return when a step that was refused for want of money may be proposed again.

        Calls reserve their worst case and cost less: what is under way may still leave room. Once
        nothing is, the run's work is stopped.
        """
        led = self.desk.runs.get(brief.run)
        account = None if led is None else led.account
        if led is None or account is None or led.schedule.admit(step) is None:
            raise Fenced("the task is no longer this attempt's")
        why = account.refusal(brief.task.id, step.reserve)
        if not why:
            return  # something was settled since it was refused
        settled = asyncio.Event()
        if not account.when_settled(brief.task.id, step.reserve, settled.set):
            stopped = WorkStopped(reason=OVER_BUDGET, by=why, at=self._clock.now())
            self._post(Message(brief.run, stopped))
            raise WorkerError(f"{OVER_BUDGET}: {why}", kind="denied")
        await settled.wait()

    # what supervisors below say

    @property
    def clock(self) -> Clock:
        return self._clock

    def is_leaving(self, run: str) -> bool:
        return self.is_stopping or run in self._left or run not in self._runs

    def is_winding_up(self, run: str) -> bool:
        led = self.desk.runs.get(run)
        return led is not None and led.schedule.is_winding_up

    def take_in(self, below: "Shift") -> None:
        if self.desk.is_draining:
            raise Fenced("the supervisor is stopping")
        self._below.add(below)

    def board_for(self, brief: Brief) -> SharedBoard:
        # Imported when the first worker asks for it: most runs have no use for a board.
        from chargehand.roles.board import BriefBoard

        return BriefBoard(self.journal, self._clock, brief)

    def account_of(self, run: str) -> Account | None:
        led = self.desk.runs.get(run)
        return None if led is None else led.account

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        if type(outcome) is Done and outcome.value.is_large:
            outcome = await self._bench.spill(outcome)
        event = StepFinished(
            task=brief.task.id,
            attempt=brief.attempt,
            name=step.name,
            ordinal=step.ordinal,
            key=step.key,
            outcome=outcome,
            at=self._clock.now(),
        )
        if await self.propose(brief.run, event) is None:
            raise Fenced("the task is no longer this attempt's")

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        event = ProgressNoted(
            task=brief.task.id,
            attempt=brief.attempt,
            text=text,
            fraction=fraction,
            at=self._clock.now(),
        )
        message = Message(brief.run, event)
        self.loop.call_soon_threadsafe(self._post, message)

    async def _watch_stalls(self) -> None:
        """Say so when something blocks the event loop. Leases are renewed all the same, by a thread."""
        while True:
            before = self.loop.time()
            await asyncio.sleep(STALL / 2)
            blocked = self.loop.time() - before - STALL / 2
            if blocked > STALL:
                log.warning(
                    "event_loop_stalled seconds=%.1f; if a worker blocks it, make that a plain function or process=True",
                    blocked,
                )

    # small things

    def _post(self, message: Message) -> None:
        self._inbox.append(message)
        self._wake.set()

    def _expect(self, run: str) -> "asyncio.Future[Led]":
        future: asyncio.Future[Led] = self.loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._runs[run] = future
        return future

    def _settle(self, run: str, ending: Led | BaseException) -> None:
        future = self._runs.pop(run, None)
        if future is not None and not future.done():
            if isinstance(ending, Led):
                future.set_result(ending)
            else:
                future.set_exception(ending)
        for queue in self._listeners.pop(run, ()):
            queue.put_nowait(None)
        self._wake.set()


def _limits_in(history: Sequence[Event]) -> Limits:
    first = history[0]
    return first.limits if type(first) is RunRequested else Limits()


def _answer(ticket: object, event: Event | None) -> None:
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(event)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
