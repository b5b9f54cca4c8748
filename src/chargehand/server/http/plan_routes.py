"""Routes for plans: read, check, change, approve.

A run that was submitted with `review_plan` asks a person to approve its plan, and later each change. An edited plan is
saved as a draft on the board of the run until it is approved.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Request
from msgspec import UNSET, Struct
from starlette.responses import Response

from chargehand.decisions.duration_estimates import Estimates
from chargehand.decisions.task_graph import ranks_of
from chargehand.errors import (
    BlockChanged,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    UsageError,
)
from chargehand.facts.events import Pace, PlanAmended
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan, Reach, find_cycle
from chargehand.facts.value import canonical, digest_of
from chargehand.journal.base import load_value
from chargehand.roles.for_each import unlistable_files
from chargehand.roles.plan_approval import ABOUT_PLAN, APPROVE, APPROVE_WITH, REJECT
from chargehand.roles.roster import Roster
from chargehand.server.http import run_views as views
from chargehand.server.http.access_tokens import Grant, Scope
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import Refusal, fault_json, json_response
from chargehand.server.http.openapi_schemas import body_of, returns, takes
from chargehand.server.http.question_routes import AnswerTaken, answered, taken_by
from chargehand.server.http.run_cache import RunRecord
from chargehand.sync_async_bridge import in_thread

#: label of the block on a run's board that contains the edited plan
DRAFT = "plan draft"
#: seconds to wait until the leader of a run has taken over a plan change
PATIENCE = 5.0


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A plan, as `Plan.to_json` writes it."""

    plan: dict[str, Any]
    #: stored with the change
    reason: str = ""


class ApproveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Approval of a plan; `version` is the ETag that was read, `plan` an edited one in place of the draft."""

    version: str | int | None = None
    plan: dict[str, Any] | None = None
    note: str = ""


class RejectBody(Struct, frozen=True, forbid_unknown_fields=True):
    """With a note, the plan is written again as it says; without one, the run fails, or the change is dropped."""

    version: str | int | None = None
    note: str = ""


class PlanTotals(Struct, frozen=True):
    """The size of a plan."""

    tasks: int
    #: length of the longest chain of tasks, and the largest number of tasks with the same depth
    depth: int
    width: int
    #: expected seconds; null if nothing is known
    estimate: float | None


class PlanCheck(Struct, frozen=True):
    """What is wrong with a plan, and how large it is."""

    faults: list[Any]
    warnings: list[Any]
    totals: PlanTotals


class PlanReview(Struct, frozen=True, kw_only=True):
    """What a person is to approve."""

    question: str
    #: the proposed plan; for a change, its new tasks
    plan: Any
    is_change: bool
    removed: list[str]
    replaced: list[str]
    reason: str
    #: the saved draft, if any
    draft: Any = None
    #: the text of the question
    text: str = ""


class PlanView(Struct, frozen=True, kw_only=True):
    """The plan of a run as it is now, and what is to be approved."""

    version: int
    #: to be sent with a change as If-Match, and with an approval as `version`
    etag: str
    plan: Any
    #: tasks that may be changed, because they were never started
    editable: list[str]
    versions: list[Any]
    review: PlanReview | None = None
    #: the last proposed plan, if the run has ended without a plan
    refused: PlanReview | None = None
    #: after a change: new task ids, by old ids
    renamed: Any = UNSET
    #: why an accepted change is not in the plan yet; otherwise empty
    pending: str = ""


def plan_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(tags=["plans"])

    @router.post("/plan/check", **returns(PlanCheck), **takes(PlanBody))
    async def check(request: Request, grant: Caller) -> Response:
        """Say what is wrong with a plan, without running it.

        Those who may submit runs are warned of files and tables that the plan names and that are not there.
        """
        body = await body_of(request, PlanBody)
        paces = await api.boss.paces()
        reach = await api.boss.reach() if grant.allows(Scope.OPERATE) else {}
        # In a thread, because checking a huge plan takes long and would block other requests.
        found = await in_thread(_check, body.plan, api.boss.roster, api.boss.limits, paces, reach)
        return json_response(found)

    @router.get("/runs/{run}/plan", **returns(PlanView))
    async def plan(run: str, grant: Caller) -> Response:
        """The plan of a run, with its version as ETag, and what is to be approved."""
        record = await api.runs.find(run, grant.namespace)
        return _shown(await _view(api, record))

    @router.put("/runs/{run}/plan", **_returns_changed(), **takes(PlanBody))
    async def change(
        request: Request,
        run: str,
        grant: Caller,
        if_match: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Change the unstarted part of a plan, or save a draft of one that is to be approved. Needs If-Match.

        202 if another process leads the run and has not taken the change yet: `pending` says so.
        """
        body = await body_of(request, PlanBody)
        record = await api.runs.find(run, grant.namespace)
        view, draft = await _view_and_draft(api, record)
        _refuse_stale(view, if_match)
        wanted = read_plan(body.plan)
        if view.review is not None and not view.review.is_change:
            return _shown(await _save_draft(api, record, wanted, view.review.question, draft))
        reason = body.reason or f"edited by {api.name_of(grant)}"
        changed = await _change(api, run, wanted, view.version, reason)
        return _shown(changed, 202 if changed.pending else 200)

    _add_approval_routes(router, api)
    return router


