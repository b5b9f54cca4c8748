"""The recursive supervisor: does a simple task itself, and splits a complex one into parts for itself."""

import copy
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.dispatch import Place
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.engines.brief import Brief
from chargehand.facts.argument_checks import (
    Duration,
    arguments_checked,
    check_request,
    count,
    duration_or_none,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, Outcome
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.models.base import ModelRequest, ModelSettings, system, user
from chargehand.result import RunResult
from chargehand.roles.durable_model_calls import DurableModelCaller, ask_for, refuse_unusable
from chargehand.roles.function_worker import Where, check_words
from chargehand.roles.json_reply_check import record
from chargehand.roles.plan_drafts import faults_in_words
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import ModelChoice, Resources, check_model
from chargehand.supervisor import Supervisor
from chargehand.supervisor.nested_requests import words_from

NAME, DESCRIPTION = "solver", "Does a task of any size itself, or divides it and puts it together"
MOST_PARTS = 6


class Subtask(Struct, frozen=True):
    """A part of a task, written by a model."""

    id: str
    description: str
    needs: tuple[str, ...] = ()


class Division(Struct, frozen=True):
    """The decision of a model about a task: its result, or its parts."""

    answer: str = ""
    parts: tuple[Subtask, ...] = ()
    instruction: str = ""

    def plan(self, goal: str, worker: str) -> Plan:
        """The parts as tasks for the same worker, one level deeper."""
        tasks = [
            Task(id=part.id, description=part.description, worker=worker, needs=part.needs)
            for part in self.parts
        ]
        return Plan(goal=goal, tasks=tasks, instruction=self.instruction.strip() or goal)


class RecursiveSupervisor:
    """Does a simple task with one model call; splits a complex task and gives the parts to itself.

    It is a worker like any other. Each division is a nested run: parts run in parallel, the budget and
    the deadline of the top run apply to the whole tree, and `Limits(depth=…)` limits its depth. At the
    last level, each task is done with one call.
    """

    where = Where.HERE

    @arguments_checked(settings=ModelSettings)
    def __init__(
        self,
        name: str = NAME,
        description: str = DESCRIPTION,
        *,
        model: "ModelChoice | None" = None,
        settings: ModelSettings | None = None,
        parts: int = MOST_PARTS,
        parallel: int | None = None,
        capacity: int | Elastic | None = None,
        timeout: Duration | None = None,
    ) -> None:
        check_words(name, description, "recursive supervisor")
        check_model(model, f"recursive supervisor {name!r}")
        self.name = name
        self.description = description
        self.model = model
        self.skills: tuple[str, ...] = ()
        self.timeout = duration_or_none(timeout, f"worker {name!r}: timeout")
        self.place = Place(worker=name, capacity=capacity)
        self._settings = settings
        self._most = count(parts, f"worker {name!r}: parts", least=2)
        self._parallel = parallel

    def __repr__(self) -> str:
        return f"<recursive supervisor {self.name!r}>"

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        """Always empty: other runs do not reuse its results."""
        return ""

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """The function that runs an attempt: one call that does the task or splits it, then a run over the parts."""
        # Raises if there is no model.
        resources.models(self.model, f"recursive supervisor {self.name!r}")
        own = Resources(model=self.model, settings=self._settings).below(resources)
        # The parts are run by a supervisor that has only this worker on its roster.
        team = Supervisor(
            [self],
            name=self.name,
            description=self.description,
            model=self.model,
            settings=self._settings,
            parallel=self._parallel,
        )
        lead = team.work(resources)

        async def perform(brief: Brief) -> Outcome:
            caller = DurableModelCaller(brief, own)
            if brief.depth + 1 >= brief.limits.levels:
                return _done(await _solved(caller, brief), brief)
            division = await self._divided(caller, brief)
            if not division.parts:
                return _done(division.answer.strip(), brief)
            plan = division.plan(brief.task.description, self.name)
            planned = copy.copy(brief)
            planned.task = replace(brief.task, args={"plan": plan.to_json(indent=None)})
            return await lead(planned)

        return perform

    async def _divided(self, caller: DurableModelCaller, brief: Brief) -> Division:
        left = brief.limits.levels - brief.depth - 1
        words = prompt(
            "divide",
            caller.resources.prompts,
            most=str(self._most),
            left=f"It can be divided {left} more {'time' if left == 1 else 'times'}.",
        )
        turns = (system(words), user(words_from(brief)))
        answer = await ask_for(caller, "divide", turns, _schema(self._most), self._objection_to)
        return msgspec.convert(answer, Division)

    def _objection_to(self, answer: Any) -> str | None:
        division = msgspec.convert(answer, Division)
        if bool(division.answer.strip()) == bool(division.parts):
            return "Give either the answer or the parts: the other one stays empty."
        if not division.parts:
            return None
        if len(division.parts) == 1:
            return "One part is not a division; do it yourself, or divide it into two at least."
        plan = division.plan("", self.name)
        check = plan.check([self.name], in_order=True)
        faults = [*check.faults, *check.warnings]
        return faults_in_words(faults) if faults else None


async def recursive(
    request: str,
    *,
    model: ModelChoice,
    parts: int = MOST_PARTS,
    journal: str | os.PathLike[str] | Journal | None = None,
    limits: Limits | None = None,
) -> RunResult:
    """Run a request of any size: with one call, or split into parts, recursively, up to `limits.depth` levels."""
    check_request(request)
    solver = RecursiveSupervisor(parts=parts)
    task = Task(id="whole", description=request, worker=solver.name)
    async with Supervisor([solver], model=model, journal=journal, limits=limits) as boss:
        return await boss.run(Plan(goal=request, tasks=[task]))


async def _solved(caller: DurableModelCaller, brief: Brief) -> str:
    words = prompt("solve", caller.resources.prompts)
    turns = (system(words), user(words_from(brief)))
    request = ModelRequest(turns=turns, settings=caller.resources.settings)
    reply = await caller.ask("solve", request)
    refuse_unusable(reply)
    return reply.text.strip()


def _done(text: str, brief: Brief) -> Done:
    return Done(Value.of(text, brief.taint))


def _schema(most: int) -> dict[str, Any]:
    ids = [f"p{number}" for number in range(1, most + 1)]
    part = record(
        id={"type": "string", "enum": ids},
        description={"type": "string", "description": "what the result is, and what it is about"},
        needs={"type": "array", "items": {"type": "string", "enum": ids}},
    )
    return record(
        answer={"type": "string", "description": "the whole result; or empty"},
        parts={"type": "array", "items": part, "maxItems": most},
        instruction={"type": "string", "description": "how the parts make the whole; or empty"},
    )
