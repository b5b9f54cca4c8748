"""The planner: a request becomes a plan, and a plan of which something failed gets other tasks."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from chargehand.decisions.system_tasks import FAILURE, STEER, STEP
from chargehand.engines.brief import Brief
from chargehand.errors import Fault, InternalError, StepMismatch, UnclearRequest, WorkerError
from chargehand.facts.events import Approach, PlanAdopted, RunRequested
from chargehand.facts.failure_policy import GIVE_UP
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NOTHING_DONE, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.models.base import ModelRequest, system, user
from chargehand.roles.crew_data_catalog import (
    MaterialWords,
    reach_of,
    remembered_material,
    seen_by_planner,
)
from chargehand.roles.data_fences import asked, request_again, with_notes
from chargehand.roles.durable_model_calls import DurableModelCaller, ModelCaller
from chargehand.roles.plan_approval import reviewed_plan
from chargehand.roles.plan_drafts import (
    NO_MORE,
    Bounds,
    WrittenPlan,
    drafted,
    no_plan,
    plan_schema,
    refuse_unserved,
)
from chargehand.roles.prompts import prompt
from chargehand.roles.replanner import replan
from chargehand.roles.request_router import route
from chargehand.roles.roster import Roster
from chargehand.roles.shared_resources import Resources
from chargehand.roles.stepwise_plan import first_step, next_step
from chargehand.roles.streamed_plan import stream_plan
from chargehand.roles.system_task_context import PlanningContext

__all__ = ["plan", "write_plan"]

#: said last, for small models forget what was said before the data; what is not wanted is not named, for they do it then
CLOSING = "Plan this request: one task for each thing that it asks for."
#: times that a person is asked to say it better
MOST_QUESTIONS = 2


async def plan(brief: Brief, seat: PlanningContext, resources: Resources) -> Outcome:
    """The system task behind `@plan` and its successors: have the run's plan written, or changed.

    Goes on from whatever a process that ended had done of it.
    """
    requested = seat.live_run.schedule.requested
    if requested is None:
        raise InternalError("a run is to be planned that was not requested")
    because = brief.task.args.get("because", "")
    try:
        if because in (FAILURE, STEER):
            return await replan(brief, seat, resources, requested)
        if because == STEP:
            return await next_step(brief, seat, resources, requested)
        return await _first_plan(brief, seat, resources, requested)
    except StepMismatch:
        raise
    except WorkerError as error:
        return no_plan(error, error.kind)


async def write_plan(
    caller: ModelCaller,
    request: str,
    roster: Roster,
    limits: Limits,
    earlier: Value | None = None,
    shape: dict[str, Any] | None = None,
    told: MaterialWords | None = None,
) -> Plan:
    """A sound plan for this request by this roster.

    `earlier` is what came before the request, `shape` the schema of the answer that is wanted, `told`
    what the crew can reach, if that is known already. Faults go back to the model, at most twice; then
    raises `WorkerError` with the last objection.
    """
    told = (
        await seen_by_planner(roster, request, caller.resources.redactor) if told is None else told
    )
    bounds = Bounds(roster, limits, await reach_of(roster, caller.resources.redactor))

    def examine(written: WrittenPlan) -> list[Fault]:
        refuse_unserved(written)
        bounds.mend(written.tasks)
        return bounds.faults_in([each.task for each in written.tasks])

    first = first_request(caller.resources, request, bounds, told, earlier, shape)
    again = f"Answer with the whole corrected plan as JSON alone.\n{request_again(request)}"
    try:
        written = await drafted(
            caller, "plan", first.turns, first.schema or {}, examine, again, first.settings
        )
    except StepMismatch:
        raise
    except WorkerError as error:
        raise type(error)(f"no plan: {error}", kind=error.kind) from error
    return Plan(
        goal=written.goal or request,
        tasks=[each.task for each in written.tasks],
        instruction=written.instruction,
        strategy=written.strategy,
        taint=tuple(dict.fromkeys((*(() if earlier is None else earlier.taint), *told.taint))),
    )


def first_request(
    resources: Resources,
    request: str,
    bounds: Bounds,
    told: MaterialWords,
    earlier: Value | None = None,
    shape: dict[str, Any] | None = None,
) -> ModelRequest:
    """How a model is asked for a plan; `told` is what the crew can reach."""
    words = prompt("plan", resources.prompts, roster=bounds.lines, most=str(bounds.limits.tasks))
    before = None if earlier is None else earlier.read()
    by_place, settings = resources.holds_places, resources.settings
    if by_place and settings.temperature is None:
        # Models that run in the process are small; by chance they wander from the request.
        settings = replace(settings, temperature=0.0)
    return ModelRequest(
        turns=(system(words), user(f"{told.fenced}{asked(request, before, shape)}{CLOSING}")),
        schema=plan_schema(bounds, by_place=by_place, patterns=told.patterns),
        settings=settings,
    )


async def _first_plan(
    brief: Brief, seat: PlanningContext, resources: Resources, requested: RunRequested
) -> Outcome:
    """The first plan of the request, and of what a person adds to it while it stays unclear.

    Nothing is carried out meanwhile. Raises `UnclearRequest` if nobody was to be asked, or to no avail.
    """
    earlier = await seat.bring(requested.earlier)
    added: list[str] = []
    while True:
        request = with_notes(requested.request, added)
        try:
            return await _planned(brief, seat, resources, requested, request, earlier)
        except UnclearRequest as error:
            if not requested.clarifies or len(added) == MOST_QUESTIONS:
                raise
            words = await brief.ask(
                f"No plan can be made of this request: {str(error).removeprefix('no plan: ')}\n"
                f"Say more precisely what you want, or answer {GIVE_UP!r}."
            )
            if words.strip() == GIVE_UP:
                raise
            added.append(words)


async def _planned(
    brief: Brief,
    seat: PlanningContext,
    resources: Resources,
    requested: RunRequested,
    request: str,
    earlier: Value,
) -> Outcome:
    if requested.approach is Approach.STREAM:
        bounds = Bounds(
            seat.roster, requested.limits, await reach_of(seat.roster, resources.redactor)
        )
        told = await remembered_material(brief, seat.roster, request, resources.redactor)
        caller = DurableModelCaller(brief, resources)
        first = first_request(resources, request, bounds, told, earlier, requested.shape)
        return await stream_plan(brief, seat, caller, request, first, bounds)
    if seat.live_run.schedule.version:
        return NOTHING_DONE  # adopted just before the process ended that had it written
    caller = DurableModelCaller(brief, resources)
    roster = seat.roster
    match requested.approach:
        case Approach.ROUTE:
            default = brief.task.args.get("default", "")
            chosen = await route(caller, roster, request, earlier, default)
        case Approach.STEPS:
            chosen = await first_step(caller, roster, request, earlier)
        case _:
            limits, shape = requested.limits, requested.shape
            told = await remembered_material(brief, roster, request, resources.redactor)

            async def written(notes: Sequence[str] = ()) -> Plan:
                wanted = with_notes(request, notes)
                return await write_plan(caller, wanted, roster, limits, earlier, shape, told)

            chosen = await written()
            if requested.reviews:

                def faults_in(plan: Plan) -> Sequence[Fault]:
                    return plan.check(roster.names, limits).faults

                chosen = await reviewed_plan(brief, seat, chosen, written, faults_in)
    adopted = await seat.propose(PlanAdopted(plan=chosen, at=seat.now()))
    return NO_MORE if adopted is None else NOTHING_DONE
