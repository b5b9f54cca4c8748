"""Drafts of plans: the shape a model must keep to, how its words are read, what speaks against them."""

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import Fault, UnclearRequest, WorkerError
from chargehand.facts.form_faults import form_faults, place_in_plan
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, ErrorClass, Failed
from chargehand.facts.plan import Plan, Reach, Strategy, Task, is_vague, who_can_read
from chargehand.models.base import ModelSettings, Turn
from chargehand.roles.durable_model_calls import ModelCaller, ask_until
from chargehand.roles.for_each import unlistable_files
from chargehand.roles.json_reply_check import objection_to, one_of, record
from chargehand.roles.roster import Roster
from chargehand.roles.worker_per_task import Factory

log = logging.getLogger("chargehand")

#: tasks that a model may write at once; more are more than it can keep in mind
MOST = 50
#: tasks of a plan that is held to by place, and characters of each text in it: so much fits into the usual reply
#: of a local model, so that one which goes on and on is cut off in no sentence
PLACES, LONGEST_TEXT = 8, 240
#: as tasks of a written plan are called
_AN_ID = re.compile(r"t[0-9]+")
NO_MORE = Cancelled(reason="the run takes no plan any more")


class WrittenTask(Struct):
    """A task as a model writes it; providers that hold it to the schema leave nothing out."""

    id: str
    description: str
    worker: str
    needs: list[str] = []
    accept: str = ""
    optional: bool = False
    #: empty, an earlier task whose result is a list, or a pattern of files
    for_each: str = ""
    role: str = ""
    #: who does it, of a task for somebody who makes workers
    tools: list[str] = []
    #: another task is done for each entry of its result
    lists: bool = False

    def __post_init__(self) -> None:
        if self.id in self.needs:
            log.warning("plan_repaired task=%s; it needed itself, which was dropped", self.id)
            self.needs = [need for need in self.needs if need != self.id]

    @property
    def task(self) -> Task:
        hire: dict[str, Any] = {"role": self.role.strip(), "tools": list(self.tools)}
        return Task(
            id=self.id,
            description=self.description,
            worker=self.worker,
            needs=tuple(dict.fromkeys(self.needs)),
            accept=self.accept.strip(),
            optional=self.optional,
            args={name: value for name, value in hire.items() if value},
            for_each=self._over(),
            output={"type": "array"} if self.lists else None,
        )

    def _over(self) -> str | dict[str, str] | None:
        over = self.for_each.strip()
        if not over:
            return None
        return over if over in self.needs or _AN_ID.fullmatch(over) else {"files": over}


class WrittenPlan(Struct):
    """A plan, or a part of one, as a model writes it."""

    tasks: list[WrittenTask]
    goal: str = ""
    instruction: str = ""
    strategy: Strategy = Strategy.MERGE
    reason: str = ""
    replaced: list[str] = []
    removed: list[str] = []


class Bounds:
    """What a plan is held to when a model writes it: these workers, so many tasks."""

    def __init__(
        self, roster: Roster, limits: Limits, reach: Mapping[str, Reach] | None = None
    ) -> None:
        self._reach = reach
        self._roster = roster
        self.workers = [worker.name for worker in roster]
        self.lines = describe_roster(roster)
        #: by whoever makes workers: the tools that they can be given
        self.grants = {
            each.name: each.toolbox.names
            for each in roster
            if isinstance(each, Factory) and each.takes_hires
        }
        self.limits = replace(limits, tasks=min(limits.tasks, MOST))

    @property
    def ids(self) -> list[str]:
        """The ids that tasks may have."""
        return fresh_ids(self.limits.tasks)

    def faults_in(self, tasks: Sequence[Task]) -> list[Fault]:
        """All that speaks against these tasks, written in this order; to be vague is a fault here."""
        if too_many := self.too_many(tasks):
            return too_many  # before each of them is looked at
        check = Plan(goal="", tasks=tasks).check(
            self.workers, self.limits, reach=self._reach, in_order=True
        )
        unlistable = unlistable_files(tasks, self._roster)
        return [*check.faults, *check.warnings, *unlistable, *self._ungranted(tasks)]

    def too_many(self, tasks: Sequence[object]) -> list[Fault]:
        """That these are more tasks than a model may write at once, if they are."""
        cap = self.limits.tasks
        if len(tasks) <= cap:
            return []
        message = f"{len(tasks):,} tasks are more than the cap of {cap}; write {cap} at most"
        return [Fault("too_many_tasks", "", message)]

    def mend(self, tasks: Sequence[WrittenTask]) -> None:
        """Give each task that names a file which its worker cannot read to the one worker that can."""
        for task in () if self.too_many(tasks) else tasks:
            reader = who_can_read(task.task, self._reach or {})
            if reader:
                log.warning(
                    "plan_repaired task=%s; it went from %s to %s, who can read its file",
                    task.id,
                    task.worker,
                    reader,
                )
                task.worker = reader

    def _ungranted(self, tasks: Sequence[Task]) -> Iterator[Fault]:
        for task in tasks:
            tools = self.grants.get(task.worker, ())
            for name in task.args.get("tools", ()):
                if name not in tools:
                    have = ", ".join(tools) or "none"
                    message = f"{task.worker} cannot grant the tool {name!r}; there are: {have}"
                    yield Fault("unknown_tool", task.id, message)


