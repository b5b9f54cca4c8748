"""When a supervisor is at work: from the first run that needs it until the last caller has gone."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self
from weakref import WeakSet

from chargehand.clock import Clock
from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance, Dispatch, Starts
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.kernel import Kernel
from chargehand.decisions.retry import RetryPolicy
from chargehand.errors import WrongLoop
from chargehand.facts.argument_checks import Duration, duration
from chargehand.facts.limits import Limits
from chargehand.journal.base import Journal
from chargehand.notify.run_notices import RunNotices
from chargehand.roles.resources import Resources
from chargehand.roles.roster import Member, Roster
from chargehand.run_archive import PastPaces
from chargehand.runtime import Hooks, Runtime
from chargehand.supervisor.requests import RequestBuilder

#: what running attempts have left when the supervisor is stopped gently
GRACE = timedelta(seconds=30)


class Runtimes:
    """Starts a runtime when the first run needs one, and stops it when the last caller has gone."""

    _journal: Journal
    _clock: Clock
    _retry: RetryPolicy | None
    #: of the journal, if it was opened by path
    _path: str | os.PathLike[str] | None
    _is_closed: bool
    #: in its `async with`: a program that serves, and can bring answers
    _is_entered: bool
    #: while there is one at work
    _runtime: Runtime | None
    roster: Roster
    limits: Limits
    _resources: Resources
    _notices: RunNotices | None
    _parallel: int | Elastic
    _starts: Starts | None
    _balance: Balance
    _breaker: BreakerPolicy | None
    _requests: RequestBuilder
    _hooks: Hooks
    _experience: PastPaces
    #: this one, and those of what works below others in its name
    _runtimes: WeakSet[Runtime]
    _drained: set[str]
    _users: int

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[Runtime]:
        runtime = await self._enter()
        try:
            yield runtime
        finally:
            self._leave(runtime)
            if not self._users:
                await runtime.closed()
                await self._send_notices()

    async def _enter(self) -> Runtime:
        runtime = self._runtime
        if runtime is not None:
            self._refuse_other_loop(runtime)
        else:
            from chargehand.engines.function_import import refuse_while_loading

            refuse_while_loading()
            runtime = self._runtime = Runtime(
                Kernel(self._new_dispatch(), self._retry),
                self._journal,
                self.roster,
                self._resources,
                self._clock,
                self._hooks,
            )
            self._runtimes.add(runtime)
        self._users += 1
        return runtime

    def _refuse_other_loop(self, runtime: Runtime) -> None:
        if runtime.loop is not asyncio.get_running_loop():
            raise WrongLoop(
                "this supervisor is at work in another event loop; "
                "await it there, or make a second supervisor on the same journal"
            )

    def _leave(self, runtime: Runtime) -> None:
        self._users -= 1
        if not self._users:
            self._runtime = None
            runtime.close()

    def _new_dispatch(self, workers: Iterable[Member] | None = None) -> Dispatch:
        """A pool of these workers, or of the whole roster."""
        dispatch = Dispatch(self._parallel, self._balance, self._breaker, self._starts)
        for worker in self.roster if workers is None else workers:
            dispatch.join(worker.place)
            if worker.name in self._drained:
                dispatch.drain(worker.name)
        return dispatch

    async def stop(self, grace: Duration = GRACE) -> None:
        """Stop gently: start nothing new, give what runs `grace` to end, leave the rest resumable."""
        runtime = self._runtime
        if runtime is not None:
            await runtime.drain(duration(grace, "grace", may_be_zero=True))

    async def close(self) -> None:
        """Let go of the journal, if this supervisor opened it. `async with` does it at its end."""
        await self._send_notices()
        if self._path is not None:
            self._is_closed = True
            await self._journal.close()

    async def _send_notices(self) -> None:
        """Let notices that are under way be sent before the event loop may end, for a few seconds."""
        if self._notices is not None:
            await self._notices.settle()

    async def __aenter__(self) -> Self:
        await self._enter()
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        if error is not None:
            await self.stop()  # whatever waits for a person would keep the error from being heard
        runtime = self._runtime
        if runtime is not None:
            self._is_entered = False
            runtime.leave_waiting()
            self._leave(runtime)
            await runtime.closed()
        await self.close()
