"""Routes about plans: read, check, change."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.decisions.duration_estimates import Estimates
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan, find_cycle
from chargehand.server.http import run_views as views
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import fault_json, json_response
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.run_records import RunRecord


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan, as `Plan.to_json` writes it."""

    plan: dict[str, Any]


class PlanTotals(Struct, frozen=True):
    """The size of a plan."""

    tasks: int
    #: tasks in the longest chain, and the most that can run at once
    depth: int
    width: int
    #: seconds, if every task takes as long as it is expected to; null: nothing is known
    estimate: float | None


class PlanCheck(Struct, frozen=True):
    """What is wrong with a plan, and how large it is."""

    faults: list[Any]
    warnings: list[Any]
    totals: PlanTotals


class PlanView(Struct, frozen=True, kw_only=True):
    """The plan of a run as it is now."""

    version: int
    plan: Any
    #: tasks that were never started, and so may be changed
    editable: list[str]
    versions: list[Any]


def plan_routes(api: ApiContext) -> APIRouter:
    """The routes, for this server."""
    router = APIRouter(tags=["plans"])

    @router.post("/plan/check", **returns(PlanCheck), **takes(PlanBody))
    async def check(request: Request, grant: Caller) -> Response:  # noqa: ARG001 - it must have one
        """Say what is wrong with a plan, without running it."""
        body = await body_of(request, PlanBody)
        try:
            plan = read_plan(body.plan)
        except UsageError as error:
            fault = {"task": "", "field": "", "kind": "not_a_plan", "message": str(error)}
            return json_response(PlanCheck([fault], [], PlanTotals(0, 0, 0, None)))
        found = plan.check(api.boss.roster.names, api.boss.limits)
        paces = await api.boss.paces()
        return json_response(
            PlanCheck(
                [fault_json(each) for each in found.faults],
                [fault_json(each) for each in found.warnings],
                totals_of(plan, Estimates(paces) if paces else None),
            )
        )

    @router.get("/runs/{run}/plan", **returns(PlanView))
    async def plan(run: str, grant: Caller) -> Response:
        """The plan of a run, with its version as ETag."""
        record = await api.runs.find(run, grant.namespace)
        view = plan_view(record)
        return json_response(view, headers={"etag": f'"{view.version}"'})

    return router


def read_plan(data: dict[str, Any]) -> Plan:
    """The plan in this JSON. Raises `UsageError` with the place of the first error."""
    return Plan.from_json(msgspec.json.encode(data))


def plan_view(record: RunRecord) -> PlanView:
    """The plan of a run, and which of its tasks may be changed."""
    return PlanView(
        version=record.live_run.schedule.version,
        plan=views.plan_of(record),
        editable=views.editable_tasks(record),
        versions=[
            {"version": each.version, "at": each.at, "reason": each.reason, "seq": each.seq}
            for each in record.versions
        ],
    )


def totals_of(plan: Plan, estimates: Estimates | None) -> PlanTotals:
    """How large a plan is. One with a circle in it has no depth."""
    if find_cycle(plan.tasks):
        return PlanTotals(len(plan.tasks), 0, 0, None)
    tasks = {task.id: task for task in plan.tasks}
    depth: dict[str, int] = {}
    ends: dict[str, float] = {}
    waiting = list(tasks)
    while waiting:
        id_ = waiting[-1]
        needs = [need.task for need in tasks[id_].all_needs if need.task in tasks]
        unknown = [need for need in needs if need not in depth]
        if unknown:
            waiting += unknown
            continue
        waiting.pop()
        depth[id_] = 1 + max((depth[need] for need in needs), default=0)
        own = 0.0 if estimates is None else estimates.seconds(tasks[id_])
        ends[id_] = own + max((ends[need] for need in needs), default=0.0)
    levels = list(depth.values())
    width = max((levels.count(level) for level in set(levels)), default=0)
    longest = None if estimates is None else max(ends.values(), default=0.0)
    return PlanTotals(len(tasks), max(levels, default=0), width, longest)
