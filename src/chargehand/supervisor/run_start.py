"""How runs are begun and taken up."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress

from msgspec.structs import replace

from chargehand.decisions.budget import Account, all_runs_below
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.run_fork import ForkChanges, ForkPlan, effects_in, fork_plan
from chargehand.decisions.system_tasks import is_system_task
from chargehand.errors import NotBegun, NotLeading, RosterMismatch, UnknownRun, UsageError
from chargehand.facts.events import Approach, RunFinished, RunRequested, RunStatus
from chargehand.facts.on_question import WAITING, Asking
from chargehand.facts.output_schema import shape_of
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.past_runs import fold, is_known
from chargehand.result import earlier_of
from chargehand.roles.roster import Member, changed_workers, differences, versions
from chargehand.runtime import BegunRun, Runtime
from chargehand.runtime.command_inbox import Submission
from chargehand.runtime.run_leader import written_already
from chargehand.supervisor.config import SupervisorConfig
from chargehand.supervisor.requests import RequestBuilder, RunOptions, RunParent
from chargehand.supervisor.run_control import Run, RunControl
from chargehand.supervisor.shared_runtime import Runtimes
from chargehand.sync_async_bridge import in_thread

log = logging.getLogger("chargehand")

#: characters of a warning in the log
LONGEST = 300
#: seconds in which another process that leads a run must have written its first events
PATIENCE = 5.0


class RunStart:
    """Begins runs, and takes up those that others have left."""

    def __init__(self, config: SupervisorConfig) -> None:
        runs = config.runs
        self._config = config
        self._roster = config.workers.roster
        self.requests = RequestBuilder(self._roster, config.resources, config.clock, runs)
        #: where runs are led
        self.runtimes = Runtimes(config, self.requests.refuse_unkept)
        #: looks at runs, whoever leads them
        self.control = RunControl(
            config.journal, self.runtimes, config.clock, runs.retry, self.requests
        )
        if (
            not config.is_nested
        ):  # what is below shares the hooks, and was checked with what is above
            if runs.default:
                config.workers.member(runs.default)  # refuses one who is not there
            config.hooks.setdefault(RunFinished, []).append(
                lambda _, event: config.paces.hear(event)
            )

    @property
    def _journal(self) -> Journal:
        return self._config.journal.current

    async def begin(
        self,
        runtime: Runtime,
        request: str | Plan,
        terms: RunOptions,
        origin: RunParent | None = None,
        above: Account | None = None,
        asking: Asking = WAITING,
    ) -> tuple[Run, Awaitable[object]]:
        """Start a run, or join the one that has its key; also what to await for it to be durable."""
        requested, plan = await self.request(request, terms, origin)
        run_id, shape = requested.run, terms.get("output")
        key = terms.get("key") or (origin.run if origin is not None else "")
        if not key:
            self._refuse_unusable_model(requested)
            leading = await runtime.opener.begin(requested, plan, asking=asking)
            assert leading is not None  # noqa: S101 - for the type checker: a new id is nobody's
            return Run(run_id, self.control, leading.ending, shape), leading.written
        claim = runtime.opener.claim(run_id)
        async with AsyncExitStack() as claimed:
            await claimed.enter_async_context(claim)
            if not await is_known(self._journal, requested, plan, key):
                self._refuse_unusable_model(requested)
                try:
                    leading = await runtime.opener.begin(
                        requested, plan, may_exist=True, above=above, asking=asking
                    )
                except NotLeading:  # another process begins it just now
                    if not await self._is_soon_known(requested, plan, key):
                        raise
                    leading = None
                if leading is not None:
                    # Only once it is written does the next caller with this key find the run.
                    claimed.pop_all()
                    leading.written.add_done_callback(lambda _: claim.release())
                    return Run(run_id, self.control, leading.ending, shape), leading.written
                await is_known(self._journal, requested, plan, key)  # another process was faster
        return await self.rejoin(
            runtime, run_id, accept=asking.accepts, above=above, asking=asking, shape=shape
        )

    async def _is_soon_known(self, requested: RunRequested, plan: Plan | None, key: str) -> bool:
        """Wait a few seconds for the process that leads the keyed run to record it; returns whether it did."""
        signal = self._journal.boards.signal
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    known = signal.count
                    if await is_known(self._journal, requested, plan, key):
                        return True
                    await signal.wait(since=known)
        return False

    async def fork_plan(self, run_id: str, at: int | None, changes: ForkChanges) -> ForkPlan:
        """What a fork of this run would keep and what it would do anew."""
        try:
            events = [entry.event async for entry in self._journal.read(run_id)]
        except UnknownRun:
            if await self.control.submission(run_id) is None:
                raise
            raise NotBegun(run_id) from None
        first = events[0] if events else None
        if isinstance(first, RunRequested) and first.members:
            now = self._roster.members(self._config.resources)
            changes = replace(changes, workers=changed_workers(first.members, now))
        fork = fork_plan(run_id, events, at, changes)
        effects = dict(fork.effects)
        for task, nested in fork.nested.items():
            if below := await self._effects_below(nested):
                effects[task] = (*effects.get(task, ()), *below)
        return replace(fork, effects=effects)

    async def _effects_below(self, run: str) -> list[str]:
        try:
            events = [entry.event async for entry in self._journal.read(run)]
        except UnknownRun:
            return []
        found = list(effects_in(events))
        for below in all_runs_below(events):
            found += await self._effects_below(below)
        return found

    async def fork(
        self, runtime: Runtime, fork: ForkPlan, terms: RunOptions, asking: Asking = WAITING
    ) -> tuple[Run, Awaitable[object]]:
        """Start a run that takes over what this plan of a fork says."""
        for option in ("after", "reuse", "approach"):
            if terms.get(option):
                raise UsageError(f"fork takes no {option}=…: it goes on from the run that it forks")
        parent = fork.requested
        inherited = RunOptions(limits=parent.limits, priority=parent.priority)
        if parent.shape is not None:
            inherited["output"] = parent.shape
        if parent.workers:
            inherited["workers"] = parent.workers
        origin = RunParent(earlier=parent.earlier, taint=parent.taint, fork=fork)
        return await self.begin(runtime, fork.plan, {**inherited, **terms}, origin, asking=asking)

    async def rejoin(
        self,
        runtime: Runtime,
        run_id: str,
        *,
        accept: bool,
        above: Account | None = None,
        asking: Asking = WAITING,
        shape: object = None,
    ) -> tuple[Run, Awaitable[object]]:
        """Wait for a run that is led here, lead one that was left, or read one that has ended."""
        async with runtime.opener.claim(run_id):
            if runtime.runs.leads(run_id):
                ending = runtime.runs.ending(run_id)
                return Run(run_id, self.control, ending, shape), written_already()
            try:
                live_run = await fold(self._journal, run_id, self._config.runs.retry)
            except UnknownRun:
                if (waiting := await self.control.submission(run_id)) is None:
                    raise
                begun = await self._take_up(runtime, waiting, asking)
                return Run(run_id, self.control, begun.ending, shape), begun.written
            if live_run.schedule.status is None:
                _refuse_pooled(live_run)
                # Before it is led: a run that was led and let go of again is not taken over by itself.
                self.check_roster(live_run, accept=accept)
                self._refuse_unusable_model(live_run.schedule.requested)
            else:
                ended: asyncio.Future[LiveRun] = runtime.loop.create_future()
                ended.set_result(live_run)
                return Run(run_id, self.control, ended, shape), written_already()
            leading = await runtime.opener.take_over(
                run_id, lambda live_run: self.check_roster(live_run, accept=accept), above, asking
            )
        return Run(run_id, self.control, leading.ending, shape), leading.written

    async def _take_up(self, runtime: Runtime, waiting: Submission, asking: Asking) -> BegunRun:
        """Lead a run that was submitted and that nobody has taken up."""
        run = waiting.requested.run
        if lacking := waiting.lacking(self._roster.digest, self._roster.names):
            raise RosterMismatch(
                f"run {run} cannot be led by this supervisor: {lacking}; resume it with the crew that it was "
                "submitted with (at the command line: --crew FILE.py:NAME, or --crew FILE.toml)"
            )
        self._refuse_unusable_model(waiting.requested)
        begun = await runtime.opener.begin(
            waiting.requested, waiting.plan, may_exist=True, mail=waiting.mail, asking=asking
        )
        if begun is None:
            raise NotLeading(f"run {run} was just started by another process; follow it there")
        return begun

    def _refuse_unusable_model(self, requested: RunRequested | None) -> None:
        """Raise if the supervisor's own model cannot be opened and the run is sure to need it.

        Otherwise the work would be done first, and only the answer would fail.
        """
        if requested is None:
            return
        is_planned = not requested.approach.is_given and self._config.runs.planner is None
        if is_planned or requested.answers or requested.refines:
            self._config.resources.check_openable()

    async def request(
        self, request: str | Plan, terms: RunOptions, origin: RunParent | None = None
    ) -> tuple[RunRequested, Plan | None]:
        """The event that begins the run, and its plan if it came with one; or why it is refused."""
        terms = self.requests.checked(terms)
        if isinstance(request, str):
            request = str.__str__(request)  # a subclass has no JSON form
        after = terms.get("after")
        if after:
            origin = RunParent(earlier=await self._earlier(after))
        default = self._config.runs.default
        if default and terms.get("approach") == Approach.ROUTE:
            terms = {"default": default, **terms}
        paces = await self._config.paces.paces(self._journal)
        accepted = self.requests.accept(request, terms, paces, origin or RunParent())
        if accepted[1] is not None and any(map(has_tools, self._roster)):
            await self._warn_of_unreachable(accepted[1])
        return accepted

    async def _warn_of_unreachable(self, plan: Plan) -> None:
        """Say that a plan names files or tables which are not there."""
        from chargehand.roles.crew_data_catalog import reach_of

        reach = await reach_of(self._roster, self._config.resources.redactor)
        for warning in plan.unreachable(reach):
            log.warning("plan_warning %s", str(warning)[:LONGEST])

    async def plan(self, request: str, terms: RunOptions) -> Plan:
        """The plan that a run would carry out for this request."""
        from chargehand.roles.durable_model_calls import PlainModelCaller
        from chargehand.roles.planner import write_plan

        checked = self.requests.checked(terms)
        self.requests.check_words(request)
        after = checked.get("after")
        earlier = await self._earlier(after) if after else None
        limits = checked.get("limits") or self._config.runs.limits
        caller = PlainModelCaller(self._config.resources)
        shape = shape_of(checked.get("output"))
        roster = self._roster.limited_to(checked.get("workers") or ())
        return await write_plan(caller, request, roster, limits, earlier, shape)

    async def _earlier(self, run_id: str) -> Value:
        """What a request that goes on from this run is to know of it."""
        result = await self.control.look(run_id)
        if not isinstance(result.status, RunStatus):
            raise UsageError(f"run {run_id} has not ended; wait for it, or resume it first")
        return await in_thread(earlier_of, result)

    def check_roster(self, live_run: LiveRun, *, accept: bool) -> None:
        """Raise `RosterMismatch` if this supervisor cannot lead the run, or not as it was begun."""
        schedule = live_run.schedule
        unsettled = [node.task for node in schedule.nodes.values() if not node.state.is_settled]
        lacking = self._roster.lacks(task for task in unsettled if not is_system_task(task.id))
        if lacking:
            raise RosterMismatch(
                f"the run needs {', '.join(lacking)}, which this supervisor lacks; resume it with the "
                "supervisor that began it (at the command line: --crew FILE.py:NAME, or --crew FILE.toml)"
            )
        requested = schedule.requested
        if requested is None:
            return
        if requested.answers and not self._config.resources.has_model:
            raise RosterMismatch("the run was begun with a model; Supervisor(…, model=…) to go on")
        now = self._roster.members(self._config.resources)
        crew = (
            schedule.accepted or requested
        )  # what a person has accepted once needs no second word
        if crew.members and now:
            changed = differences(crew.members, now)
        else:
            is_same = crew.crew == self._roster.digest
            changed = [] if is_same else ["names, descriptions or skills differ"]
        if requested.members and now:
            live_run.versions = versions(requested.members, now)
        if changed and accept:
            live_run.accepted = (self._roster.digest, now)
        elif changed:
            raise RosterMismatch(
                f"the roster has changed since the run began: {'; '.join(changed)}. To continue with the new one, pass "
                "--accept (in Python, resume(…, accept=True))"
            )


def _refuse_pooled(live_run: LiveRun) -> None:
    """Raise for a run that is nobody's to lead."""
    requested = live_run.schedule.requested
    if requested is not None and requested.approach is Approach.POOL:
        raise UsageError(
            f"run {requested.run} belongs to a pool: nobody leads it, its workers take its tasks; "
            f"go on with WorkerAgent(…, SharedMemoryPool(…)).get_assigned_tasks()"
        )


def has_tools(worker: Member) -> bool:
    return bool(len(getattr(worker, "toolbox", ())))
