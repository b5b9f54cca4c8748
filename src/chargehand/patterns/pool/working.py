"""The worker of a pool: takes tasks that are meant for it, does them, and tells what came of it."""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from msgspec import Raw

from chargehand.background import wait_in_background as wait
from chargehand.decisions.graph import Node, TaskState
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput
from chargehand.facts.value import Value
from chargehand.patterns.pool.config import AgentConfig
from chargehand.patterns.pool.execution import Ended, Execution
from chargehand.patterns.pool.forms import named_in, task_form, tasks_in
from chargehand.patterns.pool.ledger import Ledger
from chargehand.patterns.pool.memory import SharedMemoryPool
from chargehand.roles.function import FunctionWorker
from chargehand.roles.office import Office
from chargehand.roles.roster import Member
from chargehand.roles.worker import Worker
from chargehand.tools.base import Tool

log = logging.getLogger("chargehand.pool")

DESCRIPTION = "Does one task of a request"
LOOK = 1.0
#: seconds after which a worker that serves looks whether somebody has died


class WorkerAgent:
    """Does tasks of a pool: with its model, or with `work`, a function of a brief or any other worker.

    It takes what was given to it by name, and what anybody with one of its `skills` may take.
    An attempt is one like any other: its steps are durable, its result is in the journal before
    `execute_task` returns. One agent may be used from several threads at once.
    """

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
        if not agent_id.strip():
            raise UsageError("a worker of a pool needs an agent_id: tasks are given to it by name")
        self.config = config or AgentConfig()
        self.pool = pool
        self.agent_id = agent_id
        self._names = (agent_id, *skills)
        if work is not None and (tools or instructions):
            raise UsageError(
                f"worker {agent_id!r}: tools and instructions are for a worker that asks a model; "
                "give them to the worker that you hand over as work="
            )
        self._member = _member(self.config, agent_id, work, tools, instructions)
        self._office = Office(model=self.config.choice, switchboard=pool.switchboard)
        self._execution: Execution | None = None

    def __repr__(self) -> str:
        return f"<worker agent {self.agent_id!r}>"

    def get_assigned_tasks(
        self, request_id: str = "", *, lost: bool = False
    ) -> list[dict[str, Any]]:
        """The tasks that wait for this worker, of one request or of all; the most urgent first.

        With `lost`, also those that others had begun and can no longer end, whoever they were given to.
        """
        return wait(self._assigned(request_id, lost=lost))

    def execute_task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Do a task and return what came of it, as a dict with its `status`: completed, failed, …

        A failure is not raised: it is kept, and the supervisor says what becomes of the task. Raises
        `TaskTaken` if somebody else is doing it, or has done it.
        """
        request, name = named_in(task)
        return wait(self._execute(request, name))

    def execute_next(self, request_id: str = "") -> dict[str, Any] | None:
        """Do the most urgent task that waits for this worker or one of its skills, of one request or of all.

        Returns what came of it, or None if there is none now. Of many that call this at once, each gets
        another task.
        """
        return wait(self._execute_next(request_id))

    def serve(
        self,
        request_id: str = "",
        *,
        on_result: Callable[[dict[str, Any]], object] | None = None,
        idle: float | None = None,
    ) -> int:
        """Do what waits for this worker and what is to come; returns how many tasks that were.

        Ends when the request has ended, when nothing has come for `idle` seconds, or when the pool is
        closed; without any of these, never. `on_result` hears of each task in this thread.
        """
        count, last = 0, time.monotonic()
        while True:
            left = None if idle is None else idle - (time.monotonic() - last)
            try:
                result = self.execute_next(request_id)
                if result is None and not wait(self._has_more(request_id, left)):
                    return count
            except UsageError:
                if self.pool.is_closed:
                    return count
                raise
            if result is not None:
                count, last = count + 1, time.monotonic()
                if on_result is not None:
                    on_result(result)

    async def _has_more(self, request_id: str, left: float | None) -> bool:
        """Whether it is worth looking again, in the seconds that are left for that or ever after."""
        clock, signal = asyncio.get_running_loop().time, self.pool.journal.boards.signal
        began = clock()
        while not self.pool.is_closed:
            known = signal.count
            views = await self._views(request_id)
            if request_id and views[0].is_ended:
                return False
            if any(view.next_for(self._names) for view in views):
                return True
            waited = clock() - began
            if left is not None and waited >= left:
                return False
            if waited >= LOOK:
                return True  # somebody who had a task may have died
            with suppress(TimeoutError):
                patience = LOOK if left is None else min(LOOK, left - waited)
                await asyncio.wait_for(signal.wait(since=known), patience)
        return False

    async def _views(self, request_id: str) -> list[Ledger]:
        requests = self.pool.requests
        return [await requests.view(request_id)] if request_id else await requests.open()

    async def _assigned(self, request_id: str, *, lost: bool) -> list[dict[str, Any]]:
        requests = self.pool.requests
        names = [view.request for view in await self._views(request_id)]
        await requests.look_after(*names)
        found: list[dict[str, Any]] = []
        for name in names:
            view = await requests.view(name)
            if not view.schedule.is_paused:
                more = view.given_back if lost else ()
                mine = [node for node in tasks_in(view) if self._may_take(node, more)]
                found += [task_form(view, node) for node in mine]
        return sorted(found, key=lambda task: -task["priority"])  # stable: then by age and plan

    def _may_take(self, node: Node, more: Container[str]) -> bool:
        if node.state is not TaskState.READY:
            return False
        return (node.task.worker or node.task.skill) in self._names or node.task.id in more

    async def _execute(self, request: str, task: str) -> dict[str, Any]:
        return await self._form(request, task, await self._at_work().do(request, task))

    async def _execute_next(self, request_id: str) -> dict[str, Any] | None:
        requests = self.pool.requests
        names = [request_id] if request_id else [view.request for view in await requests.open()]
        await requests.take_letters(*names)
        for request in names:
            done = await self._at_work().do_next(request, self._names)
            if done is not None:
                task, ended = done
                return await self._form(request, task, ended)
        return None

    def _at_work(self) -> Execution:
        if self._execution is None:
            self._execution = Execution(self.pool.requests, self._member, self._office)
            self.pool.executions.add(self._execution)
        return self._execution

    async def _form(self, request: str, task: str, ended: Ended) -> dict[str, Any]:
        form = {
            "task_id": task,
            "request_id": request,
            "agent_id": self.agent_id,
            "attempt": ended.attempt,
            **await self._told(ended),
        }
        if self.config.logging_enabled:
            log.info(
                "pool_task_%s request=%s task=%s worker=%s",
                form["status"],
                request,
                task,
                self.agent_id,
            )
        return form

    async def _told(self, ended: Ended) -> dict[str, Any]:
        """What came of it: a status, and a result or an error."""
        outcome = ended.outcome
        if not ended.is_accepted:
            why = outcome.reason if isinstance(outcome, Cancelled) else ""
            told = why or "the task was no longer this attempt's; nothing changed by its result"
            return {"status": "refused", "result": None, "error": told}
        if isinstance(outcome, Done):
            value = outcome.value
            if value.blob:
                value = Value(json=Raw(await self.pool.journal.blobs.get(value.blob)))
            return {"status": "completed", "result": value.read(), "error": None}
        if isinstance(outcome, Failed):
            return {"status": "failed", "result": None, "error": str(outcome)}
        if isinstance(outcome, NeedsInput):
            question = outcome.question
            asked = {"id": question.id, "text": question.text, "choices": list(question.choices)}
            return {"status": "asking", "result": None, "error": None, "question": asked}
        return {"status": "cancelled", "result": None, "error": outcome.reason}


def _member(
    config: AgentConfig,
    agent_id: str,
    work: "Callable[[Brief], Any] | Member | None",
    tools: Sequence[Tool],
    instructions: str,
) -> Member:
    """Who does the tasks, under the name of the agent."""
    if work is None:
        return Worker(
            agent_id,
            DESCRIPTION,
            instructions=instructions,
            tools=tools,
            model=config.choice,
            settings=config.settings,
        )
    if hasattr(work, "work") and hasattr(work, "place"):
        named: Any = copy.copy(work)
        named.name = agent_id
        return cast("Member", named)
    if not callable(work):
        raise UsageError(
            f"worker {agent_id!r}: work={work!r} is neither a function of a brief nor a worker"
        )
    return FunctionWorker(work, agent_id, DESCRIPTION)
