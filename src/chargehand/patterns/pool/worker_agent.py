"""The worker of a pool: takes tasks that are assigned to it, does them and returns the results.

`WorkerAgent` is what users call; its `Execution` claims a task, runs the attempt and records the outcome.
"""

import asyncio
import copy
import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from reprlib import repr as repr_of
from typing import Any, cast

from msgspec import Struct

from chargehand.clock import Clock
from chargehand.decisions.events_as_notes import told_of
from chargehand.decisions.task_graph import TaskState
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
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    Event,
    StepStarted,
)
from chargehand.facts.on_question import WAITING, Asking
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.scheduler_commands import StartAttempt
from chargehand.journal.base import Journal, load_value
from chargehand.patterns.pool.leaderless_run import (
    Decision,
    DecisionTime,
    LeaderlessRun,
    named_in,
    question_form,
    task_form,
    tasks_in,
)
from chargehand.patterns.pool.model_config import AgentConfig, config_of
from chargehand.patterns.pool.request_store import PoolRequests
from chargehand.patterns.pool.shared_memory import SharedMemoryPool, pool_of
from chargehand.patterns.pool.worker_with_shared_memory import MemoryWorker, MockedWorker, PoolBoard
from chargehand.roles.function_worker import FunctionWorker
from chargehand.roles.llm_worker import Worker
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import Resources
from chargehand.runtime.attempt_factory import AttemptFactory
from chargehand.sync_async_bridge import blocking
from chargehand.sync_async_bridge import wait_in_background as wait
from chargehand.tools.base import Tool

log = logging.getLogger("chargehand.pool")

DESCRIPTION = "Does one task of a request"
#: characters of a failure in the log
LONGEST = 300
#: seconds between checks for dead processes while a worker waits
LOOK = 1.0
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


