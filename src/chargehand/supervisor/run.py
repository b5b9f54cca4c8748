"""A run in the hands of whoever submitted it."""

import asyncio
from collections.abc import Callable

from chargehand.decisions.live_run import LiveRun
from chargehand.result import RunResult
from chargehand.supervisor.run_control import RunControl


class Run:
    """A run under way: `await run.wait()` for its result."""

    def __init__(
        self, id_: str, boss: RunControl, ending: "asyncio.Future[LiveRun]", shape: object = None
    ) -> None:
        self.id = id_
        self._boss = boss
        self._ending = ending
        self._shape = shape

    async def wait(self) -> RunResult:
        """The result, once the run has ended. Raises `RunInterrupted` if the supervisor stops first.

        With `on_question="return"`, also once all that is left waits for a person: its `status` is
        then `waiting`, its `questions` are open, and `resume` goes on.
        """
        live_run = await asyncio.shield(self._ending)
        if live_run.schedule.status is None:
            return await self._boss.look(self.id)
        return self._boss.result_of(self.id, live_run, self._shape)

    def when_ended(self, then: Callable[[], None]) -> None:
        """Have `then` called once the run has ended or was interrupted."""
        self._ending.add_done_callback(lambda _: then())

    def refuse_broken(self) -> None:
        """Raise what broke the run off, if something did."""
        if self._ending.done():
            self._ending.result()

    async def cancel(self, reason: str = "") -> None:
        await self._boss.cancel(self.id, reason)

    async def pause(self, reason: str = "") -> None:
        await self._boss.pause(self.id, reason)

    async def unpause(self) -> None:
        await self._boss.unpause(self.id)

    async def steer(self, note: str) -> None:
        await self._boss.steer(self.id, note)

    def __repr__(self) -> str:
        return f"<run {self.id}>"