async def _change(api: ApiContext, run: str, wanted: Plan, version: int, reason: str) -> PlanView:
    """Change a plan and return it. Raises a refusal with the current plan if another change was first."""
    try:
        edit = await api.boss.control.change_plan(
            run, wanted, version=version, roster=api.boss.roster, reason=reason
        )
        change = None if edit.is_empty else edit.change
        changed, pending = await _wait_changed(api, run, change)
    except PlanChanged as error:
        current = await _view(api, await api.runs.records.read(run))
        raise _changed(str(error).partition("; ")[0], current) from None
    return msgspec.structs.replace(await _view(api, changed), renamed=edit.renamed, pending=pending)


def _returns_changed() -> dict[str, Any]:
    told = returns(PlanView)
    told["responses"][202] = returns(PlanView, 202)["responses"][202]
    return told


async def _wait_changed(
    api: ApiContext, run: str, change: PlanAmended | None
) -> tuple[RunRecord, str]:
    """Wait until the plan of a run contains a change. If it does not in time, also returns why.

    Raises `PlanChanged` if the leader of the run has refused the change.
    """
    journal = api.boss.journal
    words = "the process that leads the run has not taken the change yet; read the plan again"
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                known = journal.boards.signal.count
                # Read the inbox first: a command that is taken over meanwhile is then found among the events.
                letters = await journal.mail.unread()
                record = await api.runs.records.read(run)
                version = record.live_run.schedule.version
                if change is None:
                    return record, ""
                if version >= change.version:
                    if await _has_change(api, record, change):
                        return record, ""
                    raise PlanChanged(run, version)  # another change was first
                if not any(each.stream == run and each.subject == "amend" for each in letters):
                    raise PlanChanged(run, version)
                if (await api.runs.standing(record)).leader is None:
                    words = "no process leads the run now; the change is made when one resumes it"
                    return record, words
                await journal.boards.signal.wait(since=known)
    except TimeoutError:
        return await api.runs.records.read(run), words


async def _has_change(api: ApiContext, record: RunRecord, change: PlanAmended) -> bool:
    """Whether this change produced its version of the plan.

    The leader of the run has set another time in the event. If two people request the same change, it is true for both.
    """
    made = next((each for each in record.versions if each.version == change.version), None)
    if made is None:
        return False
    async for entry in api.boss.journal.read(record.run, made.seq - 1):
        event = entry.event
        if not isinstance(event, PlanAmended):
            return False
        ours = msgspec.json.decode(msgspec.json.encode(change), type=PlanAmended)
        return msgspec.structs.replace(ours, at=event.at) == event
    return False


def _check(
    data: dict[str, Any],
    roster: Roster,
    limits: Limits,
    paces: Mapping[str, Pace],
    reach: Mapping[str, Reach],
) -> PlanCheck:
    try:
        plan = read_plan(data)
    except UsageError as error:
        fault = {"task": "", "field": "", "kind": "not_a_plan", "message": str(error)}
        return PlanCheck([fault], [], PlanTotals(0, 0, 0, None))
    found = plan.check(roster.names, limits, reach=reach)
    return PlanCheck(
        [fault_json(each) for each in (*found.faults, *unlistable_files(plan.tasks, roster))],
        [fault_json(each) for each in found.warnings],
        totals_of(plan, Estimates(paces) if paces else None),
    )


