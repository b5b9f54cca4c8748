"""Asking without ever asking for more than the model's context holds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from chargehand.errors import WorkerError
from chargehand.models.base import ModelReply, ModelRequest
from chargehand.models.gateway import Hear
from chargehand.roles.aggregate.context_chunks import LEAST, tokens_of
from chargehand.roles.model_calls import ModelCaller
from chargehand.roles.resources import Resources

#: tokens, where nobody says what the model holds
CONTEXT = 32_000
#: calls side by side
AT_ONCE = 8

T = TypeVar("T")


class LimitedModelCaller:
    """Measures every request before it goes out; one that could overflow is never sent."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller
        self.context: int = context_of(caller.resources)
        #: who answered last
        self.by = ""
        self._heard: set[str] = set()

    @property
    def resources(self) -> Resources:
        return self._caller.resources

    async def ask(self, name: str, request: ModelRequest, hear: Hear | None = None) -> ModelReply:
        tokens = tokens_of(request)
        if tokens > self.context:
            raise WorkerError(
                f"{name!r} was not asked: it could take {tokens} tokens with its answer, and the "
                f"context has {self.context}; raise ModelSettings(context=…) if the model holds more"
            )
        if hear is not None and name in self._heard:
            hear(None)  # what was heard before was sent back
        self._heard.add(name)
        reply = await self._caller.ask(name, request, hear)
        self.by = reply.model or self.resources.models(None, "the supervisor")[0].name
        return reply

    def room_beside(self, request: ModelRequest) -> int:
        """The tokens of material that may be added to a request. Raises if that is next to nothing."""
        room = self.context - tokens_of(request)
        if room < LEAST:
            most = request.settings.max_tokens
            raise WorkerError(
                f"the context has {self.context} tokens; the request and its instruction take up to "
                f"{tokens_of(request) - most}, the answer up to {most}, and nothing is left for the "
                "results; raise ModelSettings(context=…) or lower max_tokens",
                kind="denied",
            )
        return room


def context_of(resources: Resources) -> int:
    """The tokens that a request and its answer may have together."""
    return resources.settings.context or CONTEXT


async def side_by_side(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """What these came to, in their order. The first that fails stops the others, and is raised."""
    places = asyncio.Semaphore(AT_ONCE)

    async def placed(work: Callable[[], Awaitable[T]]) -> T:
        async with places:
            return await work()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(placed(work)) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
