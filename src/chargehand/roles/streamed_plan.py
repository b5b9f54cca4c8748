"""Streamed plans: a plan is carried out while a model is still writing it.

A task starts as soon as it and its needs are there. What was accepted stays: a fault further on stops
the rest of that reply, and the model is asked for the remaining tasks only.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from chargehand.decisions.system_tasks import of_plan
from chargehand.engines.brief import Brief
from chargehand.errors import Fault
from chargehand.facts.events import Event, PlanOpened, PlanSealed, TaskAdded
from chargehand.facts.outcome import NOTHING_DONE, Outcome
from chargehand.facts.plan import Strategy, Task
from chargehand.models.base import ModelReply, ModelRequest, StopReason, user
from chargehand.roles import plan_drafts as schemas
from chargehand.roles.data_fences import request_again
from chargehand.roles.durable_model_calls import REPAIRS, DurableModelCaller, refuse_unusable
from chargehand.roles.json_reply_check import record
from chargehand.roles.partial_json import PartialJson
from chargehand.roles.run_so_far import remembered
from chargehand.roles.system_task_context import PlanningContext


async def stream_plan(
    brief: Brief,
    seat: PlanningContext,
    caller: DurableModelCaller,
    request: str,
    first: ModelRequest,
    bounds: schemas.Bounds,
) -> Outcome:
    """Have the plan written, and its tasks added as they come; going on from what there is of it.

    `first` is what the model is asked at first, whatever was accepted already: what is asked again after
    a restart must be what was asked before it.
    """
    schedule = seat.live_run.schedule
    if schedule.version and not schedule.is_being_planned:
        return NOTHING_DONE  # it was sealed just before the process ended that had it written
    head = [name for name in (first.schema or {})["required"] if name != "tasks"]
    stream = _PlanStream(brief, seat, caller, request, head, bounds)
    try:
        async with asyncio.TaskGroup() as group:
            delivery = group.create_task(stream.deliver())
            outcome = await stream.hold(first)
            stream.close()
    except BaseExceptionGroup as several:
        # One of the two failed and the other was cancelled for it; callers know errors by their kind.
        raise several.exceptions[0] from None
    return outcome if delivery.result() else schemas.NO_MORE


class _PlanStream:
    def __init__(
        self,
        brief: Brief,
        seat: PlanningContext,
        caller: DurableModelCaller,
        request: str,
        head: Iterable[str],
        bounds: schemas.Bounds,
    ) -> None:
        schedule = seat.live_run.schedule
        self._brief = brief
        self._seat = seat
        self._caller = caller
        self._request = request
        self._bounds = bounds
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._gate = StreamedTaskCheck(
            self._bounds,
            request,
            self._emit,
            seat.now,
            head=head,
            accepted=[schedule.nodes[id_].task for id_ in of_plan(schedule.nodes)],
            is_open=schedule.version > 0,
        )

    def _emit(self, event: Event) -> None:
        if isinstance(event, TaskAdded) and self._brief.taint:
            event = replace(event, taint=self._brief.taint)  # it may speak from what was read
        self._events.put_nowait(event)

    async def deliver(self) -> bool:
        """Have written down what was taken in, in order; whether all of it was."""
        while (event := await self._events.get()) is not None:
            if await self._seat.propose(event) is None:
                return False
        return True

    def close(self) -> None:
        self._events.put_nowait(None)

    async def hold(self, first: ModelRequest) -> Outcome:
        """Ask for the plan, and for what is missing of it; sealed if it becomes whole."""
        said, schema = list(first.turns), first.schema
        objection = ""
        for _ in range(REPAIRS + 1):
            request = replace(first, turns=tuple(said), schema=schema)
            self._gate.hear(None)
            reply = await self._caller.ask("plan", request, self._gate.hear)
            found = self._objection_to(reply)
            if found is None:
                self._events.put_nowait(PlanSealed(at=self._seat.now()))
                return NOTHING_DONE
            noted = await self._noted(found)
            objection = noted["objection"]
            said += [reply.turn, user(noted["words"])]
            if noted["accepted"]:
                free = [id_ for id_ in self._bounds.ids if id_ not in noted["accepted"]]
                schema = record(tasks=schemas.tasks_schema(self._bounds, free, self._bounds.ids))
        kind = schemas.failure_of(schemas.read_draft(reply.text)[0])
        error = kind(f"the model gave no valid reply in {REPAIRS + 1} tries: {objection}")
        if self._gate.accepted:
            return schemas.no_plan(error)  # what was accepted runs, and its words are known by now
        raise error

    def _objection_to(self, reply: ModelReply) -> str | None:
        if reply.stop is StopReason.LENGTH:
            self._gate.settle(reply.text)
            if self._gate.accepted:
                return "The answer was cut off at the maximum length."
        refuse_unusable(reply)
        if not self._gate.accepted:
            schemas.refuse_unserved(schemas.read_draft(reply.text)[0])
        return self._gate.settle(reply.text)

    async def _noted(self, objection: str) -> Any:
        """The objection as it was first made: by the time of a restart more may have been accepted."""
        accepted = list(self._gate.accepted.values())

        async def note() -> dict[str, Any]:
            words = _repair(objection, accepted) + request_again(self._request)
            ids = [task.id for task in accepted]
            return {"objection": objection, "words": words, "accepted": ids}

        return await remembered(self._brief, "faults", note)


def _repair(objection: str, accepted: Sequence[Task]) -> str:
    if not accepted:
        return f"{objection}\nAnswer with the whole corrected plan as JSON alone.\n"
    lines = "\n".join(f"- {task.id} ({task.worker}): {task.description}" for task in accepted)
    return (
        f"{objection}\nThese tasks were accepted and are being worked on; they stay as they are:\n"
        f"{lines}\nWrite only the tasks that are still missing, corrected, under ids that are free; "
        'they may need accepted ones. Answer with JSON alone: {"tasks": [...]}, with an empty list '
        "if nothing is missing.\n"
    )


class StreamedTaskCheck:
    """Hears a plan grow and lets its tasks in, in order, up to the first that something speaks against.

    What was let in stays, whatever comes later. A reply that begins anew may say it again in the
    same words. The events that open the plan and add tasks are emitted as soon as they can be.
    """

    def __init__(
        self,
        bounds: schemas.Bounds,
        request: str,
        emit: Callable[[Event], None],
        now: Callable[[], datetime],
        *,
        head: Iterable[str] = (),
        accepted: Iterable[Task] = (),
        is_open: bool = False,
    ) -> None:
        self.accepted = {task.id: task for task in accepted}
        self._bounds = bounds
        self._request = request
        self._emit = emit
        self._now = now
        self._is_open = is_open
        #: what must be known of the plan before its first task is let in
        self._wanted = set(head)
        self._begin()

    def _begin(self) -> None:
        self._growing = PartialJson("tasks")
        self._head: dict[str, str] = {}
        #: written before what the plan is about was
        self._waiting: list[Task] = []
        self._is_halted = False

    def hear(self, piece: str | None) -> None:
        """Take in the next piece of a reply; None: it broke off, and another begins."""
        if piece is None:
            self._begin()
            return
        for name, value in self._growing.feed(piece):
            self._note(name, value)
        if self._is_open or self._head.keys() >= self._wanted:
            self._let_in()

    def settle(self, text: str) -> str | None:
        """Take in a whole reply, heard before or not; what speaks against it, if anything does."""
        self.hear(None)
        self.hear(text)
        written, objection = schemas.read_draft(text)
        if written is None:
            return objection
        tasks = [each.task for each in written.tasks]
        faults = self._faults_in(tasks)
        if faults:
            return schemas.faults_in_words(faults)
        self._head = {
            "goal": written.goal,
            "instruction": written.instruction,
            "strategy": written.strategy,
        }
        self._waiting = tasks
        self._is_halted = False  # what came too early as it was heard stands behind its needs now
        self._let_in()
        return None

    def _note(self, name: str, value: Any) -> None:
        if name == "tasks":
            task = schemas.read_task(value)
            self._is_halted = self._is_halted or task is None
            if task is not None and not self._is_halted:
                self._waiting.append(task)
        elif isinstance(value, str) and (name != "strategy" or value in list(Strategy)):
            self._head[name] = value

    def _let_in(self) -> None:
        for task in self._waiting:
            known = self.accepted.get(task.id)
            if known is not None:
                self._is_halted = not _is_same(known, task)
            elif self._bounds.faults_in([*self.accepted.values(), task]):
                self._is_halted = True
            else:
                self._accept(task)
            if self._is_halted:
                break
        self._waiting = []

    def _accept(self, task: Task) -> None:
        if not self._is_open:
            self._is_open = True
            opened = PlanOpened(
                goal=self._head["goal"] or self._request,
                instruction=self._head.get("instruction", ""),
                strategy=Strategy(self._head.get("strategy", Strategy.MERGE)),
                at=self._now(),
            )
            self._emit(opened)
        self.accepted[task.id] = task
        self._emit(TaskAdded(task=task, at=self._now()))

    def _faults_in(self, tasks: Iterable[Task]) -> list[Fault]:
        conflicts: list[Fault] = []
        fresh: list[Task] = []
        for task in tasks:
            known = self.accepted.get(task.id)
            if known is None:
                fresh.append(task)
            elif not _is_same(known, task):
                message = "an accepted task has this id, and runs; choose an id that is free"
                conflicts.append(Fault("duplicate_id", task.id, message))
        return conflicts + self._bounds.faults_in([*self.accepted.values(), *fresh])


def _is_same(one: Task, other: Task) -> bool:
    return (one.description, one.worker, one.needs) == (
        other.description,
        other.worker,
        other.needs,
    )
