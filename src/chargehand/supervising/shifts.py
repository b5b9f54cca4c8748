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
from chargehand.decisions.breaker import BreakerPolicy
from chargehand.decisions.desk import Desk
from chargehand.decisions.dispatch import Balance, Dispatch, Starts
from chargehand.decisions.elastic import Elastic
from chargehand.decisions.retry import RetryPolicy
from chargehand.errors import WrongLoop
from chargehand.facts.checks import Duration, duration
from chargehand.facts.limits import Limits
from chargehand.intake import Intake
from chargehand.journal.base import Journal
from chargehand.notify.notices import Notices
from chargehand.records import Experience
from chargehand.roles.office import Office
from chargehand.roles.roster import Member, Roster
from chargehand.shift import Hooks, Shift

#: what running attempts have left when the supervisor is stopped gently
GRACE = timedelta(seconds=30)


class Shifts:
    """Goes on shift when the first run needs it, and off when the last caller has gone."""

    _journal: Journal
    _clock: Clock
    _retry: RetryPolicy | None
    #: of the journal, if it was opened by path
    _path: str | os.PathLike[str] | None
    _is_closed: bool
    #: in its `async with`: a program that serves, and can bring answers
    _is_entered: bool
    #: while there is one at work
    _shift: Shift | None
    roster: Roster
    limits: Limits
    _office: Office
    _notices: Notices | None
    _parallel: int | Elastic
    _starts: Starts | None
    _balance: Balance
    _breaker: BreakerPolicy | None
    _intake: Intake
    _hooks: Hooks
    _experience: Experience
    #: this one, and those of what works below others in its name
    _shifts: WeakSet[Shift]
    _drained: set[str]
    _users: int

    @asynccontextmanager
    async def _on_shift(self) -> AsyncIterator[Shift]:
        shift = await self._enter()
        try:
            yield shift
        finally:
            self._leave(shift)
            if not self._users:
                await shift.closed()
                await self._send_notices()

    async def _enter(self) -> Shift:
        shift = self._shift
        if shift is not None:
            self._refuse_other_loop(shift)
        else:
            from chargehand.engines.target import refuse_while_loading

            refuse_while_loading()
            shift = self._shift = Shift(
                Desk(self._new_dispatch(), self._retry),
                self._journal,
                self.roster,
                self._office,
                self._clock,
                self._hooks,
            )
            self._shifts.add(shift)
        self._users += 1
        return shift

    def _refuse_other_loop(self, shift: Shift) -> None:
        if shift.loop is not asyncio.get_running_loop():
            raise WrongLoop(
                "this supervisor is at work in another event loop; "
                "await it there, or make a second supervisor on the same journal"
            )

    def _leave(self, shift: Shift) -> None:
        self._users -= 1
        if not self._users:
            self._shift = None
            shift.close()

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
        shift = self._shift
        if shift is not None:
            await shift.drain(duration(grace, "grace", may_be_zero=True))

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
        shift = self._shift
        if shift is not None:
            self._is_entered = False
            shift.leave_waiting()
            self._leave(shift)
            await shift.closed()
        await self.close()
