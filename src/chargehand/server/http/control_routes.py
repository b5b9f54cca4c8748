"""Routes that control a run, whichever process leads it."""

import uuid
from typing import Any

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskState
from chargehand.errors import RunEnded, UsageError
from chargehand.facts.plan import item_of
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import json_response
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.run_cache import RunRecord
from chargehand.server.http.run_routes import RunAccepted
from chargehand.supervisor.requests import run_id

#: most characters of a reason, note or key
LONGEST = 20_000


class RunUnchanged(Struct, frozen=True):
    """A run that had ended before, and how."""

    id: str
    state: str


class CancelBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is ended; with `answer_now`, it answers from what there is."""

    reason: str = ""
    answer_now: bool = False


class ReasonBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: str = ""


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of the unfinished part of a run. The same key again changes nothing."""

    note: str
    key: str = ""


class BudgetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """New caps of a run; those that are left out stay."""

    money: float | None = None
    tokens: int | None = None
    calls: int | None = None


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether it goes on although the crew has changed."""

    accept: bool = False


class RetryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks that are done again; none: what failed. `repeat_effects` repeats steps that changed something."""

    tasks: list[str] = []
    repeat_effects: bool = False


def control_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(prefix="/runs/{run}", tags=["control"])
    boss = api.boss

    @router.post("/cancel", **_returns_either(), **takes(CancelBody, required=False))
    async def cancel(request: Request, run: str, grant: Caller) -> Response:
        """End a run, wherever it is led. One that has ended stays as it is: 200 with its state."""
        body = await body_of(request, CancelBody)
        if state := _ended(await api.runs.find(run, grant.namespace)):
            return json_response(RunUnchanged(run, state))
        reason, by = _short(body.reason), api.name_of(grant)
        if body.answer_now:
            await boss.answer_now(run, reason or "the answer was wanted at once", by=by)
        else:
            await api.begin(boss.cancel(run, reason, by=by))
        return json_response(RunAccepted(run), 202)

    @router.post("/pause", **returns(RunAccepted, 202), **takes(ReasonBody, required=False))
    async def pause(request: Request, run: str, grant: Caller) -> Response:
        """Start nothing new in a run until it is unpaused. 409 if it has ended."""
        body = await body_of(request, ReasonBody)
        _refuse_ended(await api.runs.find(run, grant.namespace))
        await boss.pause(run, _short(body.reason), by=api.name_of(grant))
        return json_response(RunAccepted(run), 202)

    @router.post("/unpause", **returns(RunAccepted, 202))
    async def unpause(run: str, grant: Caller) -> Response:
        """Let a paused run go on. 409 if it has ended."""
        _refuse_ended(await api.runs.find(run, grant.namespace))
        await boss.unpause(run, by=api.name_of(grant))
        return json_response(RunAccepted(run), 202)

    @router.post("/steer", **returns(RunAccepted, 202), **takes(SteerBody))
    async def steer(request: Request, run: str, grant: Caller) -> Response:
        """Have a model change what is not done yet of a run as the note says. 409 if it has ended."""
        body = await body_of(request, SteerBody)
        _refuse_ended(await api.runs.find(run, grant.namespace))
        await boss.steer(run, _short(body.note), key=_short(body.key), by=api.name_of(grant))
        return json_response(RunAccepted(run), 202)

    _add_continuations(router, api)
    return router


def _add_continuations(router: APIRouter, api: ApiContext) -> None:
    """Add the routes that continue a run: with another budget, in this process, or in a new run."""
    boss = api.boss

    @router.post("/budget", **returns(RunAccepted, 202), **takes(BudgetBody))
    async def budget(request: Request, run: str, grant: Caller) -> Response:
        """Raise or lower the budget of a run. 409 if it has ended."""
        body = await body_of(request, BudgetBody)
        _refuse_ended(await api.runs.find(run, grant.namespace))
        await boss.change_budget(
            run, money=body.money, tokens=body.tokens, calls=body.calls, by=api.name_of(grant)
        )
        return json_response(RunAccepted(run), 202)

    @router.post("/resume", **returns(RunAccepted, 202), **takes(ResumeBody, required=False))
    async def resume(request: Request, run: str, grant: Caller) -> Response:
        """Go on with a run that was interrupted, in this process. 409 if it has ended."""
        body = await body_of(request, ResumeBody)
        _refuse_ended(await api.runs.find(run, grant.namespace))
        await api.begin(boss.resume(run, accept=body.accept), until=api.led_here(run))
        return json_response(RunAccepted(run), 202)

    @router.post("/retry", **returns(RunAccepted, 202), **takes(RetryBody, required=False))
    async def retry(request: Request, run: str, grant: Caller) -> Response:
        """Do failed tasks and items again, or the tasks that are named, in a new run that keeps the other results."""
        body = await body_of(request, RetryBody)
        record = await api.runs.find(run, grant.namespace)
        key = uuid.uuid4().hex
        new = run_id(key, grant.namespace)
        fork = boss.fork(
            run,
            redo=body.tasks or failed_tasks(record),
            repeat_effects=body.repeat_effects,
            key=key,
            namespace=grant.namespace,
            source=api.facts.source,
        )
        await api.begin(fork, until=api.led_here(new))
        return json_response(RunAccepted(new), 202)


def _returns_either() -> dict[str, Any]:
    told = returns(RunAccepted, 202)
    told["responses"][200] = returns(RunUnchanged)["responses"][200]
    return told


def _ended(record: RunRecord) -> str:
    """The final status of a run; empty if it has not ended."""
    status = record.live_run.schedule.status
    return "" if status is None else status.value


def _refuse_ended(record: RunRecord) -> None:
    if state := _ended(record):
        raise RunEnded(record.run, state)


def failed_tasks(record: RunRecord) -> list[str]:
    """The failed tasks and items that a fork must run again. Raises `UsageError` if none has failed.

    Tasks with `for_each` are left out, so that a fork keeps their other items. It runs the failed items of a failed
    task again anyway; those of a task that is done are named.
    """
    schedule = record.live_run.schedule
    failed = [
        id_
        for id_, node in schedule.nodes.items()
        if node.state is TaskState.FAILED and not is_system_task(id_)
    ]
    if not failed:
        raise UsageError(f"no task of run {record.run} has failed; name the tasks to do again")
    items = {id_: schedule.nodes[item[0]] for id_ in failed if (item := item_of(id_)) is not None}
    return [
        id_
        for id_ in failed
        if (items[id_].state is TaskState.DONE if id_ in items else id_ not in schedule.mapped)
    ]


def _short(text: str) -> str:
    if len(text) > LONGEST:
        raise UsageError(f"a text has {LONGEST:,} characters at most")
    return text
