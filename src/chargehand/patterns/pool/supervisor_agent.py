"""The supervisor agent of a pool: divides requests and assigns their tasks, reassigns failed tasks, combines results."""

import logging
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from reprlib import repr as repr_of
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.dispatch import Balance
from chargehand.decisions.schedule import RULES
from chargehand.errors import ModelError, UsageError, WorkerError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import check_request
from chargehand.facts.board import NotePosted, Segment, stream_of
from chargehand.facts.events import (
    Approach,
    PlanAdopted,
    PlanAmended,
    QuestionAnswered,
    RunRequested,
    WorkStopped,
)
from chargehand.facts.failure_policy import OnFailure, Recourse
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import QuestionId
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.journal.base import Key
from chargehand.journal.hash_chain import draft
from chargehand.models.base import system, user
from chargehand.patterns.pool.answer_composition import answer_form
from chargehand.patterns.pool.leaderless_run import (
    REQUEST,
    Decision,
    DecisionTime,
    LeaderlessRun,
    assigned_to,
    failure_form,
    has_failed,
    named_in,
    task_form,
    tasks_in,
)
from chargehand.patterns.pool.model_config import AgentConfig, config_of, is_by_rule
from chargehand.patterns.pool.request_store import PoolRequests, telling
from chargehand.patterns.pool.shared_memory import KEPT, SETTLES, SharedMemoryPool, pool_of
from chargehand.roles.data_fences import fenced
from chargehand.roles.durable_model_calls import PlainModelCaller, ask_for
from chargehand.roles.json_reply_check import record
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources
from chargehand.runtime.command_inbox import why_closed
from chargehand.sync_async_bridge import blocking

log = logging.getLogger("chargehand.pool")

#: names of workers, or pairs of a name and a capacity
Available: TypeAlias = "Sequence[str | tuple[str, float]]"

