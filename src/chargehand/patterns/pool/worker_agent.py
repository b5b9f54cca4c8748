"""The worker of a pool: takes tasks that are assigned to it, does them and returns the results."""

import asyncio
import copy
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from reprlib import repr as repr_of
from typing import Any, cast

from chargehand.background_loop import blocking
from chargehand.background_loop import wait_in_background as wait
from chargehand.decisions.events_as_notes import told_of
from chargehand.decisions.task_graph import TaskState
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput
from chargehand.facts.plan import Task
from chargehand.journal.base import load_value
from chargehand.patterns.pool.leaderless_run import LeaderlessRun
from chargehand.patterns.pool.model_config import AgentConfig, config_of
from chargehand.patterns.pool.plain_dicts import named_in, question_form, task_form, tasks_in
from chargehand.patterns.pool.shared_memory import SharedMemoryPool, pool_of
from chargehand.patterns.pool.worker_attempt import Execution, PoolAttemptEnded
from chargehand.patterns.pool.worker_with_shared_memory import MemoryWorker, MockedWorker
from chargehand.roles.function_worker import FunctionWorker
from chargehand.roles.llm_worker import Worker
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import Resources
from chargehand.tools.base import Tool

log = logging.getLogger("chargehand.pool")

DESCRIPTION = "Does one task of a request"
#: characters of a failure in the log
LONGEST = 300
#: seconds between checks for dead processes while a worker waits
LOOK = 1.0


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

    def _at_work(self) -> Execution:
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
