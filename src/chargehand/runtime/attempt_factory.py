"""The attempt factory turns a decision to start a task into an attempt that an engine can run."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from chargehand.clock import Clock
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.system_tasks import (
    ANSWERER,
    COLLECTOR,
    LISTER,
    PLANNER,
    REFINER,
    is_hedge,
    is_system_task,
)
from chargehand.decisions.taint_sources import sources_of
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.engines.base import Ending, Job, outcome_in_thread, outcome_of
from chargehand.engines.brief import AttemptHost, Brief, PlanningHost
from chargehand.engines.local_engine import Threads
from chargehand.errors import InternalError, JournalError, UsageError
from chargehand.facts.on_question import WAITING, Asking, OnQuestion
from chargehand.facts.outcome import Done, ErrorClass, Failed, failed_by
from chargehand.facts.plan import ITEM, Need, Task, item_id, item_of
from chargehand.facts.scheduler_commands import StartAttempt
from chargehand.facts.value import Value, canonical, digest_of, part_of
from chargehand.journal.base import Blobs, load_value, store_value
from chargehand.roles.function_worker import FunctionWorker, Where
from chargehand.roles.json_reply_check import objection_to
from chargehand.roles.roster import Member, Roster
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext, SystemTask

if TYPE_CHECKING:
    from chargehand.engines.child_processes import Children

#: failed items that are named to a task that needs their results, at most
MOST_FAILED_ITEMS = 20


class PlanningCrew(NamedTuple):
    """What the supervisor's own tasks go by."""

    #: the workers that a plan may name
    roster: Roster
    #: plans in place of a model
    planner: SystemTask | None = None


