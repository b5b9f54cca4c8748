"""The supervisor agent of a pool: divides requests, reassigns failed tasks, combines results."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from chargehand.background_loop import blocking
from chargehand.decisions.dispatch import Balance
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import check_request
from chargehand.facts.board import NotePosted, Segment, stream_of
from chargehand.facts.events import PlanAmended, QuestionAnswered, WorkStopped
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from chargehand.journal.base import Key
from chargehand.patterns.pool import plain_dicts
from chargehand.patterns.pool.answer_composition import answer_form
from chargehand.patterns.pool.leaderless_run import Decision, DecisionTime, LeaderlessRun
from chargehand.patterns.pool.model_config import AgentConfig, config_of
from chargehand.patterns.pool.request_store import telling
from chargehand.patterns.pool.shared_memory import SharedMemoryPool, pool_of
from chargehand.patterns.pool.task_assignment import (
    Available,
    DelegatedTask,
    capacities_of,
    checked_number,
    delegated,
)
from chargehand.roles.shared_resources import Resources
from chargehand.runtime.command_inbox import why_closed

log = logging.getLogger("chargehand.pool")

#: importance of a note about a conflict
CONFLICT = 0.9
CONFLICT_HAS = ("id", "kind", "request_id", "tasks", "kept_task", "resolution")


class SupervisorAgent:
    """Divides requests into tasks for the workers of a pool, and combines their results.

    It holds no state: another supervisor agent on the same journal, even in another process,
    continues where this one stopped.
    """

    @checks.keywords_checked
    def __init__(
        self,
        config: AgentConfig | None,
        pool: SharedMemoryPool,
        agent_id: str = "supervisor",
    ) -> None:
        self.config = config_of(config)
        self.pool = pool_of(pool)
        self.agent_id = checks.name(agent_id, "agent_id")
        self._resources = Resources(
            model=self.config.choice,
            gateway=pool.gateway,
            settings=self.config.settings,
        )

    def __repr__(self) -> str:
        return f"<supervisor agent {self.agent_id!r}>"

    # delegating

    @checks.keywords_checked
    @blocking
    async def delegate(
        self,
        request: str,
        available_workers: Available,
        num_tasks: int | None = None,
        *,
        tasks: Sequence[str | Task] | None = None,
        balance: Balance | str = Balance.ROUND_ROBIN,
        priority: int = 0,
        instruction: str = "",
    ) -> list[dict[str, Any]]:
        """Divide a request into tasks and assign each to a worker; the tasks are durable when this returns.

        The model divides the request into `num_tasks` tasks, or into one per worker. Alternatively,
        `tasks` are used unchanged, and may depend on each other. Workers get tasks in turn, in proportion
        to their capacity; `balance="least_busy"` considers the open tasks of each worker. Tasks with a
        larger `priority` go first, across all requests.
        """
        if tasks is not None:
            checks.instance(tasks, "tasks", Sequence)
            if num_tasks not in (None, len(tasks)):
                raise UsageError(
                    f"num_tasks={num_tasks}, but there are {len(tasks)} tasks; give one of the two"
                )
        order = DelegatedTask(
            request=check_request(request),
            capacities=capacities_of(available_workers),
            count=None if num_tasks is None else checked_number(num_tasks, "num_tasks"),
            tasks=tasks,
            balance=checks.one_of(balance, Balance, "balance"),
            priority=checks.priority(priority, "priority"),
            instruction=checks.text(instruction, "instruction"),
            by=self.agent_id,
        )
        view, by_rule = await delegated(order, self.pool.requests, self._resources)
        if by_rule:
            await self.pool.board.signed(self.agent_id).post(
                f"the model could not divide the request, so a rule did: {by_rule}",
                tags=["divided-by-rule", view.request],
                segment=Segment.PROGRESS,
                metadata={"request_id": view.request},
            )
        forms = [plain_dicts.task_form(view, node) for node in plain_dicts.tasks_in(view)]
        if self.config.logging_enabled:
            log.info("pool_delegated run=%s tasks=%s", view.request, len(forms))
        return forms

    @blocking
    async def reassign_task(self, task: Mapping[str, Any], new_worker: str) -> dict[str, Any]:
        """Give a task that failed, or that no worker is doing, to another worker; returns the task.

        Raises `TaskTaken`, which names the worker, if a live worker is doing the task or the task is done.
        """
        request, name = plain_dicts.named_in(task)
        worker = checks.name(new_worker, "new_worker")

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            return ledger.reassign(name, worker, moment)

        await self.pool.requests.decide(request, act)
        if self.config.logging_enabled:
            log.info("pool_reassigned run=%s task=%s worker=%s", request, name, worker)
        view = await self.pool.requests.view(request)
        return plain_dicts.task_form(view, view.node(name))

    # monitoring

    @blocking
    async def get_tasks(self, request_id: str) -> list[dict[str, Any]]:
        """All tasks of a request, each with its state."""
        view = await self._looked_after(request_id)
        return [plain_dicts.task_form(view, node) for node in plain_dicts.tasks_in(view)]

    def check_all_tasks_completed(self, request_id: str) -> bool:
        """Whether every task of the request is done."""
        return all(task["status"] == "completed" for task in self.get_tasks(request_id))

    @blocking
    async def check_failures(self, request_id: str) -> list[dict[str, Any]]:
        """The tasks that failed and have not been reassigned; `metadata` contains their `task_id`."""
        view = await self._looked_after(request_id)
        return [
            plain_dicts.failure_form(view, node)
            for node in plain_dicts.tasks_in(view)
            if plain_dicts.has_failed(node)
        ]

    @blocking
    async def aggregate_results(self, request_id: str) -> dict[str, Any]:
        """Compose one answer from the finished tasks, with gaps and contradictions.

        Can be called at any time and does not wait for slow tasks. The model is called again only if
        more tasks have finished since the last call.
        """
        view = await self._looked_after(request_id)
        return await answer_form(view, self.pool, self._resources, self.agent_id)

    # deciding

    @blocking
    async def answer(self, question_id: str, text: str) -> None:
        """Answer a question of a worker about its task. Raises `UnknownQuestion` if the question is not open."""
        request, _, rest = checks.name(question_id, "question_id").partition(":")
        task = rest.rpartition(":")[0]
        view = await self.pool.requests.view(request)
        node = view.schedule.nodes.get(task)
        question = None if node is None else node.question
        if question is None or question.id != question_id:
            raise await why_closed(self.pool.journal, question_id)
        text = question.as_spelled(checks.text(text, "text"))
        if (objection := question.objection(text)) is not None:
            raise UsageError(
                f"{text!r} does not answer {question_id}: it {objection}; choose one of {question.offers}"
            )
        answered = QuestionAnswered(
            question=question_id, task=task, text=text, by=self.agent_id, at=self.pool.clock.now()
        )
        move = await self.pool.requests.decide(request, telling(answered))
        if not move.events:
            raise await why_closed(self.pool.journal, question_id)  # another answer was faster

    @blocking
    async def close(self, request_id: str, reason: str = "closed by its supervisor") -> str:
        """Stop a request: nothing new starts, and finished work is kept; returns its state."""
        await self._looked_after(request_id)
        why = checks.text(reason, "reason")
        stopped = WorkStopped(reason=why, by=self.agent_id, at=self.pool.clock.now())
        await self.pool.requests.decide(request_id, telling(stopped))
        return (await self.pool.requests.view(request_id)).schedule.state.value

    @blocking
    async def apply_resolution(self, conflict: Mapping[str, Any]) -> str:
        """Apply a resolution from the coordinator, and store a note about it; returns the id of the note.

        If work was assigned twice, the unfinished duplicates are removed from the plan. If results
        contradict each other, the answer leaves out all but the kept result, and lists the others as
        refused. Blocks with two writers do not change: the note says who keeps them. The note settles the
        conflict; settling it again returns the same note.
        """
        _check_conflict(conflict)
        removed = await self._resolve(conflict)
        request, id_ = conflict["request_id"], str(conflict["id"])
        note = NotePosted(
            author=self.agent_id,
            content=Value.of(f"{conflict.get('fact', '')}; {conflict['resolution']}"),
            tags=("conflict", str(conflict["kind"]), *([request] if request else [])),
            segment=Segment.CONFLICTS,
            importance=CONFLICT,
            metadata={
                "request_id": request,
                "tasks": list(conflict["tasks"]),
                "removed": removed,
                plain_dicts.KEPT: str(conflict["kept_task"]),
                plain_dicts.SETTLES: id_,
            },
            at=self.pool.clock.now(),
        )
        board = self.pool.name
        # Of two concurrent calls, only one stores a note.
        once = Key(stream_of(board), f"settles {id_}", id_)
        entry = await self.pool.journal.boards.append(board, note, key=once)
        return f"{stream_of(board)}#{entry.seq}"

    # implementation

    async def _looked_after(self, request: str) -> LeaderlessRun:
        """The current state of a request, after applying everything that is due."""
        await self.pool.requests.look_after(request)
        return await self.pool.requests.view(request)

    async def _resolve(self, conflict: Mapping[str, Any]) -> list[str]:
        """Remove duplicate tasks from the plan; returns their ids."""
        if conflict["kind"] != "double_assignment" or len(conflict["tasks"]) < 2:
            return []
        removed: list[str] = []

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            others = [task for task in conflict["tasks"] if task != conflict["kept_task"]]
            removed[:] = [task for task in others if not ledger.node(task).state.is_settled]
            amended = PlanAmended(
                version=ledger.schedule.version + 1,
                removed=tuple(removed),
                reason=str(conflict["resolution"]),
                is_steered=True,
                at=moment.at,
            )
            faults = ledger.schedule.check_amendment(amended) if removed else []
            if faults:
                listed = "; ".join(str(fault) for fault in faults)
                return Decision([], UsageError(f"the plan cannot be changed so: {listed}"))
            return Decision(ledger.write(amended, moment.node) if removed else [])

        await self.pool.requests.decide(conflict["request_id"], act)
        return removed


def _check_conflict(conflict: object) -> None:
    if not isinstance(conflict, Mapping) or not {*CONFLICT_HAS} <= set(conflict):
        raise UsageError("that is no conflict; give one as resolve_conflicts returned it")
