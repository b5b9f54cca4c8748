"""Virtual time for testing runs that wait.

    def test_retries_wait():
        result = run_virtual(boss.run(plan))   # an hour of backoff takes a moment

Time stands still while anything runs, and jumps to the next timer when everything waits. So tests never sleep, and do
not depend on the speed of the machine.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from chargehand.errors import UsageError

T = TypeVar("T")

#: a timer of at most this many seconds counts as a heartbeat, which only checks for changes
HEARTBEAT = 1.0
#: number of time jumps between two checks of the timers, and checks in a row that may find only heartbeats
BETWEEN_LOOKS, MOST_STILL = 1_000, 15
#: real seconds to wait for threads after a check that finds only heartbeats
THREADS = 0.1
START_AT = datetime(2030, 1, 1, tzinfo=UTC)


class FakeClock:
    """A `Clock` that follows the virtual time of the current event loop."""

    def __init__(self, start_at: datetime = START_AT) -> None:
        self._start_at = start_at

    def now(self) -> datetime:
        return self._start_at + timedelta(seconds=asyncio.get_running_loop().time())

    def not_before(self, at: datetime) -> None:
        self._start_at += max(at - self.now(), timedelta(0))

    async def sleep_until(self, at: datetime) -> None:
        await asyncio.sleep(max((at - self.now()).total_seconds(), 0))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when there is nothing else to do.

    It waits for threads that are started through it (sync workers and tools, `asyncio.to_thread`), but not for other
    threads. Use it with the journal in memory.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._threads_out = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._virtual_now

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds

    def has_only_heartbeats(self) -> bool:
        """Whether all timers are due within `HEARTBEAT` seconds."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled", [])
        latest = self._virtual_now + HEARTBEAT
        return all(each.cancelled() or each.when() <= latest for each in scheduled)

    @property
    def is_waiting_for_threads(self) -> bool:
        return self._threads_out > 0

    def run_in_executor(  # type: ignore[override]  # typeshed's signature is narrower
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self.expect_thread(future)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - the signature of newer Pythons
        """Wait for the threads without a timeout: virtual time would jump over it."""
        await super().shutdown_default_executor()

    def expect_thread(self, future: "asyncio.Future[Any]") -> None:
        """Stop time until a thread has set this future."""
        self._threads_out += 1
        future.add_done_callback(self._thread_is_back)

    def _thread_is_back(self, _: object) -> None:
        self._threads_out -= 1


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._jumps = 0
        #: checks in a row that found only heartbeats
        self._still = 0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self._loop.is_waiting_for_threads:
            return super().select(None)
        self._loop.jump(timeout)
        self._jumps += 1
        if self._jumps % BETWEEN_LOOKS == 0 and self._is_still():
            # A thread that the loop does not know, such as that of a database, may be running.
            return super().select(THREADS)
        return ready

    def _is_still(self) -> bool:
        """Whether all timers are heartbeats. Raises `UsageError` if that remains so."""
        self._still = self._still + 1 if self._loop.has_only_heartbeats() else 0
        if self._still > MOST_STILL:
            self._still = 0
            raise UsageError(
                "everything waits, and no timer will end it: perhaps for a question that nobody answers. Answer "
                "it with boss.answer(…), or run with on_question='fail' or 'return'"
            )
        return self._still > 0


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time and return its result.

    Raises `UsageError` if everything waits and no timer will end the wait, for example for an answer to a question.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
