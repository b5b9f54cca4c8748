"""What the supervisor's own work on a run (plan, refine, answer) sees of it and may change."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from chargehand.decisions.live_run import LiveRun
from chargehand.engines.brief import Brief, PlanningHost
from chargehand.facts.events import Event
from chargehand.facts.outcome import Outcome
from chargehand.facts.value import Value
from chargehand.journal.base import Blobs, load_value, store_value
from chargehand.roles.roster import Roster
from chargehand.roles.shared_resources import Resources


class PlanningContext:
    """What a system task has beyond the brief that every attempt gets."""

    def __init__(
        self,
        live_run: LiveRun,
        roster: Roster,
        now: Callable[[], datetime],
        blobs: Blobs,
        host: PlanningHost | None = None,
    ) -> None:
        #: the run as it stands at this moment; to be read only
        self.live_run = live_run
        self.roster = roster
        self.now = now
        self._blobs = blobs
        self._host = host

    async def bring(self, value: Value) -> Value:
        """The value itself, if it lies in a blob."""
        return await load_value(value, self._blobs)

    async def store(self, value: Value) -> Value:
        """The value as an event can hold it: a large one is put into a blob."""
        return await store_value(value, self._blobs)

    async def propose(self, event: Event) -> Event | None:
        """Have the plan changed; returns what was written down, or None if it was refused."""
        return None if self._host is None else await self._host.propose(self._run, event)

    def say(self, piece: str | None) -> None:
        """Send listeners a piece of the answer; None: it begins anew."""
        if self._host is not None:
            self._host.say(self._run, piece)

    @property
    def _run(self) -> str:
        requested = self.live_run.schedule.requested
        assert requested is not None  # noqa: S101 - for the type checker: a system task is of a run
        return requested.run


SystemTask = Callable[[Brief, PlanningContext, Resources], Awaitable[Outcome]]
"""What the supervisor does itself for a run: plan, rewrite a failed task, compose the answer."""