#: the time limit of a request of a pool, which may wait for its workers indefinitely
AGES = timedelta(days=3650)
#: maximum number of tasks or workers; maximum capacity of a worker
MOST, MOST_HELD = 100_000, 1e9
#: the supervisor agent of the pool decides about a failed task
POLICIES = {"": OnFailure((Recourse.ASK,))}
_WAY_OUT = "give a list of names, or of pairs (name, capacity)"
#: task descriptions that one model call writes
AT_ONCE = 25
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
        forms = [task_form(view, node) for node in tasks_in(view)]
        if self.config.logging_enabled:
            log.info("pool_delegated run=%s tasks=%s", view.request, len(forms))
        return forms

    @blocking
    async def reassign_task(self, task: Mapping[str, Any], new_worker: str) -> dict[str, Any]:
        """Give a task that failed, or that no worker is doing, to another worker; returns the task.

        Raises `TaskTaken`, which names the worker, if a live worker is doing the task or the task is done.
        """
        request, name = named_in(task)
        worker = checks.name(new_worker, "new_worker")

        def act(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
            return ledger.reassign(name, worker, moment)

        await self.pool.requests.decide(request, act)
        if self.config.logging_enabled:
            log.info("pool_reassigned run=%s task=%s worker=%s", request, name, worker)
        view = await self.pool.requests.view(request)
        return task_form(view, view.node(name))

    # monitoring

    @blocking
    async def get_tasks(self, request_id: str) -> list[dict[str, Any]]:
        """All tasks of a request, each with its state."""
        view = await self._looked_after(request_id)
        return [task_form(view, node) for node in tasks_in(view)]

    def check_all_tasks_completed(self, request_id: str) -> bool:
        """Whether every task of the request is done."""
        return all(task["status"] == "completed" for task in self.get_tasks(request_id))

    @blocking
    async def check_failures(self, request_id: str) -> list[dict[str, Any]]:
        """The tasks that failed and have not been reassigned; `metadata` contains their `task_id`."""
        view = await self._looked_after(request_id)
        return [failure_form(view, node) for node in tasks_in(view) if has_failed(node)]

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
        request, task, _ = QuestionId.read(checks.name(question_id, "question_id"))
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
                KEPT: str(conflict["kept_task"]),
                SETTLES: id_,
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


class DelegatedTask(Struct, frozen=True, kw_only=True):
    """A request to delegate, and how to assign its tasks."""

    request: str
    #: capacity by worker
    capacities: Mapping[str, float]
    count: int | None = None
    #: used unchanged; None: the request is divided
    tasks: Sequence[str | Task] | None = None
    balance: Balance = Balance.ROUND_ROBIN
    priority: int = 0
    instruction: str = ""
    #: the agent that delegates
    by: str = ""


async def delegated(
    order: DelegatedTask, requests: PoolRequests, resources: Resources
) -> tuple[LeaderlessRun, str]:
    """Divide a request and store it durably; returns its run and, if a rule divided it, the reason."""
    given, why = order.tasks, ""
    if given is None:
        given, why = await split(order.request, order.count or len(order.capacities), resources)
    busy = await _busy(requests) if order.balance is Balance.LEAST_BUSY else {}
    turns = share_out(len(given), order.capacities, order.balance, busy)
    tasks = [_task(place, each, turns[place]) for place, each in enumerate(given)]
    limits = Limits(tasks=max(Limits().tasks, len(tasks)), active=AGES)
    plan = Plan(goal=order.request, tasks=tasks, instruction=order.instruction)
    _refuse_unkept(tasks)
    named = [task.worker or task.skill for task in tasks]
    plan.refuse_faults([*order.capacities, *named], limits)
    plan = plan.stored()
    now = requests.clock.now()
    requested, adopted = _requested(order, limits, now), PlanAdopted(plan=plan, at=now)
    for event in (requested, adopted):
        # Encode now: a journal in memory would report a faulty event only when it is read.
        draft(event)
    return await requests.add(requested.run, [requested, adopted]), why


def _requested(order: DelegatedTask, limits: Limits, now: datetime) -> RunRequested:
    return RunRequested(
        run=f"{REQUEST}{uuid.uuid4().hex[:12]}",
        request=order.request,
        limits=limits,
        seed=random.SystemRandom().getrandbits(48),
        rules=RULES,
        crew=digest_of(canonical(sorted(order.capacities))),
        priority=order.priority,
        approach=Approach.POOL,
        policies=POLICIES,
        by=order.by,
        at=now,
    )


def _refuse_unkept(tasks: Sequence[Task]) -> None:
    """Raise `UsageError` for options that need a leader: budgets, and rewriting failed tasks."""
    for task in tasks:
        for name in ("money", "tokens", "calls"):
            if getattr(task.limits, name) is not None:
                raise UsageError(
                    f"task {task.id!r}: TaskLimits({name}=…) is not kept by a pool, which has no "
                    "budget; leave it out, or give the request to a Supervisor"
                )
        policy = task.on_failure
        steps = () if policy is None else (*policy.steps, *chain(*policy.kinds.values()))
        if Recourse.REWRITTEN in steps:
            raise UsageError(
                f"task {task.id!r}: on_failure 'rewritten' needs a supervisor that leads the run; "
                "leave it out, and reassign_task what fails"
            )


async def _busy(requests: PoolRequests) -> dict[str, int]:
    """The number of open tasks of each worker, over all requests."""
    busy: Counter[str] = Counter()
    for view in await requests.open():
        open_ = [node for node in tasks_in(view) if not node.state.is_settled]
        busy.update(assigned_to(node) for node in open_ if not has_failed(node))
    return busy


def _task(place: int, given: str | Task, worker: str) -> Task:
    if isinstance(given, str):
        words = checks.text(given, f"tasks: text {place + 1}")
        return Task(id=f"t{place + 1}", description=words, worker=worker)
    if not isinstance(given, Task):
        raise UsageError(f"tasks: {repr_of(given)} is not a task; give the words of one, or a Task")
    return given if given.worker or given.skill else replace(given, worker=worker)


def checked_number(given: object, what: str) -> int:
    """A valid number of tasks or workers. Raises `UsageError` for anything else."""
    return checks.count(given, what, least=1, most=MOST)


def capacities_of(available: Available) -> dict[str, float]:
    """The capacity of each worker; the default is 1. Raises `UsageError` for a faulty list."""
    if isinstance(available, str) or not isinstance(available, Iterable):
        raise UsageError(f"available_workers={repr_of(available)} is not a list; {_WAY_OUT}")
    capacities: dict[str, float] = {}
    for each in available:
        name, capacity = _pair(each)
        if name in capacities:
            raise UsageError(f"worker {name!r} is twice among the available workers; name it once")
        capacities[name] = capacity
    if not capacities:
        raise UsageError(f"available_workers={repr_of(available)} names no worker; {_WAY_OUT}")
    return capacities


def share_out(
    count: int, capacities: Mapping[str, float], balance: Balance, busy: Mapping[str, int]
) -> list[str]:
    """Assign `count` tasks to workers; returns the worker of each task, in order.

    Round robin takes turns; if capacities differ, each worker gets tasks in proportion to its capacity,
    evenly spread. Least busy compares the open tasks of each worker (`busy`) with its capacity.
    """
    if balance is Balance.LEAST_BUSY:
        return _by_load(count, capacities, busy)
    return _by_turns(count, capacities)


def _by_turns(count: int, capacities: Mapping[str, float]) -> list[str]:
    total = sum(capacities.values())
    credit = dict.fromkeys(capacities, 0.0)
    turns: list[str] = []
    for _ in range(count):
        for name, capacity in capacities.items():
            credit[name] += capacity
        chosen = max(credit, key=credit.__getitem__)  # in a tie, the first in the list
        credit[chosen] -= total
        turns.append(chosen)
    return turns


def _by_load(count: int, capacities: Mapping[str, float], busy: Mapping[str, int]) -> list[str]:
    load = {name: busy.get(name, 0) for name in capacities}
    chosen: list[str] = []
    for _ in range(count):
        name = min(load, key=lambda each: (load[each] + 1) / capacities[each])
        load[name] += 1
        chosen.append(name)
    return chosen


def _pair(each: object) -> tuple[str, float]:
    if isinstance(each, (tuple, list)) and len(each) == 2:
        given, holds = each
    elif isinstance(each, str):
        given, holds = each, 1.0
    else:
        raise UsageError(f"available_workers: {repr_of(each)} names no worker; {_WAY_OUT}")
    name = checks.name(given, "available_workers: a name")
    capacity = checks.amount(holds, f"available_workers: what {name!r} can hold", most=MOST_HELD)
    if not capacity:
        raise UsageError(f"worker {name!r} can hold 0; give a number above 0, or leave it out")
    return name, capacity


async def split(request: str, count: int, resources: Resources) -> tuple[list[str], str]:
    """Divide a request into `count` task descriptions; returns them and, if the model failed, the error.

    Without a real model, or for what a failed model has not written, a rule divides the request.
    """
    caller = PlainModelCaller(resources)
    if is_by_rule(resources.models(None, "the supervisor")):
        return by_rule(request, count), ""
    said: list[str] = []
    try:
        while len(said) < count:
            said += await _next_part(caller, request, count, said)
    except (WorkerError, ModelError) as error:
        log.warning("pool_split_by_rule tasks=%s error=%s", count - len(said), error)
        return [*said, *by_rule(request, count)[len(said) :]], str(error)
    return said, ""


def by_rule(request: str, count: int) -> list[str]:
    """Task descriptions that repeat the request and name the part to do."""
    words = request.strip()
    if count == 1:
        return [words]
    return [
        f"{words}\nDo part {number} of {count}, and no other." for number in range(1, count + 1)
    ]


async def _next_part(
    caller: PlainModelCaller, request: str, count: int, said: Sequence[str]
) -> list[str]:
    wanted = min(AT_ONCE, count - len(said))
    words = prompt(
        "split",
        caller.resources.prompts,
        count=str(count),
        wanted=str(wanted),
        first=str(len(said) + 1),
        last=str(len(said) + wanted),
    )
    known = "\n".join(f"{number}. {each}" for number, each in enumerate(said, start=1))
    told = fenced("request", request) + (f"\n\n{fenced('written already', known)}" if known else "")

    def objection(answer: Any) -> str | None:
        tasks = [each.strip() for each in answer["tasks"]]
        if not all(tasks):
            return "A task is empty; say of each what is to be done."
        if len({*tasks, *said}) < wanted + len(said):
            return "Two tasks are the same; each is to be a part of its own."
        return None

    turns = (system(words), user(told))
    task = {"type": "string", "description": "what the result is, and what it is about"}
    schema = record(tasks={"type": "array", "items": task, "minItems": wanted, "maxItems": wanted})
    answer = await ask_for(caller, "split", turns, schema, objection)
    return [each.strip() for each in answer["tasks"]]