def _add_approval_routes(router: APIRouter, api: ApiContext) -> None:
    @router.post(
        "/runs/{run}/plan/approve", **returns(AnswerTaken), **takes(ApproveBody, required=False)
    )
    async def approve(request: Request, run: str, grant: Caller) -> Response:
        """Have the proposed plan or change carried out, as it is or as it was edited."""
        body = await body_of(request, ApproveBody)
        record, review = await _review_of(api, run, grant, body.version)
        edited = body.plan if body.plan is not None else review.draft
        answer = APPROVE
        if edited is not None:
            plan = read_plan(edited)
            if not review.is_change:
                plan.refuse_faults(_names(api, record), record.live_run.schedule.limits)
            answer = f"{APPROVE_WITH}: {plan.to_json(indent=None)}"
        return await answered(api, review.question, answer, grant)

    @router.post(
        "/runs/{run}/plan/reject", **returns(AnswerTaken), **takes(RejectBody, required=False)
    )
    async def reject(request: Request, run: str, grant: Caller) -> Response:
        """Refuse the proposed plan; with a note, have it written again."""
        body = await body_of(request, RejectBody)
        _, review = await _review_of(api, run, grant, body.version)
        return await answered(api, review.question, body.note.strip() or REJECT, grant)


async def _review_of(
    api: ApiContext, run: str, grant: Grant, version: str | int | None
) -> tuple[RunRecord, PlanReview]:
    """What a person is asked to approve. Raises a refusal if there is nothing, or the version has changed."""
    record = await api.runs.find(run, grant.namespace)
    view = await _view(api, record)
    if view.review is None:
        raise await _nothing_to_approve(api, record)
    _refuse_stale(view, None if version is None else str(version), required=False)
    return record, view.review


def _names(api: ApiContext, record: RunRecord) -> set[str]:
    """The workers and skills that tasks of this run may name."""
    return api.boss.roster.limited_to(record.requested.workers).names


async def _nothing_to_approve(api: ApiContext, record: RunRecord) -> Refusal:
    """The error if nothing can be approved: it was answered already, or was never asked."""
    asked = [each for each in record.questions.values() if each.question.about == ABOUT_PLAN]
    if asked and asked[-1].answered is not None:
        known = asked[-1].answered
        return await taken_by(api, QuestionTaken(known.question, known.by, known.text))
    words = f"run {record.run} does not ask about a plan"
    return Refusal(409, "NothingToApprove", words, "submit it with review_plan=true")


def _open_question(record: RunRecord) -> Question | None:
    nodes = record.live_run.schedule.nodes.values()
    return next((n.question for n in nodes if n.question and n.question.about == ABOUT_PLAN), None)


async def _view(api: ApiContext, record: RunRecord) -> PlanView:
    """The current plan, and what is to be approved."""
    return (await _view_and_draft(api, record))[0]


async def _view_and_draft(api: ApiContext, record: RunRecord) -> tuple[PlanView, int]:
    """The current plan, and the version of the block with its draft; 0 if there is no draft."""
    question = _open_question(record)
    if question is not None and question.id in (await api.runs.standing(record)).answers:
        question = None  # answered, but the leader has not read the answer yet
    review, draft = (None, 0) if question is None else await _review(api, record, question)
    version = record.live_run.schedule.version
    plan: Any = views.plan_of(record)
    etag = str(version)
    if review is not None:
        etag = f"{version}-{digest_of(canonical([review.question, review.draft]))[:12]}"
        if plan is None:
            plan = review.draft if review.draft is not None else review.plan
    view = PlanView(
        version=version,
        etag=etag,
        plan=plan,
        editable=views.editable_tasks(record),
        versions=[
            {"version": each.version, "at": each.at, "reason": each.reason, "seq": each.seq}
            for each in record.versions
        ],
        review=review,
        refused=await _refused(api, record) if plan is None else None,
    )
    return view, draft