class WorkerAgent:
    """Does tasks of a pool: with its model, or with `work`, a function of a brief or any other worker.

    It takes tasks that were assigned to it by name, and tasks for one of its `skills`.
    Attempts work as in a supervisor: steps are durable, and the result is in the journal before
    `execute_task` returns. One agent may be used from several threads at once.
    """

    @checks.keywords_checked
    def __init__(
        self,
        config: AgentConfig | None,
        pool: SharedMemoryPool,
        agent_id: str = "worker",
        *,
        work: "Callable[[Brief], Any] | Member | None" = None,
        skills: Sequence[str] = (),
        tools: Sequence[Tool] = (),
        instructions: str = "",
    ) -> None:
        self.config = config_of(config)
        self.pool = pool_of(pool)
        self.agent_id = checks.name(agent_id, "agent_id")
        self._names = (agent_id, *checks.names(skills, "skills"))
        if work is not None and (tools or instructions):
            raise UsageError(
                f"worker {agent_id!r}: tools and instructions are for a worker that asks a model; "
                "give them to the worker that you hand over as work="
            )
        self._member = self._made(work, tools, instructions)
        self._resources = Resources(model=self.config.choice, gateway=pool.gateway)
        self._execution: Execution | None = None

    def __repr__(self) -> str:
        return f"<worker agent {self.agent_id!r}>"

    @blocking
    async def get_assigned_tasks(
        self, request_id: str = "", *, lost: bool = False
    ) -> list[dict[str, Any]]:
        """The tasks that are waiting for this worker, of one request or of all, most urgent first.

        With `lost`, also tasks that another worker started and cannot finish any more, whoever they are
        assigned to.
        """
        requests = self.pool.requests
        names = [view.request for view in await self._views(request_id)]
        await requests.look_after(*names)
        found: list[tuple[int, dict[str, Any]]] = []
        for name in names:
            view = await requests.view(name)
            if not view.schedule.is_paused:
                more = view.given_back if lost else ()
                ready = [node for node in tasks_in(view) if node.state is TaskState.READY]
                mine = [n for n in ready if self._is_meant(n.task) or n.task.id in more]
                found += [(view.urgency_of(node.task.id), task_form(view, node)) for node in mine]
        found.sort(key=lambda each: -each[0])  # stable: then by age and plan
        return [form for _, form in found]

    @blocking
    async def execute_task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Do a task and return its result, as a dict with its `status`: completed, failed, …

        A failure of the task is not raised but stored, and the supervisor agent decides about the task.
        Raises `TaskTaken` if another worker is doing the task or has done it.
        """
        request, name = named_in(task)
        return await self._form(request, name, await self._at_work().do(request, name))

    @blocking
    async def execute_next(self, request_id: str = "") -> dict[str, Any] | None:
        """Do the most urgent task for this worker or one of its skills, of one request or of all requests.

        Returns the result, or None if there is no task now. Concurrent callers get different tasks.
        """
        requests = self.pool.requests
        # With one request there is nothing to compare: the claim itself picks its most urgent task.
        if request_id:
            await requests.take_letters(request_id)
            only = await self._at_work().do_next(request_id, self._names)
            return None if only is None else await self._form(request_id, *only)
        views = await requests.open()
        await requests.take_letters(*(view.request for view in views))
        while waiting := [(view, task) for view in views if (task := view.next_for(self._names))]:
            view, task = max(waiting, key=lambda each: each[0].urgency_of(each[1]))
            least = view.urgency_of(task)
            if (
                done := await self._at_work().do_next(view.request, self._names, least)
            ) is not None:
                return await self._form(view.request, *done)
            views = await requests.open()  # another worker was faster
        for view in views:  # a dead process may have had a task, or a retry may be due
            if (done := await self._at_work().do_next(view.request, self._names)) is not None:
                return await self._form(view.request, *done)
        return None

    def serve(
        self,
        request_id: str = "",
        *,
        on_result: Callable[[dict[str, Any]], object] | None = None,
        idle: Duration | None = None,
    ) -> int:
        """Do the waiting and future tasks for this worker; returns how many it did.

        Ends when the request has ended, when no task has come for `idle`, or when the pool is closed;
        otherwise never. `on_result` is called for each result, in this thread.
        """
        longest = checks.duration_or_none(idle, "idle", may_be_zero=True)
        count, last = 0, time.monotonic()
        while True:
            waited = time.monotonic() - last
            left = None if longest is None else longest.total_seconds() - waited
            try:
                result = self.execute_next(request_id)
                if result is None and not wait(self.has_more(request_id, left)):
                    return count
            except UsageError:
                if self.pool.is_closed:
                    return count
                raise
            if result is not None:
                count, last = count + 1, time.monotonic()
                if on_result is not None:
                    on_result(result)

    async def has_more(
        self, request_id: str, left: float | None = None, *, waits: bool = True
    ) -> bool:
        """Whether more tasks may come, within `left` seconds or at any time.

        Without `waits`, False if the request cannot continue without an answer or a decision.
        """
        clock, signal = asyncio.get_running_loop().time, self.pool.journal.boards.signal
        began = clock()
        while not self.pool.is_closed:
            known = signal.count
            views = await self._views(request_id)
            if request_id and views[0].is_ended:
                return False
            if any(view.next_for(self._names) for view in views):
                return True
            if not waits and not any(view.goes_on(self._names) for view in views):
                return False
            waited = clock() - began
            if left is not None and waited >= left:
                return False
            if waited >= LOOK:
                return True  # a process that had a task may have died
            dues = [due for view in views if (due := view.due_at) is not None]
            due_in = [(due - self.pool.clock.now()).total_seconds() for due in dues]
            patience = min([LOOK, *due_in, *([] if left is None else [left - waited])])
            if dues and patience <= 0:
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(signal.wait(since=known), patience)
        return False

    async def _views(self, request_id: str) -> list[LeaderlessRun]:
        requests = self.pool.requests
        return [await requests.view(request_id)] if request_id else await requests.open()

    def _is_meant(self, task: Task) -> bool:
        return (task.worker or task.skill) in self._names

    def _at_work(self) -> "Execution":
        if self._execution is None:
            self._execution = Execution(
                self.pool.requests, self._member, self._resources, self.pool.name
            )
            self.pool.executions.add(self._execution)
        return self._execution

    async def _form(self, request: str, task: str, ended: PoolAttemptEnded) -> dict[str, Any]:
        form = {
            "task_id": task,
            "request_id": request,
            "agent_id": self.agent_id,
            "attempt": ended.attempt,
            **await self._told(ended),
        }
        if self.config.logging_enabled:
            is_wrong = form["status"] in ("failed", "refused")
            is_asking = form["status"] == "asking"
            said = f" error={form['error'][:LONGEST]!r}" if is_wrong else ""
            if is_asking:
                asked = form["question"]
                said = f" for={asked['text'][:LONGEST]!r}; end the wait with: {self._way_out(asked['id'])}"
            log.log(
                logging.WARNING if is_wrong or is_asking else logging.INFO,
                "pool_task_%s run=%s task=%s attempt=%s worker=%s%s",
                form["status"],
                request,
                task,
                ended.attempt,
                self.agent_id,
                said,
            )
        return form

    def _way_out(self, question: str) -> str:
        """How to answer a question: a shell command, or a Python call if the pool is in memory."""
        journal = str(getattr(self.pool.journal, "path", ""))
        words = ["chargehand", "answer", question, "TEXT", "--journal", journal]
        call = f"SupervisorAgent(None, pool).answer({question!r}, 'TEXT')"
        return shlex.join(words) if journal else call

    async def _told(self, ended: PoolAttemptEnded) -> dict[str, Any]:
        """The status, the result and the error of an attempt, for its dict."""
        outcome = ended.outcome
        if not ended.is_accepted:
            why = outcome.reason if isinstance(outcome, Cancelled) else ""
            told = why or "the task was no longer with this attempt; its result was ignored"
            return {"status": "refused", "result": None, "error": told}
        if isinstance(outcome, Done):
            value = outcome.value
            if value.blob:
                value = await load_value(value, self.pool.journal.blobs)
            return {"status": "completed", "result": value.read(), "error": None}
        if isinstance(outcome, Failed):
            failed = {"status": "failed", "result": None, "error": str(outcome)}
            return {**failed, **told_of(outcome)}
        if isinstance(outcome, NeedsInput):
            asked = question_form(outcome.question)
            return {"status": "asking", "result": None, "error": None, "question": asked}
        return {"status": "cancelled", "result": None, "error": outcome.reason}

    def _made(
        self,
        work: "Callable[[Brief], Any] | Member | None",
        tools: Sequence[Tool],
        instructions: str,
    ) -> Member:
        """The worker that does the tasks, under the name of the agent."""
        if work is None:
            thinking = Worker(
                self.agent_id,
                DESCRIPTION,
                instructions=checks.text(instructions, "instructions"),
                tools=tools,
                model=self.config.choice,
                settings=self.config.settings,
            )
            kind = MockedWorker if self.config.is_mock else MemoryWorker
            return kind(thinking, self.pool.board)
        if hasattr(work, "work") and hasattr(work, "place"):
            named: Any = copy.copy(work)
            named.name = self.agent_id
            is_thinking = isinstance(named, Worker)
            return MemoryWorker(named, self.pool.board) if is_thinking else cast("Member", named)
        if not callable(work):
            raise UsageError(
                f"worker {self.agent_id!r}: work={repr_of(work)} is neither a function of a brief "
                "nor a worker"
            )
        return FunctionWorker(work, self.agent_id, DESCRIPTION)


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

    def winding_up(self, run: str) -> str:  # noqa: ARG002 - likewise
        return "" if self._execution.is_leaving else "its task was stopped"

    def take_in(self, below: Drainable) -> None:
        """Nothing to do: a nested supervisor ends with its task."""
