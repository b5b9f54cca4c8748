"""The seat from which the supervisor's own thinking is done: it sees the whole run and may change its plan."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from chargehand.decisions.live_run import LiveRun
from chargehand.engines.brief import Brief
from chargehand.facts.events import Event
from chargehand.facts.outcome import Outcome
from chargehand.facts.value import Value
from chargehand.roles.resources import Resources
from chargehand.roles.roster import Roster


class PlanningContext(Protocol):
    """What a system task has beyond the brief that every attempt gets."""

    @property
    def live_run(self) -> LiveRun:
        """The run as it stands at this moment; to be read only."""

    @property
    def roster(self) -> Roster: ...

    def now(self) -> datetime: ...

    async def propose(self, event: Event) -> Event | None:
        """Have the plan changed; returns what was written down, or None if it was refused."""

    async def bring(self, value: Value) -> Value:
        """The value itself, if it lies in a blob."""

    def say(self, piece: str | None) -> None:
        """Let whoever listens hear the answer grow; None: it begins anew."""


SystemTask = Callable[[Brief, PlanningContext, Resources], Awaitable[Outcome]]
"""What the supervisor does itself for a run: plan, rewrite a failed task, compose the answer."""
