"""A seat for the planner over a real schedule, without a supervisor around it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

import chargehand as ch
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.run_outputs_and_steps import StepLog, StepRecord
from chargehand.decisions.schedule import RULES
from chargehand.decisions.system_tasks import of_plan
from chargehand.engines.brief import AttemptHost, Brief, Fenced
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptStarted,
    Event,
    RunLed,
    RunRequested,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from chargehand.journal.memory import MemoryJournal
from chargehand.models.base import Model, ModelReply, StopReason, Text
from chargehand.roles.planner import plan
from chargehand.roles.roster import Roster
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext
from chargehand.roles.task_rewriter import refine

START = datetime(2030, 1, 1, tzinfo=UTC)
REQUEST = "Find the tallest towers of Lyon and of Graz, and compare their heights"


@ch.worker("finder", "Finds facts about buildings in files")
def finder(brief: ch.Brief) -> str:
    return brief.task.description


@ch.worker("counter", "Calculates and compares numbers")
def counter(brief: ch.Brief) -> str:
    return brief.task.description


@ch.worker("critic", "Reviews texts")
def critic(brief: ch.Brief) -> str:
    return brief.task.description


CREW = (finder, counter, critic)


def task(id_: str, description: str, worker: str = "finder", *needs: str) -> dict[str, Any]:
    return {
        "id": id_,
        "description": description,
        "worker": worker,
        "needs": list(needs),
        "accept": "",
        "optional": False,
    }


LYON = task("t1", "Find the height of the tallest tower of Lyon")
GRAZ = task("t2", "Find the height of the tallest tower of Graz")
BOTH = task("t3", "Compare the two heights and name the difference", "counter", "t1", "t2")


def plan_text(*tasks: dict[str, Any], **more: Any) -> str:
    head = {"goal": "Compare towers", "instruction": "One sentence", "strategy": "merge"}
    return json.dumps({**head, **more, "tasks": list(tasks)})


def cut_off(text: str) -> ModelReply:
    return ModelReply(parts=(Text(text),), stop=StopReason.LENGTH, model="scripted")


class Seated(AttemptHost):
    """A run that is being planned: its schedule, its journal, and the steps of the system task at work."""

    def __init__(
        self,
        model: Model | str,
        approach: Approach = Approach.WHOLE,
        *,
        limits: Limits | None = None,
        workers: Sequence[Any] = CREW,
        **more: Any,
    ) -> None:
        self.live_run = LiveRun()
        self.roster = Roster(workers)
        self.resources = Resources(model=model)
        self.journal: list[Event] = []
        self.log = StepLog()
        self.notes: list[str] = []
        #: proposals, after which the process is as good as dead
        self.dies_after: int | None = None
        given = {"request": REQUEST, "limits": limits or Limits(), "approach": approach, **more}
        self.tell(RunRequested(run="r", seed=7, rules=RULES, crew="", at=START, **given))
        self.tell(RunLed(node="n", epoch=1, at=START))

    # what a system task sees

    def now(self) -> datetime:
        return START + timedelta(seconds=len(self.journal))

    @property
    def context(self) -> PlanningContext:
        return PlanningContext(self.live_run, self.roster, self.now, MemoryJournal().blobs, self)

    async def propose(self, run: str, event: Event) -> Event | None:
        if self.dies_after == 0:
            raise Fenced
        if self.dies_after is not None:
            self.dies_after -= 1
        return self.tell(event)

    def say(self, run: str, piece: str | None) -> None:
        raise AssertionError("a planner says nothing aloud")

    # what happens around it

    def tell(self, event: Event) -> Event | None:
        """Let something happen, and all that follows from it."""
        written: list[Event] = []
        self.live_run.take(event, written)
        self.journal += written
        return written[0] if written else None

    def finish(self, task: str, outcome: Outcome, worker: str = "finder") -> None:
        """Have the next attempt of a task come to this."""
        node = self.live_run.schedule.nodes[task]
        attempt = node.attempt + 1
        at = self.now()
        self.tell(AttemptStarted(task=task, attempt=attempt, worker=worker, at=at))
        self.tell(AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=at))

    def done(self, task: str, result: Any = "done") -> None:
        self.finish(task, Done(Value.of(result)))

    def failed(self, task: str, why: str = "no such file") -> None:
        """Have a task fail for good."""
        self.finish(task, Failed(kind=ErrorClass.DENIED, message=why))

    async def plan(self, system_task: str = "@plan") -> Outcome:
        """Carry out a planning system task to its end, and tell the schedule what came of it."""
        outcome = await self.try_plan(system_task)
        self.finish(system_task, outcome, "@planner")
        self.log = StepLog()
        return outcome

    async def try_plan(self, system_task: str = "@plan") -> Outcome:
        """Carry out a planning system task; nobody hears of its end."""
        return await plan(self.brief(system_task), self.context, self.resources)

    async def refine(self, system_task: str) -> Outcome:
        return await refine(self.brief(system_task), self.context, self.resources)

    def brief(self, system_task: str) -> Brief:
        node = self.live_run.schedule.nodes[system_task]
        known = StepLog(dict(self.log.lineage), dict(self.log.effects))
        return Brief("r", node.task, 1, "@planner", {}, self, log=known)

    # the line of the system task's brief

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        self.log.keep(step)

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        self.log.keep(replace(step, outcome=outcome))

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        self.notes.append(text)

    # what is asked of it

    @property
    def kinds(self) -> list[str]:
        """What became of the plan, in order."""
        kinds = [type(event).__name__ for event in self.journal]
        return [kind for kind in kinds if kind.startswith("Plan") or kind == "TaskAdded"]

    @property
    def tasks(self) -> list[Task]:
        nodes = self.live_run.schedule.nodes
        return [nodes[id_].task for id_ in of_plan(nodes)]

    @property
    def ids(self) -> list[str]:
        return [task.id for task in self.tasks]
