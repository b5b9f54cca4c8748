"""Calls that several callers want at the same moment: made once, for as long as anybody wants them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.wanted = 0
        self.is_claimed = False


class SharedCalls(Generic[T]):
    """Single-flight: one call a key at a time. Its first caller may leave; the call goes on for the others.

    Attempts of workers that come to the same are shared elsewhere, in the attempt factory: their steps are
    written in the name of one attempt, so their work cannot outlive it.
    """

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    async def join(self, key: str, call: Coroutine[Any, Any, T]) -> tuple[T, bool]:
        """The result of the call under way for this key, or of this one; and whether to pay for it.

        One of those who wait to its end pays. When the last has left, the call is cancelled.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(call))
            flight.task.add_done_callback(lambda task: self._land(key, task))
        else:
            call.close()
        flight.wanted += 1
        try:
            result = await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.wanted == 1 and not flight.task.done():
                self._flights.pop(key, None)  # whoever comes now begins anew
                flight.task.cancel()
                await asyncio.wait({flight.task})
            raise
        finally:
            flight.wanted -= 1
        pays, flight.is_claimed = not flight.is_claimed, True
        return result, pays

    def _land(self, key: str, task: "asyncio.Task[T]") -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # seen: all who wanted it may have left
