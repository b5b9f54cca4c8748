"""A supervisor as a worker of another one."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import cast

from chargehand.clock import Clock
from chargehand.decisions.budget import NESTED, Account
from chargehand.engines.brief import Brief, Fenced
from chargehand.errors import RunInterrupted, UsageError
from chargehand.facts.events import Effect
from chargehand.facts.on_question import WAITING
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.result import RunResult
from chargehand.roles.resources import Resources
from chargehand.runtime import Runtime
from chargehand.supervisor.nested_runs import origin_of, outcome_from, terms_for
from chargehand.supervisor.requests import RequestBuilder, RunParent
from chargehand.supervisor.run_start import RunStart


class NestedSupervisor(RunStart):
    """A supervisor on another's roster: leads a run of its own for each task it gets there."""

    name: str
    _plan_for: Callable[[Brief], Plan | str]

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        """None: what a run of its own comes to is not for others to take over."""
        return ""

    def refuse_unpriced(self, resources: Resources) -> None:
        """Raise `UsageError` if a cap on money above could not be kept here."""
        below = self._resources.below(resources)
        RequestBuilder(self.roster, below, self.limits, self._clock).refuse_unpriced()

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """What an attempt of this supervisor is on another's roster: a run of its own, on that one's journal."""
        deputies: list[NestedSupervisor] = []

        async def perform(brief: Brief) -> Outcome:
            if not deputies:
                deputies.append(self._deputy(resources, brief))
            return await deputies[0].lead_for(brief)

        return perform

    def _deputy(self, resources: Resources, brief: Brief) -> "NestedSupervisor":
        """This supervisor as it works below another: on the same journal, through the same gateway."""
        deputy = copy.copy(self)
        deputy._resources = self._resources.below(resources)
        if brief.host is not None:
            deputy._clock = cast("Clock", brief.host.clock)
            if self._path is None:
                deputy._journal = cast("Journal", brief.host.journal)
        deputy._hooks = dict(self._hooks)
        deputy._notices = None  # whoever is above waits for what is to be sent, at its very end
        policy = self._requests.on_failure
        deputy._requests = RequestBuilder(
            self.roster, deputy._resources, self.limits, deputy._clock, policy
        )
        deputy._runtime, deputy._users = None, 0
        return deputy

    async def lead_for(self, brief: Brief) -> Outcome:
        """Lead the run that a task of another supervisor asks for, or go on with it."""
        try:
            origin = origin_of(brief, self.name)
        except UsageError as error:
            return Failed(kind=ErrorClass.DENIED, message=str(error), error="TooDeep")
        request = self._plan_for(brief)

        async def run(_: str) -> Done:
            result = await self._lead_nested(request, brief, origin)
            return Done(Value.of(result.id), result.usage)

        identity = [self.name, request, brief.tries]
        about = {"run": origin.run}
        await brief.durable(NESTED, identity, run, effect=Effect.KEYED, about=about)
        return outcome_from(await self.look(origin.run), self.name)

    async def _lead_nested(self, request: str | Plan, brief: Brief, origin: RunParent) -> RunResult:
        async with self._at_work() as runtime:
            if brief.host is not None:
                brief.host.take_in(runtime)
            terms = terms_for(brief, self.limits, self._clock.now())
            try:
                asking = WAITING if brief.host is None else brief.host.asking(brief.run).below
                run, written = await self._begin(
                    runtime, request, terms, origin, _account_above(brief, origin.run), asking
                )
                host = brief.host
                if host is not None:
                    await written  # what was answered meanwhile is taken in by then
                    runtime.tell_above(run.id, lambda held: host.hold_up(brief, is_held_up=held))
                return await run.wait()
            except (RunInterrupted, UsageError) as error:
                if not runtime.kernel.is_draining:
                    raise
                raise Fenced(str(error)) from error  # to be resumed with the run above
            except asyncio.CancelledError:
                if runtime.leads(origin.run):
                    return await self._end_nested(brief, runtime, origin.run)
                raise

    async def _end_nested(self, brief: Brief, runtime: Runtime, run_id: str) -> RunResult:
        """The task above was told to stop: so is this run, in the same way. Returns what came of it."""
        ending = runtime.ending(run_id)
        host = brief.host
        if host is not None and (brief.is_preempted or host.is_leaving(brief.run)):
            await asyncio.shield(runtime.let_go(run_id))  # to whoever goes on with the task above
            raise Fenced("the task above is led no longer")
        if host is not None and host.is_winding_up(brief.run):
            await asyncio.shield(self.answer_now(run_id, f"task {brief.task.id} had to end"))
            await asyncio.wait([ending], timeout=brief.limits.grace.total_seconds())
        if not ending.done():
            await asyncio.shield(self.cancel(run_id, f"task {brief.task.id} was stopped"))
        return self.result_of(run_id, await asyncio.shield(ending))


def _account_above(brief: Brief, run: str) -> Account | None:
    """What a run for this task spends counts there too, as it spends it."""
    host = brief.host
    account = None if host is None else cast("Account | None", host.account_of(brief.run))
    if account is not None:
        account.link(brief.task.id, run)
    return account