class AttemptFactory:
    """Knows workers, and where the work of each is done: on the loop, in threads, in children.

    Without a crew there are no system tasks: a pool has none.
    """

    def __init__(
        self,
        workers: Iterable[Member],
        resources: Resources,
        blobs: Blobs,
        clock: Clock,
        parallel: int,
        crew: PlanningCrew | None = None,
    ) -> None:
        self._crew = crew
        self._resources = resources
        self._blobs = blobs
        self._clock = clock
        self._threads = Threads(parallel)
        self._flights = _Flights()
        #: who may still be at work: it leaves here later than it leaves the roster
        self._members: dict[str, Member] = {}
        self._works: dict[str, Callable[[Job], Awaitable[Ending]]] = {}
        self._versions: dict[str, str] = {}
        self._children: dict[str, Children] = {}
        for worker in workers:
            self.join(worker)

    def join(self, worker: Member) -> None:
        """Have work of this worker done here from now on."""
        self._works[worker.name] = self._work_of(worker)
        self._versions[worker.name] = worker.version(self._resources)
        self._members[worker.name] = worker

    def __contains__(self, name: str) -> bool:
        return name in self._members

    async def leave(self, name: str) -> None:
        """Let go of a worker that has nothing to do any more."""
        del self._works[name], self._versions[name], self._members[name]
        children = self._children.pop(name, None)
        if children is not None:
            await children.close()

    def fit(self, name: str, size: int) -> None:
        """A worker may do so many things at once from now on."""
        children = self._children.get(name)
        if children is not None:
            children.fit(size)

    async def close(self) -> None:
        """Let go of threads and children."""
        self._threads.close()
        await asyncio.gather(*(children.close() for children in self._children.values()))

    def _brief_of(
        self, start: StartAttempt, live_run: LiveRun, host: AttemptHost, asking: Asking
    ) -> tuple[Brief, dict[str, Value]]:
        """All that the worker of an attempt is to know, and the inputs among it."""
        node = live_run.schedule.nodes[start.task]
        task = node.task
        results = live_run.results
        values: dict[str, Value] = {}
        missing: dict[str, str] = {}
        told = node.taint
        for need in task.all_needs:
            value = results.outputs.get(need.task)
            if value is None:
                missing[need.key] = _why_missing(live_run.schedule.nodes[need.task])
                told += sources_of(live_run, need.task)
            else:
                values[need.key] = value
                missing |= _failed_items(live_run.schedule, need)
        item = results.item_of(start.task)
        if item is not None:
            values[ITEM] = item
        brief = Brief(
            start.run,
            task,
            start.attempt,
            start.worker,
            values,
            host,
            missing=missing,
            log=results.steps.get(start.task),
            answers=results.answers,
            limits=live_run.schedule.limits,
        )
        requested = live_run.schedule.requested
        if requested is not None:
            brief.depth = requested.depth
            told = requested.taint + told
        if told:
            brief.distrust(*told)
        brief.tries, brief.has_parked = node.tries, node.parks > 0
        brief.earlier = results.earlier
        brief.is_capped = live_run.account is not None
        brief.can_ask = asking.can_ask
        brief.gives_up = asking.on_outage is OnQuestion.FAIL
        if asking.by_model:
            from chargehand.roles.question_answerer import ModelAnswerer

            brief.answerer = ModelAnswerer(self._resources)
        return brief, values

    def job(
        self, start: StartAttempt, live_run: LiveRun, host: AttemptHost, asking: Asking = WAITING
    ) -> Job:
        """The attempt that was decided on, with all that its worker is to know."""
        brief, values = self._brief_of(start, live_run, host, asking)
        task, requested = brief.task, live_run.schedule.requested
        if is_system_task(start.worker):
            return Job(brief, self._duty_of(start.worker, live_run, host.planning))
        member = self._members[start.worker]
        brief.shares_board = getattr(member, "shared_board", None)
        leads = member.where is Where.HERE
        if leads:
            brief.ends_at = live_run.schedule.work_ends_at(start.task)
        elif hasattr(member, "model"):
            ends_at = live_run.schedule.work_ends_at(start.task)
            if ends_at is not None:
                left = (ends_at - self._clock.now()).total_seconds()
                brief.waits_until = asyncio.get_running_loop().time() + left
        timeout = task.limits.timeout or member.timeout
        if requested is not None and (kept := live_run.kept.get(start.task)) is not None:
            return Job(brief, _handing_over(kept), timeout, reused=requested.reuses)
        version = self._versions[start.worker]
        if not version or brief.missing:
            return Job(brief, self._works[start.worker], timeout, leads_run=leads)
        key = _key_of(task, version, values)
        known = live_run.reusable.get(key)
        if known is None or requested is None:
            work = self._works[start.worker]
            # LLM workers are not deterministic; a function says whether it is.
            is_shared = isinstance(member, FunctionWorker) and not is_hedge(start.task)
            return Job(brief, self._flights.shared(key, work) if is_shared else work, timeout, key)
        return Job(brief, _handing_over(known), timeout, key, requested.reuses)

    def _work_of(self, worker: Member) -> "Callable[[Job], Awaitable[Ending]]":
        """The function that the engine is handed: what an attempt of this worker is."""
        function = worker.work(self._resources)
        match worker.where:
            case Where.LOOP | Where.HERE:

                def call(job: Job) -> "Awaitable[object]":
                    return cast("Awaitable[object]", function(job.brief))
            case Where.THREAD:
                return self._attempt(partial(outcome_in_thread, self._threads.call, function))
            case Where.PROCESS:
                from chargehand.engines.child_processes import Children, importable

                children = self._children[worker.name] = Children(
                    importable(function),
                    worker.place.most or 1,
                    memory=getattr(worker, "memory", None),
                    cpu=getattr(worker, "cpu", None),
                )

                def call(job: Job) -> "Awaitable[object]":
                    return children.call(job.brief, job)

        return self._attempt(partial(outcome_of, call))

    def _duty_of(
        self, system_task: str, live_run: LiveRun, host: PlanningHost | None
    ) -> "Callable[[Job], Awaitable[Ending]]":
        """What the supervisor does itself, as an attempt like any other."""
        if self._crew is None:
            raise InternalError(f"{system_task} is to be done where nobody leads the run")
        planner = self._crew.planner if system_task == PLANNER else None
        perform = planner or _duty(system_task)
        requested = live_run.schedule.requested
        roster = self._crew.roster.limited_to(() if requested is None else requested.workers)
        context = PlanningContext(live_run, roster, self._clock.now, self._blobs, host)
        call = partial(outcome_of, lambda job: perform(job.brief, context, self._resources))
        return self._attempt(call, is_own=True)

    def _attempt(
        self, call: "Callable[[Job], Awaitable[Ending]]", *, is_own: bool = False
    ) -> "Callable[[Job], Awaitable[Ending]]":
        async def work(job: Job) -> Ending:
            brief = job.brief
            if (brief.values and not is_own) or brief.log is not None:
                try:
                    await self._fetch(brief)
                except Exception as error:  # noqa: BLE001 - a missing part or blob fails the attempt
                    return failed_by(error)
            shape = None if is_own else brief.task.output  # now: its worker may change its brief
            outcome = await call(job)
            if shape is not None and type(outcome) is Done:
                outcome = _shaped(outcome, shape)
            if type(outcome) is Done and outcome.value.is_large:
                return await self.spill(outcome)
            return outcome

        return work

    async def _fetch(self, brief: Brief) -> None:
        """Bring what lies in blobs: the inputs, and the results of steps that are replayed."""
        values: dict[str, Value] = {}
        for need in brief.task.all_needs:
            value = brief.values.get(need.key)
            if value is not None:
                brought = await load_value(value, self._blobs) if value.blob else value
                values[need.key] = part_of(brought, need.output, need.task)
        if ITEM in brief.values and brief.index is not None:
            item = brief.values[ITEM]
            values[ITEM] = await load_value(item, self._blobs) if item.blob else item
        brief.values = values
        for record in brief.log.lineage.values() if brief.log is not None else ():
            if isinstance(record.outcome, Done) and record.outcome.value.blob:
                value = await load_value(record.outcome.value, self._blobs)
                brief.bring(msgspec.structs.replace(record, outcome=Done(value)))

    async def spill(self, done: Done) -> Done | Failed:
        """Put a large result into a blob; without room for it, the attempt has failed."""
        try:
            return msgspec.structs.replace(done, value=await store_value(done.value, self._blobs))
        except JournalError as error:
            return failed_by(error)


