"""What our tests need, yours may need too: virtual time for runs that wait.

    def test_retries_wait():
        result = run_virtual(boss.run(plan))   # an hour of backing off takes a moment

Time stands still while anything runs and jumps when everything waits, so nothing is ever slept
through and no test depends on how fast the machine is.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from chargehand.errors import UsageError

T = TypeVar("T")

#: seconds: a timer that is never set for longer only looks whether something has changed
HEARTBEAT = 1.0
#: jumps of time from one look at the timers to the next, and looks that may find nothing but heartbeats
BETWEEN_LOOKS, MOST_STILL = 1_000, 15
#: real seconds that are waited after such a look
THREADS = 0.1
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

    def has_only_heartbeats(self) -> bool:
        """Whether no timer is set for later than a heartbeat from now."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled", [])
        latest = self._virtual_now + HEARTBEAT
        return all(each.cancelled() or each.when() <= latest for each in scheduled)

    @property
    def is_waiting_for_threads(self) -> bool:
        return self._threads_out > 0

    def run_in_executor(  # type: ignore[override]  # typeshed pairs its arguments more narrowly
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self.expect_thread(future)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - as newer Pythons call it
        """Wait for the threads, however long they take: virtual time would jump over any timeout."""
        await super().shutdown_default_executor()

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
        self._jumps = 0
        #: looks in a row that found nothing but heartbeats
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
            # A thread that the loop does not know, such as a database's, may be at work.
            return super().select(THREADS)
        return ready

    def _is_still(self) -> bool:
        """Whether there are no timers but those that only look for changes; raises if it stays so."""
        self._still = self._still + 1 if self._loop.has_only_heartbeats() else 0
        if self._still > MOST_STILL:
            self._still = 0
            raise UsageError(
                "everything waits, and no timer will end it: perhaps for a question that nobody answers. Answer "
                "it with boss.answer(…), or run with on_question='fail' or 'return'"
            )
        return self._still > 0


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time.

    Raises `UsageError` if everything waits for something that no timer will bring, such as an answer.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
