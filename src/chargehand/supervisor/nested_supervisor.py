"""A supervisor as a worker of another one."""

import asyncio
from collections.abc import Awaitable, Callable

from chargehand.decisions.budget import NESTED, Account
from chargehand.engines.brief import Brief, Fenced, NestingHost
from chargehand.errors import RunInterrupted, UsageError
from chargehand.facts.events import AttemptHeldUp, AttemptWentOn, Effect
from chargehand.facts.on_question import WAITING
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.result import RunResult
from chargehand.roles.shared_resources import Resources
from chargehand.runtime import Runtime
from chargehand.supervisor.config import SupervisorConfig
from chargehand.supervisor.nested_requests import origin_of, outcome_from, terms_for
from chargehand.supervisor.requests import RunParent
from chargehand.supervisor.run_control import Run
from chargehand.supervisor.run_start import RunStart


class NestedSupervisor:
    """Leads a run of its own for each task that a supervisor gets on another's roster."""

    def __init__(
        self, name: str, plan_for: Callable[[Brief], Plan | str], config: SupervisorConfig
    ) -> None:
        self._name = name
        self._plan_for = plan_for
        self._config = config
        self._start = RunStart(config)
        self._runtimes = self._start.runtimes
        self._control = self._start.control

    async def lead_for(self, brief: Brief) -> Outcome:
        """Lead the run that a task of another supervisor asks for, or go on with it."""
        try:
            origin = origin_of(brief, self._name)
        except UsageError as error:
            return Failed(kind=ErrorClass.DENIED, message=str(error), error="TooDeep")
        request, is_over = self._plan_for(brief), False

        async def run(_: str) -> Done:
            nonlocal is_over
            result = await self._lead(request, brief, origin)
            is_over = True
            return Done(Value.of(result.id), result.usage)

        async def lead() -> Outcome:
            identity = [self._name, request, brief.tries]
            about = {"run": origin.run}
            await brief.durable(NESTED, identity, run, effect=Effect.KEYED, about=about)
            return outcome_from(await self._control.look(origin.run), self._name)

        leading = asyncio.create_task(lead())
        try:
            return await asyncio.shield(leading)
        except asyncio.CancelledError:
            if not is_over:  # else what the run has come to is only to be recorded
                leading.cancel()
            return await leading

    async def _lead(self, request: str | Plan, brief: Brief, origin: RunParent) -> RunResult:
        async with self._runtimes.at_work() as runtime:
            host = brief.host.nesting
            if host is not None:
                host.take_in(runtime)
            terms = terms_for(brief, self._config.runs.limits, self._config.clock.now())
            led: Run | None = None
            try:
                asking = WAITING if host is None else host.asking(brief.run).below
                led, written = await self._start.begin(
                    runtime, request, terms, origin, _account_above(brief, origin.run), asking
                )
                if host is not None:
                    await written  # what was answered meanwhile is taken in by then
                    runtime.runs.tell_above(
                        led.id, lambda waits: _tell_above(host, brief, waits=waits)
                    )
                return await led.wait()
            except (RunInterrupted, UsageError) as error:
                if not runtime.kernel.is_draining:
                    raise
                raise Fenced(str(error)) from error  # to be resumed with the run above
            except asyncio.CancelledError:
                if runtime.runs.leads(origin.run):
                    return await self._end(brief, runtime, origin.run)
                if led is not None and led.has_ended:  # in the same moment
                    return await led.wait()
                raise

    async def _end(self, brief: Brief, runtime: Runtime, run_id: str) -> RunResult:
        """The task above was told to stop: so is this run, in the same way. Returns what came of it."""
        ending = runtime.runs.ending(run_id)
        host = brief.host.nesting
        if host is not None and (brief.is_preempted or host.is_leaving(brief.run)):
            # To whoever goes on with the task above.
            await asyncio.shield(runtime.runs.let_go(run_id))
            raise Fenced("the task above is led no longer")
        if host is not None and (why := host.winding_up(brief.run)):
            told = f"task {brief.task.id} had to end: {why}"
            await asyncio.shield(self._control.answer_now(run_id, told))
            await asyncio.wait([ending], timeout=brief.limits.grace.total_seconds())
        if not ending.done():
            await asyncio.shield(self._control.cancel(run_id, f"task {brief.task.id} was stopped"))
        return self._control.result_of(run_id, await asyncio.shield(ending))


def work_below(
    name: str,
    plan_for: Callable[[Brief], Plan | str],
    config: SupervisorConfig,
    above: Resources,
) -> Callable[[Brief], Awaitable[Outcome]]:
    """What an attempt of a supervisor is on another's roster: a run of its own, on that one's journal."""
    nested: list[NestedSupervisor] = []

    async def perform(brief: Brief) -> Outcome:
        if not nested:
            below = config.below(above, brief.host)
            nested.append(NestedSupervisor(name, plan_for, below))
        return await nested[0].lead_for(brief)

    return perform


def _account_above(brief: Brief, run: str) -> Account | None:
    """What a run for this task spends counts there too, as it spends it."""
    host = brief.host.nesting
    account = None if host is None else host.account_of(brief.run)
    if account is not None:
        account.link(brief.task.id, run)
    return account


def _tell_above(host: NestingHost, brief: Brief, *, waits: bool) -> None:
    """Say whether all that is left of the run that this attempt leads waits for people."""
    kind = AttemptHeldUp if waits else AttemptWentOn
    host.post(brief.run, kind(task=brief.task.id, attempt=brief.attempt, at=host.clock.now()))
