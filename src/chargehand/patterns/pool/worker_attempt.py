"""Runs the tasks of a pool worker: claims a task, runs the attempt and records its outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from chargehand.clock import Clock
from chargehand.engines.base import NOT_ITS_TASK, Ending, Job, JournalHost, end_of
from chargehand.engines.brief import Brief, Drainable, Fenced, SharedBoard
from chargehand.engines.local_engine import LocalEngine
from chargehand.errors import (
    ChargehandError,
    JournalBusy,
    JournalFull,
    JournalReadOnly,
    NotLeading,
    UsageError,
)
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    Event,
    StepStarted,
)
from chargehand.facts.on_question import WAITING, Asking
from chargehand.facts.outcome import Cancelled, Outcome
from chargehand.facts.scheduler_commands import StartAttempt
from chargehand.journal.base import Journal
from chargehand.patterns.pool.leaderless_run import Decision, DecisionTime, LeaderlessRun
from chargehand.patterns.pool.request_store import PoolRequests
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import Resources
from chargehand.runtime.attempt_factory import AttemptFactory

log = logging.getLogger("chargehand.pool")

#: tasks that one pool worker may do at once in this process
AT_ONCE = 64
#: time between tries to write to a journal that is full, locked or read-only
RETRY_WRITE = timedelta(seconds=1)

CLOSED = "the pool was closed"


class PoolAttemptEnded(Struct, frozen=True):
    """How an attempt at a task ended."""

    outcome: Outcome
    attempt: int
    #: False: the task no longer belonged to this attempt, so the outcome was ignored
    is_accepted: bool


class Execution:
    """Runs the attempts of one pool worker."""

    def __init__(
        self, requests: PoolRequests, member: Member, resources: Resources, board: str
    ) -> None:
        self._requests = requests
        self._name = member.name
        #: the name of the board of the pool
        self.board = board
        self._attempt_factory = AttemptFactory(
            [member], resources, requests.journal.blobs, requests.clock, AT_ONCE
        )
        self._engine = LocalEngine()
        requests.engines.add(self._engine)
        self._leaving = asyncio.Event()
        #: asyncio tasks that wait for work in progress
        self._busy: set[asyncio.Task[Any]] = set()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    async def do(self, request: str, task: str) -> PoolAttemptEnded:
        """Do a task, from its claim to its result. Raises `TaskTaken` if another worker has it.

        If an attempt is parked for a model provider, or its child process dies, the task is tried again here.
        """
        with self._at_work():
            return await self._go_on(await self._claim(request, task))

    async def do_next(
        self, request: str, names: Sequence[str], least: int | None = None
    ) -> tuple[str, PoolAttemptEnded] | None:
        """Do the most urgent task for one of these workers or skills; None if there is none.

        With `least`, only a task of at least this urgency: other requests may have more urgent tasks.
        """
        with self._at_work():
            attempt = await self._claim_next(request, names, least)
            if attempt is None:
                return None
            return attempt.job.task, await self._go_on(attempt)

    async def close(self) -> None:
        """Stop all attempts; other workers can continue them from their finished steps."""
        self._leaving.set()
        await self._engine.close()
        if self._busy:
            await asyncio.wait(self._busy)  # their outcomes have to be recorded
        await self._attempt_factory.close()

    async def _claim(self, request: str, task: str) -> "PoolAttempt":
        attempt = PoolAttempt(self._requests, self._attempt_factory, self)
        await self._requests.decide(
            request, lambda ledger, moment: self._begun(attempt, ledger, task, moment)
        )
        return attempt

    async def _claim_next(
        self, request: str, names: Sequence[str], least: int | None
    ) -> "PoolAttempt | None":
        attempt = PoolAttempt(self._requests, self._attempt_factory, self)

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            freed: list[Event] = []
            task = ledger.next_for(names)
            if task is None:  # a dead process may have had one
                freed = ledger.reap(moment).events
                task = ledger.next_for(names)
            if task is None or (least is not None and ledger.urgency_of(task) < least):
                return Decision(freed)
            return Decision(freed + self._begun(attempt, ledger, task, moment).events)

        await self._requests.decide(request, act)
        return attempt if attempt.is_claimed else None

    def _begun(
        self, attempt: "PoolAttempt", ledger: LeaderlessRun, task: str, moment: DecisionTime
    ) -> Decision:
        """Claim a task and prepare its attempt, inside the journal's transaction."""
        move = ledger.claim(task, self._name, moment)
        if move.refusal is None:
            number = ledger.schedule.nodes[task].attempt
            start = StartAttempt(ledger.request, task, number, self._name, "")
            attempt.take(self._attempt_factory.job(start, ledger.live_run, attempt.host))
        return move

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Register the current asyncio task as waiting for work here."""
        if self._leaving.is_set():
            raise UsageError("this pool is closed; open it again, and make the agents again")
        waiting = asyncio.current_task()
        assert waiting is not None  # noqa: S101 - for the type checker: a coroutine always runs in a task
        self._busy.add(waiting)
        try:
            yield
        finally:
            self._busy.discard(waiting)

    async def _go_on(self, attempt: "PoolAttempt") -> PoolAttemptEnded:
        """Run the claimed attempt, and further attempts after a loss or a parked attempt."""
        job = attempt.job
        ended = await self._perform(attempt)
        while ended is None:
            try:
                attempt = await self._claim(job.run, job.task)
            except UsageError as error:  # the task was taken away meanwhile
                return PoolAttemptEnded(
                    Cancelled(reason=str(error)), job.attempt, is_accepted=False
                )
            ended = await self._perform(attempt)
        return ended

    async def _perform(self, attempt: "PoolAttempt") -> PoolAttemptEnded | None:
        """Run one attempt; None if the task needs another attempt."""
        ending: Ending = Cancelled(reason=CLOSED)
        if not self.is_leaving:
            self._engine.start(attempt.job, attempt)
            ending = await asyncio.shield(attempt.ending)
        return await self._report(attempt, ending)

    async def _report(self, attempt: "PoolAttempt", ending: Ending) -> PoolAttemptEnded | None:
        """Record how an attempt ended; None if the task needs another attempt here."""
        number = attempt.job.attempt
        event = end_of(attempt.job, ending, self._requests.clock.now(), goes_on=self.is_leaving)
        said = await attempt.say(event)
        match event:
            case AttemptLost():
                return None
            case AttemptParked():
                return await self._rest(event.due_at, number)
            case AttemptFinished(outcome=outcome):
                return PoolAttemptEnded(outcome, number, is_accepted=type(said) is AttemptFinished)
            case _:
                return PoolAttemptEnded(
                    Cancelled(reason=CLOSED), number, is_accepted=said is not None
                )

    async def _rest(self, due_at: datetime, attempt: int) -> PoolAttemptEnded | None:
        """Wait for a provider, until the pool is closed at the latest."""
        rest = asyncio.ensure_future(self._requests.clock.sleep_until(due_at))
        leaving = asyncio.ensure_future(self._leaving.wait())
        await asyncio.wait({rest, leaving}, return_when=asyncio.FIRST_COMPLETED)
        rest.cancel()
        leaving.cancel()
        if not self.is_leaving:
            return None
        return PoolAttemptEnded(Cancelled(reason=CLOSED), attempt, is_accepted=True)


class PoolAttempt:
    """One running attempt: receives its end from the engine, and writes the events of its brief to the journal."""

    def __init__(
        self, requests: PoolRequests, attempts: AttemptFactory, execution: Execution
    ) -> None:
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._requests = requests
        self._execution = execution
        #: the host that its brief uses
        self.host = JournalHost(self, self.clock, attempts.spill, self._board_for, nesting=self)
        self._job: Job | None = None
        #: events that can be written together with the next one
        self._held: deque[Event] = deque()
        self._flushing: set[asyncio.Task[None]] = set()

    @property
    def job(self) -> Job:
        assert self._job is not None  # noqa: S101 - for the type checker: it was claimed
        return self._job

    @property
    def is_claimed(self) -> bool:
        return self._job is not None

    def take(self, job: Job) -> None:
        """Set the job of this attempt."""
        self._job = job

    async def say(self, event: Event | None) -> Event | None:
        """Write the held events and then this event; returns the event as written, None if it changed nothing."""
        drained: list[Event] = []
        said: list[Event] = []

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            drained.clear()
            while self._held:
                drained.append(self._held.popleft())
            written = [each for held in drained for each in ledger.write(held, moment.node)]
            if event is not None:
                said[:] = ledger.write(event, moment.node)
            return Decision(written + said)

        while True:
            try:
                await self._requests.decide(self.job.run, act)
            except (JournalFull, JournalBusy, JournalReadOnly, NotLeading) as error:
                # A result must not be lost because the disk is full, or because a process leads the
                # request just now to cancel it.
                log.warning("journal_not_writable run=%s error=%s", self.job.run, error)
                self._held.extendleft(reversed(drained))
                drained.clear()  # the next try may fail before it refills the list
                await asyncio.sleep(RETRY_WRITE.total_seconds())
            else:
                return said[0] if said else None

    # called by the engine

    def report(self, job: Job, outcome: Ending) -> None:  # noqa: ARG002 - there is only one
        if not self.ending.done():
            self.ending.set_result(outcome)

    def freed(self, job: Job) -> None:
        """Nothing to do: a pool has no worker slots."""

    # called by the host while the attempt runs

    def post(self, run: str, event: Event) -> None:  # noqa: ARG002 - there is only one
        """Write this event soon, or together with the next event that is written."""
        self._held.append(event)
        flushing = self._loop.create_task(self._flush())
        self._flushing.add(flushing)
        flushing.add_done_callback(self._flushing.discard)

    async def _flush(self) -> None:
        try:
            if self._held:
                await self.say(None)
        except ChargehandError as error:  # the next caller of `say` gets the error too
            log.warning("pool_not_written run=%s error=%s", self.job.run, error)

    async def propose(self, run: str, event: Event) -> Event | None:  # noqa: ARG002 - as above
        return await self.say(event)

    async def wait_for_room(self, brief: Brief, step: StepStarted) -> None:  # noqa: ARG002 - no budget is kept here
        raise Fenced(NOT_ITS_TASK)

    def _board_for(self, brief: Brief) -> SharedBoard:
        from chargehand.patterns.pool.worker_with_shared_memory import PoolBoard

        return PoolBoard(self.journal, self.clock, brief, self._execution.board)

    # called by a nested supervisor

    @property
    def journal(self) -> Journal:
        return self._requests.journal

    @property
    def clock(self) -> Clock:
        return self._requests.clock

    def account_of(self, run: str) -> None:
        """None: a pool keeps no budget."""

    def asking(self, run: str) -> Asking:  # noqa: ARG002 - the same for all runs of a pool
        return WAITING

    def is_leaving(self, run: str) -> bool:  # noqa: ARG002 - as all hosts
        return self._execution.is_leaving

    def is_winding_up(self, run: str) -> bool:  # noqa: ARG002 - likewise
        return not self._execution.is_leaving

    def take_in(self, below: Drainable) -> None:
        """Nothing to do: a nested supervisor ends with its task."""
