"""The rounds of a shift: drain the inbox, decide, write down, and only then carry out."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from chargehand.decisions.desk import Led, Message, Round, Stop
from chargehand.decisions.graph import TaskState
from chargehand.decisions.schedule import RunState
from chargehand.errors import (
    JournalBusy,
    JournalError,
    JournalFull,
    JournalReadOnly,
    KeyConflict,
    NotJSON,
    NotLeading,
    RunInterrupted,
    UsageError,
)
from chargehand.facts.commands import PreemptAttempt, StartAttempt
from chargehand.facts.events import AttemptFinished, Event, RunReleased
from chargehand.facts.on_question import Asking, OnQuestion
from chargehand.facts.outcome import NeedsInput, failed_by
from chargehand.mailroom import Mailroom
from chargehand.shift.announcer import SILENCE
from chargehand.shift.event_log import log_events
from chargehand.shift.hearing import NEEDS_PERSON, Hearing
from chargehand.shift.watchdog import Watchdog

#: how often a journal that is full, locked or read-only is tried again
RETRY_WRITE = timedelta(seconds=1)
#: seconds from one look at a lease that is to be renewed to the next
RENEWAL = 0.0625

WAITS = "it waits for a person"
#: why a run is let go of that could be led on
CUT_OFF = "its provider serves nobody"

log = logging.getLogger("chargehand")


class Rounds(Hearing):
    """Goes round after round, as long as there is something to lead."""

    _mailroom: Mailroom
    _task: "asyncio.Task[None]"

    async def _work(self) -> None:
        watchdog = Watchdog.watch()
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._mailroom.watch())
                try:
                    await self._lead(group)
                finally:
                    watch.cancel()
                    if self._ringer is not None:
                        self._ringer.cancel()
                    self._announcer.close()
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
            await self._bench.close()
            watchdog.release()

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
            if round_.broken:
                await self._part_with(round_)
            if self.is_left:
                self._let_wait(self.desk.runs, group)
            elif self._asking:
                self._let_wait(self._asking.keys() & round_.entries.keys(), group)

    def _let_wait(self, runs: Iterable[str], group: asyncio.TaskGroup) -> None:
        """Let go of those of these runs in which nothing goes on before a person has done something."""
        for run in runs:
            policy, led = self.asking(run), self.desk.runs.get(run)
            if led is None or run in self._left:
                continue
            waits = led.schedule.state is RunState.WAITING
            if self.is_left and (waits or self._is_stuck(led)):
                group.create_task(self.let_go(run, WAITS))
            elif waits and led.schedule.is_cut_off:
                is_asking = any(node.question for node in led.schedule.nodes.values())
                if policy.on_outage is OnQuestion.RETURN and not (
                    is_asking and policy.mode is OnQuestion.WAIT
                ):
                    group.create_task(self.let_go(run, CUT_OFF, led))
            elif policy.mode is OnQuestion.RETURN and waits and not _is_timed(policy, led):
                group.create_task(self.let_go(run, WAITS, led))

    def _is_stuck(self, led: Led) -> bool:
        """Whether nothing will happen in this run by itself: it is paused, or has nobody to work for it."""
        if led.schedule.state is RunState.PAUSED:
            return True
        nodes = led.schedule.nodes.values()
        goes_on = self.desk.busy or self._inbox or self.desk.has_probe
        return not goes_on and not any(node.state is TaskState.RETRYING for node in nodes)

    async def let_go(
        self, run: str, why: str = "stopped gently", ending: Led | None = None
    ) -> None:
        """Lead a run no longer, and leave it to be resumed: its attempts are stopped, not ended.

        Whoever waits for it gets the run as it stands, or without an `ending` is told to resume it.
        """
        led = self.desk.runs.get(run)
        if led is None or run in self._left:
            return
        self._left.add(run)
        self._stop_all(run, led, why)
        node = self.journal.leases.node
        await self.propose(run, RunReleased(node=node, reason=why, at=self._clock.now()))
        if run in self._runs:
            self.desk.close(run)
            await self.journal.leases.release(run, led.schedule.epoch)
            how = "resume it with this id: what is done is kept"
            self._settle(run, ending or RunInterrupted(run, how))
        self._left.discard(run)

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        while not (self._inbox or self._is_freed or (self._is_closing and not self._runs)):
            due_at = self.desk.next_due()
            if due_at is not None:
                if due_at <= self._clock.now():
                    return
                self._ring_at(due_at, group)
            self._announcer.arm(is_idle=not self.desk.busy)
            self._wake.clear()
            await self._wake.wait()
            self._announcer.stir()

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

    async def _write(self, round_: Round) -> None:
        writes = [
            self._append(run, events, round_.mail.get(run, []), round_)
            for run, events in round_.entries.items()
        ]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)
        waits = 0
        while self.desk.runs and not self.journal.leases.is_valid():
            # Our lease may have run out unseen, for instance while the machine was asleep. What
            # was written is ours, but nothing may be started before the lease is renewed. It never
            # will be if the disk has failed since or another leads: appending nothing finds out.
            await asyncio.sleep(RENEWAL)
            waits += 1
            if waits * RENEWAL == SILENCE:
                log.warning(
                    "lease_not_renewed; nothing is started before the journal has renewed it"
                )
            for run in round_.entries:
                if run in round_.ended or run in self.desk.runs:
                    await self._append(run, [], [], round_)

    async def _append(self, run: str, events: list[Event], mail: list[int], round_: Round) -> None:
        led = round_.ended.get(run) or self.desk.runs.get(run) or round_.broken[run][0]
        is_told = False
        while True:
            try:
                await self.journal.append(run, events, epoch=led.schedule.epoch, taking=mail)
            except NotLeading as error:
                self._lose(run, error, round_)
                return
            except KeyConflict:
                mail = []  # taken before, by an earlier shift; what came of it is ours to write
            except NotJSON as error:
                # Nothing of it was stored. The run ends in words that can be, or is led no longer.
                events.clear()
                if run not in round_.broken:
                    self.desk.break_off(run, error, round_, self._clock.now())
                else:
                    round_.ended.pop(run, None)
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
        if log.isEnabledFor(logging.INFO):
            log_events(run, events)
        if run in self._told:
            self._told[run] += len(events)
        for queue in self._listeners.get(run, ()):
            for event in events:
                queue.put_nowait(event)
        for event in events:
            for hook in self._hooks.get(type(event), ()):
                try:
                    hook(run, event)
                except KeyboardInterrupt:
                    raise
                except BaseException:  # a hook's SystemExit must not end the runs
                    log.exception("hook_failed run=%s event=%s", run, type(event).__name__)
            if type(event) is AttemptFinished:
                if type(event.outcome) is NeedsInput:
                    self._mind_person(run, event, led)
            elif type(event) in NEEDS_PERSON:
                self._mind_person(run, event, led)
            if self._notices is not None:
                try:
                    self._notices.hear(run, event, led.schedule, self._place)
                except Exception:
                    log.exception("notice_failed run=%s event=%s", run, type(event).__name__)

    async def _part_with(self, round_: Round) -> None:
        """Tell of runs about which a decision raised; those that could not be ended are let go of."""
        for run, (led, mistake) in round_.broken.items():
            log.error("run_broken_off run=%s error=%s", run, mistake)
            if run not in round_.ended:
                with contextlib.suppress(JournalError):
                    await self.journal.leases.release(run, led.schedule.epoch or led.epoch)
                self._settle(run, mistake)

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

    async def _fail(self, error: BaseException) -> None:
        """Nothing is led here any more. Runs that are left open can be resumed at once, here or elsewhere."""
        left = {run: self.desk.runs.get(run) for run in self._runs}
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if not is_cancelled:
            log.error("shift_failed error=%r", error)
        elif left:
            log.warning("shift_cancelled; the event loop ends: resume %s", ", ".join(left))
        why = "the event loop of its supervisor ended"
        for run, led in left.items():
            told = (
                error if isinstance(error, Exception) else RunInterrupted(run, f"{why}; resume it")
            )
            self.desk.close(run)
            self._settle(run, told)
            if led is not None:
                await self._release(run, led.schedule.epoch, why if is_cancelled else str(error))

    async def _release(self, run: str, epoch: int, why: str) -> None:
        """Let go of a run without the loop that would write it down, as far as the journal can."""
        released = RunReleased(node=self.journal.leases.node, reason=why, at=self._clock.now())
        with contextlib.suppress(JournalError, UsageError):
            await self.journal.append(run, [released], epoch=epoch)
            await self.journal.leases.release(run, epoch)

    def _carry_out(self, round_: Round) -> None:
        for ticket, event in round_.tickets:
            _answer(ticket, event)
        for worker, size in round_.sizes.items():
            self._bench.fit(worker, size)
        for act in round_.acts:
            if type(act) is StartAttempt:
                try:
                    job = self._bench.job(act, self.desk.runs[act.run], self)
                except Exception as error:  # noqa: BLE001 - of this attempt; the others go on
                    self._refuse_start(act, error)
                    continue
                self._engine.start(job, self)
                if act.worker in self._expelled:  # since this was decided
                    self._take_away(act.run, act.task, act.attempt)
            elif type(act) is Stop:
                self._engine.stop(act.run, act.task, act.attempt, act.reason)
            elif type(act) is PreemptAttempt:
                self._engine.preempt(act.run, act.task, act.attempt)
        for run in self._left.intersection(round_.entries):
            if any(type(event) is RunReleased for event in round_.entries[run]):
                self.desk.close(run)  # now: the next round must not decide about it any more
        self._look_up(round_.entries)
        for run, led in round_.ended.items():
            log.info("run_finished run=%s status=%s", run, led.schedule.status)
            self._settle(run, led)

    def _refuse_start(self, act: StartAttempt, error: Exception) -> None:
        """An attempt that was decided on could not be made ready: it has failed."""
        outcome = failed_by(error)
        now = self._clock.now()
        event = AttemptFinished(task=act.task, attempt=act.attempt, outcome=outcome, at=now)
        self._post(Message(act.run, event))
        self.desk.free_place(act.run, act.task, act.attempt)
        self._look_around()

    def _take_away(self, run: str, task: str, attempt: int) -> None:
        """Stop an attempt at once, to be done anew by another."""
        self._engine.stop(run, task, attempt, "its worker has left")
        self._engine.preempt(run, task, attempt)  # so that it costs the task none of its attempts


def _is_timed(policy: Asking, led: Led) -> bool:
    """Whether time settles what it asks, and nobody said not to wait for that."""
    asked = [node for node in led.schedule.nodes.values() if node.question is not None]
    return policy.is_default and bool(asked) and all(node.due_at for node in asked)


def _answer(ticket: object, event: Event | None) -> None:
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(event)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