def describe_roster(roster: Roster) -> str:
    """The workers and what each is good for, one to a line."""
    return "\n".join(f"- {each.name}: {' '.join(each.description.split())}" for each in roster)


def known_as(word: object, names: Collection[str]) -> str:
    """The name that is meant by a word, whatever its case and ornaments; empty if none is."""
    bare = _bare(str(word))
    return next((name for name in names if _bare(name) == bare), "")


def _bare(word: str) -> str:
    return " ".join(word.casefold().replace("_", " ").replace("-", " ").split()).strip(" .\"'`*:")


def fresh_ids(count: int, used: Collection[str] = ()) -> list[str]:
    """So many ids behind the last one of this kind that was used: none is ever given twice."""
    numbers = [int(id_[1:]) for id_ in used if id_[:1] == "t" and id_[1:].isdecimal()]
    first = max(numbers, default=0) + 1
    return [f"t{number}" for number in range(first, first + count)]


def plan_schema(
    bounds: Bounds, *, by_place: bool = False, patterns: Sequence[str] = ()
) -> dict[str, Any]:
    """The JSON Schema of a plan within these bounds: workers and ids are choices, nothing is left out.

    `by_place`, for providers that hold a model to it: the first task can need nothing, each later one only
    those before it, for each of nothing but one of `patterns`; and what is rarely wanted may be left out.
    """
    head: dict[str, Any] = {
        "goal": {"type": "string", "description": "what is to be reached, in one sentence"},
        "instruction": {"type": "string", "description": "what the final answer should look like"},
        "strategy": {"type": "string", "enum": [each.value for each in Strategy]},
    }
    if not by_place:
        return record(**head, tasks=tasks_schema(bounds, bounds.ids, bounds.ids))
    ids = bounds.ids[:PLACES]
    places = [_in_place(bounds, id_, bounds.ids[:place], patterns) for place, id_ in enumerate(ids)]
    tasks = {"type": "array", "prefixItems": places, "minItems": 1, "maxItems": len(ids)}
    return record(**_bounded(head), tasks=tasks) | {"required": ["goal", "tasks"]}


def _in_place(
    bounds: Bounds, id_: str, earlier: Sequence[str], patterns: Sequence[str]
) -> dict[str, Any]:
    """The schema of the task that is written behind those; where there is nothing to choose, it has no choice."""
    task = _task_schema(bounds, [id_], earlier)
    required = ["id", "description", "worker", "needs"]
    if not earlier:
        task["needs"] = {"type": "array", "maxItems": 0}
    # Small models take the result of any task for a list.
    task["for_each"] = one_of(patterns)
    rare = [name for name in task if name not in required and (patterns or name != "for_each")]
    shown = _bounded({name: task[name] for name in (*required, *rare)})
    return record(**shown) | {"required": required}


def _bounded(properties: dict[str, Any]) -> dict[str, Any]:
    """The properties, with free texts no longer than they need to be."""
    return {
        name: {**each, "maxLength": LONGEST_TEXT}
        if each.get("type") == "string" and "enum" not in each
        else each
        for name, each in properties.items()
    }


def tasks_schema(bounds: Bounds, ids: Sequence[str], needs: Sequence[str]) -> dict[str, Any]:
    """The schema of a list of tasks with these ids that may need those."""
    task = record(**_task_schema(bounds, ids or needs, needs))
    return {"type": "array", "items": task, "maxItems": len(ids)}


def _task_schema(bounds: Bounds, ids: Sequence[str], needs: Sequence[str]) -> dict[str, Any]:
    return {
        "id": {"type": "string", "enum": list(ids)},
        "description": {
            "type": "string",
            "description": "what the result is, and what it is about",
        },
        "worker": {"type": "string", "enum": bounds.workers},
        "needs": {"type": "array", "items": {"type": "string", "enum": list(needs)}},
        "accept": {
            "type": "string",
            "description": "how to check the result; or empty",
            "default": "",
        },
        "optional": {"type": "boolean", "default": False},
        "for_each": {
            "type": "string",
            "description": "empty; or the id of an earlier task whose result is a list; or files, such as *.txt",
            "default": "",
        },
        **_hire_schema(bounds),
    }


