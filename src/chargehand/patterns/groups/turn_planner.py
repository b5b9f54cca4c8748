"""Plans the turns of a group according to its manager, counts them, and reads the minutes."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from reprlib import repr as repr_of
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from chargehand.decisions.dispatch import Place
from chargehand.decisions.group_conversation import SpokenTurn
from chargehand.decisions.rule_answer import done_in
from chargehand.decisions.system_tasks import STEER, of_plan
from chargehand.decisions.taint_sources import sources_in, sources_of
from chargehand.engines.brief import Brief
from chargehand.errors import (
    ChargehandError,
    InternalError,
    StepMismatch,
    UnknownRun,
    WorkerError,
)
from chargehand.facts.board import LEADER
from chargehand.facts.events import PlanAdopted, PlanAmended
from chargehand.facts.outcome import NOTHING_DONE, Done, ErrorClass, Failed, Outcome, failed_by
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.value import Value
from chargehand.journal.base import Journal, load_value
from chargehand.past_runs import fold
from chargehand.patterns.groups.background_agent import BackgroundAgent
from chargehand.patterns.groups.managers import Act, Manager, TurnAssignment
from chargehand.patterns.groups.messages import (
    CLOSING,
    MINUTES,
    USER,
    Buffer,
    Message,
    Talk,
    needs_of,
    read_talk,
)
from chargehand.patterns.groups.shared_blocks import GroupBoard, shown
from chargehand.patterns.groups.worker_as_member import GroupContext
from chargehand.roles.board import BriefBoard
from chargehand.roles.durable_model_calls import DurableModelCaller, ModelCaller
from chargehand.roles.function_worker import Where
from chargehand.roles.plan_drafts import NO_MORE, fresh_ids
from chargehand.roles.run_so_far import remembered
from chargehand.roles.shared_resources import ModelChoice, Resources
from chargehand.roles.system_task_context import PlanningContext

#: the tag of notes about runs, and the label of the counter, on the group's own board
RUN, TURNS = "run", "@turns"


class TurnPlanner(Struct, frozen=True):
    """Plans the conversation of one group: the manager decides, and each turn becomes a task of the plan."""

    circle: GroupContext
    manager: Manager
    buffer: Buffer
    beside: BackgroundAgent | None
    #: turns between two background runs
    every: int

    async def plan(self, brief: Brief, seat: PlanningContext, resources: Resources) -> Outcome:
        """The `@plan` system tasks in the run of a group: adds the next turns to the plan.

        Adds nothing when the conversation is over, which ends the run.
        """
        try:
            return await self._go_on(brief, seat, resources)
        except StepMismatch:
            raise
        except WorkerError as error:
            # A manager that failed after two corrections would fail again in a retry.
            return Failed(
                kind=ErrorClass(error.kind),
                stack="" if error.__cause__ is None else failed_by(error.__cause__).stack,
                message=f"the conversation broke off: {error}",
                error="ManagerFailed",
                is_final=error.kind == ErrorClass.LOGIC,
            )

    async def _go_on(self, brief: Brief, seat: PlanningContext, resources: Resources) -> Outcome:
        talk = await self._talk(brief, seat)
        if seat.live_run.schedule.version > talk.version or brief.task.args.get("because") == STEER:
            # Decided just before a crash; or a steering note, which the next turn will contain.
            return NOTHING_DONE
        if talk.is_closed:  # the manager has given its answer
            return NOTHING_DONE
        board = brief.board
        if not isinstance(board, BriefBoard):
            raise InternalError("a group is planned where there is no board")
        if talk.version:
            await self._count(board, brief, talk)
        elif before := await self._begin(board, brief, seat):
            return await self._add(brief, seat, talk, [self._minutes(before)])
        if self.manager.thinks:
            blocks = GroupBoard(self.circle.blocks, self.manager.name, board, LEADER)
            talk = replace(talk, blocks=await shown(blocks, resources.prompts))

        def think() -> ModelCaller:
            own = Resources(model=self.manager.model, settings=self.manager.settings)
            return DurableModelCaller(brief, own.below(resources))

        act = await self._decision(talk, think)
        if act is None:
            return NOTHING_DONE
        if act.answer is not None:
            return await self._add(brief, seat, talk, [self._closing(act.answer, talk)])
        ids = fresh_ids(len(act.assignments), [each.task for each in talk.spoken])
        turns = [self._turn(act, talk, id_, place) for place, id_ in enumerate(ids)]
        return await self._add(brief, seat, talk, turns)

    async def _decision(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        """The decision of the manager, which may be the user's own code. Raises `WorkerError` if it is no decision."""
        choose = f"choose of manager {self.manager.name!r}"
        try:
            act = await self.manager.choose(talk, think)
            fact = "" if act is None else self._objection(act)
        except ChargehandError:
            raise
        except Exception as error:
            failed = failed_by(error)
            raise WorkerError(
                f"{choose} failed: {failed.error}: {failed.message}", kind=failed.kind
            ) from error
        if fact:
            raise WorkerError(f"{choose}: {fact}")
        return act

    def _objection(self, act: object) -> str:
        """Why this cannot be carried out; empty if it can."""
        if not isinstance(act, Act):
            return f"{repr_of(act)} is not an Act; return an Act, or None to end the conversation"
        if act.answer is None and not act.assignments:
            return "the Act assigns nothing; give it assignments or an answer, or return None to end the conversation"
        assignments: Sequence[object] = act.assignments
        for each in assignments:
            if not isinstance(each, TurnAssignment):
                return f"{repr_of(each)} assigns nothing; give TurnAssignment(MEMBER, MESSAGE)"
            if each.to not in self.circle.members:
                return f"{each.to!r} is not a member; there are {', '.join(self.circle.members)}"
        return ""

    async def _talk(self, brief: Brief, seat: PlanningContext) -> Talk:
        """The conversation at the start of this system task. A step records its extent; the messages are read again."""

        async def look() -> Any:
            schedule = seat.live_run.schedule
            notes = seat.live_run.results.notes
            return {"version": schedule.version, "first": len(schedule.nodes), "notes": notes}

        then = await remembered(brief, "talk", look)
        members = self.circle.members
        talk = await read_talk(seat.live_run, members, self.buffer, seat.bring, first=then["first"])
        told = [spoken.task for spoken in talk.held]
        brief.distrust(*sources_of(seat.live_run, *told, *([MINUTES] if talk.has_minutes else [])))
        return replace(talk, version=then["version"], notes=then["notes"])

    async def _begin(self, board: BriefBoard, brief: Brief, seat: PlanningContext) -> list[str]:
        """Prepare the blocks and record the run; returns the earlier runs of the group, newest first."""
        await self.circle.blocks.prepare(lambda name: board.named(name, LEADER))
        own = board.named(self.circle.blocks.home, LEADER)
        notes = await own.notes(tags=[RUN], limit=self.buffer.most)
        await own.post(brief.run, tags=[RUN])
        requested = seat.live_run.schedule.requested
        after = [] if requested is None or not requested.after else [requested.after]
        return [*dict.fromkeys([*after, *(note.content for note in notes)])]

    async def _count(self, board: BriefBoard, brief: Brief, talk: Talk) -> None:
        """Count the turns of the group, and start a background run after every `every` turns."""
        fresh = sum(each.turn.round == talk.rounds for each in talk.spoken)
        if not fresh:
            return
        own = board.named(self.circle.blocks.home, LEADER)
        counted = await own.update(TURNS, lambda old: (old or 0) + fresh)
        is_due = counted.value // self.every > (counted.value - fresh) // self.every
        if self.beside is not None and is_due:
            await self.beside.begin(board, brief.run, len(talk.spoken))

    def _minutes(self, runs: Sequence[str]) -> Task:
        """The task that reads the earlier conversation; it is optional."""
        return Task(
            id=MINUTES,
            description="Read what was said before",
            worker=self.manager.name,
            args={"runs": [*runs]},
            optional=True,
        )

    def _closing(self, answer: str, talk: Talk) -> Task:
        """The task with the answer of the manager; it needs all turns, also hidden ones."""
        return Task(
            id=CLOSING,
            description="Give the answer of the group",
            worker=self.manager.name,
            args={CLOSING: answer},
            needs=tuple(Need(each.task, optional=True) for each in talk.spoken),
        )

    def _turn(self, act: Act, talk: Talk, id_: str, place: int) -> Task:
        """A turn as a task: the message, and the shown messages as its needs."""
        assigned = act.assignments[place]
        heard = [each for each in talk.spoken if each.speaker == assigned.to]
        failed = [s for s in heard if s.value is None and s.asked.startswith(assigned.message)]
        # Differs from the failed task with the same message.
        again = f" (asked again after {failed[-1].task})" if failed else ""
        turn = SpokenTurn(
            turn=len(talk.spoken) + 1 + place,
            round=talk.rounds + 1,
            sender=act.sender,
            reply_to=act.reply_to,
            folded=talk.folded,
            token=act.token,
        )
        return Task(
            id=id_,
            description=f"{assigned.message}{again}",
            worker=assigned.to,
            needs=needs_of(talk),
            args=to_builtins(turn),
        )

    async def _add(
        self, brief: Brief, seat: PlanningContext, talk: Talk, tasks: Sequence[Task]
    ) -> Outcome:
        schedule = seat.live_run.schedule
        most = schedule.limits.tasks
        if len(of_plan(schedule.nodes)) + len(tasks) > most:
            raise WorkerError(f"{most} tasks are the cap; raise Limits(tasks=…)")
        if not talk.version:
            plan = Plan(goal=talk.request, tasks=tasks, taint=brief.taint)
            written = await seat.propose(PlanAdopted(plan=plan, at=seat.now()))
        else:
            change = PlanAmended(
                version=talk.version + 1,
                added=tuple(tasks),
                is_step=True,
                taint=brief.taint,
                at=seat.now(),
            )
            if faults := schedule.check_amendment(change):
                raise WorkerError("; ".join(map(str, faults)))
            written = await seat.propose(change)
        return NO_MORE if written is None else NOTHING_DONE


