"""The planner: a request becomes a plan, and a plan of which something failed gets other tasks."""

from collections.abc import Sequence
from typing import Any

from chargehand.decisions.duties import FAILURE, STEER, STEP
from chargehand.engines.brief import Brief
from chargehand.errors import Fault, InternalError, StepMismatch, WorkerError
from chargehand.facts.events import Approach, PlanAdopted, RunRequested
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NOTHING_DONE, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.models.base import Turn, system, user
from chargehand.roles.clarifying import clarified
from chargehand.roles.dictation import dictate
from chargehand.roles.drafting import (
    NO_MORE,
    Bounds,
    Written,
    drafted,
    no_plan,
    plan_schema,
    refuse_unserved,
)
from chargehand.roles.office import Office
from chargehand.roles.prompts import prompt
from chargehand.roles.replanning import replan
from chargehand.roles.roster import Roster
from chargehand.roles.router import route
from chargehand.roles.seat import Seat
from chargehand.roles.steps import first_step, next_step
from chargehand.roles.thinking import DurableThinker, Thinker
from chargehand.roles.wording import asked, request_again

__all__ = ["plan", "plan_schema", "write_plan"]


async def plan(brief: Brief, seat: Seat, office: Office) -> Outcome:
    """The duty behind `@plan` and its successors: have the run's plan written, or changed.

    Goes on from whatever a process that ended had done of it.
    """
    requested = seat.led.schedule.requested
    if requested is None:
        raise InternalError("a run is to be planned that nobody requested")
    because = brief.task.args.get("because", "")
    try:
        if because in (FAILURE, STEER):
            return await replan(brief, seat, office, requested)
        if because == STEP:
            return await next_step(brief, seat, office, requested)
        return await _first_plan(brief, seat, office, requested)
    except StepMismatch:
        raise
    except WorkerError as error:
        return no_plan(error, error.kind)


async def write_plan(
    thinker: Thinker,
    request: str,
    roster: Roster,
    limits: Limits,
    earlier: Value | None = None,
    shape: dict[str, Any] | None = None,
) -> Plan:
    """A sound plan for this request by this roster.

    `earlier` is what came before the request, `shape` the schema of the answer that is wanted. Faults
    go back to the model, at most twice; then raises `WorkerError` with the last objection.
    """
    bounds = Bounds(roster, limits)

    def examine(written: Written) -> list[Fault]:
        refuse_unserved(written)
        return bounds.faults_in([each.task for each in written.tasks])

    turns = planning_turns(thinker.office, request, bounds, earlier, shape)
    again = f"Answer with the whole corrected plan as JSON alone.\n{request_again(request)}"
    try:
        written = await drafted(thinker, "plan", turns, plan_schema(roster, limits), examine, again)
    except StepMismatch:
        raise
    except WorkerError as error:
        raise type(error)(f"no plan: {error}", kind=error.kind) from error
    return Plan(
        goal=written.goal or request,
        tasks=[each.task for each in written.tasks],
        instruction=written.instruction,
        strategy=written.strategy,
        taint=() if earlier is None else earlier.taint,
    )


def planning_turns(
    office: Office,
    request: str,
    bounds: Bounds,
    earlier: Value | None = None,
    shape: dict[str, Any] | None = None,
) -> Sequence[Turn]:
    """How a model is asked for a plan."""
    words = prompt("plan", office.prompts, roster=bounds.lines, most=str(bounds.limits.tasks))
    before = None if earlier is None else earlier.read()
    return system(words), user(f"Plan this.\n{asked(request, before, shape)}")


async def _first_plan(brief: Brief, seat: Seat, office: Office, requested: RunRequested) -> Outcome:
    earlier = await seat.bring(requested.earlier)

    async def attempt(request: str) -> Outcome:
        return await _planned(brief, seat, office, requested, request, earlier)

    return await clarified(brief, requested, attempt)


async def _planned(
    brief: Brief, seat: Seat, office: Office, requested: RunRequested, request: str, earlier: Value
) -> Outcome:
    if requested.approach is Approach.STREAM:
        bounds = Bounds(seat.roster, requested.limits)
        turns = planning_turns(office, request, bounds, earlier, requested.shape)
        return await dictate(brief, seat, office, request, turns)
    if seat.led.schedule.version:
        return NOTHING_DONE  # adopted just before the process ended that had it written
    thinker = DurableThinker(brief, office)
    roster = seat.roster
    match requested.approach:
        case Approach.ROUTE:
            default = brief.task.args.get("default", "")
            chosen = await route(thinker, roster, request, earlier, default)
        case Approach.STEPS:
            chosen = await first_step(thinker, roster, request, earlier)
        case _:
            limits, shape = requested.limits, requested.shape
            chosen = await write_plan(thinker, request, roster, limits, earlier, shape)
    adopted = await seat.propose(PlanAdopted(plan=chosen, at=seat.now()))
    return NO_MORE if adopted is None else NOTHING_DONE
