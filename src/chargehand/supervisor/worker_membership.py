"""The workers of a supervisor: who is on the roster, who is drained, and which runtimes give them work."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from weakref import WeakSet

from msgspec import Struct

from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance, Dispatch, Starts
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import one_of
from chargehand.roles.roster import Member, Roster
from chargehand.runtime import Runtime


class PoolOptions(Struct, frozen=True, kw_only=True):
    """How attempts are spread over workers."""

    #: attempts at once over all runs
    parallel: int | Elastic
    balance: Balance | str = Balance.LEAST_BUSY
    #: when a worker that keeps failing is left alone
    breaker: BreakerPolicy | None = None
    #: how often an attempt may begin
    starts: Starts | None = None


class WorkerPool:
    """Workers that may join, drain and leave while runs are under way.

    One for a supervisor and for all that work in its name below others, so that a change reaches
    every runtime.
    """

    def __init__(self, roster: Roster, options: PoolOptions) -> None:
        self.roster = roster
        self._options = options
        self._balance = one_of(options.balance, Balance, "balance")
        self._runtimes: WeakSet[Runtime] = WeakSet()
        self._drained: set[str] = set()
        self.new_dispatch()  # refuses bad capacities now, not when the first run starts

    def new_dispatch(self, workers: Iterable[Member] | None = None) -> Dispatch:
        """A pool of these workers, or of the whole roster."""
        options = self._options
        dispatch = Dispatch(options.parallel, self._balance, options.breaker, options.starts)
        for worker in self.roster if workers is None else workers:
            dispatch.join(worker.place)
            if worker.name in self._drained:
                dispatch.drain(worker.name)
        return dispatch

    def serve(self, runtime: Runtime) -> None:
        """Tell this runtime of changes from now on."""
        self._runtimes.add(runtime)

    def member(self, name: str) -> Member:
        """The worker of this name. Raises `UsageError` if there is none."""
        member = self.roster.get(name)
        if member is None:
            have = ", ".join(each.name for each in self.roster) or "nobody"
            raise UsageError(f"worker {name!r} is not on the roster ({have})")
        return member

    def join(self, worker: Member) -> None:
        runtimes = self._live_runtimes()
        is_back = self.roster.get(worker.name) is worker and worker.name in self._drained
        if not is_back:
            self.roster.join(worker)
        try:
            self.new_dispatch([worker])  # refuses a bad capacity
            for runtime in runtimes:
                runtime.members.join(worker)
        except BaseException:
            if not is_back:
                self.roster.leave(worker.name)
            raise
        self._drained.discard(worker.name)

    def drain(self, name: str) -> None:
        self.member(name)
        for runtime in self._live_runtimes():
            runtime.members.drain(name)
        self._drained.add(name)

    async def leave(self, name: str, grace: timedelta) -> None:
        self.member(name)
        runtimes = self._live_runtimes()
        self.roster.leave(name)
        self._drained.discard(name)
        await asyncio.gather(*(runtime.members.leave(name, grace) for runtime in runtimes))

    def _live_runtimes(self) -> list[Runtime]:
        runtimes = [each for each in self._runtimes if not each.is_gone]
        for runtime in runtimes:
            runtime.refuse_other_loop()
        return runtimes