class _Flights:
    """Runs equal work that overlaps in time only once, and shares the result."""

    def __init__(self) -> None:
        #: by key: the run that it is done for, and what comes of it; None: nothing
        self._open: dict[str, tuple[str, asyncio.Future[Done | None]]] = {}

    def shared(
        self, key: str, work: "Callable[[Job], Awaitable[Ending]]"
    ) -> "Callable[[Job], Awaitable[Ending]]":
        """This work, or the result of the same work that somebody has begun before."""

        async def wait_or_work(job: Job) -> Ending:
            while (flight := self._open.get(key)) is not None:
                run, landing = flight
                done = await asyncio.shield(landing)  # others may wait for it too
                if done is not None:
                    job.reused = run
                    return Done(done.value, gaps=done.gaps)
            return await self._lead(key, work, job)

        return wait_or_work

    async def _lead(self, key: str, work: "Callable[[Job], Awaitable[Ending]]", job: Job) -> Ending:
        landing: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        self._open[key] = (job.run, landing)
        done: Done | None = None
        try:
            ending = await work(job)
            done = ending if type(ending) is Done else None
            return ending
        finally:
            # However it ends: whoever waits for it goes on, with its result or by itself.
            del self._open[key]
            landing.set_result(done)


def _duty(name: str) -> SystemTask:
    # Imported when the first run asks for it: a run of a given plan needs none of this.
    if name == PLANNER:
        from chargehand.roles.planner import plan

        return plan
    if name == REFINER:
        from chargehand.roles.task_rewriter import refine

        return refine
    if name == LISTER:
        from chargehand.roles.for_each import list_items

        return list_items
    if name == COLLECTOR:
        from chargehand.roles.for_each import collect

        return collect
    if name == ANSWERER:
        from chargehand.roles.aggregate import compose_answer

        return compose_answer
    raise InternalError(f"there is no duty {name!r}")


def _key_of(task: Task, version: str, values: Mapping[str, Value]) -> str:
    """The same for the same words and inputs to the same worker, model and tools."""
    rests_on = [
        task.description,
        task.args,
        task.accept,
        task.output,
        [(need.key, need.output, values[need.key].digest) for need in task.all_needs],
        version,
    ]
    if item_of(task.id) is not None:
        rests_on.append(values[ITEM].digest)
    return digest_of(canonical(rests_on))


def _shaped(done: Done, schema: dict[str, Any]) -> Done | Failed:
    """The result, if it has the shape that the task asks for, whoever brought it."""
    try:
        objection = objection_to(bytes(done.value.json).decode(), schema)[1]
    except UsageError as error:  # of plans from before their schemas were checked
        objection = f"The schema of the task is faulty: {error}"
    if objection is None:
        return done
    why = objection.removesuffix(" Answer with the corrected JSON alone.")
    return Failed(
        kind=ErrorClass.LOGIC,
        message=why.replace("The answer", "The result", 1),
        error="ResultRefused",
        usage=done.usage,
    )


def _handing_over(recorded: Done | Failed) -> "Callable[[Job], Awaitable[Ending]]":
    async def work(_: Job) -> Ending:
        return recorded

    return work


def _failed_items(schedule: Schedule, need: Need) -> dict[str, str]:
    """What a task is told of the items of one it needs that came to nothing: the first of them."""
    lost: dict[str, str] = {}
    for index in range(schedule.mapped.get(need.task, 0)):
        node = schedule.nodes[item_id(need.task, index)]
        if node.state is not TaskState.DONE:
            lost[f"{need.key}[{index}]"] = _why_missing(node)
            if len(lost) == MOST_FAILED_ITEMS:
                break
    return lost


def _why_missing(node: TaskNode) -> str:
    if node.cause is not None:
        return str(node.cause)
    return f"{node.task.id} is {node.state.value}"
