"""What a caller gets back: the answer, its gaps, every task, and the record of it all."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.rule_answer import answer_of, done_in, why_not_done
from chargehand.decisions.schedule import HaltRequest, RunState
from chargehand.decisions.system_tasks import ANSWER, DRAFT, is_planned, is_system_task
from chargehand.decisions.taint_sources import sources_in
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.decisions.time_and_cost_report import Report, report_of
from chargehand.decisions.trace import Trace, trace_of
from chargehand.decisions.wait_reasons import Explainer, WaitReason
from chargehand.errors import UnknownRun
from chargehand.facts.answer import SUREST, Answer
from chargehand.facts.events import Approach, RunStatus
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.jupyter_html_hook import notebook_html
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Failed, Question, Usage
from chargehand.facts.plan import Task, item_id
from chargehand.facts.value import Value
from chargehand.journal.base import Journal, Process
from chargehand.roles.json_reply_check import typed
from chargehand.sync_async_bridge import read_in_background

#: characters of a run's answer, of each result and of all results that the next run is told
EARLIER_ANSWER, EARLIER_RESULT, EARLIER_RESULTS = 8_000, 1_000, 16_000


class FailedItem(Struct, frozen=True):
    """An item of a task with `for_each` that is not done."""

    index: int
    item: Any
    #: why
    error: str


class TaskResult:
    """The state and result of one task."""

    __slots__ = ("_load", "_node", "_run", "_value", "_why")

    def __init__(
        self,
        node: TaskNode,
        run: LiveRun,
        load: Callable[[Value], Any],
        why: Callable[[str], WaitReason | None],
    ) -> None:
        self._node = node
        self._run = run
        self._value = run.results.outputs.get(node.task.id)
        self._load = load
        self._why = why

    @property
    def task(self) -> Task:
        return self._node.task

    @property
    def state(self) -> TaskState:
        """The state of the task. A task with `for_each` has the state of its items: it is running while one of them is."""
        return self._run.schedule.state_of(self._node.task.id)

    @property
    def output(self) -> Any:
        """What the worker returned; None if the task is not done."""
        return None if self._value is None else self._load(self._value)

    @property
    def items(self) -> "list[TaskResult]":
        """For a task with `for_each`: the result of each item, in order; empty until the items are listed."""
        id_, schedule = self._node.task.id, self._run.schedule
        return [
            TaskResult(schedule.nodes[item_id(id_, index)], self._run, self._load, self._why)
            for index in range(schedule.mapped.get(id_, 0))
        ]

    @property
    def item(self) -> Any:
        """The item that it is for, if it is one item of a task with `for_each`."""
        value = self._run.results.item_of(self._node.task.id)
        return None if value is None else self._load(value)

    @property
    def failed_items(self) -> list[FailedItem]:
        """For a task with `for_each`: the items that have ended without a result."""
        return [
            FailedItem(index, each.item, each.why)
            for index, each in enumerate(self.items)
            if each.state.is_settled and each.state is not TaskState.DONE
        ]

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that the output, or the error message, derives from."""
        if self._value is not None:
            return self._value.taint
        return () if self._node.cause is None else self._node.cause.taint

    @property
    def error(self) -> Failed | None:
        return self._node.cause

    @property
    def why(self) -> str:
        """Why it is not done; empty if it is."""
        return why_not_done(self._node)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What its result lacks, in words, such as the failed items; empty if nothing is missing."""
        return self._node.gaps

    @property
    def waits_for(self) -> WaitReason | None:
        """What it is waiting for, and how long it has been waiting; None if it is running or has ended."""
        return self._why(self._node.task.id)

    @property
    def question(self) -> Question | None:
        """The question that a person must answer before it can continue."""
        return self._node.question

    @property
    def attempts(self) -> int:
        """How often it was given to a worker, not counting attempts that only waited for a provider."""
        return self._node.attempt - self._node.parks

    @property
    def worker(self) -> str:
        """The last worker that it was given to; for a task with `for_each`, the worker of its items."""
        return self._run.schedule.worker_of(self._node.task.id)

    def __repr__(self) -> str:
        return f"<task {self.task.id}: {self.state.value}>"


class _Tasks(Mapping[str, TaskResult]):
    """Tasks by id, in plan order, made when looked at: a run may have a hundred thousand.

    Items of a task with `for_each` are found by their ids, such as `each[7]`, but not listed.
    """

    def __init__(
        self,
        live_run: LiveRun,
        load: Callable[[Value], Any],
        why: Callable[[str], WaitReason | None],
    ) -> None:
        nodes = live_run.schedule.nodes
        is_mixed = not all(is_planned(task) for task in nodes)
        self._nodes = {t: n for t, n in nodes.items() if is_planned(t)} if is_mixed else nodes
        self._run = live_run
        self._load = load
        self._why = why

    def __getitem__(self, task: str) -> TaskResult:
        is_item = task[-1:] == "]" and not is_system_task(task)
        node = self._run.schedule.nodes[task] if is_item else self._nodes[task]
        return TaskResult(node, self._run, self._load, self._why)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class Standing(Struct, frozen=True):
    """What the events of a run that has not ended do not tell: who leads it, and what waits for its leader."""

    #: the process that leads it; None: no living process does
    leader: Process | None = None
    #: by question: the answer that no leader has taken in yet, and who gave it
    answered: Mapping[str, str] = {}
    #: it waits for a process that starts it
    is_submitted: bool = False


class RunResult:
    """The result of a run; for a run in progress, its current state."""

    def __init__(
        self,
        run: str,
        live_run: LiveRun,
        reading: Callable[[], AbstractAsyncContextManager[Journal]],
        shape: Any = None,
        below: "Mapping[str, RunResult] | None" = None,
        explainer: Explainer | None = None,
        standing: Standing | None = None,
    ) -> None:
        self.id = run
        self._standing = standing
        #: by task: the runs under way that supervisors below lead for it
        self.below: Mapping[str, RunResult] = below or {}
        self._shape = shape
        self._led = live_run
        self._reading = reading
        self._given_explainer = explainer
        self.tasks: Mapping[str, TaskResult] = _Tasks(live_run, self._load, self._why)

    @cached_property
    def _explainer(self) -> Explainer:
        return self._given_explainer or Explainer(self.id, self._led)

    def _why(self, task: str) -> WaitReason | None:
        return self._explainer.why(task)

    @property
    def status(self) -> RunStatus | RunState:
        """How it ended, or its current state. A run whose tasks all wait for people is waiting itself."""
        if self._standing is not None and self._standing.is_submitted:
            return RunState.SUBMITTED
        state = self._led.schedule.state
        if state is RunState.RUNNING and self.below and self._waits_below():
            return RunState.WAITING
        return state

    @property
    def leader(self) -> Process | None:
        """The process that leads it; None if no living process does, or if it has ended."""
        return None if self._standing is None else self._standing.leader

    @property
    def is_interrupted(self) -> bool:
        """Whether no process leads it although it has work to do: it continues once it is resumed.

        False for a run that was only submitted, that is parked, or that only waits for an answer.
        """
        if self._standing is None or self._standing.leader is not None or self.parked:
            return False
        if isinstance(self.status, RunStatus) or self.approach is Approach.POOL:
            return False
        if self.status is RunState.SUBMITTED:
            return False
        return not (self.status is RunState.WAITING and self.questions)

    def _waits_below(self) -> bool:
        live = self._led.schedule.live_tasks()
        waiting = {task for task, run in self.below.items() if run.status is RunState.WAITING}
        return bool(live) and waiting.issuperset(live)

    @property
    def request(self) -> str:
        """The request."""
        requested = self._led.schedule.requested
        return "" if requested is None else requested.request

    @property
    def source(self) -> Mapping[str, Any]:
        """Where its crew comes from, if it was started at the command line; otherwise empty."""
        requested = self._led.schedule.requested
        return {} if requested is None else requested.source

    @property
    def approach(self) -> Approach:
        """How the request became tasks."""
        requested = self._led.schedule.requested
        return Approach.GIVEN if requested is None else requested.approach

    @property
    def is_to_be_composed(self) -> bool:
        """Whether a model composes its answer."""
        requested = self._led.schedule.requested
        return requested is not None and requested.answers

    @property
    def reason(self) -> str:
        """Why it ended this way, if its tasks do not show it."""
        return self._led.schedule.reason

    @property
    def crew(self) -> str:
        """The digest of the roster that it was started with, or that was accepted since."""
        crew = self._led.schedule.accepted or self._led.schedule.requested
        return "" if crew is None else crew.crew

    @property
    def members(self) -> Mapping[str, Mapping[str, str]]:
        """For each worker of that roster: short digests of its parts; empty if they were not stored."""
        crew = self._led.schedule.accepted or self._led.schedule.requested
        return {} if crew is None else crew.members

    @property
    def halt(self) -> HaltRequest | None:
        """Who cancelled, stopped or paused it last, and why; None if no person did."""
        return self._led.schedule.halt

    @property
    def led_at(self) -> datetime | None:
        """When its current or last leader started to lead it; None if no process has led it yet."""
        return self._led.schedule.led_at

    @property
    def parked(self) -> str:
        """Why no process continues it until a person resumes it; empty if it is not parked."""
        return self._led.schedule.parked

    @property
    def limits(self) -> Limits:
        """The limits it was requested with, with the budget as it is now."""
        return self._led.limits

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that the answer, the results or the gaps may derive from."""
        return sources_in(self._led)

    @property
    def usage(self) -> Usage:
        return self._led.results.usage

    @property
    def over_budget(self) -> tuple[str, ...]:
        """The caps of the run and its tasks that were exceeded by usage that workers reported themselves."""
        account = self._led.account
        return () if account is None else tuple(map(str, account.overruns()))

    @property
    def wall(self) -> timedelta:
        """The time from the request to the last event."""
        schedule = self._led.schedule
        if schedule.requested is None or schedule.last_at is None:
            return timedelta(0)
        return schedule.last_at - schedule.requested.at

    @property
    def speedup(self) -> float:
        """How much faster it was than its tasks one after another; see `Trace.speedup`."""
        return self.trace.speedup

    @property
    def waits(self) -> list[WaitReason]:
        """Everything that is waiting, and what it is waiting for: tasks, system tasks and nested runs."""
        return [
            *self._explainer.all(),
            *(wait for run in self.below.values() for wait in run.waits),
        ]

    def policy_of(self, task: str) -> OnFailure | None:
        """The failure policy of this task; None means the default."""
        return self._led.schedule.policy_of(task)

    @property
    def questions(self) -> list[Question]:
        """The open questions of this run and of the runs nested in it, without those in `answered`."""
        known = {} if self._standing is None else self._standing.answered
        own = [each for each in self._own_questions() if each.id not in known]
        return [*own, *(question for run in self.below.values() for question in run.questions)]

    @property
    def answered(self) -> dict[str, str]:
        """For each question: an answer that the next leader of the run will process, and who gave it."""
        known = {} if self._standing is None else self._standing.answered
        found = {each.id: known[each.id] for each in self._own_questions() if each.id in known}
        for run in self.below.values():
            found |= run.answered
        return found

    def _own_questions(self) -> "list[Question]":
        nodes = self._led.schedule.nodes.values()
        return [node.question for node in nodes if node.question is not None]

    @cached_property
    def answer(self) -> Answer:
        """The answer with its sources and gaps, composed by a model or by rule."""
        schedule, outputs = self._led.schedule, self._led.results.outputs
        composed = outputs.get(ANSWER)
        if composed is None:
            composed = self._draft()
        answer = answer_of(
            schedule.nodes,
            lambda task: self._load(outputs[task]),
            None if composed is None else msgspec.convert(self._load(composed), Answer),
            schedule.strategy,
            schedule.instruction,
        )
        # What models said is never certain unless it was checked, whether a model or a rule composed it.
        is_said = self.usage.calls > 0 and answer.confidence > SUREST
        return msgspec.structs.replace(answer, confidence=SUREST) if is_said else answer

    def _draft(self) -> Value | None:
        """The newest draft, while no more is done than it rests on."""
        nodes, outputs = self._led.schedule.nodes, self._led.results.outputs
        drafts = [id_ for id_ in outputs if id_.startswith(DRAFT)]
        if not drafts:
            return None
        is_new = nodes[drafts[-1]].task.args["of"] == done_in(nodes)
        return outputs[drafts[-1]] if is_new else None

    @property
    def output(self) -> Any:
        """The output of the answer, as the requested type if there is one."""
        data = self.answer.output
        if self._shape is None or ANSWER not in self._led.results.outputs:
            return data
        return typed(self._shape, data)

    @cached_property
    def trace(self) -> Trace:
        """The trace of the run and of its nested runs. Reads the journal, and blocks until it is read."""
        return read_in_background(self._read_trace())

    @cached_property
    def report(self) -> Report:
        """The run in numbers: where time, tokens and money went."""
        return report_of(self.trace)

    async def _read_trace(self) -> Trace:
        async with self._reading() as journal:
            return await _trace_in(journal, self.id)

    def _load(self, value: Value) -> Any:
        if not value.blob:
            return value.read()
        return msgspec.json.decode(read_in_background(self._read_blob(value.blob)))

    async def _read_blob(self, digest: str) -> bytes:
        async with self._reading() as journal:
            return await journal.blobs.get(digest)

    def _repr_html_(self) -> str | None:
        """How a notebook shows it."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status.value}, {len(self.tasks)} tasks>"


async def _trace_in(journal: Journal, run: str) -> Trace:
    trace = trace_of([entry.event async for entry in journal.read(run)])
    for task, below in trace.child_runs:
        with suppress(UnknownRun):  # it had no time to begin, or was forgotten since
            trace.nest(task, await _trace_in(journal, below))
    return trace


def earlier_of(result: RunResult) -> Value:
    """What a request that goes on from this run is told of it, cut to a length that leaves room."""
    results: dict[str, str] = {}
    room = EARLIER_RESULTS
    for id_, task in result.tasks.items():
        if task.state is TaskState.DONE and room > 0:
            results[id_] = _said(task.output)[: min(EARLIER_RESULT, room)]
            room -= len(results[id_])
    told = {
        "request": result.request[:EARLIER_ANSWER],
        "answer": str(result.answer)[:EARLIER_ANSWER],
        "results": results,
    }
    return Value.of(told, result.taint)


def _said(output: Any) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
