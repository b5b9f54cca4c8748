"""Delivers notices to one notifier in the background, so that no run waits for it."""

import asyncio
import logging
from collections import deque
from datetime import timedelta

from chargehand.notify.base import Notice, NoticeKind, Notifier

log = logging.getLogger("chargehand")

#: waiting notices; beyond this, the oldest is dropped, so that a notifier that hangs does not fill the memory
MOST_WAITING = 100
#: time to send one notice
LONGEST = timedelta(minutes=2)


class NoticeDelivery:
    """Sends notices one after another, in order. A notice that cannot be sent is logged and dropped.

    Its background task runs while notices are waiting; call `settle` before the event loop ends.
    """

    def __init__(self, notifier: Notifier, of: frozenset[NoticeKind]) -> None:
        self._notifier = notifier
        self._of = of
        self._waiting: deque[Notice] = deque()
        self._task: asyncio.Task[None] | None = None

    def take(self, notice: Notice) -> None:
        """Queue this notice if its kind is subscribed to and it is not queued already. Never waits."""
        if notice.kind not in self._of or any(each.id == notice.id for each in self._waiting):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._tell_lost("notice_dropped", self._waiting.popleft(), "too many are waiting")
        self._waiting.append(notice)
        loop = asyncio.get_running_loop()
        if not self._is_at_work(loop):
            self._task = loop.create_task(self._deliver(), name=f"chargehand {self._notifier!r}")

    def withdraw(self, run: str, question: str = "") -> None:
        """Remove the queued notices of this question or, without `question`, of all questions of the run."""
        moot = {question} if question else {each.question for each in self._waiting}
        self._waiting = deque(
            each
            for each in self._waiting
            if each.run != run or not each.question or each.question not in moot
        )

    async def settle(self, grace: timedelta) -> None:
        """Wait up to `grace` until all queued notices are sent, and drop the rest."""
        task = self._task
        if task is None or not self._is_at_work(asyncio.get_running_loop()):
            return
        _, late = await asyncio.wait([task], timeout=grace.total_seconds())
        if late:
            task.cancel()
            await asyncio.wait([task])
        while self._waiting:
            self._tell_lost("notice_not_sent", self._waiting.popleft(), "there was no time left")

    def _is_at_work(self, loop: asyncio.AbstractEventLoop) -> bool:
        task = self._task
        return task is not None and not task.done() and task.get_loop() is loop

    async def _deliver(self) -> None:
        while self._waiting:
            await self._send(self._waiting.popleft())

    async def _send(self, notice: Notice) -> None:
        told: BaseException | None = None
        try:
            async with asyncio.timeout(LONGEST.total_seconds()):
                # A task of its own: it may cancel its task, and those that wait behind it are sent all the same.
                told = await asyncio.create_task(self._notify(notice), name="chargehand notice")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        # Any error of a notifier is only logged; its SystemExit must not end a run.
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                self._tell_lost("notice_not_sent", notice, "there was no time left")
                raise
            told = error
        if told is not None:
            self._tell_lost("notice_not_sent", notice, str(told) or type(told).__name__)
        else:
            log.info(
                "notice_sent to=%r kind=%s id=%s", self._notifier, notice.kind.value, notice.id
            )

    async def _notify(self, notice: Notice) -> BaseException | None:
        """What the notifier raised; a SystemExit would end the event loop if it were raised in a task."""
        try:
            await self._notifier.notify(notice)
        except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - it is logged
            return error
        return None

    def _tell_lost(self, what: str, notice: Notice, why: str) -> None:
        log.warning(
            "%s to=%r kind=%s run=%s id=%s error=%r",
            *(what, self._notifier, notice.kind.value, notice.run, notice.id, why),
        )