async def _refused(api: ApiContext, record: RunRecord) -> PlanReview | None:
    """The plan in the last question about a plan, if the run has ended."""
    asked = [each.question for each in record.questions.values()]
    about_plan = [each for each in asked if each.about == ABOUT_PLAN]
    if record.live_run.schedule.status is None or not about_plan:
        return None
    return (await _review(api, record, about_plan[-1]))[0]


async def _review(api: ApiContext, record: RunRecord, question: Question) -> tuple[PlanReview, int]:
    evidence = (await load_value(question.evidence, api.boss.journal.blobs)).read()
    draft = await api.boss.board(run=record.run).find(DRAFT)
    value = None if draft is None else draft.value
    is_of_this = isinstance(value, dict) and value.get("question") == question.id
    review = PlanReview(
        question=question.id,
        plan=evidence["plan"],
        is_change=evidence["is_change"],
        removed=list(evidence["removed"]),
        replaced=list(evidence["replaced"]),
        reason=evidence["reason"],
        draft=value["plan"] if is_of_this and value is not None else None,
        text=question.text,
    )
    return review, 0 if draft is None else draft.version


async def _save_draft(
    api: ApiContext, record: RunRecord, wanted: Plan, question: str, known: int
) -> PlanView:
    """Save a draft over its `known` version. Raises 409 if another draft was saved or the plan was decided on."""
    found = wanted.check(_names(api, record), record.live_run.schedule.limits)
    if found.faults:
        raise PlanRefused(found.faults)
    draft = {"question": question, "plan": msgspec.json.decode(wanted.to_json())}
    try:
        await api.boss.board(run=record.run).write(DRAFT, draft, expect=known)
    except BlockChanged:
        view = await _view(api, await api.runs.records.read(record.run))
        raise _changed("another draft of the plan was saved meanwhile", view) from None
    view = await _view(api, await api.runs.records.read(record.run))
    if view.review is None or view.review.question != question:
        raise _changed("the plan was decided on before this draft was saved", view)
    return view


def _refuse_stale(view: PlanView, given: str | None, *, required: bool = True) -> None:
    """Raise 409 if the plan has changed since it was read."""
    if given is None:
        if required:
            words = "name the version that you have read, in the header If-Match"
            raise Refusal(428, "VersionMissing", words, f"it is {view.etag} now")
        return
    if given.strip().removeprefix("W/").strip('"') not in (view.etag, "*"):
        raise _changed(f"the plan is at {view.etag} by now, not at {given[:60]}", view)


def _changed(words: str, current: PlanView) -> Refusal:
    hint = "read it again and repeat the change"
    return Refusal(409, "PlanChanged", words, hint, current=msgspec.to_builtins(current))


def _shown(view: PlanView, status: int = 200) -> Response:
    return json_response(view, status, headers={"etag": f'"{view.etag}"'})


def read_plan(data: dict[str, Any]) -> Plan:
    """Parse a plan. Raises `UsageError` with the position of the first error."""
    return Plan.from_json(msgspec.json.encode(data)).stored()


def totals_of(plan: Plan, estimates: Estimates | None) -> PlanTotals:
    """The size of a plan; depth and width are 0 if it contains a cycle."""
    tasks = {task.id: task for task in plan.tasks}
    if find_cycle(plan.tasks) or any(n.task == t.id for t in plan.tasks for n in t.all_needs):
        return PlanTotals(len(plan.tasks), 0, 0, None)
    needs = {
        id_: [n.task for n in task.all_needs if n.task in tasks] for id_, task in tasks.items()
    }
    ranks, ends = ranks_of(needs), dict[str, float]()
    for id_ in sorted(tasks, key=lambda id_: ranks[id_]):
        own = 0.0 if estimates is None else estimates.seconds(tasks[id_])
        ends[id_] = own + max((ends[need] for need in needs[id_]), default=0.0)
    levels = Counter(ranks.values())
    longest = None if estimates is None else max(ends.values(), default=0.0)
    width = max(levels.values(), default=0)
    return PlanTotals(len(plan.tasks), max(levels, default=-1) + 1, width, longest)