class ManagerMember:
    """The manager of a group as a worker on its roster: gives the answer, and reads the minutes."""

    where = Where.HERE
    skills: tuple[str, ...] = ()
    timeout: timedelta | None = None

    def __init__(self, circle: GroupContext, manager: Manager, buffer: Buffer) -> None:
        self.name = manager.name
        self.description = f"Leads the group {circle.name}"
        self.model: ModelChoice | None = manager.model
        self.place = Place(worker=self.name)
        self._buffer = buffer

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        return ""

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:  # noqa: ARG002 - likewise
        return self._perform

    async def _perform(self, brief: Brief) -> Outcome:
        if CLOSING in brief.args:
            return Done(Value.of(brief.args[CLOSING], brief.taint))
        return Done(Value.of(await self._minutes(brief, brief.args["runs"]), brief.taint))

    async def _minutes(self, brief: Brief, runs: Sequence[str]) -> list[dict[str, Any]]:
        """The newest messages of these runs, in order, as far as the buffer allows. `runs` is newest first."""
        host = brief.host.nesting
        if host is None:
            raise InternalError(f"{self.name} has no journal to read the minutes from")
        journal = host.journal
        messages: list[Message] = []
        for run in runs:
            if len(messages) <= self._buffer.most:
                messages = [*await self._said(journal, brief, run), *messages]
        kept = messages[len(messages) - self._buffer.held(len(messages)) :]
        return [{"from": each.sender, "to": each.to, "said": each.content} for each in kept]

    async def _said(self, journal: Journal, brief: Brief, run: str) -> list[Message]:
        bring = partial(load_value, blobs=journal.blobs)
        try:
            live_run = await fold(journal, run, None)
        except UnknownRun:
            return []  # deleted since
        brief.distrust(*sources_in(live_run))
        said = (await read_talk(live_run, {}, self._buffer, bring, whole=True)).messages()
        for id_ in done_in(live_run.schedule.nodes):
            task = live_run.schedule.nodes[id_].task
            # The task of a run that was not a group conversation.
            if SpokenTurn.of(task) is None and task.id not in (
                MINUTES,
                CLOSING,
            ):
                output = (await bring(live_run.results.outputs[id_])).read()
                said.append(Message(sender=task.worker, to=(USER,), content=output, task=id_))
        return said
