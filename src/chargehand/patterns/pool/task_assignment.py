"""Delegation: turns a request into a run without a leader, and assigns its tasks to workers."""

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
from chargehand.facts.events import Approach, PlanAdopted, RunRequested
from chargehand.facts.failure_policy import OnFailure, Recourse
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import canonical, digest_of
from chargehand.journal.hash_chain import draft
from chargehand.models.base import Model, system, user
from chargehand.patterns.pool.leaderless_run import LeaderlessRun
from chargehand.patterns.pool.model_config import MOCK
from chargehand.patterns.pool.plain_dicts import REQUEST, assigned_to, has_failed, tasks_in
from chargehand.patterns.pool.request_store import PoolRequests
from chargehand.roles.data_fences import fenced
from chargehand.roles.durable_model_calls import PlainModelCaller, ask_for
from chargehand.roles.json_reply_check import record
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources

#: names of workers, or pairs of a name and a capacity
Available: TypeAlias = "Sequence[str | tuple[str, float]]"

#: the time limit of a request of a pool, which may wait for its workers indefinitely
AGES = timedelta(days=3650)
#: maximum number of tasks or workers; maximum capacity of a worker
MOST, MOST_HELD = 100_000, 1e9
#: the supervisor agent of the pool decides about a failed task
POLICIES = {"": OnFailure((Recourse.ASK,))}
_WAY_OUT = "give a list of names, or of pairs (name, capacity)"

log = logging.getLogger("chargehand.pool")
#: task descriptions that one model call writes
AT_ONCE = 25
#: placeholders that are no real models
_BY_RULE = ("offline", MOCK)


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


def is_by_rule(models: Sequence[Model]) -> bool:
    """Whether none of the models is a real one, so that a rule must do its work."""
    return all(model.name in _BY_RULE for model in models)


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
