"""Planning again, after a failure or because a person wants it. What is finished is never touched."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from chargehand.decisions.system_tasks import STEER, of_plan
from chargehand.engines.brief import Brief
from chargehand.errors import Fault, StepMismatch, WorkerError
from chargehand.facts.events import PlanAmended, RunRequested
from chargehand.facts.outcome import NOTHING_DONE, Outcome
from chargehand.facts.plan import Check, Plan, Reach, Task
from chargehand.models.base import Turn, system, user
from chargehand.roles import plan_drafts
from chargehand.roles.crew_data_catalog import blocks_of, reach_of, remembered_material
from chargehand.roles.data_fences import asked, request_again, with_notes
from chargehand.roles.durable_model_calls import DurableModelCaller
from chargehand.roles.json_reply_check import one_of, record
from chargehand.roles.plan_approval import reviewed_change
from chargehand.roles.prompts import prompt
from chargehand.roles.run_so_far import RunSummary, Seen, situation_of
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext

#: faults of any change, whatever is in it
_POINTLESS = {"ended", "too_many_replans"}


async def replan(
    brief: Brief, seat: PlanningContext, resources: Resources, requested: RunRequested
) -> Outcome:
    """Have tasks written that make up for what failed, or that do what a person's note wants.

    Without any, the run goes on with what it has.
    """
    situation = await situation_of(brief, seat)
    is_steered = brief.task.args["because"] == STEER
    change = _Change(brief, seat, situation, requested, is_steered=is_steered)
    if seat.live_run.schedule.version > situation.version:
        return NOTHING_DONE  # changed just before the process ended that planned it
    hindrance = change.hindrance()
    if hindrance:
        brief.progress(f"the plan stays as it is: {hindrance}")
        return NOTHING_DONE
    earlier = await seat.bring(requested.earlier)
    blocks = await blocks_of(brief)
    told = await remembered_material(
        brief, seat.roster, requested.request, resources.redactor, blocks
    )
    change.reach = await reach_of(seat.roster, resources.redactor)

    async def written(notes: Sequence[str] = ()) -> PlanAmended:
        request = with_notes(requested.request, notes)
        wanted = asked(request, earlier.read(), requested.shape)
        draft = await plan_drafts.drafted(
            DurableModelCaller(brief, resources),
            change.prompt,
            change.turns(resources, f"{told.fenced}{wanted}{situation.in_words()}"),
            change.schema,
            change.faults_in,
            f"Answer with the corrected JSON alone.\n{request_again(request)}",
        )
        if not change.changes(draft):
            raise WorkerError(draft.reason or "nothing can be made up for")
        return change.event(draft)

    try:
        event = await written()
        if requested.reviews:
            event = await reviewed_change(brief, seat, event, written, change.faults_of)
    except StepMismatch:
        raise
    except WorkerError as error:
        brief.progress(f"the plan stays as it is: {error}")
        return NOTHING_DONE
    event = change.without_ended(event)
    if not (event.added or event.removed):
        brief.progress("the plan stays as it is: what was to be removed has ended meanwhile")
    elif await seat.propose(event) is None:
        why = next((each.message for each in change.faults_of(event)), "the run has moved on")
        brief.progress(f"the plan stays as it is: {why}")
    return NOTHING_DONE


class _Change:
    """A change of the plan in the making, and what it is held to."""

    def __init__(
        self,
        brief: Brief,
        seat: PlanningContext,
        situation: RunSummary,
        requested: RunRequested,
        *,
        is_steered: bool,
    ) -> None:
        self.prompt = "steer" if is_steered else "replan"
        self._brief = brief
        self._is_steered = is_steered
        self._seat = seat
        self._situation = situation
        self._bounds = plan_drafts.Bounds(seat.roster, requested.limits)
        used = of_plan(seat.live_run.schedule.nodes)
        room = min(requested.limits.tasks - len(used), plan_drafts.MOST)
        self._ids = plan_drafts.fresh_ids(room, used)
        #: the files and tables that each worker can reach
        self.reach: Mapping[str, Reach] = {}

    def hindrance(self) -> str:
        """Why no change at all can be made; empty if one can."""
        if not self._ids and not self._is_steered:
            return f"there is no room for further tasks ({self._bounds.limits.tasks} are the cap)"
        faults = self._seat.live_run.schedule.check_amendment(
            self.event(plan_drafts.WrittenPlan(tasks=[]))
        )
        return next((fault.message for fault in faults if fault.kind in _POINTLESS), "")

    @property
    def schema(self) -> dict[str, Any]:
        usable = [task.id for task in (*self._situation.done, *self._situation.open)]
        lost = [task.id for task in self._situation.lost]
        open_ = [task.id for task in self._situation.open]
        # Only a person may have something taken out of the plan, and only what is not done.
        removed = {"removed": {"type": "array", "items": one_of(open_)}}
        return record(
            reason={"type": "string", "description": "what is done otherwise now, and why"},
            replaced={"type": "array", "items": one_of(lost)},
            **(removed if self._is_steered else {}),
            tasks=plan_drafts.tasks_schema(self._bounds, self._ids, [*usable, *self._ids]),
        )

    def turns(self, resources: Resources, data: str) -> Sequence[Turn]:
        words = prompt(
            self.prompt,
            resources.prompts,
            roster=self._bounds.lines,
            first=next(iter(self._ids), "none"),
            most=str(len(self._ids)),
        )
        return system(words), user(f"Plan what is to be done now.\n{data}")

    def event(self, written: plan_drafts.WrittenPlan) -> PlanAmended:
        return PlanAmended(
            version=self._situation.version + 1,
            added=tuple(each.task for each in written.tasks),
            removed=tuple(dict.fromkeys(written.removed)) if self._is_steered else (),
            replaced=tuple(dict.fromkeys(written.replaced)),
            reason=written.reason,
            is_steered=self._is_steered,
            taint=self._brief.taint,  # what it reads may be what speaks from the tasks it writes
            at=self._seat.now(),
        )

    def changes(self, written: plan_drafts.WrittenPlan) -> bool:
        """Whether it comes to any change of the plan."""
        change = self.event(written)
        return bool(change.added or change.removed)

    def faults_in(self, written: plan_drafts.WrittenPlan) -> list[Fault]:
        """All that speaks against this change; nothing does if it changes nothing."""
        if not self.changes(written):
            return []
        if too_many := self._bounds.too_many(written.tasks):
            return too_many
        tasks = [each.task for each in written.tasks]
        check = self._check(tasks)
        refused = self.faults_of(self.event(written))
        done = {_gist(task): task.id for task in self._situation.done}
        repeats = [
            Fault("repeated", task.id, f"{done[_gist(task)]} has done this; need it instead")
            for task in tasks
            if _gist(task) in done
        ]
        found = [*check.warnings, *refused, *repeats]
        return list({(fault.kind, fault.task): fault for fault in found}.values())

    def faults_of(self, event: PlanAmended) -> list[Fault]:
        """What forbids this change, whoever wrote it."""
        faults = self._check(event.added).faults
        own = [fault for fault in faults if fault.kind not in ("dangling_need", "no_tasks")]
        now = self.without_ended(event)
        return [*own, *self._seat.live_run.schedule.check_amendment(now)]

    def without_ended(self, event: PlanAmended) -> PlanAmended:
        """The change without the removal of tasks that have ended since: what is done stays."""
        nodes = self._seat.live_run.schedule.nodes
        ended = {task.id for task in self._situation.open if nodes[task.id].state.is_settled}
        return replace(event, removed=tuple(id_ for id_ in event.removed if id_ not in ended))

    def _check(self, tasks: Sequence[Task]) -> Check:
        plan = Plan(goal="", tasks=tasks)
        return plan.check(self._bounds.workers, reach=self.reach, in_order=True)


def _gist(task: Task | Seen) -> tuple[str, str]:
    return task.worker, " ".join(task.description.split()).casefold()