def _hire_schema(bounds: Bounds) -> dict[str, Any]:
    """Who does a task, and with what: asked only if there is somebody who makes workers."""
    if not bounds.grants:
        return {}
    makers = " or ".join(bounds.grants)
    tools = list(dict.fromkeys(name for names in bounds.grants.values() for name in names))
    return {
        "role": {
            "type": "string",
            "description": f"of a task for {makers}: who does it and how; of others empty",
            "default": "",
        },
        "tools": {
            "type": "array",
            "items": one_of(tools),
            "description": f"of a task for {makers}: the tools it takes, no others",
            "default": [],
        },
    }


async def drafted(
    caller: ModelCaller,
    name: str,
    turns: Sequence[Turn],
    schema: dict[str, Any],
    examine: Callable[[WrittenPlan], Sequence[Fault]],
    again: str,
    settings: ModelSettings | None = None,
) -> WrittenPlan:
    """A draft that nothing speaks against, in three tries at most; `again` says how to correct one.

    The provider is given the tight schema, but what comes is read more freely: a fault of the plan
    has a better name than a place where a schema was not met. Raises `WorkerError` with the last
    objection.
    """

    def judge(text: str) -> tuple[WrittenPlan | None, str | None]:
        written, objection = read_draft(text)
        faults = () if written is None else examine(written)
        return written, faults_in_words(faults) if faults else objection

    again = f"\n{again}"
    written = await ask_until(
        caller, name, turns, schema, judge, again=again, failure=failure_of, settings=settings
    )
    assert written is not None  # noqa: S101 - for the type checker: there was an objection otherwise
    return written


def read_draft(text: str) -> tuple[WrittenPlan | None, str | None]:
    """What a model wrote, or why it cannot be read. Whether it is any good is another question."""
    value, objection = objection_to(text, {})
    if objection is not None:
        return None, objection
    try:
        written = msgspec.convert(value, WrittenPlan)
        written.tasks = _in_order(written.tasks)
        mapped = {task.for_each for task in written.tasks}
        for task in written.tasks:
            task.lists = task.id in mapped
        return written, None
    except msgspec.ValidationError as error:
        faults = form_faults(value, WrittenPlan, place_in_plan) or [str(error)]
        listed = "".join(f"\n- {fault}" for fault in faults)
        return None, f"The answer is not a plan:{listed}\nAnswer with the corrected JSON alone."


def _in_order(tasks: list[WrittenTask]) -> list[WrittenTask]:
    """The tasks, each behind those that it needs; what needs each other in a circle stays at the end."""
    known = {task.id for task in tasks}
    #: by place: the needs that do not stand before it yet; by need: the places of those that have it
    unmet = [known.intersection((*task.needs, task.for_each)) for task in tasks]
    needed: dict[str, list[int]] = {}
    for place, needs in enumerate(unmet):
        for need in needs:
            needed.setdefault(need, []).append(place)
    free = [place for place, needs in enumerate(unmet) if not needs]  # sorted, hence a heap
    ordered: dict[int, WrittenTask] = {}
    for oldest in range(len(tasks)):
        # Those that are free, in their order; of a circle, the first is taken all the same.
        while free or oldest not in ordered:
            place = heappop(free) if free else oldest
            ordered[place] = tasks[place]
            for behind in needed.pop(tasks[place].id, ()):
                unmet[behind].discard(tasks[place].id)
                if not unmet[behind] and behind not in ordered:
                    heappush(free, behind)
    return list(ordered.values())


def failure_of(written: WrittenPlan | None) -> type[WorkerError]:
    """What it is that no try came to a plan: if the last could be read, it is about the request."""
    return WorkerError if written is None else UnclearRequest


def refuse_unserved(written: WrittenPlan | None) -> None:
    """Raise for a plan without tasks: nobody on the roster can do anything of what is asked."""
    if written is not None and not written.tasks:
        said = written.goal or written.reason or "no reason was given"
        raise UnclearRequest(f"no worker on the roster can do any of this: {said[:500]}")


def read_task(value: object) -> Task | None:
    """The task in one item of a plan; None if it is none."""
    try:
        return msgspec.convert(value, WrittenTask).task
    except msgspec.ValidationError:
        return None


def faults_in_words(faults: Sequence[Fault]) -> str:
    """The faults as a model is told them."""
    listed = "".join(f"\n- {fault}" for fault in dict.fromkeys(faults))
    return f"The plan was not accepted:{listed}"


def objection_to_task(words: str) -> str | None:
    """What is wrong with the words of one task, as a model is told it."""
    if not words.strip():
        return "The task is empty. Say what the worker is to do, and answer with JSON alone."
    if is_vague(words):
        return f"{words.strip()!r} is too vague to be checked; say what the result is."
    return None


def no_plan(why: object, kind: str = ErrorClass.LOGIC) -> Failed:
    """That planning came to nothing, and why."""
    message = f"no plan: {str(why).removeprefix('no plan: ')}"
    return Failed(kind=ErrorClass(kind), message=message, error="NoPlan")
