"""What our tests need, yours may need too: virtual time for runs that wait.

    def test_retries_wait():
        result = run_virtual(boss.run(plan))   # an hour of backing off takes a moment

Time stands still while anything runs and jumps when everything waits, so nothing is ever slept
through and no test depends on how fast the machine is.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from chargehand.errors import UsageError

T = TypeVar("T")

OTHERS = 1.0
#: seconds of real time for which a loop with nothing to do waits for threads that it did not start
START_AT = datetime(2030, 1, 1, tzinfo=UTC)


class FakeClock:
    """A `Clock` that follows the virtual time of the event loop it is asked in."""

    def __init__(self, start_at: datetime = START_AT) -> None:
        self._start_at = start_at

    def now(self) -> datetime:
        return self._start_at + timedelta(seconds=asyncio.get_running_loop().time())

    def not_before(self, at: datetime) -> None:
        self._start_at += max(at - self.now(), timedelta(0))

    async def sleep_until(self, at: datetime) -> None:
        await asyncio.sleep(max((at - self.now()).total_seconds(), 0))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is left to do.

    It waits for threads started through it (sync workers and tools, `asyncio.to_thread`), not for
    others: use it with the journal in memory.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._threads_out = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual_now

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    @property
    def is_waiting_for_threads(self) -> bool:
        return self._threads_out > 0

    def run_in_executor(  # type: ignore[override]  # typeshed pairs its arguments more narrowly
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self.expect_thread(future)
        return future

    def expect_thread(self, future: "asyncio.Future[Any]") -> None:
        """Let time stand still until a thread has set this future."""
        self._threads_out += 1
        future.add_done_callback(self._thread_is_back)

    def _thread_is_back(self, _: object) -> None:
        self._threads_out -= 1


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._still_since = 0.0
        #: of the machine's clock: since when nothing was due; 0: something was

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._loop.is_waiting_for_threads:
            return super().select(None)
        if timeout is None:
            return self._wait_for_others()
        self._still_since = 0.0
        self._loop.jump(timeout)
        return ready

    def _wait_for_others(self) -> Any:
        """Nothing is due: only a thread that the loop does not know of could still wake it."""
        now = time.monotonic()
        self._still_since = self._still_since or now
        left = self._still_since + OTHERS - now
        if left <= 0:
            raise UsageError(
                "everything waits, and no timer will end it: perhaps for a question that nobody answers. Answer "
                "it with boss.answer(…), or run with on_question='fail' or 'return'"
            )
        return super().select(left)


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time.

    Raises `UsageError` if all of it waits for something that no timer brings, such as an answer.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
