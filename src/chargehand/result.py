"""What a caller gets back: the answer, its gaps, every task, and the record of it all."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.background import run_in_background
from chargehand.decisions.desk import Led
from chargehand.decisions.graph import Node, TaskState
from chargehand.decisions.schedule import RunState
from chargehand.decisions.trace import Trace, trace_of
from chargehand.facts.events import RunStatus
from chargehand.facts.outcome import Failed, Question, Usage
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from chargehand.journal.base import Journal


class Gap(Struct, frozen=True):
    """Something the answer should rest on and does not."""

    task: str
    state: TaskState
    why: str

    def __str__(self) -> str:
        return f"{self.task} ({self.state.value}): {self.why}"


class Answer(Struct, frozen=True):
    """What came out of a run, and what is missing from it."""

    output: Any
    #: of the last task; with several last tasks, theirs by id
    gaps: tuple[Gap, ...] = ()

    def __str__(self) -> str:
        shown = (
            self.output
            if isinstance(self.output, str)
            else msgspec.json.encode(self.output).decode()
        )
        return "\n".join([shown, *(f"missing: {gap}" for gap in self.gaps)])


class TaskResult:
    """How one task stands."""

    __slots__ = ("_load", "_node", "_value")

    def __init__(self, node: Node, value: Value | None, load: Callable[[Value], Any]) -> None:
        self._node = node
        self._value = value
        self._load = load

    @property
    def task(self) -> Task:
        return self._node.task

    @property
    def state(self) -> TaskState:
        return self._node.state

    @property
    def output(self) -> Any:
        """What the worker returned; None if the task is not done."""
        return None if self._value is None else self._load(self._value)

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that the output derives from."""
        return () if self._value is None else self._value.taint

    @property
    def error(self) -> Failed | None:
        return self._node.cause

    @property
    def why(self) -> str:
        """Why it is not done; empty if it is."""
        node = self._node
        if node.cause is not None:
            return str(node.cause)
        if node.state is TaskState.SKIPPED:
            return f"{node.why} came to nothing" if node.why else "there was no time left"
        if node.state is TaskState.CANCELLED:
            return "it was cancelled"
        return ""

    @property
    def question(self) -> Question | None:
        """What a person must answer before it can go on."""
        return self._node.question

    @property
    def attempts(self) -> int:
        return self._node.attempt

    @property
    def worker(self) -> str:
        """Who had it last."""
        return self._node.worker

    def __repr__(self) -> str:
        return f"<task {self.task.id}: {self.state.value}>"


class _Tasks(Mapping[str, TaskResult]):
    """Tasks by id, in plan order, made when looked at: a run may have a hundred thousand."""

    def __init__(self, led: Led, load: Callable[[Value], Any]) -> None:
        self._nodes = led.schedule.nodes
        self._outputs = led.results.outputs
        self._load = load

    def __getitem__(self, task: str) -> TaskResult:
        return TaskResult(self._nodes[task], self._outputs.get(task), self._load)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class RunResult:
    """A run as it stands: ended, or, when looked at in between, not yet."""

    def __init__(
        self, run: str, led: Led, reading: Callable[[], AbstractAsyncContextManager[Journal]]
    ) -> None:
        self.id = run
        self._led = led
        self._reading = reading
        self.tasks: Mapping[str, TaskResult] = _Tasks(led, self._load)

    @property
    def status(self) -> RunStatus | RunState:
        return self._led.schedule.state

    @property
    def usage(self) -> Usage:
        return self._led.results.usage

    @property
    def wall(self) -> timedelta:
        """From the request to the last event."""
        schedule = self._led.schedule
        if schedule.requested is None or schedule.last_at is None:
            return timedelta(0)
        return schedule.last_at - schedule.requested.at

    @property
    def speedup(self) -> float:
        """How much sooner this ended than its tasks one after another would have."""
        return self._led.schedule.busy / self.wall if self.wall else 1.0

    @property
    def questions(self) -> list[Question]:
        """What waits for a person."""
        nodes = self._led.schedule.nodes.values()
        return [node.question for node in nodes if node.question is not None]

    @cached_property
    def answer(self) -> Answer:
        """The outputs that no other task of the plan takes up, and what is missing."""
        nodes = self._led.schedule.nodes
        last = [id_ for id_, node in nodes.items() if not node.dependents and not node.is_removed]
        outputs = {
            id_: self.tasks[id_].output for id_ in last if nodes[id_].state is TaskState.DONE
        }
        gaps = tuple(
            Gap(id_, node.state, self.tasks[id_].why)
            for id_, node in nodes.items()
            if node.state is not TaskState.DONE and not node.is_removed
        )
        output = next(iter(outputs.values()), None) if len(last) == 1 else outputs
        return Answer(output, gaps)

    @cached_property
    def trace(self) -> Trace:
        """The story of the run, folded from the journal. Reads it now, and waits for that."""
        return run_in_background(self._read_trace()).result()

    async def _read_trace(self) -> Trace:
        async with self._reading() as journal:
            return trace_of([entry.event async for entry in journal.read(self.id)])

    def _load(self, value: Value) -> Any:
        if not value.blob:
            return value.read()
        return msgspec.json.decode(run_in_background(self._read_blob(value.blob)).result())

    async def _read_blob(self, digest: str) -> bytes:
        async with self._reading() as journal:
            return await journal.blobs.get(digest)

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status.value}, {len(self.tasks)} tasks>"
