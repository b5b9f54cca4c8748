"""The board in the hands of one attempt: what is done with it is a step."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.engines.brief import Brief
from chargehand.facts.board import board_of_run
from chargehand.facts.events import Effect
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.roles.board import Board

T = TypeVar("T")


class BriefBoard(Board):
    """The board of a run in the hands of one attempt.

    What it writes and reads is a step: written once however often the attempt is resumed, and read
    the same again. What it reads taints what it returns; what it writes carries what it has read.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        brief: Brief,
        name: str = "",
        role: str = "",
        scope: str = "",
        *,
        with_run: bool = False,
    ) -> None:
        super().__init__(
            journal,
            clock,
            name or board_of_run(brief.run),
            author=brief.worker,
            role=role or brief.worker,
            run=brief.run if with_run or not name else "",
        )
        self.brief = brief
        #: what its steps are named by beside what they do. Steps inside of a step need one that is
        #: that step's own: when it is replayed they are not, and the next ones would be taken for them.
        self.scope = scope

    def named(self, name: str, role: str = "") -> "BriefBoard":
        """The long-lived board of this name, in the hands of the same attempt."""
        return BriefBoard(self.journal, self.clock, self.brief, name, role, self.scope)

    async def _recorded(
        self,
        name: str,
        identity: object,
        run: Callable[[str], Awaitable[T]],
        kind: Any,
        taint_of: Callable[[T], tuple[str, ...]],
        *,
        effect: Effect = Effect.PURE,
    ) -> T:
        async def step(key: str) -> Done:
            found = await run(key)
            return Done(Value(json=Raw(msgspec.json.encode(found)), taint=taint_of(found)))

        called = f"{name} {self.scope}" if self.scope else name
        done = await self.brief.durable(called, identity, step, effect=effect, about=identity)
        found: T = msgspec.json.decode(done.value.json, type=kind)
        return found

    def _trusting(self, data: object) -> Value:
        value = super()._trusting(data)
        return replace(value, taint=tuple(dict.fromkeys((*value.taint, *self.brief.taint))))

    def _distrust(self, sources: tuple[str, ...]) -> None:
        self.brief.distrust(*sources)
