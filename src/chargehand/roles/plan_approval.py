"""Plan review (human in the loop): a person approves, edits or rejects a plan before it is carried out.

After the first plan, only changes of it are asked about: what was approved stays approved.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engines.brief import Brief
from chargehand.errors import Fault, UsageError, WorkerError
from chargehand.facts.events import PlanAmended
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.roles.system_task_context import PlanningContext

ABOUT_PLAN = "plan"
APPROVE, REJECT, APPROVE_WITH = "approve", "reject", "approve with"
HOW_TO_ANSWER = (
    f"Answer {APPROVE!r}, {REJECT!r}, '{APPROVE_WITH}: <the plan as JSON>' to have it as you changed it, "
    "or say what should be different."
)
#: said of a plan that comes back as it was
UNCHANGED = " Your note has changed nothing in it: change it yourself, or say it in other words. "


class PlanProposal(Struct, frozen=True, kw_only=True):
    """What a person is shown, as the evidence of the question."""

    #: the whole plan; of a change, its new tasks
    plan: Plan
    #: of a change: ids of tasks that are taken out, or made up for
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    reason: str = ""
    #: a plan was approved before; only this differs
    is_change: bool = False


class Reviewed(Struct, frozen=True):
    """What a person has decided."""

    plan: Plan
    is_approved: bool = True
    #: what should be different, in the person's words
    note: str = ""


async def review(
    brief: Brief,
    seat: PlanningContext,
    proposal: PlanProposal,
    faults_in: Callable[[Plan], Sequence[Fault]],
    said: list[str],
    before: PlanProposal | None = None,
) -> Reviewed:
    """Have a person decide on a plan. One that was edited and has faults comes back with them.

    `before` is what was sent back with a note: if that has changed nothing, the person is told. `said` is what the
    person has answered so far: a plan that comes back unchanged is another question, or the old answer would be
    taken for it without end.
    """
    told = UNCHANGED if proposal == before else ""
    while True:
        answer = brief.answer_to(await _question(brief, seat, proposal, told, said))
        if answer == APPROVE:
            return Reviewed(proposal.plan)
        if answer == REJECT:
            return Reviewed(proposal.plan, is_approved=False)
        said.append(answer)
        if not answer.startswith(f"{APPROVE_WITH}:"):
            return Reviewed(proposal.plan, is_approved=False, note=answer)
        try:
            edited = Plan.from_json(answer.removeprefix(f"{APPROVE_WITH}:").strip())
        except UsageError as error:
            told = _fault_words([Fault("not_a_plan", "", str(error))])
            continue
        # What a person edited may still hold the words of whoever wrote it.
        edited = replace(edited, taint=proposal.plan.taint)
        faults = faults_in(edited)
        if not faults:
            return Reviewed(edited)
        proposal, told = replace(proposal, plan=edited), _fault_words(faults)


async def reviewed_plan(
    brief: Brief,
    seat: PlanningContext,
    first: Plan,
    write_again: Callable[[Sequence[str]], Awaitable[Plan]],
    faults_in: Callable[[Plan], Sequence[Fault]],
) -> Plan:
    """The plan that a person approves. It is written again with each wish; a plan that is rejected raises."""
    notes: list[str] = []
    said: list[str] = []
    plan = first
    before: PlanProposal | None = None
    while True:
        proposal = PlanProposal(plan=plan)
        decided = await review(brief, seat, proposal, faults_in, said, before)
        before = proposal
        if decided.is_approved:
            return decided.plan
        if not decided.note:
            raise WorkerError("a person rejected the plan", kind="denied")
        notes.append(decided.note)
        plan = await write_again(notes)


async def reviewed_change(
    brief: Brief,
    seat: PlanningContext,
    first: PlanAmended,
    write_again: Callable[[Sequence[str]], Awaitable[PlanAmended]],
    faults_in: Callable[[PlanAmended], Sequence[Fault]],
) -> PlanAmended:
    """The change that a person approves. It is written again with each wish; one that is rejected raises."""
    notes: list[str] = []
    said: list[str] = []
    change = first
    before: PlanProposal | None = None
    while True:
        proposal = PlanProposal(
            plan=Plan(goal="", tasks=change.added, version=change.version, taint=change.taint),
            removed=change.removed,
            replaced=change.replaced,
            reason=change.reason,
            is_change=True,
        )

        def edited(plan: Plan, change: PlanAmended = change) -> PlanAmended:
            return replace(change, added=tuple(plan.tasks), at=seat.now())

        decided = await review(
            brief, seat, proposal, lambda plan: faults_in(edited(plan)), said, before
        )
        before = proposal
        if decided.is_approved:
            return edited(decided.plan)
        if not decided.note:
            raise WorkerError("a person rejected the change", kind="denied")
        notes.append(decided.note)
        change = await write_again(notes)


def _fault_words(faults: Sequence[Fault]) -> str:
    told = "".join(f"\n  - {fault}" for fault in faults)
    return f" What you sent has faults:{told}\n"


async def _question(
    brief: Brief,
    seat: PlanningContext,
    proposal: PlanProposal,
    told: str,
    said: Sequence[str],
) -> Question:
    what = "change of the plan" if proposal.is_change else "plan"
    count = len(proposal.plan.tasks)
    tasks = f"{count} task{'' if count == 1 else 's'}"
    evidence: dict[str, Any] = msgspec.to_builtins(proposal)
    # Of all that is shown, and was answered before: an answer is valid for exactly this plan, once.
    digest = digest_of(canonical([evidence, told, *said]))
    return Question(
        id=brief.question_id(f"plan-{digest}"),
        text=f"May this {what} of {tasks} be carried out?{told or ' '}{HOW_TO_ANSWER}",
        about=ABOUT_PLAN,
        evidence=await seat.store(Value.of(evidence)),
        taint=brief.taint,
    )
